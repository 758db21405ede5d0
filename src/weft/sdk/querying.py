"""Queries over datasets: which of them a query reads, in which state, and what it is answered."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

from weft.catalog import dataset_reading
from weft.catalog.dataset_reading import DatasetState, read_name
from weft.core.query_errors import InvalidQuery
from weft.db.blob_address import data_address

if TYPE_CHECKING:
    from weft.data.query_model import Attached
    from weft.data.query_process import Answer
    from weft.sdk.client import Client

_PAGE = 5000
# Each is opened, and allowed by itself.
MOST_FILES = 20_000


@asynccontextmanager
async def answered(client: Client, sql: str, format: Any, as_of: datetime | None) -> AsyncIterator[Answer]:
    """Lend the answer to a query over the datasets that whoever acts may see; what is left is ended in the end."""
    process = await client.queries.process()
    names = await process.mentioned(sql)
    async with AsyncExitStack() as stack:
        attached = [await stack.enter_async_context(_attached(client, name, as_of)) for name in names]
        yield await stack.enter_async_context(process.query(sql, attached, format))


@asynccontextmanager
async def _attached(client: Client, name: str, as_of: datetime | None) -> AsyncIterator[Attached]:
    """Lend a dataset as a query reads it: one state of it, with the files of that."""
    from weft.data.columns import recorded
    from weft.data.fetching import local_files
    from weft.data.query_model import Attached
    from weft.data.query_types import duckdb_columns

    named, org_id, sees = read_name(name), await client.org_id(), client.sees
    moment = as_of if named.version is None else None
    state = await client.database.read(
        lambda conn: dataset_reading.state_of(conn, org_id, named, as_of=moment, sees=sees)
    )
    schema = recorded(await client.database.read(lambda conn: dataset_reading.kept_columns(conn, org_id, state)))
    if schema is None:
        raise InvalidQuery(f"nothing has been written into {state.name} yet", "catalog")
    files = await _files(client, org_id, state)
    root = str(data_address(client.settings))
    async with local_files(root, state.location, files) as paths:
        yield Attached(name, paths, duckdb_columns(schema), mixed=True)


async def _files(client: Client, org_id: int, state: DatasetState) -> list[str]:
    found, after = list[str](), ("", 0)
    while True:
        page = await client.database.read(
            lambda conn, after=after: dataset_reading.files(  # type: ignore[misc]
                conn, org_id, state.version_id, state.write, None, after, _PAGE
            )
        )
        found += [file.path for file in page]
        if len(found) > MOST_FILES:
            raise InvalidQuery(
                f"{state} has more than {MOST_FILES:,} files, as many as a query reads: replace its partitions by "
                "larger ones", "catalog",
            )  # fmt: skip
        if len(page) < _PAGE:
            return found
        after = page[-1].partition, page[-1].id
