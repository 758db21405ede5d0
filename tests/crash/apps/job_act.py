"""Does something about jobs, each time in a process of its own, which a test may kill.

It reads what to do from its standard input, a line each, and makes a copy of itself for it: nothing has to be loaded
again. It writes the number of that process, and how it ended.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import weft
import weft.db.revisions
import weft.sdk.client
import weft.sdk.orchestrator
import weft.sdk.workflows  # loaded before copies are made
from crash.apps.copies import in_a_copy
from crash.job_acts import ACTS, settings_for
from weft.jobs.library import Libraries
from weft.live.ticker import Ticker


async def perform(act: str, url: str, home: str, job_id: int | None = None, key: str | None = None) -> None:
    """Reach the database, do it, and leave; an orchestrator goes on until it is killed."""
    async with weft.Client(settings=settings_for(url, home)) as client:
        if act == "orchestrate":
            await weft.Orchestrator(client=client).run()
        elif act == "tick":
            await Ticker(client.database, client.ids, Libraries(client.database, lambda: client.blobs)).run_once()
        else:
            await ACTS[act].perform(client, job_id, key)


def perform_in_a_copy(order: dict[str, Any]) -> int:
    """Return how the process ended that did what was ordered."""
    return in_a_copy(lambda: asyncio.run(perform(**order)))


if __name__ == "__main__":
    print("ready", flush=True)
    for line in sys.stdin:
        print(perform_in_a_copy(json.loads(line)), flush=True)
