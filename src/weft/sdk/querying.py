"""Queries over datasets: which of them a query reads, in which state, and what it is answered."""

from __future__ import annotations

import math
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

from weft.catalog import dataset_reading
from weft.catalog.dataset_reading import DatasetState, File, read_name
from weft.catalog.dataset_rows import KIND
from weft.core.query_errors import InvalidQuery
from weft.db.blob_address import data_address

if TYPE_CHECKING:
    from weft.data.fetching import Copies
    from weft.data.query_model import Attached
    from weft.data.query_process import Answer
    from weft.sdk.client import Client

_PAGE = 5000
# Each is opened, and allowed by itself.
MOST_FILES = 20_000
# Any rows will do: then no more is looked at than it takes.
_SAMPLE = re.compile(
    r"""\s*select \* from (?:\w+|"(?:[^"]|"")+") limit (?P<rows>\d{1,6})\s*;?\s*""", re.IGNORECASE | re.ASCII
)


@asynccontextmanager
async def answered(client: Client, sql: str, format: Any, as_of: datetime | None) -> AsyncIterator[Answer]:
    """Lend the answer to a query over the datasets that whoever acts may see; what is left is ended in the end."""
    from weft.data.fetching import Copies

    process = await client.queries.process()
    names = await process.mentioned(sql)
    async with AsyncExitStack() as stack:
        # What is copied is there until the query ends: no more of them begin with it than can have their turn soon.
        await stack.enter_async_context(client.queries.room)
        few, copies = _SAMPLE.fullmatch(sql), Copies(client.settings.query_fetch)
        attached: list[Attached] = []
        rows = None if few is None else int(few["rows"])
        for name in names:
            left = MOST_FILES - sum(len(each.files) for each in attached)
            attached.append(await stack.enter_async_context(_attached(client, name, as_of, rows, copies, left)))
        yield await stack.enter_async_context(process.query(sql, attached, format))


@asynccontextmanager
async def _attached(
    client: Client, name: str, as_of: datetime | None, rows: int | None, copies: Copies, left: int
) -> AsyncIterator[Attached]:
    """Lend a dataset as a query reads it: one state of it, with the files of that, or as many as have so many rows."""
    from weft.data.columns import partition_columns, recorded
    from weft.data.fetching import copied_rows, local_files
    from weft.data.query_model import Attached
    from weft.data.query_types import duckdb_columns

    named, org_id, sees = read_name(name), await client.org_id(), client.sees
    moment = as_of if named.version is None else None
    state = await client.database.read(
        lambda conn: dataset_reading.state_of(conn, org_id, named, as_of=moment, sees=sees)
    )
    kept = await client.database.read(lambda conn: dataset_reading.kept_columns(conn, org_id, state))
    # Before the columns are looked at: those of a version that has just been collected are gone, and so it is told.
    files = await _files(client, org_id, state, rows, left)
    schema = recorded(kept)
    if schema is None:
        raise InvalidQuery(f"nothing has been written into {state.name} yet", "catalog")
    if state.storage == KIND:
        lent = copied_rows(copies, client.database, org_id, state, schema, files, rows)
    else:
        lent = local_files(client.settings, str(data_address(client.settings)), state, files, copies)
    async with lent as (paths, within):
        yield Attached(name, paths, duckdb_columns(schema), partition_columns(kept), mixed=True, within=within)


async def _files(client: Client, org_id: int, state: DatasetState, rows: int | None, left: int) -> list[File]:
    """Return the files of a state, or as many as have so many rows."""
    found, after, wanted = list[File](), ("", 0), math.inf if rows is None else rows
    while True:
        page = await client.database.read(
            lambda conn, after=after: dataset_reading.files(  # type: ignore[misc]
                conn, org_id, state.version_id, state.write, None, after, _PAGE
            )
        )
        for file in page:
            found.append(file)
            wanted -= file.rows
            if wanted <= 0:
                return found
        if len(found) > left:
            together = "" if left == MOST_FILES else ", together with the datasets before it"
            raise InvalidQuery(
                f"{state} has more than {MOST_FILES:,} files{together}, as many as a query reads: replace its "
                "partitions by larger ones", "catalog",
            )  # fmt: skip
        if len(page) < _PAGE:
            return found
        after = page[-1].partition, page[-1].id
