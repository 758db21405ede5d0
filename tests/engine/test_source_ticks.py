"""Sources that go by the clock: each tick is one unit, whoever looks and however late, in order, as there is room."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

import asyncpg
import pytest

import weft
from live_scene import make_dag, make_job, until
from weft.live.source_ticks import SQL, SourceTicker, SourceTurn, turn_of
from weft.worker.live import LiveContext, operator
from weft.worker.registry import Registry

Conn: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


async def _now(conn: Conn) -> datetime:
    found: datetime = await conn.fetchval("select weft.now()")
    return found


async def _source(conn: Conn, name: str = "clock", *, dag: int | None = None, late: float = 0, **source: Any) -> int:
    """Make a source that has been due for so many seconds, every hour unless it is said otherwise."""
    next_at = await _now(conn) - timedelta(seconds=late)
    timing = {"kind": "interval", "every": timedelta(hours=1), "anchor": next_at, "timezone": "UTC"}
    columns = {key: source.pop(key) for key in ("max_backlog",) if key in source}
    columns["org_id"] = source.setdefault("org_id", 1)
    said = {**timing, "next_at": next_at, "catch_up": "latest", **source}
    return await make_job(conn, dag or await make_dag(conn, name), name, "clock", source=said, **columns)


async def _ticks(conn: Conn, job_id: int) -> list[str]:
    rows = await conn.fetch("select said, lane, kind from weft.live_unit where live_job_id = $1 order by id", job_id)
    assert {(row["lane"], row["kind"]) for row in rows} <= {("", "tick")}
    return [json.loads(row["said"])["at"] for row in rows]


async def test_a_tick_is_one_unit_however_many_look(client: weft.Client, conn: Conn) -> None:
    job = await _source(conn, late=60)
    at = await conn.fetchval("select next_at from weft.live_source")
    assert sorted(await asyncio.gather(*(SourceTicker(client.database).run_once() for _ in range(5)))) == [0] * 4 + [1]
    assert await _ticks(conn, job) == [at.isoformat()]
    assert await conn.fetchval("select next_at from weft.live_source") == at + timedelta(hours=1)
    assert await SourceTicker(client.database).run_once() == 0


@pytest.mark.parametrize(("catch_up", "expected", "missed"), [("none", 0, 4), ("latest", 1, 3), ("all", 4, 0)])
async def test_what_a_source_missed_is_made_up_for_as_was_said(
    catch_up: str, expected: int, missed: int, client: weft.Client, conn: Conn
) -> None:
    job = await _source(conn, late=3 * 3600 + 120, catch_up=catch_up)
    first = await conn.fetchval("select next_at from weft.live_source")
    assert await SourceTicker(client.database).run_once() == expected
    found = await _ticks(conn, job)
    assert found == [(first + timedelta(hours=n)).isoformat() for n in range(4)][4 - expected :]
    after = await conn.fetchrow("select missed, next_at from weft.live_source")
    assert after is not None
    assert tuple(after) == (missed, first + timedelta(hours=4))


async def test_ticks_run_in_order_one_after_the_other(client: weft.Client, conn: Conn, registry: Registry) -> None:
    seen: list[str] = []
    running = 0

    @operator("clock", registry=registry)
    async def clock(live: LiveContext) -> None:
        nonlocal running
        running += 1
        assert running == 1
        await asyncio.sleep(0)
        seen.append(live.unit.said["at"])
        running -= 1

    await _source(conn, late=20 * 3600 + 60, catch_up="all", max_backlog=100)
    first = await conn.fetchval("select next_at from weft.live_source")
    async with weft.Worker(client=client, registry=registry), weft.Orchestrator(client=client):
        await until(lambda: len(seen) == 21)
    assert seen == [(first + timedelta(hours=n)).isoformat() for n in range(21)]


async def test_a_source_ticks_no_further_than_its_job_has_room_and_goes_on_from_there(
    client: weft.Client, conn: Conn
) -> None:
    job = await _source(conn, late=9 * 3600 + 60, catch_up="all", max_backlog=4)
    first = await conn.fetchval("select next_at from weft.live_source")
    ticker = SourceTicker(client.database)
    assert await ticker.run_once() == 4
    assert await ticker.run_once() == 0
    # It is due, and looked at again soon, not at once.
    assert 0.1 < ticker.pause_before_next(0) < 1
    assert await conn.fetch(SQL.due, 10) == [], "it takes the turn of no other"
    await conn.execute("delete from weft.live_unit where id in (select id from weft.live_unit order by id limit 3)")
    assert await ticker.run_once() == 3
    assert await _ticks(conn, job) == [(first + timedelta(hours=n)).isoformat() for n in range(3, 7)]


@pytest.mark.parametrize("catch_up", ["none", "latest", "all"])
async def test_nothing_ticks_before_its_time(catch_up: str, client: weft.Client, conn: Conn) -> None:
    await _source(conn, late=-60, catch_up=catch_up)
    ticker = SourceTicker(client.database)
    assert await ticker.run_once() == 0
    assert await conn.fetchval("select next_at > weft.now() and missed = 0 from weft.live_source")
    assert ticker.pause_before_next(0) == 5


async def test_what_does_not_listen_or_is_paused_does_not_tick(client: weft.Client, conn: Conn) -> None:
    deaf = await _source(conn, "deaf", late=60, is_listening=False)
    paused = await _source(conn, "paused", late=60)
    await conn.execute("update weft.live_job set paused_at = weft.now() where id = $1", paused)
    dag = await make_dag(conn, "still")
    of_paused = await _source(conn, "of_paused", dag=dag, late=60)
    await conn.execute("update weft.live_dag set paused_at = weft.now() where id = $1", dag)
    ticker = SourceTicker(client.database)
    assert await ticker.run_once() == 0
    await conn.execute("update weft.live_job set paused_at = null")
    await conn.execute("update weft.live_dag set paused_at = null")
    assert await ticker.run_once() == 2
    assert [len(await _ticks(conn, job)) for job in (deaf, paused, of_paused)] == [0, 1, 1]


async def test_a_tick_that_was_seen_is_nobodys_when_the_source_has_moved_on_or_is_deaf_since(
    client: weft.Client, conn: Conn
) -> None:
    job = await _source(conn, late=60)
    (row,) = await conn.fetch(SQL.due, 10)
    turn = turn_of(row)
    later = SourceTurn(job, turn.seen_at + timedelta(seconds=1), turn.ticks, 0, turn.next_at)
    ticker = SourceTicker(client.database)
    assert await ticker.take([later]) == 0
    await conn.execute("update weft.live_source set is_listening = false")
    assert await ticker.take([turn]) == 0
    await conn.execute("update weft.live_source set is_listening = true")
    async with conn.transaction():
        await conn.execute("select 1 from weft.live_source for update")
        # Not waited for: whoever holds it moves it on.
        assert await ticker.take([turn]) == 0
    assert await ticker.take([turn, later]) == 1
    assert await ticker.take([turn]) == 0
    assert len(await _ticks(conn, job)) == 1


async def test_a_source_whose_times_nobody_can_tell_keeps_no_other_from_its_tick(
    client: weft.Client, conn: Conn
) -> None:
    await _source(conn, "lost", late=120, kind="cron", cron="* * * * *", every=None, timezone="Atlantis/Center")
    good = await _source(conn, "good", late=60)
    with pytest.raises(LookupError):
        await SourceTicker(client.database).run_once()
    assert len(await _ticks(conn, good)) == 1


async def test_what_one_org_has_due_keeps_no_other_waiting(client: weft.Client, conn: Conn) -> None:
    other = await conn.fetchval("insert into weft.org (id, name, slug) values (7, 'Other', 'other') returning id")
    dag = await make_dag(conn, "many")
    jobs = [await _source(conn, f"s{n}", dag=dag, late=1000 + n) for n in range(5)]
    foreign = await conn.fetchval(
        "insert into weft.live_dag (org_id, name, actor) values ($1, 'f', 'x') returning id", other
    )
    mine = await _source(conn, "theirs", dag=foreign, late=1, org_id=other)
    rows = [row["live_job_id"] for row in await conn.fetch(SQL.due, 2)]
    assert mine in rows
    assert len(set(rows) & set(jobs)) == 1


async def test_cron_sources_tick_by_the_clocks_of_their_zone(client: weft.Client, conn: Conn) -> None:
    at = datetime(2026, 10, 24, 0, 30, tzinfo=UTC)
    job = await _source(
        conn, kind="cron", cron="30 2 * * *", every=None, timezone="Europe/Berlin", next_at=at, anchor=at,
        catch_up="all",
    )  # fmt: skip
    await SourceTicker(client.database).run_once()
    # Once on the day on which it is half past two twice, and an hour later by the sun from then on.
    assert (await _ticks(conn, job))[:3] == [
        "2026-10-24T00:30:00+00:00", "2026-10-25T00:30:00+00:00", "2026-10-26T01:30:00+00:00",
    ]  # fmt: skip
