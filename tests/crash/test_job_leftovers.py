"""What is left of jobs at odd moments, when whoever knew of it is gone: nothing waits for ever, nothing is lost."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import asyncpg
import orjson
import pytest

import weft
from crash.checker import check
from crash.harness import until
from crash.job_sessions import CONTROL, JobSession, drained, flow, job_sessions
from weft.jobs.items import Task
from weft.queue import upkeep, workers

WAITING = "select 1 from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
MANY = [f"many{number}" for number in range(102)]


def _untaken() -> dict[str, Any]:
    """A branch that is not taken, with more behind it than is skipped at once."""
    branches = [{"condition": "== 0", "next": MANY}, {"default": True, "next": ["late", "other"]}]
    rest = {name: {"handler": "work"} for name in MANY}
    rest[MANY[-2]] |= {"next": "after"}
    choose = {"type": "conditional", "condition_field": 1, "branches": branches}
    keyed = {"handler": "work", "concurrency_key": "one"}
    return flow(choose=choose, other=keyed, late=keyed, **rest, after={"handler": "work"})


def _spoiled() -> dict[str, Any]:
    """More than is skipped at once comes after both of two, of which one fails."""
    rest = {name: {"handler": "work"} for name in MANY}
    rest[MANY[-2]] |= {"next": "after"}
    return flow(
        on_failure="finish_independent", both={"handler": "work", "next": ["bad", "good", "other"]},
        bad={"handler": "work", "next": [*MANY, "late"]}, good={"handler": "work", "next": MANY}, **rest,
        other={"handler": "work", "next": "late"}, late={"handler": "work"}, after={"handler": "work"},
    )  # fmt: skip


async def _left_to_skip(client: weft.Client, engine: JobSession, worker: JobSession, why: str) -> int:
    """Return a job of which an orchestrator is about to skip the last two of many, and what comes after them."""
    await client.limit_queue("default", 1, per_key=True)
    await worker.register()
    await engine.orchestrate()
    if why == "branch_not_taken":
        job_id = (await client.jobs.submit(_untaken())).id
        assert await engine.finish(await engine.take("@conditional"), '{"branch": 1}')
        return job_id
    job_id = (await client.jobs.submit(_spoiled())).id
    assert await worker.complete(*await worker.claim())
    bad, good, _other = sorted(await worker.claim(3), key=lambda claim: str(claim.node))
    assert await worker.fail(bad)
    await engine.carry_out(await engine.take("@fail"))
    assert await worker.complete(good)
    return job_id


@pytest.mark.parametrize("is_buried", [False, True], ids=["rescued", "buried"])
@pytest.mark.parametrize("why", ["branch_not_taken", "upstream_failed"])
async def test_whoever_takes_over_a_step_finds_what_was_left_to_skip(
    url: str, client: weft.Client, why: str, is_buried: bool
) -> None:
    async with job_sessions(url, 3) as (engine, worker, heir):
        job_id = await _left_to_skip(client, engine, worker, why)
        step = await engine.take("@skip")
        ids = [int(id) for id in orjson.loads(step.params or "")["ids"]]
        assert len(ids) == 2
        left = await engine.skip(step, ids, room=1)
        assert left is not None
        assert len(left) == 2, "what comes after the first is known to nobody else"
        assert (await engine.states(job_id))["after"] == "pending", "nobody is to begin it"
        await engine.lapse()
        await heir.rescue(engine.worker_id, loss_limit=1 if is_buried else 3)
        assert await engine.skip(step, left) is None, "it is no longer the step of who has lost it"
        await workers.adopt_jobs(heir.conn, await heir.orchestrate())
        await heir.carry_out(await heir.take("@skip"))
        assert (await heir.states(job_id))["late"] == "pending", "it waits for something else"
        await drained(heir)
        states = await heir.states(job_id)
        assert states["late"] == ("completed" if why == "branch_not_taken" else "skipped")
        assert {states[name] for name in (*MANY, "after")} == {"skipped"}
        assert await heir.job_state(job_id) == ("completed" if why == "branch_not_taken" else "failed")
        await check(heir.conn)


@pytest.mark.parametrize("field", ["worker", "attempt"])
async def test_only_the_holder_of_a_step_skips_by_it(url: str, client: weft.Client, field: str) -> None:
    async with job_sessions(url, 2) as (engine, worker):
        await _left_to_skip(client, engine, worker, "branch_not_taken")
        step = await engine.take("@skip")
        ids = [int(id) for id in orjson.loads(step.params or "")["ids"]]
        other = step._replace(attempt=step.attempt + 1) if field == "attempt" else step
        who = engine if field == "attempt" else worker
        assert await who.skip(other, ids) is None
        assert await engine.skip(step, ids) == []


async def test_a_step_that_was_given_back_skips_nothing(url: str, client: weft.Client) -> None:
    async with job_sessions(url, 2) as (engine, worker):
        await _left_to_skip(client, engine, worker, "branch_not_taken")
        step = await engine.take("@skip")
        ids = [int(id) for id in orjson.loads(step.params or "")["ids"]]
        await engine.conn.execute("update weft.task set state = 'waiting' where id = $1", step.id)
        assert await engine.skip(step, ids) is None


# --- pausing ---


async def test_whoever_pauses_a_job_waits_for_what_is_just_being_claimed(url: str, client: weft.Client) -> None:
    job_id = (await client.jobs.submit(flow(one={"handler": "work", "next": "two"}, two={"handler": "work"}))).id
    async with job_sessions(url, 2) as (worker, watcher):
        await worker.register()
        for node in ("one", "two"):
            claiming = worker.conn.transaction()
            await claiming.start()
            (claim,) = await worker.claim()
            assert claim.node == node
            pausing = asyncio.create_task(client.jobs.pause(job_id))

            async def waits(pausing: asyncio.Task[None] = pausing) -> bool:
                waiting = (
                    "select 1 from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
                )
                return pausing.done() or bool(await watcher.conn.fetch(waiting))

            await until(waits, "it waits, or has paused the job")
            assert not pausing.done(), "it has paused a job of which something begins now"
            await claiming.commit()
            await pausing
            assert await worker.claim() == []
            await client.jobs.resume(job_id)
            assert await worker.complete(claim)
        await drained(watcher)
        assert await watcher.job_state(job_id) == "completed"


async def test_a_key_is_free_again_after_its_task_was_parked_and_nobody_began_it(url: str, client: weft.Client) -> None:
    """A task of a key has no time in which somebody must begin it, also when its job is resumed."""
    keyed = {"handler": "work", "concurrency_key": "one", "dispatch_timeout_seconds": 60}
    await client.limit_queue("default", 1, per_key=True)
    job_id = (await client.jobs.submit(flow(only=keyed))).id
    other_id = (await client.jobs.submit(flow(only={"handler": "work", "dispatch_timeout_seconds": 60}))).id
    async with job_sessions(url, 1) as (worker,):
        await worker.register()
        for id in (job_id, other_id):
            await client.jobs.pause(id)
        assert await worker.claim(2) == []
        parked = "select expires_at from weft.task where reason = 'job_paused'"
        assert [row[0] for row in await worker.conn.fetch(parked)] == [None, None], (
            "nobody looks for what is late in it"
        )
        for id in (job_id, other_id):
            await client.jobs.resume(id)
        late = "select job_id from weft.task where expires_at is not null"
        assert [row[0] for row in await worker.conn.fetch(late)] == [other_id]
        await check(worker.conn)


# --- keys ---


async def test_the_limit_of_a_fan_out_is_kept_while_its_job_goes_on_and_then_forgotten(
    url: str, client: weft.Client
) -> None:
    await client.limit_queue("default", 5, key="@mine")
    each = {"type": "fan_out", "items": [1, 2, 3, 4], "max_parallel": 2, "task": {"handler": "work"}, "next": "all"}
    job_id = (await client.jobs.submit(flow(each=each, all={"type": "fan_in"}))).id
    async with job_sessions(url, 2) as (engine, worker):
        await engine.orchestrate()
        await worker.register()
        expanding = await engine.take("@fan_out")
        assert await engine.expand(expanding, await client.ids.take(1), most=2)
        assert await worker.complete(*await worker.claim())
        # Nobody holds a slot of it, and more are to come.
        assert await upkeep.prune_idle_keys(engine.conn) == 0
        assert await engine.expand(expanding, await client.ids.take(3), 1, most=2)
        assert await engine.finish(expanding)
        await client.jobs.pause(job_id)
        while await worker.conn.fetchval("select count(*) from weft.task where reason = 'job_paused'") < 3:
            assert await worker.claim(3) == []
        # Nobody holds a slot of it, and yet it is needed.
        assert await upkeep.prune_idle_keys(engine.conn) == 0
        await client.jobs.resume(job_id)
        assert len(claims := await worker.claim(3)) == 2
        assert await worker.complete(*claims)
        assert await worker.complete(*await worker.claim(3))
        await drained(engine)
        assert await engine.job_state(job_id) == "completed"
        assert await upkeep.prune_idle_keys(engine.conn) == 1
        assert [row["key"] for row in await engine.conn.fetch("select key from weft.key_slot")] == ["@mine"]


async def test_a_key_of_a_job_is_known_for_longer_than_its_tasks(
    client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    definition = flow(only={"handler": "work"})
    job_id = (await client.jobs.submit(definition, idempotency_key="once")).id
    await client.jobs.cancel(job_id)
    async with weft.Orchestrator(client=client):
        await client.jobs.wait(job_id, timeout=30)
    again = await client.jobs.rerun(job_id, idempotency_key="again")
    await conn.execute("delete from weft.task_done")
    await conn.execute("delete from weft.job_done")
    assert await client.jobs.submit(definition, idempotency_key="once") == (job_id, False)
    assert await client.jobs.submit_graph("graph", Task("work"), idempotency_key="once") == (job_id, False)
    assert again.created
    await conn.execute("delete from weft.idempotency_key")
    assert (await client.jobs.submit(definition, idempotency_key="once")).created


async def test_what_a_task_has_made_is_known_to_its_later_attempts_for_as_long_as_its_job_goes_on(
    url: str, client: weft.Client
) -> None:
    job_id = (await client.jobs.submit(flow(only={"handler": "work"}))).id
    async with job_sessions(url, 1) as (worker,):
        await worker.register()
        (parent,) = await worker.claim()
        spawn = """select id from weft.spawn($1, $2, $3, '1', 'work', 'default', '{}', 0, 1::smallint, null, null, null,
                   null, false)"""
        child = await worker.conn.fetchval(spawn, worker.worker_id, parent.id, parent.attempt)
        assert await worker.complete(*await worker.claim())
        nothing = timedelta(0)
        assert (await upkeep.prune_keys(worker.conn, nothing, 0))[0] == 0
        assert await worker.conn.fetchval(spawn, worker.worker_id, parent.id, parent.attempt) == child
        assert await worker.complete(parent)
        await drained(worker)
        assert await worker.job_state(job_id) == "completed"
        assert (await upkeep.prune_keys(worker.conn, nothing, 0))[0] == 1


async def test_a_step_that_is_parked_is_in_a_queue_that_stays(url: str, client: weft.Client) -> None:
    job_id = (await client.jobs.submit(flow(one={"handler": "work", "next": "all"}, all={"type": "fan_in"}))).id
    async with job_sessions(url, 2) as (engine, worker):
        await engine.orchestrate()
        await worker.register()
        await worker.conn.execute("update weft.job set owner_id = $1", engine.worker_id)
        assert await worker.complete(*await worker.claim())
        await client.jobs.pause(job_id)
        assert await engine.claim(1, (CONTROL, -engine.worker_id)) == []
        parked = "select queue_id from weft.task where reason = 'job_paused'"
        assert await engine.conn.fetchval(parked) == CONTROL
        await client.jobs.resume(job_id)
        await drained(engine)


async def test_a_key_that_expires_while_it_is_asked_for_is_that_of_a_new_job(url: str, client: weft.Client) -> None:
    definition = flow(only={"handler": "work"})
    job_id = (await client.jobs.submit(definition, idempotency_key="once")).id
    async with job_sessions(url, 2) as (pruner, watcher):
        async with pruner.conn.transaction():
            await pruner.conn.execute("delete from weft.idempotency_key")
            asked = asyncio.create_task(client.jobs.submit(definition, idempotency_key="once"))
            await until(lambda: watcher.conn.fetch(WAITING), "whoever asks waits for whoever prunes")
        found = await asked
    assert found.created
    assert found.id != job_id


# --- operators ---


async def test_a_failure_of_which_the_engine_has_not_heard_is_not_purged(url: str, client: weft.Client) -> None:
    definition = flow(
        on_failure="finish_independent", bad={"handler": "work", "next": "after"}, after={"handler": "work"}
    )
    job_id = (await client.jobs.submit(definition)).id
    async with job_sessions(url, 1) as (worker,):
        await worker.register()
        assert await worker.fail(*await worker.claim())
        assert await client.count_dead() == 0
        assert await client.purge() == 0
        await drained(worker)
        assert await worker.job_state(job_id) == "failed"
        assert await client.purge() == 1


async def test_the_end_of_a_job_and_the_steps_of_the_engine_are_not_cancelled_by_themselves(
    url: str, client: weft.Client
) -> None:
    job_id = (await client.jobs.submit(flow(bad={"handler": "work", "next": "after"}, after={"handler": "work"}))).id
    async with job_sessions(url, 1) as (worker,):
        await worker.register()
        assert await worker.fail(*await worker.claim())
        steps = await worker.conn.fetch("select id from weft.task where handler in ('@end', '@fail') order by id")
        assert len(steps) == 2
        for step in steps:
            with pytest.raises(weft.StateConflict, match=f"weft jobs cancel {job_id}"):
                await client.cancel(step["id"])
        assert await client.cancel_all() == 1
        await drained(worker)
        assert await worker.job_state(job_id) == "failed"
        await check(worker.conn)
