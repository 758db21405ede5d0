"""What an installation takes: disk for tasks and jobs, and the connections of each kind of process."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import asyncpg
import orjson

import weft
from bench.jobs import SMALL
from bench.load import Load, put
from bench.place import child_process, fresh_database, walled, worker_process
from bench.queue import SMALL as PARAMS
from bench.queue import drain_rate, fill
from bench.report import Figure
from bench.server import server_process

# Partitions are tables, and what holds them is not.
_SIZE = """
select coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where n.nspname = 'weft' and c.relkind = 'r'
"""
_CONNECTIONS = "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"


async def measure_sizes(server: str, tasks: int, jobs: int) -> list[Figure]:
    """Bytes of small tasks and small jobs on their way, and connections while they are worked on."""
    return await _tasks(server, tasks) + await _jobs(server, jobs)


async def _tasks(server: str, count: int) -> list[Figure]:
    async with fresh_database(server) as url:
        conn = await asyncpg.connect(url)
        empty, begin = await conn.fetchval(_SIZE), await _written(conn)
        await fill(url, count, PARAMS)
        waiting = await conn.fetchval(_SIZE) - empty
        await drain_rate(url, count)
        written = await _written(conn) - begin
        await conn.execute("vacuum full weft.task")  # others use that space again
        ended = await conn.fetchval(_SIZE) - empty
        await conn.close()
    return [
        _bytes("a task that waits: disk", waiting / count),
        _bytes("a task that has ended: disk", ended / count),
        _bytes("a task until it has ended: WAL", written / count),
    ]


async def _jobs(server: str, count: int) -> list[Figure]:
    """Submit jobs by HTTP to a server, an orchestrator and a worker that start one after the other."""
    found = {}
    async with fresh_database(server) as url, AsyncExitStack() as stack:
        conn = await asyncpg.connect(url)
        async with weft.Client(url) as client:
            token = (await client.tokens.create("bench", role="writer")).secret
            await client.workflows.push(SMALL)
        empty, begin = await conn.fetchval(_SIZE), await _written(conn)
        port, _ = await stack.enter_async_context(server_process(await walled(url)))
        body = orjson.dumps({"workflow": "small"}).decode()
        flood = Load(port, token, "/api/v1/jobs", count, 16, None, "POST", body, 201)
        found["server"] = await _peak(conn, asyncio.create_task(put(flood)))
        rest = await conn.fetchval(_CONNECTIONS)
        await stack.enter_async_context(child_process("bench.orchestrator", url))
        await stack.enter_async_context(worker_process(url, 100))
        found["worker and orchestrator"] = await _peak(conn, asyncio.create_task(_ended(url))) - rest
        written = await _written(conn) - begin
        await conn.execute("vacuum full weft.task")
        size = await conn.fetchval(_SIZE) - empty
        await conn.close()
    return [
        _bytes("a job of two tasks that has ended: disk", size / count),
        _bytes("a job of two tasks until it has ended: WAL", written / count),
        *(Figure(f"connections of a busy {name}", number, "", "", None) for name, number in found.items()),
    ]


async def _ended(url: str) -> None:
    """Return when no job is left that goes on."""
    conn = await asyncpg.connect(url)
    while await conn.fetchval("select exists (table weft.job)"):  # noqa: ASYNC110  only the database knows
        await asyncio.sleep(0.2)
    await conn.close()


async def _peak(conn: asyncpg.Connection[asyncpg.Record], work: asyncio.Task[object]) -> int:
    """Return how many connections there were at most while something was done."""
    most = 0
    while not work.done():
        most = max(most, await conn.fetchval(_CONNECTIONS))
        await asyncio.wait([work], timeout=0.05)
    work.result()
    return most


async def _written(conn: asyncpg.Connection[asyncpg.Record]) -> int:
    return int(await conn.fetchval("select pg_current_wal_lsn() - '0/0'::pg_lsn"))


def _bytes(name: str, value: float) -> Figure:
    return Figure(name, value, "bytes", "", None)
