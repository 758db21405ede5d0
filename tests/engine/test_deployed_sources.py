"""Sources as documents say them: what is deployed listens, ticks, looks and follows, and what is wrong is refused."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeAlias
from zoneinfo import ZoneInfo

import asyncpg
import pytest

import weft
from live_scene import until
from weft.live.source_ticks import SourceTicker
from weft.sdk.session import seeing
from weft.worker.live import LiveContext, operator
from weft.worker.registry import Registry

Conn: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


def _dag(**sources: dict[str, Any]) -> dict[str, Any]:
    jobs = {name: {"activation": "source", "operator": "note", "source": source} for name, source in sources.items()}
    return {"dag": "market", "jobs": jobs}


async def test_every_kind_of_source_that_is_deployed_brings_units(
    client: weft.Client, conn: Conn, registry: Registry, tmp_path: Path
) -> None:
    seen: dict[str, list[Any]] = {}

    @operator("note", registry=registry)
    async def note(live: LiveContext) -> None:
        seen.setdefault(live.job, []).append((live.unit.kind, dict(live.unit.said)))
        if live.unit.kind == "slice":
            await live.caught_up()
            await live.rest(60)

    await conn.execute("create table public.orders (id int, symbol text)")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("x")
    await client.live.deploy(_dag(
        clock={"kind": "interval", "every": "1s"},
        nightly={"kind": "cron", "schedule": "30 2 * * *", "timezone": "Europe/Berlin", "catch_up": "all"},
        told={"kind": "event", "event": "order.created", "match": {"kind": "big"}, "lane": "symbol.name"},
        files={"kind": "files", "path": f"{tmp_path}/in/*.csv", "settle": 0, "order": "name"},
        rows={"kind": "table", "table": "public.orders", "columns": ["id"], "lane": "symbol"},
        forever={"kind": "continuous"},
    ))  # fmt: skip
    settings = replace(client.settings, files_roots=(str(tmp_path),))
    await conn.execute("insert into public.orders values (7, 'a')")
    await client.jobs.send_events([
        weft.NewEvent("order.created", {"kind": "big", "symbol": {"name": "a"}}),
        weft.NewEvent("order.created", {"kind": "small"}),
    ])  # fmt: skip
    async with (
        weft.Client(settings=settings) as other,
        weft.Worker(client=other, registry=registry),
        weft.Orchestrator(client=client),
    ):
        await until(lambda: seen.keys() == {"clock", "told", "files", "rows", "forever"})
    assert seen["clock"][0][0] == "tick"
    ((kind, told),) = seen["told"]
    assert (kind, told["payload"]["kind"]) == ("event", "big")
    assert [(kind, said["path"]) for kind, said in seen["files"]] == [("file", f"{tmp_path}/in/a.csv")]
    assert seen["rows"] == [("row", {"rows": [{"id": 7, "symbol": "a"}]})]
    row = await conn.fetchrow(
        "select s.* from weft.live_source s join weft.live_job j on j.id = s.live_job_id where j.name = 'nightly'"
    )
    assert row is not None
    assert (row["cron"], row["timezone"], row["catch_up"]) == ("30 2 * * *", "Europe/Berlin", "all")
    assert row["next_at"].astimezone().utcoffset() is not None


async def test_a_hook_is_deployed_with_its_source(client: weft.Client, conn: Conn) -> None:
    hook = {"secret_env": "WEFT_HOOK_ORDERS", "form": "stripe"}
    await client.live.deploy(_dag(told={"kind": "event", "event": "order.created", "hmac": hook}))
    assert (
        await conn.fetchval("select hook ->> 'secret_env' from weft.live_source where is_listening")
        == "WEFT_HOOK_ORDERS"
    )


@pytest.mark.parametrize(
    ("source", "place"),
    [
        ({"kind": "event", "event": "x", "hmac": {"secret_env": "PATH"}}, "secret_env"),
        ({"kind": "event", "event": "x", "hmac": {}}, "secret_env"),
        ({"kind": "event", "event": "x", "hmac": {"secret_env": "WEFT_HOOK_A", "form": "md5"}}, "form"),
        ({"kind": "files", "path": "/data", "settle": "soon"}, "settle"),
        ({"kind": "files", "path": "/data", "order": "size"}, "order"),
        ({"kind": "table", "table": "orders"}, "table"),
        ({"kind": "table", "table": "public.orders; drop table x"}, "table"),
        ({"kind": "table", "table": "public.orders", "columns": []}, "columns"),
    ],
)
async def test_what_is_wrong_with_a_source_is_told_before_it_is_deployed(
    source: dict[str, Any], place: str, client: weft.Client
) -> None:
    with pytest.raises(weft.InvalidDefinition) as caught:
        await client.live.deploy(_dag(wrong=source))
    assert any(place in problem.path for problem in caught.value.problems)


async def test_a_table_that_cannot_be_followed_is_not_deployed(client: weft.Client, conn: Conn) -> None:
    with pytest.raises(weft.InvalidInput, match="is no table of this"):
        await client.live.deploy(_dag(rows={"kind": "table", "table": "public.nothing"}))
    assert await conn.fetchval("select count(*) from weft.live_dag") == 0
    await conn.execute("create table public.orders (id int)")
    with pytest.raises(weft.InvalidInput, match="only an admin"), seeing(frozenset()):
        await client.live.deploy(_dag(rows={"kind": "table", "table": "public.orders"}))
    assert await conn.fetchval("select count(*) from weft.live_job") == 0


async def test_a_table_is_left_when_its_source_goes_and_followed_again_after_a_rollback(
    client: weft.Client, conn: Conn
) -> None:
    await conn.execute("create table public.orders (id int)")
    triggers = "select count(*) from pg_trigger where tgrelid = 'public.orders'::regclass"
    await client.live.deploy(_dag(rows={"kind": "table", "table": "public.orders"}))
    await client.live.deploy(_dag(clock={"kind": "interval", "every": "1h"}))
    async with weft.Orchestrator(client=client):
        await until(lambda: conn.fetchval(f"select ({triggers}) = 0"))
        await client.live.rollback("market")
        assert await conn.fetchval(triggers) == 1
    await conn.execute("insert into public.orders values (1)")
    assert await conn.fetchval("select count(*) from weft.live_unit where kind = 'row'") == 1


async def test_events_that_came_while_a_source_was_deaf_are_made_up_for_after_a_rollback(
    client: weft.Client, conn: Conn
) -> None:
    await client.live.deploy(_dag(told={"kind": "event", "event": "go"}))
    await client.jobs.send_event("go", {"n": 1})
    await client.live.deploy(_dag(clock={"kind": "interval", "every": "1h"}))
    async with weft.Orchestrator(client=client):
        await until(lambda: conn.fetchval("select not is_listening from weft.live_source where event = 'go'"))
    await client.jobs.send_events([weft.NewEvent("go", {"n": 2}), weft.NewEvent("go", {"n": 3})])
    await client.live.rollback("market")
    await client.jobs.send_event("go", {"n": 4})
    rows = await conn.fetch(
        "select said -> 'payload' ->> 'n' as n from weft.live_unit where kind = 'event' order by id"
    )
    assert [row["n"] for row in rows] == ["1", "2", "3", "4"]


async def test_when_a_source_looks_and_who_signs_is_changed_while_it_goes_on(client: weft.Client, conn: Conn) -> None:
    def market(clock: dict[str, Any], poll: str, settle: str, secret: str) -> dict[str, Any]:
        hook = {"secret_env": secret, "header": "X-Signature"}
        found = _dag(
            clock=clock,
            told={"kind": "event", "event": "order.created", "hmac": hook},
            files={"kind": "files", "path": "/data/in/*.csv", "poll": poll, "settle": settle},
        )
        found["jobs"]["clock"]["outputs"] = ["minutes"]
        return found

    first = market({"kind": "cron", "schedule": "30 2 * * *", "timezone": "Europe/Berlin"}, "5s", "2s", "WEFT_HOOK_A")
    then = market({"kind": "cron", "schedule": "30 3 * * *", "timezone": "Asia/Tokyo"}, "9s", "4s", "WEFT_HOOK_B")
    last = market({"kind": "interval", "every": "1d", "catch_up": "all"}, "9s", "4s", "WEFT_HOOK_B")
    await client.live.deploy(first)
    rows = "select id, created_at from weft.live_job order by id"
    stood = await conn.fetch(rows), await conn.fetchrow("select current_id from weft.dataset where name = 'minutes'")

    async def said() -> list[Any]:
        found = await conn.fetch(
            "select j.name, s.kind, s.cron, s.every, s.timezone, s.catch_up, s.next_at = 'epoch', "
            "s.hook ->> 'secret_env' as secret, s.manner ->> 'poll' as poll "
            "from weft.live_source s join weft.live_job j on j.id = s.live_job_id order by 1"
        )
        return [tuple(row) for row in found]

    before = await said()
    assert before[0] == ("clock", "cron", "30 2 * * *", None, "Europe/Berlin", "latest", False, None, None)
    plan = await client.live.plan(then)
    assert {job.name: (job.action, job.fields) for job in plan.jobs} == {
        "clock": ("adjusted", ("source.schedule", "source.timezone")),
        "told": ("adjusted", ("source.hmac.secret_env",)),
        "files": ("adjusted", ("source.poll", "source.settle")),
    }
    assert [(each.name, each.action) for each in plan.datasets] == [("minutes", "reused")]
    await client.live.deploy(then)
    now = await said()
    assert now[0] == ("clock", "cron", "30 3 * * *", None, "Asia/Tokyo", "latest", True, None, None)
    assert [row[-1] for row in now] == [None, "9.0", None]
    assert now[2][-2] == "WEFT_HOOK_B"
    ticker = SourceTicker(client.database)
    assert await ticker.run_once() == 0
    clock = next(job for job in await client.live.jobs("market") if job.name == "clock")
    assert clock.next_at is not None
    assert clock.next_at.astimezone(ZoneInfo("Asia/Tokyo")).strftime("%H:%M") == "03:30"
    await client.live.deploy(last)
    assert (await said())[0] == ("clock", "interval", None, timedelta(days=1), "UTC", "all", True, None, None)
    assert await ticker.run_once() == 0
    # What only takes up more or less of what was missed leaves the next tick where it is.
    last["jobs"]["clock"]["source"]["catch_up"] = "none"
    await client.live.deploy(last)
    assert (await said())[0] == ("clock", "interval", None, timedelta(days=1), "UTC", "none", False, None, None)
    # The way back leads to what was so then.
    await client.live.rollback("market", version=1)
    assert [row[:6] for row in await said()] == [row[:6] for row in before]
    assert stood == (
        await conn.fetch(rows),
        await conn.fetchrow("select current_id from weft.dataset where name = 'minutes'"),
    )
    assert await conn.fetchval("select count(*) from weft.live_unit where kind = 'tick'") == 0


async def test_a_source_looks_as_often_as_is_said_by_now(client: weft.Client, registry: Registry) -> None:
    seen: list[tuple[str, float]] = []

    @operator("note", registry=registry)
    async def note(live: LiveContext) -> None:
        seen.append((live.id, live.source["poll"]))
        await live.rest(0.01)

    async with weft.Worker(client=client, registry=registry), weft.Orchestrator(client=client):
        for poll in (3.0, 4.0, 3.0):
            await client.live.deploy(_dag(forever={"kind": "continuous", "poll": poll}))
            await until(lambda poll=poll: seen[-1:] and seen[-1][1] == poll)
    assert len({job for job, _ in seen}) == 1
