"""Does something about live jobs, each time in a process of its own, which a test may kill; as `crash.apps.job_act`."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import weft
import weft.db.revisions
import weft.sdk.client
from crash.apps.copies import in_a_copy
from crash.job_acts import settings_for
from weft.live.router import Router
from weft.live.source_ticks import SourceTicker


async def perform(act: str, url: str, home: str) -> None:
    """Reach the database, do it, and leave."""
    async with weft.Client(settings=settings_for(url, home)) as client:
        match act:
            case "tick":
                await SourceTicker(client.database).run_once()
            case "route":
                await Router(client.database).run_once()
            case _:
                raise AssertionError(act)


def perform_in_a_copy(order: dict[str, Any]) -> int:
    """Return how the process ended that did what was ordered."""
    return in_a_copy(lambda: asyncio.run(perform(**order)))


if __name__ == "__main__":
    print("ready", flush=True)
    for line in sys.stdin:
        print(perform_in_a_copy(json.loads(line)), flush=True)
