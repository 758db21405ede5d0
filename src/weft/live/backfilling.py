"""Computes partitions anew that live jobs have computed before: some of them at once, or many, a few at a time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from weft.catalog.dataset_writing import check_partition
from weft.catalog.datasets import Sees, check_dataset, roles_in
from weft.core.checks import MAX_ID, check_number
from weft.core.errors import InvalidInput, NotFound
from weft.live.acting import SQL
from weft.live.looking import find_job, require_dag
from weft.queue import audit
from weft.queue.audit import AuditVerb

if TYPE_CHECKING:
    from asyncpg import Record

    from weft.db.database import Database, type_Connection

# So many partitions may be named one by one.
MOST_KEYS = 1000
_IN_ROUND = 100
_NUMBER = re.compile(r"-?[0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class LiveBackfill:
    """Partitions of a job's input that are computed anew: ``made`` of them have a unit, ``running`` are not done.

    ``held`` of these have failed, and wait for somebody. Their keys are told to those who see the input.
    """

    id: int
    job: str
    first_key: str | None
    last_key: str | None
    at_once: int
    partitions: int
    made: int
    running: int
    held: int
    created_at: datetime
    ended_at: datetime | None
    cancelled_at: datetime | None
    actor: str


def _look(source: Record) -> str:
    return f"`weft datasets partitions {source['name']}` lists them"


async def rematerialize(
    conn: type_Connection, org_id: int, dag: str, job: str, partitions: Sequence[str], actor: str,
    dataset: str | None = None, *, sees: Sees, dry_run: bool = False,
) -> int:  # fmt: skip
    """Compute partitions of a job's input anew, as these are by now; return how many were not asked for already."""
    keys = sorted({check_partition(key) for key in partitions})
    check_number(len(keys), "partitions", 1, MOST_KEYS)
    found, source = await _input(conn, org_id, dag, job, dataset, sees)
    unknown = [row["key"] for row in await conn.fetch(SQL.unknown_partitions, org_id, source["version_id"], keys)]
    if unknown:
        raise InvalidInput("partitions", f"{source['name']} has no partition {unknown[0]!r}; {_look(source)}")
    if dry_run:
        return int(await conn.fetchval(SQL.count_unasked, org_id, found["id"], source["place"], keys))
    await _lock(conn, org_id, found)
    count: int = await conn.fetchval(SQL.compute_partitions, org_id, found["id"], source["place"], keys)
    told = {"partitions": keys[:100], "count": len(keys)}
    await audit.record_named(conn, org_id, actor, AuditVerb.RERUN, "live_dag", f"{dag}:{job}", told)
    await conn.execute(SQL.hint)
    return count


async def backfill(
    conn: type_Connection, org_id: int, dag: str, job: str, first: str | None, last: str | None, at_once: int,
    actor: str, *, sees: Sees, dataset: str | None = None, dry_run: bool = False,
) -> LiveBackfill:  # fmt: skip
    """Compute all partitions of a job's input anew, or those from one key to another, so many at a time."""
    for key in (first, last):
        if key is not None:
            check_partition(key)
    if first is not None and last is not None and _is_after(first, last):
        raise InvalidInput(
            "first", f"{first!r} comes after {last!r}: keys are compared as numbers if both are, or texts"
        )
    check_number(at_once, "at_once", 1, 1000)
    found, source = await _input(conn, org_id, dag, job, dataset, sees)
    count = await conn.fetchval(SQL.count_partitions, org_id, source["version_id"], first, last)
    if not count:
        raise InvalidInput("first", f"{source['name']} has no partition there; {_look(source)}")
    if dry_run:
        now = await conn.fetchval(SQL.now)
        return LiveBackfill(0, found["name"], first, last, at_once, count, 0, 0, 0, now, None, None, actor)
    await _lock(conn, org_id, found)
    made = await conn.fetchval(
        SQL.add_backfill, org_id, found["id"], source["place"], first, last, at_once, count, actor
    )
    told = {"backfill": str(made), "partitions": count}
    await audit.record_named(conn, org_id, actor, AuditVerb.RERUN, "live_dag", f"{dag}:{job}", told)
    await conn.fetchval(SQL.advance_backfill, made)
    row = await conn.fetchrow(SQL.backfills, org_id, dag, MAX_ID, made, 1, None)
    assert row is not None
    return LiveBackfill(**row)


async def list_backfills(
    conn: type_Connection, org_id: int, dag: str, *, before: int | None, limit: int, sees: Sees
) -> list[LiveBackfill]:
    """Return the backfills of a DAG, the newest first."""
    await require_dag(conn, org_id, dag)
    highest = MAX_ID if before is None else check_number(before, "before", 0, MAX_ID)
    rows = await conn.fetch(SQL.backfills, org_id, dag, highest, None, limit, roles_in(sees))
    return [LiveBackfill(**row) for row in rows]


async def cancel(conn: type_Connection, org_id: int, backfill_id: int, actor: str) -> None:
    """Let nothing more begin by a backfill; units that have begun go on."""
    await conn.fetchval(SQL.lock_backfilled, org_id, backfill_id)
    if await conn.fetchval(SQL.cancel_backfill, org_id, backfill_id) is None:
        raise NotFound("backfill", backfill_id, "it has ended, or never was; see `weft live backfills DAG`")
    await conn.execute(SQL.leave_units, org_id, backfill_id)
    await audit.record_many(conn, org_id, actor, AuditVerb.CANCEL, "backfill", [backfill_id])
    await conn.execute(SQL.hint)


async def run_once(database: Database) -> int:
    """Let open backfills go on; return how many units were made. Any number may do so at once."""
    made = 0
    for row in await database.read(lambda conn: conn.fetch(SQL.open_backfills, _IN_ROUND)):
        made += await database.run(lambda conn, id=row["id"]: conn.fetchval(SQL.advance_backfill, id))  # type: ignore[misc]
    return made


def _is_after(key: str, other: str) -> bool:
    """Whether a key comes after another, as `weft.key_is_within` has it."""
    if _NUMBER.fullmatch(key) and _NUMBER.fullmatch(other):
        return int(key) > int(other)
    return key > other


async def _lock(conn: type_Connection, org_id: int, job: Record) -> None:
    """Let nobody give a job a turn meanwhile; raises `NotFound` when it has been collected since it was found."""
    if await conn.fetchval(SQL.lock_job, org_id, job["id"]) is None:
        raise NotFound("job", f"{job['name']!r} in {job['dag']}", f"see `weft live jobs {job['dag']}`")


async def _input(
    conn: type_Connection, org_id: int, dag: str, job: str, dataset: str | None, sees: Sees
) -> tuple[Record, Record]:
    """Return a job, and the input by whose partitions it is told what to compute anew: the first, or that of a name.

    Raises `NotFound` also where the partitions are not for whoever asks: by what is there of them he would learn them.
    """
    found = await find_job(conn, org_id, dag, job)
    if found["activation"] == "source":
        what = f"{job} is a source, and reads nothing that it could compute anew: give --all to begin its datasets anew"
        raise InvalidInput("job", what)
    name = None if dataset is None else check_dataset(dataset)
    source = await conn.fetchrow(SQL.input, org_id, found["id"], name, roles_in(sees))
    if source is None and name is not None:
        raise InvalidInput("dataset", f"{job} does not read {name}, or nothing has been written into it yet")
    if source is None:
        raise InvalidInput("job", f"nothing has been written yet that {job} reads")
    if not source["is_seen"]:
        advice = "it is for those who see what it reads: ask an admin for a role, or give --all"
        raise NotFound("partition", f"of what {job} in {dag} reads", advice)
    return found, source
