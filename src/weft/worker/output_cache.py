"""Whether an attempt takes the output of an earlier one instead of running: of the same code, params and datasets."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from weft.core.errors import BlobUnavailable
from weft.core.json import referenced_blob
from weft.db.database import OUTAGE
from weft.queue import cache
from weft.queue.cache import Found, Keys, Reuse

if TYPE_CHECKING:
    from weft.db.blobs import Blobs
    from weft.db.database import Database
    from weft.queue.work import Claim
    from weft.worker.caching import Caching

logger = logging.getLogger("weft.worker")


class OutputCache:
    """Finds outputs for the attempts of a worker; what goes wrong with it is no reason for a task to fail."""

    def __init__(self, database: Database, blobs: Blobs) -> None:
        self._database = database
        self._blobs = blobs

    async def find(self, claim: Claim, keys: Keys, caching: Caching) -> tuple[str, Reuse] | None:
        """Return an output that serves, as it stands in the database, and whose it is."""
        try:
            while (found := await self._look(claim, keys, caching)) is not None:
                if await self._is_readable(claim.id, found):
                    return found.output, Reuse(None, root=found.task_id, entry=found.entry)
        except OUTAGE as problem:
            logger.info("task %s runs without a look into the cache: %s", claim.id, problem)
        return None

    async def _look(self, claim: Claim, keys: Keys, caching: Caching) -> Found | None:
        async with self._database.acquire() as conn:
            return await cache.find(conn, claim.id, claim.attempt, keys, caching.lasts, takes=caching.takes)

    async def _is_readable(self, task_id: int, found: Found) -> bool:
        """Whether an output is there; a large one is put anew, so that it is not collected before it is referred to."""
        if (digest := referenced_blob(found.output)) is None:
            return True
        try:
            await self._blobs.put(await self._blobs.get(digest))
        except BlobUnavailable as problem:
            logger.warning("task %s runs, though its output is in the cache: %s", task_id, problem)
            await self._database.run(lambda conn: cache.drop(conn, task_id, found))
            return False
        return True
