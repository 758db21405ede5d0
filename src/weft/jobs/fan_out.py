"""Expands a fan_out: one task for each item, some at a time, so that whoever takes over goes on where it was."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any

from weft.core.errors import LeaseLost
from weft.core.json import Json, blob_reference, check_size, encode, size_of
from weft.core.signals import NonRetryable
from weft.flow.templates import read_value
from weft.jobs.cached_params import with_cache
from weft.jobs.rendering import key_of
from weft.jobs.submit import SQL
from weft.queue import blobs

if TYPE_CHECKING:
    from weft.core.settings import Settings
    from weft.db.blobs import Blobs
    from weft.db.database import Database, type_Connection
    from weft.db.machine import IdSource

_CHUNK = 2_000
# So many seconds expressions are evaluated before others of the same process have their turn.
_TURN = 0.01


class FanOut:
    """A fan_out that runs: by whom, in which attempt, and what it makes of each item."""

    def __init__(
        self, task_id: int, attempt: int, worker_id: int, spec: dict[str, Any], values: dict[str, Json]
    ) -> None:
        self._fence = worker_id, task_id, attempt
        self._spec = spec
        self._values = values
        self._params = read_value(spec["params"])
        self._key = read_value(spec["key"])

    @property
    def items(self) -> list[Json]:
        """What there is a task for each of."""
        found = read_value(self._spec["items"]).render(self._values)
        if not isinstance(found, list):
            raise NonRetryable(f"items: must be a list, not {type(found).__name__}")
        return found

    async def expand(self, database: Database, ids: IdSource, storage: Callable[[], Blobs]) -> int:
        """Make the tasks that are not there yet; return how many items there are. Raises `LeaseLost`."""
        items = self.items
        async with database.acquire() as conn:
            done = await conn.fetchval(SQL.count_children, self._fence[1])
            kept = await self._kept(conn)
        left = ((place, items[place]) for place in range(done, len(items)) if place not in kept)
        while chunk := list(islice(left, _CHUNK)):
            places = [place for place, _ in chunk]
            params, keys = await self._rendered(chunk, database.settings, storage)
            made = await ids.take(len(chunk))
            if not await database.run(
                lambda conn, at=places, of=params, keys=keys, ids=made: self._add(conn, at, of, keys, ids)  # type: ignore[misc]
            ):
                raise LeaseLost(self._fence[1])
        return len(items)

    async def _rendered(
        self, chunk: Sequence[tuple[int, Json]], settings: Settings, storage: Callable[[], Blobs]
    ) -> tuple[list[str], list[str | None]]:
        """Return the params and the keys of items; others have their turn meanwhile, however long expressions take."""
        params, keys, began = [], [], time.monotonic()
        for place, item in chunk:
            values = {**self._values, "item": item, "index": place}
            params.append(await self._written(values, settings, storage))
            keys.append(self._key_of(values))
            if time.monotonic() - began > _TURN:
                await asyncio.sleep(0)
                began = time.monotonic()
        return params, keys

    async def _kept(self, conn: type_Connection) -> set[int]:
        """Return the items whose outputs another job has, of which this one keeps them."""
        parents = [int(id) for id in self._spec.get("kept", ())]
        return {row[0] for row in await conn.fetch(SQL.completed_items, parents)} if parents else set()

    async def _written(self, values: dict[str, Json], settings: Settings, storage: Callable[[], Blobs]) -> str:
        """Return the params of a task as they stand in the database: themselves, or a reference when they are large."""
        text = encode(self._params.render(values), "params")
        if (size := size_of(text)) <= settings.inline_limit:
            return text
        check_size("params", text, settings.value_limit)
        return blob_reference(await storage().put(text.encode()), size)

    def _key_of(self, values: dict[str, Json]) -> str | None:
        if self._spec["max_parallel"] is not None:
            return f"@{self._fence[1]}"
        return None if self._spec["key"] is None else key_of(self._key, values, "concurrency_key")

    async def _add(
        self, conn: type_Connection, places: Sequence[int], params: Sequence[str], keys: Sequence[str | None],
        ids: Sequence[int],
    ) -> bool:  # fmt: skip
        task = self._spec["task"]
        lasts, takes = task.get("cache", (None, True))
        # The reference to a blob is noted as it is.
        kept = params if "cache" not in task else [with_cache(text, lasts, takes=takes) for text in params]
        added = await conn.fetchval(
            SQL.add_children, *self._fence, ids, places, kept, task["queue_id"], task["handler"], task["priority"],
            task["max_attempts"], task["retry"], _span(task["timeout"]), _span(task["heartbeat_timeout"]),
            _span(task["dispatch_timeout"]), keys, self._spec["max_parallel"], task["allow_failure"],
        )  # fmt: skip
        if added:
            await blobs.keep(conn, zip(ids, params, strict=True))
        return bool(added)


def _span(seconds: float | None) -> timedelta | None:
    return None if seconds is None else timedelta(seconds=seconds)
