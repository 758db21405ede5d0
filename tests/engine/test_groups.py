"""Graphs put together in Python: tasks and groups in any order, before a job begins and while it runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest
from engine_scene import MakeClient

import weft
from weft.jobs.items import Group, Known, Task
from weft.worker.registry import Registry


class Handlers:
    """Handlers that note when they begin and end, and one that a test can hold."""

    def __init__(self) -> None:
        self.registry = Registry()
        self.said: list[str] = []
        self.begun = asyncio.Event()
        self.leave = asyncio.Event()
        self.registry.task(name="act.say")(self.say)
        self.registry.task(name="act.hold")(self.hold)
        self.registry.task(name="act.fail")(self.fail)

    async def say(self, name: Any = None) -> Any:
        self.said.append(name)
        return name

    async def hold(self, name: Any = None) -> None:
        self.begun.set()
        await self.leave.wait()
        self.said.append(name)

    async def fail(self) -> None:
        raise weft.NonRetryable("as drawn")


@pytest.fixture
def handlers() -> Handlers:
    return Handlers()


@asynccontextmanager
async def at_work(client: weft.Client, handlers: Handlers) -> AsyncIterator[None]:
    async with weft.Worker(client=client, registry=handlers.registry), weft.Orchestrator(client=client):
        yield


def say(name: str, group: Group | None = None, **how: Any) -> Task:
    return Task("act.say", {"name": name}, name=name, group=group, **how)


def held(name: str = "held", group: Group | None = None) -> Task:
    return Task("act.hold", {"name": name}, name=name, group=group)


async def ended(client: weft.Client, handlers: Handlers, *items: Task | Group) -> list[str]:
    async with at_work(client, handlers):
        job = await client.jobs.submit_graph("drawn", items)
        assert (await client.jobs.wait(job.id, timeout=60)).state == "completed"
    return handlers.said


def in_order(said: list[str], *names: str) -> bool:
    places = [said.index(name) for name in names]
    return places == sorted(places)


async def test_a_task_runs_after_those_it_depends_on(client: weft.Client, handlers: Handlers) -> None:
    a, b, c, d, e = (say(name) for name in "abcde")
    a >> [b, c, d] >> e  # type: ignore[operator]
    said = await ended(client, handlers, e)
    assert sorted(said) == list("abcde")
    assert said[0] == "a"
    assert said[-1] == "e"


async def test_the_operators_say_what_comes_after_what() -> None:
    a, b, c, d = (say(name) for name in "abcd")
    assert (a >> b) is b
    assert (c << b) is c
    assert ([a, b] >> d) is d
    assert d.before.keys() == {a, b}
    assert ([c, d] << a) == [c, d]
    assert c.before.keys() == {b, a}
    for wrong in (1, "a", None, [1]):
        with pytest.raises(weft.InvalidInput, match="must be a task or a group"):
            a >> wrong  # type: ignore[operator]


async def test_a_group_waits_and_is_waited_for_as_one(client: weft.Client, handlers: Handlers) -> None:
    first, last = say("first"), say("last")
    extract, load = Group("extract"), Group("load")
    for name in ("x1", "x2"):
        say(name, extract)
    for name in ("l1", "l2"):
        say(name, load)
    inner = Group("inner", group=load)
    say("deep", inner)
    first >> extract >> load >> last  # type: ignore[operator]
    said = await ended(client, handlers, last)
    assert said[0] == "first"
    assert set(said[1:3]) == {"x1", "x2"}
    assert set(said[3:6]) == {"l1", "l2", "deep"}
    assert said[6] == "last"


async def test_what_waits_inside_of_a_group_waits_for_what_the_group_waits_for(
    client: weft.Client, handlers: Handlers
) -> None:
    before, group = say("before"), Group("g")
    a, b = say("a", group), say("b", group)
    a >> b
    before >> group
    assert await ended(client, handlers, group) == ["before", "a", "b"]


async def test_an_empty_group_is_complete_when_what_it_waits_for_is(client: weft.Client, handlers: Handlers) -> None:
    a, b = say("a"), say("b")
    empty, nothing = Group("empty"), Group("nothing")
    Group("inside", group=nothing)
    a >> empty >> nothing >> b  # type: ignore[operator]
    assert await ended(client, handlers, a, b, Group("alone")) == ["a", "b"]


async def test_a_job_of_nothing_ends_at_once(client: weft.Client, handlers: Handlers) -> None:
    assert await ended(client, handlers) == []


async def test_the_result_is_the_output_of_the_task_that_all_leads_to(client: weft.Client, handlers: Handlers) -> None:
    async with at_work(client, handlers):
        a, b = say("a"), Task("act.say", {"name": {"text": '{{ 1 }} "\\ ü'}})
        a >> b
        job = await client.jobs.submit_graph("drawn", b)
        assert (await client.jobs.wait(job.id, timeout=60)).result == {"text": '{{ 1 }} "\\ ü'}
        shown = await client.jobs.show(job.id)
        assert shown.version_hash is not None
        again = await client.jobs.submit(int(shown.base_ref or 0))
        assert (await client.jobs.wait(again.id, timeout=60)).result == {"text": '{{ 1 }} "\\ ü'}


async def test_what_is_added_to_a_group_is_waited_for(client: weft.Client, handlers: Handlers) -> None:
    group, last = Group("g"), say("last")
    held("held", group)
    group >> last
    async with at_work(client, handlers):
        job = await client.jobs.submit_graph("drawn", last)
        await handlers.begun.wait()
        more = say("more", group)
        inner = Group("inner", group=group)
        say("deep", inner)
        await client.jobs.add(job.id, [more, inner])
        assert more.id is not None
        assert inner.job_id == job.id
        handlers.leave.set()
        assert (await client.jobs.wait(job.id, timeout=60)).state == "completed"
    assert handlers.said[-1] == "last"
    assert set(handlers.said) == {"held", "more", "deep", "last"}


async def test_what_is_added_to_a_job_is_waited_for(client: weft.Client, handlers: Handlers) -> None:
    start = held()
    async with at_work(client, handlers):
        job = await client.jobs.submit_graph("drawn", start)
        await handlers.begun.wait()
        done = say("done")
        await client.jobs.add(job.id, done)
        assert done.id is not None
        await client.wait(done.id, timeout=60)
        after = say("after")
        after.depends_on([Known(done.id), start])
        later = say("later").depends_on(after)
        await client.jobs.add(job.id, later)
        handlers.leave.set()
        assert (await client.jobs.wait(job.id, timeout=60)).state == "completed"
    assert handlers.said == ["done", "held", "after", "later"]


async def test_what_is_pending_may_wait_for_what_is_added(client: weft.Client, handlers: Handlers) -> None:
    start, last = held(), say("last")
    start >> last
    async with at_work(client, handlers):
        job = await client.jobs.submit_graph("drawn", last)
        await handlers.begun.wait()
        middle = say("middle").depends_on(start)
        middle >> last
        await client.jobs.add(job.id, middle)
        await client.jobs.add(job.id, [start, middle, last])  # says nothing new
        handlers.leave.set()
        assert (await client.jobs.wait(job.id, timeout=60)).state == "completed"
    assert handlers.said == ["held", "middle", "last"]


async def test_a_dependency_among_what_is_there_counts_once(
    client: weft.Client, handlers: Handlers, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    a, b = held(), say("b")
    c = say("c").depends_on(a)
    a >> b
    job = await client.jobs.submit_graph("drawn", [b, c])
    for _ in range(2):
        assert a.id is not None
        assert b.id is not None
        assert c.id is not None
        await client.jobs.add(job.id, Known(c.id).depends_on([Known(b.id), Known(a.id)]))
    assert await conn.fetchval("select waiting_on from weft.task where id = $1", c.id) == 2
    handlers.leave.set()
    async with at_work(client, handlers):
        assert (await client.jobs.wait(job.id, timeout=60)).state == "completed"
    assert handlers.said == ["held", "b", "c"]


async def test_circles_are_refused_with_the_way_round(
    client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    a, b, c = (say(name) for name in "abc")
    a >> b >> c >> a  # type: ignore[operator]
    with pytest.raises(weft.InvalidInput, match="a → b → c → a"):
        await client.jobs.submit_graph("drawn", a)
    group = Group("g")
    inside, outside = say("inside", group), say("outside")
    group >> outside >> inside  # type: ignore[operator]
    with pytest.raises(weft.InvalidInput, match="g → outside → inside → g"):
        await client.jobs.submit_graph("drawn", group)
    own = Group("own")
    say("member", own) >> own
    with pytest.raises(weft.InvalidInput, match="member → own → member"):
        await client.jobs.submit_graph("drawn", own)
    one, two = Group("one"), Group("two")
    one.add(two)
    two.add(one)
    with pytest.raises(weft.InvalidInput, match="one → two → one"):
        await client.jobs.submit_graph("drawn", one)
    assert await conn.fetchval("select count(*) from weft.job") == 0
    assert await conn.fetchval("select count(*) from weft.task") == 0


async def test_circles_over_what_is_there_are_refused(
    client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    group, after = Group("g"), say("after")
    say("inside", group)
    far = say("far").depends_on(after)
    group >> after
    job = await client.jobs.submit_graph("drawn", far)
    with pytest.raises(weft.InvalidInput, match="new → g → far → new"):
        await client.jobs.add(job.id, say("new", group).depends_on(far))
    assert far.id is not None
    assert after.id is not None
    with pytest.raises(weft.InvalidInput, match="after → far → after"):
        await client.jobs.add(job.id, Known(after.id).depends_on(Known(far.id)))
    assert await conn.fetchval("select count(*) from weft.task where node = 'new'") == 0


async def test_nothing_is_added_to_what_has_ended(client: weft.Client, handlers: Handlers) -> None:
    group, start = Group("g"), held()
    inside = say("inside", group)
    async with at_work(client, handlers):
        job = await client.jobs.submit_graph("drawn", [group, start])
        await handlers.begun.wait()
        assert group.id is not None
        await client.wait(group.id, timeout=60)
        with pytest.raises(weft.StateConflict, match="cannot add to group g: it is completed"):
            await client.jobs.add(job.id, say("late", group))
        with pytest.raises(weft.StateConflict, match="cannot add something before task inside: it is completed"):
            await client.jobs.add(job.id, say("late") >> inside)
        late = say("late2")
        late >> start
        with pytest.raises(weft.StateConflict, match="cannot add something before task held: it is running"):
            await client.jobs.add(job.id, late)
        handlers.leave.set()
        await client.jobs.wait(job.id, timeout=60)
        with pytest.raises(weft.StateConflict, match=f"cannot add to job {job.id}: it is "):
            await client.jobs.add(job.id, say("too late"[:3]))
        with pytest.raises(weft.NotFound):
            await client.jobs.add(job.id + 1, say("nowhere"))


async def test_nothing_comes_after_what_has_failed(client: weft.Client, handlers: Handlers) -> None:
    start = held()
    failing = Task("act.fail", name="failing", allow_failure=True)
    async with at_work(client, handlers):
        job = await client.jobs.submit_graph("drawn", [start, failing])
        await handlers.begun.wait()
        assert failing.id is not None
        with pytest.raises(weft.TaskFailed):
            await client.wait(failing.id, timeout=60)
        allowed = say("allowed").depends_on(failing)
        await client.jobs.add(job.id, allowed)
        await client.jobs.cancel(job.id)
        with pytest.raises(weft.StateConflict, match="cannot add to job"):
            await client.jobs.add(job.id, say("x"))


async def test_a_group_that_has_begun_waits_for_nothing_more(client: weft.Client) -> None:
    group = Group("g")
    say("inside", group)
    job = await client.jobs.submit_graph("drawn", group)
    with pytest.raises(weft.InvalidInput, match="g has begun"):
        await client.jobs.add(job.id, say("before") >> group)


async def test_ids_of_another_job_are_not_found(client: weft.Client) -> None:
    one, two = say("one"), say("two")
    first = await client.jobs.submit_graph("drawn", one)
    await client.jobs.submit_graph("drawn", two)
    assert two.id is not None
    with pytest.raises(weft.NotFound):
        await client.jobs.add(first.id, say("x").depends_on(Known(two.id)))
    with pytest.raises(weft.InvalidInput, match="part of another job"):
        await client.jobs.add(first.id, say("x").depends_on(two))


async def test_ids_of_another_job_that_has_ended_are_not_found(client: weft.Client, handlers: Handlers) -> None:
    ended_task = say("ended")
    await ended(client, handlers, ended_task)
    job = await client.jobs.submit_graph("drawn", say("open"))
    assert ended_task.id is not None
    with pytest.raises(weft.NotFound):
        await client.jobs.add(job.id, say("x").depends_on(Known(ended_task.id)))


async def test_nothing_is_added_to_a_job_of_another_org(
    client: weft.Client, make_client: MakeClient, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    await conn.execute("insert into weft.org (id, slug, name) values (7, 'other', 'Other')")
    stranger = await make_client(org="other")
    task = say("a")
    job = await client.jobs.submit_graph("drawn", task)
    await stranger.create_queue("default")
    with pytest.raises(weft.NotFound):
        await stranger.jobs.add(job.id, say("b"))


async def test_independent_tasks_have_ended_when_their_job_has(client: weft.Client, handlers: Handlers) -> None:
    """What comes after both a failure and a task that runs is not skipped before that one has ended."""
    running, failing, both = held(), Task("act.fail", name="failing"), say("both")
    [running, failing] >> both
    async with at_work(client, handlers):
        job = await client.jobs.submit_graph("drawn", both, on_failure="finish_independent")
        await handlers.begun.wait()
        assert failing.id is not None
        with pytest.raises(weft.TaskFailed):
            await client.wait(failing.id, timeout=60)
        with pytest.raises(weft.WaitTimeout):
            await client.jobs.wait(job.id, timeout=0.3)
        handlers.leave.set()
        assert (await client.jobs.wait(job.id, timeout=60)).state == "failed"
        states = {node.node: (node.state, node.reason) for node in await client.jobs.nodes(job.id)}
    assert states["held"] == ("completed", None)
    assert states["both"] == ("skipped", "upstream_failed")


async def test_a_task_with_a_key_that_waits_again_gives_its_slot_back(
    client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    await client.limit_queue("default", 1, per_key=True)
    keyed, other = say("keyed", concurrency_key="k"), say("other")
    job = await client.jobs.submit_graph("drawn", [keyed, other])
    held_slots = "select held from weft.key_slot where key = 'k'"
    assert await conn.fetchval(held_slots) == 1
    await client.jobs.add(job.id, keyed.depends_on(other))
    assert await conn.fetchval(held_slots) == 0
    assert await conn.fetchval("select state::text from weft.task where id = $1", keyed.id) == "pending"


async def test_large_params_go_to_the_blob_storage(client: weft.Client, handlers: Handlers) -> None:
    async with at_work(client, handlers):
        job = await client.jobs.submit_graph("drawn", Task("act.say", {"name": "x" * 300_000}))
        assert (await client.jobs.wait(job.id, timeout=60)).state == "completed"
        again = await client.jobs.rerun(job.id, from_node="say")
        assert (await client.jobs.wait(again.id, timeout=60)).state == "completed"
    assert [len(said) for said in handlers.said] == [300_000, 300_000]


async def test_a_graph_with_more_params_than_a_definition_may_have_keeps_none(
    client: weft.Client, handlers: Handlers, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    async with at_work(client, handlers):
        tasks = [Task("act.say", {"name": "x" * 1_000_000}) for _ in range(12)]
        job = await client.jobs.submit_graph("drawn", tasks)
        assert (await client.jobs.wait(job.id, timeout=60)).state == "completed"
    assert await conn.fetchval("select base_kind from weft.jobs where id = $1", job.id) == "graph"


async def test_a_known_key_makes_no_second_job(client: weft.Client) -> None:
    first = await client.jobs.submit_graph("drawn", say("a"), idempotency_key="k")
    task = say("a")
    assert await client.jobs.submit_graph("drawn", task, idempotency_key="k") == (first.id, False)
    assert task.id is None


@pytest.mark.parametrize("name", ["", "a b", "1a", "@x", "a/b"])
async def test_names_are_checked(name: str) -> None:
    with pytest.raises(weft.InvalidInput):
        Task("act.say", name=name)
    with pytest.raises(weft.InvalidInput):
        Group(name)
