"""What the walls around a query cost: the same query through the service and by DuckDB alone, one after the other."""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from pathlib import Path

import duckdb

from bench.report import Figure
from weft.data.query_model import Attached
from weft.data.query_process import QueryProcess

ROWS = 1_000_000
PAUSE_S = 0.1
SQL = 'select b, count(*) as n, sum(a) as total from "orders@3" group by b order by b'


async def measure_queries(count: int) -> list[Figure]:
    """From the call to the last byte of the answer as Arrow, less what DuckDB takes for it in a warm process."""
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder, "orders.parquet"))
        with duckdb.connect(config={"threads": 2}) as alone:
            columns = "range as a, range % 7 as b, 'text ' || range as c"
            alone.execute(f"copy (select {columns} from range({ROWS})) to '{file}' (format parquet)")
            alone.execute(f"create view \"orders@3\" as from read_parquet(['{file}'])")
            attached = [Attached("orders@3", (file,))]
            async with QueryProcess() as queries:
                raw, walled, named = [], [], []
                for _ in range(count):
                    # Somebody asks, reads, and asks again: the process for the next query is ready by then.
                    await asyncio.sleep(PAUSE_S)
                    raw.append(_alone(alone))
                    walled.append(await _walled(queries, attached))
                    await asyncio.sleep(PAUSE_S)
                    named.append(await _named(queries))
    over = statistics.median(walled) - statistics.median(raw)
    names = statistics.median(named)
    return [
        Figure("query-overhead: a query behind its walls, over DuckDB alone, warm", over, "ms", "<= 30 ms", over <= 30,
               f"DuckDB alone {statistics.median(raw):.1f} ms, the service {statistics.median(walled):.1f} ms, "
               f"at best {min(raw):.1f} and {min(walled):.1f}; to ask which datasets it reads {names:.1f} ms"),
    ]  # fmt: skip


def _alone(connection: duckdb.DuckDBPyConnection) -> float:
    began = time.perf_counter()
    connection.sql(SQL).to_arrow_reader(8192).read_all()
    return (time.perf_counter() - began) * 1000


async def _walled(queries: QueryProcess, attached: list[Attached]) -> float:
    began = time.perf_counter()
    async with queries.query(SQL, attached, "arrow") as answer:
        await answer.read()
        return (time.perf_counter() - began) * 1000


async def _named(queries: QueryProcess) -> float:
    began = time.perf_counter()
    await queries.mentioned(SQL)
    return (time.perf_counter() - began) * 1000
