"""A server that is killed amid a request: whoever sends it again gets the first answer, or what is left is done."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from server_scene import FLOW

import weft

_PROGRAM = Path(__file__).with_name("dying_server.py")
_OTHER = FLOW.replace("workflow_id: etl", "workflow_id: other")


@asynccontextmanager
async def _dying(url: str) -> AsyncIterator[str]:
    """Run a server that is killed while this goes on, and give its address."""
    dying = await asyncio.create_subprocess_exec(sys.executable, str(_PROGRAM), url, stdout=asyncio.subprocess.PIPE)
    try:
        assert dying.stdout is not None
        yield f"http://127.0.0.1:{int(await dying.stdout.readline())}"
        assert await dying.wait() == -signal.SIGKILL
    finally:
        if dying.returncode is None:
            dying.kill()
            await dying.wait()


async def _jobs(client: weft.Client) -> list[int]:
    return [job.id for job in await client.jobs.list()]


async def _versions(client: weft.Client) -> list[int]:
    return [move.to_id or 0 for move in await client.workflows.moves("other/main")]


async def _tasks(client: weft.Client) -> list[int]:
    return [task.id for task in (await client.list_tasks(queue="default")).tasks if task.handler == "email:send"]


async def _users(client: weft.Client) -> list[int]:
    return [user.id for user in await client.users.list()]


@pytest.mark.parametrize(
    ("path", "body", "name", "made"),
    [
        ("/api/v1/jobs", {"workflow": "etl"}, "id", _jobs),
        ("/api/v1/workflows", {"definition": _OTHER}, "artifact_id", _versions),
        ("/api/v1/users", {"external_id": "ada"}, "id", _users),
        ("/api/v1/tasks", {"handler": "email:send"}, "id", _tasks),
    ],
    ids=["submit", "push", "add", "enqueue"],
)
async def test_a_request_whose_answer_was_lost_with_the_server_is_answered_by_the_next(
    path: str, body: dict[str, Any], name: str, made: Callable[[weft.Client], Awaitable[list[int]]], url: str,
    client: weft.Client, http: httpx.AsyncClient,
) -> None:  # fmt: skip
    await client.workflows.push(FLOW)
    headers = {"idempotency-key": "once", "authorization": http.headers["authorization"]}
    async with _dying(url) as address:
        with pytest.raises(httpx.TransportError):
            await http.post(f"{address}{path}", json=body, headers=headers)
    first = await made(client)
    assert len(first) == 1, "it was done before the server was killed"
    answers = [await http.post(path, json=body, headers=headers) for _ in range(2)]
    assert [(answer.status_code, int(answer.json()[name])) for answer in answers] == 2 * [(201, first[0])]
    assert answers[0].content == answers[1].content
    assert [answer.headers["idempotency-replayed"] for answer in answers] == ["true", "true"]
    assert answers[0].json().get("created", True), "as the first would have been told"
    assert await made(client) == first


async def test_a_long_call_whose_server_is_killed_says_how_far_it_was_and_the_same_again_does_the_rest(
    url: str, client: weft.Client, remote: weft.RemoteClient
) -> None:
    nodes = {"START": {"type": "start", "next": "END"}, "END": {"type": "end"}}
    made = [(await client.jobs.submit({"workflow_id": "etl", "nodes": nodes})).id for _ in range(20)]
    async with weft.Orchestrator(client=client):
        for each in made:
            await client.jobs.wait(each, 30)
    secret = (await client.tokens.create("caller", role="writer")).secret
    own = weft.Settings.load(environ={})
    async with _dying(url) as address, weft.RemoteClient(address, secret, settings=own) as cut_off:
        with pytest.raises(weft.ServerUnavailable) as told:
            await cut_off.jobs.rerun_all(state="completed")
    assert f"{address}" in str(told.value)
    assert "were done by then, and what is done stays: the same again does the rest" in str(told.value)
    before = [(await client.jobs.show(each)).rerun_of for each in await _jobs(client) if each not in made]
    assert 0 < len(before) < len(made), "some of it was done, and not all"
    assert await remote.jobs.rerun_all(state="completed") == len(made) - len(before)
    again = [(await client.jobs.show(each)).rerun_of for each in await _jobs(client) if each not in made]
    assert sorted(each or 0 for each in again) == sorted(made), "each once, whichever call it was"
