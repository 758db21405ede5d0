"""Tasks that make further tasks: counted for what comes after, the same in every attempt, never in each other's way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import process_handlers
import pytest
from engine_scene import MakeClient, until

import weft
from far import with_and_without_a_database
from weft.jobs.items import Group, Task
from weft.worker.registry import Registry


class Handlers:
    """Handlers that make tasks, and what happened, in order."""

    def __init__(self) -> None:
        self.registry = Registry()
        self.said: list[Any] = []
        self.leave = asyncio.Event()
        self.attempts = 0
        for name in ("say", "hold", "fib", "family", "again", "strict", "lenient", "named", "parent", "other"):
            self.registry.task(name=name, retry=weft.Retry(max_attempts=3, initial_delay=0.001))(getattr(self, name))

    async def say(self, name: Any) -> Any:
        self.said.append(name)
        return name

    async def hold(self) -> str:
        await self.leave.wait()
        self.said.append("held")
        return "held"

    async def fib(self, n: int, ctx: weft.Context) -> int:
        if n < 2:
            return n
        one = await ctx.spawn("fib", {"n": n - 1})
        two = await ctx.spawn("fib", {"n": n - 2})
        return sum(await ctx.gather(one, two))

    async def family(self, ctx: weft.Context, depth: int = 2) -> None:
        """Make others, and wait for none of them."""
        self.said.append(f"family {depth}")
        if depth:
            await ctx.spawn("family", {"depth": depth - 1})
        else:
            await ctx.spawn("hold")

    async def again(self, ctx: weft.Context) -> list[Any]:
        self.attempts += 1
        parts = [await ctx.spawn("say", {"name": number}) for number in range(3)]
        if self.attempts < 3:
            raise ValueError("once more")
        return [*(part.id for part in parts), *await ctx.gather(*parts)]

    async def strict(self, ctx: weft.Context) -> None:
        await (await ctx.spawn("nobody", queue="nowhere")).result()

    async def lenient(self, ctx: weft.Context) -> str:
        part = await ctx.spawn("fail", max_attempts=1, allow_failure=True)
        with pytest.raises(weft.TaskFailed, match="as drawn"):
            await part.result()
        return "went on"

    async def named(self, ctx: weft.Context) -> Any:
        self.attempts += 1
        names = ["a", "b"] if self.attempts == 1 else ["b", "a"]
        parts = {name: await ctx.spawn("say", {"name": name}, key=name) for name in names}
        if self.attempts == 1:
            raise ValueError("once more")
        return {name: await part.result() for name, part in parts.items()}

    async def parent(self, ctx: weft.Context) -> Any:
        return await (await ctx.spawn("hold")).result()

    async def other(self, ctx: weft.Context) -> Any:
        self.attempts += 1
        await ctx.spawn("say" if self.attempts == 1 else "hold", {"name": 1} if self.attempts == 1 else {})
        raise ValueError("once more")


@pytest.fixture
def handlers() -> Handlers:
    return Handlers()


@asynccontextmanager
async def at_work(client: weft.Client, handlers: Handlers, concurrency: int = 10) -> AsyncIterator[None]:
    worker = weft.Worker(client=client, registry=handlers.registry, concurrency=concurrency)
    async with worker, weft.Orchestrator(client=client):
        yield


async def _result(client: weft.Client, handlers: Handlers, *items: Any, concurrency: int = 10) -> weft.Job:
    async with at_work(client, handlers, concurrency):
        job = await client.jobs.submit_graph("tried", items)
        return await client.jobs.wait(job.id, timeout=60)


async def test_a_worker_of_one_slot_runs_what_its_tasks_wait_for(client: weft.Client, handlers: Handlers) -> None:
    job = await _result(client, handlers, Task("fib", {"n": 7}), concurrency=1)
    assert (job.state, job.result) == ("completed", 13)


@with_and_without_a_database
async def test_a_queue_of_one_slot_runs_what_its_tasks_wait_for(client: weft.Client, handlers: Handlers) -> None:
    await client.limit_queue("default", 1)
    job = await _result(client, handlers, Task("fib", {"n": 3}))
    assert (job.state, job.result) == ("completed", 2)


async def test_what_comes_after_a_task_waits_for_all_that_it_made(client: weft.Client, handlers: Handlers) -> None:
    """Also for what those made in their turn, of which nobody waits for an output."""
    group, after = Group("g"), Task("say", {"name": "after"})
    Task("family", group=group)
    group >> after
    async with at_work(client, handlers):
        job = await client.jobs.submit_graph("tried", after)
        await until(lambda: client.jobs.nodes(job.id), lambda _: len(handlers.said) == 3)
        assert handlers.said == ["family 2", "family 1", "family 0"]
        handlers.leave.set()
        assert (await client.jobs.wait(job.id, timeout=60)).state == "completed"
    assert handlers.said[-2:] == ["held", "after"]


@with_and_without_a_database
async def test_a_later_attempt_gets_the_tasks_of_the_first(
    client: weft.Client, handlers: Handlers, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    job = await _result(client, handlers, Task("again", name="again"))
    rows = await conn.fetch("select id from weft.task_done where handler = 'say' order by id")
    assert job.result == [*(row["id"] for row in rows), 0, 1, 2]
    assert sorted(handlers.said) == [0, 1, 2]


async def test_a_named_call_is_the_same_in_whatever_order(client: weft.Client, handlers: Handlers) -> None:
    job = await _result(client, handlers, Task("named", name="named"))
    assert job.result == {"b": "b", "a": "a"}
    assert sorted(handlers.said) == ["a", "b"]


async def test_a_call_that_was_another_before_is_refused(client: weft.Client, handlers: Handlers) -> None:
    job = await _result(client, handlers, Task("other", name="other"))
    assert job.state == "failed"
    assert "an earlier attempt called 'say' here, not 'hold'" in str(job.error)


async def test_a_failure_that_is_allowed_is_told_to_whoever_waits(client: weft.Client, handlers: Handlers) -> None:
    async def fail() -> None:
        raise ValueError("as drawn")

    handlers.registry.task(name="fail")(fail)
    job = await _result(client, handlers, Task("lenient", name="lenient"))
    assert (job.state, job.result) == ("completed", "went on")


async def test_a_queue_that_is_not_there_is_told(client: weft.Client, handlers: Handlers) -> None:
    job = await _result(client, handlers, Task("strict", name="strict"))
    assert "there is no queue 'nowhere'" in str(job.error)


async def test_cancelling_a_job_ends_what_its_tasks_made(
    client: weft.Client, handlers: Handlers, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    async with at_work(client, handlers):
        job = await client.jobs.submit_graph("tried", Task("parent"))
        running = "select count(*) from weft.task where state = 'running' and handler in ('parent', 'hold')"
        await until(lambda: conn.fetchval(running), lambda found: found == 2)
        await client.jobs.cancel(job.id)
        assert (await client.jobs.wait(job.id, timeout=60)).state == "cancelled"
    assert await conn.fetchval("select count(*) from weft.task") == 0


async def test_the_time_of_a_task_does_not_run_while_it_waits(client: weft.Client, handlers: Handlers) -> None:
    async with at_work(client, handlers):
        job = await client.jobs.submit_graph(
            "tried", Task("parent", name="parent", timeout=0.3, heartbeat_timeout=0.3, max_attempts=1)
        )
        await until(lambda: client.list_tasks(handler="hold", state="running"))
        await asyncio.sleep(0.5)
        handlers.leave.set()
        assert (await client.jobs.wait(job.id, timeout=60)).result == "held"


async def test_a_large_value_goes_both_ways(make_client: MakeClient, handlers: Handlers) -> None:
    client = await make_client(inline_limit=1000)
    text = "x" * 5000

    async def large(ctx: weft.Context) -> int:
        return len(await (await ctx.spawn("say", {"name": text})).result())

    handlers.registry.task(name="large")(large)
    assert (await _result(client, handlers, Task("large", name="large"))).result == 5000


async def test_a_sync_handler_makes_tasks_too(client: weft.Client, handlers: Handlers) -> None:
    def threaded(ctx: weft.Context) -> list[Any]:
        parts = [ctx.spawn("say", {"name": number}) for number in range(2)]
        return [*ctx.gather(*parts), parts[0].result()]

    handlers.registry.task(name="threaded")(threaded)
    assert (await _result(client, handlers, Task("threaded", name="threaded"))).result == [0, 1, 0]


async def test_what_cannot_be_made_is_refused_before_anything_is_written(
    client: weft.Client, handlers: Handlers, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    problems: list[str] = []

    async def wrong(ctx: weft.Context) -> None:
        calls: list[Any] = [
            lambda: ctx.spawn("@end"),
            lambda: ctx.spawn("say", {"name": float("nan")}),
            lambda: ctx.spawn("say", queue="@control"),
            lambda: ctx.spawn("say", priority="high"),  # type: ignore[arg-type]
            lambda: ctx.spawn("say", max_attempts=0),
            lambda: ctx.spawn("say", key=""),
            lambda: ctx.gather(1),  # type: ignore[arg-type]
        ]
        for call in calls:
            try:
                await call()
            except weft.InvalidInput as problem:
                problems.append(problem.field)
        await ctx.spawn("say", {"name": 1}, key="k")
        with pytest.raises(weft.InvalidInput, match="occurs twice"):
            await ctx.spawn("say", {"name": 1}, key="k")

    handlers.registry.task(name="wrong")(wrong)
    assert (await _result(client, handlers, Task("wrong"))).state == "completed"
    assert problems == ["handler", "params.name", "queue", "priority", "max_attempts", "key", "tasks"]
    assert await conn.fetchval("select count(*) from weft.task_done where handler = 'say'") == 1


@pytest.mark.parametrize("now", ["attempt = attempt + 1", "worker_id = 1"])
async def test_an_attempt_that_is_no_longer_the_one_makes_nothing(
    client: weft.Client, handlers: Handlers, conn: asyncpg.Connection[asyncpg.Record], now: str
) -> None:
    """It lives on after its task was taken from it, by the same worker even."""
    begun, lost = asyncio.Event(), asyncio.Event()

    async def late(ctx: weft.Context) -> str:
        if ctx.attempt > 1:
            return "done"
        begun.set()
        await handlers.leave.wait()
        with pytest.raises(weft.LeaseLost):
            await ctx.spawn("say", {"name": "late"})
        lost.set()
        return "late"

    handlers.registry.task(name="late")(late)
    async with at_work(client, handlers):
        job = await client.jobs.submit_graph("tried", Task("late", name="late"))
        await begun.wait()
        await conn.execute(f"update weft.task set {now} where handler = 'late'")
        handlers.leave.set()
        await asyncio.wait_for(lost.wait(), 60)
        await client.jobs.cancel(job.id)
        await client.jobs.wait(job.id, timeout=60)
    assert await conn.fetchval("select count(*) from weft.task_done where handler = 'say'") == 0


async def test_a_task_without_a_job_makes_none(client: weft.Client, handlers: Handlers) -> None:
    async with weft.Worker(client=client, registry=handlers.registry):
        task = await client.enqueue("fib", {"n": 3})
        with pytest.raises(weft.TaskFailed, match="only a task of a job"):
            await client.wait(task.id, timeout=60)


async def test_a_later_attempt_gets_what_the_first_has_added_by_the_client(
    client: weft.Client, handlers: Handlers, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    """As by any other way of making tasks; to another job it adds as whoever is no task does."""
    other = await client.jobs.submit_graph("other", Task("hold"))

    async def adding(ctx: weft.Context) -> list[int | None]:
        assert ctx.job_id is not None
        added = [Task("say", {"name": number}) for number in range(2)]
        await client.jobs.add(ctx.job_id, added)
        await client.jobs.add(str(ctx.job_id), last := Task("say", {"name": 2}))  # type: ignore[arg-type]
        await client.jobs.add(other.id, Task("say", {"name": "other"}))
        if ctx.attempt < 3:
            raise ValueError("once more")
        handlers.leave.set()
        return [task.id for task in (*added, last)]

    handlers.registry.task(name="adding", retry=weft.Retry(max_attempts=3, initial_delay=0))(adding)
    job = await _result(client, handlers, Task("adding", name="adding"))
    made = "select id from weft.tasks where job_id = $1 and handler = 'say' order by id"
    assert job.result == [row["id"] for row in await conn.fetch(made, job.id)]
    assert len(await conn.fetch(made, other.id)) == 3


class Keyed:
    """A parent and its children that need the same key, and how many of them were at work at once."""

    def __init__(self, handlers: Handlers) -> None:
        self.at_work = self.most = 0
        self.open, self.begun = asyncio.Event(), asyncio.Event()
        for name in ("child", "elder", "middle", "hasty"):
            handlers.registry.task(name=name)(getattr(self, name))

    async def child(self, n: int = 0) -> int:
        self.begun.set()
        self.at_work += 1
        self.most = max(self.most, self.at_work)
        await self.open.wait()
        await asyncio.sleep(0.01)  # work, beside which another would be seen
        self.at_work -= 1
        return n

    async def elder(self, ctx: weft.Context, through: str = "child", key: str | None = "k") -> int:
        parts = [await ctx.spawn(through, concurrency_key=key if through == "child" else None) for _ in range(2)]
        await ctx.gather(*parts)
        return await self.child(7)

    async def middle(self, ctx: weft.Context) -> int:
        return await (await ctx.spawn("child", concurrency_key="k")).result()

    async def hasty(self, ctx: weft.Context) -> str:
        """Wait for a child until that has the key, then go on: with the key again."""
        part = await ctx.spawn("child", concurrency_key="k")
        waiting = asyncio.ensure_future(part.result())
        await self.begun.wait()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert not self.at_work, "it goes on while another has its key"
        return "went on"


@pytest.mark.parametrize("through", ["child", "middle"])
@with_and_without_a_database
async def test_a_task_that_waits_for_others_lends_them_the_slot_of_its_key(
    client: weft.Client, handlers: Handlers, conn: asyncpg.Connection[asyncpg.Record], through: str
) -> None:
    """Also to those that its children make; and it goes on with the slot, of which there is one for all."""
    keyed = Keyed(handlers)
    keyed.open.set()
    await client.limit_queue("default", 1, key="k")
    tasks = [Task("elder", {"through": through}, name=f"elder-{n}", concurrency_key="k") for n in range(3)]
    job = await _result(client, handlers, *tasks)
    assert (job.state, keyed.most) == ("completed", 1)
    assert await conn.fetchval("select held from weft.key_slot where key = 'k'") == 0
    assert await conn.fetchval("select count(*) from weft.key_loan") == 0


async def test_a_task_that_has_waited_goes_on_within_the_limit_of_its_queue(
    client: weft.Client, handlers: Handlers
) -> None:
    keyed = Keyed(handlers)
    keyed.open.set()
    await client.limit_queue("default", 2)
    tasks = [Task("elder", {"key": None}, name=f"elder-{n}") for n in range(6)]
    assert (await _result(client, handlers, *tasks)).state == "completed"
    assert keyed.most <= 2


async def test_two_keys_that_wait_for_each_other_are_both_served(client: weft.Client, handlers: Handlers) -> None:
    keyed = Keyed(handlers)
    keyed.open.set()
    await client.limit_queue("default", 1, per_key=True)
    one, other = [Task("elder", {"key": wanted}, name=own, concurrency_key=own) for own, wanted in ("ab", "ba")]
    assert (await _result(client, handlers, one, other)).state == "completed"


async def test_who_gives_up_waiting_goes_on_with_its_key(client: weft.Client, handlers: Handlers) -> None:
    keyed = Keyed(handlers)
    await client.limit_queue("default", 1, key="k")
    async with at_work(client, handlers):
        job = await client.jobs.submit_graph("tried", [Task("hasty", name="hasty", concurrency_key="k")])
        await until(lambda: client.list_tasks(handler="child", state="running"))
        (hasty,) = (await client.list_tasks(handler="hasty")).tasks
        await until(lambda: client.why(hasty.id), lambda why: why.cause == "concurrency_key")
        keyed.open.set()
        assert (await client.jobs.wait(job.id, timeout=60)).state == "completed"


async def test_who_gives_up_waiting_in_a_process_goes_on(client: weft.Client) -> None:
    await client.create_queue("idle")
    async with weft.Worker(client=client), weft.Orchestrator(client=client):
        job = await client.jobs.submit_graph("tried", [Task(process_handlers.hasty.name)])
        done = await until(
            lambda: client.list_tasks(handler="process:hasty", state="completed"), lambda page: bool(page.tasks)
        )
        assert (await client.get_task(done.tasks[0].id)).output == "went on"
        await client.jobs.cancel(job.id)
