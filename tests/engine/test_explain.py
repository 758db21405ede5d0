"""Why a task ran or did not, as it is told: by the cache, its code, its params and its datasets."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest
from engine_scene import Clock, MakeClient

import weft
from far import with_and_without_a_database
from weft.queue.services import Pruner
from weft.sdk.session import seeing
from weft.worker.registry import Registry

if TYPE_CHECKING:
    Connection = asyncpg.Connection[asyncpg.Record]


class Told:
    """Calls handlers, and says why they ran."""

    def __init__(self, client: weft.Client) -> None:
        self.client = client
        self.last = 0

    async def __call__(self, handler: str, **params: Any) -> str:
        self.last = (await self.client.enqueue(handler, params)).id
        await self.client.wait(self.last, timeout=30)
        text = (await self.client.explain(self.last)).text
        # Whatever that took here.
        return re.sub(r"made \d s before", "made before", text)


@asynccontextmanager
async def at_work(client: weft.Client, registry: Registry) -> AsyncIterator[Told]:
    async with weft.Worker(client=client, registry=registry):
        yield Told(client)


def add_square(registry: Registry, cache: Any = True, less: int = 0) -> None:
    async def square(value: int, size: int = 256) -> int:
        return value * value

    async def other(value: int, size: int = 256) -> int:
        return value**2 + 0

    registry.task(name="square", cache=cache)(other if less else square)


def add_orders(registry: Registry) -> None:
    @registry.task(name="put")
    async def put(id: int, ctx: weft.Context, day: str | None = None) -> None:
        await ctx.dataset("orders").write([{"id": id}], partition=day)

    @registry.task(name="sum", cache=True)
    async def total(ctx: weft.Context, day: str | None = None) -> int:
        return sum((await ctx.dataset("orders").read(partition=day)).column("id").to_pylist())

    @registry.task(name="copy", cache=True)
    async def copy(id: int, ctx: weft.Context) -> None:
        await ctx.dataset("daily").write([{"id": id}])

    @registry.task(name="add", cache=True)
    async def add(ctx: weft.Context) -> None:
        await ctx.dataset("log").write([{"id": 1}], mode="append", unique_key=[])


@with_and_without_a_database
async def test_of_the_same_params_it_is_told_whose_output_served(client: weft.Client, registry: Registry) -> None:
    add_square(registry)
    async with at_work(client, registry) as told:
        assert await told("square", value=3) == "run: nothing was kept yet"
        first = told.last
        text = await told("square", value=3)
        assert text == f"not run: the output of task {first} served (made before; same code, same params)"
        found = await client.explain(told.last)
        assert (found.task_id, found.has_run, found.cause, found.other_id) == (told.last, False, "served", first)


@with_and_without_a_database
async def test_what_differs_in_the_params_and_in_the_code_is_told(client: weft.Client, registry: Registry) -> None:
    add_square(registry)
    async with at_work(client, registry) as told:
        await told("square", value=3, size=256)
        first = told.last
        text = await told("square", value=3, size=512)
        assert text == f"run: other params than those of task {first}: size 256 → 512"
        second = told.last
        assert await told("square", value=3) == f"run: other params than those of task {second}: size 512 → nothing"
    other = Registry()
    add_square(other, less=1)
    async with at_work(client, other) as told:
        assert await told("square", value=3, size=512) == f"run: its code changed since task {second}"
        third = told.last
        text = await told("square", value=4, size=512)
        assert text == f"run: other params than those of task {third}: value 3 → 4"


async def test_it_is_told_that_nothing_is_kept_or_that_it_is_to_run(client: weft.Client, registry: Registry) -> None:
    add_square(registry, cache=False)
    async with at_work(client, registry) as told:
        assert await told("square", value=3) == "run: no cache is said of it"
    forced = Registry()
    add_square(forced, cache="refresh")
    async with at_work(client, forced) as told:
        for _ in range(2):
            assert await told("square", value=3) == "run: it is to run in any case, and renews what is in the cache"


async def test_it_is_told_that_an_output_had_its_time_or_was_removed(
    client: weft.Client, registry: Registry, clock: Clock
) -> None:
    add_square(registry)
    async with at_work(client, registry) as told:
        await told("square", value=3)
    first, shorter = told.last, Registry()
    add_square(shorter, cache=3600)
    async with at_work(client, shorter) as told:
        await clock.advance(hours=3)
        text = await told("square", value=3)
        assert text == f"run: the output of task {first} was past its time (made 3 h before)"
        second = told.last
        await client.clear_cache()
        text = await told("square", value=3)
        assert text == f"run: no output of task {second} is kept any more, which had the same code and params"


async def test_it_is_told_why_an_output_was_not_kept(make_client: MakeClient, registry: Registry) -> None:
    client = await make_client(cache_max_output=2)
    add_square(registry)
    add_orders(registry)
    async with at_work(client, registry) as told:
        await told("square", value=30)
        first, large = told.last, "was not kept: it is larger than WEFT_CACHE_MAX_OUTPUT allows"
        assert await told("square", value=30) == f"run: the output of task {first} {large}"


@with_and_without_a_database
async def test_which_input_is_new_is_told(client: weft.Client, registry: Registry) -> None:
    add_orders(registry)
    async with at_work(client, registry) as told:
        await told("put", id=1, day="a")
        await told("sum", day="a")
        first = told.last
        text = await told("sum", day="a")
        same = "same code, same params; orders@1.1 unchanged"
        assert text == f"not run: the output of task {first} served (made before; {same})"
        assert (await client.explain(told.last)).inputs == ("orders@1.1",)
        await told("put", id=2, day="a")
        writer = told.last
        text = await told("sum", day="a")
        made = f"the output of task {first} was made of 1.1 (partition a was written by task {writer})"
        assert text == f"run: input orders is at 1.2, {made}"
        second = await client.explain(told.last)
        assert (second.has_run, second.cause, second.inputs) == (True, "changed", ("orders@1.2",))
        await client.datasets.rollback("orders@1.1")
        await told("put", id=7, day="b")
        await client.datasets.rollback("orders@1.2")
        assert (await told("sum", day="a")).startswith("not run: ")
        # What is so now does not change what was so then.
        assert await client.explain(second.task_id) == second


@with_and_without_a_database
async def test_that_something_written_was_gone_back_from_is_told(client: weft.Client, registry: Registry) -> None:
    add_orders(registry)
    async with at_work(client, registry) as told:
        await told("copy", id=1)
        await told("copy", id=2)
        second = told.last
        await client.datasets.rollback("daily@1.1")
        text = await told("copy", id=2)
        gone = f"daily is at 1.3, and is not as task {second} left it at 1.2 (it went back to an earlier state)"
        assert text == f"run: {gone}"
        await told("add")
        adds = told.last
        text = await told("add")
        assert text.startswith(f"run: the output of task {adds} was not kept: it adds its rows to a dataset each time")


async def test_datasets_that_one_may_not_see_are_not_named(client: weft.Client, registry: Registry) -> None:
    add_orders(registry)
    async with at_work(client, registry) as told:
        await told("put", id=1)
        await told("sum")
        first = told.last
        await told("sum")
        served = told.last
        await told("put", id=2)
        await told("sum")
    with seeing(frozenset({"sales"})):
        hidden = await client.explain(told.last)
        assert hidden.text == f"run: a dataset that you may not see has changed since task {first}"
        assert hidden.inputs == ()
        assert "orders" not in (await client.explain(served)).text
    await client.roles.create("sales")
    await client.datasets.grant("orders", ["sales"])
    with seeing(frozenset({"sales"})):
        assert "input orders is at 1.2" in (await client.explain(told.last)).text


async def test_of_what_has_not_begun_it_is_told_what_it_waits_for(client: weft.Client) -> None:
    task = await client.enqueue("square", {"value": 3})
    found = await client.explain(task.id)
    assert (found.has_run, found.cause) == (None, "waits")
    assert found.text == (await client.why(task.id)).text
    assert found.advice
    await client.cancel(task.id)
    found = await client.explain(task.id)
    assert (found.has_run, found.cause, found.text) == (False, "not_reached", "not run: it is cancelled (cancelled)")
    with pytest.raises(weft.NotFound):
        await client.explain(7)


async def test_what_a_job_that_was_run_again_has_kept_is_told(client: weft.Client, registry: Registry) -> None:
    add_square(registry, cache=False)
    task = {"handler": "square", "params": {"value": 3}}
    nodes = {"START": {"type": "start", "next": "a"}, "a": {**task, "next": "b"}, "b": {**task, "next": "END"}}
    definition = {"workflow_id": "two", "nodes": {**nodes, "END": {"type": "end"}}}
    async with weft.Worker(client=client, registry=registry), weft.Orchestrator(client=client):
        first = await client.jobs.submit(definition)
        await client.jobs.wait(first.id, timeout=30)
        again = await client.jobs.rerun(first.id, from_node="b")
        await client.jobs.wait(again.id, timeout=30)
    before = {node.node: node.id for node in await client.jobs.nodes(first.id)}
    after = {node.node: node.id for node in await client.jobs.nodes(again.id)}
    found = await client.explain(after["a"])
    assert (found.has_run, found.cause, found.other_id) == (False, "kept", before["a"])
    assert (await client.explain(after["b"])).cause == "off"


async def test_only_what_was_completed_is_compared_with(client: weft.Client, registry: Registry) -> None:
    broken = [4, 3, 3]

    @registry.task(name="square", cache=True, retry=0)
    async def square(value: int) -> int:
        if broken:
            broken.pop()
            raise ValueError("broken")
        return value * value

    async with at_work(client, registry) as told:
        for value in (3, 3, 4):
            with pytest.raises(weft.TaskFailed):
                await told("square", value=value)
            assert (await client.explain(told.last)).text == "run: nothing was kept yet"
        assert await told("square", value=3) == "run: nothing was kept yet"


async def test_what_was_found_is_forgotten_with_its_task(
    make_client: MakeClient, registry: Registry, conn: Connection
) -> None:
    client = await make_client(retention="30d")
    clock, pruner = Clock(conn, client), Pruner(client.database, client.settings)
    add_square(registry)
    async with at_work(client, registry) as told:
        await told("square", value=3)
        later = await client.enqueue("square", {"value": 4}, queue="default", delay=40 * 86400)
    # One that waits to be tried again, and may be told of.
    await conn.execute(
        """
        insert into weft.task_reuse (task_id, org_id, attempt, handler, node, key, args, cause)
        values ($1, 1, 1, 'square', '', '', '', 'nothing')""",
        later.id,
    )
    for days, left in ((29, 2), (3, 1)):
        await clock.advance(days=days)
        await pruner.run_once()
        assert await conn.fetchval("select count(*) from weft.task_reuse") == left


async def test_one_org_is_not_told_of_the_tasks_of_another(make_client: MakeClient, conn: Connection) -> None:
    await conn.execute("insert into weft.org (id, slug, name) values (2, 'acme', 'Acme')")
    await conn.execute("insert into weft.queue (org_id, name) values (2, 'default')")
    ours, theirs = [await make_client(**said) for said in ({}, {"org": "acme"})]
    for client in (ours, theirs):
        registry = Registry()
        add_square(registry)
        async with at_work(client, registry) as told:
            assert await told("square", value=3) == "run: nothing was kept yet"
    with pytest.raises(weft.NotFound):
        await ours.explain(told.last)


@pytest.mark.parametrize(
    "unit",
    [
        {"kind": "update", "said": {"dataset": []}},
        {"kind": "update", "said": {"dataset": "orders"}},
        {"kind": "partition", "said": {"dataset": "orders", "version": 1, "write": 1, "partitions": 5}},
        {"kind": "bootstrap", "said": {"dataset": "orders", "version": 1, "write": 1, "partitions": [[]]}},
        {"kind": "row", "said": {"rows": 5}},
        {"kind": [], "said": {}},
        {"kind": "row", "said": []},
        5,
    ],
)
async def test_params_that_only_look_like_those_of_a_live_job_are_params(
    client: weft.Client, registry: Registry, unit: Any
) -> None:
    @registry.task(name="put")
    async def put(ctx: weft.Context) -> None:
        await ctx.dataset("orders").write([{"id": 1}])

    @registry.task(name="look")
    async def look(live_job: str, unit: Any, ctx: weft.Context) -> None:
        await ctx.dataset("orders").read()

    async with at_work(client, registry) as told:
        await told("put")
        assert await told("look", live_job="x", unit=unit) == "run: no cache is said of it"
