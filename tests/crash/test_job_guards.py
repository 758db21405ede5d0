"""What nobody may do about a job at the wrong moment, though nobody asks for it now: each guard by itself."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import orjson
import pytest

import weft
from crash.checker import check
from crash.job_sessions import PATIENCE, JobSession, drained, flow, job_sessions
from crash.sessions import until_done_or_waiting
from weft.jobs.items import Known
from weft.jobs.rerun_reading import ended_job
from weft.jobs.submit import SQL
from weft.queue.work import Claim

ONE = flow(only={"handler": "work"})
LISTENING = flow(ask={"type": "wait", "for": "event", "event": "go"})


def _choice(*, taken: dict[str, Any], missed: dict[str, Any]) -> dict[str, Any]:
    """A workflow of which the second branch is to be taken."""
    branches = [{"condition": "== 1", "next": "missed"}, {"default": True, "next": "taken"}]
    choose = {"type": "conditional", "condition_field": 0, "branches": branches}
    return flow(choose=choose, taken=taken, missed=missed)


# --- from which states ---


async def test_a_job_that_goes_on_is_not_swept_away(url: str, client: weft.Client) -> None:
    job_id = (await client.jobs.submit(flow(one={"handler": "work", "next": "two"}, two={"handler": "work"}))).id
    async with job_sessions(url, 1) as (engine,):
        before = await engine.states(job_id)
        assert await engine.conn.fetchval(SQL.sweep, job_id, 1000) is False
        assert await engine.states(job_id) == before


async def test_a_job_runs_from_the_moment_in_which_a_worker_begins_the_first_of_its_tasks(
    url: str, client: weft.Client
) -> None:
    job_id = (await client.jobs.submit(ONE)).id
    async with job_sessions(url, 1) as (worker,):
        await worker.register()
        assert await worker.job_state(job_id) == "pending"
        assert len(await worker.claim()) == 1
        assert await worker.job_state(job_id) == "running"
        assert (await client.jobs.show(job_id)).started_at is not None


async def test_only_a_job_that_is_paused_is_resumed_and_only_one_that_goes_on_is_cancelled(
    url: str, client: weft.Client
) -> None:
    job_id = (await client.jobs.submit(ONE)).id
    async with job_sessions(url, 1) as (other,):
        assert await other.conn.fetchval(SQL.resume, 1, job_id) is False
        await client.jobs.pause(job_id)
        assert await other.conn.fetchval(SQL.resume, 2, job_id) is False, "it is another org's"
        assert await other.job_state(job_id) == "paused"
        assert await other.cancel_job(job_id)
        assert not await other.cancel_job(job_id)
        assert await other.conn.fetchval(SQL.resume, 1, job_id) is False
        assert await other.job_state(job_id) == "cancelling"
        await drained(other)


async def test_a_task_that_is_parked_while_its_job_is_resumed_goes_on(url: str, client: weft.Client) -> None:
    job_id = (await client.jobs.submit(ONE)).id
    await client.jobs.pause(job_id)
    async with job_sessions(url, 3) as (worker, other, watcher):
        await worker.register()
        async with worker.conn.transaction():
            assert await worker.claim() == []
            resuming = asyncio.ensure_future(other.conn.fetchval(SQL.resume, 1, job_id))
            await until_done_or_waiting(resuming, other, watcher)
        assert await resuming is True
        await drained(watcher)
        assert await watcher.job_state(job_id) == "completed"


async def test_only_what_waits_is_answered(url: str, client: weft.Client) -> None:
    job_id = (await client.jobs.submit(LISTENING)).id
    async with job_sessions(url, 1) as (engine,):
        await engine.orchestrate()
        ask = await engine.take("@wait")
        assert not await engine.answer(ask.id)
        assert (await engine.states(job_id))["ask"] == "running"


@pytest.mark.parametrize("act", ["wait", "expand"])
async def test_only_the_holder_of_a_step_lets_it_wait_or_expands_it_while_it_runs_and_its_job_goes_on(
    url: str, client: weft.Client, act: str
) -> None:
    each = {"type": "fan_out", "items": [1], "task": {"handler": "work"}}
    job_id = (await client.jobs.submit(LISTENING if act == "wait" else flow(each=each))).id
    async with job_sessions(url, 2) as (engine, other):
        await engine.orchestrate()
        step = await engine.take("@wait" if act == "wait" else "@fan_out")
        await other.orchestrate()

        async def acts(by: JobSession, claim: Claim) -> bool:
            return await (by.wait_for_event(claim) if act == "wait" else by.expand(claim, await client.ids.take(1)))

        assert not await acts(other, step)
        assert not await acts(engine, step._replace(attempt=2))
        await other.conn.execute("update weft.task set state = 'claimed' where id = $1", step.id)
        assert not await acts(engine, step)
        await other.conn.execute("update weft.task set state = 'running' where id = $1", step.id)
        if act == "expand":
            await other.conn.execute("update weft.job set state = 'cancelling'")
            assert not await acts(engine, step)
            await other.conn.execute("update weft.job set state = 'running'")
        written = "select (select count(*) from weft.awaited) + (select count(*) from weft.task where item is not null)"
        assert await other.conn.fetchval(written) == 0
        assert await acts(engine, step)
        assert await other.conn.fetchval(written) == 1
        await check(other.conn)
        assert await other.job_state(job_id) == "running"


async def test_what_has_begun_is_not_skipped(url: str, client: weft.Client) -> None:
    job_id = (await client.jobs.submit(ONE)).id
    async with job_sessions(url, 2) as (worker, other):
        await worker.register()
        (claim,) = await worker.claim()
        assert await other.conn.fetchval("select weft.skip_tasks($1, 'branch_not_taken', 9, '{}')", [claim.id]) == []
        assert await worker.complete(claim)
        await drained(other)
        assert await other.job_state(job_id) == "completed"


async def test_a_job_that_is_cancelled_while_its_end_is_evaluated_has_no_result(url: str, client: weft.Client) -> None:
    job_id = (await client.jobs.submit(ONE)).id
    async with job_sessions(url, 2) as (worker, engine):
        await worker.register()
        assert await worker.complete(*await worker.claim())
        await engine.orchestrate()
        end = await engine.take("@end")
        assert await worker.cancel_job(job_id)
        assert await engine.finish(end, '{"made": 1}')
        job = await client.jobs.show(job_id)
        assert (job.state, job.result) == ("cancelled", None)


async def test_what_a_task_that_has_completed_is_said_to_lead_to_is_reached(url: str, client: weft.Client) -> None:
    """By that alone it runs: the branch by which it could have been reached is not taken."""
    definition = _choice(taken={"handler": "work"}, missed={"handler": "work"})
    definition["nodes"]["START"]["next"] = ["before", "choose"]
    definition["nodes"]["before"] = {"handler": "work", "next": "END"}
    job_id = (await client.jobs.submit(definition)).id
    async with job_sessions(url, 2) as (engine, worker):
        await worker.register()
        assert await worker.complete(*await worker.claim())
        before, missed = [await worker.task_of(job_id, node) for node in ("before", "missed")]
        await client.jobs.add(job_id, Known(missed).depends_on(Known(before)))
        await engine.orchestrate()
        assert await engine.finish(await engine.take("@conditional"), '{"branch": 1}')
        assert (await worker.states(job_id))["missed"] == "ready"
        await drained(engine)


async def test_the_owner_of_a_job_ends_it_also_after_a_failure(url: str, client: weft.Client) -> None:
    job_id = (await client.jobs.submit({**ONE, "on_failure": "finish_independent"})).id
    async with job_sessions(url, 2) as (worker, engine):
        await worker.register()
        assert await worker.fail(*await worker.claim())
        await engine.orchestrate()
        await engine.carry_out(await engine.take("@fail"))
        waiting = "select queue_id from weft.task where job_id = $1 and handler = '@end' and state = 'ready'"
        assert await engine.conn.fetchval(waiting, job_id) == -engine.worker_id


async def test_a_job_of_another_org_is_not_there_to_be_run_again(url: str, client: weft.Client) -> None:
    job_id = (await client.jobs.submit(ONE)).id
    async with job_sessions(url, 1) as (other,):
        await drained(other)
        await ended_job(other.conn, 1, job_id)
        with pytest.raises(weft.NotFound):
            await ended_job(other.conn, 2, job_id)


async def test_only_what_waits_for_a_person_is_to_be_approved(url: str, client: weft.Client) -> None:
    asking = flow(ask={"type": "wait", "for": "approval"})
    jobs = [(await client.jobs.submit(each)).id for each in (asking, asking, LISTENING)]
    async with job_sessions(url, 1) as (engine,):
        await engine.orchestrate()
        for event in (None, None, "go"):
            assert await engine.wait_for_event(await engine.take("@wait"), event)
    assert [each.job_id for each in await client.jobs.approvals()] == jobs[:2]
    assert [[each.job_id for each in await client.jobs.approvals(id)] for id in jobs] == [[jobs[0]], [jobs[1]], []]


# --- what tasks make ---


async def _spawn(by: JobSession, parent: Claim) -> int | None:
    made: int | None = await by.conn.fetchval(
        """select id from weft.spawn($1, $2, $3, '1', 'work', 'default', '{}', 0, 1::smallint, null, null, null, null,
           false)""",
        by.worker_id, parent.id, parent.attempt,
    )  # fmt: skip
    return made


async def test_a_task_makes_others_only_while_its_job_goes_on(url: str, client: weft.Client) -> None:
    await client.jobs.submit(ONE)
    async with job_sessions(url, 1) as (worker,):
        await worker.register()
        (parent,) = await worker.claim()
        await worker.conn.execute("update weft.job set state = 'cancelling'")
        assert await _spawn(worker, parent) is None
        await worker.conn.execute("update weft.job set state = 'running'")
        assert await _spawn(worker, parent) is not None


async def test_what_comes_after_a_task_waits_for_what_was_made_by_what_it_has_made(
    url: str, client: weft.Client
) -> None:
    job_id = (await client.jobs.submit(flow(one={"handler": "work", "next": "two"}, two={"handler": "work"}))).id
    async with job_sessions(url, 2) as (worker, other):
        await worker.register()
        (made_by,) = await worker.claim()
        for _ in range(2):
            assert await _spawn(worker, made_by) is not None
            assert await worker.complete(made_by)
            (made_by,) = await worker.claim()
        assert (await other.states(job_id))["two"] == "pending"
        assert await worker.complete(made_by)
        assert (await other.states(job_id))["two"] == "ready"
        await drained(other)


# --- slots ---


async def test_what_waits_for_a_slot_of_its_key_has_no_time_in_which_it_must_begin(
    url: str, client: weft.Client
) -> None:
    """It would end without giving the slot back that it has by then."""
    keyed = {"handler": "work", "concurrency_key": "one", "dispatch_timeout_seconds": 60}
    job_id = (await client.jobs.submit(flow(one={"handler": "work", "next": "two"}, two=keyed))).id
    async with job_sessions(url, 1) as (worker,):
        await worker.register()
        assert await worker.complete(*await worker.claim())
        assert (await worker.states(job_id))["two"] == "ready"
        assert await worker.conn.fetchval("select count(*) from weft.task where expires_at is not null") == 0


async def test_what_is_skipped_when_it_has_a_slot_of_its_key_gives_that_back(url: str, client: weft.Client) -> None:
    await client.jobs.submit(flow(only={"handler": "work", "concurrency_key": "one"}))
    async with job_sessions(url, 1) as (other,):
        ids = [row["id"] for row in await other.conn.fetch("select id from weft.task where state = 'ready'")]
        assert await other.conn.fetchval("select weft.skip_tasks($1, 'branch_not_taken', 9, '{}')", ids) == []
        await check(other.conn)
        await drained(other)


async def test_what_is_skipped_before_it_had_a_slot_of_its_key_gives_none_back(url: str, client: weft.Client) -> None:
    keyed = {"handler": "work", "concurrency_key": "one"}
    await client.limit_queue("default", 1, per_key=True)
    await client.jobs.submit(_choice(taken=keyed, missed=keyed))
    async with job_sessions(url, 1) as (engine,):
        await engine.orchestrate()
        assert await engine.finish(await engine.take("@conditional"), '{"branch": 1}')
        await check(engine.conn)
        await drained(engine)


# --- events ---


async def _listen(by: JobSession, claim: Claim, match: dict[str, Any]) -> bool:
    said = PATIENCE, "event", False, "go", orjson.dumps(match).decode(), "{}"
    return bool(await by.conn.fetchval(SQL.begin_wait, by.worker_id, claim.id, claim.attempt, *said))


async def _send(by: JobSession, name: str = "go", payload: str = "{}", org: int = 1) -> int:
    """Send an event, and return how many it has answered."""
    row = await by.conn.fetchrow(SQL.send_event, org, name, payload, "ada", None, 500, None, None)
    assert row is not None
    return int(row["answered"])


async def test_an_event_answers_only_those_who_wait_for_one_of_its_org_name_and_fields(
    url: str, client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    await conn.execute("insert into weft.org (id, slug, name) values (2, 'acme', 'Acme')")
    await client.jobs.send_event("go", {"day": 1})
    job_id = (await client.jobs.submit(LISTENING)).id
    async with job_sessions(url, 2) as (engine, other):
        await engine.orchestrate()
        ask = await engine.take("@wait")
        await _send(other, "stop", '{"day": 1}')
        await _send(other, "go", '{"day": 2}')
        await _send(other, "go", '{"day": 1}', org=2)
        assert await _listen(engine, ask, {"day": 1})
        assert (await other.states(job_id))["ask"] == "waiting", "none that came before is the one"
        assert await _send(other, "stop", '{"day": 1}') == 0
        assert await _send(other, "go", '{"day": 2}') == 0
        assert await _send(other, "go", '{"day": 1}', org=2) == 0
        assert await _send(other, "go", '{"day": 1, "hour": 2}') == 1
        await drained(other)
        assert await other.job_state(job_id) == "completed"


@pytest.mark.parametrize("first", ["listens", "sends"])
async def test_an_event_that_is_sent_while_somebody_begins_to_wait_for_it_is_not_lost(
    url: str, client: weft.Client, first: str
) -> None:
    job_id = (await client.jobs.submit(LISTENING)).id
    async with job_sessions(url, 3) as (engine, sender, watcher):
        await engine.orchestrate()
        ask = await engine.take("@wait")
        acts = {"listens": (engine, lambda: _listen(engine, ask, {})), "sends": (sender, lambda: _send(sender))}
        by, act = acts.pop(first)
        ((late, later),) = acts.values()
        async with by.conn.transaction():
            await act()
            call = asyncio.ensure_future(later())
            await until_done_or_waiting(call, late, watcher)
        await call
        await drained(watcher)
        assert await watcher.job_state(job_id) == "completed"
