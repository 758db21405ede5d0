"""Figures of a worker through a server: one server process, one worker process that knows nothing but its address."""

from __future__ import annotations

import asyncio
import os
import re
import statistics
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import weft
from bench.place import ROOT, fresh_database, walled, worker_process
from bench.queue import SMALL, drained, fill, work_rate
from bench.report import Figure

GOAL = 5_000


@asynccontextmanager
async def server_process(url: str) -> AsyncIterator[str]:
    """Run a server in a process of its own; yields its address."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "weft", "server", "--port", "0", "--log-level", "warning",
        stderr=subprocess.PIPE, cwd=ROOT, env={**os.environ, "WEFT_DATABASE_URL": url}, start_new_session=True,
    )  # fmt: skip
    try:
        assert process.stderr is not None
        while (found := re.search(rb"http://\S+", await process.stderr.readline())) is None:
            pass
        yield found[0].decode()
    finally:
        process.terminate()
        await process.wait()


async def remote_rate(url: str, walled_url: str, tasks: int) -> float:
    """Enqueue, then drain through a server; return tasks per second."""
    await fill(url, tasks, SMALL)
    async with weft.Client(url) as client:
        token = (await client.tokens.create("bench", role="worker")).secret
    async with server_process(walled_url) as address:
        return await drained(url, tasks, lambda: worker_process(address, 1000, WEFT_TOKEN=token))


async def measure_server_worker(server: str, tasks: int, repeat: int) -> list[Figure]:
    """No-op tasks through one worker without a database, beside one with it."""
    remote, direct = [], []
    async with fresh_database(server) as url:
        walled_url = await walled(url)
        for _ in range(repeat):
            remote.append(await remote_rate(url, walled_url, tasks))
            direct.append(await work_rate(url, tasks, SMALL))
    rate, beside = statistics.median(remote), statistics.median(direct)
    return [
        Figure(f"work {tasks:,} no-op tasks through a server, one worker", rate, "tasks/s", f">= {GOAL:,}/s",
               rate >= GOAL, f"{rate / beside:.0%} of the worker with a database, {beside:,.0f}/s", remote)
    ]  # fmt: skip
