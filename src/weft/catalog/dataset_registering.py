"""Registers what others have written as a version of a dataset, all of it at once."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from weft.catalog import dataset_reading, datasets
from weft.catalog.dataset_reading import DatasetState, Named
from weft.catalog.dataset_writing import STAGING, STORAGE, schema_digest
from weft.catalog.datasets import OUTSIDE, REGISTERED, Producer
from weft.catalog.datasets import SQL as DATASETS
from weft.core.errors import InvalidInput
from weft.db.statements import Statements
from weft.queue import audit
from weft.queue.audit import AuditVerb

if TYPE_CHECKING:
    from asyncpg import Record

    from weft.db.database import type_Connection

SQL = Statements("weft.catalog", "sql/registering.sql")


@dataclass(frozen=True, slots=True)
class Registration:
    """What is registered: an address that ends in ``/``, which of its files, and which range of something it covers."""

    address: str
    glob: str
    partition_by: str
    range_start: int | None = None
    range_end: int | None = None

    @property
    def digest(self) -> str:
        """The configuration of the version: the same for the same registration."""
        return hashlib.sha256(orjson.dumps([self.address, self.glob, self.partition_by])).hexdigest()


async def find(conn: type_Connection, org_id: int, name: str, wanted: Registration) -> DatasetState | None:
    """Return the state of a version that was registered in the same way before."""
    row = await conn.fetchrow(DATASETS.show, org_id, datasets.check_dataset(name), None)
    found = None if row is None else await _registered(conn, org_id, row["id"], wanted)
    return None if found is None else await dataset_reading.state_of(conn, org_id, Named(name, found["number"]))


async def register(
    conn: type_Connection, org_id: int, name: str, wanted: Registration, files: Sequence[Mapping[str, Any]],
    columns: Mapping[str, Any], require_fitting: Callable[[str], None], actor: str, *, replace: bool,
) -> DatasetState:  # fmt: skip
    """List files as a version that readers see from here on; return its state.

    The same registration is the same version: then nothing changes, unless ``replace`` lets what was found now take
    the place of what was found before. ``require_fitting`` is asked about the columns that readers see now.
    """
    row = await conn.fetchrow(DATASETS.lock, org_id, datasets.check_dataset(name))
    if row is None:
        await conn.execute(DATASETS.create, org_id, name, None, orjson.dumps(STORAGE).decode(), actor)
        row = await conn.fetchrow(DATASETS.lock, org_id, name)
        assert row is not None
    await _require_outside(conn, org_id, name, row)
    known = await _registered(conn, org_id, row["id"], wanted)
    if known is not None and not replace:
        return await dataset_reading.state_of(conn, org_id, Named(name, known["number"]))
    if (kept := await conn.fetchval(SQL.current_columns, org_id, row["id"])) is not None:
        require_fitting(kept)
    if known is None:
        version_id = await conn.fetchval(STAGING.next_id)
        number = await conn.fetchval(
            SQL.add, org_id, row["id"], version_id, wanted.digest, wanted.range_start, wanted.range_end,
            wanted.address, actor,
        )  # fmt: skip
    else:
        version_id, number = known["id"], known["number"]
    await conn.execute(
        SQL.register, version_id, orjson.dumps(files).decode(), orjson.dumps(columns).decode(), schema_digest(columns),
        actor,
    )  # fmt: skip
    await conn.execute(DATASETS.make_current, row["id"], version_id)
    told = {"address": wanted.address, "version": number, "files": len(files)}
    await audit.record_named(conn, org_id, actor, AuditVerb.REGISTER, "dataset", name, told)
    return await dataset_reading.state_of(conn, org_id, Named(name, number))


async def _registered(conn: type_Connection, org_id: int, dataset_id: int, wanted: Registration) -> Record | None:
    return await conn.fetchrow(SQL.registered, org_id, dataset_id, wanted.digest, wanted.range_start, wanted.range_end)


async def _require_outside(conn: type_Connection, org_id: int, name: str, row: Record) -> None:
    """Raise `InvalidInput` for a dataset that tasks write: it has one producer."""
    mine = (OUTSIDE, REGISTERED)
    if orjson.loads(row["storage"]) != STORAGE:
        raise InvalidInput("name", f"{name} is kept in the database: register files as another dataset")
    if row["producer_dag"] is None:
        await conn.execute(DATASETS.one_output_at_a_time, org_id, *mine)
        await conn.execute(DATASETS.set_producer, org_id, row["id"], *mine)
    elif (row["producer_dag"], row["producer_node"]) != mine:
        known = Producer(row["producer_dag"], row["producer_node"])
        raise InvalidInput(
            "name", f"{name} is written by {known} and by nobody else: register files as another dataset"
        )
