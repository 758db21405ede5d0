"""Which version of a live DAG is in effect: gone back to, given up, or none of them any more."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from weft.core.checks import check_name, check_number
from weft.core.errors import InvalidInput, NotFound, StateConflict
from weft.flow.live.model import LINE
from weft.history import tags
from weft.live.deploying import SQL, require_datasets
from weft.live.looking import SQL as LOOKING
from weft.live.looking import require_dag
from weft.live.sources import following
from weft.queue import audit
from weft.queue.audit import AuditVerb

if TYPE_CHECKING:
    from asyncpg import Record

    from weft.catalog.datasets import Sees
    from weft.db.database import type_Connection

_HIGHEST = 2**31 - 1


@dataclass(frozen=True, slots=True)
class DagVersion:
    """A version of a live DAG: ``building``, ``live``, ``retired``, or ``abandoned`` before it was in effect.

    ``artifact_id`` is its document in the history; ``live_at`` when it was last brought into effect.
    """

    id: int
    number: int
    state: str
    artifact_id: int
    version_hash: str
    created_at: datetime
    live_at: datetime | None
    retired_at: datetime | None
    actor: str
    message: str | None


async def list_versions(
    conn: type_Connection, org_id: int, name: str, *, before: int | None, limit: int
) -> list[DagVersion]:
    """Return the versions of a DAG that are kept, the newest first."""
    dag = await find_dag(conn, org_id, name)
    below = _HIGHEST if before is None else check_number(before, "before", 0, _HIGHEST)
    return [DagVersion(**row) for row in await conn.fetch(LOOKING.versions, org_id, dag["id"], below, limit)]


async def version_to_go_to(conn: type_Connection, org_id: int, dag: Record, to: int | None) -> Record:
    """Return the version that a rollback brings into effect: that of a number, or the last one before what is.

    Raises `InvalidInput`, `NotFound` or `StateConflict` for one that cannot be gone back to.
    """
    name, base = dag["name"], dag["version"]
    if to is None:
        if base is None:
            raise InvalidInput(
                "to", f"no version of {name} is in effect: say which one is to be, of `weft deploy history`"
            )
        target = await conn.fetchrow(SQL.version_before, org_id, dag["id"], base)
        if target is None:
            raise NotFound(
                "version", f"of {name} that was in effect before {base}", f"see `weft deploy history {name}`"
            )
    else:
        number = check_number(to, "version", 1, _HIGHEST)
        target = await conn.fetchrow(SQL.version, org_id, dag["id"], number)
        if target is None:
            raise NotFound("version", f"{number} of {name}", f"see `weft deploy history {name}`")
    if target["live_at"] is None:
        raise StateConflict(
            "rollback", f"{name} to version {target['number']}", target["state"], ["retired"], "live DAG"
        )
    return target


async def roll_back(
    conn: type_Connection, org_id: int, name: str, to: int | None, actor: str, message: str | None, *, sees: Sees
) -> tuple[int, int | None]:
    """Bring an earlier version into effect at once, the last one before unless said; return both numbers.

    Its jobs go on where they were: readers see its datasets as these were then, until the jobs have caught up.
    """
    dag = await _locked(conn, org_id, name)
    base, target = dag["version"], await version_to_go_to(conn, org_id, dag, to)
    if target["id"] == dag["version_id"]:
        return base, base
    await conn.execute(SQL.hold_datasets, org_id, name, [], target["id"], True)
    await require_datasets(conn, org_id, target["id"], "to", sees)
    async with tags.explained(f"{name}/{LINE}"), following():
        await conn.execute(SQL.swap, dag["id"], target["id"], "rollback", actor, message)
    told = {"from": base, "to": target["number"]}
    await audit.record_named(conn, org_id, actor, AuditVerb.ROLLBACK, "live_dag", name, told)
    return target["number"], base


async def abandon(conn: type_Connection, org_id: int, name: str, actor: str) -> int:
    """Give up the version that is being built; return its number."""
    dag = await _locked(conn, org_id, name)
    if dag["building_id"] is None:
        raise StateConflict("abandon", name, "without a version that is being built", ["being built"], "live DAG")
    number = await conn.fetchval(SQL.abandon, org_id, dag["building_id"])
    await conn.fetchval(SQL.stop_building, org_id, dag["id"], dag["building_id"])
    await conn.execute(SQL.settle, dag["id"])
    await audit.record_named(conn, org_id, actor, AuditVerb.ABANDON, "live_dag", name, {"version": number})
    return int(number)


async def drain(conn: type_Connection, org_id: int, name: str, actor: str) -> None:
    """Let all jobs of a DAG end what they are at and stop; its datasets stay as they are."""
    dag = await _locked(conn, org_id, name)
    if dag["version_id"] is None and dag["building_id"] is None:
        raise StateConflict("drain", name, "not in effect", ["in effect"], "live DAG")
    await conn.execute(SQL.leave, org_id, dag["id"])
    await conn.execute(SQL.settle, dag["id"])
    await audit.record_named(conn, org_id, actor, AuditVerb.DRAIN, "live_dag", name, {"version": dag["version"]})


async def find_dag(conn: type_Connection, org_id: int, name: str) -> Record:
    """Return a DAG with the numbers of its versions in effect and being built; raises `NotFound`."""
    row = await conn.fetchrow(SQL.dag, org_id, check_name(name, "dag"))
    if row is None:
        await require_dag(conn, org_id, name)
        raise AssertionError
    return row


async def _locked(conn: type_Connection, org_id: int, name: str) -> Record:
    """Return a DAG as nobody else changes it meanwhile."""
    await conn.fetchrow(SQL.lock_dag, org_id, check_name(name, "dag"))
    return await find_dag(conn, org_id, name)
