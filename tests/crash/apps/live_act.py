"""Does something to live jobs, each time in a process of its own, which a test may kill; like `job_act`."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import weft
import weft.data.storage
import weft.db.revisions
import weft.sdk.client
from crash.apps.copies import in_a_copy
from crash.job_acts import settings_for
from crash.live_acts import ACTS


async def perform(act: str, url: str, home: str, **said: Any) -> None:
    """Reach the database, do it, and leave."""
    overrides = {"dataset_retention": said.pop("retention")} if "retention" in said else {}
    async with weft.Client(settings=settings_for(url, home, **overrides)) as client:
        await ACTS[act](client, **said)


if __name__ == "__main__":
    print("ready", flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        print(in_a_copy(lambda order=order: asyncio.run(perform(**order))), flush=True)  # type: ignore[misc]
