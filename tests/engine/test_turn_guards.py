"""One turn of a live job on rows made by hand: which units begin, wait and go, and that no other job's are touched."""

from __future__ import annotations

import contextlib
from datetime import timedelta
from typing import Any, TypeAlias

import asyncpg
import orjson
import pytest

import weft
from engine.test_deploys import market
from live_scene import make_dag, make_job, make_output
from weft.live import staging
from weft.live.router import SQL as ROUTER
from weft.live.staging import CallbackStaged, Emitted
from weft.queue.steps import Fence

Conn: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


async def job_of(conn: Conn, name: str = "note", dag: int | None = None, **said: Any) -> int:
    """Make a live job without inputs; of a DAG of its own, unless one is said."""
    return await make_job(conn, dag or await make_dag(conn, f"dag of {name}"), name, "note", **said)


async def unit(conn: Conn, job: int, lane: str | None, state: str = "new", **more: Any) -> int:
    said = {"kind": "event", "dedupe_key": str(await conn.fetchval("select weft.next_id()")), "said": "{}", **more}
    places = ", ".join(f"${place}" for place in range(4, 4 + len(said)))
    return int(
        await conn.fetchval(
            f"""insert into weft.live_unit (org_id, live_job_id, lane, state, {", ".join(said)})
                values (1, $1, $2, $3, {places}) returning id""", job, lane, state, *said.values(),
        )
    )  # fmt: skip


async def task(conn: Conn, number: int, state: str = "running") -> int:
    await conn.execute(
        "insert into weft.task (id, org_id, queue_id, order_id, state, handler, attempt, max_attempts) "
        "values ($1, 1, 1, $1, $2, 'note', 1, 3)", number, state,
    )  # fmt: skip
    return number


async def ended(conn: Conn, state: str = "completed", attempt: int = 1) -> int:
    said: dict[str, Any] = {"org_id": 1, "queue_id": 1, "rank": 0, "failures": 0, "crashes": 0, "generation": 0}
    said |= {"max_attempts": 3, "handler": "note", "state": state, "attempt": attempt}
    places = ", ".join(f"${place}" for place in range(1, 1 + len(said)))
    return int(
        await conn.fetchval(
            f"""insert into weft.task_done (id, order_id, created_at, ended_at, {", ".join(said)})
                select o.id, o.id, weft.now(), weft.now(), {places} from (select weft.next_id()) o (id) returning id""",
            *said.values(),
        )
    )


async def turn(conn: Conn, job: int, room: int = 100, *, thorough: bool = False) -> int:
    return int(await conn.fetchval("select begun from weft.turn_live_job($1, $2, $3)", job, room, thorough))


async def states(conn: Conn, *units: int) -> list[str | None]:
    rows = await conn.fetch("select id, state from weft.live_unit")
    found = {row["id"]: row["state"] for row in rows}
    return [found.get(each) for each in units]


async def rows_of(conn: Conn, job: int) -> list[str]:
    found = [*await conn.fetch("select * from weft.live_unit where live_job_id = $1 order by id", job)]
    found += await conn.fetch("select * from weft.live_job where id = $1", job)
    found += await conn.fetch("select * from weft.live_source where live_job_id = $1", job)
    return [str(row) for row in found]


async def test_a_turn_touches_no_unit_of_another_job_and_is_held_up_by_none(conn: Conn) -> None:
    dag = await make_dag(conn)
    said: dict[str, Any] = {"source": {"kind": "event", "event": "tick"}, "strategy": None, "max_concurrency": 1}
    other, mine = await job_of(conn, "other", dag, **said), await job_of(conn, "mine", dag, **said)
    await conn.execute("update weft.live_job set strategy = 'partition'")
    await unit(conn, other, None, "waiting")
    await unit(conn, other, "a", "running", task_id=71)
    await unit(conn, other, "b", "held", task_id=await task(conn, 72))
    await unit(conn, other, "b", "held", task_id=73)
    for state in ("new", "waiting", "ready", "done"):
        await unit(conn, other, "c", state)
    before = await rows_of(conn, other)
    old, first, last = [await unit(conn, mine, "c", state) for state in ("held", "done", "waiting")]
    elsewhere = await unit(conn, mine, "b")
    assert await turn(conn, mine, thorough=True) == 1
    assert await states(conn, old, first, last, elsewhere) == [None, None, "running", "ready"]
    assert await rows_of(conn, other) == before
    assert await conn.fetchval("select backlog from weft.live_source where live_job_id = $1", mine) == 2
    # Nor is a barrier, which waits for all of its own job.
    await conn.execute("update weft.live_unit set state = 'done' where live_job_id = $1", mine)
    barrier = await unit(conn, mine, None)
    assert await turn(conn, mine) == 1
    assert await states(conn, barrier) == ["running"]
    await conn.execute("update weft.live_unit set state = 'done' where live_job_id = $1", mine)
    after = await unit(conn, mine, "z", "waiting")
    assert await turn(conn, mine) == 1
    assert await states(conn, after) == ["running"]
    assert await rows_of(conn, other) == before


