"""Who writes a dataset, handed over to another; and whether it is there at all: deleted, and brought back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import asyncpg

from weft.catalog import datasets
from weft.catalog.datasets import ALONE, OUTSIDE, Dataset, Producer
from weft.catalog.datasets import SQL as DATASETS
from weft.core.checks import check_name
from weft.core.data_errors import DatasetBusy
from weft.core.errors import InvalidInput, NotFound
from weft.db.statements import Statements
from weft.queue import audit
from weft.queue.audit import AuditVerb

if TYPE_CHECKING:
    from weft.db.database import type_Connection

SQL = Statements("weft.catalog", "sql/keeping.sql")


async def hand_over(conn: type_Connection, org_id: int, name: str, workflow: str, node: str, actor: str) -> Dataset:
    """Let another node write a dataset from here on, and the one that did so far no more.

    Raises `DatasetBusy` while an attempt runs that has begun to write it: its write would come too late.
    """
    check_name(workflow, "workflow")
    check_name(node, "node")
    if workflow.startswith("@") and workflow != ALONE:
        raise InvalidInput("workflow", f"must be a workflow, or {ALONE} for the handler of tasks without a job")
    row = await conn.fetchrow(DATASETS.lock, org_id, datasets.check_dataset(name))
    if row is None:
        raise NotFound("dataset", name)
    if row["producer_dag"] == OUTSIDE:
        raise InvalidInput("name", f"{name} is registered, and written by others: there is nothing to hand over")
    if row["is_live"]:
        dag = row["producer_dag"]
        raise InvalidInput(
            "name", f"the versions of {name} are those of the live DAG {dag}, and nobody else's to write"
        )
    await _require_quiet(conn, org_id, row["id"], name, "handed over")
    wanted = (workflow, node)
    if (row["producer_dag"], row["producer_node"]) != wanted:
        await conn.execute(DATASETS.one_output_at_a_time, org_id, *wanted)
        await conn.execute(SQL.hand_over, org_id, row["id"], *wanted)
        before = None if row["producer_dag"] is None else str(Producer(row["producer_dag"], row["producer_node"]))
        told = {"from": before, "to": str(Producer(*wanted))}
        await audit.record_named(conn, org_id, actor, AuditVerb.HAND_OVER, "dataset", name, told)
    return await datasets.show(conn, org_id, name)


async def delete(conn: type_Connection, org_id: int, name: str, actor: str) -> Dataset:
    """Let a dataset be there no more, and return what it was; within the retention it can be brought back.

    Raises `DatasetBusy` while an attempt runs that has begun to write it, or a live DAG is in effect that has to do
    with it.
    """
    found = await datasets.show(conn, org_id, name)
    await conn.fetchrow(DATASETS.lock, org_id, name)
    await _require_quiet(conn, org_id, found.id, name, "deleted")
    if (dag := await conn.fetchval(SQL.live_user, org_id, found.id)) is not None:
        raise DatasetBusy(name, "deleted", f"the live DAG {dag} reads or writes it")
    # Its view has the name that it still has.
    with datasets.changing_view(name, "deleted"):
        await conn.execute(SQL.hide_table, found.id)
    if await conn.fetchval(SQL.delete, org_id, found.id) is None:
        raise NotFound("dataset", name)
    told = {"rows": found.rows, "version": found.version}
    await audit.record_named(conn, org_id, actor, AuditVerb.DELETE, "dataset", name, told)
    return found


async def undelete(conn: type_Connection, org_id: int, name: str, actor: str) -> Dataset:
    """Bring back the dataset of that name which was deleted last; raises `InvalidInput` if there is another by now."""
    await conn.fetchrow(SQL.deleted, org_id, datasets.check_dataset(name))
    # Once more, now that it is locked: whoever collects what is past was perhaps quicker.
    row = await conn.fetchrow(SQL.deleted, org_id, name)
    if row is None:
        raise NotFound("dataset", name, "none of that name was deleted within the retention")
    # Without waiting for who has to do with it: he may wait for this one.
    if await conn.fetchrow(DATASETS.show, org_id, name, None) is not None:
        raise _name_is_taken(name)
    try:
        undeleted = await conn.fetchval(SQL.undelete, org_id, row["id"], name)
    except asyncpg.UniqueViolationError:
        # Somebody has made it since.
        raise _name_is_taken(name) from None
    if undeleted is None:
        raise NotFound("dataset", name)
    with datasets.changing_view(name, "undeleted"):
        await conn.execute(SQL.show_table, row["id"])
    await audit.record_named(conn, org_id, actor, AuditVerb.UNDELETE, "dataset", name, {})
    return await datasets.show(conn, org_id, name)


def _name_is_taken(name: str) -> InvalidInput:
    return InvalidInput("name", f"there is another dataset {name} by now: delete that first")


async def _require_quiet(conn: type_Connection, org_id: int, dataset_id: int, name: str, verb: str) -> None:
    task_id = await conn.fetchval(SQL.open_write, org_id, dataset_id)
    if task_id is not None:
        raise DatasetBusy(name, verb, f"task {task_id} writes it")
