"""What is done about jobs at odd moments: sessions are stepped statement by statement."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

import weft
from crash.checker import check
from crash.harness import until
from crash.job_sessions import CONTROL, JobSession, drained, flow, job_sessions
from crash.sessions import until_done_or_waiting
from weft.queue import operate, workers

ALONE = flow(on_failure="finish_independent", only={"handler": "work"})
TWO = flow(on_failure="finish_independent", one={"handler": "work", "next": "then"}, then={"handler": "work"})
ASKING = flow(ask={"type": "wait", "for": "approval", "timeout_seconds": 60})


async def test_what_the_engine_was_to_do_about_a_paused_job_goes_with_it_when_it_is_cancelled(
    url: str, client: weft.Client
) -> None:
    job_id = (await client.jobs.submit(TWO)).id
    async with job_sessions(url, 3) as (worker, engine, other):
        await worker.register()
        (claim,) = await worker.claim()
        await client.jobs.pause(job_id)
        assert await worker.fail(claim)
        await engine.orchestrate()
        assert await engine.claim(1, (CONTROL, -engine.worker_id)) == []
        await check(engine.conn)
        await client.jobs.cancel(job_id)
        await drained(other)
        assert await other.job_state(job_id) == "cancelled"


async def test_a_failure_of_which_the_engine_hears_after_a_cancel_counts_no_more(url: str, client: weft.Client) -> None:
    job_id = (await client.jobs.submit(ALONE)).id
    async with job_sessions(url, 2) as (worker, other):
        await worker.register()
        (claim,) = await worker.claim()
        assert await worker.fail(claim)
        await client.jobs.cancel(job_id)
        await drained(other)
        assert await other.job_state(job_id) == "cancelled"


async def test_a_failure_of_which_the_engine_hears_during_a_cancel_counts_no_more(
    url: str, client: weft.Client
) -> None:
    """The engine has read that the job runs, and waits for its end, which is cancelled meanwhile."""
    job_id = (await client.jobs.submit(ALONE)).id
    async with job_sessions(url, 4) as (worker, engine, other, watcher):
        await worker.register()
        (claim,) = await worker.claim()
        assert await worker.fail(claim)
        await engine.orchestrate()
        step = await engine.take("@fail")
        cancelling = other.conn.transaction()
        await cancelling.start()
        assert await other.cancel_job(job_id)
        late = await engine.blocked(engine.carry_out(step), watcher)
        await cancelling.commit()
        await late
        await drained(other)
        assert await other.job_state(job_id) == "cancelled"


async def test_steps_of_the_engine_that_were_in_too_many_crashes_are_begun_anew(url: str, client: weft.Client) -> None:
    """Nobody else would ever do it, and what comes after the failure would wait for ever."""
    job_id = (await client.jobs.submit(TWO)).id
    async with job_sessions(url, 4) as (worker, unlucky, rescuer, other):
        await worker.register()
        (claim,) = await worker.claim()
        assert await worker.fail(claim)
        await unlucky.orchestrate()
        skip = json.dumps({"ids": [str(await other.task_of(job_id, "then"))], "why": "upstream_failed"})
        await other.conn.execute("select weft.put_control(1, $1, 0::smallint, '@skip', $2)", job_id, skip)
        begun = await unlucky.claim(2, (CONTROL, -unlucky.worker_id))
        await unlucky.lapse()
        assert await rescuer.rescue(unlucky.worker_id, loss_limit=1) == 2
        await check(rescuer.conn)
        left = await rescuer.conn.fetch("select handler, params from weft.task where handler in ('@fail', '@skip')")
        said = {claim.handler: json.loads(claim.params or "") for claim in begun}
        assert {row["handler"]: json.loads(row["params"]) for row in left} == {
            **said, "@skip": {**said["@skip"], "again": True},
        }  # fmt: skip
        await drained(other)
        assert await other.job_state(job_id) == "failed"


async def test_a_failure_is_counted_once_whoever_carries_on_and_not_by_who_is_late(
    url: str, client: weft.Client
) -> None:
    """Else the job would end before what runs beside it."""
    definition = flow(
        on_failure="finish_independent", first={"handler": "work", "next": ["one", "two"]},
        one={"handler": "work", "next": "both"}, two={"handler": "work", "next": "both"}, both={"handler": "work"},
    )  # fmt: skip
    job_id = (await client.jobs.submit(definition)).id
    async with job_sessions(url, 4) as (worker, late, heir, other):
        await worker.register()
        assert await worker.complete(*await worker.claim())
        one, two = await worker.claim(2)
        assert await worker.fail(one)
        await late.orchestrate()
        step = await late.take("@fail")
        assert await late.note_failure(step) is False
        await check(other.conn)
        await late.lapse()
        assert await other.rescue(late.worker_id) == 1
        await heir.orchestrate()
        await workers.adopt_jobs(heir.conn, heir.worker_id)
        again = await heir.take("@fail")
        assert await late.note_failure(step) is None
        await heir.carry_out(again)
        await check(other.conn)
        assert (await other.states(job_id))["both"] == "pending"
        assert await worker.finish(two)
        await drained(other)
        assert (await other.states(job_id))["both"] == "skipped"


async def test_only_its_holder_carries_out_a_step_by_its_attempt_and_while_it_runs(
    url: str, client: weft.Client
) -> None:
    await client.jobs.submit(ALONE)
    async with job_sessions(url, 3) as (worker, holder, other):
        await worker.register()
        (claim,) = await worker.claim()
        assert await worker.fail(claim)
        await holder.orchestrate()
        step = await holder.take("@fail")
        await other.orchestrate()
        assert await other.note_failure(step) is None
        assert await holder.note_failure(step._replace(attempt=2)) is None
        await other.conn.execute("update weft.task set state = 'claimed' where id = $1", step.id)
        assert await holder.note_failure(step) is None
        await other.conn.execute("update weft.task set state = 'running' where id = $1", step.id)
        assert await holder.note_failure(step) is False


async def test_a_task_that_is_cancelled_while_it_waits_is_awaited_no_more(url: str, client: weft.Client) -> None:
    await client.workflows.push(flow(name="inner", only={"handler": "work"}))
    job_id = (
        await client.jobs.submit(
            flow(
                on_failure="finish_independent", ask={"type": "wait", "for": "approval", "next": "call"},
                call={"type": "workflow", "workflow": "inner"},
            )
        )
    ).id  # fmt: skip
    async with job_sessions(url, 2) as (engine, other):
        await engine.orchestrate()
        ask = await engine.take("@wait")
        assert await engine.wait_for_event(ask)
        async with other.conn.transaction():
            assert await operate.cancel(other.conn, 1, [ask.id], "cancelled", "test") == {ask.id}
        await check(other.conn)
        await drained(other)
        assert await other.job_state(job_id) == "failed"


async def test_what_waits_for_an_answer_is_awaited_no_more_when_its_job_is_cancelled(
    url: str, client: weft.Client
) -> None:
    job_id = (await client.jobs.submit(ASKING)).id
    async with job_sessions(url, 2) as (engine, other):
        await engine.orchestrate()
        ask = await engine.take("@wait")
        assert await engine.wait_for_event(ask)
        await client.jobs.cancel(job_id)
        await check(other.conn)
        assert not await other.answer(ask.id)
        await drained(other)
        assert await other.job_state(job_id) == "cancelled"


@pytest.mark.parametrize("how", ["swept away", "cancelled", "skipped"])
async def test_a_step_in_the_queue_of_its_owner_is_told_of_when_its_owner_is_forgotten(
    url: str, client: weft.Client, how: str
) -> None:
    """The queue of an owner goes with it; what ended there without having begun must not go from all lists."""
    branches = [{"condition": "== 1", "next": "later"}, {"default": True, "next": "END"}]
    choose = {"type": "conditional", "condition_field": 1, "branches": branches}
    later = {"type": "conditional", "condition_field": 1, "branches": [{"default": True, "next": "END"}]}
    job_id = (await client.jobs.submit(flow(choose=choose, later=later))).id
    async with job_sessions(url, 2) as (engine, other):
        await engine.orchestrate()
        assert await engine.finish(await engine.take("@conditional"), json.dumps({"branch": int(how == "skipped")}))
        task_id = await other.task_of(job_id, "later")
        if how == "swept away":
            await client.jobs.cancel(job_id)
        elif how == "cancelled":
            assert await other.cancel(task_id)
        await check(other.conn)
        assert await other.state_of(task_id) == ("skipped" if how == "skipped" else "cancelled")


async def test_an_heir_takes_nothing_from_an_owner_that_lives(url: str, client: weft.Client) -> None:
    branches = [{"default": True, "next": "later"}]
    choose = {"type": "conditional", "condition_field": 1, "branches": branches}
    definition = flow(choose=choose, later={"type": "fan_in"})
    async with job_sessions(url, 3) as (lost, alive, heir):
        jobs = []
        for owner in (lost, alive):
            jobs.append((await client.jobs.submit(definition)).id)
            await owner.orchestrate()
            assert await owner.finish(await owner.take("@conditional"), '{"branch": 0}')
        await lost.lapse()
        await heir.orchestrate()
        assert await workers.adopt_jobs(heir.conn, heir.worker_id) == 2
        owners = [(await client.jobs.show(job_id)).owner_id for job_id in jobs]
        assert owners == [heir.worker_id, alive.worker_id]
        steps = await heir.conn.fetch("select queue_id from weft.task where node = 'later' order by job_id")
        assert [row["queue_id"] for row in steps] == [-heir.worker_id, -alive.worker_id]


async def test_a_step_that_was_parked_and_that_somebody_has_locked_is_swept_away_later(
    url: str, client: weft.Client
) -> None:
    job_id = (await client.jobs.submit(TWO)).id
    async with job_sessions(url, 3) as (worker, engine, other):
        await worker.register()
        (claim,) = await worker.claim()
        await client.jobs.pause(job_id)
        assert await worker.fail(claim)
        await engine.orchestrate()
        assert await engine.claim(1, (CONTROL, -engine.worker_id)) == []
        async with engine.conn.transaction():
            await engine.conn.execute("select 1 from weft.task where handler = '@fail' for update")
            await client.jobs.cancel(job_id)
        await drained(other)
        assert await other.job_state(job_id) == "cancelled"


# --- who locks what first ---


async def _gate(keeper: JobSession, *gated: tuple[JobSession, str, str]) -> None:
    """Let each of these sessions, when it has written to a table in that way, wait until its gate is opened."""
    await keeper.conn.execute("""
        create function gate() returns trigger language plpgsql as $$
        declare set text := current_setting('test.gate', true);
        begin
          if split_part(set, ' ', 2) = tg_table_name then
            perform pg_advisory_xact_lock_shared(split_part(set, ' ', 1)::int);
          end if;
          return null;
        end $$""")
    for number, (session, table, verb) in enumerate(gated, 1):
        made = f"create trigger gate{number} after {verb} on weft.{table} for each statement execute function gate()"
        await keeper.conn.execute(made)
        await keeper.conn.execute("select pg_advisory_lock($1)", number)
        await session.conn.execute(f"set test.gate = '{number} {table}'")


async def _open(keeper: JobSession, gate: int = 1) -> None:
    await keeper.conn.execute("select pg_advisory_unlock($1)", gate)


async def _at_once(first: JobSession, one: Any, second: JobSession, other: Any, keeper: JobSession) -> tuple[Any, Any]:
    """Let the first go on when the second waits for it, or has ended; neither is ended by the server for a deadlock."""
    begun = await first.blocked(one, keeper)
    late = asyncio.ensure_future(other)
    await until_done_or_waiting(late, second, keeper)
    await _open(keeper)
    result = await asyncio.gather(begun, late)
    await keeper.conn.execute("drop function gate cascade")
    return result[0], result[1]


async def test_whoever_finishes_a_job_and_whoever_cancels_it_do_not_wait_for_each_other(
    url: str, client: weft.Client
) -> None:
    job_id = (await client.jobs.submit(ALONE)).id
    async with job_sessions(url, 4) as (worker, engine, other, keeper):
        await worker.register()
        assert await worker.complete(*await worker.claim())
        await engine.orchestrate()
        end = await engine.take("@end")
        await _gate(keeper, (engine, "task_done", "insert"))
        landed = await _at_once(engine, engine.finish(end), other, other.cancel_job(job_id), keeper)
        assert landed == (True, False)
        await drained(other)
        assert await other.job_state(job_id) == "completed"


async def test_a_job_that_ends_and_whoever_cancels_the_one_that_waits_for_it_do_not_wait_for_each_other(
    url: str, client: weft.Client
) -> None:
    async with job_sessions(url, 4) as (worker, engine, other, keeper):
        outer, inner = await _nested(client, engine)
        await worker.register()
        assert await worker.complete(*await worker.claim())
        end = await engine.take("@end")
        await _gate(keeper, (engine, "job_done", "insert"))
        landed = await _at_once(engine, engine.finish(end), other, other.cancel_job(outer), keeper)
        assert landed == (True, True)
        await drained(other)
        assert [await other.job_state(each) for each in (outer, inner)] == ["cancelled", "completed"]


async def _nested(client: weft.Client, engine: JobSession) -> tuple[int, int]:
    """Return a job, and the one that its only node waits for."""
    await client.workflows.push(flow(name="inner", only={"handler": "work"}))
    outer = (await client.jobs.submit(flow(call={"type": "workflow", "workflow": "inner"}))).id
    await engine.orchestrate()
    call = await engine.take("@workflow")
    inner = (await client.jobs.submit("inner")).id
    async with engine.conn.transaction():
        assert await engine.conn.fetchval("select weft.wait_for_answer($1, $2, $3, null)", engine.worker_id, *call[:2])
        await engine.conn.execute("update weft.job set parent_id = $1 where id = $2", call.id, inner)
    return outer, inner


async def test_whoever_sweeps_a_job_and_whoever_frees_a_slot_of_it_do_not_wait_for_each_other(
    url: str, client: weft.Client
) -> None:
    """One has tasks that wait for slots of a key, and asks for the key; the other has the key, and asks for them."""
    node = {"type": "fan_out", "items": [1, 2, 3, 4], "max_parallel": 2, "task": {"handler": "work"}, "next": "all"}
    job_id = (await client.jobs.submit(flow(each=node, all={"type": "fan_in"}))).id
    async with job_sessions(url, 4) as (worker, engine, other, keeper):
        await engine.orchestrate()
        each = await engine.take("@fan_out")
        assert await engine.expand(each, await client.ids.take(4), most=2)
        assert await engine.finish(each)
        await worker.register()
        one, _two = await worker.claim(2)
        await check(keeper.conn)
        await _gate(keeper, (worker, "task", "update"), (other, "task_done", "insert"))
        finish = await worker.blocked(worker.finish(one), keeper)
        cancel = await other.blocked(other.cancel_job(job_id), keeper)
        await _open(keeper, 1)
        beyond = "select wait_event_type = 'Lock' and wait_event <> 'advisory' from pg_stat_activity where pid = $1"
        await until(lambda: keeper.conn.fetchval(beyond, worker.pid), "it waits for the slots")
        await _open(keeper, 2)
        assert await asyncio.gather(finish, cancel) == [True, True]
        await keeper.conn.execute("drop function gate cascade")
        await drained(other)
        assert await other.job_state(job_id) == "cancelled"


async def test_whoever_expands_a_fan_out_and_whoever_cancels_its_job_do_not_wait_for_each_other(
    url: str, client: weft.Client
) -> None:
    node = {"type": "fan_out", "items": [1, 2], "task": {"handler": "work"}}
    job_id = (await client.jobs.submit(flow(each=node))).id
    async with job_sessions(url, 3) as (engine, other, keeper):
        await engine.orchestrate()
        each = await engine.take("@fan_out")
        await _gate(keeper, (engine, "task", "insert"))
        ids = await client.ids.take(2)
        landed = await _at_once(engine, engine.expand(each, ids), other, other.cancel_job(job_id), keeper)
        assert landed == (True, True)
        assert not await engine.expand(each, await client.ids.take(2), 2)
        await drained(other)
        assert await other.job_state(job_id) == "cancelled"


async def test_whoever_resumes_a_job_and_whoever_cancels_it_do_not_wait_for_each_other(
    url: str, client: weft.Client
) -> None:
    job_id = (await client.jobs.submit(ALONE)).id
    async with job_sessions(url, 4) as (worker, engine, other, keeper):
        await worker.register()
        (claim,) = await worker.claim()
        await client.jobs.pause(job_id)
        assert await worker.finish(claim)
        await engine.orchestrate()
        assert await engine.claim(1, (CONTROL, -engine.worker_id)) == []
        await _gate(keeper, (engine, "job", "update"))
        resumed = engine.conn.fetchval("select weft.resume_job(1, $1)", job_id)
        assert await _at_once(engine, resumed, other, other.cancel_job(job_id), keeper) == (True, True)
        await drained(other)
        assert await other.job_state(job_id) == "cancelled"


async def test_whoever_skips_what_comes_after_a_failure_and_whoever_finishes_beside_it_do_not_wait_for_each_other(
    url: str, client: weft.Client
) -> None:
    """Both come to what is after both of them."""
    definition = flow(
        on_failure="finish_independent", first={"handler": "work", "next": ["one", "two"]},
        one={"handler": "work", "next": "both"}, two={"handler": "work", "next": "both"}, both={"handler": "work"},
    )  # fmt: skip
    job_id = (await client.jobs.submit(definition)).id
    async with job_sessions(url, 4) as (worker, engine, other, keeper):
        await worker.register()
        assert await worker.complete(*await worker.claim())
        one, two = await worker.claim(2)
        assert await worker.fail(one)
        await engine.orchestrate()
        step = await engine.take("@fail")
        await _gate(keeper, (engine, "task_done", "insert"))
        await _at_once(engine, engine.carry_out(step), worker, worker.finish(two), keeper)
        await drained(other)
        assert await other.job_state(job_id) == "failed"
        assert await other.states(job_id) == {
            "first": "completed", "one": "failed", "two": "completed", "both": "skipped", "END": "completed",
        }  # fmt: skip


async def test_a_paused_job_that_is_resumed_while_somebody_begins_what_is_left_of_it_has_begun_or_waits(
    url: str, client: weft.Client
) -> None:
    """Whoever begins tasks of two jobs has seen that the first is paused, and waits for the second meanwhile."""
    first, second = [(await client.jobs.submit(ALONE)).id for _ in range(2)]
    async with job_sessions(url, 4) as (worker, other, keeper, watcher):
        tasks = [await watcher.task_of(job_id, "only") for job_id in (first, second)]
        await client.jobs.pause(first)
        holding = keeper.conn.transaction()
        await holding.start()
        await keeper.conn.execute("select 1 from weft.job where id = $1 for update", second)
        begun = worker.conn.fetchval("select weft.begin_jobs($1, $2, null)", tasks, [first, second])
        beginning = await worker.blocked(begun, watcher)
        resuming = asyncio.ensure_future(other.conn.fetchval("select weft.resume_job(1, $1)", first))
        await until_done_or_waiting(resuming, other, watcher)
        await holding.rollback()
        may_begin = await beginning
        assert await resuming
        states = [await watcher.job_state(job_id) for job_id in (first, second)]
        assert (may_begin, states) == ([tasks[1]], ["pending", "running"])
        assert (await watcher.states(first))["only"] == "ready"
