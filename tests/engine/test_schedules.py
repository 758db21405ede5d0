"""Schedules: each tick is one job, whoever looks and however late; what was missed is made up for as it was said."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

import weft
from weft.jobs.library import Libraries
from weft.live.schedules import SQL
from weft.live.ticker import Ticker

if TYPE_CHECKING:
    import asyncpg

    Connection = asyncpg.Connection[asyncpg.Record]

FLOW: dict[str, Any] = {
    "workflow_id": "report", "inputs": {"day": {"type": "string", "default": "never"}},
    "nodes": {
        "START": {"type": "start", "next": "END"}, "END": {"type": "end", "output": {"day": "{{ inputs.day }}"}},
    },
}  # fmt: skip


@pytest.fixture
async def scheduled(client: weft.Client) -> weft.Client:
    await client.workflows.push(FLOW)
    return client


def ticker(client: weft.Client) -> Ticker:
    return Ticker(client.database, client.ids, Libraries(client.database, lambda: client.blobs))


async def _put_back(conn: Connection, span: timedelta, name: str | None = None) -> datetime:
    """Let a schedule have been due for some time."""
    found: datetime = await conn.fetchval(
        "update weft.schedule set next_at = next_at - $1::interval where name = coalesce($2, name) returning next_at",
        span, name,
    )  # fmt: skip
    return found


async def until_one_waits(conn: Connection) -> None:
    """Return when a session waits for a lock that this one holds."""
    async with asyncio.timeout(30):
        while not await conn.fetchval("select count(*) from pg_locks where not granted and pid <> pg_backend_pid()"):
            pass


async def _ticks(client: weft.Client) -> list[str]:
    """Return the ticks for which there are jobs."""
    return sorted([(await client.jobs.show(job.id)).labels["tick"] for job in await client.jobs.list()])


async def test_a_tick_is_one_job_however_many_look(scheduled: weft.Client, conn: Connection) -> None:
    made = await scheduled.schedules.add("report/main", cron="0 3 * * *", inputs={"day": "{{ tick.date }}"})
    assert await ticker(scheduled).run_once() == 0
    tick = await _put_back(conn, timedelta(days=1))
    assert sorted(await asyncio.gather(*(ticker(scheduled).run_once() for _ in range(5)))) == [0, 0, 0, 0, 1]
    (job,) = await scheduled.jobs.list()
    shown = await scheduled.jobs.show(job.id)
    assert shown.inputs == {"day": tick.date().isoformat()}
    assert shown.labels == {"schedule": "report/main", "tick": tick.isoformat()}
    after = await scheduled.schedules.show("report/main")
    assert (after.last_at, after.last_job_id, after.next_at, after.missed) == (tick, job.id, made.next_at, 0)
    assert await ticker(scheduled).run_once() == 0


@pytest.mark.parametrize(("catch_up", "jobs", "missed"), [("none", 0, 4), ("latest", 1, 3), ("all", 4, 0)])
async def test_what_was_missed_is_made_up_for_as_was_said(
    catch_up: str, jobs: int, missed: int, scheduled: weft.Client, conn: Connection
) -> None:
    await scheduled.schedules.add("report/main", every=86400, catch_up=catch_up)
    await conn.execute(
        "update weft.schedule set anchor = anchor - interval '1 hour', next_at = next_at - interval '1 hour'"
    )
    first = await _put_back(conn, timedelta(days=4))
    assert await ticker(scheduled).run_once() == jobs
    shown = await scheduled.schedules.show("report/main")
    assert (shown.missed, shown.next_at) == (missed, first + timedelta(days=4))
    ticks = await _ticks(scheduled)
    assert ticks == [(first + timedelta(days=n)).isoformat() for n in range(4 - jobs, 4)]


async def test_a_schedule_begins_jobs_of_a_running_orchestrator(scheduled: weft.Client) -> None:
    await scheduled.schedules.add("report/main", name="often", every=1)
    async with weft.Orchestrator(client=scheduled), asyncio.timeout(60):
        while (job_id := (await scheduled.schedules.show("often")).last_job_id) is None:
            pass
        assert (await scheduled.jobs.wait(job_id, 30)).state == "completed"


async def test_a_paused_schedule_begins_nothing(scheduled: weft.Client, conn: Connection) -> None:
    await scheduled.schedules.add("report/main", cron="@daily")
    await scheduled.schedules.pause("report/main")
    with pytest.raises(weft.StateConflict, match="cannot pause schedule report/main: it is paused"):
        await scheduled.schedules.pause("report/main")
    await _put_back(conn, timedelta(days=2))
    assert await ticker(scheduled).run_once() == 0
    await scheduled.schedules.resume("report/main")
    assert await ticker(scheduled).run_once() == 1
    with pytest.raises(weft.StateConflict):
        await scheduled.schedules.resume("report/main")


async def test_a_tick_is_left_out_while_the_job_before_goes_on(scheduled: weft.Client, conn: Connection) -> None:
    await scheduled.schedules.add("report/main", every=3600, overlap="skip")
    await _put_back(conn, timedelta(hours=1))
    assert await ticker(scheduled).run_once() == 1
    await _put_back(conn, timedelta(hours=1))
    assert await ticker(scheduled).run_once() == 0
    shown = await scheduled.schedules.show("report/main")
    assert (shown.missed, shown.last_error) == (1, None)
    await scheduled.jobs.cancel(shown.last_job_id or 0)
    async with weft.Orchestrator(client=scheduled):
        await scheduled.jobs.wait(shown.last_job_id or 0, 30)
    await _put_back(conn, timedelta(hours=1))
    assert await ticker(scheduled).run_once() == 1


async def test_a_schedule_that_cannot_begin_says_why_and_keeps_no_other(
    scheduled: weft.Client, conn: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("gone", "wrong"):
        await scheduled.workflows.push({**FLOW, "workflow_id": name})
        await scheduled.schedules.add(name, cron="@daily", inputs={"day": "today"})
    await scheduled.schedules.add("report/main", cron="@daily")
    await scheduled.workflows.delete("gone/main")
    await scheduled.workflows.patch("wrong", set={"inputs.day": {"type": "integer"}})
    await conn.execute("update weft.schedule set next_at = next_at - interval '1 day'")
    assert await ticker(scheduled).run_once() == 1
    told = {each.name: each.last_error for each in await scheduled.schedules.list()}
    assert told["report/main"] is None
    assert "gone/main" in (told["gone"] or "")
    assert "day: must be of type integer" in (told["wrong"] or "")
    assert [each.missed for each in await scheduled.schedules.list()] == [1, 0, 1]
    await conn.execute("update weft.schedule set next_at = next_at - interval '1 day' where last_error is not null")
    assert await ticker(scheduled).run_once() == 0
    assert len(caplog.messages) == 2, "it is told once, and not at each tick"
    await scheduled.workflows.undelete("gone/main")
    await _put_back(conn, timedelta(days=1), "gone")
    assert await ticker(scheduled).run_once() == 1
    assert (await scheduled.schedules.show("gone")).last_error is None


async def test_a_backfill_makes_a_few_at_once_and_no_tick_twice(scheduled: weft.Client, conn: Connection) -> None:
    await scheduled.schedules.add("report/main", every=3600)
    anchor = await conn.fetchval("update weft.schedule set anchor = anchor - interval '10 hours' returning anchor")
    since, until = anchor + timedelta(hours=1), anchor + timedelta(hours=5)
    planned = await scheduled.schedules.backfill("report/main", since=since, until=until, at_once=2, dry_run=True)
    assert (planned.ticks, await scheduled.schedules.backfills("report/main")) == (5, [])
    made = await scheduled.schedules.backfill("report/main", since=since, until=until, at_once=2)
    assert await ticker(scheduled).run_once() == 2
    assert await ticker(scheduled).run_once() == 0
    async with weft.Orchestrator(client=scheduled), asyncio.timeout(60):
        while (shown := (await scheduled.schedules.backfills("report/main"))[0]).ended_at is None:
            pass
    assert (shown.id, shown.made, shown.missed, shown.running, shown.last_error) == (made.id, 5, 0, 0, None)
    ticks = await _ticks(scheduled)
    assert ticks == [(since + timedelta(hours=n)).isoformat() for n in range(5)]
    again = await scheduled.schedules.backfill("report/main", since=since, until=until, at_once=10)
    assert await ticker(scheduled).run_once() == 5
    assert len(await scheduled.jobs.list()) == 5
    with pytest.raises(weft.NotFound, match="it has ended"):
        await scheduled.schedules.cancel_backfill(again.id)


async def test_what_makes_no_sense_is_refused_and_names_its_field(scheduled: weft.Client) -> None:
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    for field, wrong in [
        ("cron", {"cron": "61 * * * *"}), ("cron", {}), ("cron", {"cron": "@daily", "every": 5}),
        ("timezone", {"cron": "@daily", "timezone": "Mars/Base"}), ("every", {"every": 0.5}),
        ("catch_up", {"every": 5, "catch_up": "some"}), ("overlap", {"every": 5, "overlap": "queue"}),
        ("catch_up", {"every": 5, "catch_up": ""}), ("overlap", {"every": 5, "overlap": ""}),
        ("timezone", {"every": 5, "timezone": ""}),
        ("inputs", {"every": 5, "inputs": {"day": "{{ nodes.a.output }}"}}),
        ("inputs", {"every": 5, "inputs": {"day": "{{ tick.nonsense }}"}}),
        ("inputs", {"every": 5, "inputs": {"day": 7}}),
        ("inputs: dya", {"every": 5, "inputs": {"dya": "x"}}), ("priority", {"every": 5, "priority": 40000}),
        ("name", {"every": 5, "name": ""}), ("name", {"every": 5, "name": ".."}), ("tag", {"every": 5, "tag": ""}),
    ]:  # fmt: skip
        with pytest.raises(weft.InvalidInput, match=f"^{field}: "):
            await scheduled.schedules.add(**{"tag": "report/main", **wrong})  # type: ignore[arg-type]
    with pytest.raises(weft.NotFound):
        await scheduled.schedules.add("nowhere/main", every=5)
    assert await scheduled.schedules.list() == []
    await scheduled.schedules.add("report/main", every=60)
    with pytest.raises(weft.InvalidInput, match="there is a schedule"):
        await scheduled.schedules.add("report/main", every=60)
    for match, asked in [
        ("^since: .* no tick", {"since": moment, "until": moment}),
        ("^since: must have", {"since": moment.replace(tzinfo=None)}),
        ("^since: .* more than 10,000", {"since": moment - timedelta(days=365)}),
        ("^until: must not be after now", {"since": moment, "until": datetime(2089, 1, 1, tzinfo=UTC)}),
        ("^until: must not be before since", {"since": moment, "until": moment - timedelta(days=1)}),
        ("^at_once", {"since": moment, "at_once": 0}),
    ]:  # fmt: skip
        with pytest.raises(weft.InvalidInput, match=match):
            await scheduled.schedules.backfill("report/main", **asked)  # type: ignore[arg-type]
    for match, wanted in [
        ("^cron: give", {}),
        ("^timezone", {"timezone": ""}),
        ("^every", {"every": 0}),
        ("^inputs", {"inputs": {"day": 7}}),
    ]:
        with pytest.raises(weft.InvalidInput, match=match):
            await scheduled.schedules.change("report/main", **wanted)  # type: ignore[arg-type]
    with pytest.raises(weft.InvalidInput, match=r"^count"):
        await scheduled.schedules.ticks("report/main", 0)
    assert (await scheduled.schedules.show("report/main")).every == timedelta(seconds=60)
    await scheduled.schedules.delete("report/main")
    for call in (scheduled.schedules.show, scheduled.schedules.delete, scheduled.schedules.pause):
        with pytest.raises(weft.NotFound, match="weft schedules list"):
            await call("report/main")


async def test_what_is_changed_of_a_schedule_is_so_from_now_on(scheduled: weft.Client) -> None:
    before = await scheduled.schedules.add("report/main", cron="0 3 * * *")
    changed = await scheduled.schedules.change("report/main", timezone="Asia/Tokyo", overlap="skip")
    assert (changed.cron, changed.timezone, changed.overlap) == ("0 3 * * *", "Asia/Tokyo", "skip")
    assert changed.next_at != before.next_at
    changed = await scheduled.schedules.change("report/main", every=60)
    assert (changed.cron, changed.every) == (None, timedelta(seconds=60))
    assert await scheduled.schedules.ticks("report/main", 2) == [
        changed.next_at,
        changed.next_at + timedelta(seconds=60),
    ]


async def test_times_that_are_said_again_leave_the_next_tick_where_it_is(
    scheduled: weft.Client, conn: Connection
) -> None:
    await scheduled.schedules.add("report/main", every=3600)
    due = await _put_back(conn, timedelta(hours=1))
    assert (await scheduled.schedules.change("report/main", every=3600, priority=2)).next_at == due
    assert (await scheduled.schedules.change("report/main", every=7200)).next_at > due


async def test_a_schedule_is_replaced_by_one_of_its_name_only_when_that_is_said(
    scheduled: weft.Client, conn: Connection
) -> None:
    add = scheduled.schedules.add
    first = await add("report", every=3600, replace=True, overlap="skip", priority=3, inputs={"day": "old"})
    await scheduled.schedules.pause("report")
    due = await _put_back(conn, timedelta(hours=1))
    with pytest.raises(weft.InvalidInput, match="there is a schedule 'report' already: replace"):
        await add("report", every=3600, priority=5)
    again = await add("report", every=3600, inputs={"day": "new"}, replace=True)
    # What is not said is as in a new one; what is due and has been stays, and so does the pause.
    assert (again.id, again.created_at, again.next_at) == (first.id, first.created_at, due)
    assert (again.overlap, again.priority, again.inputs) == ("allow", 0, {"day": "new"})
    assert again.paused_at is not None
    for times in ({"every": 60}, {"cron": "@daily"}, {"cron": "@daily", "timezone": "Asia/Tokyo"}):
        before, now = again, await conn.fetchval("select weft.now()")
        again = await add("report", replace=True, **times)  # type: ignore[arg-type]
        assert now < again.next_at != before.next_at
        assert await scheduled.schedules.ticks("report", 1) == [again.next_at]
    verbs = [act.verb for act in await scheduled.audit() if act.subject_name == "report"]
    assert verbs == ["change"] * 4 + ["pause", "create"]


async def test_a_tick_that_was_seen_is_nobodys_when_the_schedule_was_replaced_since(
    scheduled: weft.Client, conn: Connection
) -> None:
    await scheduled.schedules.add("report", every=3600)
    await _put_back(conn, timedelta(hours=1))
    (seen,) = await conn.fetch(SQL.due, 10)
    await scheduled.schedules.add("report", every=3600, inputs={"day": "new"}, replace=True)
    assert await conn.fetchrow(SQL.take, seen["id"], seen["version"], seen["next_at"]) is None
    assert await ticker(scheduled).run_once() == 1
    (job,) = await scheduled.jobs.list()
    assert (await scheduled.jobs.show(job.id)).inputs == {"day": "new"}


async def test_a_tick_that_was_seen_is_nobodys_when_the_schedule_was_changed_paused_or_moved_on_since(
    scheduled: weft.Client, conn: Connection
) -> None:
    await scheduled.schedules.add("report/main", every=3600)
    await _put_back(conn, timedelta(hours=1))
    (seen,) = await conn.fetch(SQL.due, 10)
    asked = seen["id"], seen["version"], seen["next_at"]
    assert await conn.fetchrow(SQL.take, *asked) is not None
    await scheduled.schedules.pause("report/main")
    assert await conn.fetchrow(SQL.take, *asked) is None
    await scheduled.schedules.resume("report/main")
    assert await conn.fetchrow(SQL.take, *asked) is not None
    await scheduled.schedules.change("report/main", inputs={"day": "new"})
    assert await conn.fetchrow(SQL.take, *asked) is None
    assert await ticker(scheduled).run_once() == 1
    (job,) = await scheduled.jobs.list()
    assert (await scheduled.jobs.show(job.id)).inputs == {"day": "new"}
    assert await conn.fetchrow(SQL.take, asked[0], 2, asked[2]) is None


async def test_whoever_changes_or_pauses_a_schedule_waits_for_a_tick_that_is_amid_its_transaction(
    scheduled: weft.Client, conn: Connection
) -> None:
    await scheduled.schedules.add("report/main", every=3600)
    await _put_back(conn, timedelta(hours=1))
    seen = dict((await conn.fetch(SQL.due, 10))[0])
    then = seen["next_at"] + timedelta(hours=1)
    for act in (
        lambda: scheduled.schedules.change("report/main", priority=1),
        lambda: scheduled.schedules.pause("report/main"),
    ):
        async with conn.transaction():
            version = await conn.fetchval("select version from weft.schedule")
            assert await conn.fetchrow(SQL.take, seen["id"], version, seen["next_at"]) is not None
            # Others who tick pass it over meanwhile.
            assert await ticker(scheduled).run_once() == 0
            acting = asyncio.create_task(act())  # type: ignore[arg-type]
            await until_one_waits(conn)
            await conn.execute(SQL.move_on, seen["id"], then, 0, None, None, None)
        await acting
        assert (await scheduled.schedules.show("report/main")).next_at == then
        seen = {**seen, "next_at": then}


async def test_all_that_was_missed_begins_one_after_the_other_unless_the_one_before_goes_on(
    scheduled: weft.Client, conn: Connection
) -> None:
    await scheduled.schedules.add("report/main", every=3600, catch_up="all", overlap="skip")
    first = await _put_back(conn, timedelta(hours=5))
    assert await ticker(scheduled).run_once() == 1
    shown = await scheduled.schedules.show("report/main")
    assert (shown.last_at, shown.missed) == (first, 4)
    assert await _ticks(scheduled) == [first.isoformat()]


async def test_a_schedule_that_was_triggered_ticks_as_before(scheduled: weft.Client) -> None:
    made = await scheduled.schedules.add("report", cron="@daily", priority=3, inputs={"day": "{{ tick.date }}"})
    await scheduled.schedules.pause("report")
    jobs = [await scheduled.schedules.trigger("report") for _ in range(2)]
    shown = await scheduled.jobs.show(jobs[0].id)
    assert (shown.labels["schedule"], shown.priority) == ("report", 3)
    assert str(shown.inputs["day"]) == shown.labels["tick"][:10]
    assert jobs[0].id != jobs[1].id
    after = await scheduled.schedules.show("report")
    assert (after.next_at, after.last_job_id, after.tag) == (made.next_at, None, "report/main")


async def test_what_would_tick_is_told_before_anything_is_made(scheduled: weft.Client) -> None:
    ticks = await scheduled.schedules.preview(cron="30 2 * * *", timezone="Europe/Berlin", count=400)
    assert len(ticks) == len(set(ticks)) == 400
    made = await scheduled.schedules.add("report", cron="30 2 * * *", timezone="Europe/Berlin")
    assert await scheduled.schedules.ticks("report", 400) == ticks
    assert made.next_at == ticks[0]
    with pytest.raises(weft.InvalidInput, match=r"^timezone"):
        await scheduled.schedules.preview(cron="@daily", timezone="Mars/Base")
    every = await scheduled.schedules.preview(every=timedelta(days=20_000), count=1000)
    assert 100 < len(every) < 1000


async def test_a_backfill_goes_by_the_times_it_was_asked_for_and_says_what_could_not_begin(
    scheduled: weft.Client, conn: Connection
) -> None:
    await scheduled.workflows.push({**FLOW, "workflow_id": "gone"})
    await scheduled.schedules.add("report", every=3600)
    anchor = await conn.fetchval("select anchor from weft.schedule")
    await scheduled.schedules.backfill("report", since=anchor - timedelta(hours=3), until=anchor, at_once=2)
    await scheduled.schedules.change("report", tag="gone", every=60)
    assert await ticker(scheduled).run_once() == 2
    await scheduled.workflows.delete("gone")
    await conn.execute("delete from weft.task; delete from weft.job")
    assert await ticker(scheduled).run_once() == 0
    (shown,) = await scheduled.schedules.backfills("report")
    assert (shown.ticks, shown.made, shown.missed, shown.ended_at is None) == (4, 2, 2, False)
    assert "gone/main" in (shown.last_error or "")


async def test_a_backfill_that_was_cancelled_begins_nothing_more(scheduled: weft.Client) -> None:
    await scheduled.schedules.add("report", every=3600)
    made = await scheduled.schedules.backfill("report", since=datetime.now(UTC) - timedelta(hours=5))
    assert await ticker(scheduled).run_once() == 1
    await scheduled.schedules.cancel_backfill(made.id)
    (job,) = await scheduled.jobs.list()
    await scheduled.jobs.cancel(job.id)
    async with weft.Orchestrator(client=scheduled):
        await scheduled.jobs.wait(job.id, 30)
    assert await ticker(scheduled).run_once() == 0
    (shown,) = await scheduled.schedules.backfills("report")
    assert (shown.made, shown.cancelled_at is None) == (1, False)
    with pytest.raises(weft.NotFound, match="it has ended"):
        await scheduled.schedules.cancel_backfill(made.id)


async def test_a_backfill_that_was_seen_is_nobodys_when_it_or_its_schedule_has_changed_since(
    scheduled: weft.Client, conn: Connection
) -> None:
    await scheduled.schedules.add("report", every=3600)
    made = await scheduled.schedules.backfill("report", since=datetime.now(UTC) - timedelta(hours=5), at_once=2)
    seen = await conn.fetchrow(SQL.look_at_backfill, made.id)
    assert seen is not None
    asked = made.id, seen["version"], seen["next_at"]
    async with conn.transaction():
        assert await conn.fetchval(SQL.take_backfill, *asked)
        # From then on until its job has begun nobody changes the schedule.
        changed = "select 1 from weft.schedule for no key update skip locked"
        assert await scheduled.database.run(lambda other: other.fetch(changed)) == []
        assert await ticker(scheduled).run_once() == 0
    await scheduled.schedules.change("report", inputs={"day": "new"})
    assert not await conn.fetchval(SQL.take_backfill, *asked)
    assert await ticker(scheduled).run_once() == 2
    assert not await conn.fetchval(SQL.take_backfill, made.id, 2, asked[2])
    # Jobs of it go on, and ticks are left: it has not ended.
    assert not await conn.fetchval(SQL.end_backfill, made.id)
    await conn.execute("update weft.backfill set next_at = null")
    assert not await conn.fetchval(SQL.end_backfill, made.id)
    await conn.execute("update weft.backfill set next_at = weft.now(), running = '{}'")
    assert not await conn.fetchval(SQL.end_backfill, made.id)
    at = await conn.fetchval("select next_at from weft.backfill")
    await conn.execute("update weft.backfill set ended_at = weft.now()")
    assert not await conn.fetchval(SQL.take_backfill, made.id, 2, at)
    await conn.execute("update weft.backfill set next_at = null")
    assert not await conn.fetchval(SQL.end_backfill, made.id)
    await conn.execute("update weft.backfill set ended_at = null")
    assert await conn.fetchval(SQL.end_backfill, made.id) == made.id


async def test_a_schedule_of_another_org_is_nobodys(scheduled: weft.Client, conn: Connection) -> None:
    await scheduled.orgs.create("rival")
    rival = scheduled.of_org((await scheduled.orgs.show("rival")).id, "rival")
    await rival.workflows.push(FLOW)
    for client in (scheduled, rival):
        await client.schedules.add("report", every=3600)
    await rival.schedules.add("report", name="theirs", every=3600, priority=7)
    for name in ("report", "theirs"):
        made = await rival.schedules.backfill(name, since=datetime.now(UTC) - timedelta(hours=2))
    own = scheduled.schedules
    assert [each.name for each in await own.list()] == ["report"]
    for refused in (
        own.show("theirs"), own.pause("theirs"), own.resume("theirs"), own.delete("theirs"), own.trigger("theirs"),
        own.change("theirs", priority=1), own.backfills("theirs"), own.cancel_backfill(made.id),
    ):  # fmt: skip
        with pytest.raises(weft.NotFound):
            await refused
    assert await own.backfills("report") == []
    org_id, others = await scheduled.org_id(), await rival.org_id()
    for verb in (SQL.pause, SQL.resume, SQL.delete):
        await conn.execute("update weft.schedule set paused_at = case when $1 then weft.now() end", verb == SQL.resume)
        async with conn.transaction():
            assert len(await conn.fetch(verb, org_id, "report")) == 1
            left = await conn.fetch("select paused_at is null as goes from weft.schedule where org_id = $1", others)
            assert [row["goes"] for row in left] == [verb != SQL.resume] * 2
    await rival.schedules.change("theirs", priority=8)
    assert (await rival.schedules.show("theirs")).priority == 8
    assert (await own.add("report", name="theirs", every=60, replace=True)).priority == 0
    assert (await rival.schedules.show("theirs")).priority == 8
    await own.pause("theirs")
    found = {metric.name: metric for metric in await scheduled.metrics()}
    assert {sample.labels["state"]: sample.value for sample in found["schedules"].samples}["active"] == 0


# More of one org than are looked at in a round: schedules that are an hour late, and backfills that wait for a job.
MANY_LATE = """
  insert into weft.schedule (
    org_id, name, tag, inputs, every, timezone, catch_up, overlap, priority, anchor, next_at, actor)
  select s.org_id, 'late ' || n, s.tag, s.inputs, '1 s', 'UTC', 'all', 'allow', 0, s.anchor,
    weft.now() - interval '1 hour', 'a'
  from weft.schedule s, generate_series(1, 600) n where s.org_id = $1
