"""Changes the history of workflows, each change in a process of its own, which a test may kill.

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
import weft.sdk.workflows  # loaded before copies are made
from crash.apps.copies import in_a_copy
from crash.history_acts import ACTS, LARGE, UPKEEP, settings_for


async def perform(
    act: str, url: str, home: str, actor: str, name: str = "", prepared: Any = None, blob_url: str | None = None
) -> None:
    """Reach the database, do it, and leave."""
    async with weft.Client(settings=settings_for(url, home, actor, blob_url)) as client:
        await (ACTS | LARGE | UPKEEP)[act].perform(client.workflows, name, prepared)


def perform_in_a_copy(order: dict[str, Any]) -> int:
    """Return how the process ended that did what was ordered."""
    return in_a_copy(lambda: asyncio.run(perform(**order)))


if __name__ == "__main__":
    print("ready", flush=True)
    for line in sys.stdin:
        print(perform_in_a_copy(json.loads(line)), flush=True)
