"""Outputs that serve again: the same handler, code and params give what an earlier task gave, and nothing else does."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asyncpg
import process_handlers
import pytest
from engine_scene import Clock, MakeClient, claimed_by_a_ghost

import weft
from storages import Storage
from weft.core.errors import InvalidInput
from weft.core.json import blob_reference
from weft.queue import work
from weft.queue.blobs import Collector, KeptBlobs
from weft.queue.cache import Keys, Reuse
from weft.queue.services import Pruner
from weft.queue.work import Claim, Completed, Ended
from weft.worker.caching import Caching
from weft.worker.output_cache import OutputCache
from weft.worker.registry import Registry

if TYPE_CHECKING:
    Connection = asyncpg.Connection[asyncpg.Record]


class Ledger:
    """Handlers that note what they were given."""

    def __init__(self) -> None:
        self.registry = Registry()
        self.given: list[Any] = []
        self.registry.task(name="square", retry=0)(self.square)
        self.registry.task(name="fail", retry=0)(self.fail)
        self.registry.task(name="grow", retry=0)(self.grow)

    async def square(self, value: int) -> int:
        self.given.append(value)
        return value * value

    async def fail(self, value: int) -> None:
        self.given.append(value)
        raise ValueError(f"{value} is broken")

    async def grow(self, size: int) -> str:
        self.given.append(size)
        return "x" * size

    def taken(self) -> list[Any]:
        given, self.given = self.given, []
        return given


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


@asynccontextmanager
async def at_work(client: weft.Client, registry: Registry) -> AsyncIterator[None]:
    async with weft.Worker(client=client, registry=registry), weft.Orchestrator(client=client):
        yield


def squares(value: Any = 3, **said: Any) -> dict[str, Any]:
    task = {"handler": "square", "params": {"value": value}, "next": "END", **said}
    return {
        "workflow_id": "squares",
        "inputs": {"value": {"type": "integer", "default": 3}},
        "nodes": {
            "START": {"type": "start", "next": "a"},
            "a": task,
            "END": {"type": "end", "output": "{{ nodes.a.output }}"},
        },
    }


async def run(client: weft.Client, definition: dict[str, Any], **said: Any) -> weft.Job:
    handle = await client.jobs.submit(definition, **said)
    return await client.jobs.wait(handle.id, timeout=30)


async def node_of(client: weft.Client, job: weft.Job, name: str = "a") -> weft.JobNode:
    return next(node for node in await client.jobs.nodes(job.id) if node.node == name)


async def test_the_second_job_has_the_output_of_the_first_and_says_whose_it_is(
    client: weft.Client, ledger: Ledger
) -> None:
    async with at_work(client, ledger.registry):
        first = await run(client, squares(cache=True))
        second = await run(client, squares(cache=True))
        third = await run(client, squares(cache=True))
    assert (first.result, second.result, third.result) == (9, 9, 9)
    assert ledger.taken() == [3]
    made, again, last = [await node_of(client, job) for job in (first, second, third)]
    assert (made.reason, made.kept_id) == (None, None)
    # The task that made it, and not one that had it from there.
    assert [(node.state, node.reason, node.kept_id) for node in (again, last)] == [("completed", "cached", made.id)] * 2
    (told,) = await client.jobs.why(second.id, "a")
    assert told.text == f"it has ended: completed (cached), as task {made.id} gave it"
    (event,) = [each for each in (await client.jobs.events(second.id)).events if each.type == "task.completed"][:1]
    assert (event.node, dict(event.data)) == ("a", {"reason": "cached", "kept_id": str(made.id)})
    assert (await client.get_task(again.id)).params == {"value": 3}


@pytest.mark.parametrize("said", [{}, {"cache": False}])
async def test_without_cache_nothing_is_kept_and_nothing_is_taken(
    client: weft.Client, ledger: Ledger, conn: Connection, said: dict[str, Any]
) -> None:
    async with at_work(client, ledger.registry):
        await run(client, squares(**said))
        assert await conn.fetchval("select count(*) from weft.output_cache") == 0
        await run(client, squares(cache=True))
        await run(client, squares(**said))
    assert ledger.taken() == [3, 3, 3]


async def test_other_params_other_code_and_other_handlers_run(client: weft.Client, ledger: Ledger) -> None:
    other = Registry()

    async def square(value: int) -> int:
        return value**2 + 0

    other.task(name="square")(square)
    async with at_work(client, ledger.registry):
        await run(client, squares(cache=True))
        assert (await run(client, squares(4, cache=True))).result == 16
        assert (await run(client, squares("{{ inputs.value }}", cache=True))).result == 9
    assert ledger.taken() == [3, 4]
    async with at_work(client, other):
        assert (await node_of(client, await run(client, squares(cache=True)))).reason is None
        assert (await node_of(client, await run(client, squares(cache=True)))).reason == "cached"


async def age(conn: Connection, **span: float) -> None:
    """Let all that is in the cache be older."""
    await conn.execute(
        "update weft.output_cache set made_at = made_at - $1::interval, expires_at = expires_at - $1::interval",
        timedelta(**span),
    )


async def test_an_output_serves_for_as_long_as_its_node_says(
    client: weft.Client, ledger: Ledger, conn: Connection
) -> None:
    async with at_work(client, ledger.registry):
        await run(client, squares(cache="1h"))
        await age(conn, minutes=59)
        await run(client, squares(cache="1h"))
        assert ledger.taken() == [3]
        # Whoever wants a newer one makes it, and whoever takes older ones cannot have what is past its own time.
        await run(client, squares(cache="1m"))
        assert ledger.taken() == [3]
        await age(conn, minutes=2)
        await run(client, squares(cache="1d"))
        assert ledger.taken() == [3]


async def test_the_params_count_and_not_how_they_are_written(client: weft.Client, conn: Connection) -> None:
    registry, given = Registry(), []

    @registry.task(name="both", cache=True)
    async def both(value: Any, more: int = 0) -> Any:
        given.append(value)
        return value

    values = [{"a": 1, "b": [2]}, {"b": [2], "a": 1}, {"a": 1, "b": [2, 3]}, None, None, False]
    async with weft.Worker(client=client, registry=registry):
        outputs = []
        for value in values:
            task = await client.enqueue("both", {"value": value})
            outputs.append(await client.wait(task.id, timeout=30))
    assert outputs == values
    assert given == [values[0], values[2], None, False]
    assert await conn.fetchval("select count(*) from weft.task_done where reason = 'cached'") == 2


async def test_what_failed_is_not_kept(client: weft.Client, ledger: Ledger, conn: Connection) -> None:
    async with at_work(client, ledger.registry):
        for _ in range(2):
            assert (await run(client, squares(cache=True, handler="fail"))).state == "failed"
    assert ledger.taken() == [3, 3]
    assert await conn.fetchval("select count(*) from weft.output_cache") == 0


async def test_only_an_outcome_that_landed_leaves_an_output(client: weft.Client, conn: Connection) -> None:
    async def finish(worker: int, task: int, attempt: int) -> None:
        outcome = Completed(task, attempt, "1", Reuse(b"k" * 32))
        await work.finish_and_claim(conn, worker, [outcome], [], 0)

    await client.enqueue("h")
    await client.enqueue("h")
    ghost, task = await claimed_by_a_ghost(conn)
    other, lost = await claimed_by_a_ghost(conn)
    outputs = "select array_agg((task_id, made_at)::text) from weft.output_cache"
    for worker, attempt in ((other, 1), (ghost, 2)):
        await finish(worker, task, attempt)
        assert await conn.fetchval(outputs) is None
    ended = Ended(lost, 1, "failed", "failed", "error", None)
    await work.end_unsuccessfully(conn, other, [ended])
    await finish(other, lost, 1)
    assert await conn.fetchval(outputs) is None
    await finish(ghost, task, 1)
    (found,) = await conn.fetchval(outputs)
    for worker, attempt in ((other, 1), (ghost, 2)):
        await conn.execute("update weft.output_cache set made_at = made_at - interval '1 s'")
        (found,) = await conn.fetchval(outputs)
        await finish(worker, task, attempt)
        assert await conn.fetchval(outputs) == [found]


async def test_only_an_outcome_that_landed_is_told_to_be_anothers(client: weft.Client, conn: Connection) -> None:
    await client.enqueue("h")
    ghost, task = await claimed_by_a_ghost(conn)
    await work.finish_and_claim(conn, ghost, [Completed(task, 1, "1")], [], 0)
    for worker, attempt in ((ghost + 1, 1), (ghost, 2)):
        await work.finish_and_claim(conn, worker, [Completed(task, attempt, "1", Reuse(None, root=5))], [], 0)
        assert await conn.fetchval("select kept_id from weft.task_done") is None


async def test_equal_items_of_a_fan_out_leave_one_output_and_later_ones_take_it(
    client: weft.Client, ledger: Ledger, conn: Connection
) -> None:
    definition = {
        "workflow_id": "many",
        "inputs": {"values": {"type": "array"}},
        "nodes": {
            "START": {"type": "start", "next": "a"},
            "a": {
                "type": "fan_out",
                "items": "{{ inputs.values }}",
                "task": {"handler": "square", "params": {"value": "{{ item }}"}, "cache": True},
                "next": "all",
            },
            "all": {"type": "fan_in", "next": "END"},
            "END": {"type": "end", "output": "{{ nodes.all.output.results }}"},
        },
    }
    async with at_work(client, ledger.registry):
        first = await client.jobs.submit(definition, {"values": [2, 2, 2, 3, 2]})
        assert (await client.jobs.wait(first.id, timeout=30)).result == [4, 4, 4, 9, 4]
        assert await conn.fetchval("select count(*) from weft.output_cache") == 2
        assert set(ledger.taken()) == {2, 3}
        second = await client.jobs.submit(definition, {"values": [5, 3, 2]})
        assert (await client.jobs.wait(second.id, timeout=30)).result == [25, 9, 4]
        assert ledger.taken() == [5]
        third = await client.jobs.submit(definition, {"values": [5]}, cache=False)
        assert (await client.jobs.wait(third.id, timeout=30)).result == [25]
        assert ledger.taken() == [5]


@pytest.mark.parametrize("said", ["job", "node"])
async def test_what_is_refreshed_runs_and_renews_what_is_there(client: weft.Client, ledger: Ledger, said: str) -> None:
    async with at_work(client, ledger.registry):
        await run(client, squares(cache=True))
        node, job = ("refresh", True) if said == "node" else (True, "refresh")
        renewed = await run(client, squares(cache=node), cache=job)
        assert ledger.taken() == [3, 3]
        again = await run(client, squares(cache=True))
        assert ledger.taken() == []
        assert (await node_of(client, again)).kept_id == (await node_of(client, renewed)).id


async def test_a_job_that_leaves_the_cache_alone_neither_takes_nor_keeps(client: weft.Client, ledger: Ledger) -> None:
    async with at_work(client, ledger.registry):
        made = await run(client, squares(cache=True))
        await run(client, squares(cache=True), cache=False)
        await run(client, squares(4, cache=True), cache=False)
        assert ledger.taken() == [3, 3, 4]
        again = await run(client, squares(cache=True))
        await run(client, squares(4, cache=True))
        assert ledger.taken() == [4]
        assert (await node_of(client, again)).kept_id == (await node_of(client, made)).id
    for said in ("off", 1, None):
        with pytest.raises(InvalidInput, match="cache"):
            await client.jobs.submit(squares(cache=True), cache=said)  # type: ignore[arg-type]


async def test_a_handler_that_refreshes_runs_always_and_a_node_may_say_otherwise(client: weft.Client) -> None:
    registry, given = Registry(), list[int]()

    @registry.task(name="square", cache="refresh")
    async def square(value: int) -> int:
        given.append(value)
        return value * value

    async with at_work(client, registry):
        for said in ({}, {}, {"cache": True}, {"cache": "refresh"}):
            await run(client, squares(**said))
    assert given == [3, 3, 3]


async def test_a_node_that_refreshes_keeps_for_as_long_as_its_handler_says(
    client: weft.Client, conn: Connection
) -> None:
    registry = Registry()

    @registry.task(name="square", cache=3600)
    async def square(value: int) -> int:
        return value * value

    async with at_work(client, registry):
        await run(client, squares(cache="refresh"))
    assert await conn.fetchval("select expires_at - made_at from weft.output_cache") == timedelta(hours=1)


async def test_an_output_that_is_too_large_is_not_kept(make_client: MakeClient, ledger: Ledger) -> None:
    """By its size, wherever it is kept."""
    client = await make_client(inline_limit=1000, cache_max_output=1500)
    definition = squares(cache=True, handler="grow")
    async with at_work(client, ledger.registry):
        for size, given in ((1400, [1400]), (1600, [1600, 1600])):
            definition["nodes"]["a"]["params"] = {"size": size}
            await run(client, definition)
            await run(client, definition)
            assert ledger.taken() == given
    (found,) = await client.cached_outputs()
    assert (found.outputs, found.bytes, found.blobs) == (1, 1402, 1)


async def test_where_an_org_has_too_much_what_served_longest_ago_is_forgotten(
    make_client: MakeClient, ledger: Ledger, conn: Connection
) -> None:
    client = await make_client(cache_max_bytes=300)
    clock, pruner = Clock(conn, client), Pruner(client.database, client.settings)
    definition = squares(cache=True, handler="grow")

    async def grow(size: int) -> None:
        definition["nodes"]["a"]["params"] = {"size": size}
        await run(client, definition)

    async with at_work(client, ledger.registry):
        for size in (100, 101, 102):
            await grow(size)
            await clock.advance(hours=2)
        await grow(100)
    await conn.execute("""
        insert into weft.org (id, slug, name) values (2, 'acme', 'Acme');
        insert into weft.output_cache (org_id, key, handler, task_id, made_at, bytes, output)
        values (2, sha256('1'), 'triple', 1, weft.now(), 299, '{}')""")
    await pruner.run_once()
    left = "select array_agg(bytes order by bytes) from weft.output_cache"
    assert await conn.fetchval(left) == [102, 104, 299]
    (found,) = await client.cached_outputs()
    assert found.used_at > found.newest_at


async def test_that_an_output_served_is_noted_once_an_hour(
    client: weft.Client, ledger: Ledger, conn: Connection, clock: Clock
) -> None:
    async with at_work(client, ledger.registry):
        await run(client, squares(cache=True))
        seen = set[str]()
        for minutes in (10, 40, 20, 30):
            await clock.advance(minutes=minutes)
            await run(client, squares(cache=True))
            seen.add(await conn.fetchval("select (used_at - made_at)::text from weft.output_cache"))
    assert len(seen) == 2
    assert ledger.taken() == [3]


async def test_a_job_inside_of_one_that_ignores_the_cache_ignores_it_too(client: weft.Client, ledger: Ledger) -> None:
    await client.workflows.push(squares(cache=True))
    outer = {
        "workflow_id": "outer",
        "nodes": {
            "START": {"type": "start", "next": "in"},
            "in": {"type": "workflow", "workflow": "squares", "next": "END"},
            "END": {"type": "end"},
        },
    }
    async with at_work(client, ledger.registry):
        for cache, given in ((True, [3]), (True, []), (False, [3])):
            assert (await run(client, outer, cache=cache)).state == "completed"
            assert ledger.taken() == given


async def test_a_node_that_is_run_again_by_name_runs(client: weft.Client, ledger: Ledger) -> None:
    async with at_work(client, ledger.registry):
        job = await run(client, squares(cache=True))
        again = await client.jobs.rerun(job.id, from_node="a")
        await client.jobs.wait(again.id, timeout=30)
    assert ledger.taken() == [3, 3]


async def test_the_node_decides_before_the_handler(client: weft.Client) -> None:
    registry, given = Registry(), []

    @registry.task(name="square", cache=60)
    async def square(value: int) -> int:
        given.append(value)
        return value * value

    async with at_work(client, registry):
        for said in ({}, {}, {"cache": False}):
            await run(client, squares(**said))
    assert given == [3, 3]
    with pytest.raises(InvalidInput, match="cache"):
        registry.task(name="other", cache=-1)(square.function)


async def test_outputs_are_cleared_by_handler_and_the_act_is_kept(client: weft.Client, ledger: Ledger) -> None:
    async with at_work(client, ledger.registry):
        await run(client, squares(3, cache=True))
        await run(client, squares(4, cache=True))
        (found,) = await client.cached_outputs()
        assert (found.handler, found.outputs, found.blobs) == ("square", 2, 0)
        assert await client.clear_cache("other") == 0
        assert await client.audit(verb="clear") == []
        assert await client.clear_cache("square") == 2
        (entry,) = await client.audit(verb="clear")
        assert (entry.subject_kind, entry.subject_name, entry.detail) == ("cache", "square", {"count": 2})
        ledger.taken()
        await run(client, squares(3, cache=True))
        assert ledger.taken() == [3]
        assert await client.clear_cache() == 1


async def test_outputs_are_pruned_when_their_time_is_over_or_with_the_retention(
    make_client: MakeClient, ledger: Ledger, conn: Connection
) -> None:
    client = await make_client(retention="30d")
    clock, pruner = Clock(conn, client), Pruner(client.database, client.settings)
    async with at_work(client, ledger.registry):
        await run(client, squares(1, cache="1h"))
        await run(client, squares(2, cache="60d"))
        await run(client, squares(3, cache=True))
    left = "select array_agg(output::text order by made_at) from weft.output_cache"
    for days, wanted in ((0.01, ["1", "4", "9"]), (1, ["4", "9"]), (30, ["4"]), (30, None)):
        await clock.advance(days=days)
        await pruner.run_once()
        assert await conn.fetchval(left) == wanted


async def test_a_large_output_stays_for_as_long_as_the_cache_has_it_and_runs_when_its_blob_is_gone(
    make_client: MakeClient, ledger: Ledger, conn: Connection, storage: Storage
) -> None:
    client = await make_client(inline_limit=1000, blob_url=storage.url)
    collector = Collector(client.database, storage.open())
    definition = squares(cache=True, handler="grow")
    definition["nodes"]["a"]["params"] = {"size": 2000}

    async def collect() -> None:
        await conn.execute("delete from weft.task_done; update weft.blob set put_at = put_at - interval '2 days'")
        storage.age(2)
        while await collector.run_once():
            pass

    async with at_work(client, ledger.registry):
        assert (await run(client, definition)).result == "x" * 2000
        await collect()
        (digest,) = storage.digests()
        assert (await run(client, definition)).result == "x" * 2000
        assert ledger.taken() == [2000]
        storage.delete(digest)
        assert (await run(client, definition)).result == "x" * 2000
        assert ledger.taken() == [2000]
    await client.clear_cache()
    await collect()
    assert storage.digests() == []


async def test_what_is_found_is_not_collected_before_its_task_has_ended(
    make_client: MakeClient, conn: Connection, storage: Storage
) -> None:
    client = await make_client(inline_limit=1000, blob_url=storage.url)
    collector, blobs = Collector(client.database, storage.open()), KeptBlobs.of(client.database)
    digest = await blobs.put(b'"' + b"x" * 2000 + b'"')
    await conn.execute(
        "insert into weft.output_cache (org_id, key, handler, task_id, made_at, digest, output) values"
        " (1, $1, 'h', 5, weft.now(), $2, $3)",
        b"k" * 32, digest, blob_reference(digest, 2002),
    )  # fmt: skip
    await conn.execute("update weft.blob set put_at = put_at - interval '2 days'")
    storage.age(2)
    task = await client.enqueue("h")
    claim = Claim(task.id, 1, 1, 0, 1, "h", "{}", 3, 0, 0, None, None, None, None)
    found = await OutputCache(client.database, blobs).find(claim, Keys(b"k" * 32, b"a" * 32), Caching())
    assert found == (blob_reference(digest, 2002), Reuse(None, root=5))
    await client.clear_cache()
    await collector.run_once()
    assert storage.digests() == [digest]


async def test_one_org_neither_sees_nor_clears_the_outputs_of_another(
    make_client: MakeClient, ledger: Ledger, conn: Connection
) -> None:
    await conn.execute("insert into weft.org (id, slug, name) values (2, 'acme', 'Acme')")
    await conn.execute("insert into weft.queue (org_id, name) values (2, 'default')")
    clients = [await make_client(**said) for said in ({}, {"org": "acme"})]
    for client in clients:
        async with at_work(client, ledger.registry):
            await run(client, squares(cache=True))
        assert ledger.taken() == [3]
        assert [each.outputs for each in await client.cached_outputs()] == [1]
    ours, theirs = clients
    await conn.execute("""
        insert into weft.output_cache (org_id, key, handler, task_id, made_at, output)
        values (2, sha256('1'), 'triple', 1, weft.now(), '{}')""")
    assert [each.handler for each in await ours.cached_outputs()] == ["square"]
    assert await theirs.clear_cache() == 2
    assert await theirs.cached_outputs() == []
    assert [each.outputs for each in await ours.cached_outputs()] == [1]


async def test_an_output_that_was_made_in_a_process_serves_again(
    make_client: MakeClient, tmp_path: Path, conn: Connection
) -> None:
    """Small or large, and of whichever attempt: what ends with its process is no output."""
    client = await make_client(inline_limit=1000)
    said = [(tmp_path / "die", 1), (tmp_path / "runs", 5000)] * 2
    tasks = [await client.enqueue(process_handlers.cached, {"path": str(path), "size": size}) for path, size in said]
    async with weft.Worker(client=client, concurrency=1):
        small, large, small_again, large_again = [await client.wait(task.id, timeout=60) for task in tasks]
    assert (small, large) == (small_again, large_again)
    assert len(large["text"]) == 5000
    assert [len(path.read_text()) for path, _ in said[:2]] == [2, 1]
    assert await conn.fetchval("select count(*) from weft.output_cache") == 2
