"""Throughput of the queue: work, enqueue, pick-up, with history, with a held vacuum horizon, with limits."""

from __future__ import annotations

import asyncio
import io
import os
import random
import socket
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import timedelta

import asyncpg

import weft
from bench import raw
from bench.place import child_process, fresh_database, worker_process
from bench.report import Figure
from weft.db.statements import Statements
from weft.queue import workers

SMALL = {"x": "0123456789"}  # 20 bytes as JSON text
LARGE = {"x": "a1b2c3d4" * 123}  # about 1,000 bytes
CONCURRENCY = 1000
_WARM_UP = 20
_TASK = Statements("weft.queue", "sql/task.sql")
_LIMIT = 800
_KEYS = (20, 100)


async def raw_rate(url: str, tasks: int, params: dict[str, str], batch: int = 500) -> float:
    """What the same SQL function does on the same schema with no Python work but to hand ids back, one connection."""
    await fill(url, tasks, params)
    conn = await asyncpg.connect(url)
    me = await workers.register(
        conn,
        1,
        lease=timedelta(hours=1),
        concurrency=batch,
        pid=1,
        hostname="raw",
        version="0",
        queues=[1],
        handlers=[],
    )
    began = time.perf_counter()
    done, ids = 0, list[int]()
    while True:
        rows = await conn.fetch(
            _TASK.finish_and_claim, me, ids, [1] * len(ids), ["null"] * len(ids), [1], [-1], [-32768], [0], [0], batch,
            True, None,
        )  # fmt: skip
        if not rows:
            break
        ids = sorted(row["id"] for row in rows)
        if rows[0]["params"] is None:
            await conn.fetch(_TASK.params_of, ids)
        done += len(ids)
    rate = done / (time.perf_counter() - began)
    await workers.deregister(conn, me)
    await conn.close()
    assert done == tasks, (done, tasks)
    return rate


async def empty(url: str) -> None:
    """Remove all tasks."""
    conn = await asyncpg.connect(url)
    await conn.execute("truncate weft.task, weft.task_done, weft.task_params, weft.idempotency_key, weft.key_slot")
    await conn.close()


async def fill(url: str, tasks: int, params: dict[str, str] | None, *, keep: bool = False) -> float:
    """Enqueue no-op tasks and return the rate."""
    if not keep:
        await empty(url)
    async with weft.Client(url) as client:
        new = [weft.NewTask("bench:noop", params) for _ in range(tasks)]
        began = time.perf_counter()
        await client.enqueue_many(new)
        rate = tasks / (time.perf_counter() - began)
        async with client.database.acquire() as conn:
            await conn.execute("analyze weft.task")
        return rate


async def drain_rate(url: str, tasks: int, *, queue: str = "default", concurrency: int = CONCURRENCY) -> float:
    """Start one worker process and return tasks per second, first claim to last end, by the database's clock."""
    return await drained(url, tasks, lambda: worker_process(url, concurrency, queue=queue))


async def drained(
    url: str, tasks: int, work: Callable[[], AbstractAsyncContextManager[asyncio.subprocess.Process]]
) -> float:
    """Let somebody work until nothing is left, and return tasks per second."""
    conn = await asyncpg.connect(url)
    lowest, last = await conn.fetchrow("select min(id), max(id) from weft.task") or (0, 0)
    async with work():
        # One row by its key, then all: to look for any row at all reads every dead one, over and over.
        for is_left in (
            f"select exists (select 1 from weft.task where id = {last})",
            "select exists (table weft.task)",
        ):
            while await conn.fetchval(is_left):  # noqa: ASYNC110  only the database knows
                await asyncio.sleep(0.05)
    row = await conn.fetchrow(
        "select count(*) as n, extract(epoch from max(ended_at) - min(claimed_at))::float8 as seconds"
        " from weft.task_done where id >= $1",
        lowest,
    )
    await conn.close()
    assert row is not None
    assert row["n"] == tasks, (row, tasks)
    return float(row["n"] / row["seconds"])


