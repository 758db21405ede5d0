"""Datasets: named tables of data; made, described, and shown to whom they may be shown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import asyncpg
import orjson

from weft.catalog.roles import SQL as ROLES
from weft.core.checks import check_after, check_name, check_slug, check_text
from weft.core.data_errors import DatasetBusy
from weft.core.errors import InvalidInput, NotFound
from weft.db.statements import Statements
from weft.queue import audit
from weft.queue.audit import AuditVerb

if TYPE_CHECKING:
    from asyncpg import Record

    from weft.db.database import type_Connection

SQL = Statements("weft.catalog", "sql/dataset.sql")
# The roles of whoever looks; None for one who sees everything: an admin, a task, or whoever has the database.
Sees = frozenset[str] | None
_LONGEST_DESCRIPTION = 2000


class Kind(StrEnum):
    """How the rows of a dataset are kept: in Parquet files, or in tables of the database."""

    PARQUET = "parquet"
    POSTGRES = "postgres"


class PartitionBy(StrEnum):
    """How files that others have written are told apart: not at all, or by parts ``name=value`` of their paths."""

    NONE = "none"
    HIVE = "hive"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a dataset; ``type`` is that of Arrow."""

    name: str
    type: str
    nullable: bool = True


@dataclass(frozen=True, slots=True)
class Producer:
    """Who writes a dataset: a node of a workflow, and which of its outputs; of a task without a job its handler."""

    workflow: str
    node: str
    output: int = 0

    def __str__(self) -> str:
        if self.workflow == OUTSIDE:
            return "others, whose files are registered"
        of = f"the handler {self.node}" if self.workflow == ALONE else f"{self.workflow}, node {self.node}"
        return of if self.output == 0 else f"{of}, output {self.output}"


# What stands for the workflow of a task that has none, and for those who write what is registered.
ALONE, OUTSIDE, REGISTERED = "@task", "@outside", "register"


@dataclass(frozen=True, slots=True)
class Dataset:
    """A named table of data, with what the version has that readers see; ``write`` is the last that changed it."""

    id: int
    name: str
    description: str | None
    producer: Producer | None
    storage: Mapping[str, Any]
    read_roles: tuple[str, ...]
    unique_key: tuple[str, ...] | None
    version: int | None
    write: int | None
    columns: tuple[Column, ...]
    rows: int
    bytes: int
    files: int
    written_at: datetime | None
    created_at: datetime
    actor: str


async def create(
    conn: type_Connection, org_id: int, name: str, description: str | None, storage: Mapping[str, Any], actor: str
) -> bool:
    """Make a dataset that nobody has written yet; False when there is one of that name."""
    check_dataset(name)
    told = None if description is None else check_text(description, "description", _LONGEST_DESCRIPTION)
    created = await conn.fetchval(SQL.create, org_id, name, told, orjson.dumps(storage).decode(), actor) is not None
    if created:
        await audit.record_named(conn, org_id, actor, AuditVerb.CREATE, "dataset", name, {})
    return created


async def show(conn: type_Connection, org_id: int, name: str, sees: Sees = None) -> Dataset:
    """Return a dataset that may be seen; raises `NotFound`."""
    row = await conn.fetchrow(SQL.show, org_id, check_dataset(name), roles_in(sees))
    if row is None:
        raise NotFound("dataset", name)
    return _dataset(row)


async def list_datasets(
    conn: type_Connection, org_id: int, *, after: str = "", limit: int = 100, sees: Sees = None
) -> list[Dataset]:
    """Return the datasets that may be seen, by name."""
    return [_dataset(row) for row in await conn.fetch(SQL.list, org_id, check_after(after), roles_in(sees), limit)]


async def describe(
    conn: type_Connection, org_id: int, name: str, description: str, actor: str, sees: Sees = None
) -> Dataset:
    """Say what a dataset is about."""
    found = await show(conn, org_id, name, sees)
    await conn.execute(SQL.change, org_id, found.id, check_text(description, "description", _LONGEST_DESCRIPTION), None)
    await audit.record_named(conn, org_id, actor, AuditVerb.CHANGE, "dataset", name, {"description": description})
    return await show(conn, org_id, name)


async def set_read_roles(conn: type_Connection, org_id: int, name: str, roles: Iterable[str], actor: str) -> Dataset:
    """Say which roles of the org see a dataset; admins do in any case. Each must be there."""
    wanted = sorted({check_slug(role, "roles") for role in roles})
    found = await show(conn, org_id, name)
    await conn.execute(ROLES.keep, org_id)
    unknown = [row["slug"] for row in await conn.fetch(SQL.unknown_roles, org_id, wanted)]
    if unknown:
        raise InvalidInput("roles", f"the org has no role {unknown[0]!r}: make it by `weft roles create {unknown[0]}`")
    await conn.execute(SQL.change, org_id, found.id, None, wanted)
    told = {"before": list(found.read_roles), "roles": wanted}
    await audit.record_named(conn, org_id, actor, AuditVerb.CHANGE, "dataset", name, told)
    return await show(conn, org_id, name)


@contextmanager
def changing_view(name: str, verb: str) -> Iterator[None]:
    """Raise `DatasetBusy` when the view of a dataset cannot be changed, because others read it or are made of it."""
    try:
        yield
    except asyncpg.PostgresError as problem:
        if problem.sqlstate != "WF007":
            raise
        raise DatasetBusy(name, verb, str(problem).removeprefix(f"dataset {name}: ")) from None


def check_dataset(name: object) -> str:
    """Return a dataset's name; raises `InvalidInput`. An ``@`` would begin a version."""
    found = check_name(name, "dataset")
    if "@" in found:
        raise InvalidInput("dataset", f"{found!r} has an @, after which a version is named: leave it out")
    return found


def columns_of(text: str | None) -> tuple[Column, ...]:
    """Return the columns as they are told to callers."""
    return () if text is None else tuple(Column(**each) for each in orjson.loads(text)["columns"])


def roles_in(sees: Sees) -> list[str] | None:
    """Return the roles by which datasets are seen, as statements take them."""
    return None if sees is None else sorted(sees)


def _dataset(row: Record) -> Dataset:
    workflow, key = row["producer_dag"], row["unique_key"]
    return Dataset(
        id=row["id"],
        name=row["name"],
        description=row["description"],
        producer=None if workflow is None else Producer(workflow, row["producer_node"], row["producer_output"] or 0),
        storage=orjson.loads(row["storage"]),
        read_roles=tuple(row["read_roles"]),
        unique_key=None if key is None else tuple(key),
        version=row["version"],
        write=row["write"],
        columns=columns_of(row["columns"]),
        rows=row["rows"] or 0,
        bytes=row["bytes"] or 0,
        files=row["files"] or 0,
        written_at=row["written_at"],
        created_at=row["created_at"],
        actor=row["actor"],
    )
