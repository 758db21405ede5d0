"""Makes tasks for others that run, and tells them how those ended: one look for all who wait."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import asyncpg

from weft.core.errors import DatabaseUnavailable, InvalidInput, LeaseLost
from weft.core.json import BLOB_MARK, blob_reference, check_size, referenced_blob, size_of
from weft.db.database import CONNECTION_ERRORS
from weft.jobs.adding import SQL
from weft.queue import blobs, look
from weft.queue.steps import Fence

if TYPE_CHECKING:
    from weft.db.blobs import Blobs
    from weft.db.database import Database, type_Connection

logger = logging.getLogger("weft.worker")
_OUTAGE = (*CONNECTION_ERRORS, DatabaseUnavailable, TimeoutError)
SHORTEST, LONGEST = 0.002, 0.25


class _Wait:
    """One task that somebody waits for."""

    def __init__(self) -> None:
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.since = time.monotonic()
        self.waiters = 0


class Kin:
    """The tasks that those of one worker have made and wait for."""

    def __init__(self, database: Database, storage: Blobs) -> None:
        self._database = database
        self._blobs = storage
        self._waits: dict[int, _Wait] = {}
        self._looking: asyncio.Task[None] | None = None

    async def spawn(self, conn: type_Connection, fence: Fence, said: dict[str, Any]) -> dict[str, Any]:
        """Make a task, or find the one of an earlier attempt; return its id, and whether who makes it has a key.

        Raises `LeaseLost`.
        """
        try:
            row = await conn.fetchrow(
                SQL.spawn, *fence, said["call"], said["handler"], said["queue"], said["params"], said["priority"],
                said["max_attempts"], said["retry"], _span(said["timeout"]), _span(said["heartbeat_timeout"]),
                said["concurrency_key"], said["allow_failure"],
            )  # fmt: skip
        except asyncpg.PostgresError as problem:
            if problem.sqlstate == "WF001":
                raise InvalidInput("queue", f"there is no queue {said['queue']!r}: make it first") from None
            raise
        if row is None:
            raise LeaseLost(fence.task_id)
        if row["known_handler"] != said["handler"]:
            what = f"an earlier attempt called {row['known_handler']!r} here, not {said['handler']!r}"
            raise InvalidInput("spawn", f"{what}: give each call a key of its own")
        if said["params"].startswith(BLOB_MARK):
            await blobs.keep(conn, [(row["id"], said["params"])])
        return {"id": str(row["id"]), "has_key": row["has_key"]}

    async def with_small_params(self, said: dict[str, Any]) -> dict[str, Any]:
        """Return what was said with large params moved to the blob storage."""
        settings, text = self._database.settings, said["params"]
        check_size("params", text, settings.value_limit)
        if (size := size_of(text)) <= settings.inline_limit:
            return said
        return {**said, "params": blob_reference(await self._blobs.put(text.encode()), size)}

    async def until_ended(self, ids: Sequence[int]) -> None:
        """Return when all of some tasks have ended; PostgreSQL may be away meanwhile."""
        waits = {id: self._waits.setdefault(id, _Wait()) for id in ids}
        for wait in waits.values():
            wait.waiters += 1
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())
        try:
            # Not `gather`: whoever is cancelled here does not end the wait of others.
            await asyncio.wait([wait.ended for wait in waits.values()])
        finally:
            for id, wait in waits.items():
                wait.waiters -= 1
                if not wait.waiters and self._waits.get(id) is wait:
                    del self._waits[id]
        for wait in waits.values():
            wait.ended.result()

    async def outcomes(self, conn: type_Connection, ids: Sequence[int]) -> list[dict[str, Any]]:
        """Return how tasks ended, in order."""
        found = {row["id"]: row for row in await conn.fetch(SQL.outcomes, list(ids))}
        return [await self._told(id, found.get(id)) for id in ids]

    async def _told(self, id: int, row: Any) -> dict[str, Any]:
        if row is None:
            return {"id": str(id), "state": "gone", "reason": "removed", "error": None, "output": None}
        output = row["output"]
        if output is not None and (digest := referenced_blob(output)) is not None:
            output = (await self._blobs.get(digest)).decode()
        return {**row, "id": str(id), "output": output}

    async def _look(self) -> None:
        while self._waits:
            ended: set[int] = set()
            try:
                async with self._database.acquire() as conn:
                    ended = await look.ended_among(conn, list(self._waits))
            except _OUTAGE as problem:
                logger.info("waits on for %d tasks: %s", len(self._waits), problem)
            except Exception as problem:  # noqa: BLE001  handed to all who wait: the look itself has nobody to tell
                waits, self._waits = self._waits, {}
                for wait in waits.values():
                    wait.ended.set_exception(problem)
                return
            for task_id in ended:
                if (found := self._waits.pop(task_id, None)) is not None:
                    found.ended.set_result(None)
            if self._waits:
                youngest = max(wait.since for wait in self._waits.values())
                await asyncio.sleep(min(LONGEST, max(SHORTEST, (time.monotonic() - youngest) / 10)))

    def close(self) -> None:
        """Look no more."""
        if self._looking is not None:
            self._looking.cancel()


def _span(seconds: float | None) -> timedelta | None:
    return None if seconds is None else timedelta(seconds=seconds)