@pytest.mark.parametrize("ahead", ["new", "waiting", "ready", "running", "held"])
async def test_what_stands_before_it_in_its_lane_keeps_a_unit_waiting(conn: Conn, ahead: str) -> None:
    job = await job_of(conn, max_concurrency=10)
    later = timedelta(hours=1)
    at = await conn.fetchval("select weft.now() + $1::interval", later)
    before = await unit(conn, job, "a", ahead, run_at=at, task_id=await task(conn, 1))
    after, elsewhere = await unit(conn, job, "a"), await unit(conn, job, "b")
    assert await turn(conn, job) == 1
    assert (await states(conn, after, elsewhere)) == ["waiting", "running"]
    assert (await states(conn, before)) in (["ready"], [ahead])


@pytest.mark.parametrize("ahead", ["ready", "running", "held"])
async def test_what_begins_anew_waits_for_what_has_passed_it_in_its_lane(conn: Conn, ahead: str) -> None:
    job = await job_of(conn, max_concurrency=10)
    at = await conn.fetchval("select weft.now() + interval '1 hour'")
    anew = await unit(conn, job, "a")
    await unit(conn, job, "a", ahead, run_at=at, task_id=await task(conn, 1))
    assert await turn(conn, job) == 0
    assert await states(conn, anew) == ["waiting"]


@pytest.mark.parametrize("lane", ["a", None])
@pytest.mark.parametrize("before", ["a", None])
async def test_what_is_done_keeps_nothing_waiting_however_much_there_is_of_it(
    conn: Conn, before: str | None, lane: str | None
) -> None:
    job = await job_of(conn)
    for _ in range(12):
        await unit(conn, job, before, "done")
    after = await unit(conn, job, lane)
    begun = await conn.fetchrow("select begun, is_more from weft.turn_live_job($1, 1, false)", job)
    assert begun is not None
    assert (*begun,) == (1, True)
    assert await states(conn, after) == ["running"]
    assert await conn.fetchval("select count(*) from weft.live_unit where state = 'done'") == 2


async def test_a_unit_without_a_lane_comes_after_all_before_it_and_before_all_after_it(conn: Conn) -> None:
    job = await job_of(conn, max_concurrency=10)
    first = [await unit(conn, job, lane) for lane in ("a", "b")]
    barrier = await unit(conn, job, None)
    then = [await unit(conn, job, lane) for lane in ("a", "b", "c")]
    assert await turn(conn, job) == 2
    assert await states(conn, *first, barrier, *then) == ["running"] * 2 + ["waiting"] * 4
    await conn.execute("update weft.live_unit set state = 'done' where id = $1", first[0])
    assert await turn(conn, job) == 0
    await conn.execute("update weft.live_unit set state = 'done' where id = $1", first[1])
    assert await turn(conn, job) == 1
    assert await states(conn, barrier, *then) == ["running"] + ["waiting"] * 3
    assert await turn(conn, job) == 0, "nor does it begin twice"
    await conn.execute("update weft.live_unit set state = 'done' where id = $1", barrier)
    again, last = await unit(conn, job, None), await unit(conn, job, "d")
    assert await turn(conn, job) == 3
    assert await states(conn, *then, again, last) == ["running"] * 3 + ["waiting"] * 2


