"""The tools that users test with: a database for each test, and a clock that the test moves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import asyncpg
import pytest

import weft
from reset import Emptier
from weft.testing import Runner, ScratchDatabase, ScratchServer
from weft.worker.registry import Registry

HOUR = timedelta(hours=1)


class Scene:
    """Handlers that wait, and what they were given."""

    def __init__(self) -> None:
        self.registry = Registry()
        self.given: list[Any] = []
        every_hour = weft.Retry(max_attempts=25, backoff="fixed", initial_delay=3600, max_delay=3600, jitter=0)
        self.stubborn = self.registry.task(name="stubborn", retry=every_hour)(self._stubborn)
        self.sleep = self.registry.task(name="sleep", retry=0, timeout=3600)(self._sleep)
        self.hang = self.registry.task(name="hang", retry=0, timeout=3600)(self._hang)
        self.snooze = self.registry.task(name="snooze", retry=0)(self._snooze)
        self.parent = self.registry.task(name="parent")(self._parent)
        self.say = self.registry.task(name="say")(self._say)

    async def _parent(self, ctx: weft.Context) -> Any:
        return await ctx.gather(await ctx.spawn(self.stubborn, {"until": 3}))

    async def _stubborn(self, until: int) -> int:
        self.given.append(until)
        if len(self.given) < until:
            raise ValueError("not yet")
        return len(self.given)

    async def _sleep(self, seconds: float, ctx: weft.Context) -> str:
        await asyncio.sleep(seconds)
        return f"slept {seconds:g}"

    async def _hang(self) -> None:
        await asyncio.Event().wait()

    async def _snooze(self, ctx: weft.Context) -> int:
        if ctx.attempt < 3:
            raise weft.Snooze(6 * 3600)
        return ctx.attempt

    def _say(self, value: Any) -> Any:
        self.given.append(value)
        return value


@pytest.fixture
def scene() -> Scene:
    return Scene()


@pytest.fixture(scope="module")
def scratch_server(server_url: str) -> Iterator[ScratchServer]:
    server = ScratchServer(server_url)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def scratch(scratch_server: ScratchServer) -> Iterator[ScratchDatabase]:
    database = scratch_server.take()
    yield database
    scratch_server.give_back(database)


@pytest.fixture
async def runner(scratch: ScratchDatabase, scene: Scene) -> AsyncIterator[Runner]:
    async with Runner(scratch, registry=scene.registry) as started:
        yield started


async def test_a_day_of_retries_passes_each_at_its_moment(runner: Runner, scene: Scene) -> None:
    stubborn = scene.stubborn

    @weft.workflow
    def retries(until: int) -> int:
        return stubborn(until)  # type: ignore[return-value]

    job = await runner.run(retries, {"until": 24})
    assert (job.state, job.result) == ("completed", 24)
    assert job.ended_at is not None
    assert 23 * HOUR <= job.ended_at - job.created_at < 24 * HOUR
    assert await runner.now() >= job.ended_at


async def test_time_passes_only_as_far_as_the_test_says(runner: Runner, scene: Scene) -> None:
    stubborn = scene.stubborn

    @weft.workflow
    def retries(until: int) -> int:
        return stubborn(until)  # type: ignore[return-value]

    job_id = await runner.submit(retries, {"until": 5})
    await runner.settle()
    assert len(scene.given) == 1
    await runner.advance(minutes=59)
    assert (len(scene.given), (await runner.job(job_id)).state) == (1, "running")
    await runner.advance(minutes=2)
    assert len(scene.given) == 2
    await runner.advance(hours=10)
    assert (len(scene.given), await runner.result(job_id)) == (5, 5)


async def test_a_handler_sleeps_no_longer_than_a_moment_and_not_past_its_timeout(runner: Runner, scene: Scene) -> None:
    sleep = scene.sleep

    @weft.workflow(on_failure="finish_independent")
    def sleeps() -> Any:
        return [sleep.using(allow_failure=True)(seconds) for seconds in (60, 1800, 7200)]  # type: ignore[call-arg]

    job = await runner.run(sleeps)
    assert (job.state, job.result) == ("completed", ["slept 60", "slept 1800", None])
    last = (await runner.nodes(job.id))["_sleep_3"]
    assert (last.reason, last.error["type"]) == ("timeout", "TimeoutError")  # type: ignore[index]


async def test_what_hangs_runs_out_of_time_when_the_test_lets_it(runner: Runner, scene: Scene) -> None:
    hang = scene.hang

    @weft.workflow
    def hangs() -> Any:
        return hang()

    job_id = await runner.submit(hangs)
    await runner.advance(minutes=59)
    assert (await runner.job(job_id)).state == "running"
    await runner.advance(minutes=2)
    with pytest.raises(weft.JobFailed, match="failed at '_hang': TimeoutError"):
        await runner.result(job_id)


async def test_snoozes_waits_and_limits_of_jobs_go_by_the_same_clock(runner: Runner, scene: Scene) -> None:
    snooze, say = scene.snooze, scene.say

    @weft.workflow
    def snoozes() -> Any:
        return snooze()  # type: ignore[call-arg]

    @weft.workflow(timeout=timedelta(days=90))
    def waits(skips: bool = True) -> Any:
        late = weft.wait_for_event("never", timeout=timedelta(days=30), on_timeout="skip")
        return say.named("after")(late)

    @weft.workflow(timeout=timedelta(hours=2))
    def has_two_hours() -> Any:
        return weft.wait_for_approval("ask")

    assert (await runner.run(snoozes)).result == 3
    job = await runner.run(waits)
    assert (job.state, (await runner.nodes(job.id))["event"].state) == ("completed", "skipped")
    job = await runner.run(has_two_hours)
    assert (job.state, job.reason) == ("failed", "timeout")


async def test_a_worker_outlives_a_year_in_which_nothing_is_due(
    runner: Runner, scene: Scene, scratch: ScratchDatabase
) -> None:
    say = scene.say

    @weft.workflow
    def says(value: int) -> Any:
        return say(value)

    async with scratch.client() as client:
        before = {worker.id for worker in await client.workers()}
        for year in range(3):
            assert (await runner.run(says, {"value": year})).result == year
            await runner.advance(days=365)
        workers = await client.workers()
        assert {worker.id for worker in workers} == before
        assert all(worker.state in ("active", "idle") for worker in workers)


async def test_people_and_events_are_answered_by_the_test(runner: Runner, scene: Scene) -> None:
    say = scene.say

    @weft.workflow
    def asks() -> Any:
        asked = weft.wait_for_approval("ask", form={"n": {"type": "integer", "required": True}}, timeout=7200)
        arrived = weft.wait_for_event("file.arrived")
        asked >> arrived
        return say([asked["values"].n, arrived.path])

    job_id = await runner.submit(asks)
    await runner.advance(hours=1)
    await runner.approve(job_id, "ask", {"n": 4})
    assert await runner.send_event("file.arrived", {"path": "x"}) == 1
    assert await runner.result(job_id) == [4, "x"]
    rejected = await runner.submit(asks)
    await runner.approve(rejected, reject=True)
    with pytest.raises(weft.JobFailed, match="Rejected"):
        await runner.result(rejected)


async def test_every_queue_that_a_workflow_names_is_worked(runner: Runner, scratch: ScratchDatabase) -> None:
    inner = {
        "workflow_id": "inner",
        "nodes": {
            "START": {"type": "start", "next": "each"},
            "each": {
                "type": "fan_out", "items": [1, 2], "next": "END",
                "task": {"handler": "say", "queue": "heavy", "params": {"value": "{{ item }}"}},
            },
            "END": {"type": "end"},
        },
    }  # fmt: skip
    outer = {
        "workflow_id": "outer",
        "nodes": {
            "START": {"type": "start", "next": "light"},
            "light": {"handler": "say", "queue": "light", "params": {"value": 3}, "next": "call"},
            "call": {"type": "workflow", "workflow": "inner", "next": "END"},
            "END": {"type": "end", "output": "{{ nodes.light.output }}"},
        },
    }
    async with scratch.client() as client:
        await client.workflows.push(inner)
    assert (await runner.run(outer)).result == 3


async def test_stand_ins_take_the_place_of_handlers(scratch: ScratchDatabase, scene: Scene) -> None:
    say, snooze = scene.say, scene.snooze

    @weft.workflow
    def both() -> Any:
        return [say(1), snooze()]  # type: ignore[call-arg]

    stand_ins = {"say": lambda value: f"not {value}", "snooze": lambda: "at once"}
    async with Runner(scratch, registry=scene.registry, handlers=stand_ins) as runner:
        assert (await runner.run(both)).result == ["not 1", "at once"]
    with pytest.raises(weft.InvalidInput, match="Did you mean 'snooze'"):
        Runner(scratch, registry=scene.registry, handlers={"snoze": lambda: None})


async def test_a_task_that_waits_for_others_lets_their_time_pass(runner: Runner, scene: Scene) -> None:
    parent = scene.parent

    @weft.workflow
    def spawns() -> Any:
        return parent()  # type: ignore[call-arg]

    job = await runner.run(spawns)
    assert (job.state, job.result, job.error) == ("completed", [3], None)
    assert job.ended_at is not None
    assert job.ended_at - job.created_at >= 2 * HOUR


async def test_what_never_ends_is_told(runner: Runner, scene: Scene) -> None:
    @weft.workflow(timeout=timedelta(days=300))
    def waits() -> Any:
        return weft.wait_for_approval("ask")

    with pytest.raises(weft.WaitTimeout):
        await runner.run(waits, within=timedelta(days=7))
    with pytest.raises(weft.InvalidInput, match="time does not go back"):
        await runner.advance(hours=-1)


async def test_only_a_scratch_database_has_a_clock_that_moves(
    url: str, tmp_path: Path, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    with pytest.raises(weft.InvalidInput, match="its clock cannot be moved"):
        async with Runner(ScratchDatabase(url, tmp_path)):
            pass
    assert "clock_timestamp()" in await conn.fetchval("select pg_get_functiondef('weft.now'::regproc)")
    assert await conn.fetchval("select count(*) from weft.worker") == 0


async def test_each_test_has_a_database_without_anything_of_others(
    scratch_server: ScratchServer, runner: Runner, scratch: ScratchDatabase
) -> None:
    other = scratch_server.take()
    assert other.url != scratch.url
    async with scratch.client() as client:
        await client.enqueue("say", {"value": 1}, queue=None)
        await runner.advance(days=40)
        async with other.client() as elsewhere:
            assert (len((await client.list_tasks()).tasks), len((await elsewhere.list_tasks()).tasks)) == (1, 0)
            await elsewhere.create_queue("mail")
            await elsewhere.enqueue("say", {"value": 1}, queue="mail")
    scratch_server.give_back(other)
    again = scratch_server.take()
    assert again.url == other.url
    async with again.client() as client:
        assert (await client.list_tasks()).tasks == ()
        assert [queue.name for queue in await client.queues()] == ["default"]
    scratch_server.give_back(again)


async def test_an_emptied_database_has_the_partitions_of_a_new_one(emptied_url: str, emptier: Emptier) -> None:
    """Those of days that only the clock of a test reached would burden all tests that follow."""
    count = "select count(*) from pg_class where relnamespace = 'weft'::regnamespace and relispartition"
    conn = await asyncpg.connect(emptied_url)
    usual = await conn.fetchval(count)
    assert await conn.fetchval("select weft.ensure_partitions(9)") > 0
    await conn.close()
    emptier.empty()
    conn = await asyncpg.connect(emptied_url)
    assert await conn.fetchval(count) == usual
    await conn.close()