async def work_rate(url: str, tasks: int, params: dict[str, str]) -> float:
    """Enqueue, then drain."""
    await fill(url, tasks, params)
    return await drain_rate(url, tasks)


async def measure_work(server: str, tasks: int, repeat: int) -> list[Figure]:
    """No-op tasks through one worker process, beside the raw function."""
    figures = []
    async with fresh_database(server) as url:
        for name, params in (("20 bytes", SMALL), ("1,000 bytes", LARGE)):
            raws, rates = [], []
            for _ in range(repeat):
                raws.append(await raw_rate(url, tasks, params))
                rates.append(await work_rate(url, tasks, params))
            rate, raw = statistics.median(rates), statistics.median(raws)
            goal = ">= 25,000/s and >= 50 % of raw" if params is SMALL else ">= 50 % of raw"
            meets = rate >= 0.5 * raw and (params is LARGE or rate >= 25_000)
            figures.append(
                Figure(f"work {tasks:,} no-op tasks, params of {name}", rate, "tasks/s", goal, meets,
                       f"{rate / raw:.0%} of raw {raw:,.0f}/s", rates)
            )  # fmt: skip
    return figures


async def copy_rate(url: str, *tables: str) -> float:
    """What the server does with the rows that were just enqueued: the same text again by COPY, in one transaction."""
    conn = await asyncpg.connect(url)
    texts = {}
    for table in tables:
        buffer = io.BytesIO()
        await conn.copy_from_query(f"select * from weft.{table}", output=buffer)
        texts[table] = buffer
    rows = await conn.fetchval(f"select count(*) from weft.{tables[0]}")
    await empty(url)
    began = time.perf_counter()
    async with conn.transaction():
        for table, text in texts.items():
            text.seek(0)
            await conn.copy_to_table(table, source=text, schema_name="weft")
    rate = rows / (time.perf_counter() - began)
    await conn.close()
    return float(rate)


async def measure_enqueue(server: str, tasks: int, repeat: int) -> list[Figure]:
    """enqueue_many without and with keys beside COPY of the same rows, and single enqueue beside one-row commits."""
    plain: list[float] = []
    plain_raw: list[float] = []
    keyed: list[float] = []
    keyed_raw: list[float] = []
    single: list[float] = []
    commits: list[float] = []
    async with fresh_database(server) as url, weft.Client(url) as client:
        for _ in range(repeat):
            await empty(url)
            new = [weft.NewTask("bench:noop", SMALL) for _ in range(tasks)]
            began = time.perf_counter()
            await client.enqueue_many(new)
            plain.append(tasks / (time.perf_counter() - began))
            plain_raw.append(await copy_rate(url, "task"))
            await empty(url)
            new = [
                weft.NewTask("bench:noop", SMALL, idempotency_key=f"k-{random.getrandbits(64)}") for _ in range(tasks)
            ]
            began = time.perf_counter()
            await client.enqueue_many(new)
            keyed.append(tasks / (time.perf_counter() - began))
            keyed_raw.append(await copy_rate(url, "task", "idempotency_key"))
        await empty(url)
        conn = await asyncpg.connect(url)
        await conn.execute("create table one_row (id bigserial primary key, x text)")
        for _ in range(repeat):
            for rates, step in (
                (commits, lambda: conn.execute("insert into one_row (x) values ($1)", "0123456789")),
                (single, lambda: client.enqueue("bench:noop", SMALL)),
            ):
                for _ in range(200):
                    await step()
                began = time.perf_counter()
                for _ in range(2000):
                    await step()
                rates.append(2000 / (time.perf_counter() - began))
        await conn.close()
    share = statistics.median(single) / statistics.median(commits)
    return [
        Figure("enqueue_many without keys", statistics.median(plain), "tasks/s", ">= 100,000/s",
               statistics.median(plain) >= 100_000,
               f"COPY of the same rows {statistics.median(plain_raw):,.0f}/s", plain),
        Figure("enqueue_many with idempotency keys", statistics.median(keyed), "tasks/s", ">= 50,000/s",
               statistics.median(keyed) >= 50_000,
               f"COPY of the same rows {statistics.median(keyed_raw):,.0f}/s", keyed),
        Figure("single enqueue, sequential", statistics.median(single), "tasks/s", ">= 60 % of one-row commits",
               share >= 0.6, f"{share:.0%} of {statistics.median(commits):,.0f} commits/s", single),
    ]  # fmt: skip