async def test_no_more_units_run_than_may_and_no_more_begin_than_there_is_room_for(conn: Conn) -> None:
    job = await job_of(conn, max_concurrency=3)
    await unit(conn, job, "x", "running", task_id=await task(conn, 1))
    ready = [await unit(conn, job, f"r{number}", "ready") for number in range(2)]
    new = [await unit(conn, job, f"n{number}") for number in range(3)]
    assert await turn(conn, job, 1) == 1
    assert await states(conn, *ready, new[0]) == ["running", "ready", "ready"]
    assert await turn(conn, job) == 1
    assert await turn(conn, job) == 0
    assert await states(conn, *ready, *new) == ["running"] * 2 + ["ready"] * 3
    assert await conn.fetchval("select count(*) from weft.task") == 3
    # A deploy may let fewer run than do.
    await conn.execute("update weft.live_job set max_concurrency = 1")
    assert await turn(conn, job) == 0


async def test_no_more_is_asked_for_than_there_is_room_for_in_the_backlog(conn: Conn) -> None:
    inputs = []
    for name in ("ticks", "rates"):
        inputs.append(await make_output(conn, name, "feed", name))
        for key in ("a", "b", "c"):
            await conn.execute(
                """insert into weft.dataset_partition
                     (version_id, partition_key, org_id, last_write, rows, bytes, files, written_at)
                   values ($1, $2, 1, 1, 0, 0, 0, weft.now())""", inputs[-1][1], key,
            )  # fmt: skip
    job = await job_of(conn, inputs=inputs, max_backlog=5)
    units = "select count(*) from weft.live_unit"
    await unit(conn, job, "z", "held")
    turns = "select is_more from weft.turn_live_job($1, $2, false)"
    # All of the first, and what there is room for of the second.
    assert await conn.fetchval(turns, job, 100) is True
    assert await conn.fetchval(units) == 5
    assert await conn.fetchval(turns, job, 100) is False, "it comes again when there is room"
    assert await conn.fetchval(units) == 5
    await conn.execute("delete from weft.live_unit")
    assert await conn.fetchval(turns, job, 100) is False
    assert await conn.fetchval(units) == 2
    # And as much as fits into a turn.
    await conn.execute("update weft.live_input set routed_write = null, boot_after = null")
    await conn.execute("delete from weft.live_unit")
    assert await conn.fetchval(turns, job, 3) is True
    assert await conn.fetchval(units) == 5


async def test_an_input_from_outside_follows_the_version_that_is_current_and_one_of_the_dag_its_own(conn: Conn) -> None:
    made = {name: await make_output(conn, name, "feed", name) for name in ("ticks", "rates", "prices")}
    inputs: list[tuple[int, int | None]] = [made["ticks"], (made["rates"][0], None), (made["prices"][0], None)]
    job = await job_of(conn, inputs=inputs)
    await turn(conn, job)
    newer = {
        name: await conn.fetchval(
            """insert into weft.dataset_version (org_id, dataset_id, number, config_hash, location, actor)
               values (1, $1, 2, 'i', 'x/', 'ann') returning id""", made[name][0],
        ) for name in ("ticks", "rates")
    }  # fmt: skip
    await conn.execute("update weft.live_input set routed_write = 0")
    for name, version in newer.items():
        await conn.execute("select weft.make_current($1, $2)", made[name][0], version)
    await turn(conn, job)
    now = await conn.fetchval("select array_agg(version_id order by place) from weft.live_input")
    assert now == [made["ticks"][1], newer["rates"], made["prices"][1]]


@pytest.mark.parametrize("state", ["new", "ready"])
async def test_what_rests_does_not_begin_before_its_time(conn: Conn, state: str) -> None:
    job = await job_of(conn, max_concurrency=5)
    ago, later = [await conn.fetchval("select weft.now() + $1::interval", timedelta(hours=hours)) for hours in (-1, 1)]
    due, rests = await unit(conn, job, "a", state, run_at=ago), await unit(conn, job, "b", state, run_at=later)
    assert await turn(conn, job) == 1
    assert await states(conn, due, rests) == ["running", "ready"]


