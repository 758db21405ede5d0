"""The checker of jobs has teeth: a breach of each law, planted by hand, is found."""

from __future__ import annotations

import pytest

import weft
from crash.checker import check
from crash.job_laws import JOB_LAWS
from crash.job_sessions import JobSession, flow, job_sessions

DEFINITION = flow(
    first={"handler": "work", "next": ["ask", "each", "call"]},
    ask={"type": "wait", "for": "approval"},
    each={"type": "fan_out", "items": [], "task": {"handler": "work"}},
    call={"type": "workflow", "workflow": "inner"},
)
ITEM = """
  insert into weft.task (id, org_id, queue_id, order_id, rank, state, handler, job_id, node, parent_id, item,
    counts_for)
  values (weft.next_id(), 1, 1, 1, 0, 'ready', 'work', {job}, 'each', {each}, 0, {each})"""
DONE = """
  insert into weft.job_done (id, org_id, end_id, created_at, ended_at, state, rank, finishes_independent, workflow_id,
    base_kind, inputs)
  select id, org_id, end_id, created_at, weft.now(), 'STATE', rank, false, workflow_id, base_kind, inputs
  from weft.job where id = {job}"""
STEP = "select weft.put_control(1, {job}, 0::smallint, '@sweep', '{{}}')"

# For each law what to do to a job of which the first node has ended, and the others wait in every way there is.
BREACHES = {
    "S2: a job is either": [[DONE.replace("STATE", "completed")]],
    "S2: a job that is live": [
        ["update weft.job set state = 'failed'"],
        [DONE.replace("STATE", "running"), "delete from weft.job where id = {job}"],
    ],
    "S2: there is one task": [[ITEM, ITEM]],
    "S1: a job that is live has its end": [
        ["delete from weft.task where handler = '@end' and job_id = {job}"],
        ["update weft.job set end_id = {ask} where id = {job}"],
    ],
    "S5: nothing is left": [
        ["delete from weft.job where id = {job}"],
        [
            STEP,
            "update weft.task set state = 'pending' where handler = '@sweep'",
            "delete from weft.job where id = {job}",
            "delete from weft.task where handler <> '@sweep'",
        ],
    ],
    "S5: a job that has ended": [[DONE.replace("STATE", "completed"), "delete from weft.job where id = {job}"]],
    "S6: nothing of a job": [["update weft.job set state = 'pending'"]],
    "S8: what waits": [
        ["update weft.task set waiting_on = waiting_on + 1 where handler = '@end'"],
        ["update weft.task set waiting_on = waiting_on - 1 where handler = '@end'"],
        [ITEM],
    ],
    "L2: nothing of a job waits": [["delete from weft.task where job_id = {job} and handler <> '@end'"]],
    "L2: what is parked": [["update weft.task set state = 'pending', reason = 'job_paused' where id = {each}"]],
    "L2: a job that is cancelling": [
        ["update weft.job set state = 'cancelling', verdict = 'failed'"],
        [STEP, "update weft.job set state = 'cancelling', verdict = null"],
        [
            "update weft.job set state = 'cancelling', verdict = 'failed'",
            "delete from weft.task where handler <> '@end'",
        ],
    ],
    "L2: what is in the state": [["delete from weft.awaited"], ["delete from weft.job where parent_id is not null"]],
    "L2: an answer": [
        ["update weft.task set state = 'ready' where id = {ask}"],
        ["delete from weft.task where id = {ask}"],
        ["delete from weft.task where id = {call}"],
    ],
    "S4: the queue": [
        ["update weft.task set queue_id = -{owner}, state = 'running' where id = {each}"],
        ["update weft.task set queue_id = -{owner}, handler = 'work' where id = {each}"],
        ["update weft.task_done set queue_id = -{owner}"],
    ],
    "S8: the task by which": [
        ["update weft.job set failed_id = end_id"],
        ["update weft.job set failed_id = (select id from weft.task_done where node = 'first')"],
    ],
    "S9: a job": [["update weft.task set org_id = 2 where id = {each}"], ["update weft.task_done set org_id = 2"]],
}  # fmt: skip


async def _begun(client: weft.Client, session: JobSession) -> dict[str, int]:
    """Make a job that waits in every way there is; return its id, that of its owner, and those of its tasks."""
    await client.workflows.push(flow(name="inner", only={"handler": "work"}))
    job_id = (await client.jobs.submit(DEFINITION)).id
    await session.register()
    (first,) = await session.claim()
    assert await session.finish(first)
    owner = await session.orchestrate()
    claims = {claim.node: claim for claim in await session.claim(3, (2, -owner))}
    assert await session.wait_for_event(claims["ask"])
    inner = await client.jobs.submit("inner")
    async with session.conn.transaction():
        await session.conn.execute("update weft.job set parent_id = $1 where id = $2", claims["call"].id, inner.id)
        await session.conn.execute(
            "update weft.task set state = 'waiting', worker_id = null where id = $1", claims["call"].id
        )
    tasks = {str(node): claim.id for node, claim in claims.items()}
    return {"job": job_id, "owner": owner, **tasks}


@pytest.mark.parametrize("law", JOB_LAWS)
async def test_a_breach_of_each_law_of_jobs_is_found(url: str, client: weft.Client, law: str) -> None:
    async with job_sessions(url, 1) as (session,):
        ids = await _begun(client, session)
        await check(session.conn)
        for steps in next(ways for start, ways in BREACHES.items() if law.startswith(start)):
            breaking = session.conn.transaction()
            await breaking.start()
            for statement in steps:
                await session.conn.execute(statement.format(**ids))
            found = await _broken(session, law)
            await breaking.rollback()
            assert found, steps


async def _broken(session: JobSession, law: str) -> bool:
    return bool(await session.conn.fetch(f"{JOB_LAWS[law]} limit 1"))


def test_each_law_of_jobs_is_broken_by_a_test() -> None:
    assert all(any(law.startswith(start) for start in BREACHES) for law in JOB_LAWS)
