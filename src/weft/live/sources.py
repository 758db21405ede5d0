"""The sources of live jobs as they are deployed: when they tick, what they listen for, which table they follow."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

import asyncpg
import orjson

from weft.core.errors import InvalidInput
from weft.db.statements import Statements
from weft.flow.ticks import Timing, check_timing

if TYPE_CHECKING:
    from weft.catalog.datasets import Sees
    from weft.db.database import type_Connection
    from weft.flow.live.identity import JobMeaning

SQL = Statements("weft.live", "sql/deploying.sql")


async def put_source(conn: type_Connection, org_id: int, job: JobMeaning, job_id: int, sees: Sees) -> None:
    """Make the source of a new live job; it begins to listen when the version is settled."""
    source = job.document["source"]
    if source is None:
        return
    if source["kind"] == "table" and sees is not None:
        raise InvalidInput(
            f"jobs.{job.name}.source.table", "only an admin lets a DAG follow a table: ask one to deploy it"
        )
    now = await conn.fetchval(SQL.now)
    timing = _timing(source, now)
    when = (None,) * 5 if timing is None else (timing.cron, timing.every, timing.timezone, now, timing.after(now))
    cron, every, timezone, anchor, next_at = when
    manner = _json(job.settings["source"])
    lane, hook = source.get("lane"), source.get("hmac")
    parts = None if lane is None else [lane] if source["kind"] == "table" else lane.split(".")
    match = source.get("match")
    await conn.execute(
        SQL.put_source, job_id, org_id, source["kind"], cron, every, timezone, anchor, source.get("catch_up"), next_at,
        source.get("event"), None if match is None else _json(match), parts, None if hook is None else _json(hook),
        source.get("table"), source.get("columns"), manner,
    )  # fmt: skip


@asynccontextmanager
async def following() -> AsyncIterator[None]:
    """Turn what is wrong with a table that is to be followed into an error that says so."""
    try:
        yield
    except asyncpg.PostgresError as problem:
        if problem.sqlstate != "WF002":
            raise
        field, _, wrong = (problem.message or "").partition(": ")
        raise InvalidInput(field, wrong) from None


def _timing(source: Mapping[str, Any], now: datetime) -> Timing | None:
    match source["kind"]:
        case "cron":
            return check_timing(source["schedule"], None, source["timezone"], now)
        case "interval":
            return check_timing(None, source["every"], "UTC", now)
        case _:
            return None


def _json(value: Any) -> str:
    return orjson.dumps(value).decode()
