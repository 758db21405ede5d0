"""The service by which what was asked of live DAGs goes on: versions that have caught up come into effect."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from weft.live import backfilling
from weft.live.deploying import SQL
from weft.queue.service import Service

if TYPE_CHECKING:
    from weft.db.database import Database

logger = logging.getLogger("weft.live")
_AT_ONCE = 100


async def run_once(database: Database) -> int:
    """Bring versions into effect whose new jobs have caught up; return how many. Any number may do so at once."""
    found, lag = await database.read(lambda conn: conn.fetch(SQL.being_built, _AT_ONCE)), database.settings.swap_lag
    done = 0
    for row in found:
        if await database.run(lambda conn, id=row["id"]: conn.fetchval(SQL.swap_when_caught_up, id, lag)):  # type: ignore[misc]
            logger.info("the version of live DAG %s that was built is in effect", row["id"])
            done += 1
    return done


class Swapper(Service):
    """Looks again and again whether what was built has caught up, and lets backfills go on."""

    name = "swapper"
    interval = 1.0

    def __init__(self, database: Database) -> None:
        super().__init__()
        self._database = database

    async def run_once(self) -> int:
        """Do one batch of both; return how much was done."""
        return await run_once(self._database) + await backfilling.run_once(self._database)
