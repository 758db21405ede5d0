"""What is wrong with a job is told before anything is written, or ends it; nothing of it goes on for ever."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Coroutine
from typing import Any

import asyncpg
import orjson
import pytest
from engine_scene import until
from job_scene import Handlers, at_work, flow

import weft
from weft.core.errors import CallerError
from weft.jobs.fan_out import FanOut
from weft.jobs.items import Task

Call = Callable[[weft.Client], Coroutine[Any, Any, Any]]


@pytest.fixture
def handlers() -> Handlers:
    return Handlers()


def _calling(name: str, *called: str) -> dict[str, Any]:
    """Return a workflow that has others as nodes, one after the other."""
    nodes: dict[str, Any] = {}
    for number, each in enumerate(called, 1):
        following = {} if number == len(called) else {"next": f"call{number + 1}"}
        nodes[f"call{number}"] = {"type": "workflow", "workflow": each, **following}
    return {**flow(**nodes or {"only": {"handler": "say"}}), "workflow_id": name}


async def test_a_workflow_that_is_a_part_of_itself_is_refused_with_the_way(
    client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    for each in (_calling("leaf"), _calling("b"), _calling("a", "b", "leaf"), _calling("b", "leaf", "a")):
        await client.workflows.push(each)
    await client.workflows.push(_calling("own", "own"))
    for name, way in (("a", "a → b → a"), ("own", "own → own"), ("b", "b → a → b")):
        with pytest.raises(weft.InvalidInput, match=f"workflow: {way}: "):
            await client.jobs.submit(name)
    with pytest.raises(weft.InvalidInput, match="a → b → a"):
        await client.jobs.submit(_calling("above", "a"))
    assert await conn.fetchval("select count(*) from weft.job") == 0
    # One that is used by several, which others use, is no part of itself.
    await client.workflows.push(_calling("b", "leaf"))
    assert (await client.jobs.submit(_calling("above", "a", "leaf"))).created


async def test_keys_of_items_that_are_no_text_are_told_apart(client: weft.Client, handlers: Handlers) -> None:
    task = {"handler": "say", "params": {"value": "{{ item }}"}, "concurrency_key": "{{ item }}"}
    each = {"type": "fan_out", "items": [1, "one", True, None, {"a": [1]}], "task": task}
    async with at_work(client, handlers):
        job = await client.jobs.wait((await client.jobs.submit(flow(each=each))).id, timeout=30)
    assert job.state == "completed"
    assert len(handlers.given) == 5
    tasks = (await client.list_tasks(handler="say", limit=10)).tasks
    keys = {(await client.get_task(task.id)).concurrency_key for task in tasks}
    assert keys == {"1", "one", "true", "null", '{"a":[1]}'}


@pytest.mark.parametrize("item", ["", "x" * 501], ids=["empty", "long"])
async def test_an_item_whose_key_is_none_ends_the_fan_out_and_says_so(
    client: weft.Client, handlers: Handlers, item: str
) -> None:
    each = {"type": "fan_out", "items": [item], "task": {"handler": "say", "concurrency_key": "{{ item }}"}}
    async with at_work(client, handlers):
        job = await client.jobs.wait((await client.jobs.submit(flow(each=each))).id, timeout=30)
    assert job.error is not None
    assert (job.state, job.error["type"]) == ("failed", "InvalidInput")
    assert job.error["message"].startswith("concurrency_key: ")


@pytest.mark.parametrize("sign", [1, -1])
async def test_priorities_that_sum_up_to_more_than_there_are_stop_at_the_ends(
    client: weft.Client, handlers: Handlers, conn: asyncpg.Connection[asyncpg.Record], sign: int
) -> None:
    most = 32767 * sign
    task = {"handler": "say", "priority": most}
    definition = flow(one={**task, "next": "each"}, each={"type": "fan_out", "items": [1], "task": task})
    jobs = [await client.jobs.submit(definition, priority=most)]
    jobs.append(await client.jobs.submit_graph("graph", Task("say", priority=most), priority=most))
    async with at_work(client, handlers):
        assert {(await client.jobs.wait(job.id, timeout=30)).state for job in jobs} == {"completed"}
    ranks = await conn.fetch("select rank from weft.task_done where handler = 'say'")
    assert [row["rank"] for row in ranks] == [-most] * 3


async def test_inputs_that_many_nodes_take_may_not_be_too_large_in_all(
    client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    names = [f"n{number}" for number in range(40)]
    take = {"handler": "say", "params": {"value": "{{ inputs.x }}"}}
    nodes = {name: {**take, "next": later} for name, later in itertools.pairwise(names)}
    definition = flow({"x": {"type": "string"}, "y": {"type": "string"}}, **nodes, n39=take)
    with pytest.raises(weft.InvalidInput, match=r"inputs: .* in all"):
        await client.jobs.submit(definition, {"x": "y" * 8_000_000})
    assert await conn.fetchval("select count(*) from weft.job") == 0
    # What only few of them take is no trouble.
    assert (await client.jobs.submit(definition, {"x": "", "y": "y" * 8_000_000})).created


WRONG: dict[str, tuple[str, Call]] = {
    "job_id of show": ("job_id", lambda client: client.jobs.show("one")),  # type: ignore[arg-type]
    "job_id of approvals": ("job_id", lambda client: client.jobs.approvals("one")),  # type: ignore[arg-type]
    "job of an approval": ("there is no job 5", lambda client: client.jobs.approve(5)),
    "job_id that is too great": ("job_id", lambda client: client.jobs.approvals(2**63)),
    "workflow_id with NUL": ("workflow_id", lambda client: client.jobs.list(workflow_id="a\0")),
    "workflow_id": ("workflow_id", lambda client: client.jobs.list(workflow_id=5)),  # type: ignore[arg-type]
    "large event": ("payload", lambda client: client.jobs.send_event("told", {"x": "y" * 300_000})),
    "name of a graph": ("name", lambda client: client.jobs.submit_graph("\x1b[31m", Task("say"))),
    "labels of a graph": ("labels", lambda client: client.jobs.submit_graph("g", Task("say"), labels={"\x1b": "x"})),
    "max_parallel": ("max_parallel", lambda client: client.jobs.submit(
        flow(each={"type": "fan_out", "items": [], "max_parallel": 2**31, "task": {"handler": "say"}}))),
    "empty key": ("nodes.one.concurrency_key", lambda client: client.jobs.submit(
        flow({"k": {"type": "string"}}, one={"handler": "say", "concurrency_key": "{{ inputs.k }}"}), {"k": ""})),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
async def test_each_wrong_argument_of_a_verb_of_jobs_is_refused_by_name(
    client: weft.Client, conn: asyncpg.Connection[asyncpg.Record], name: str
) -> None:
    field, call = WRONG[name]
    with pytest.raises(CallerError, match=field):
        await call(client)
    assert await conn.fetchval("select (select count(*) from weft.job) + (select count(*) from weft.event)") == 0


async def test_ids_of_jobs_may_be_texts_as_json_has_them(client: weft.Client, handlers: Handlers) -> None:
    definition = flow(ask={"type": "wait", "for": "approval", "next": "say"}, say={"handler": "say"})
    job_id: Any = str((await client.jobs.submit(definition)).id)
    await client.jobs.pause(job_id)
    await client.jobs.resume(job_id)
    async with at_work(client, handlers):
        await until(lambda: client.jobs.approvals(job_id))
        await client.jobs.approve(job_id)
        assert (await client.jobs.wait(job_id, timeout=30)).state == "completed"
    with pytest.raises(weft.StateConflict):
        await client.jobs.cancel(job_id)


async def test_params_that_look_like_those_of_a_template_are_refused(
    client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    value = {"$render": {"a": "{{ 1 + 1 }}"}, "inputs": {}, "nodes": [], "job": {}}
    with pytest.raises(weft.InvalidInput, match="params: the key"):
        await client.enqueue("keep", value)
    with pytest.raises(asyncpg.PostgresError, match="params: the key"):
        await conn.fetchval("select id from weft.enqueue('keep', $1)", orjson.dumps(value).decode())


async def test_others_have_their_turn_while_the_items_of_a_fan_out_take_long(client: weft.Client) -> None:
    """The expressions of each item take as long as they may; without turns all of that is one long gap."""
    spec = {
        "items": [*range(30)],
        "params": {"x": "{{ inputs.many | sort | first }}"},
        "key": None,
        "max_parallel": None,
    }
    values: dict[str, Any] = {"inputs": {"many": [*range(12_000)]}, "nodes": {}, "job": {}}
    turns: list[float] = []

    async def look() -> None:
        while True:
            turns.append(time.monotonic())
            await asyncio.sleep(0)

    for _ in range(3):
        turns.clear()
        looking = asyncio.create_task(look())
        await asyncio.sleep(0)
        with pytest.raises(KeyError, match="task"):
            await FanOut(1, 1, 1, spec, values).expand(client.database, client.ids, lambda: client.blobs)
        looking.cancel()
        longest = max(later - earlier for earlier, later in itertools.pairwise(turns))
        if longest < (turns[-1] - turns[0]) / 2:
            return
    pytest.fail("nobody else had a turn")


# --- what is the engine's own ---


async def test_no_definition_names_what_the_engine_does_or_where(client: weft.Client) -> None:
    """It would read the outputs of others by their ids, put tasks into the queues of others, or end jobs."""
    each = {"type": "fan_out", "items": [1]}
    wrong = {
        "nodes.one.handler": flow(one={"handler": "@fan_in"}),
        "nodes.one.queue": flow(one={"handler": "say", "queue": "@control"}),
        "nodes.one.task.handler": flow(one={**each, "task": {"handler": "@fan_in"}}),
        "nodes.one.task.queue": flow(one={**each, "task": {"handler": "say", "queue": "@control"}}),
        "defaults.queue": {**flow(one={"handler": "say"}), "defaults": {"queue": "@control"}},
    }
    for place, definition in wrong.items():
        for verb in (client.jobs.submit, client.workflows.push):
            with pytest.raises(weft.InvalidDefinition) as told:
                await verb(definition)
            (problem,) = told.value.problems
            assert (".".join(map(str, problem.path)), problem.code) == (place, "bad_name")
            assert "does not begin with @" in problem.message


@pytest.mark.parametrize("name", ["@skip", "@fail"])
async def test_no_message_does_what_only_the_engine_does(
    client: weft.Client, conn: asyncpg.Connection[asyncpg.Record], name: str
) -> None:
    """Orchestrators also take messages that ask for jobs: those who may send them may not touch the jobs of others."""
    victim = await client.jobs.submit(flow(one={"handler": "say"}))
    task_id = await conn.fetchval("select id from weft.task where node = 'one'")
    params = {"@skip": {"ids": [str(task_id)], "why": "branch_not_taken"}, "@fail": {"id": str(task_id)}}[name]
    await client.create_queue("orchestrator-jobs")
    with pytest.raises(weft.InvalidInput, match="kept for the engine"):
        await client.enqueue(name, params, queue="orchestrator-jobs")
    sent = await conn.fetchval(
        "select id from weft.enqueue($1, $2, queue => 'orchestrator-jobs')", name, orjson.dumps(params).decode()
    )
    async with weft.Orchestrator(client=client):
        declined = "select reason = 'no_handler' from weft.task where id = $1"
        await until(lambda: conn.fetchval(declined, sent))
    assert (await client.jobs.show(victim.id)).state == "pending"
    assert await conn.fetchval("select state from weft.task where id = $1", task_id) == "ready"


def test_no_handler_has_the_name_of_a_step_of_the_engine(handlers: Handlers) -> None:
    with pytest.raises(weft.InvalidInput, match="kept for the engine"):
        handlers.registry.task(name="@skip")(handlers.say)
