"""A server that is killed between the commit and the answer: whoever sends the request again gets the first answer."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from server_scene import FLOW

import weft

_PROGRAM = Path(__file__).with_name("dying_server.py")
_OTHER = FLOW.replace("workflow_id: etl", "workflow_id: other")


async def _jobs(client: weft.Client) -> list[int]:
    return [job.id for job in await client.jobs.list()]


async def _versions(client: weft.Client) -> list[int]:
    return [move.to_id or 0 for move in await client.workflows.moves("other/main")]


async def _users(client: weft.Client) -> list[int]:
    return [user.id for user in await client.users.list()]


@pytest.mark.parametrize(
    ("path", "body", "name", "made"),
    [
        ("/api/v1/jobs", {"workflow": "etl"}, "id", _jobs),
        ("/api/v1/workflows", {"definition": _OTHER}, "artifact_id", _versions),
        ("/api/v1/users", {"external_id": "ada"}, "id", _users),
    ],
    ids=["submit", "push", "add"],
)
async def test_a_request_whose_answer_was_lost_with_the_server_is_answered_by_the_next(
    path: str, body: dict[str, Any], name: str, made: Callable[[weft.Client], Awaitable[list[int]]], url: str,
    client: weft.Client, http: httpx.AsyncClient,
) -> None:  # fmt: skip
    await client.workflows.push(FLOW)
    dying = await asyncio.create_subprocess_exec(sys.executable, str(_PROGRAM), url, stdout=asyncio.subprocess.PIPE)
    try:
        assert dying.stdout is not None
        port = int(await dying.stdout.readline())
        headers = {"idempotency-key": "once", "authorization": http.headers["authorization"]}
        with pytest.raises(httpx.TransportError):
            await http.post(f"http://127.0.0.1:{port}{path}", json=body, headers=headers)
        assert await dying.wait() == -signal.SIGKILL
    finally:
        if dying.returncode is None:
            dying.kill()
            await dying.wait()
    first = await made(client)
    assert len(first) == 1, "it was done before the server was killed"
    answers = [await http.post(path, json=body, headers=headers) for _ in range(2)]
    assert [(answer.status_code, int(answer.json()[name])) for answer in answers] == 2 * [(201, first[0])]
    assert answers[0].content == answers[1].content
    assert await made(client) == first
