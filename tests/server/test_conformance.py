"""The document is kept: no answer that it does not tell of, nothing taken that it refuses, nothing without an end."""

from __future__ import annotations

import asyncio

import pytest
from conformance import part_of, surprises
from server_scene import FLOW

import weft
from weft.server.app import make_app
from weft.server.serving import Server

_PARTS = {
    "jobs": {"jobs", "approvals", "events"},
    "workflows": {"workflows", "history"},
    "tags": {"tags"},
    "tasks": {"tasks"},
    "queues": {"queues", "outbox", "cache", "dead-letters"},
    "workers": {"workers"},
    "people": {"orgs", "users", "roles", "tokens"},
    "others": set[str](),
}


@pytest.mark.parametrize("part", _PARTS)
async def test_every_answer_is_one_that_the_document_tells_of(
    part: str, server: Server, client: weft.Client, settings: weft.Settings, campaign: str
) -> None:
    secret = (await client.tokens.create("tester", role="admin")).secret
    document = make_app(settings).openapi()
    named = _PARTS[part] or {tag for tags in _PARTS.values() for tag in tags}
    chosen = part_of(document, frozenset(named), others=part == "others")
    known = await _known(client)
    is_long = campaign == "long"
    # The bodies of the worker protocol have so many fields that all kinds of values take minutes.
    is_covered = is_long or part != "workers"
    sent, problems = await asyncio.to_thread(
        surprises, chosen, server.url, secret, known, is_long=is_long, is_covered=is_covered
    )
    assert not problems, "\n".join(problems)
    assert sent > (5 if is_covered else 1) * len(chosen["paths"])


async def _known(client: weft.Client) -> dict[str, str]:
    """Return names and ids of what is there, by the parameters of paths that take them."""
    await client.workflows.push(FLOW)
    job = await client.jobs.submit("etl")
    task = await client.enqueue("h", {"n": 1})
    await client.users.add("ada")
    await client.roles.create("finance")
    token = (await client.tokens.create("another", role="reader")).token
    return {
        "job_id": str(job.id), "task_id": str(task.id), "token_id": str(token.id), "tag": "etl%2Fmain",
        "which": "etl%2Fmain", "into": "etl%2Fmain", "user": "ada", "slug": "finance",
    }  # fmt: skip
