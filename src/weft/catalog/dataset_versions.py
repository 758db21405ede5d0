"""The versions of a dataset and what was written into each: looked at, and gone back to."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from weft.catalog import dataset_reading, datasets
from weft.catalog.dataset_reading import DatasetState, Named
from weft.catalog.dataset_writing import STAGING
from weft.catalog.datasets import SQL, Column, Sees, columns_of
from weft.core.errors import InvalidInput, NotFound
from weft.queue import audit
from weft.queue.audit import AuditVerb

if TYPE_CHECKING:
    from asyncpg import Record

    from weft.db.database import type_Connection


@dataclass(frozen=True, slots=True)
class DatasetVersion:
    """A generation of a dataset; ``write`` is the last that changed it, ``is_current`` whether readers see it."""

    id: int
    number: int
    is_current: bool
    write: int
    columns: tuple[Column, ...]
    rows: int
    bytes: int
    files: int
    config_hash: str
    schema_hash: str | None
    location: str
    range_start: int | None
    range_end: int | None
    written_at: datetime | None
    created_at: datetime
    current_at: datetime | None
    retired_at: datetime | None
    actor: str


@dataclass(frozen=True, slots=True)
class DatasetWrite:
    """One change of a version: by the attempt that completed its task with it, or by whoever went back."""

    number: int
    mode: str
    task_id: int | None
    attempt: int | None
    job_id: int | None
    node: str | None
    handler: str | None
    partitions: int
    rows: int
    bytes: int
    rows_removed: int
    written_at: datetime
    actor: str


async def list_versions(
    conn: type_Connection, org_id: int, name: str, *, before: int | None, limit: int, sees: Sees = None
) -> list[DatasetVersion]:
    """Return the versions of a dataset, the newest first."""
    found = await datasets.show(conn, org_id, name, sees)
    return [_version(row) for row in await conn.fetch(SQL.versions, org_id, found.id, before, limit)]


async def list_writes(
    conn: type_Connection, org_id: int, named: Named, *, before: int | None, limit: int, sees: Sees = None
) -> list[DatasetWrite]:
    """Return what was written into a version, the newest first."""
    found = await dataset_reading.state_of(conn, org_id, named._replace(write=None), sees=sees)
    return [DatasetWrite(**row) for row in await conn.fetch(SQL.writes, org_id, found.version_id, before, limit)]


async def roll_back(conn: type_Connection, org_id: int, named: Named, actor: str, sees: Sees = None) -> DatasetState:
    """Let readers see an earlier state: another version, or what a version was after one of its writes.

    Nothing is lost by it: what was seen before can be gone back to in the same way. Returns what is seen then.
    """
    before = await datasets.show(conn, org_id, named.name, sees)
    if named.version is None:
        raise InvalidInput("dataset", f"say where to go back to: {named.name}@VERSION, or {named.name}@VERSION.WRITE")
    held = await conn.fetchrow(SQL.lock, org_id, named.name)
    target = await dataset_reading.state_of(conn, org_id, named)
    if held is not None and held["is_live"] and held["current_id"] != target.version_id:
        of = f"the live DAG {held['producer_dag']}"
        what = (
            f"the versions of {named.name} are those of {of}: `weft deploy rollback {held['producer_dag']}` goes back"
        )
        raise InvalidInput("dataset", what)
    both = [target.version_id, target.version_id if held is None else held["current_id"]]
    locked = {row["id"]: row["last_write"] for row in await conn.fetch(SQL.lock_versions, both)}
    last = locked.get(target.version_id)
    # Once more: whoever collects what is past was perhaps quicker.
    target = await dataset_reading.state_of(conn, org_id, named)
    write = target.write
    if write != last:
        if write == 0:
            raise NotFound("dataset", str(named), "its writes are counted from 1")
        # Before it is seen: who asks for a time between both does not see what nobody saw.
        write = await conn.fetchval(SQL.roll_back, target.version_id, write, actor)
    with datasets.changing_view(named.name, "rolled back"):
        moved = await conn.fetchval(SQL.make_current, target.dataset_id, target.version_id)
    if write == last and not moved:
        return target
    told = {"from": f"{before.version}.{before.write}", "to": f"{named.version}.{target.write}"}
    await audit.record_named(conn, org_id, actor, AuditVerb.ROLLBACK, "dataset", named.name, told)
    return await dataset_reading.state_of(conn, org_id, Named(named.name, target.version, write))


async def add(conn: type_Connection, org_id: int, dataset_id: int, config_hash: str, actor: str) -> int:
    """Make a version that nobody sees yet, for what one configuration of its producer writes; return its id."""
    version_id = int(await conn.fetchval(STAGING.next_id))
    await conn.fetchrow(SQL.add_version, org_id, dataset_id, version_id, config_hash, None, actor)
    return version_id


def _version(row: Record) -> DatasetVersion:
    told = {key: value for key, value in row.items() if key not in ("columns", "last_write", "is_outside")}
    return DatasetVersion(**told, columns=columns_of(row["columns"]), write=row["last_write"])
