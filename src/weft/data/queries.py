"""Runs queries for a process: what carries them out is started with the first, and ended with the process."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING

from weft.data.extra import needs

if TYPE_CHECKING:
    from weft.core.settings import Settings
    from weft.data.query_process import QueryProcess


class Queries:
    """Runs queries for a process and all its orgs; nothing is started before the first."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        # Of those that run and wait, so many may have their datasets at hand.
        self.room = asyncio.Semaphore(2 * settings.query_concurrency)
        self._starting = asyncio.Lock()
        self._process: QueryProcess | None = None

    async def process(self) -> QueryProcess:
        """Return what runs queries, when it does."""
        needs("duckdb")
        from weft.data.query_model import QueryLimits
        from weft.data.query_process import QueryProcess

        async with self._starting:
            if self._process is None:
                said = self._settings
                limits = QueryLimits(
                    memory=said.query_memory, seconds=math.ceil(said.query_timeout.total_seconds()),
                    cpu_seconds=2 * math.ceil(said.query_timeout.total_seconds()), rows=said.query_rows,
                )  # fmt: skip
                process = QueryProcess(limits, at_once=said.query_concurrency)
                await process.start()
                self._process = process
            return self._process

    async def close(self) -> None:
        """End all queries."""
        if self._process is not None:
            process, self._process = self._process, None
            await process.stop()