"""
MANY_WAITING = """
  insert into weft.backfill (
    org_id, schedule_id, every, timezone, anchor, since, until, at_once, ticks, next_at, running, actor)
  select b.org_id, b.schedule_id, b.every, 'UTC', b.anchor, b.since, b.until, 1, b.ticks, b.next_at,
    array[$2::bigint], 'a'
  from weft.backfill b, generate_series(1, 600) n where b.org_id = $1
"""


async def test_what_one_org_has_to_make_up_for_keeps_no_other_waiting(scheduled: weft.Client, conn: Connection) -> None:
    await scheduled.orgs.create("rival")
    rival = scheduled.of_org((await scheduled.orgs.show("rival")).id, "rival")
    await rival.workflows.push(FLOW)
    for client in (scheduled, rival):
        await client.schedules.add("report", every=3600)
    await conn.execute("update weft.schedule set anchor = anchor - interval '9 hours'")
    org_id, (since, until) = await scheduled.org_id(), (datetime.now(UTC) - timedelta(hours=n) for n in (8, 5))
    await scheduled.schedules.backfill("report", since=since, until=until)
    await conn.execute(MANY_WAITING, org_id, (await scheduled.jobs.submit("report")).id)
    await rival.schedules.backfill("report", since=since, until=until)
    await ticker(scheduled).run_once()
    assert [each.made for each in await rival.schedules.backfills("report")] == [1]
    await conn.execute("update weft.backfill set ended_at = weft.now()")
    await conn.execute(MANY_LATE, org_id)
    await conn.execute("update weft.schedule set next_at = weft.now() where org_id <> $1", org_id)
    assert await ticker(scheduled).run_once() <= 1000
    assert (await rival.schedules.show("report")).last_job_id is not None


async def test_schedules_are_measured_and_wait_for_an_orchestrator(scheduled: weft.Client, conn: Connection) -> None:
    async def told() -> tuple[dict[str, float], float, str]:
        found = {metric.name: metric for metric in await scheduled.metrics()}
        states = {sample.labels["state"]: sample.value for sample in found["schedules"].samples}
        (orchestrators,) = [check for check in (await scheduled.health()).checks if check.name == "orchestrators"]
        return states, found["schedule_lag_seconds"].samples[0].value, orchestrators.text

    assert await told() == ({"active": 0, "failing": 0, "paused": 0}, 0, "none, and no job needs one")
    for name in ("a", "b"):
        await scheduled.schedules.add("report", name=name, every=3600)
    await scheduled.schedules.pause("b")
    await conn.execute("update weft.schedule set last_error = 'no' where name = 'a'")
    await _put_back(conn, timedelta(hours=2))
    states, lag, text = await told()
    assert (states, text) == ({"active": 0, "failing": 1, "paused": 1}, "none is alive, and schedules tick by one")
    assert 3600 - 60 < lag < 3600 + 60
    await scheduled.schedules.pause("a")
    assert (await told())[1:] == (0, "none, and no job needs one")


async def test_a_version_that_was_collected_as_garbage_is_read_anew(scheduled: weft.Client, conn: Connection) -> None:
    await scheduled.schedules.add("report", every=3600)
    look = ticker(scheduled)
    for _ in range(2):
        await _put_back(conn, timedelta(hours=1))
        await conn.execute("delete from weft.idempotency_key")
        assert await look.run_once() == 1
        assert (await scheduled.schedules.show("report")).last_error is None
        await conn.execute("delete from weft.task; delete from weft.job; delete from weft.job_done")
        await conn.execute("delete from weft.artifact where kind = 'snapshot'")