@pytest.mark.parametrize(
    "what",
    ["live_job set paused_at = weft.now()", "live_dag set paused_at = weft.now()", "live_job set state = 'draining'"],
)
async def test_nothing_begins_of_what_is_paused_or_drains(conn: Conn, what: str) -> None:
    dataset = await make_output(conn, "ticks", "feed", "ticks")
    await conn.execute(
        """insert into weft.dataset_partition (version_id, partition_key, org_id, last_write, rows, bytes, files,
             written_at) values ($1, 'a', 1, 1, 0, 0, 0, weft.now())""", dataset[1],
    )  # fmt: skip
    job = await job_of(conn, inputs=[(dataset[0], None)], max_concurrency=5)
    mine = await unit(conn, job, "z")
    await conn.execute(f"update weft.{what}")
    assert await turn(conn, job) == 0
    assert await states(conn, mine) == ["ready"]
    assert await conn.fetchval("select count(*) from weft.live_unit") == 1, "nor is anything asked for"


async def test_a_job_that_drains_stops_when_nothing_of_it_runs_and_has_no_turn_after_that(conn: Conn) -> None:
    job = await job_of(conn, state="draining")
    running = await unit(conn, job, "a", "running", task_id=await task(conn, 1))
    state = "select state from weft.live_job"
    await turn(conn, job, thorough=True)
    assert await conn.fetchval(state) == "draining"
    await conn.execute("update weft.live_unit set state = 'done' where id = $1", running)
    await turn(conn, job)
    assert await conn.fetchval(state) == "stopped"
    late = await unit(conn, job, "a", "done")
    await turn(conn, job)
    assert await states(conn, late) == ["done"]


async def test_a_job_whose_turn_another_has_is_passed_over(client: weft.Client, conn: Conn) -> None:
    job = await job_of(conn)
    await unit(conn, job, "a")
    async with conn.transaction():
        await conn.execute("select 1 from weft.live_job for no key update")
        assert await client.database.run(lambda other: turn(other, job)) == 0  # type: ignore[arg-type]


@pytest.mark.parametrize("on_failure", ["hold", "skip"])
async def test_units_whose_tasks_have_ended_without_a_word_are_found(conn: Conn, on_failure: str) -> None:
    job = await job_of(conn, on_failure=on_failure, max_concurrency=9)
    tasks = [1, await ended(conn, "failed"), await ended(conn), await task(conn, 4)]
    gone, failed, told, goes_on = [
        await unit(conn, job, lane, "running", task_id=number) for number, lane in zip(tasks, "abcd", strict=True)
    ]
    ready = await unit(conn, job, "e", "ready", run_at=await conn.fetchval("select weft.now() + interval '1 hour'"))
    again = await unit(conn, job, "f", "held", task_id=await task(conn, 6))
    held = await unit(conn, job, "g", "held", task_id=await ended(conn, "failed"))
    await turn(conn, job)
    assert await states(conn, gone, failed, told, again) == ["running"] * 3 + ["held"]
    await turn(conn, job, thorough=True)
    lost: list[str | None] = ["held", "held", None] if on_failure == "hold" else [None, None, None]
    assert await states(conn, gone, failed, told) == lost
    assert await states(conn, goes_on, ready, again, held) == ["running", "ready", "running", "held"]
    counted = await conn.fetchrow("select completed, failed from weft.live_job")
    assert counted is not None
    assert (*counted,) == (1, 2)


async def test_what_failed_of_a_partition_goes_when_that_alone_comes_anew(conn: Conn) -> None:
    job = await job_of(conn, strategy="partition")
    newer = await unit(conn, job, "b")
    passed = await unit(conn, job, "a", "held", task_id=1)
    alone = await unit(conn, job, "b", "held", task_id=2)
    tried = await unit(conn, job, "c", "held", task_id=await task(conn, 3))
    for lane in ("a", "c"):
        await unit(conn, job, lane)
    await unit(conn, await job_of(conn, "other"), "b")
    await turn(conn, job)
    assert await states(conn, passed, alone, newer, tried) == [None, "held", "waiting", "held"]
    job = await job_of(conn, "updates")
    held = await unit(conn, job, "a", "held", task_id=1)
    await unit(conn, job, "a")
    await turn(conn, job)
    assert await states(conn, held) == ["held"], "each write counts"


