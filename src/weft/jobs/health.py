"""Says whether an installation is well: the database, workers, orchestrators, and tasks that nobody looks after."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from weft.jobs.metrics import SQL

if TYPE_CHECKING:
    from asyncpg import Record

    from weft.db.database import type_Connection


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """One part of an installation: whether it is well, what was found, and what to do when it is not."""

    name: str
    ok: bool
    text: str
    advice: str | None = None


@dataclass(frozen=True, slots=True)
class Health:
    """Whether an installation is well, and each part of it: database, workers, stale_tasks, orchestrators."""

    ok: bool
    checks: tuple[HealthCheck, ...]


async def check_health(conn: type_Connection, org_id: int) -> Health:
    """Look at each part of what serves an org; a database that answers is well."""
    return await _checked(conn, (SQL.health, org_id), (SQL.live_workers, org_id))


async def check_installation(conn: type_Connection) -> Health:
    """Look at each part, whichever org it serves."""
    return await _checked(conn, (SQL.health_of_all,), (SQL.live_workers_of_all,))


async def _checked(conn: type_Connection, health: tuple[Any, ...], live_workers: tuple[Any, ...]) -> Health:
    begin = time.perf_counter()
    row = await conn.fetchrow(*health)
    took = time.perf_counter() - begin
    assert row is not None
    live = await conn.fetch(*live_workers)
    orchestrators = sum(each["orchestrates"] for each in live)
    return _health(
        HealthCheck("database", True, f"answers in {1000 * took:.1f} ms"),
        _workers(len(live) - orchestrators),
        _stale(row["held"], row["late"]),
        _orchestrators(orchestrators, row),
    )


def without_database(problem: Exception) -> Health:
    """Return what is to be said when the database cannot be reached."""
    unknown = "not known without the database"
    names = ("workers", "stale_tasks", "orchestrators")
    return _health(
        HealthCheck("database", False, str(problem), "see `weft db status`"),
        *(HealthCheck(name, False, unknown) for name in names),
    )


def _health(*checks: HealthCheck) -> Health:
    return Health(all(check.ok for check in checks), checks)


def _workers(count: int) -> HealthCheck:
    if count:
        return HealthCheck("workers", True, f"{count} alive")
    return HealthCheck("workers", False, "none is alive", "start one: `weft worker --app MODULE`")


def _stale(held: int, late: int) -> HealthCheck:
    if not held and not late:
        return HealthCheck("stale_tasks", True, "none")
    told = [f"{held} held by workers that are lost"] * bool(held) + [f"{late} late by more than a minute"] * bool(late)
    advice = "workers that are alive take them over within their lease; start one if there is none"
    return HealthCheck("stale_tasks", False, ", ".join(told), advice)


def _orchestrators(count: int, row: Record) -> HealthCheck:
    if count:
        return HealthCheck("orchestrators", True, f"{count} alive")
    needs = {
        "has_jobs": "jobs are open",
        "has_schedules": "schedules tick by one",
        "has_live_jobs": "live DAGs need one",
    }
    needed = next((what for name, what in needs.items() if row[name]), None)
    if needed is None:
        return HealthCheck("orchestrators", True, "none, and no job needs one")
    return HealthCheck("orchestrators", False, f"none is alive, and {needed}", "start one: `weft orchestrator`")
