"""A large graph that is put together by hand: its submission, and the work on it by one worker process."""

from __future__ import annotations

import statistics
import time

import asyncpg

import weft
from bench.place import child_process, fresh_database, worker_process
from bench.report import Figure
from weft.jobs.items import Task

LAYERS = 100
EDGES = 3
PATIENCE_S = 300
CONCURRENCY = 1_000


def layered(width: int) -> list[Task]:
    """Return the last of 100 layers of so many tasks, each of which waits for three of the layer before."""
    before = [Task("bench:noop") for _ in range(width)]
    for _ in range(LAYERS - 1):
        layer = [Task("bench:noop") for _ in range(width)]
        for number, task in enumerate(layer):
            task.depends_on([before[(number + step) % width] for step in range(EDGES)])
        before = layer
    return before


async def measure_graphs(server: str, width: int, repeat: int) -> list[Figure]:
    """From the call to the answer that the job is there, and from then on to its end."""
    tasks, edges, submits, rates, raw = LAYERS * width, (LAYERS - 1) * width * EDGES, [], [], []
    async with (
        fresh_database(server) as url,
        worker_process(url, CONCURRENCY),
        child_process("bench.orchestrator", url),
        weft.Client(url) as client,
    ):
        for _ in range(repeat):
            raw.append(await _copied(url, tasks))
            items = layered(width)
            began = time.perf_counter()
            handle = await client.jobs.submit_graph("layers", items)
            submitted = time.perf_counter()
            job = await client.jobs.wait(handle.id, timeout=PATIENCE_S)
            assert job.state == "completed", job
            submits.append(submitted - began)
            rates.append(tasks / (time.perf_counter() - submitted))
    submit, rate, goal = statistics.median(submits), statistics.median(rates), 2.0 * width / 1000
    return [
        Figure(f"submit a graph of {tasks:,} tasks with {edges:,} edges", submit, "s", f"<= {goal:g} s",
               submit <= goal, f"COPY of the rows alone {statistics.median(raw):.2f} s", submits),
        Figure(f"work {LAYERS} layers x {width:,} tasks x {EDGES} edges", rate, "tasks/s", ">= 15,000 tasks/s",
               rate >= 15_000, "", rates),
    ]  # fmt: skip


async def _copied(url: str, count: int) -> float:
    """Return how long the rows alone take, in one transaction that is undone."""
    conn = await asyncpg.connect(url)
    tasks = [(n, 1, 1, 1, "pending", 3, "bench:noop", '{"x":1}', 1, "noop") for n in range(1, count + 1)]
    edges = [(max(1, n - 1000 - each), n, 1) for n in range(1, count + 1) for each in (1, 2, 3)]
    edges = list(dict.fromkeys(edges))
    columns = "id org_id queue_id order_id state waiting_on handler params job_id node".split()
    transaction = conn.transaction()
    await transaction.start()
    began = time.perf_counter()
    await conn.copy_records_to_table("task", schema_name="weft", columns=columns, records=tasks)
    await conn.copy_records_to_table("edge", schema_name="weft", columns=["prev", "next", "org_id"], records=edges)
    took = time.perf_counter() - began
    await transaction.rollback()
    await conn.close()
    return took
