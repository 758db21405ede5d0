"""Live DAGs made by hand, row by row, for tests of what goes on beneath a deploy."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

import asyncpg
import orjson

Conn: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


async def until(look: Callable[[], Awaitable[Any]] | Callable[[], Any], seconds: float = 30) -> None:
    """Look again and again until something is so."""
    async with asyncio.timeout(seconds):
        while True:
            found = look()
            if await found if isinstance(found, Awaitable) else found:
                return
            await asyncio.sleep(0.01)


async def make_dag(conn: Conn, name: str = "market") -> int:
    return int(
        await conn.fetchval("insert into weft.live_dag (org_id, name, actor) values (1, $1, 'ann') returning id", name)
    )


async def make_output(conn: Conn, dataset: str, dag: str, job: str, place: int = 0) -> tuple[int, int]:
    """Make a dataset with an empty current version; return both ids."""
    dataset_id = await conn.fetchval(
        "insert into weft.dataset (org_id, name, storage, producer_dag, producer_node, producer_output, actor) "
        "values (1, $1, '{\"kind\": \"parquet\"}', $2, $3, $4, 'ann') returning id", dataset, dag, job, place,
    )  # fmt: skip
    version_id = await conn.fetchval(
        "insert into weft.dataset_version (org_id, dataset_id, number, config_hash, location, actor) "
        "values (1, $1, 1, 'h', '1/' || $1::bigint || '/1/', 'ann') returning id", dataset_id,
    )  # fmt: skip
    await conn.execute("update weft.dataset set last_version = 1 where id = $1", dataset_id)
    await conn.execute("select weft.make_current($1, $2)", dataset_id, version_id)
    return int(dataset_id), int(version_id)


async def make_job(
    conn: Conn, dag_id: int, name: str, handler: str, *, inputs: Sequence[tuple[int, int | None]] = (),
    outputs: Sequence[tuple[int, int]] = (), strategy: str | None = "update", source: dict[str, Any] | None = None,
    document: dict[str, Any] | None = None, **columns: Any,
) -> int:  # fmt: skip
    """Make a live job; an input whose version is None comes from outside."""
    said = {
        "org_id": 1, "dag_id": dag_id, "name": name, "config_hash": hashlib.sha256(name.encode()).hexdigest(),
        "activation": "source" if source else "reactive", "runtime": "worker", "operator": handler, "handler": handler,
        "queue_id": 1, "document": orjson.dumps(document or {}).decode(), "strategy": None if source else strategy,
        "max_concurrency": 1, "max_backlog": 10_000, "max_attempts": 3, "actor": "ann", **columns,
    }  # fmt: skip
    places = ", ".join(f"${number}" for number in range(1, len(said) + 1))
    job_id = await conn.fetchval(
        f"insert into weft.live_job ({', '.join(said)}) values ({places}) returning id", *said.values()
    )
    for place, (dataset_id, version_id) in enumerate(inputs):
        await conn.execute(
            "insert into weft.live_input (live_job_id, place, org_id, dataset_id, version_id, is_internal) "
            "values ($1, $2, 1, $3, $4, $5)", job_id, place, dataset_id, version_id, version_id is not None,
        )  # fmt: skip
    for place, (dataset_id, version_id) in enumerate(outputs):
        await conn.execute(
            "insert into weft.live_output (live_job_id, place, org_id, dataset_id, version_id) "
            "values ($1, $2, 1, $3, $4)",
            job_id, place, dataset_id, version_id,
        )  # fmt: skip
    if source:
        columns = {"live_job_id": job_id, "org_id": 1, "is_listening": True, **source}
        places = ", ".join(f"${number}" for number in range(1, len(columns) + 1))
        await conn.execute(f"insert into weft.live_source ({', '.join(columns)}) values ({places})", *columns.values())
    return int(job_id)


async def all_rows(conn: Conn) -> dict[str, list[str]]:
    """Return all that the database has, table by table, and how far its sequences are."""
    tables = await conn.fetch(
        """select c.relname as name from pg_class c join pg_namespace n on n.oid = c.relnamespace
           where n.nspname = 'weft' and c.relkind in ('r', 'p') and not c.relispartition order by 1"""
    )
    return {
        row["name"]: sorted(map(str, await conn.fetch(f"select * from weft.{row['name']} t"))) for row in tables
    } | {"sequences": sorted(map(str, await conn.fetch("select sequencename, last_value from pg_sequences")))}


async def swap(conn: Conn, dag: str = "market") -> None:
    """Bring what is being built into effect as it is."""
    await conn.execute("select weft.swap_dag(id, building_id) from weft.live_dag where name = $1", dag)
