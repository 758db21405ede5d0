"""An output serves again only while what its task has read and written of datasets stands."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asyncpg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from engine_scene import MakeClient, claimed_by_a_ghost, until

import weft
from far import with_and_without_a_database
from weft.core.data_errors import WriteConflict
from weft.queue import cache, work
from weft.queue.cache import Keys, Reuse
from weft.queue.work import Completed
from weft.worker.registry import Registry

if TYPE_CHECKING:
    Connection = asyncpg.Connection[asyncpg.Record]

SOON = weft.Retry(3, initial_delay=0)


class House:
    """A worker whose handlers write and read datasets, and tell when they run."""

    def __init__(self, client: weft.Client, registry: Registry) -> None:
        self.client = client
        self.registry = registry
        self.ran: list[str] = []

    async def call(self, handler: str, **params: Any) -> Any:
        return await self.client.wait((await self.client.enqueue(handler, params)).id, timeout=30)

    async def runs(self, handler: str, **params: Any) -> bool:
        """Call a handler; whether it has run for that."""
        before = len(self.ran)
        await self.call(handler, **params)
        return len(self.ran) > before

    def cached(self, name: str, function: Callable[..., Any]) -> None:
        """Add a handler with a cache; ``function`` is given the context and the params."""

        async def handler(ctx: weft.Context, value: Any = None) -> Any:
            self.ran.append(name)
            return await function(ctx, value)

        self.registry.task(name=name, cache=True, retry=SOON)(handler)


@asynccontextmanager
async def at_home(client: weft.Client, registry: Registry) -> AsyncIterator[House]:
    house = House(client, registry)

    @registry.task(name="put")
    async def put(
        rows: list[dict[str, Any]], ctx: weft.Context, partition: str | None = None, breaking: bool = False
    ) -> None:
        await ctx.dataset("orders").write(rows, partition=partition, breaking=breaking)

    async with weft.Worker(client=client, registry=registry):
        yield house


async def ids(ctx: weft.Context, name: str = "orders", partition: Any = None) -> list[int]:
    return sorted((await ctx.dataset(name).read(partition=partition)).column("id").to_pylist())


async def total(ctx: weft.Context, value: Any) -> int:
    return sum(await ids(ctx))


@with_and_without_a_database
async def test_an_output_serves_while_what_was_read_is_what_a_reader_sees(
    client: weft.Client, registry: Registry, conn: Connection
) -> None:
    async with at_home(client, registry) as house:
        house.cached("total", total)
        await house.call("put", rows=[{"id": 1}])
        assert [await house.call("total") for _ in range(2)] == [1, 1]
        await house.call("put", rows=[{"id": 2}])
        assert [await house.call("total") for _ in range(2)] == [2, 2]
        assert house.ran == ["total"] * 2
    read = "select task_id, attempt, version_id, write, partitions from weft.task_input order by task_id"
    inputs = await conn.fetch(read)
    tasks = (await client.list_tasks(handler="total", sort="oldest")).tasks
    # Those that did not run have read the same.
    assert [(row["task_id"], row["write"]) for row in inputs] == list(
        zip([task.id for task in tasks], [1, 1, 2, 2], strict=True)
    )


@with_and_without_a_database
async def test_an_output_serves_again_when_what_was_read_is_back(client: weft.Client, registry: Registry) -> None:
    async with at_home(client, registry) as house:
        house.cached("total", total)
        for id in (1, 2):
            await house.call("put", rows=[{"id": id}])
            assert await house.call("total") == id
        await client.datasets.rollback("orders@1.1")
        assert await house.call("total") == 1
        await house.call("put", rows=[{"id": 3}], breaking=True)
        assert await house.call("total") == 3
        await client.datasets.rollback("orders@1.2")
        assert await house.call("total") == 2
        await client.datasets.rollback("orders@2")
        assert await house.call("total") == 3
        assert house.ran == ["total"] * 3


async def test_of_one_key_five_outputs_are_kept(client: weft.Client, registry: Registry) -> None:
    async with at_home(client, registry) as house:
        house.cached("total", total)
        for id in range(1, 8):
            await house.call("put", rows=[{"id": id}])
            await house.call("total")
        assert [each.outputs for each in await client.cached_outputs()] == [5]
        house.ran.clear()
        for write in (7, 3, 2):
            await client.datasets.rollback(f"orders@1.{write}")
            assert await house.call("total") == write
        assert house.ran == ["total"]


@with_and_without_a_database
async def test_who_read_partitions_minds_those_alone(client: weft.Client, registry: Registry) -> None:
    async with at_home(client, registry) as house:
        house.cached("part", lambda ctx, value: ids(ctx, partition=value))
        for day in ("a", "b"):
            await house.call("put", rows=[{"id": 1}], partition=day)
        assert await house.runs("part", value=["a", "c"])
        await house.call("put", rows=[{"id": 2}], partition="b")
        assert not await house.runs("part", value=["a", "c"])
        # One that was not there is one that was empty.
        await house.call("put", rows=[{"id": 3}], partition="c")
        assert await house.call("part", value=["a", "c"]) == [1, 3]
        await house.call("put", rows=[{"id": 4}], partition="a")
        assert await house.call("part", value=["a", "c"]) == [3, 4]
        # Everything replaced, also partitions that nobody names.
        await house.call("put", rows=[{"id": 5}])
        assert await house.call("part", value=["a", "c"]) == []
        assert len(house.ran) == 4


@with_and_without_a_database
async def test_who_read_a_partition_minds_new_columns(client: weft.Client, registry: Registry) -> None:
    async def columns(ctx: weft.Context, value: Any) -> list[str]:
        return list((await ctx.dataset("orders").read(partition="a")).column_names)

    async with at_home(client, registry) as house:
        house.cached("columns", columns)
        await house.call("put", rows=[{"id": 1}], partition="a")
        assert await house.call("columns") == ["id"]
        await house.call("put", rows=[{"id": 1, "price": 2}], partition="b")
        assert await house.call("columns") == ["id", "price"]


@with_and_without_a_database
async def test_who_has_looked_at_partitions_minds_all(client: weft.Client, registry: Registry) -> None:
    async def keys(ctx: weft.Context, value: Any) -> list[str]:
        return [each.key for each in await ctx.dataset("orders").partitions()]

    async with at_home(client, registry) as house:
        house.cached("keys", keys)
        await house.call("put", rows=[{"id": 1}], partition="a")
        assert [await house.call("keys") for _ in range(2)] == [["a"], ["a"]]
        await house.call("put", rows=[{"id": 1}], partition="b")
        assert await house.call("keys") == ["a", "b"]
        assert len(house.ran) == 2


@with_and_without_a_database
async def test_who_names_a_state_minds_only_whether_it_can_be_read(client: weft.Client, registry: Registry) -> None:
    async with at_home(client, registry) as house:
        house.cached("named", lambda ctx, value: ids(ctx, value))
        for id in (1, 2):
            await house.call("put", rows=[{"id": id}])
        assert await house.call("named", value="orders@1.1") == [1]
        assert await house.call("named", value="orders@1") == [2]
        await house.call("put", rows=[{"id": 9}], breaking=True)
        house.ran.clear()
        assert await house.call("named", value="orders@1.1") == [1]
        assert await house.call("named", value="orders@1") == [2]
        assert house.ran == []
        await client.datasets.rollback("orders@1")
        await house.call("put", rows=[{"id": 3}])
        assert await house.call("named", value="orders@1.1") == [1]
        assert house.ran == []
        assert await house.call("named", value="orders@1") == [3]
        assert house.ran == ["named"]
        # An earlier state is read with the columns that there are now.
        await house.call("put", rows=[{"id": 3, "price": 1}])
        assert await house.runs("named", value="orders@1.1")


@with_and_without_a_database
async def test_what_owes_something_to_a_dataset_that_is_not_there_is_not_kept(
    client: weft.Client, registry: Registry
) -> None:
    async def there(ctx: weft.Context, value: Any) -> bool:
        try:
            await ctx.dataset("orders").read()
        except weft.NotFound:
            return False
        return True

    async with at_home(client, registry) as house:
        house.cached("there", there)
        assert await house.call("there") is False
        await house.call("put", rows=[{"id": 1}])
        assert await house.call("there") is True
        assert not await house.runs("there")


@with_and_without_a_database
async def test_who_wrote_runs_again_when_that_was_gone_back_from(client: weft.Client, registry: Registry) -> None:
    async def write(ctx: weft.Context, value: Any) -> None:
        await ctx.dataset("daily").write([{"id": value}])

    async with at_home(client, registry) as house:
        house.cached("write", write)
        assert [await house.runs("write", value=id) for id in (1, 1, 2, 2, 1)] == [True, False, True, False, True]
        await client.datasets.rollback("daily@1.2")
        assert not await house.runs("write", value=2)
        assert await house.runs("write", value=1)
        await client.datasets.rollback("daily@1.2")
        assert await house.runs("write", value=1)
        assert (await client.datasets.show("daily")).rows == 1


@with_and_without_a_database
async def test_who_replaced_a_partition_minds_that_alone(client: weft.Client, registry: Registry) -> None:
    async def write(ctx: weft.Context, value: Any) -> None:
        day, id = value
        await ctx.dataset("daily").write([{"id": id}], partition=day)

    async def add(ctx: weft.Context, value: Any) -> None:
        await ctx.dataset("daily").write([{"id": value}], partition="a", mode="append", unique_key="id")

    async with at_home(client, registry) as house:
        house.cached("write", lambda ctx, value: add(ctx, 7) if value == "add" else write(ctx, value))
        for value, wanted in (
            (["a", 1], True), (["b", 1], True), (["a", 1], False), (["a", 2], True), (["b", 1], False),
            (["a", 1], True),
            # Something that was added to what it has replaced would be gone if it ran.
            ("add", True), (["b", 1], False), (["a", 1], True), ("add", True), ("add", False),
        ):  # fmt: skip
            assert await house.runs("write", value=value) is wanted, value


@with_and_without_a_database
async def test_who_added_rows_minds_only_that_they_were_taken_away(client: weft.Client, registry: Registry) -> None:
    async def add(ctx: weft.Context, value: Any) -> None:
        await ctx.dataset("log").write([{"id": id} for id in value], mode="append", unique_key="id")

    async with at_home(client, registry) as house:
        house.cached("add", add)
        given = ([1, 2], [2, 3], [4])
        assert [await house.runs("add", value=value) for value in given] == [True] * 3
        assert [await house.runs("add", value=value) for value in given] == [False] * 3
        await client.datasets.rollback("log@1.1")
        # What was there before is there still, but nobody has looked whether nothing of it has gone.
        assert [await house.runs("add", value=value) for value in given] == [True] * 3
        assert (await client.datasets.show("log")).rows == 4


@with_and_without_a_database
async def test_who_adds_rows_each_time_runs_each_time(client: weft.Client, registry: Registry) -> None:
    async def add(ctx: weft.Context, value: Any) -> None:
        if value == "anew":
            await ctx.dataset("log").write([{"id": 0}])
        await ctx.dataset("log").write([{"id": 1}], mode="append", unique_key=[])

    async with at_home(client, registry) as house:
        house.cached("add", add)
        assert [await house.runs("add") for _ in range(3)] == [True] * 3
        assert (await client.datasets.show("log")).rows == 3
        # But not what it has replaced itself before.
        assert [await house.runs("add", value="anew") for _ in range(2)] == [True, False]
        assert (await client.datasets.show("log")).rows == 2


@with_and_without_a_database
async def test_who_reads_what_it_writes_runs_each_time(client: weft.Client, registry: Registry) -> None:
    async def count(ctx: weft.Context, value: Any) -> int:
        before = len(await ids(ctx, "counts")) if value else 0
        await ctx.dataset("counts").write([{"id": id} for id in range(before + 1)])
        return before + 1

    async with at_home(client, registry) as house:
        house.cached("count", count)
        assert [await house.call("count", value=value) for value in (0, 1, 1, 1)] == [1, 2, 3, 4]


@with_and_without_a_database
async def test_what_has_changed_while_a_task_ran_is_not_kept(client: weft.Client, registry: Registry) -> None:
    async with at_home(client, registry) as house:

        async def slow(ctx: weft.Context, value: Any) -> list[int]:
            found = await ids(ctx)
            if len(house.ran) == 1:
                await house.call("put", rows=[{"id": 2}])
            return found

        house.cached("slow", slow)
        await house.call("put", rows=[{"id": 1}])
        assert [await house.call("slow") for _ in range(3)] == [[1], [2], [2]]
        assert len(house.ran) == 2


@with_and_without_a_database
async def test_what_has_columns_since_a_task_read_it_is_not_kept(client: weft.Client, registry: Registry) -> None:
    async with at_home(client, registry) as house:

        async def slow(ctx: weft.Context, value: Any) -> list[str]:
            found = list((await ctx.dataset("orders").read(partition="a")).column_names)
            if len(house.ran) == 1:
                await house.call("put", rows=[{"id": 2, "price": 1}], partition="b")
            return found

        house.cached("slow", slow)
        await house.call("put", rows=[{"id": 1}], partition="a")
        assert [await house.call("slow") for _ in range(3)] == [["id"], ["id", "price"], ["id", "price"]]
        assert len(house.ran) == 2


async def test_what_was_read_of_a_dataset_that_is_deleted_does_not_stand(
    client: weft.Client, registry: Registry
) -> None:
    async with at_home(client, registry) as house:
        house.cached("total", total)
        await house.call("put", rows=[{"id": 1}])
        assert await house.call("total") == 1
        await client.datasets.delete("orders")
        with pytest.raises(weft.TaskFailed):
            await house.call("total")
        await client.datasets.undelete("orders")
        house.ran.clear()
        assert await house.call("total") == 1
        assert house.ran == []


async def test_who_may_not_write_any_more_has_no_output_of_when_it_might(
    client: weft.Client, registry: Registry
) -> None:
    async def write(ctx: weft.Context, value: Any) -> None:
        await ctx.dataset("daily").write([{"id": 1}])

    async with at_home(client, registry) as house:
        house.cached("write", write)
        assert [await house.runs("write") for _ in range(2)] == [True, False]
        await client.datasets.hand_over("daily", "@task", "other")
        with pytest.raises(weft.TaskFailed):
            await house.call("write")
        await client.datasets.hand_over("daily", "@task", "write")
        assert not await house.runs("write")


async def test_what_is_registered_again_is_another_even_with_the_same_names(
    make_client: MakeClient, registry: Registry, tmp_path: Path
) -> None:
    client = await make_client(data_outside=str(tmp_path))

    def put(id: int) -> None:
        pq.write_table(pa.table({"id": [id]}), tmp_path / "a.parquet")

    async with at_home(client, registry) as house:
        house.cached("total", lambda ctx, value: ids(ctx, "outside"))
        for id, replace in ((1, False), (2, True)):
            put(id)
            await client.datasets.register("outside", str(tmp_path), replace=replace)
            assert [await house.call("total") for _ in range(2)] == [[id]] * 2
        assert len(house.ran) == 2


async def test_who_read_only_what_came_since_minds_every_write(client: weft.Client, registry: Registry) -> None:
    async def latest(ctx: weft.Context, value: Any) -> list[int]:
        return sorted((await ctx.dataset("orders").read(since=value)).column("id").to_pylist())

    async with at_home(client, registry) as house:
        house.cached("latest", latest)
        for day in ("a", "b", "c"):
            await house.call("put", rows=[{"id": ord(day)}], partition=day)
        assert await house.call("latest", value=2) == [99]
        assert not await house.runs("latest", value=2)
        # The same files, which came by other writes.
        await client.datasets.rollback("orders@1.1")
        await client.datasets.rollback("orders@1.3")
        assert await house.call("latest", value=2) == [98, 99]


async def test_a_node_that_may_not_write_a_dataset_has_no_output_of_who_may(
    client: weft.Client, registry: Registry
) -> None:
    async def write(ctx: weft.Context, value: Any) -> None:
        await ctx.dataset("daily").write([{"id": 1}])

    def definition(name: str) -> dict[str, Any]:
        node = {"handler": "write", "next": "END"}
        return {
            "workflow_id": name,
            "nodes": {"START": {"type": "start", "next": "a"}, "a": node, "END": {"type": "end"}},
        }

    async with at_home(client, registry) as house, weft.Orchestrator(client=client):
        house.cached("write", write)
        states = []
        for name in ("mine", "mine", "other"):
            handle = await client.jobs.submit(definition(name))
            states.append((await client.jobs.wait(handle.id, timeout=30)).state)
        assert states == ["completed", "completed", "failed"]
        assert len(house.ran) == 2


@pytest.mark.parametrize("change", ["write", "clear", "nothing"])
async def test_what_changes_between_look_and_end_makes_the_end_void(
    client: weft.Client, registry: Registry, conn: Connection, change: str
) -> None:
    async with at_home(client, registry) as house:
        house.cached("total", total)
        await house.call("put", rows=[{"id": 1}])
        await house.call("total")
    keys = Keys(await conn.fetchval("select key from weft.output_cache"), b"a" * 32)
    await client.enqueue("total")
    ghost, task = await claimed_by_a_ghost(conn)
    found = await cache.find(conn, task, 1, keys, None)
    assert found is not None
    if change == "write":
        async with weft.Worker(client=client, registry=house.registry):
            await house.call("put", rows=[{"id": 2}])
    elif change == "clear":
        await client.clear_cache()
    done = [Completed(task, 1, found.output, Reuse(None, root=found.task_id, entry=found.entry))]
    if change == "nothing":
        assert await work.finish_and_claim(conn, ghost, done, [], 0) == ([], [])
        return
    with pytest.raises(WriteConflict, match="has changed meanwhile"):
        await work.finish_and_claim(conn, ghost, done, [], 0)
    assert await conn.fetchval("select state from weft.tasks where id = $1", task) == "running"


@with_and_without_a_database
async def test_an_end_that_is_void_is_tried_again(client: weft.Client, registry: Registry, conn: Connection) -> None:
    """A worker does not notice, and the task runs: held up by a lock until what was read has changed."""
    async with at_home(client, registry) as house:
        house.cached("total", total)
        await house.call("put", rows=[{"id": 1}])
        await house.call("total")
        version = await conn.fetchval("select current_id from weft.dataset")
        async with conn.transaction():
            # Whoever looks sees it as it was; whoever completes a task waits for the table until this is over.
            await conn.execute(
                "update weft.dataset_version set content = content + 1, last_write = last_write + 1 where id = $1",
                version,
            )
            await conn.execute("lock table weft.task_done in share mode")
            handle = await client.enqueue("total")
            await until(lambda: conn.fetchval("select cause from weft.task_reuse where task_id = $1", handle.id))
        await client.wait(handle.id, timeout=30)
    assert len(house.ran) == 2
    task = await client.get_task(handle.id)
    assert [attempt.reason for attempt in task.attempts] == ["write_conflict"]


async def test_an_end_by_an_output_of_another_org_is_void(client: weft.Client, conn: Connection) -> None:
    await client.datasets.create("orders")
    await conn.execute("insert into weft.org (id, slug, name) values (2, 'acme', 'Acme')")
    entry = await conn.fetchval("""
        insert into weft.output_cache (org_id, key, handler, task_id, made_at, trace, output)
        values (2, sha256('1'), 'total', 1, weft.now(), '[]', '7') returning id""")
    await client.enqueue("total")
    ghost, task = await claimed_by_a_ghost(conn)
    with pytest.raises(WriteConflict):
        await work.finish_and_claim(conn, ghost, [Completed(task, 1, "7", Reuse(None, root=1, entry=entry))], [], 0)


@with_and_without_a_database
async def test_what_an_earlier_attempt_has_read_for_a_step_counts(client: weft.Client, registry: Registry) -> None:
    async def stepwise(ctx: weft.Context, value: Any) -> list[int]:
        found: list[int] = await ctx.step("look", lambda: ids(ctx))
        if ctx.attempt == 1:
            raise ValueError("after the step")
        return found

    async with at_home(client, registry) as house:
        house.cached("stepwise", stepwise)
        await house.call("put", rows=[{"id": 1}])
        assert [await house.call("stepwise") for _ in range(2)] == [[1], [1]]
        assert len(house.ran) == 2
        await house.call("put", rows=[{"id": 2}])
        assert await house.call("stepwise") == [2]


async def test_who_makes_tasks_that_read_datasets_runs_each_time(client: weft.Client, registry: Registry) -> None:
    async def outer(ctx: weft.Context, value: Any) -> Any:
        return (await ctx.gather(await ctx.spawn("middle"))) if value else 7

    @registry.task(name="middle")
    async def middle(ctx: weft.Context) -> Any:
        return (await ctx.gather(await ctx.spawn("inner")))[0]

    @registry.task(name="inner")
    async def inner(ctx: weft.Context) -> int:
        return sum(await ids(ctx))

    def definition(value: int) -> dict[str, Any]:
        node = {"handler": "outer", "params": {"value": value}, "next": "END"}
        nodes = {"START": {"type": "start", "next": "a"}, "a": node}
        return {"workflow_id": "o", "nodes": {**nodes, "END": {"type": "end", "output": "{{ nodes.a.output }}"}}}

    async with at_home(client, registry) as house, weft.Orchestrator(client=client):
        house.cached("outer", outer)
        results = []
        for id, value in ((1, 1), (2, 1), (3, 0), (4, 0)):
            await house.call("put", rows=[{"id": id}])
            job = await client.jobs.submit(definition(value))
            results.append((await client.jobs.wait(job.id, timeout=30)).result)
        assert results == [[1], [2], 7, 7]
        assert len(house.ran) == 3
