"""Who owns a job: the orchestrator that took its first step, until it is gone; then another."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import asyncpg
import pytest
from engine_scene import until

import weft
from weft.queue import workers
from weft.worker.registry import Registry

_ALWAYS = {"type": "conditional", "condition_field": "{{ 1 }}"}


def _flow() -> dict[str, Any]:
    """Return control steps with tasks between them."""
    nodes = {"START": {"type": "start", "next": "choose"}}
    names = ["choose", "first", "decide", "second", "END"]
    for name, following in itertools.pairwise(names):
        if name in ("choose", "decide"):
            nodes[name] = {**_ALWAYS, "branches": [{"default": True, "next": following}]}
        else:
            nodes[name] = {"handler": name, "next": following}
    return {"workflow_id": "owned", "nodes": {**nodes, "END": {"type": "end"}}}


class _Handlers:
    """A first task that waits for leave, and a second one that does not."""

    def __init__(self) -> None:
        self.registry = Registry()
        self.begun, self.leave = asyncio.Event(), asyncio.Event()
        self.registry.task(name="first")(self.first)
        self.registry.task(name="second")(self.second)

    async def first(self) -> None:
        self.begun.set()
        await self.leave.wait()

    async def second(self) -> None:
        pass


@pytest.fixture
def handlers() -> _Handlers:
    return _Handlers()


async def _registered(conn: asyncpg.Connection[asyncpg.Record]) -> int:
    """Register an orchestrator of which there is nothing but the row."""
    ghost = await conn.fetchval(
        """insert into weft.worker (org_id, until, concurrency, pid, hostname, version, queues, handlers)
           values (1, weft.now() + interval '1 hour', 1, 1, 'gone', '0', '{2}', '{}') returning id"""
    )
    await workers.own_queue(conn, ghost)
    return int(ghost)


async def _ghost(conn: asyncpg.Connection[asyncpg.Record]) -> int:
    """Register one, and let it take the first step of a job."""
    ghost = await _registered(conn)
    claim = """select id, attempt from weft.finish_and_claim($1, $2, $3, $4, array[2, -$1::bigint], '{-1,-1}',
                 '{-32768,-32768}', '{0,0}', '{0,0}', $5, true, null)"""
    step = await conn.fetchrow(claim, ghost, [], [], [], 1)
    assert step is not None
    assert await conn.fetch(claim, ghost, [step["id"]], [step["attempt"]], ['{"branch": 0}'], 0) == []
    return ghost


async def _lapse(conn: asyncpg.Connection[asyncpg.Record], worker_id: int) -> None:
    await conn.execute("update weft.worker set until = weft.now() where id = $1", worker_id)


async def test_an_orchestrator_owns_the_jobs_whose_first_step_it_took_and_keeps_their_later_steps(
    client: weft.Client, conn: asyncpg.Connection[asyncpg.Record], handlers: _Handlers
) -> None:
    handlers.leave.set()
    async with (
        weft.Worker(client=client, registry=handlers.registry),
        weft.Orchestrator(client=client) as one,
        weft.Orchestrator(client=client) as two,
    ):
        ids = [(await client.jobs.submit(_flow())).id for _ in range(20)]
        jobs = [await client.jobs.wait(job_id, timeout=30) for job_id in ids]
        known = {one.process.id, two.process.id}
    assert {job.state for job in jobs} == {"completed"}
    assert {job.owner_id for job in jobs} <= known
    for job in jobs:
        steps = await conn.fetch(
            "select distinct worker_id from weft.task_done where job_id = $1 and queue_id < 3 and handler like '@%'",
            job.id,
        )
        assert [step["worker_id"] for step in steps] == [job.owner_id]


async def test_one_that_stops_leaves_its_jobs_to_others(
    client: weft.Client, conn: asyncpg.Connection[asyncpg.Record], handlers: _Handlers
) -> None:
    async with weft.Worker(client=client, registry=handlers.registry):
        async with weft.Orchestrator(client=client) as first:
            job = await client.jobs.submit(_flow())
            await handlers.begun.wait()
            assert (await client.jobs.show(job.id)).owner_id == first.process.id
        assert (await client.jobs.show(job.id)).owner_id is None
        handlers.leave.set()
        await until(lambda: conn.fetchval("select count(*) from weft.task where state = 'ready' and queue_id = 2"))
        async with weft.Orchestrator(client=client) as second:
            ended = await client.jobs.wait(job.id, timeout=30)
            assert (ended.state, ended.owner_id) == ("completed", second.process.id)


async def test_the_jobs_of_one_that_is_lost_are_adopted_with_their_steps(
    client: weft.Client, conn: asyncpg.Connection[asyncpg.Record], handlers: _Handlers
) -> None:
    job = await client.jobs.submit(_flow())
    ghost = await _ghost(conn)
    async with weft.Worker(client=client, registry=handlers.registry):
        assert (await client.jobs.show(job.id)).owner_id == ghost
        handlers.leave.set()
        waiting = "select count(*) from weft.task where state = 'ready' and queue_id = $1"
        await until(lambda: conn.fetchval(waiting, -ghost))
        async with weft.Orchestrator(client=client) as heir:
            # Its owner may be busy: nobody else takes the step while it lives.
            assert await workers.adopt_jobs(conn, heir.process.id) == 0
            assert await conn.fetchval(waiting, -ghost) == 1
            await _lapse(conn, ghost)
            ended = await client.jobs.wait(job.id, timeout=30)
            assert (ended.state, ended.owner_id) == ("completed", heir.process.id)


async def test_a_step_that_comes_late_to_the_queue_of_one_that_is_gone_is_found(
    client: weft.Client, conn: asyncpg.Connection[asyncpg.Record], handlers: _Handlers
) -> None:
    """Whoever releases it may have read the job before it was adopted."""
    job = await client.jobs.submit(_flow())
    ghost = await _ghost(conn)
    await _lapse(conn, ghost)
    async with weft.Orchestrator(client=client) as heir:
        await until(lambda: client.jobs.show(job.id), lambda shown: shown.owner_id == heir.process.id)
        await conn.execute("update weft.job set owner_id = $1", ghost)
        async with weft.Worker(client=client, registry=handlers.registry):
            handlers.leave.set()
            ended = await client.jobs.wait(job.id, timeout=30)
    assert (ended.state, ended.owner_id) == ("completed", heir.process.id)


async def test_the_queue_of_one_that_is_gone_goes_with_its_name_in_the_registry(
    client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    await client.jobs.submit(_flow())
    ghost = await _ghost(conn)
    queue = "select count(*) from weft.queue where id = -$1::bigint"
    await _lapse(conn, ghost)
    async with weft.Orchestrator(client=client) as heir:
        await workers.adopt_jobs(conn, heir.process.id)
        assert await conn.fetchval(queue, ghost) == 1
        await conn.execute("delete from weft.worker where id = $1", ghost)
        await workers.adopt_jobs(conn, heir.process.id)
        assert await conn.fetchval(queue, ghost) == 0


async def test_a_job_that_is_paused_and_resumed_goes_on_with_its_owner(
    client: weft.Client, conn: asyncpg.Connection[asyncpg.Record], handlers: _Handlers
) -> None:
    async with weft.Worker(client=client, registry=handlers.registry), weft.Orchestrator(client=client) as owner:
        job = await client.jobs.submit(_flow())
        await handlers.begun.wait()
        await client.jobs.pause(job.id)
        handlers.leave.set()
        await until(lambda: conn.fetchval("select count(*) from weft.task where reason = 'job_paused'"))
        await client.jobs.resume(job.id)
        assert (await client.jobs.wait(job.id, timeout=30)).owner_id == owner.process.id


async def test_one_whose_lease_has_lapsed_is_gone_before_anybody_has_marked_it(
    client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    job = await client.jobs.submit(_flow())
    heir = await _ghost(conn)
    await conn.execute("update weft.job set owner_id = $1", gone := await _registered(conn))
    assert await workers.adopt_jobs(conn, heir) == 0
    await _lapse(conn, gone)
    assert await workers.adopt_jobs(conn, heir) == 1
    assert (await client.jobs.show(job.id)).owner_id == heir
