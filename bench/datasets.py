"""Datasets: how fast a task writes Parquet beside Arrow alone, and how fast a catalog of many partitions answers."""

from __future__ import annotations

import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import asyncpg
import pyarrow as pa
import pyarrow.parquet as pq

import weft
from bench.place import fresh_database
from bench.report import Figure
from weft.worker.registry import Registry

BATCHES = 100


def _table(rows: int) -> pa.Table:
    """Return a table as one of prices is: a key, a moment, a few words, two numbers."""
    batch = rows // BATCHES
    words = pa.array([f"symbol {number % 500}" for number in range(batch)])
    prices = pa.array([100 + (number * 7919 % 10_000) / 100 for number in range(batch)])
    sizes = pa.array([number * 31 % 1000 for number in range(batch)], pa.int32())
    batches = []
    for place in range(BATCHES):
        ids = pa.array(range(place * batch, (place + 1) * batch), pa.int64())
        moments = pa.array(range(place * batch, (place + 1) * batch), pa.timestamp("us"))
        columns = [ids, moments, words, prices, sizes]
        batches.append(pa.RecordBatch.from_arrays(columns, names=["id", "at", "symbol", "price", "size"]))
    return pa.Table.from_batches(batches)


async def measure_writes(server: str, rows: int, repeat: int) -> list[Figure]:
    """Write one table through a task, from its claim to its outcome, and by Arrow alone, flushed to the same disk."""
    table, raw, runs, read = _table(rows), list[float](), list[float](), list[float]()
    for _ in range(repeat):
        with tempfile.TemporaryDirectory() as folder:
            began = time.perf_counter()
            how = {"compression": "zstd", "compression_level": 1}
            with pq.ParquetWriter(f"{folder}/raw.parquet", table.schema, **how) as writer:
                for batch in table.to_batches():
                    writer.write_batch(batch)
            _flush(Path(folder, "raw.parquet"))
            raw.append(time.perf_counter() - began)
            async with fresh_database(server) as url, weft.Client(url, data_url=f"{folder}/data") as client:
                took, looked = await _through_a_task(client, table)
                runs.append(took)
                read.append(looked)
    shares = [100 * bare / ours for bare, ours in zip(raw, runs, strict=True)]
    share, ours = statistics.median(shares), statistics.median(runs)
    return [
        Figure(f"{rows:,} rows written as Parquet through a task", share, "% of Arrow alone", ">= 80 %", share >= 80,
               f"{ours:.2f} s from the claim to the outcome, Arrow alone {statistics.median(raw):.2f} s; "
               f"read back in {statistics.median(read):.2f} s", shares),
    ]  # fmt: skip


async def _through_a_task(client: weft.Client, table: pa.Table) -> tuple[float, float]:
    registry, spans = Registry(), list[float]()

    @registry.task(name="bench:write")
    async def write(ctx: weft.Context) -> None:
        await ctx.dataset("prices").write(table)

    @registry.task(name="bench:read")
    async def read(ctx: weft.Context) -> int:
        return int((await ctx.dataset("prices").read()).num_rows)

    async with weft.Worker(client=client, registry=registry):
        for handler in (write, read):
            task = await client.enqueue(handler)
            output = await client.wait(task.id, timeout=600)
            assert output in (None, table.num_rows)
            done = await client.get_task(task.id)
            assert done.ended_at is not None
            assert done.claimed_at is not None
            spans.append((done.ended_at - done.claimed_at).total_seconds())
    return spans[0], spans[1]


def _flush(path: Path) -> None:
    opened = os.open(path, os.O_RDONLY)
    os.fsync(opened)
    os.close(opened)


