"""Whether an attempt takes the output of an earlier one instead of running: same handler, same code, same params."""

from __future__ import annotations

import hashlib
import logging
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

import orjson

from weft.core.checks import check_span
from weft.core.errors import BlobUnavailable, DatabaseUnavailable
from weft.core.json import referenced_blob
from weft.db.database import CONNECTION_ERRORS
from weft.jobs.rendering import CACHED_MARK, without_cache
from weft.queue import cache
from weft.queue.cache import Found, Reuse

if TYPE_CHECKING:
    from weft.db.blobs import Blobs
    from weft.db.database import Database
    from weft.queue.work import Claim

logger = logging.getLogger("weft.worker")
_OUTAGE = (*CONNECTION_ERRORS, DatabaseUnavailable, TimeoutError)


class Caching(NamedTuple):
    """How long an output serves, None for as long as history is kept; and whether an earlier one is taken."""

    lasts: timedelta | None = None
    takes: bool = True


def caching_of(said: object, field: str = "cache") -> Caching | None:
    """Return what an author says of the cache: a span or its seconds, True, or False for not at all."""
    if said is False:
        return None
    return Caching() if said is True else Caching(check_span(said, field))


def caching_said(params: str, own: Caching | None) -> tuple[str, Caching | None]:
    """Return the params alone, and what is said with them of the cache, else what the handler says itself."""
    if not params.startswith(CACHED_MARK):
        return params, own
    params, lasts, takes = without_cache(params)
    found = own if lasts is None else caching_of(lasts)
    return params, None if found is None else found._replace(takes=takes)


def key_of(handler: str, code: str, params: str) -> bytes:
    """Return what an output is known by: the order of keys in the params makes no difference."""
    ordered = orjson.dumps(orjson.loads(params), option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(b"\0".join((handler.encode(), code.encode(), ordered))).digest()


class OutputCache:
    """Finds outputs for the attempts of a worker; what goes wrong with it is no reason for a task to fail."""

    def __init__(self, database: Database, blobs: Blobs) -> None:
        self._database = database
        self._blobs = blobs

    async def find(self, claim: Claim, key: bytes, caching: Caching) -> tuple[str, Reuse] | None:
        """Return an output that serves, as it stands in the database, and whose it is."""
        if not caching.takes:
            return None
        task_id = claim.id
        try:
            async with self._database.acquire() as conn:
                found = await cache.find(conn, task_id, key, caching.lasts)
            if found is None or not await self._is_readable(task_id, key, found):
                return None
        except _OUTAGE as problem:
            logger.info("task %s runs without a look into the cache: %s", task_id, problem)
            return None
        return found.output, Reuse(None, root=found.task_id)

    async def _is_readable(self, task_id: int, key: bytes, found: Found) -> bool:
        """Whether an output is there; a large one is put anew, so that it is not collected before it is referred to."""
        if (digest := referenced_blob(found.output)) is None:
            return True
        try:
            await self._blobs.put(await self._blobs.get(digest))
        except BlobUnavailable as problem:
            logger.warning("task %s runs, though its output is in the cache: %s", task_id, problem)
            await self._database.run(lambda conn: cache.drop(conn, task_id, key, found))
            return False
        return True
