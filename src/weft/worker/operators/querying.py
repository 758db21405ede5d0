"""SQL that a DAG's author wrote, over datasets: run behind the walls of queries, its answer a stream of Arrow."""

from __future__ import annotations

import dataclasses
import re
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from weft.core.errors import InvalidInput
from weft.core.query_errors import InvalidQuery, QueryLimitReached
from weft.data.fetching import lent_files
from weft.data.own_thread import in_own_thread
from weft.data.plain_arrow import hollow_items, is_packed, is_plain
from weft.data.query_model import Attached
from weft.data.query_types import duckdb_columns
from weft.worker.operators.configured import seconds_allowed

if TYPE_CHECKING:
    from weft.data.query_model import QueryLimits
    from weft.data.query_process import Answer
    from weft.worker.datasets import DatasetFiles
    from weft.worker.live import LiveContext

# An answer is kept in memory up to this size, and beyond it in a file without a name.
IN_MEMORY = 32 * 1024 * 1024
_AT_LINE = re.compile(r"\n\nLINE (\d+): (.*)\n( *)\^")


async def tables_in(live: LiveContext, sql: str, field: str) -> tuple[str, ...]:
    """Return the names of the tables that a query reads; raises `InvalidInput` if it is none."""
    queries = await live.workshop.queries()
    try:
        return await queries.mentioned(sql)
    except InvalidQuery as problem:
        raise InvalidInput(field, told(problem.problem, sql)) from None


@asynccontextmanager
async def answered(
    live: LiveContext, sql: str, tables: Mapping[str, DatasetFiles], field: str
) -> AsyncIterator[pa.RecordBatchReader]:
    """Lend the answer to a query over tables; raises `InvalidInput` that says where in the SQL something is wrong."""
    queries = await live.workshop.queries()
    seconds = seconds_allowed(live)
    limits = dataclasses.replace(queries.limits, seconds=seconds, cpu_seconds=2 * seconds)
    with tempfile.SpooledTemporaryFile(IN_MEMORY) as file:
        async with _attached(tables) as attached:
            try:
                async with queries.query(sql, attached, "arrow", limits, plain=True) as answer:
                    await spool(live, answer, file)
            except InvalidQuery as problem:
                raise InvalidInput(field, told(problem.problem, sql)) from None
        yield checked(file, limits)


async def spool(live: LiveContext, answer: Answer, file: Any) -> None:
    """Take an answer in, and say meanwhile that the task lives."""
    async for piece in answer:
        file.write(piece)
        live.task.heartbeat()
    file.seek(0)


def checked(file: Any, limits: QueryLimits) -> pa.RecordBatchReader:
    """Return a stream that another process has written: nothing in it is believed before it was looked at."""
    try:
        messages = pa.ipc.MessageReader.open_stream(file)
        schema = pa.ipc.read_schema(messages.read_next_message())
    except (pa.ArrowInvalid, OSError, StopIteration) as problem:
        raise RuntimeError(f"the answer is no stream of Arrow: {problem}") from None
    if not is_plain(schema):
        raise RuntimeError(f"the answer has values that stand for several: {schema.to_string()[:1000]}")

    def batches() -> Iterator[pa.RecordBatch]:
        rows = 0
        for message in messages:
            if message.type != "record batch" or is_packed(message):
                raise RuntimeError(f"the answer has a {message.type} that is packed, or none that was expected")
            batch = pa.ipc.read_record_batch(message, schema)
            batch.validate(full=True)
            rows += batch.num_rows
            if max(rows, *map(hollow_items, batch.columns), 0) > limits.rows:
                raise QueryLimitReached("rows", limits.rows)
            yield batch

    return pa.RecordBatchReader.from_batches(schema, batches())


def told(message: str, sql: str) -> str:
    """Return what is wrong with a query in one line, with the place in its text."""
    first = message.partition("\n")[0]
    if (found := _AT_LINE.search(message)) is None:
        return first
    line, shown, before = int(found[1]), found[2], len(found[3])
    cut = 3 if shown.startswith("...") else 0
    lines = sql.splitlines()
    # A long line is shown in part.
    begin = lines[line - 1].find(shown.removeprefix("...").removesuffix("...")) if line <= len(lines) else 0
    return f"line {line}, column {max(begin, 0) + before - len(f'LINE {line}: ') - cut + 1}: {first}"


@asynccontextmanager
async def _attached(tables: Mapping[str, DatasetFiles]) -> AsyncIterator[list[Attached]]:
    async with AsyncExitStack() as stack:
        found = []
        for name, files in tables.items():
            found.append(await stack.enter_async_context(lent(name, files)))
        yield found


@asynccontextmanager
async def lent(name: str, files: DatasetFiles) -> AsyncIterator[Attached]:
    """Lend a dataset under a name, as its files are, or as copies that are removed in the end."""
    columns = duckdb_columns(files.schema)
    if files.table is not None:
        with tempfile.TemporaryDirectory(prefix="weft-rows-") as folder:
            pq.write_table(files.table, f"{folder}/rows.parquet")
            yield Attached(name, (f"{folder}/rows.parquet",), columns, mixed=True)
        return
    storage, location = await in_own_thread(files.place)
    async with lent_files(storage, location, files.names) as (paths, within):
        yield Attached(name, paths, columns, files.partition_columns, mixed=True, within=within)
