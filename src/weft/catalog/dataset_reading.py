"""What readers see of a dataset: one state of one version, with its files and partitions."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from weft.catalog import datasets
from weft.catalog.datasets import SQL, Column, Sees, columns_of
from weft.core.checks import MAX_ID
from weft.core.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.db.database import type_Connection

_NAMED = re.compile(r"(?P<name>[^@]+)(?:@v?(?P<version>[1-9]\d{0,8})(?:\.(?P<write>\d{1,18}))?)?")


class Named(NamedTuple):
    """A dataset as somebody names it: ``orders``, ``orders@3``, or ``orders@3.12`` for what it was after a write."""

    name: str
    version: int | None = None
    write: int | None = None

    @property
    def pinned(self) -> str | None:
        """What is named, and so stays the same whatever is current: the ``version``, or the ``write``, too."""
        return None if self.version is None else "version" if self.write is None else "write"

    def __str__(self) -> str:
        if self.version is None:
            return self.name
        return f"{self.name}@{self.version}" + ("" if self.write is None else f".{self.write}")


@dataclass(frozen=True, slots=True)
class DatasetState:
    """One state of a dataset, which never changes: a version after one of its writes."""

    dataset_id: int
    name: str
    version_id: int
    version: int
    write: int
    location: str
    is_outside: bool
    columns: tuple[Column, ...]
    storage: str = "parquet"

    def __str__(self) -> str:
        return f"{self.name}@{self.version}.{self.write}"


class File(NamedTuple):
    """A file of a dataset, and the ``write`` that brought it; ``path`` is under the location of its version."""

    partition: str
    id: int
    path: str
    rows: int
    bytes: int
    write: int


@dataclass(frozen=True, slots=True)
class Partition:
    """A part of a dataset that is written by itself; ``write`` is the last that changed it."""

    key: str
    write: int
    rows: int
    bytes: int
    files: int
    written_at: datetime


def read_name(text: str) -> Named:
    """Return what somebody names; raises `InvalidInput`."""
    found = _NAMED.fullmatch(text)
    if found is None:
        raise InvalidInput("dataset", f"{text!r} is no name: write it like orders, orders@3 or orders@3.12")
    version, write = found["version"], found["write"]
    return Named(
        datasets.check_dataset(found["name"]),
        None if version is None else int(version),
        None if write is None else int(write),
    )


async def state_of(
    conn: type_Connection, org_id: int, named: Named, *, as_of: datetime | None = None, sees: Sees = None
) -> DatasetState:
    """Return a state of a dataset: that which is current, or the one that is named, or that of a time."""
    if as_of is not None and named.version is not None:
        raise InvalidInput("as_of", f"{named} says itself which state is meant: leave one of both out")
    found = await datasets.show(conn, org_id, named.name, sees)
    if as_of is None:
        row = await conn.fetchrow(SQL.version, org_id, found.id, named.version)
    else:
        row = await conn.fetchrow(SQL.version_at, org_id, found.id, as_of)
    if row is None:
        if named.version is None and found.version is None:
            raise NotFound("dataset", named.name, "nothing has been written into it yet")
        raise NotFound("dataset", str(named), "it had no version then" if as_of else "there is no such version")
    write = row["last_write"] if named.write is None else named.write
    if write > row["last_write"]:
        raise NotFound("dataset", str(named), f"the last write of version {row['number']} is {row['last_write']}")
    if write < row["oldest_write"]:
        oldest = (
            f"its files have been collected: the oldest state that is left is {row['number']}.{row['oldest_write']}"
        )
        raise NotFound("dataset", f"{named.name}@{row['number']}.{write}", oldest)
    return DatasetState(
        found.id, found.name, row["id"], row["number"], write, row["location"], row["is_outside"],
        columns_of(row["columns"]), found.storage["kind"],
    )  # fmt: skip


async def kept_columns(conn: type_Connection, org_id: int, state: DatasetState) -> str | None:
    """Return the columns of a version as they are kept, which is exact."""
    found: str | None = await conn.fetchval(SQL.kept_columns, org_id, state.version_id)
    return found


async def files(
    conn: type_Connection, org_id: int, version_id: int, write: int, partitions: Sequence[str] | None,
    after: tuple[str, int], limit: int, *, since: int = -1,
) -> list[File]:  # fmt: skip
    """Return a page of the files of a state, or of those that came ``since`` an earlier write.

    Raises `NotFound` when it has been collected meanwhile, lest some of them are missing.
    """
    wanted = None if partitions is None else list(partitions)
    rows = await conn.fetch(SQL.files, org_id, version_id, write, wanted, *after, limit, since)
    await _require_kept(conn, org_id, version_id, write)
    return [File(*row) for row in rows]


async def _require_kept(conn: type_Connection, org_id: int, version_id: int, write: int) -> None:
    # Whoever collects closes a state before he removes anything of it.
    if not await conn.fetchval(SQL.is_kept, org_id, version_id, write):
        raise collected(version_id)


def collected(version_id: int) -> NotFound:
    """Return the error of who reads what is collected meanwhile."""
    return NotFound("version", version_id, "its files have been collected while they were read: read the dataset again")


async def partitions(
    conn: type_Connection, org_id: int, version_id: int, after: str | None, limit: int
) -> list[Partition]:
    """Return a page of the partitions that a version has, by key; rows that are in none have the first key, ''.

    Raises `NotFound` when it has been collected meanwhile.
    """
    rows = await conn.fetch(SQL.partitions, org_id, version_id, after, limit)
    await _require_kept(conn, org_id, version_id, MAX_ID)
    return [Partition(**row) for row in rows]


async def latest_partitions(conn: type_Connection, org_id: int, version_id: int, limit: int) -> list[Partition]:
    """Return the partitions that were written last."""
    return [Partition(**row) for row in await conn.fetch(SQL.latest_partitions, org_id, version_id, limit)]


async def list_partitions(
    conn: type_Connection, org_id: int, named: Named, *, after: str | None, limit: int, latest: bool, sees: Sees = None
) -> list[Partition]:
    """Return partitions of the version that is named: by key, or those that were written last."""
    found = await state_of(conn, org_id, named._replace(write=None), sees=sees)
    if latest:
        return await latest_partitions(conn, org_id, found.version_id, limit)
    return await partitions(conn, org_id, found.version_id, after, limit)
