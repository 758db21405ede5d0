"""Makes tasks for others that run, and tells them how those ended."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import asyncpg

from weft.core.errors import InvalidInput, LeaseLost
from weft.core.json import BLOB_MARK, blob_reference, check_size, referenced_blob, size_of
from weft.jobs.adding import SQL
from weft.queue import blobs
from weft.queue.endings import Endings
from weft.queue.steps import Fence

if TYPE_CHECKING:
    from weft.db.blobs import Blobs
    from weft.db.database import Database, type_Connection

_LATEST = 0.25


class Kin:
    """The tasks that those of one worker have made and wait for."""

    def __init__(self, database: Database, storage: Blobs) -> None:
        self._database = database
        self._blobs = storage
        self._endings = Endings(database, latest=_LATEST)

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
        await self._endings.until_ended(ids)

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

    async def close(self) -> None:
        """Wait no more."""
        await self._endings.close()


def _span(seconds: float | None) -> timedelta | None:
    return None if seconds is None else timedelta(seconds=seconds)