async def test_a_source_has_one_slice_at_a_time_and_none_without_room(conn: Conn) -> None:
    job = await job_of(conn, source={"kind": "continuous"}, max_backlog=3)
    other = await job_of(conn, "other", source={"kind": "event", "event": "tick"})
    await turn(conn, other)
    slices = "select live_job_id, run_at from weft.live_unit where kind = 'slice'"
    assert await conn.fetch(slices) == []
    await conn.execute("update weft.live_source set rest_until = weft.now() + interval '1 hour'")
    for _ in range(2):
        await turn(conn, job)
    (one,) = await conn.fetch(slices)
    assert one["live_job_id"] == job
    assert one["run_at"] is not None
    await conn.execute("update weft.live_unit set state = 'running', task_id = $1", await task(conn, 1))
    await turn(conn, job)
    assert len(await conn.fetch(slices)) == 1
    await conn.execute("delete from weft.live_unit")
    for number in range(3):
        await unit(conn, job, "", "held", dedupe_key=str(number))
    await turn(conn, job)
    assert await conn.fetch(slices) == []
    # Others in its lane are no slices.
    await conn.execute("update weft.live_unit set state = 'done' where dedupe_key = '0'")
    await turn(conn, job)
    assert len(await conn.fetch(slices)) == 1


async def test_only_a_source_that_is_in_effect_and_would_be_told_keeps_anybody_from_sending(
    client: weft.Client, conn: Conn
) -> None:
    await client.orgs.create("acme")
    acme = await conn.fetchval("select id from weft.org where slug = 'acme'")
    dag = await make_dag(conn, "full")
    source = {"kind": "event", "event": "tick"}
    elsewhere, deal = (
        await job_of(conn, "elsewhere", dag, source=source, max_backlog=1),
        await job_of(conn, "deals", dag, source=source | {"event": "deal"}, max_backlog=1),
    )
    for job in (elsewhere, deal):
        await unit(conn, job, "a")
    # What is of another org, and what listens for something else.
    await conn.execute("set session_replication_role = replica")
    for table in ("live_dag", "live_job", "live_source", "live_unit"):
        where = {"live_dag": "id = $2", "live_job": "id = $2"}.get(table, "live_job_id = $2")
        await conn.execute(f"update weft.{table} set org_id = $1 where {where}", acme, elsewhere)
    await conn.execute("reset session_replication_role")
    small = market()
    small["jobs"]["ticks"]["scaling"] = {"max_backlog": 2}
    await client.live.deploy(small)
    for number in range(2):
        await client.jobs.send_event("tick", {"id": number, "day": "mon"})
    with pytest.raises(weft.SourceFull, match="market/ticks"):
        await client.jobs.send_event("tick", {"id": 3, "day": "mon"})
    assert await conn.fetchval("select bool_and(is_listening) from weft.live_source")
    assert await conn.fetchval("select count(*) from weft.live_unit") == 4


async def staged(conn: Conn, job: int, number: int, attempt: int = 1, **said: Any) -> None:
    told = {name: orjson.dumps(value).decode() for name, value in said.items()}
    places = ", ".join(f"${place}" for place in range(4, 4 + len(told)))
    more = "".join(f", {name}" for name in told)
    await conn.execute(
        f"insert into weft.staged_live (task_id, attempt, org_id, live_job_id{more}) "
        f"values ($1, $2, 1, $3{', ' if told else ''}{places})", number, attempt, job, *told.values(),
    )  # fmt: skip


async def published(conn: Conn, *tasks: int) -> None:
    await conn.execute("select weft.publish_live($1)", list(tasks))


async def test_what_another_attempt_has_staged_comes_to_nothing(conn: Conn) -> None:
    job = await job_of(conn)
    number = await ended(conn, attempt=2)
    mine = await unit(conn, job, "a", "running", task_id=number)
    for attempt in (1, 3):
        await staged(conn, job, number, attempt, states=[{"key": f"of {attempt}", "seen": 0, "state": 1}])
    await published(conn, number)
    assert await conn.fetchval("select count(*) from weft.operator_state") == 0
    assert await conn.fetchval("select count(*) from weft.staged_live") == 0
    assert await states(conn, mine) == ["done"]


async def test_what_a_task_has_staged_comes_to_nothing_when_its_unit_was_given_up(conn: Conn) -> None:
    job = await job_of(conn)
    number = await ended(conn)
    await unit(conn, job, "a", "done", task_id=number)
    await staged(conn, job, number, states=[{"key": "k", "seen": 0, "state": 1}])
    await published(conn, number)
    assert await conn.fetchval("select count(*) from weft.operator_state") == 0


