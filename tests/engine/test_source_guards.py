"""What sources have seen, when they tick and which tables they follow: each of its own, whatever others do."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, TypeAlias

import asyncpg
import pytest

from engine.test_turn_guards import job_of, unit
from live_scene import make_dag
from weft.live.source_ticks import SQL as TICKS
from weft.live.staging import FILES

Conn: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
HOUR = timedelta(hours=1)


async def clock(conn: Conn, name: str, next_at: datetime, **more: Any) -> int:
    source = {"kind": "interval", "every": HOUR, "anchor": next_at, "timezone": "UTC", "next_at": next_at}
    said = {key: more.pop(key) for key in ("max_backlog", "state") if key in more}
    return await job_of(conn, name, source=source | more, **said)


async def now(conn: Conn) -> datetime:
    found: datetime = await conn.fetchval("select weft.now()")
    return found


async def test_a_source_that_moves_on_leaves_the_others_where_they_are(conn: Conn) -> None:
    at = await now(conn)
    mine, other = [await clock(conn, name, at) for name in ("mine", "other")]
    made = await conn.fetchval(
        TICKS.move_on, [mine], [at], [at + HOUR], [3], [mine, other], [at.isoformat(), at.isoformat()]
    )
    assert made == 1
    rows = await conn.fetch("select live_job_id, next_at, missed from weft.live_source")
    assert {(*row,) for row in rows} == {(mine, at + HOUR, 3), (other, at, 0)}


async def test_there_is_room_for_ticks_as_long_as_the_job_itself_has_some(conn: Conn) -> None:
    at = await now(conn)
    mine, other = await clock(conn, "mine", at, max_backlog=2), await clock(conn, "other", at, max_backlog=2)
    for lane in "ab":
        await unit(conn, other, lane, "waiting")
    await unit(conn, mine, "a", "waiting")
    due = await conn.fetch(TICKS.due, 10)
    assert [(row["live_job_id"], row["room"]) for row in due] == [(mine, 1)]


async def test_the_next_tick_is_one_of_a_source_that_listens(conn: Conn) -> None:
    at = await now(conn)
    await clock(conn, "deaf", at + HOUR, is_listening=False)
    assert await conn.fetchval(TICKS.next_due) is None
    await clock(conn, "listens", at + 3 * HOUR)
    assert await conn.fetchval(TICKS.next_due) > 2 * HOUR


async def test_files_are_those_that_the_source_itself_has_seen(conn: Conn) -> None:
    mine, other = [await job_of(conn, name, source={"kind": "files"}) for name in ("mine", "other")]
    seen = """insert into weft.live_file (live_job_id, path, org_id, tag, is_emitted)
              select $1, p, 1, $3, true from unnest($2::text[]) p"""
    await conn.execute(seen, other, ["a", "b", "c"], "old")
    await conn.execute(seen, mine, ["b", "d"], "old")
    rows = await conn.fetch(FILES.changed_files, mine, ["a", "b"], ["old", "old"], timedelta(0))
    assert [(row["place"], row["is_new"]) for row in rows] == [(0, True)]
    rows = await conn.fetch(FILES.gone_files, mine, "", None, ["b"], 9)
    assert [row["path"] for row in rows] == ["d"]


@pytest.fixture
async def tables(conn: Conn) -> None:
    await conn.execute("create table public.orders (id int); create table public.others (id int, only_here int)")


async def follow(conn: Conn, table: str, **more: Any) -> int:
    return await job_of(conn, table, await make_dag(conn, table), source={"kind": "table", "table_name": table, **more})


@pytest.mark.usefixtures("tables")
async def test_a_source_follows_its_own_table_and_may_be_told_so_twice(conn: Conn) -> None:
    jobs = [await follow(conn, table) for table in ("public.orders", "public.others")]
    # As when the table was in use for so long that the trigger has stayed.
    await conn.execute("update weft.live_source set is_listening = true where live_job_id = $1", jobs[1])
    for number, table in enumerate(("orders", "others")):
        await conn.execute(f"insert into public.{table} values ($1)", number)
    rows = await conn.fetch("select live_job_id, said #>> '{rows,0,id}' as id from weft.live_unit order by id")
    assert [(*row,) for row in rows] == [(jobs[0], "0"), (jobs[1], "1")]


@pytest.mark.usefixtures("tables")
async def test_a_column_that_only_another_table_has_is_refused(conn: Conn) -> None:
    with pytest.raises(asyncpg.PostgresError, match="has no column only_here"):
        await follow(conn, "public.orders", columns=["only_here"])


@pytest.mark.usefixtures("tables")
@pytest.mark.parametrize("how", ["it listens no more", "it is removed"])
async def test_a_source_whose_table_was_dropped_goes_like_any_other(conn: Conn, how: str) -> None:
    job = await follow(conn, "public.orders")
    await conn.execute("drop table public.orders")
    if how == "it is removed":
        await conn.execute("delete from weft.live_job where id = $1", job)
    else:
        await conn.execute("update weft.live_source set is_listening = false")
    assert not await conn.fetchval("select exists (select 1 from weft.live_source where is_listening)")
