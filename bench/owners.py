"""How long the job of an orchestrator that was killed is without an owner."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import statistics
import time
from typing import Any

import weft
from bench.place import child_process, fresh_database
from bench.report import Figure

GIVEN_UP_S = 60.0
LOOK_S = 0.05

# The conditional makes an owner, the wait keeps the job from ending.
WAITING: dict[str, Any] = {
    "workflow_id": "waiting",
    "nodes": {
        "START": {"type": "start", "next": "choose"},
        "choose": {
            "type": "conditional",
            "condition_field": "{{ 1 }}",
            "branches": [{"default": True, "next": "hold"}],
        },
        "hold": {"type": "wait", "for": "event", "event": "never", "next": "END"},
        "END": {"type": "end"},
    },
}


async def measure_owners(server: str, repeat: int) -> list[Figure]:
    """From kill -9 of a job's orchestrator to the moment when another owns the job, with the standard settings."""
    async with fresh_database(server) as url, weft.Client(url) as client:
        runs = [await _orphaned(url, client) for _ in range(repeat)]
    found = statistics.median(runs)
    return [
        Figure("an orphaned job has a new owner", found, "s", "<= 10 s", max(runs) <= 10,
               f"looked every {LOOK_S:g} s; at most {max(runs):.1f} s", runs),
    ]  # fmt: skip


async def _orphaned(url: str, client: weft.Client) -> float:
    async with child_process("bench.orchestrator", url) as owner:
        job = await client.jobs.submit(WAITING)
        first = await _owner_other_than(client, job.id, None)
        async with child_process("bench.orchestrator", url):
            # Heartbeats and looks for orphans have a phase: the kill must not always meet the same.
            await asyncio.sleep(random.uniform(0, 2))
            os.kill(owner.pid, signal.SIGKILL)
            began = time.perf_counter()
            await _owner_other_than(client, job.id, first)
            lasted = time.perf_counter() - began
            await client.jobs.cancel(job.id)
    return lasted


async def _owner_other_than(client: weft.Client, job_id: int, first: int | None) -> int:
    """Return who owns the job, once it is somebody else."""
    async with asyncio.timeout(GIVEN_UP_S):
        while True:
            owner = (await client.jobs.show(job_id)).owner_id
            if owner not in (None, first):
                return owner
            await asyncio.sleep(LOOK_S)
