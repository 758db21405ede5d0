"""The document is kept: no answer that it does not tell of, nothing taken that it refuses, nothing without an end."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import httpx
import pytest
from conformance import chained, part_of, surprises
from described import described
from server_scene import FLOW

import weft
from depth import daily
from weft.server.serving import Server
from weft.worker.registry import Registry
from writing import written

# What is sent may be large, and how Hypothesis would write it down is no answer of the server.
pytestmark = pytest.mark.filterwarnings("ignore:Generating overly large repr")
_PARTS = {
    "jobs": {"jobs", "approvals", "events"},
    "workflows": {"workflows", "history"},
    "tags": {"tags"},
    "tasks": {"tasks"},
    "graphs": {"graphs"},
    "queues": {"queues", "outbox", "cache", "dead-letters"},
    "people": {"orgs", "users", "roles", "tokens"},
    "datasets": {"datasets"},
    "live": {"live", "live-backfills"},
    "schedules": {"schedules", "backfills", "ticks"},
    "others": set[str](),
}
# Of workers, and not for them.
_LIST = "/api/v1/workers"
# What one makes another shows, moves, runs and cancels; not what would shut out whoever asks.
_CHAINED = frozenset({"jobs", "workflows", "tags", "artifacts", "tasks", "queues", "roles", "users"})


@pytest.mark.parametrize("part", daily(_PARTS, 2))
async def test_every_answer_is_one_that_the_document_tells_of(
    part: str, server: Server, client: weft.Client, campaign: str
) -> None:
    document = described()
    secret = (await client.tokens.create("tester", role="admin")).secret
    named = _PARTS[part] or {"workers", *(tag for tags in _PARTS.values() for tag in tags)}
    chosen = part_of(document, frozenset(named), others=part == "others")
    if part == "others":
        chosen["paths"][_LIST] = document["paths"][_LIST]
    known, ended = await _known(client), await _ended(client) if part in ("jobs", "tasks") else {}
    # A graph as large as may be, of all kinds of tasks, takes minutes.
    is_long, is_covered = campaign == "long", part != "graphs"
    sent, problems = await asyncio.to_thread(
        surprises, chosen, server.url, secret, known, ended, is_long=is_long, is_covered=is_covered
    )
    assert not problems, "\n".join(problems)
    assert sent > (5 if is_covered else 1) * len(chosen["paths"])


async def test_what_answers_tell_is_taken_by_the_calls_that_follow(
    server: Server, client: weft.Client, campaign: str
) -> None:
    secret = (await client.tokens.create("tester", role="admin")).secret
    document = part_of(described(), _CHAINED, others=False)
    known = await _known(client)
    is_long = campaign == "long"
    sent, problems = await asyncio.to_thread(chained, document, server.url, secret, known, is_long=is_long)
    assert not problems, "\n".join(problems)
    assert sent > 20


async def test_every_answer_to_a_worker_is_one_that_the_document_tells_of(
    server: Server, client: weft.Client, campaign: str
) -> None:
    for queues in [None, ["mail"]] if campaign == "long" else [["mail"]]:
        await _as_worker(queues, server, client, is_long=campaign == "long")


async def _as_worker(queues: list[str] | None, server: Server, client: weft.Client, *, is_long: bool) -> None:
    await client.create_queue("mail")
    secret = (await client.tokens.create("worker", role="worker", queues=queues)).secret
    await client.enqueue("h", queue="mail")
    async with httpx.AsyncClient(base_url=server.url, headers={"authorization": f"Bearer {secret}"}) as http:
        entered = await http.post("/v1/worker/register", json={"queues": ["mail"], "handlers": ["h"]})
        held = {"worker_id": entered.json()["worker_id"]}
        claimed = await http.post("/v1/task/claim", json=held)
    (task,) = claimed.json()["tasks"]
    held |= {"task_id": task["task_id"], "lease_token": task["lease_token"]}
    document = part_of(described(), frozenset({"workers"}), others=False)
    del document["paths"][_LIST]
    # Else it sends ids of nobody, and what it might do with a task is never done.
    for schema in document["components"]["schemas"].values():
        for name, field in schema.get("properties", {}).items():
            if name in held and schema.get("additionalProperties") is False:
                field.update(enum=[held[name]])
        # As long as may be is too long here.
        schema.get("properties", {}).pop("wait", None)
    # The bodies have so many fields that all kinds of values take minutes.
    sent, problems = await asyncio.to_thread(
        surprises, document, server.url, secret, {}, is_long=is_long, is_covered=is_long
    )
    assert not problems, "\n".join(problems)
    assert sent > len(document["paths"])


async def _ended(client: weft.Client) -> dict[str, str]:
    """Return the ids of a job and of a task that have completed."""
    registry = Registry()
    registry.task(name="ended")(lambda: None)
    nodes = {"START": {"type": "start", "next": "END"}, "END": {"type": "end"}}
    job, task = await client.jobs.submit({"workflow_id": "ended", "nodes": nodes}), await client.enqueue("ended")
    async with weft.Orchestrator(client=client), weft.Worker(client=client, registry=registry):
        await client.jobs.wait(job.id, 60)
        await client.wait(task.id, 60)
    return {"job_id": str(job.id), "task_id": str(task.id)}


async def _known(client: weft.Client) -> dict[str, str]:
    """Return names and ids of what is there, by the parameters of paths that take them."""
    await client.workflows.push(FLOW)
    job = await client.jobs.submit("etl")
    task = await client.enqueue("h", {"n": 1})
    await client.users.add("ada")
    await client.roles.create("finance")
    await client.schedules.add("etl", every=86400)
    backfill = await client.schedules.backfill("etl", since=datetime.now(UTC) - timedelta(days=2))
    await written(client, "etl", 1, 2)
    token = (await client.tokens.create("another", role="reader")).token
    return {
        "job_id": str(job.id), "task_id": str(task.id), "token_id": str(token.id), "tag": "etl%2Fmain",
        "which": "etl%2Fmain", "into": "etl%2Fmain", "user": "ada", "slug": "finance",
        "backfill_id": str(backfill.id),
    }  # fmt: skip
