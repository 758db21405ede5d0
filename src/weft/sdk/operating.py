"""The part of the client with which operators act: cancel, replay, purge, pause, limit."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from datetime import timedelta
from typing import Any

from weft.core.checks import check_id, check_ids, check_name, check_number, check_span, check_text, check_words
from weft.core.errors import InvalidInput
from weft.core.states import LIVE, TaskState
from weft.queue import cache, operate, outbox, queues
from weft.sdk.looking import Looking
from weft.worker.logs import remove_logs

Progress = Callable[[int], object]
PAGE = 500


class Operating(Looking):
    """What acts on work that is there; each act is kept in the audit trail."""

    async def cancel(self, task_id: int, *, reason: str = "cancelled") -> None:
        """Cancel a task that has not ended; a running attempt is told, and whatever it writes is refused.

        Example::

            await client.cancel(handle.id, reason="ordered twice")
        """
        task_id = check_id(task_id)
        check_text(reason, "reason", 500)
        org_id = await self.org_id()

        async def write(conn: Any) -> None:
            if not await operate.cancel(conn, org_id, [task_id], reason, self.actor):
                raise await operate.explain_refusal(conn, org_id, "cancel", task_id)

        await self.database.run(write)

    async def cancel_all(
        self, *, queue: str | None = None, handler: str | None = None, state: str | Iterable[str] | None = None,
        reason: str = "cancelled", dry_run: bool = False, ids: Sequence[int] | None = None,
        on_progress: Progress | None = None,
    ) -> int:  # fmt: skip
        """Cancel all tasks that have not ended, or those of a queue, a handler, some states or ids; return how many.

        It goes in batches, from the newest on, and ``on_progress`` is called with the count after each: what is
        enqueued meanwhile is left alone. A ``dry_run`` only counts. `replay_all` undoes it. Example::

            await client.cancel_all(queue="mail", handler="newsletter")
        """
        check_text(reason, "reason", 500)
        states = cancellable(state)
        if ids is not None and (dry_run or not queue is handler is state is None):
            raise InvalidInput("ids", "says which tasks: leave queue, handler, state and dry_run out")
        org_id, count = await self.org_id(), 0
        async for batch in self._pages(queue, handler, states, ids):
            count += len(batch if dry_run else await self._cancel_batch(org_id, batch, reason))
            if on_progress is not None:
                on_progress(count)
        return count

    async def _cancel_batch(self, org_id: int, batch: list[int], reason: str) -> set[int]:
        return await self.database.run(lambda conn: operate.cancel(conn, org_id, batch, reason, self.actor))

    async def replay(self, task_id: int, *, state: str | Iterable[str] | None = None) -> None:
        """Send a failed, dead or cancelled task round again, with its attempts kept and counted anew.

        With ``state`` only from there: ``failed`` means a dead letter, failed or dead. Example::

            await client.replay(handle.id)
        """
        task_id, states, org_id = check_id(task_id), replayable(state), await self.org_id()

        async def write(conn: Any) -> int:
            landed = await operate.replay(conn, org_id, [task_id], self.actor, states)
            if not landed:
                raise await operate.explain_refusal(conn, org_id, "replay", task_id, states)
            return landed[task_id]

        self._hints.send_ids({await self.database.run(write)})

    async def replay_dead(
        self, *, queue: str | None = None, handler: str | None = None, dry_run: bool = False,
        on_progress: Progress | None = None,
    ) -> int:  # fmt: skip
        """Send all dead letters round again: `replay_all` of those that ended failed or dead.

        Example::

            await client.replay_dead(handler="email:send", dry_run=True)
        """
        return await self.replay_all(
            queue=queue, handler=handler, state=TaskState.FAILED, dry_run=dry_run, on_progress=on_progress
        )

    async def replay_all(
        self, *, queue: str | None = None, handler: str | None = None, state: str | Iterable[str] | None = None,
        dry_run: bool = False, ids: Sequence[int] | None = None, on_progress: Progress | None = None,
    ) -> int:  # fmt: skip
        """Send all failed, dead and cancelled tasks round again, or those of a queue, a handler, a state or ids.

        It goes in batches, and ``on_progress`` is called with the count after each. Returns how many; a ``dry_run``
        only counts them. Example::

            await client.replay_all(state="cancelled", queue="mail")
        """
        states = replayable(state)
        if ids is not None and (dry_run or not queue is handler is None):
            raise InvalidInput("ids", "says which tasks: leave queue, handler and dry_run out")
        org_id, count = await self.org_id(), 0
        async for batch in self._pages(queue, handler, states, ids):
            count += len(batch if dry_run else await self._replay_batch(org_id, batch, states))
            if on_progress is not None:
                on_progress(count)
        return count

    async def _replay_batch(self, org_id: int, batch: list[int], states: Collection[str]) -> dict[int, int]:
        landed = await self.database.run(lambda conn: operate.replay(conn, org_id, batch, self.actor, states))
        self._hints.send_ids(set(landed.values()))
        return landed

    async def _pages(
        self, queue: str | None, handler: str | None, states: Collection[TaskState], ids: Sequence[int] | None = None
    ) -> AsyncIterator[list[int]]:
        """Yield the ids of tasks, those in some states or those that are given, a page at a time."""
        if ids is not None:
            known = check_ids(ids)
            for place in range(0, len(known), PAGE):
                yield known[place : place + PAGE]
            return
        before: int | None = None
        while True:
            page = await self.list_tasks(state=states, queue=queue, handler=handler, before=before, limit=PAGE)
            if page.tasks:
                yield [task.id for task in page.tasks]
            if page.next is None:
                return
            before = page.next

    async def purge(
        self, *, older_than: float | timedelta = 0, queue: str | None = None, ids: Sequence[int] | None = None,
        limit: int | None = None, on_progress: Progress | None = None,
    ) -> int:  # fmt: skip
        """Remove dead letters for good, with their params, attempts and logs; return how many.

        There may be more when it is as many as the ``limit``. ``on_progress`` is called with the count after each
        batch. Example::

            await client.purge(older_than=timedelta(days=90), queue="mail")
        """
        org_id = await self.org_id()
        age = check_span(older_than, "older_than", zero=True)
        queue_id = await self._queue_id(queue)
        chosen = None if ids is None else check_ids(ids)
        left = None if limit is None else check_number(limit, "limit", 1, 1_000_000)
        count = 0
        while True:
            most = 1000 if left is None else min(1000, left - count)
            gone = await self.database.run(
                lambda conn, most=most: operate.purge(conn, org_id, age, queue_id, chosen, most, self.actor)  # type: ignore[misc]
            )
            await remove_logs(self.settings, gone)
            count += len(gone)
            if on_progress is not None:
                on_progress(count)
            if len(gone) < most or count == left:
                return count

    async def count_dead(self, *, older_than: float | timedelta = 0, queue: str | None = None) -> int:
        """Return how many dead letters `purge` would remove.

        Example::

            await client.count_dead(older_than=timedelta(days=90))
        """
        org_id = await self.org_id()
        age = check_span(older_than, "older_than", zero=True)
        queue_id = await self._queue_id(queue)
        async with self.database.acquire() as conn:
            return await operate.count_purgeable(conn, org_id, age, queue_id)

    async def pause_queue(self, name: str) -> None:
        """Stop claims from a queue; what runs goes on.

        Example::

            await client.pause_queue("mail")
        """
        org_id = await self.org_id()
        await self.database.run(lambda conn: queues.pause(conn, org_id, name, self.actor))

    async def resume_queue(self, name: str) -> None:
        """Let claims from a queue go on.

        Example::

            await client.resume_queue("mail")
        """
        org_id = await self.org_id()
        self._hints.send_ids({await self.database.run(lambda conn: queues.resume(conn, org_id, name, self.actor))})

    async def limit_queue(
        self, name: str, max_running: int | None, *, per_key: bool = False, key: str | None = None
    ) -> None:
        """Set how many tasks of a queue run at once; None lifts the limit.

        It counts all tasks of the queue, with ``per_key`` those of each concurrency key, with ``key`` those of one.

        Example::

            await client.limit_queue("mail", 10)
            await client.limit_queue("mail", 2, per_key=True)
        """
        org_id = await self.org_id()
        changed = await self.database.run(
            lambda conn: queues.limit(conn, org_id, name, max_running, per_key=per_key, key=key, actor=self.actor)
        )
        self._hints.send_ids({changed})

    async def replay_outbox(self, ids: Sequence[int] | None = None) -> int:
        """Send failed effects round again; return how many.

        Example::

            await client.replay_outbox([effect_id])
        """
        org_id = await self.org_id()
        chosen = None if ids is None else check_ids(ids)
        return await self.database.run(lambda conn: outbox.replay(conn, org_id, chosen, self.actor))

    async def purge_outbox(self, ids: Sequence[int] | None = None) -> int:
        """Remove failed effects for good, those named or all; return how many. Later ones of their keys go on.

        Example::

            await client.purge_outbox([effect_id])
        """
        org_id = await self.org_id()
        chosen = None if ids is None else check_ids(ids)
        return await self.database.run(lambda conn: outbox.purge(conn, org_id, chosen, self.actor))

    async def clear_cache(self, handler: str | None = None) -> int:
        """Forget the outputs of a handler that would serve again, or those of all; return how many there were.

        Example::

            await client.clear_cache("raster.render")
        """
        name = None if handler is None else check_name(handler, "handler")
        org_id, count = await self.org_id(), 0
        while gone := await self.database.run(lambda conn: cache.clear(conn, org_id, name, self.actor)):
            count += gone
        return count


def cancellable(state: str | Iterable[str] | None) -> Collection[TaskState]:
    """Return the states from which to cancel: all before the end, or those of them that are named."""
    states = LIVE if state is None else check_words(state, "state", TaskState)
    if wrong := sorted(states - LIVE):
        raise InvalidInput("state", f"'{wrong[0]}' is an end: only tasks that have not ended can be cancelled")
    return states


def replayable(state: str | Iterable[str] | None) -> Collection[TaskState]:
    """Return the states from which to replay; raises for one that is no end or no failure."""
    states = operate.REPLAYABLE if state is None else check_words(state, "state", TaskState)
    if wrong := sorted(states - operate.REPLAYABLE):
        raise InvalidInput("state", f"'{wrong[0]}' is not one of {', '.join(sorted(operate.REPLAYABLE))}")
    return states | {TaskState.DEAD} if TaskState.FAILED in states else states
