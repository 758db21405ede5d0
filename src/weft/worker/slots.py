"""A worker's share of the queues that may run only so many tasks at once."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from weft.db.database import OUTAGE, Database
from weft.queue import queues
from weft.queue.work import UNLIMITED, Claim, Lane

logger = logging.getLogger("weft.worker")
_SHORTEST, _LONGEST = 0.002, 0.25
# How many slots of each queue are in use at the moment: attempts go on beside the worker's loop.
InUse = Callable[[], Mapping[int, int]]


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
        # What the claim that is under way may take; and attempts that have rested and would go on, which come first.
        self._promised: dict[int, int] = {}
        self._returning: Counter[int] = Counter()
        self._turn = asyncio.Lock()

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

    async def lease(self, lanes: Sequence[Lane], in_use: InUse, wanted: int) -> None:
        """Set the room of each limited queue to what this worker may still take from it."""
        for lane in lanes:
            async with self._turn:
                if lane.queue_id not in self._limits:
                    continue
                used, held = in_use().get(lane.queue_id, 0), self._held.get(lane.queue_id, 0)
                back = self._returning[lane.queue_id]
                need = min(used + back + wanted, self._limits[lane.queue_id])
                if need > held or held > self._limits[lane.queue_id]:
                    held = await self._ask(lane.queue_id, need, used)
                # The limit may have been lifted while we asked.
                if lane.queue_id in self._limits:
                    lane.room = self._promised[lane.queue_id] = max(0, held - used - back)

    def claimed(self) -> None:
        """What was promised has been claimed, and is in use, or was not there."""
        self._promised.clear()

    async def go_on(self, claim: Claim, in_use: InUse, is_over: Callable[[], bool]) -> None:
        """Return when an attempt that has rested may go on, or is over: within the limit of its queue.

        A worker keeps the slots of those that rest: no other gets them, and none waits for long. Whoever calls lets the
        attempt go on before anything else happens.
        """
        queue_id = claim.queue_id
        self._returning[queue_id] += 1
        pause = _SHORTEST
        try:
            while queue_id in self._limits and not is_over():
                async with self._turn:
                    if await self._has_room(queue_id, in_use):
                        return
                await asyncio.sleep(pause)
                pause = min(_LONGEST, pause * 2)
        finally:
            self._returning[queue_id] -= 1

    async def _has_room(self, queue_id: int, in_use: InUse) -> bool:
        """Whether there is a slot for one that has rested, beside what is promised; more are asked for if need be."""
        if (limit := self._limits.get(queue_id)) is None:
            return True
        held, used = self._held.get(queue_id, 0), in_use().get(queue_id, 0)
        need = min(used + self._returning[queue_id], limit)
        # Never for fewer than there are: a claim that is under way may have been promised them.
        if need > held:
            try:
                held = await self._ask(queue_id, need, used)
            except OUTAGE as problem:
                logger.info("waits to let a task of queue %s go on: %s", queue_id, problem)
                return False
        return held - in_use().get(queue_id, 0) - self._promised.get(queue_id, 0) > 0

    def room(self, lanes: Sequence[Lane]) -> int:
        """Return how many tasks could be taken from all queues together; a great number when one has no limit."""
        rooms = [lane.room for lane in lanes]
        return sum(rooms) if UNLIMITED not in rooms else 2**31

    async def give_back(self, lanes: Sequence[Lane], in_use: InUse) -> set[int]:
        """Keep only the slots that are in use; return the queues that have free ones now."""
        given: set[int] = set()
        for lane in lanes:
            async with self._turn:
                used = in_use().get(lane.queue_id, 0)
                keep = used + self._returning[lane.queue_id]
                if self._held.get(lane.queue_id, 0) > keep:
                    await self._ask(lane.queue_id, keep, used)
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