class Inbox:
    """A datagram socket on which handlers tell when they started."""

    def __init__(self) -> None:
        self.path = os.path.join(tempfile.mkdtemp(prefix="weft-bench-"), "inbox")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.path)
        self.socket.setblocking(False)

    async def take(self) -> tuple[float, float]:
        """Return when the task was sent and when it started."""
        data = await asyncio.wait_for(asyncio.get_running_loop().sock_recv(self.socket, 200), 30)
        sent, started = data.split()
        return float(sent), float(started)

    async def latencies(self, samples: int, send: Callable[[float], Awaitable[object]]) -> list[float]:
        """Send one task at a time, each after a while of rest; milliseconds from before that to its start."""
        found = []
        for number in range(samples + _WARM_UP):
            await asyncio.sleep(0.03 + random.uniform(0, 0.1))
            await send(time.time())
            sent, started = await self.take()
            if number >= _WARM_UP:
                found.append((started - sent) * 1000)
        return found


async def pick_up(url: str, workers: int, samples: int) -> list[float]:
    """Enqueue one task at a time to idle workers; milliseconds from before enqueue to handler start."""
    await empty(url)
    inbox = Inbox()
    async with worker_process(url, 10, workers, BENCH_INBOX=inbox.path), weft.Client(url) as client:
        return await inbox.latencies(samples, lambda sent: client.enqueue("bench:stamp", {"sent": sent}))


async def raw_pick_up(url: str, samples: int) -> list[float]:
    """The same with the least that can be done: one insert with its notification, one update by who hears it."""
    conn = await asyncpg.connect(url)
    await conn.execute(raw.TABLE)
    inbox = Inbox()
    async with child_process("bench.raw", url, BENCH_INBOX=inbox.path):
        found = await inbox.latencies(samples, lambda sent: conn.execute(raw.PUT, sent))
    await conn.close()
    return found


async def measure_pick_up(server: str, samples: int) -> list[Figure]:
    """Pick-up by one and by 32 idle workers (in one process, each with connections of its own)."""
    async with fresh_database(server) as url:
        bare = await raw_pick_up(url, samples)
        one = await pick_up(url, 1, samples)
        many = await pick_up(url, 32, samples)
    p50, p99, least = statistics.median(one), percentile(one, 0.99), statistics.median(bare)
    return [
        Figure("pick-up by an idle worker, p50", p50, "ms", "<= 1.5 ms", p50 <= 1.5,
               f"raw {least:.2f} ms; p95 {percentile(one, 0.95):.2f} ms"),
        Figure("pick-up by an idle worker, p99", p99, "ms", "<= 8 ms", p99 <= 8,
               f"raw {percentile(bare, 0.99):.2f} ms"),
        Figure("pick-up with 32 idle workers, p50", statistics.median(many), "ms", "<= 2.5 ms",
               statistics.median(many) <= 2.5, f"raw, one worker {least:.2f} ms; p99 {percentile(many, 0.99):.2f} ms"),
    ]  # fmt: skip


