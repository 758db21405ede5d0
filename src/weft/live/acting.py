"""What people do to live DAGs while these go on: paused, resumed, and units of work that are held sent on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.core.checks import MAX_ID, check_name
from weft.core.errors import NotFound, StateConflict
from weft.db.statements import Statements
from weft.live.looking import find_job, require_dag
from weft.queue import audit, operate
from weft.queue.audit import AuditVerb

if TYPE_CHECKING:
    from weft.db.database import type_Connection

SQL = Statements("weft.live", "sql/acting.sql")
# So many held units are sent on in one transaction.
AT_ONCE = 500
_SKIPPABLE = ("held", "new", "ready", "waiting")


async def pause(conn: type_Connection, org_id: int, dag: str, job: str | None, actor: str) -> None:
    """Let no unit of a DAG, or of one of its jobs, begin; what runs goes on."""
    await _turn(conn, org_id, dag, job, actor, AuditVerb.PAUSE)


async def resume(conn: type_Connection, org_id: int, dag: str, job: str | None, actor: str) -> None:
    """Let a DAG or a job that is paused go on; nothing that came meanwhile is lost."""
    await _turn(conn, org_id, dag, job, actor, AuditVerb.RESUME)


async def _turn(conn: type_Connection, org_id: int, dag: str, job: str | None, actor: str, verb: AuditVerb) -> None:
    is_pause = verb is AuditVerb.PAUSE
    if job is None:
        await require_dag(conn, org_id, check_name(dag, "dag"))
        landed = await conn.fetchval(SQL.pause if is_pause else SQL.resume, org_id, dag)
    else:
        found = await find_job(conn, org_id, dag, job)
        landed = await conn.fetchval(SQL.pause_job if is_pause else SQL.resume_job, org_id, found["id"])
    name = _named(dag, job)
    if landed is None:
        states = ("paused", "active") if is_pause else ("active", "paused")
        raise StateConflict(verb, name, states[0], [states[1]], "live DAG" if job is None else "live job")
    await audit.record_named(conn, org_id, actor, verb, "live_dag", name, {})
    await conn.execute(SQL.hint)


async def retry(
    conn: type_Connection, org_id: int, dag: str, job: str, unit: int | None, after: int, actor: str
) -> tuple[int, int, list[int]]:
    """Send on units that are held, or one of them: their tasks are tried again, as if they had never failed.

    Returns how many, after which unit to go on, 0 for the last, and the queues in which there is something now.
    """
    found = await find_job(conn, org_id, dag, job)
    await conn.fetchval(SQL.lock_job, org_id, found["id"])
    rows = await conn.fetch(SQL.held, org_id, found["id"], after, unit, AT_ONCE)
    if unit is not None and not rows:
        await _refuse(conn, org_id, found["id"], unit, "retry", ["held"])
    replayed = await operate.replay(conn, org_id, [row["task_id"] for row in rows if row["has_task"]], actor)
    gone = [row["id"] for row in rows if not row["has_task"]]
    await conn.execute(SQL.begin_anew, org_id, gone)
    if rows:
        told = {"units": [str(row["id"]) for row in rows[:100]], "count": len(rows)}
        await audit.record_named(conn, org_id, actor, AuditVerb.REPLAY, "live_dag", _named(dag, job), told)
    await conn.execute(SQL.hint)
    last = rows[-1]["id"] if len(rows) == AT_ONCE else 0
    return len(replayed) + len(gone), last, sorted(set(replayed.values()))


async def skip(conn: type_Connection, org_id: int, dag: str, job: str, unit: int, actor: str) -> None:
    """Leave out a unit that is held, or has not begun; what comes after it goes on."""
    found = await find_job(conn, org_id, dag, job)
    await conn.fetchval(SQL.lock_job, org_id, found["id"])
    landed = await conn.fetchrow(SQL.skip, org_id, found["id"], unit)
    if landed is None:
        await _refuse(conn, org_id, found["id"], unit, "skip", _SKIPPABLE)
    await audit.record_named(conn, org_id, actor, AuditVerb.SKIP, "live_dag", _named(dag, job), {"unit": str(unit)})
    await conn.execute(SQL.hint)


async def _refuse(
    conn: type_Connection, org_id: int, job_id: int, unit: int, verb: str, allowed: tuple[str, ...] | list[str]
) -> None:
    state = await conn.fetchval(SQL.state_of_unit, org_id, job_id, unit)
    if state is None or not 0 < unit <= MAX_ID:
        raise NotFound("unit", unit, "it is done, or never was; see `weft live units DAG JOB`")
    raise StateConflict(verb, unit, state, allowed, "unit")


def _named(dag: str, job: str | None) -> str:
    return dag if job is None else f"{dag}:{job}"
