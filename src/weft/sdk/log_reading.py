"""The part of the client that reads what tasks have printed: here, and on machines that have copied it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

from weft.core.checks import MAX_ID, check_id, check_number
from weft.core.errors import DatabaseUnavailable
from weft.queue import look
from weft.queue.model import Task
from weft.sdk.session import Session
from weft.worker.logs import heading_of, local_log, local_size, part_of, parts_of

_LOOK_EVERY = 0.2
# So often the worker of a task is told that somebody follows its log elsewhere.
ASK_EVERY = 1.0


class LogReading(Session):
    """What reads logs."""

    async def read_log(self, task_id: int, offset: int = 0, *, attempt: int | None = None) -> bytes | None:
        """Return what a task has printed from ``offset`` on; None when there is no log.

        It is read from the folder of logs, and from the copies in the blob storage where these have more: an attempt
        may have run on another machine. All attempts stand in it, one after the other, or one ``attempt`` alone.
        Example::

            text = await client.read_log(handle.id, attempt=2)
        """
        task_id = check_id(task_id)
        check_number(offset, "offset", 0, MAX_ID)
        if attempt is not None:
            check_number(attempt, "attempt", 1, 2**31 - 1)
        await self._task(task_id)
        org_id = await self.org_id()
        copies = await self.database.read(lambda conn: look.logs(conn, org_id, task_id, attempt))
        here = await local_size(self.settings, task_id)
        if attempt is None and here is not None and here >= sum(copy.bytes for copy in copies):
            return await local_log(self.settings, task_id, offset)
        found = await self._put_together(task_id, copies)
        text = found.get(attempt) if attempt is not None else _joined(found) if found else None
        return None if text is None else text[offset:]

    async def follow_log(self, task_id: int, offset: int = 0) -> AsyncIterator[bytes]:
        """Yield what a task prints, from ``offset`` on, until it has ended.

        A restart of PostgreSQL does not end it. Example::

            async for text in client.follow_log(handle.id):
                print(text.decode(), end="")
        """
        task_id = check_id(task_id)
        check_number(offset, "offset", 0, MAX_ID)
        await self._task(task_id)
        ending = asyncio.create_task(self._until_ended(task_id))
        try:
            has_ended, asked_at = False, -ASK_EVERY
            while not has_ended:
                # Before the log is read: what is printed before a task has ended stands in it then.
                has_ended = ending.done()
                try:
                    if time.monotonic() - asked_at >= ASK_EVERY:
                        await self._ask_for_log(task_id)
                        asked_at = time.monotonic()
                    data = await self.read_log(task_id, offset)
                except DatabaseUnavailable:
                    data, has_ended = None, False
                    await asyncio.sleep(_LOOK_EVERY)
                if data:
                    yield data
                    offset += len(data)
                if not has_ended:
                    await asyncio.wait([ending], timeout=_LOOK_EVERY)
            ending.result()
        finally:
            ending.cancel()
            await asyncio.gather(ending, return_exceptions=True)

    async def _ask_for_log(self, task_id: int) -> None:
        """Let a task's worker copy what it prints while it runs, where that cannot be read on this machine."""
        if self.settings.log_upload and await local_size(self.settings, task_id) is None:
            org_id = await self.org_id()
            await self.database.run(lambda conn: look.ask_for_logs(conn, org_id, [task_id]))

    async def _until_ended(self, task_id: int) -> None:
        await self.waiter.until_ended(task_id, None, self._task)

    async def _put_together(self, task_id: int, copies: list[look.CopiedLog]) -> dict[int, bytes]:
        """Return what each attempt has printed: of what is here and what was copied the longer text."""
        found = parts_of(await local_log(self.settings, task_id) or b"")
        for copy in copies:
            if len(found.get(copy.attempt, b"")) < copy.bytes:
                text = part_of(await self.blobs.get(copy.digest), copy.attempt) or b""
                found[copy.attempt] = max(found.get(copy.attempt, b""), text, key=len)
        return found

    async def _task(self, task_id: int) -> Task:
        """Return a task without its values; raises `NotFound`."""
        org_id = await self.org_id()
        return (await self.database.read(lambda conn: look.show(conn, org_id, task_id)))[0]


def _joined(found: dict[int, bytes]) -> bytes:
    """Return a whole log, as it would be had all attempts run on one machine."""
    log = b""
    for attempt, text in sorted(found.items()):
        log += heading_of(attempt, has_text=bool(log)) + text
    return log
