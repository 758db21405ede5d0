"""A far worker's slots of limited queues, counted in the database each time: any server may be asked next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from weft.queue import queues, remote_workers
from weft.queue.work import UNLIMITED, Claim, Completed, Lane

if TYPE_CHECKING:
    from weft.db.database import Database, type_Connection
    from weft.queue.remote_workers import Share
    from weft.queue.steps import Fence


class Shares:
    """What a worker may take from its limited queues; only that there are any is remembered here.

    Whatever takes a slot is counted and written in one transaction, after `remote_workers.lock_share`.
    """

    def __init__(
        self, database: Database, worker_id: int, lanes: Sequence[Lane], on_change: Callable[[], None] = lambda: None
    ) -> None:
        self._database = database
        self._worker_id = worker_id
        self._lanes = lanes
        self._on_change = on_change
        self._queues = [lane.queue_id for lane in lanes]
        self.is_limited = False
        # Attempts that have rested and would go on come first; and what the last claim has left of each queue.
        self._returning: Counter[int] = Counter()
        self._spare: Counter[int] = Counter()

    async def refresh(self) -> None:
        """Look again whether any of the queues has a limit."""
        async with self._database.acquire() as conn:
            found = await queues.limits(conn, self._queues)
        self.is_limited = any(limit is not None for limit in found.values())
        for lane in self._lanes:
            if found.get(lane.queue_id) is None:
                lane.room = UNLIMITED
        self._on_change()

    async def measure(self, conn: type_Connection, wanted: int, completed: Sequence[Completed] = ()) -> bool:
        """Set the room of each limited queue for the rest of a transaction; return whether more should be asked for.

        What completes in it leaves its slots to what is claimed: a claim that took none of them would be the last
        until somebody looks again.
        """
        await remote_workers.lock_share(conn, self._worker_id)
        ending = [(outcome.id, outcome.attempt) for outcome in completed]
        found = await remote_workers.shares(conn, self._worker_id, self._queues, ending)
        self._spare.clear()
        for lane in self._lanes:
            if (share := found.get(lane.queue_id)) is None:
                lane.room = UNLIMITED
            else:
                spare = min(share.held, share.limit) - share.used
                lane.room = max(0, spare - self._returning[lane.queue_id])
                self._spare[lane.queue_id] = spare
        return any(self._need(queue_id, share, wanted) != share.held for queue_id, share in found.items())

    def _need(self, queue_id: int, share: Share, wanted: int) -> int:
        """Return how many slots should be held: those that could be used, and none that are there given back."""
        need = max(share.held, share.used + self._returning[queue_id] + wanted)
        return min(need, share.limit)

    def claimed(self, claims: Iterable[Claim]) -> None:
        """Note what was claimed of what was measured."""
        self._spare.subtract(claim.queue_id for claim in claims)

    async def ask(self, wanted: int) -> None:
        """Ask for as many slots as could be used."""
        await self._database.run(lambda conn: self._lease(conn, lambda id, share: self._need(id, share, wanted)))

    async def give_back(self) -> set[int]:
        """Keep only the slots that are in use; return the queues that have free ones now."""
        if not any(spare > self._returning[queue_id] for queue_id, spare in self._spare.items()):
            return set()
        self._spare.clear()
        return await self._database.run(
            lambda conn: self._lease(conn, lambda id, share: min(share.held, share.used + self._returning[id]))
        )

    async def _lease(self, conn: type_Connection, need: Callable[[int, Share], int]) -> set[int]:
        """Lease other numbers of slots than are held, where they are needed; return the queues for which that is so."""
        await remote_workers.lock_share(conn, self._worker_id)
        found = await remote_workers.shares(conn, self._worker_id, self._queues)
        # Queues are locked in order: others may need the same ones.
        changed = {id: need(id, share) for id, share in sorted(found.items()) if need(id, share) != share.held}
        for queue_id, wanted in changed.items():
            await queues.lease_slots(conn, queue_id, self._worker_id, wanted, found[queue_id].used)
        return set(changed)

    @contextmanager
    def returning(self, queue_id: int) -> Iterator[None]:
        """Let no claim of this server take a slot before an attempt that would go on in the body."""
        self._returning[queue_id] += 1
        try:
            yield
        finally:
            self._returning[queue_id] -= 1

    async def may_go_on(self, conn: type_Connection, fence: Fence, queue_id: int) -> bool:
        """Whether an attempt goes on, within the limit of its queue: it has rested until now, or did not at all."""
        await remote_workers.lock_share(conn, self._worker_id)
        if not await remote_workers.rests(conn, fence):
            return True
        share = (await remote_workers.shares(conn, self._worker_id, [queue_id])).get(queue_id)
        if share is not None and min(share.held, share.limit) <= share.used:
            granted = await queues.lease_slots(conn, queue_id, self._worker_id, share.used + 1, share.used)
            if granted is not None and granted <= share.used:
                return False
        await remote_workers.end_rest(conn, fence)
        return True
