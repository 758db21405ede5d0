"""Whether an attempt takes the output of an earlier one instead of running: same handler, same code, same params."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from weft.core.errors import BlobUnavailable
from weft.core.json import referenced_blob
from weft.db.database import OUTAGE
from weft.queue import cache
from weft.queue.cache import Found, Reuse

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
        except OUTAGE as problem:
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