@pytest.mark.parametrize("seen", [0, 1, 3])
async def test_a_state_that_is_not_what_was_seen_voids_all(conn: Conn, seen: int) -> None:
    job = await job_of(conn)
    number = await ended(conn)
    mine = await unit(conn, job, "a", "running", task_id=number)
    await conn.execute(
        "insert into weft.operator_state (live_job_id, state_key, org_id, version, state) values ($1, 'k', 1, 2, '5')",
        job,
    )
    await staged(conn, job, number, states=[{"key": "k", "seen": seen, "state": 6}])
    with pytest.raises(asyncpg.PostgresError, match="another unit has changed it meanwhile"):
        await published(conn, number)
    assert await conn.fetchval("select state::text from weft.operator_state") == "5"
    assert await states(conn, mine) == ["running"]


async def test_what_is_published_changes_its_own_job_task_and_key_alone(conn: Conn) -> None:
    dag = await make_dag(conn)
    said: dict[str, Any] = {"source": {"kind": "files"}}
    mine, other = await job_of(conn, "mine", dag, **said), await job_of(conn, "other", dag, **said)
    tasks = {job: await ended(conn) for job in (mine, other)}
    for job, number in tasks.items():
        await unit(conn, job, "a", "running", task_id=number)
        for key in ("k", "l"):
            await conn.execute(
                "insert into weft.operator_state (live_job_id, state_key, org_id, state) values ($1, $2, 1, '1')",
                job,
                key,
            )
            await conn.execute(
                "insert into weft.live_file (live_job_id, path, org_id, tag, is_emitted) values ($1, $2, 1, 't', true)",
                job, key,
            )  # fmt: skip
        files = [{"path": "k"}, {"path": "m", "tag": "new", "is_emitted": False}]
        await staged(conn, job, number, states=[{"key": "k", "seen": 1, "state": 2}], files=files)
    await conn.execute("update weft.staged_live set is_caught_up = true, rest = '1 hour'")
    await conn.execute("update weft.live_source set caught_up_at = 'epoch' where live_job_id = $1", mine)
    await published(conn, tasks[mine])
    found = await conn.fetch(
        "select live_job_id = $1 as mine, state_key, state::text from weft.operator_state order by 1, 2", mine
    )
    assert [(*row,) for row in found] == [(False, "k", "1"), (False, "l", "1"), (True, "k", "2"), (True, "l", "1")]
    files_now = await conn.fetch("select live_job_id = $1 as mine, path, tag from weft.live_file order by 1, 2", mine)
    assert [(*row,) for row in files_now] == [
        (False, "k", "t"),
        (False, "l", "t"),
        (True, "l", "t"),
        (True, "m", "new"),
    ]
    sources = await conn.fetch(
        "select live_job_id, caught_up_at = 'epoch' from weft.live_source where caught_up_at is not null"
    )
    assert [(*row,) for row in sources] == [(mine, True)], "since when it has caught up stays"
    assert [row[0] for row in await conn.fetch("select task_id from weft.staged_live")] == [tasks[other]]


async def test_receivers_are_told_by_what_is_in_effect_alone(client: weft.Client, conn: Conn) -> None:
    await client.live.deploy(market())
    await client.live.deploy(market(3))
    jobs = await conn.fetch(
        """select j.id, m.dag_version_id = d.version_id as is_live from weft.live_dag d
             join weft.dag_version_job m on m.dag_version_id in (d.version_id, d.building_id)
             join weft.live_job j on j.id = m.live_job_id where j.name = 'scaled'"""
    )
    told = {row["id"]: row["is_live"] for row in jobs} | {await job_of(conn, "without a version"): True}
    for job, is_told in told.items():
        number = await ended(conn)
        await unit(conn, job, "a", "running", task_id=number)
        await staged(conn, job, number, callbacks=[{"key": "k", "payload": {}}])
        await published(conn, number)
        assert await conn.fetchval("select count(*) from weft.outbox where kind = 'callback'") == is_told
        await conn.execute("delete from weft.outbox")


