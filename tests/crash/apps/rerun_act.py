"""Runs jobs again, each in a process of its own, which a test may kill.

It reads what to do from its standard input, a line each, and makes a copy of itself for it. It writes the number of
that process, and how it ended.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import traceback
from typing import Any

import weft
import weft.db.revisions
import weft.sdk.client
import weft.sdk.jobs  # loaded before copies are made


async def perform(job_id: int, settings: dict[str, Any]) -> None:
    """Reach the database, do it, and leave."""
    async with weft.Client(settings=weft.Settings.load(environ={}, **settings)) as client:
        await client.jobs.rerun(job_id, failed=True)


def perform_in_a_copy(order: dict[str, Any]) -> int:
    """Return how the process ended that did what was ordered."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            asyncio.run(perform(**order))
            code = 0
        except Exception:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    print(pid, flush=True)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


if __name__ == "__main__":
    print("ready", flush=True)
    for line in sys.stdin:
        print(perform_in_a_copy(json.loads(line)), flush=True)
