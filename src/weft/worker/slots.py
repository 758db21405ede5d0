"""A worker's share of the queues that may run only so many tasks at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from weft.db.database import Database
from weft.queue import queues
from weft.queue.work import UNLIMITED, Lane


class Slots:
    """Slots of limited queues, leased in blocks, so that claiming costs nothing extra while a block lasts.

    A worker that has found a queue empty gives back what it does not use.
    """

    def __init__(self, database: Database, worker_id: int, on_change: Callable[[], None] = lambda: None) -> None:
        self._database = database
        self._worker_id = worker_id
        self._on_change = on_change
        self._limits: dict[int, int] = {}
        self._held: dict[int, int] = {}

    @property
    def is_limited(self) -> bool:
        """Whether any of the queues has a limit."""
        return bool(self._limits)

    async def refresh(self, lanes: Sequence[Lane]) -> None:
        """Read the limits again; a queue without one has room for everything."""
        async with self._database.acquire() as conn:
            found = await queues.limits(conn, [lane.queue_id for lane in lanes])
        self._limits = {queue_id: limit for queue_id, limit in found.items() if limit is not None}
        for lane in lanes:
            if lane.queue_id not in self._limits:
                lane.room = UNLIMITED
                self._held.pop(lane.queue_id, None)
        self._on_change()

    async def lease(self, lanes: Sequence[Lane], in_use: Mapping[int, int], wanted: int) -> None:
        """Set the room of each limited queue to what this worker may still take from it."""
        for lane in lanes:
            if lane.queue_id not in self._limits:
                continue
            used, held = in_use.get(lane.queue_id, 0), self._held.get(lane.queue_id, 0)
            need = min(used + wanted, self._limits[lane.queue_id])
            if need > held or held > self._limits[lane.queue_id]:
                held = await self._ask(lane.queue_id, need, used)
            # The limit may have been lifted while we asked.
            if lane.queue_id in self._limits:
                lane.room = max(0, held - used)

    def room(self, lanes: Sequence[Lane]) -> int:
        """Return how many tasks could be taken from all queues together; a great number when one has no limit."""
        rooms = [lane.room for lane in lanes]
        return sum(rooms) if UNLIMITED not in rooms else 2**31

    async def give_back(self, lanes: Sequence[Lane], in_use: Mapping[int, int]) -> set[int]:
        """Keep only the slots that are in use; return the queues that have free ones now."""
        given: set[int] = set()
        for lane in lanes:
            used = in_use.get(lane.queue_id, 0)
            if self._held.get(lane.queue_id, 0) > used:
                await self._ask(lane.queue_id, used, used)
                if lane.queue_id in self._limits:
                    lane.room = 0
                given.add(lane.queue_id)
        return given

    async def _ask(self, queue_id: int, need: int, used: int) -> int:
        # Until the answer is here nothing is known: it may be lost although the slots are with another worker now.
        self._held.pop(queue_id, None)
        granted = await self._database.run(lambda conn: queues.lease_slots(conn, queue_id, self._worker_id, need, used))
        if granted is None:
            # No limit at the moment, and so no slots: should there be one again, it is asked for anew.
            return need
        self._held[queue_id] = granted
        return granted