async def test_a_unit_that_waits_already_is_not_made_again_by_who_finds_it(conn: Conn) -> None:
    job = await job_of(conn)
    await unit(conn, job, "x", "waiting", dedupe_key="event:1")
    number = await ended(conn)
    await unit(conn, job, "a", "running", task_id=number)
    made = [{"lane": "x", "kind": "event", "dedupe_key": f"event:{each}", "said": {}} for each in (1, 2)]
    await staged(conn, job, number, units=made)
    await published(conn, number)
    keys = await conn.fetch("select dedupe_key from weft.live_unit where lane = 'x' order by 1")
    assert [row[0] for row in keys] == ["event:1", "event:2"]


@pytest.mark.parametrize("lost", ["worker", "attempt", "state"])
async def test_an_attempt_that_holds_its_task_no_more_knows_and_changes_nothing_of_its_live_job(
    client: weft.Client, conn: Conn, lost: str
) -> None:
    job = await job_of(conn)
    await unit(conn, job, "a", "running", task_id=await task(conn, 1))
    fence = Fence(0, 1, 1)
    async with conn.transaction():
        assert (await staging.job_of(conn, fence))["name"] == "note"
        takes = "select 1 from weft.task for update skip locked"
        assert await client.database.run(lambda other: other.fetch(takes)) == [], "nobody takes it away meanwhile"
    changes = {"worker": "worker_id = 5", "attempt": "attempt = 2", "state": "state = 'scheduled'"}
    await conn.execute(f"update weft.task set {changes[lost]}")
    for call in (
        lambda: staging.job_of(conn, fence),
        lambda: staging.state_of(conn, fence, "k"),
        lambda: staging.stage(conn, fence, [], [], [], None, None, most_bytes=1000, most_of_unit=500),
        lambda: staging.changed_files(conn, fence, [], timedelta(), ("", None)),
    ):
        with pytest.raises(weft.LeaseLost):
            await call()


async def test_an_operator_reads_and_writes_what_is_of_its_own_job(conn: Conn) -> None:
    dag = await make_dag(conn)
    datasets = [await make_output(conn, name, "market", name) for name in ("a", "b")]
    jobs = [
        await job_of(conn, name, dag, inputs=[given], outputs=[made])
        for name, given, made in (("one", *datasets), ("two", *datasets[::-1]))
    ]
    for number, job in enumerate(jobs, 1):
        await unit(conn, job, "a", "running", task_id=await task(conn, number))
        for key in ("k", "l"):
            await conn.execute(
                "insert into weft.operator_state (live_job_id, state_key, org_id, state) values ($1, $2, 1, $3)",
                job, key, orjson.dumps(f"{key}{number}").decode(),
            )  # fmt: skip
    for number, (given, made) in enumerate((("a", "b"), ("b", "a")), 1):
        found = await staging.job_of(conn, Fence(0, number, 1))
        assert ([each["name"] for each in found["inputs"]], found["outputs"]) == ([given], [made])
        state = await staging.state_of(conn, Fence(0, number, 1), "l")
        assert state is not None
        assert state["state"] == f"l{number}"


async def test_what_an_attempt_says_last_is_what_it_stages(conn: Conn) -> None:
    job = await job_of(conn)
    await unit(conn, job, "a", "running", task_id=await task(conn, 1))
    for value in (1, 2):
        states = [{"key": "k", "seen": 0, "state": value}]
        await staging.stage(conn, Fence(0, 1, 1), states, [], [], None, None, most_bytes=1000, most_of_unit=500)
    assert orjson.loads(await conn.fetchval("select states from weft.staged_live"))[0]["state"] == 2