def percentile(values: Sequence[float], share: float) -> float:
    """Return a percentile by rank."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, round(share * (len(ordered) - 1)))]


async def measure_history(server: str, tasks: int, finished: int, repeat: int) -> list[Figure]:
    """The same work beside an empty history and beside millions of finished tasks, taken in turns."""
    async with fresh_database(server, "bench_full") as full, fresh_database(server) as url:
        conn = await asyncpg.connect(full)
        await conn.execute(
            """insert into weft.task_done (id, org_id, queue_id, order_id, created_at, ended_at, state, attempt, rank,
                 max_attempts, failures, crashes, generation, handler, params, output, worker_id, claimed_at)
               select weft.first_id_at(weft.now() - interval '6 hours') + g, 1, 1, g, now(), now(), 'completed', 1, 0,
                 3, 0, 0, 0, 'bench:noop', '{"x":"0123456789"}', 'null', 7, now() from generate_series(1, $1::int) g""",
            finished,
            timeout=600,
        )
        await conn.execute("vacuum analyze weft.task_done")
        await conn.execute("checkpoint")
        await conn.close()
        fresh, aged = [], []
        for _ in range(repeat):
            await fill(url, tasks, SMALL)
            fresh.append(await drain_rate(url, tasks))
            await fill(full, tasks, SMALL, keep=True)
            aged.append(await drain_rate(full, tasks))
    share = statistics.median(aged) / statistics.median(fresh)
    return [
        Figure(f"work with {finished:,} finished tasks", statistics.median(aged), "tasks/s", ">= 95 % of empty",
               share >= 0.95, f"{share:.0%} of {statistics.median(fresh):,.0f}/s", aged)
    ]  # fmt: skip


async def measure_horizon(server: str, tasks: int, seconds: float) -> list[Figure]:
    """The same work again and again while a transaction holds the vacuum horizon; the rate at the end of that time."""
    async with fresh_database(server) as url:
        free = [await work_rate(url, tasks, SMALL) for _ in range(3)]
        holder = await asyncpg.connect(url)
        await holder.execute("begin isolation level repeatable read")
        await holder.fetchval("select txid_current()")
        rates: list[float] = []
        end = time.monotonic() + seconds
        while time.monotonic() < end or len(rates) < 3:
            await fill(url, tasks, SMALL, keep=True)
            rates.append(await drain_rate(url, tasks))
        await holder.close()
        # Before and after: a machine that others share is not the same two minutes later.
        free += [await work_rate(url, tasks, SMALL) for _ in range(3)]
    rate, base = statistics.median(rates[-3:]), statistics.median(free)
    return [
        Figure(f"work while the vacuum horizon is held for {seconds:.0f} s, last three of {len(rates)} rounds", rate,
               "tasks/s", ">= 80 % of free", rate >= 0.8 * base, f"{rate / base:.0%} of {base:,.0f}/s", rates)
    ]  # fmt: skip


async def measure_limits(server: str, tasks: int, repeat: int) -> list[Figure]:
    """What limits cost a queue that uses them: a queue-wide maximum, and a maximum per concurrency key.

    The worker takes as many at once as the limits let through, so that only their keeping makes a difference.
    """
    plain: list[float] = []
    limited: dict[str, list[float]] = {f"a limit of {_LIMIT}": []}
    limited |= {f"{keys} concurrency keys of {_LIMIT // keys}": [] for keys in _KEYS}
    queues = dict(zip(("plain", "limited", *_KEYS), (plain, *limited.values()), strict=True))
    async with fresh_database(server) as url, weft.Client(url) as client:
        for queue in queues:
            await client.create_queue(str(queue))
        await client.limit_queue("limited", _LIMIT)
        for keys in _KEYS:
            await client.limit_queue(str(keys), _LIMIT // keys, per_key=True)
        for _ in range(2 * repeat):
            for queue, rates in queues.items():
                await empty(url)
                await client.enqueue_many(
                    weft.NewTask(
                        "bench:noop",
                        SMALL,
                        queue=str(queue),
                        concurrency_key=f"k{n % queue}" if isinstance(queue, int) else None,
                    )
                    for n in range(tasks)
                )
                rates.append(await drain_rate(url, tasks, queue=str(queue), concurrency=_LIMIT))
    base = statistics.median(plain)
    return [
        Figure(f"work in a queue with {name}", statistics.median(rates), "tasks/s", ">= 90 % of a queue without",
               statistics.median(rates) >= 0.9 * base, f"{statistics.median(rates) / base:.0%} of {base:,.0f}/s", rates)
        for name, rates in limited.items()
    ]  # fmt: skip