async def measure_catalog(server: str, partitions: int, looks: int) -> list[Figure]:
    """Ask a catalog with that many partitions for pages, for what is newest and for the files of one."""
    figures = []
    async with fresh_database(server) as url, weft.Client(url) as client:
        conn = await asyncpg.connect(url)
        try:
            made = await conn.fetchval(
                "insert into weft.dataset (org_id, name, storage, actor, last_version)"
                " values (1, 'many', '{\"kind\": \"parquet\"}', 'bench', 1) returning id"
            )
            version = await conn.fetchval(
                "insert into weft.dataset_version (org_id, dataset_id, number, config_hash, location, last_write,"
                " current_at, actor) values (1, $1, 1, 'x', '1/1/1/', $2, weft.now(), 'bench') returning id",
                made, partitions,
            )  # fmt: skip
            await conn.execute("update weft.dataset set current_id = $2 where id = $1", made, version)
            for statement in _PARTS:
                await conn.execute(statement, version, partitions)
            for statement in _MADE_OF:
                await conn.execute(statement, made, version, partitions)
            await conn.execute("analyze")
            bare = await _p99(looks, lambda place: conn.fetchval("select 1"))

            def key(place: int) -> str:
                return f"p{place * 7919 % partitions:09d}"

            cases = {
                "a page of partitions": lambda place: client.datasets.partitions("many", after=key(place), limit=100),
                "the newest partitions": lambda place: client.datasets.partitions("many", latest=True, limit=100),
                "the newest writes": lambda place: client.datasets.writes("many", limit=100),
                "the dataset": lambda place: client.datasets.show("many"),
                "lineage of the dataset": lambda place: client.datasets.lineage("many"),
                "lineage of a column": lambda place: client.datasets.lineage(f"many.c{place % 100}"),
                "lineage of a partition's write": lambda place: client.datasets.lineage(
                    f"read@1.{1 + place * 7919 % partitions}", direction="down", depth=1
                ),
            }
            for name, call in cases.items():
                took = await _p99(looks, call)
                figures.append(
                    Figure(f"catalog of {partitions:,} partitions: {name}", took, "ms (p99)", "<= 20 ms", took <= 20,
                           f"a bare select {bare:.2f} ms", [took])
                )  # fmt: skip
        finally:
            await conn.close()
    return figures


_PARTS = (
    """insert into weft.dataset_write (
         version_id, number, org_id, mode, partitions, rows, bytes, rows_removed, written_at, actor)
       select $1, n, 1, 'replace', 1, 1000, 20000, 0, weft.now() - ($2::bigint - n) * interval '1 second', 'bench'
       from generate_series(1, $2::bigint) as n""",
    """insert into weft.dataset_partition (
         version_id, partition_key, org_id, last_write, rows, bytes, files, written_at)
       select $1, 'p' || lpad((n * 7919 % $2::bigint)::text, 9, '0'), 1, n, 1000, 20000, 1, weft.now()
       from generate_series(1, $2::bigint) as n on conflict do nothing""",
    """insert into weft.dataset_file (version_id, org_id, partition_key, path, rows, bytes, added_by)
       select $1, 1, 'p' || lpad((n * 7919 % $2::bigint)::text, 9, '0'), n || '-1.parquet', 1000, 20000, n
       from generate_series(1, $2::bigint) as n""",
)


# What it is made of: a dataset of which each write has read another state, and a hundred others, with their columns.
_MADE_OF = (
    """with read as (
         insert into weft.dataset (org_id, name, storage, actor, last_version)
         values (1, 'read', '{"kind": "parquet"}', 'bench', 1) returning id),
       version as (
         insert into weft.dataset_version (
           org_id, dataset_id, number, config_hash, location, last_write, current_at, actor)
         select 1, read.id, 1, 'x', '1/2/1/', $3::bigint, weft.now(), 'bench' from read returning id, dataset_id),
       edge as (
         insert into weft.dataset_edge (org_id, input_id, output_id) select 1, v.dataset_id, $1::bigint from version v)
       insert into weft.dataset_write_input (version_id, number, org_id, place, input_id, input_version_id, input_write)
       select $2::bigint, n, 1, 1, v.dataset_id, v.id, n from version v, generate_series(1, $3::bigint) as n""",
    """with others as (
         insert into weft.dataset (org_id, name, storage, actor)
         select 1, 'other ' || n, '{"kind": "parquet"}', 'bench' from generate_series(1, 100) as n
         where $2::bigint > 0 and $3::bigint > 0 returning id),
       edge as (insert into weft.dataset_edge (org_id, input_id, output_id) select 1, o.id, $1::bigint from others o)
       insert into weft.column_edge (org_id, output_id, output_column, input_id, input_column, last_at)
       select 1, $1::bigint, 'c' || c, o.id, 'c' || c, weft.now() from others o, generate_series(0, 99) as c""",
)


async def _p99(looks: int, call: Callable[[int], Awaitable[Any]]) -> float:
    spans = []
    for place in range(looks):
        began = time.perf_counter()
        await call(place)
        spans.append(1000 * (time.perf_counter() - began))
        await asyncio.sleep(0)
    return statistics.quantiles(spans[looks // 10 :], n=100)[98]
