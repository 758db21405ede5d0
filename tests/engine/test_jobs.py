"""What is done with jobs: submit, wait, pause, resume, cancel, and the time that they have."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import orjson
import pytest
from engine_scene import Clock, MakeClient, claimed_by_a_ghost, until

import weft
from weft.history.contents import compress
from weft.queue.services import JobTimer
from weft.worker.registry import Registry


class Handlers:
    """Handlers that a test can hold, and what they were given."""

    def __init__(self) -> None:
        self.registry = Registry()
        self.given: list[Any] = []
        self.leave = asyncio.Event()
        self.begun = asyncio.Event()
        self.registry.task(name="say")(self.say)
        self.registry.task(name="hold")(self.hold)

    async def say(self, value: Any = None) -> Any:
        self.given.append(value)
        return value

    async def hold(self) -> None:
        self.begun.set()
        await self.leave.wait()


@pytest.fixture
def handlers() -> Handlers:
    return Handlers()


@asynccontextmanager
async def at_work(client: weft.Client, handlers: Handlers) -> AsyncIterator[None]:
    async with weft.Worker(client=client, registry=handlers.registry), weft.Orchestrator(client=client):
        yield


def flow(inputs: dict[str, Any] | None = None, **nodes: Any) -> dict[str, Any]:
    first, *_, last = [*nodes, *nodes]
    ends = {} if "END" in nodes else {"END": {"type": "end"}}
    if ends:
        nodes[last] = {**nodes[last], "next": "END"}
    return {
        "workflow_id": "tried",
        "inputs": inputs or {},
        "nodes": {"START": {"type": "start", "next": first}, **nodes, **ends},
    }


async def test_outputs_inputs_and_the_result_keep_their_types(client: weft.Client, handlers: Handlers) -> None:
    definition = flow(
        {"size": {"type": "integer", "default": 3}, "name": {"type": "string", "required": True}},
        first={"handler": "say", "params": {"value": {"size": "{{ inputs.size }}", "x": [1, None]}}, "next": "second"},
        second={"handler": "say", "params": {"value": "{{ nodes.first.output.size + 1 }}"}, "next": "END"},
        END={"type": "end", "output": {"both": ["{{ nodes.second.output }}", "{{ inputs.name }}"]}},
    )
    async with at_work(client, handlers):
        handle = await client.jobs.submit(definition, {"name": "ann"})
        job = await client.jobs.wait(handle.id, timeout=30)
    assert (job.state, job.result) == ("completed", {"both": [4, "ann"]})
    assert handlers.given == [{"size": 3, "x": [1, None]}, 4]
    assert (job.inputs, job.workflow_id, job.base_kind) == ({"size": 3, "name": "ann"}, "tried", "version")


async def test_everything_wrong_with_inputs_is_told_and_nothing_is_written(
    client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    definition = flow(
        {"size": {"type": "integer"}, "name": {"type": "string", "required": True}}, first={"handler": "say"}
    )
    with pytest.raises(weft.InvalidInput, match=r"extra.*size.*name") as told:
        await client.jobs.submit(definition, {"size": "large", "extra": 1})
    assert told.value.field == "inputs"
    assert await conn.fetchval("select count(*) from weft.job") == 0


async def test_a_known_key_creates_nothing(client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]) -> None:
    first = await client.jobs.submit(flow(first={"handler": "say"}), idempotency_key="once")
    again = await client.jobs.submit(flow(first={"handler": "say"}), idempotency_key="once")
    assert (again.id, again.created) == (first.id, False)
    assert await conn.fetchval("select count(*) from weft.job") == 1


async def test_a_job_is_pinned_to_the_version_that_it_was_made_of(client: weft.Client, handlers: Handlers) -> None:
    await client.workflows.push(flow(first={"handler": "say", "params": {"value": 1}}))
    handle = await client.jobs.submit("tried")
    await client.workflows.patch("tried", set={"nodes.first.params.value": 2})
    later = await client.jobs.submit("tried")
    async with at_work(client, handlers):
        one, two = [await client.jobs.wait(each.id, timeout=30) for each in (handle, later)]
    assert sorted(handlers.given) == [1, 2]
    assert one.version_hash != two.version_hash
    assert (one.base_kind, one.base_ref) == ("tag", "tried/main")
    assert await client.workflows.fsck() == []


async def test_nothing_of_a_paused_job_begins_until_it_is_resumed(
    client: weft.Client, handlers: Handlers, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    handle = await client.jobs.submit(flow(first={"handler": "hold", "next": "then"}, then={"handler": "say"}))
    async with at_work(client, handlers):
        await handlers.begun.wait()
        await client.jobs.pause(handle.id)
        handlers.leave.set()
        await until(
            lambda: conn.fetchval(
                "select exists (select 1 from weft.task where node = 'then' and reason = 'job_paused')"
            )
        )
        assert handlers.given == []
        with pytest.raises(weft.StateConflict):
            await client.jobs.pause(handle.id)
        await client.jobs.resume(handle.id)
        job = await client.jobs.wait(handle.id, timeout=30)
    assert (job.state, handlers.given) == ("completed", [None])
    with pytest.raises(weft.StateConflict, match="job"):
        await client.jobs.resume(handle.id)


async def test_a_cancelled_job_begins_nothing_and_ends_what_runs(client: weft.Client, handlers: Handlers) -> None:
    handle = await client.jobs.submit(flow(first={"handler": "hold", "next": "then"}, then={"handler": "say"}))
    async with at_work(client, handlers):
        await handlers.begun.wait()
        await client.jobs.cancel(handle.id)
        job = await client.jobs.wait(handle.id, timeout=30)
    assert (job.state, job.reason, handlers.given) == ("cancelled", "cancelled", [])
    states = {node.node: node.state for node in await client.jobs.nodes(handle.id)}
    assert states == {"first": "cancelled", "then": "cancelled", "END": "completed"}
    with pytest.raises(weft.StateConflict):
        await client.jobs.cancel(handle.id)


async def test_a_job_that_takes_too_long_fails(client: weft.Client, handlers: Handlers, clock: Clock) -> None:
    definition = flow(first={"handler": "hold", "next": "END"}) | {"timeout_seconds": 60}
    handle = await client.jobs.submit(definition)
    async with at_work(client, handlers):
        await handlers.begun.wait()
        await clock.advance(seconds=61)
        assert await JobTimer(client.database).run_once() <= 1
        job = await client.jobs.wait(handle.id, timeout=30)
    assert (job.state, job.reason) == ("failed", "timeout")


async def test_an_expression_that_cannot_be_evaluated_is_not_tried_again(
    client: weft.Client, handlers: Handlers
) -> None:
    definition = flow(
        first={"handler": "say", "next": "second"},
        second={"handler": "say", "params": {"value": "{{ nodes.first.output.missing }}"}, "next": "END"},
    )
    async with at_work(client, handlers):
        job = await client.jobs.wait((await client.jobs.submit(definition)).id, timeout=30)
    second = next(node for node in await client.jobs.nodes(job.id) if node.node == "second")
    assert (job.state, second.state, second.reason, second.attempt) == ("failed", "failed", "expression", 1)
    assert job.failed_id == second.id
    with pytest.raises(weft.StateConflict, match=f"a part of job {job.id}"):
        await client.replay(second.id)
    assert await client.replay_dead() == 0


async def test_the_items_of_a_fan_out_are_gathered_in_order_and_no_more_run_than_may(
    client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    registry, running, most = Registry(), 0, 0

    @registry.task(name="square")
    async def square(value: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return value * value

    definition = flow(
        each={
            "type": "fan_out", "items": list(range(40)), "max_parallel": 3,
            "task": {"handler": "square", "params": {"value": "{{ item }}"}}, "next": "all",
        },
        all={"type": "fan_in", "next": "END"},
        END={"type": "end", "output": "{{ nodes.all.output.results }}"},
    )  # fmt: skip
    async with weft.Worker(client=client, registry=registry, concurrency=20), weft.Orchestrator(client=client):
        job = await client.jobs.wait((await client.jobs.submit(definition)).id, timeout=30)
    assert job.result == [value * value for value in range(40)]
    assert most <= 3
    items = await conn.fetch("select item from weft.task_done where parent_id is not null order by item")
    assert [row["item"] for row in items] == list(range(40))


async def test_a_workflow_is_a_node_of_another_by_the_version_it_stood_at(
    client: weft.Client, handlers: Handlers, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    inner = flow(
        {"n": {"type": "integer"}},
        double={"handler": "say", "params": {"value": "{{ inputs.n * 2 }}"}, "next": "END"},
        END={"type": "end", "output": "{{ nodes.double.output }}"},
    )
    await client.workflows.push(inner | {"workflow_id": "inner"})
    outer = flow(
        call={"type": "workflow", "workflow": "inner", "inputs": {"n": 21}, "next": "END"},
        END={"type": "end", "output": "{{ nodes.call.output }}"},
    )
    handle = await client.jobs.submit(outer)
    await client.workflows.patch("inner", set={"nodes.double.params.value": "changed"})
    async with at_work(client, handlers):
        job = await client.jobs.wait(handle.id, timeout=30)
    assert (job.state, job.result) == ("completed", 42)
    child = await conn.fetchrow("select * from weft.jobs where parent_id is not null")
    assert child is not None
    assert (child["workflow_id"], child["state"], child["result"]) == ("inner", "completed", "42")


async def test_a_node_fails_with_the_job_that_it_waits_for(client: weft.Client, handlers: Handlers) -> None:
    inner = flow(bad={"handler": "say", "params": {"value": "{{ inputs.n.nothing }}"}}) | {"workflow_id": "inner"}
    await client.workflows.push(inner | {"inputs": {"n": {"type": "object", "default": {}}}})
    outer = flow(call={"type": "workflow", "workflow": "inner", "inputs": {"n": {}}, "next": "END"})
    async with at_work(client, handlers):
        with pytest.raises(weft.InvalidInput, match=r"nodes\.bad"):
            await client.jobs.submit("inner")
        job = await client.jobs.wait((await client.jobs.submit(outer)).id, timeout=30)
    assert (job.state, job.reason) == ("failed", "task_failed")


async def test_whoever_cancels_a_job_cancels_those_that_it_waits_for(
    client: weft.Client, handlers: Handlers, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    await client.workflows.push(flow(long={"handler": "hold"}) | {"workflow_id": "inner"})
    handle = await client.jobs.submit(flow(call={"type": "workflow", "workflow": "inner", "next": "END"}))
    async with at_work(client, handlers):
        await handlers.begun.wait()
        await client.jobs.cancel(handle.id)
        assert (await client.jobs.wait(handle.id, timeout=30)).state == "cancelled"
        await until(lambda: conn.fetchval("select not exists (select 1 from weft.job)"))
    assert [row["state"] for row in await conn.fetch("select state from weft.jobs")] == ["cancelled", "cancelled"]


async def test_a_person_answers_what_waits_for_one(client: weft.Client, handlers: Handlers) -> None:
    definition = flow(
        review={
            "type": "wait", "for": "approval", "form": {"limit": {"type": "integer", "required": True}}, "next": "then",
        },
        then={"handler": "say", "params": {"value": "{{ nodes.review.output.values.limit }}"}, "next": "END"},
    )  # fmt: skip
    handle = await client.jobs.submit(definition)
    async with at_work(client, handlers):
        (asked,) = await until(lambda: client.jobs.approvals(handle.id))
        assert (asked.node, asked.form) == ("review", {"limit": {"type": "integer", "required": True}})
        with pytest.raises(weft.InvalidInput, match="limit"):
            await client.jobs.approve(handle.id, "review", {"limit": "much"})
        await client.jobs.approve(handle.id, "review", {"limit": 7})
        job = await client.jobs.wait(handle.id, timeout=30)
        with pytest.raises(weft.NotFound):
            await client.jobs.approve(handle.id)
    assert (job.state, handlers.given) == ("completed", [7])


async def test_what_is_rejected_or_not_answered_in_time_fails_or_is_skipped(
    client: weft.Client, handlers: Handlers, clock: Clock
) -> None:
    def waiting(**more: Any) -> dict[str, Any]:
        return flow(review={"type": "wait", "for": "approval", **more, "next": "then"}, then={"handler": "say"})

    async with at_work(client, handlers):
        rejected = await client.jobs.submit(waiting())
        await until(lambda: client.jobs.approvals(rejected.id))
        await client.jobs.approve(rejected.id, reject=True, message="no")
        failing = await client.jobs.submit(waiting(timeout_seconds=60))
        skipping = await client.jobs.submit(waiting(timeout_seconds=60, on_timeout="skip"))
        await until(lambda: client.jobs.approvals(failing.id))
        await until(lambda: client.jobs.approvals(skipping.id))
        await clock.advance(seconds=61)
        await JobTimer(client.database).run_once()
        states = [(await client.jobs.wait(each.id, timeout=30)).state for each in (rejected, failing, skipping)]
    assert (states, handlers.given) == (["failed", "failed", "completed"], [])
    assert {node.node: node.state for node in await client.jobs.nodes(skipping.id)}["then"] == "skipped"


async def test_an_event_answers_those_that_it_matches_now_and_later(client: weft.Client, handlers: Handlers) -> None:
    definition = flow(
        {"path": {"type": "string"}},
        first={"handler": "hold", "next": "arrived"},
        arrived={
            "type": "wait", "for": "event", "event": "file.arrived", "match": {"path": "{{ inputs.path }}"},
            "next": "END",
        },
        END={"type": "end", "output": "{{ nodes.arrived.output.size }}"},
    )  # fmt: skip
    early = await client.jobs.submit(definition, {"path": "a"})
    late = await client.jobs.submit(definition, {"path": "b"})
    assert (await client.jobs.send_event("file.arrived", {"path": "a", "size": 1})).answered == 0
    handlers.leave.set()
    async with at_work(client, handlers):
        assert (await client.jobs.wait(early.id, timeout=30)).result == 1

        async def sent() -> int:
            return (await client.jobs.send_event("file.arrived", {"path": "b", "size": 2})).answered

        assert await until(sent) == 1
        assert (await client.jobs.wait(late.id, timeout=30)).result == 2


async def test_jobs_of_another_org_are_not_there(
    client: weft.Client, handlers: Handlers, make_client: MakeClient, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    await conn.execute("insert into weft.org (id, slug, name) values (2, 'acme', 'Acme')")
    other = await make_client(org="acme")
    definition = flow(review={"type": "wait", "for": "approval", "next": "file"},
                      file={"type": "wait", "for": "event", "event": "file", "next": "END"})  # fmt: skip
    handle = await client.jobs.submit(definition, idempotency_key="one")
    async with at_work(client, handlers):
        await until(lambda: client.jobs.approvals(handle.id))
        for verb in (other.jobs.show, other.jobs.nodes, other.jobs.pause, other.jobs.resume, other.jobs.cancel):
            with pytest.raises(weft.NotFound):
                await verb(handle.id)
        with pytest.raises(weft.NotFound):
            await other.jobs.approve(handle.id)
        assert (await other.jobs.list(), await other.jobs.approvals()) == ([], [])
        await client.jobs.approve(handle.id)
        await until(lambda: conn.fetchval("select exists (select 1 from weft.awaited where event = 'file')"))
        assert (await other.jobs.send_event("file")).answered == 0
        assert (await client.jobs.send_event("file")).answered == 1
        assert (await client.jobs.wait(handle.id, timeout=30)).state == "completed"
    assert (await other.jobs.list(), len(await client.jobs.list())) == ([], 1)
    await other.create_queue("default")
    own = await other.jobs.submit(flow(first={"handler": "say", "params": {"value": "acme's"}}), idempotency_key="one")
    again = await other.jobs.submit(flow(first={"handler": "say"}), idempotency_key="one")
    assert (again.id, again.created) == (own.id, False)
    async with at_work(other, handlers):
        assert (await other.jobs.wait(own.id, timeout=30)).state == "completed"
    assert (own.created, handlers.given) == (True, ["acme's"])


async def test_a_workflow_that_a_job_calls_begins_though_its_snapshot_was_collected_meanwhile(
    client: weft.Client, handlers: Handlers, clock: Clock, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    """The job names it, and holds it not; it is that of the version to which the job was pinned."""
    inner = flow(first={"handler": "say", "params": {"value": 1}}) | {"workflow_id": "inner"}
    await client.workflows.push(inner)
    await client.workflows.patch("inner", set={"nodes.first.params.value": 2})
    outer = flow(first={"type": "workflow", "workflow": "inner"}) | {"timeout_seconds": "30d"}
    await client.workflows.push(outer)
    jobs = [await client.jobs.submit("tried") for _ in range(2)]
    await client.workflows.patch("inner", set={"nodes.first.params.value": 3})
    await clock.advance(days=3)
    assert (await client.workflows.gc(grace=86_400)).snapshots == 1
    assert await client.jobs.queues(jobs[0].id) == {"default"}
    async with at_work(client, handlers):
        for job in jobs:
            assert (await client.jobs.wait(job.id, timeout=30)).state == "completed"
            # What is remembered by now goes too.
            await conn.execute("delete from weft.task_done; delete from weft.job_done where parent_id is not null")
            await conn.execute("delete from weft.artifact where kind = 'snapshot'")
    assert handlers.given == [2, 2]


async def test_a_job_is_run_again_on_a_version_whose_snapshot_was_collected(
    client: weft.Client, handlers: Handlers, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    await client.workflows.push(flow(first={"handler": "say", "params": {"value": 1}}))
    job = await client.jobs.submit("tried")
    await client.workflows.patch("tried", set={"nodes.first.params.value": 2})
    async with at_work(client, handlers):
        await client.jobs.wait(job.id, timeout=30)
        assert (await client.jobs.plan_rerun(job.id, on="tried")).nodes("run") == ["first", "END"]
        await conn.execute("delete from weft.artifact where kind = 'snapshot'")
        again = await client.jobs.rerun(job.id, on="tried")
        assert (await client.jobs.wait(again.id, timeout=30)).state == "completed"
    assert handlers.given == [1, 2]


async def test_a_snapshot_that_a_job_goes_by_is_not_collected(
    client: weft.Client, handlers: Handlers, clock: Clock, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    definition = flow(first={"handler": "say", "params": {"value": 1}}) | {"timeout_seconds": "30d"}
    await client.workflows.push(definition)
    await client.workflows.patch("tried", set={"nodes.first.params.value": 2})
    handle = await client.jobs.submit("tried")
    await client.workflows.snapshot("tried", set={"nodes.first.params.value": 3})
    await clock.advance(days=3)
    assert (await client.workflows.gc(grace=86_400)).snapshots == 1
    async with at_work(client, handlers):
        assert (await client.jobs.wait(handle.id, timeout=30)).state == "completed"
    assert (await client.workflows.gc(grace=86_400)).snapshots == 0
    kept = await conn.fetchval("select count(*) from weft.artifact where kind = 'snapshot'")
    assert (kept, await client.workflows.fsck()) == (1, [])


async def test_a_definition_that_was_collected_meanwhile_is_kept_again(
    client: weft.Client, handlers: Handlers, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    definition = flow(only={"handler": "say", "params": {"value": 1}})
    async with at_work(client, handlers):
        first = await client.jobs.wait((await client.jobs.submit(definition)).id, timeout=30)
        await conn.execute("delete from weft.job_done; delete from weft.artifact where kind = 'snapshot'")
        await conn.execute("delete from weft.artifact")
        second = await client.jobs.wait((await client.jobs.submit(definition)).id, timeout=30)
    assert (second.state, second.version_hash) == ("completed", first.version_hash)
    assert second.snapshot_id != first.snapshot_id


async def test_the_output_of_the_start_is_the_inputs(client: weft.Client, handlers: Handlers) -> None:
    definition = flow(
        {"size": {"type": "integer", "default": 3}},
        first={"handler": "say", "params": {"value": "{{ nodes.START.output }}"}, "next": "second"},
        second={
            "handler": "say",
            "params": {"value": "{{ nodes.START.output.size + nodes.first.output.size }}"},
            "next": "END",
        },
        END={"type": "end", "output": ["{{ nodes.second.output }}", "{{ nodes.START.output.size }}"]},
    )
    async with at_work(client, handlers):
        job = await client.jobs.wait((await client.jobs.submit(definition)).id, timeout=30)
    assert (job.state, job.result) == ("completed", [6, 3])
    assert handlers.given == [{"size": 3}, 6]


@pytest.mark.parametrize("at", ["first", "later", "item"])
async def test_what_nobody_begins_in_its_time_fails(
    client: weft.Client, handlers: Handlers, clock: Clock, conn: asyncpg.Connection[asyncpg.Record], at: str
) -> None:
    await client.create_queue("nobody")
    late = {"handler": "say", "queue": "nobody", "dispatch_timeout_seconds": 60}
    say = {"handler": "say", "next": "late"}
    definition = {
        "first": lambda: flow(late=late),
        "later": lambda: flow(first=say, late=late),
        "item": lambda: flow(late={"type": "fan_out", "items": [1], "task": late}),
    }[at]()
    async with at_work(client, handlers):
        job = await client.jobs.submit(definition)
        waiting = "select count(*) from weft.task where queue_id <> 1 and state = 'ready' and handler = 'say'"
        await until(lambda: conn.fetchval(waiting))
        await clock.advance(seconds=59)
        await JobTimer(client.database).run_once()
        assert await conn.fetchval(waiting) == 1
        await clock.advance(seconds=2)
        await JobTimer(client.database).run_once()
        ended = await client.jobs.wait(job.id, timeout=30)
    assert (ended.state, ended.reason) == ("failed", "task_failed")
    assert ended.error is not None
    assert ended.error["message"] == "nobody began it in time"


async def test_what_nobody_may_begin_because_its_job_is_paused_has_all_its_time_when_that_goes_on(
    client: weft.Client, clock: Clock, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    job = await client.jobs.submit(flow(only={"handler": "say", "dispatch_timeout_seconds": 60}))
    await client.jobs.pause(job.id)
    await clock.advance(seconds=90)
    assert await conn.fetchval("select weft.end_late_starts(100)") == 0
    await client.jobs.resume(job.id)
    await clock.advance(seconds=59)
    assert await conn.fetchval("select weft.end_late_starts(100)") == 0
    await clock.advance(seconds=2)
    assert await conn.fetchval("select weft.end_late_starts(100)") == 1


async def test_what_begins_in_time_may_take_its_own(client: weft.Client, handlers: Handlers, clock: Clock) -> None:
    async with at_work(client, handlers):
        job = await client.jobs.submit(flow(only={"handler": "hold", "dispatch_timeout_seconds": 60}))
        await handlers.begun.wait()
        await clock.advance(seconds=600)
        assert await JobTimer(client.database).run_once() == 0
        handlers.leave.set()
        assert (await client.jobs.wait(job.id, timeout=30)).state == "completed"


async def test_what_has_begun_is_not_taken_for_what_nobody_began(
    client: weft.Client, clock: Clock, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    only = {"handler": "say", "dispatch_timeout_seconds": 30, "heartbeat_timeout_seconds": 60}
    await client.jobs.submit(flow(only=only))
    _, task_id = await claimed_by_a_ghost(conn)
    await clock.advance(seconds=600)
    assert await conn.fetchval("select weft.end_late_starts(100)") == 0
    assert await conn.fetchval("select state from weft.task where id = $1", task_id) == "running"


async def test_a_stored_definition_in_which_a_later_release_finds_something_wrong_is_told(
    client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    document = orjson.dumps(flow(only={"handler": "@end"}))
    await conn.execute(
        """select weft.move_tag(1, 'tried/main', 'push',
             weft.put_artifact(1, 'version', 'tried', null, null, $1, $2, $3, sha256(''), 'ann', null),
             0, null, false, 'ann', null)""",
        hashlib.sha256(document).hexdigest(), len(document), compress(document),
    )  # fmt: skip
    with pytest.raises(weft.InvalidDefinition, match="does not begin with @"):
        await client.jobs.submit("tried")
    assert await conn.fetchval("select count(*) from weft.task") == 0
