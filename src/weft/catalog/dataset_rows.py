"""Rows of datasets that are kept in the database: added to a write, and read, as the texts of their values."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import asyncpg
import orjson

from weft.catalog import dataset_writing
from weft.catalog.dataset_reading import collected
from weft.catalog.datasets import Kind
from weft.core.checks import check_number, check_text
from weft.core.data_errors import DatasetBusy
from weft.core.errors import InvalidInput
from weft.db.statements import Statements

if TYPE_CHECKING:
    from weft.db.database import type_Connection
    from weft.queue.steps import Fence

SQL = Statements("weft.catalog", "sql/rows.sql")
KIND = Kind.POSTGRES
MOST_COLUMNS = 1000
# As long as a name of PostgreSQL may be, in bytes.
LONGEST_NAME = 63
MOST_ROWS = 10_000
MOST_FILES = 1000
_PATH = re.compile(r"([1-9]\d{0,18})-([1-9]\d{0,8})\.rows", re.ASCII)
# What PostgreSQL says of values that a type does not have.
_DATA = "22"

Texts = Sequence[Sequence[str | None]]


async def add(
    conn: type_Connection, fence: Fence, write_id: int, number: int, columns: Sequence[Mapping[str, str]], rows: Texts,
    before: int | None = None,
) -> int:  # fmt: skip
    """Add rows to one file of a write that an attempt has begun; a column is told by its name and PostgreSQL's type.

    ``before`` is how many rows were added to the write so far: by this those are known that came already, and whose
    sender has not heard of it.
    """
    await dataset_writing.org_of(conn, fence)
    staged = await conn.fetchrow(SQL.staged, write_id, fence.task_id, fence.attempt)
    if staged is None or staged["kind"] != KIND:
        raise InvalidInput("id", f"{write_id} is no write into a table that this attempt has begun and not told of yet")
    check_number(number, "number", 1, 999_999_999)
    names, types = [each["name"] for each in columns], [each["type"] for each in columns]
    for name in names:
        check_text(name, "columns", LONGEST_NAME)
    if len(set(names)) < len(names) or not 0 < len(names) <= MOST_COLUMNS:
        raise InvalidInput("columns", f"must be 1 to {MOST_COLUMNS}, each of a name of its own")
    if any(len(row) != len(names) for row in rows):
        raise InvalidInput("rows", f"each must have {len(names)} values")
    if before is not None and staged["added"] != before:
        if staged["added"] != before + len(rows):
            raise InvalidInput("before", f"{staged['added']} rows were added to the write so far, and not {before}")
        return len(rows)
    with _refusals():
        try:
            await conn.execute(SQL.prepare, staged["version_id"], names, types)
        except asyncpg.LockNotAvailableError:
            why = "it gets a new column, and somebody reads it for long"
            raise DatasetBusy(staged["name"], "written", why) from None
        told = orjson.dumps(rows).decode()
        added = await conn.fetchval(SQL.add, staged["version_id"], write_id, number, names, told)
    await conn.execute(SQL.count_added, write_id, added)
    return int(added)


async def read(
    conn: type_Connection,
    org_id: int,
    version_id: int,
    paths: Sequence[str],
    names: Sequence[str],
    after: int,
    most: int,
) -> list[tuple[int, list[str | None]]]:
    """Return rows of files of a version after one of them, each with its number.

    Raises `NotFound` when some of the files have been collected meanwhile.
    """
    writes, numbers = zip(*map(read_path, paths), strict=True) if paths else ((), ())
    check_number(most, "most", 1, MOST_ROWS)
    with _refusals():
        rows = await conn.fetch(SQL.read, org_id, version_id, writes, numbers, list(names), after, most)
    # Whoever collects closes states before he removes anything of them.
    if not await conn.fetchval(SQL.are_kept, org_id, version_id, list(paths), writes):
        raise collected(version_id)
    return [(row["number"], row["texts"]) for row in rows]


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except asyncpg.PostgresError as problem:
        if problem.sqlstate != "WF002" and not (problem.sqlstate or "").startswith(_DATA):
            raise
        raise InvalidInput("data", str(problem)) from None


def read_path(path: Any) -> tuple[int, int]:
    """Return the write and the number of a file of rows; raises `InvalidInput`."""
    found = _PATH.fullmatch(str(path))
    if found is None:
        raise InvalidInput("path", f"{path!r} is no file of rows, like 7340085817581600-1.rows")
    return int(found[1]), int(found[2])
