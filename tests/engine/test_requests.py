"""Jobs that are asked for by messages in a queue."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest
from engine_scene import claimed_by_a_ghost

import weft
from weft.jobs.library import Libraries
from weft.jobs.requests import Request, Requests
from weft.worker.registry import Registry

QUEUE = "orchestrator-jobs"
FLOW = {
    "workflow_id": "asked",
    "inputs": {"size": {"type": "integer", "default": 1}, "name": {"type": "string", "required": True}},
    "nodes": {
        "START": {"type": "start", "next": "light"},
        "light": {
            "handler": "say",
            "queue": "functionapp-tasks",
            "params": {"n": "{{ inputs.size }}"},
            "next": "heavy",
        },
        "heavy": {"handler": "say", "queue": "container-tasks", "params": {"n": 2}, "next": "END"},
        "END": {"type": "end", "output": ["{{ nodes.light.output }}", "{{ inputs.name }}"]},
    },
}


@pytest.fixture
async def asked(client: weft.Client) -> weft.Client:
    """A client with the workflow and the queues that it needs; that of the messages is there when one comes."""
    for name in ("functionapp-tasks", "container-tasks"):
        await client.create_queue(name)
    await client.workflows.push(FLOW)
    return client


@pytest.fixture
def registry() -> Registry:
    registry = Registry()

    @registry.task(name="say", queue="functionapp-tasks")
    async def say(n: int) -> int:
        return n

    return registry


async def test_a_message_becomes_a_job_once(
    asked: weft.Client, registry: Registry, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    message = {"workflow_id": "asked", "inputs": {"name": "ann", "size": 7}, "priority": 3}
    handles = [await asked.enqueue("weft.submit", message, queue=QUEUE, idempotency_key="m-1") for _ in range(3)]
    assert [handle.created for handle in handles] == [True, False, False]
    by_sql = await conn.fetchval(
        'select id from weft.enqueue(\'weft.submit\', \'{"workflow_id": "asked/main", "inputs": {"name": "bob"}}\','
        " queue => 'orchestrator-jobs')"
    )
    queues = ["functionapp-tasks", "container-tasks"]
    async with weft.Worker(client=asked, registry=registry, queues=queues), weft.Orchestrator(client=asked):
        answer = await asked.wait(handles[0].id, timeout=30)
        other = await asked.wait(by_sql, timeout=30)
        job = await asked.jobs.wait(int(answer["job_id"]), timeout=30)
        assert (await asked.jobs.wait(int(other["job_id"]), timeout=30)).result == [1, "bob"]
    assert (job.state, job.result, job.priority, job.base_ref) == ("completed", [7, "ann"], 3, "asked/main")
    assert answer["created"] is True
    again = await asked.jobs.submit("asked", {"name": "x"}, idempotency_key="m-1")
    assert (again.id, again.created) == (job.id, False), "the key of the message is that of its job"
    assert await conn.fetchval("select count(*) from weft.job_done") == 2


async def test_a_message_whose_job_is_there_already_only_names_it(asked: weft.Client, registry: Registry) -> None:
    job = await asked.jobs.submit("asked", {"name": "x"}, idempotency_key="m-2")
    message = {"workflow_id": "asked", "inputs": {"name": "ann"}}
    handle = await asked.enqueue("weft.submit", message, queue=QUEUE, idempotency_key="m-2")
    async with weft.Orchestrator(client=asked):
        assert await asked.wait(handle.id, timeout=30) == {"job_id": str(job.id), "created": False}


async def test_a_message_says_the_key_and_the_labels_of_its_job(asked: weft.Client) -> None:
    message = {"workflow_id": "asked", "inputs": {"name": "ann"}, "idempotency_key": "own", "labels": {"team": "geo"}}
    handles = [await asked.enqueue("weft.submit", message, queue=QUEUE, idempotency_key=f"m-{n}") for n in range(2)]
    async with weft.Orchestrator(client=asked):
        answers = [await asked.wait(handle.id, timeout=30) for handle in handles]
    (job,) = await asked.jobs.list()
    assert {answer["job_id"] for answer in answers} == {str(job.id)}, "messages of one key are one job"
    assert (await asked.jobs.show(job.id)).labels == {"team": "geo"}


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "unknown workflow": ({"workflow_id": "askd", "inputs": {}}, "workflow_id: there is no tag 'askd'"),
    "no workflow": ({"inputs": {}}, "params.workflow_id"),
    "wrong inputs": ({"workflow_id": "asked", "inputs": {"size": "big"}}, "inputs: "),
    "inputs no mapping": ({"workflow_id": "asked", "inputs": [1]}, "params.inputs"),
    "priority": ({"workflow_id": "asked", "inputs": {"name": "x"}, "priority": 99999}, "priority: must be"),
    "callback": ({"workflow_id": "asked", "inputs": {"name": "x"}, "callback_url": "ftp://x"}, "callback_url: must"),
    "label": ({"workflow_id": "asked", "inputs": {"name": "x"}, "labels": {"a b": "c"}}, "labels: 'a b' is no name"),
    "labels no texts": ({"workflow_id": "asked", "inputs": {"name": "x"}, "labels": {"a": 1}}, "params.labels"),
    "key": ({"workflow_id": "asked", "inputs": {"name": "x"}, "idempotency_key": ""}, "idempotency_key: must not"),
    "unknown key": ({"workflow_id": "asked", "inputs": {"name": "x"}, "urgent": True}, "params.urgent"),
}


async def test_a_bad_message_is_a_dead_letter_that_says_why(
    asked: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    ids = {name: (await asked.enqueue("weft.submit", message, queue=QUEUE)).id for name, (message, _) in BAD.items()}
    await weft.Orchestrator(client=asked).run_until_idle()
    for name, (_, told) in BAD.items():
        task = await asked.get_task(ids[name])
        assert (task.state, task.reason) == ("failed", "non_retryable"), name
        assert task.error is not None
        assert told in task.error["message"], name
    assert {task.id for task in (await asked.dead_letters(queue=QUEUE)).tasks} == set(ids.values())
    assert await conn.fetchval("select count(*) from weft.job") == 0


async def test_a_message_of_a_workflow_whose_queue_is_missing_says_so(client: weft.Client) -> None:
    await client.create_queue(QUEUE)
    await client.workflows.push(FLOW)
    message = {"workflow_id": "asked", "inputs": {"name": "ann"}}
    handle = await client.enqueue("weft.submit", message, queue=QUEUE)
    await weft.Orchestrator(client=client).run_until_idle()
    task = await client.get_task(handle.id)
    assert task.error is not None
    assert "there is no queue 'container-tasks'" in task.error["message"]


async def test_a_queue_that_a_workflow_within_needs_is_missed_before_anything_begins(
    client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    """At any depth, and however the job is asked for: nothing of it has run in vain then."""
    await client.create_queue(QUEUE)
    await client.workflows.push(FLOW)
    for name, used in (("middle", "asked"), ("outer", "middle")):
        call = {"type": "workflow", "workflow": used, "inputs": {"name": "ann"}, "next": "END"}
        nodes = {"START": {"type": "start", "next": "call"}, "call": call, "END": {"type": "end"}}
        await client.workflows.push({"workflow_id": name, "nodes": nodes})
    with pytest.raises(weft.UnknownQueue, match="there is no queue 'container-tasks'"):
        await client.jobs.submit("outer")
    handle = await client.enqueue("weft.submit", {"workflow_id": "outer"}, queue=QUEUE)
    await weft.Orchestrator(client=client).run_until_idle()
    error = (await client.get_task(handle.id)).error
    assert error is not None
    assert "there is no queue 'container-tasks'" in error["message"]
    assert await conn.fetchval("select count(*) from weft.jobs") == 0
    for name in ("functionapp-tasks", "container-tasks"):
        await client.create_queue(name)
    job = await client.jobs.submit("outer")
    await client.jobs.cancel(job.id)
    async with weft.Orchestrator(client=client):
        await client.jobs.wait(job.id, timeout=30)
    await client.workflows.patch("asked", set={"nodes.heavy.queue": "gpu"})
    with pytest.raises(weft.UnknownQueue, match="there is no queue 'gpu'"):
        await client.jobs.rerun(job.id, on="outer")


@pytest.mark.parametrize("late", ["worker", "attempt", "gone"])
async def test_who_has_lost_the_message_makes_no_job_of_it(
    asked: weft.Client, conn: asyncpg.Connection[asyncpg.Record], late: str
) -> None:
    message = {"workflow_id": "asked", "inputs": {"name": "ann"}}
    await asked.enqueue("weft.submit", message, queue=QUEUE)
    queue_id = await conn.fetchval("select id from weft.queue where name = $1", QUEUE)
    ghost, task_id = await claimed_by_a_ghost(conn, queue_id)
    requests = Requests(asked.database, asked.ids, Libraries(asked.database, lambda: asked.blobs))
    fence = {"worker": (ghost + 1, task_id, 1), "attempt": (ghost, task_id, 2), "gone": (ghost, task_id + 1, 1)}[late]
    with pytest.raises(weft.LeaseLost):
        await requests.accept(fence, Request("asked", {"name": "ann"}))
    assert await conn.fetchval("select count(*) from weft.job") == 0
    assert await conn.fetchval("select count(*) from weft.idempotency_key") == 0
    answer = await requests.accept((ghost, task_id, 1), Request("asked", {"name": "ann"}))
    assert (await asked.get_task(task_id)).output == answer
    assert await conn.fetchval("select count(*) from weft.job") == 1


async def test_a_version_that_was_collected_as_garbage_since_the_last_message_is_read_anew(
    asked: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    await asked.workflows.patch("asked", set={"nodes.heavy.params.n": 3})
    requests = Requests(asked.database, asked.ids, Libraries(asked.database, lambda: asked.blobs))
    for _ in range(2):
        await asked.enqueue("weft.submit", {"workflow_id": "asked", "inputs": {"name": "ann"}}, queue=QUEUE)
        queue_id = await conn.fetchval("select id from weft.queue where name = $1", QUEUE)
        ghost, task_id = await claimed_by_a_ghost(conn, queue_id)
        assert (await requests.accept((ghost, task_id, 1), Request("asked", {"name": "ann"})))["created"] is True
        await conn.execute(
            "delete from weft.task; delete from weft.job; delete from weft.artifact where kind = 'snapshot'"
        )


async def test_messages_may_come_before_the_first_orchestrator(client: weft.Client) -> None:
    message = weft.NewTask("weft.submit", {"workflow_id": "asked"}, queue=QUEUE)
    assert [handle.created for handle in await client.enqueue_many([message])] == [True]


async def test_the_queues_of_a_job_are_told_for_whoever_works_on_it(asked: weft.Client) -> None:
    job = await asked.jobs.submit("asked", {"name": "ann"})
    assert await asked.jobs.queues(job.id) == {"functionapp-tasks", "container-tasks"}
    assert await asked.jobs._queues_of_job(job.id, lambda name: name != "say") == set()
    with pytest.raises(weft.NotFound):
        await asked.jobs.queues(1)
