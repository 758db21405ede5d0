"""What nobody may do about a job at the wrong moment, though nobody asks for it now: each guard by itself."""

from __future__ import annotations

import weft
from crash.job_sessions import drained, flow, job_sessions
from weft.jobs.submit import SQL


async def test_a_job_that_goes_on_is_not_swept_away(url: str, client: weft.Client) -> None:
    job_id = (await client.jobs.submit(flow(one={"handler": "work", "next": "two"}, two={"handler": "work"}))).id
    async with job_sessions(url, 1) as (engine,):
        before = await engine.states(job_id)
        assert await engine.conn.fetchval(SQL.sweep, job_id, 1000) is False
        assert await engine.states(job_id) == before


async def test_a_job_runs_from_the_moment_in_which_a_worker_begins_the_first_of_its_tasks(
    url: str, client: weft.Client
) -> None:
    job_id = (await client.jobs.submit(flow(only={"handler": "work"}))).id
    async with job_sessions(url, 1) as (worker,):
        await worker.register()
        assert await worker.job_state(job_id) == "pending"
        assert len(await worker.claim()) == 1
        assert await worker.job_state(job_id) == "running"
        assert (await client.jobs.show(job_id)).started_at is not None


async def test_only_a_job_that_is_paused_is_resumed(url: str, client: weft.Client) -> None:
    job_id = (await client.jobs.submit(flow(only={"handler": "work"}))).id
    async with job_sessions(url, 1) as (other,):
        assert await other.conn.fetchval(SQL.resume, 1, job_id) is False
        assert await other.cancel_job(job_id)
        assert await other.conn.fetchval(SQL.resume, 1, job_id) is False
        assert await other.job_state(job_id) == "cancelling"
        await drained(other)
