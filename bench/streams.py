"""Streams of a server: how soon many who look at one busy job see what happens, and what that asks of PostgreSQL."""

from __future__ import annotations

import asyncio
import re
import socket
import statistics
import time
from bisect import bisect_left
from datetime import datetime
from functools import partial
from itertools import accumulate
from typing import Any

import asyncpg

import weft
from bench.place import child_process, fresh_database, walled, worker_process
from bench.process import cpu_seconds, memory_mb
from bench.report import Figure

STREAMS = 1000
GOAL = 250.0
# What a stream costs while nothing happens must not grow with how many there are.
MOST_IDLE = 25.0
_SETTLED, _LOOKED_FOR = 15.0, 15.0
_NAPS = 200
_COMPLETED = re.compile(rb'"at":"([^"]+)","type":"task\.completed"')
_TRANSACTIONS = "select xact_commit + xact_rollback from pg_stat_database where datname = current_database()"


def busy() -> dict[str, Any]:
    """Return a workflow of tasks that take a moment each, four at a time, once somebody says so."""
    each = {"type": "fan_out", "items": list(range(_NAPS)), "max_parallel": 4, "next": "END"}
    return {
        "workflow_id": "busy",
        "nodes": {
            "START": {"type": "start", "next": "all_here"},
            "all_here": {"type": "wait", "for": "approval", "next": "each"},
            "each": {**each, "task": {"handler": "bench:nap", "params": {"seconds": 0.1}}},
            "END": {"type": "end"},
        },
    }


class _Reader(asyncio.Protocol):
    """A client that notes when what has come; what it is, is found out afterwards."""

    def __init__(self, head: bytes) -> None:
        self._head = head
        self._tail = b""
        self.had: list[tuple[float, bytes]] = []
        self.is_open = asyncio.Event()
        self.is_over = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport
        transport.write(self._head)

    def close(self) -> None:
        """Look no more."""
        self._transport.close()

    def data_received(self, data: bytes) -> None:
        self.had.append((time.time(), data))
        self.is_open.set()
        # It may have come in two pieces.
        if b"event: end\n" in self._tail + data:
            self.is_over.set()
        self._tail = data[-len(b"event: end\n") :]

    def delays(self, since: float) -> list[float]:
        """Return for each completion how many milliseconds passed until it was here, all of it.

        Raises when those that came after ``since`` are not as many as there were.
        """
        ends = list(accumulate(len(data) for _, data in self.had))
        came = [
            (self.had[bisect_left(ends, found.end())][0], datetime.fromisoformat(found[1].decode()).timestamp())
            for found in _COMPLETED.finditer(b"".join(data for _, data in self.had))
        ]
        found = [1000 * (at - moment) for at, moment in came if at > since]
        if len(found) < _NAPS:
            raise RuntimeError(f"of {_NAPS} completions a stream told {len(found)}")
        return found


async def measure_streams(server: str, scale: int) -> list[Figure]:
    """Many streams on one busy job, and one on another for comparison."""
    async with fresh_database(server) as url:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port: int = free.getsockname()[1]
        async with (
            worker_process(url, 50),
            child_process("bench.orchestrator", url),
            child_process("bench.serve", await walled(url), str(port)) as process,
            weft.Client(url) as client,
        ):
            made = await client.tokens.create("bench", role="reader")
            conn = await asyncpg.connect(url)
            _, alone = await _run(client, conn, port, made.secret, 1)
            used = cpu_seconds(process.pid)
            delays, rate = await _run(client, conn, port, made.secret, STREAMS // scale)
            used, memory = cpu_seconds(process.pid) - used, memory_mb(process.pid)
            quiet = [await _idle(client, conn, port, made.secret, number) for number in (0, 1, STREAMS // scale)]
            await conn.close()
    worst = statistics.quantiles(delays, n=100)[98]
    each = f"server {memory:.0f} MB, {1e6 * used / len(delays):.0f} µs for each"
    beside = f"median {statistics.median(delays):.0f} ms; {rate:.0f} transactions/s, with one stream {alone:.0f}/s"
    return [
        Figure(
            f"{STREAMS // scale:,} streams on one busy job, from completion to client, p99", worst, "ms",
            f"<= {GOAL:g} ms", worst <= GOAL, f"{beside}; {each}",
        ),
        Figure(
            f"{STREAMS // scale:,} streams on as many quiet jobs", quiet[2], "transactions/s", f"<= {MOST_IDLE:g}/s",
            quiet[2] <= MOST_IDLE, f"with one stream {quiet[1]:.0f}/s, with none {quiet[0]:.0f}/s",
        ),
    ]  # fmt: skip


async def _run(
    client: weft.Client, conn: asyncpg.Connection[asyncpg.Record], port: int, secret: str, count: int
) -> tuple[list[float], float]:
    """Let so many follow a job, which begins when all are there; return all delays, and transactions a second."""
    job = await client.jobs.submit(busy())
    readers = await _readers(port, secret, [job.id] * count)
    all_here, before = time.time(), await conn.fetchval(_TRANSACTIONS)
    await client.jobs.approve(job.id)
    async with asyncio.timeout(120):
        await asyncio.gather(*(reader.is_over.wait() for reader in readers))
    rate = (await conn.fetchval(_TRANSACTIONS) - before) / (time.time() - all_here)
    return [delay for reader in readers for delay in reader.delays(all_here)], rate


async def _idle(
    client: weft.Client, conn: asyncpg.Connection[asyncpg.Record], port: int, secret: str, count: int
) -> float:
    """Let each of so many follow a job of its own in which nothing happens; return transactions a second."""
    jobs = [(await client.jobs.submit(busy())).id for _ in range(count)]
    readers = await _readers(port, secret, jobs)
    await asyncio.sleep(_SETTLED)
    began, before = time.time(), await conn.fetchval(_TRANSACTIONS)
    await asyncio.sleep(_LOOKED_FOR)
    rate = (await conn.fetchval(_TRANSACTIONS) - before) / (time.time() - began)
    for reader in readers:
        reader.close()
    return float(rate)


async def _readers(port: int, secret: str, jobs: list[int]) -> list[_Reader]:
    """Open a stream on each of the jobs."""
    loop = asyncio.get_running_loop()
    ask = "GET /api/v1/jobs/{}/stream HTTP/1.1\r\nhost: b\r\nauthorization: Bearer {}\r\n\r\n"
    heads = [ask.format(id, secret).encode() for id in jobs]
    readers: list[_Reader] = []
    for start in range(0, len(jobs), 50):
        several = await asyncio.gather(
            *(loop.create_connection(partial(_Reader, head), "127.0.0.1", port) for head in heads[start : start + 50])
        )
        await asyncio.gather(*(reader.is_open.wait() for _, reader in several))
        readers += [reader for _, reader in several]
    return readers