async def test_what_an_attempt_stages_is_of_each_kind_no_larger_than_an_output(conn: Conn) -> None:
    job = await job_of(conn)
    await unit(conn, job, "a", "running", task_id=await task(conn, 1))
    text = "x" * 380
    staged_so: dict[str, tuple[list[Any], list[Any], list[Any], list[Any]]] = {
        "states": ([{"key": key, "seen": 0, "state": text} for key in "abc"], [], [], []),
        "units": ([], [Emitted("event", "", key, {"payload": text}) for key in "abc"], [], []),
        "callbacks": ([], [], [CallbackStaged("https://there.is", key, {"text": text}) for key in "abc"], []),
        "files": ([], [], [], [{"path": text, "tag": key, "is_emitted": True} for key in "abc"]),
    }
    for kind, (states, units, callbacks, files) in staged_so.items():
        with pytest.raises(
            weft.InvalidInput, match=r"bytes together, and may have 1,000 \(WEFT_VALUE_LIMIT\)"
        ) as caught:
            await staging.stage(
                conn, Fence(0, 1, 1), states, units, callbacks, None, None, files, most_bytes=1000, most_of_unit=500
            )  # fmt: skip
        assert caught.value.field == kind
        assert await conn.fetchval("select count(*) from weft.staged_live") == 0
        few = [each[:2] for each in (states, units, callbacks, files)]
        await staging.stage(conn, Fence(0, 1, 1), *few[:3], None, None, few[3], most_bytes=1000, most_of_unit=500)  # type: ignore[arg-type]
        await conn.execute("delete from weft.staged_live")


async def test_a_unit_that_is_emitted_says_no_more_than_an_event(conn: Conn) -> None:
    job = await job_of(conn)
    await unit(conn, job, "a", "running", task_id=await task(conn, 1))
    for size, is_fine in ((485, True), (486, True), (487, False)):
        units = [Emitted("event", "", "key", {"payload": "x" * size})]
        await conn.execute("delete from weft.staged_live")
        with contextlib.nullcontext() if is_fine else pytest.raises(weft.InvalidInput, match=r"key says 501 bytes"):
            await staging.stage(conn, Fence(0, 1, 1), [], units, [], None, None, most_bytes=1000, most_of_unit=500)
        assert await conn.fetchval("select count(*) from weft.staged_live") == is_fine


async def test_jobs_have_a_turn_that_have_something_to_do(conn: Conn) -> None:
    later = await conn.fetchval("select weft.now() + interval '1 hour'")
    dag = await make_dag(conn)
    dataset = await make_output(conn, "ticks", "feed", "ticks")
    made: dict[str, int] = {}

    async def job(name: str, *units: str, **said: Any) -> None:
        made[name] = await job_of(conn, name, said.pop("dag", dag), **said)
        for number, state in enumerate(units):
            await unit(conn, made[name], str(number), state, task_id=None)

    await job("nothing")
    await job("waits", "waiting")
    await job("stopped", "new", state="stopped")
    await job("drains", state="draining")
    await job("new", "new")
    await job("done", "done")
    await job("ready", "ready")
    await job("full", "ready", "running")
    await job("paused", "ready", paused_at=await conn.fetchval("select weft.now()"))
    await job("of a paused dag", "ready", dag=await make_dag(conn, "paused"))
    await conn.execute("update weft.live_dag set paused_at = weft.now() where name = 'paused'")
    await job("rests", source={"kind": "continuous"})
    await unit(conn, made["rests"], "", "ready", kind="slice", run_at=later)
    await job("slices", source={"kind": "continuous"})
    await job("listens", source={"kind": "event", "event": "tick"})
    await job("reads", inputs=[(dataset[0], None)])
    await job("has read", inputs=[dataset])
    await conn.execute("update weft.live_input set routed_write = 0 where live_job_id = $1", made["has read"])
    await job("is behind", inputs=[dataset])
    await job("goes on")
    await unit(conn, made["goes on"], "a", "running", task_id=await task(conn, 5))
    await job("lost", "running")
    await job("again")
    await unit(conn, made["again"], "a", "held", task_id=await task(conn, 6))
    await job("held", "held")
    await job("anew", "held", strategy="partition")
    await job("elsewhere", "held", "waiting", strategy="partition")
    await job("in order", "held")
    for name in ("anew", "in order"):
        await unit(conn, made[name], "0", "waiting")
    await job("after", "held", strategy="partition")
    await unit(conn, made["after"], "0", "waiting", id=1)
    await job("of others", "waiting", strategy="partition")
    found = {row["id"] for row in await conn.fetch(ROUTER.due, 100, False)}
    asked = {"drains", "new", "done", "ready", "slices", "reads", "is behind"}
    assert {name for name, each in made.items() if each in found} == asked
    found = {row["id"] for row in await conn.fetch(ROUTER.due, 100, True)}
    assert {name for name, each in made.items() if each in found} == asked | {"lost", "again", "full", "anew"}
