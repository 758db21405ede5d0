"""Jobs: chains, fan-outs and floods of small jobs, by one orchestrator process and one worker process."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg

import weft
from bench.place import child_process, fresh_database, worker_process
from bench.report import Figure

CONCURRENCY = 200
FIBS = 40
FIB_OVERHEAD = f"{FIBS} sequential fib(10), all but the computing"
FAN = "1 → 1,000 → 1"


def chain(nodes: int) -> dict[str, Any]:
    """Return a workflow of so many tasks that do nothing, one after the other."""
    return _row("chain", nodes, {"handler": "bench:noop"})


def fibs(nodes: int) -> dict[str, Any]:
    """Return a workflow of so many tasks that compute fib(10), one after the other."""
    return _row("fibs", nodes, {"handler": "bench:fib", "params": {"n": 10}})


def _row(name: str, nodes: int, task: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"START": {"type": "start", "next": "n0"}}
    for number in range(nodes):
        found[f"n{number}"] = task | {"next": f"n{number + 1}" if number + 1 < nodes else "END"}
    return {"workflow_id": name, "nodes": found | {"END": {"type": "end"}}}


def fan(items: int) -> dict[str, Any]:
    """Return a workflow of one task for each of so many items, which are gathered again."""
    return {
        "workflow_id": "fan",
        "nodes": {
            "START": {"type": "start", "next": "each"},
            "each": {
                "type": "fan_out",
                "items": list(range(items)),
                "task": {"handler": "bench:noop", "params": {"x": "{{ item }}"}},
                "next": "all",
            },
            "all": {"type": "fan_in", "next": "END"},
            "END": {"type": "end"},
        },
    }


SMALL: dict[str, Any] = {
    "workflow_id": "small",
    "inputs": {"size": {"type": "integer", "default": 1}},
    "nodes": {
        "START": {"type": "start", "next": "first"},
        "first": {"handler": "bench:noop", "params": {"x": "{{ inputs.size }}"}, "next": "choose"},
        "choose": {
            "type": "conditional",
            "condition_field": "{{ inputs.size }}",
            "branches": [{"condition": "< 10", "next": "light"}, {"default": True, "next": "heavy"}],
        },
        "light": {"handler": "bench:noop", "next": "END"},
        "heavy": {"handler": "bench:noop", "next": "END"},
        "END": {"type": "end"},
    },
}


async def measure_jobs(server: str, scale: int, repeat: int) -> list[Figure]:
    """Each shape of job, from its submission to its end, beside the database's own time for a commit."""
    async with fresh_database(server) as url:
        commit = await _commit(url)
        beside = f"one-row commit {commit:.2f} ms"
        async with (
            worker_process(url, CONCURRENCY),
            child_process("bench.orchestrator", url),
            weft.Client(url) as client,
        ):
            await _ended(client, chain(10))
            hops = 1000 // scale
            hop = [1000 * each / hops for each in await _runs(repeat, lambda: _ended(client, chain(hops)))]
            fans = await _runs(repeat, lambda: _ended(client, fan(1000)))
            # A twentieth of a second each: many, and not while the database still tidies up after the widest of all.
            await _overhead(client)
            overheads = [await _overhead(client) for _ in range(10 * repeat)]
            wide = await _runs(1, lambda: _ended(client, fan(100_000 // scale)))
            small = [2000 // scale / each for each in await _runs(repeat, lambda: _flood(client, 2000 // scale))]
    return [
        _figure(f"chain of {hops:,} tasks, a hop", hop, "ms", 1.0, beside),
        _figure(FAN, fans, "s", 0.15, beside),
        _figure(f"1 → {100_000 // scale:,} → 1", wide, "s", 6.0 / scale, beside),
        _figure(FIB_OVERHEAD, overheads, "s", 0.05, beside),
        Figure(
            f"{2000 // scale:,} small jobs at once", statistics.median(small), "jobs/s", ">= 800 jobs/s",
            statistics.median(small) >= 800, beside, small,
        ),
    ]  # fmt: skip


def _figure(workload: str, runs: list[float], unit: str, goal: float, beside: str) -> Figure:
    value = statistics.median(runs)
    return Figure(workload, value, unit, f"<= {goal:g} {unit}", value <= goal, beside, runs)


async def _runs(repeat: int, act: Callable[[], Awaitable[object]]) -> list[float]:
    found = []
    for _ in range(repeat):
        began = time.perf_counter()
        await act()
        found.append(time.perf_counter() - began)
    return found


async def _ended(client: weft.Client, definition: dict[str, Any]) -> int:
    handle = await client.jobs.submit(definition)
    job = await client.jobs.wait(handle.id, timeout=120)
    assert job.state == "completed", job
    return handle.id


async def _overhead(client: weft.Client) -> float:
    """Return the seconds of a job that its tasks did not spend computing, by their own clocks."""
    began = time.perf_counter()
    job_id = await _ended(client, fibs(FIBS))
    total = time.perf_counter() - began
    tasks = [node.id for node in await client.jobs.nodes(job_id) if node.handler == "bench:fib"]
    clocked: list[float] = [await client.wait(task_id) for task_id in tasks]
    assert len(clocked) == FIBS
    return total - sum(clocked)


async def _flood(client: weft.Client, count: int) -> None:
    """Submit so many jobs, a few at a time, and wait for all."""
    turns = asyncio.Semaphore(8)

    async def one() -> int:
        async with turns:
            return (await client.jobs.submit(SMALL)).id

    ids = await asyncio.gather(*(one() for _ in range(count)))
    await asyncio.gather(*(client.jobs.wait(job_id, timeout=120) for job_id in ids))


async def _commit(url: str) -> float:
    """Return the milliseconds of a commit of one row, as asyncpg sees it."""
    conn = await asyncpg.connect(url)
    await conn.execute("create table raw_commit (x int)")
    statement = await conn.prepare("insert into raw_commit values (1)")
    found = await _runs(200, statement.fetch)
    await conn.execute("drop table raw_commit")
    await conn.close()
    return 1000 * statistics.median(found)
