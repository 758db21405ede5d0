"""Races of jobs, each run in every order: sessions are stepped statement by statement, and wait for each other's locks."""

from __future__ import annotations

import asyncio
import itertools
from datetime import timedelta
from typing import Any

import pytest

import weft
from crash.checker import check
from crash.job_sessions import CONTROL, JobSession, flow, job_sessions
from weft.queue import operate, upkeep
from weft.queue.work import Claim

ONE = flow(only={"handler": "work"})
TWO = flow(on_failure="finish_independent", one={"handler": "work", "next": "then"}, then={"handler": "work"})
ASKING = flow(ask={"type": "wait", "for": "approval", "timeout_seconds": 60})


async def _drained(session: JobSession) -> None:
    """Carry out all that orchestrators and workers have left to do, as one that knows no handler but the engine's."""
    await session.orchestrate()
    for _ in range(100):
        claims = await session.claim(1, (CONTROL, -session.worker_id, 1))
        if not claims:
            break
        (claim,) = claims
        if claim.handler in ("@fail", "@sweep"):
            await session.carry_out(claim)
        else:
            assert await session.finish(claim)
        await check(session.conn)
    assert await session.conn.fetch("select id, handler, state::text, reason from weft.task") == []
    assert await session.conn.fetchval("select count(*) from weft.job") == 0


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
        await _drained(other)
        assert await other.job_state(job_id) == "cancelled"


async def test_a_failure_of_which_the_engine_hears_after_a_cancel_counts_no_more(url: str, client: weft.Client) -> None:
    job_id = (await client.jobs.submit(TWO)).id
    async with job_sessions(url, 3) as (worker, engine, other):
        await worker.register()
        (claim,) = await worker.claim()
        assert await worker.fail(claim)
        await client.jobs.cancel(job_id)
        await _drained(other)
        assert await other.job_state(job_id) == "cancelled"


@pytest.mark.parametrize("handler", ["@fail", "@skip"])
async def test_a_step_of_the_engine_that_was_in_too_many_crashes_is_begun_anew(
    url: str, client: weft.Client, handler: str
) -> None:
    """Nobody else would ever do it, and what comes after the failure would wait for ever."""
    job_id = (await client.jobs.submit(TWO)).id
    async with job_sessions(url, 4) as (worker, unlucky, rescuer, other):
        await worker.register()
        (claim,) = await worker.claim()
        assert await worker.fail(claim)
        await unlucky.orchestrate()
        step = await unlucky.take("@fail")
        if handler == "@skip":
            then = await other.task_of(job_id, "then")
            await other.conn.execute(
                "update weft.task set handler = '@skip', params = json_build_object('ids', json_build_array($1::text),"
                " 'why', 'upstream_failed') where id = $2", str(then), step.id,
            )  # fmt: skip
        await unlucky.lapse()
        assert await rescuer.rescue(unlucky.worker_id, loss_limit=1) == 1
        await check(rescuer.conn)
        again = "select params from weft.task where handler = $1"
        assert await other.conn.fetchval(again, handler) is not None


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
        await _drained(other)
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
        await _drained(other)
        assert await other.job_state(job_id) == "cancelled"


async def test_a_step_in_the_queue_of_its_owner_is_told_of_when_its_owner_is_forgotten(
    url: str, client: weft.Client
) -> None:
    """The queue of an owner goes with it; what was skipped there must not go from all lists."""
    choose = {"type": "conditional", "condition_field": 1, "branches": [{"default": True, "next": "later"}]}
    later = {"type": "conditional", "condition_field": 1, "branches": [{"default": True, "next": "END"}]}
    job_id = (await client.jobs.submit(flow(choose=choose, later=later))).id
    async with job_sessions(url, 2) as (engine, other):
        await engine.orchestrate()
        assert await engine.finish(await engine.take("@conditional"), '{"branch": 0}')
        await client.jobs.cancel(job_id)
        await check(other.conn)
        assert await other.state_of(await other.task_of(job_id, "later")) == "cancelled"
