"""Workers and servers that are killed: nothing that was acknowledged is lost, nothing is done twice."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import orjson
import pytest

import weft

APP = """
import os, time
import weft

@weft.task(name="hang")
def hang(ctx: weft.Context) -> int:
    if ctx.attempt == 1:
        print("began", flush=True)
        time.sleep(600)
    print("once more")
    return ctx.attempt
"""


@pytest.fixture
def environment(url: str, home: Path, tmp_path: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("WEFT_", "PG"))}
    (tmp_path / "far_app.py").write_text(APP)
    return {**kept, "WEFT_HOME": str(home), "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}


@asynccontextmanager
async def _program(environment: dict[str, str], *argv: str, until: str) -> AsyncIterator[tuple[Process, str]]:
    """Run a command of ours; yields it with what it has said when it was ready."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "weft", *argv, env=environment, stdout=PIPE, stderr=asyncio.subprocess.STDOUT
    )
    assert process.stdout is not None
    try:
        while (found := re.search(until, line := (await process.stdout.readline()).decode())) is None:
            assert line, "it has ended"
        yield process, found[0]
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


def _server(environment: dict[str, str], url: str, port: int = 0) -> Any:
    arguments = ("server", "--port", str(port))
    return _program({**environment, "WEFT_DATABASE_URL": url}, *arguments, until=r"http://[0-9.:]+")


async def _until(is_so: Callable[[], Any]) -> None:
    async with asyncio.timeout(60):
        while not await is_so():  # noqa: ASYNC110  (only the database knows)
            await asyncio.sleep(0.02)


async def test_a_killed_worker_loses_its_task_to_another_by_the_upkeep_of_the_server(
    client: weft.Client, url: str, environment: dict[str, str], conn: asyncpg.Connection[asyncpg.Record], tmp_path: Path
) -> None:
    """Nobody here but the server has a database, and the workers write to a disk of their own."""
    token = (await client.tokens.create("w", role="worker")).secret
    made = await client.enqueue("hang")
    environment = {**environment, "WEFT_PROFILE": "fast", "WEFT_TOKEN": token}
    async with _server(environment, url) as (_, address):
        arguments = ("worker", "--app", "far_app", "--server", address)
        elsewhere = {**environment, "WEFT_HOME": str(tmp_path / "elsewhere")}
        async with _program(elsewhere, *arguments, until="ready") as (first, _):
            # What it prints is there while it runs.
            await _until(lambda: client.read_log(made.id))
            assert await conn.fetchval("select true from weft.task where state = 'running'")
            first.send_signal(signal.SIGKILL)
        async with _program(elsewhere, *arguments, until="ready"):
            assert await client.wait(made.id, 60) == 2
        found = await client.get_task(made.id)
        assert (found.crashes, found.failures) == (1, 0)
        assert await client.read_log(made.id) == b"began\n\n[weft: attempt 2]\nonce more\n"


async def test_a_server_killed_between_commit_and_answer_is_told_again_and_says_that_it_is_done(
    client: weft.Client, url: str, environment: dict[str, str], conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    made = [await client.enqueue("h"), await client.enqueue("h")]
    headers = {"authorization": f"Bearer {(await client.tokens.create('w', role='worker')).secret}"}

    async def ask(address: str, path: str, body: dict[str, Any]) -> httpx.Response:
        async with httpx.AsyncClient(base_url=address, headers=headers, timeout=30) as http:
            return await http.post(path, json=body)

    async with _server(environment, url) as (server, address):
        told = (await ask(address, "/v1/worker/register", {"queues": ["default"], "handlers": ["h"]})).json()
        worker = {"worker_id": told["worker_id"]}
        tasks = (await ask(address, "/v1/task/claim", {**worker, "limit": 2})).json()["tasks"]
        first, second = [{name: task[name] for name in ("task_id", "lease_token")} for task in tasks]
        done = {**first, "output": "kept"}
        failed = {"tasks": [{**second, "retryable": False}]}
        for path, body, task in (("/v1/task/complete", done, made[0]), ("/v1/task/fail", failed, made[1])):
            # Sent, and the answer is not read.
            host, port = address.removeprefix("http://").split(":")
            _, writer = await asyncio.open_connection(host, int(port))
            data = orjson.dumps(body)
            head = f"POST {path} HTTP/1.1\r\nhost: x\r\nauthorization: {headers['authorization']}\r\n"
            head += "content-type: application/json\r\n"
            writer.write(f"{head}content-length: {len(data)}\r\n\r\n".encode() + data)
            await writer.drain()
            await _until(
                lambda task=task: conn.fetchval("select true from weft.task_done where id = $1", task.id)  # type: ignore[misc]
            )
            writer.close()
        server.send_signal(signal.SIGKILL)
        await server.wait()
    async with _server(environment, url) as (_, address):
        for path, body, task in (("/v1/task/complete", done, made[0]), ("/v1/task/fail", failed, made[1])):
            again = await ask(address, path, body)
            assert (again.status_code, again.json()) == (200, {"tasks": [str(task.id)], "refused": []})
    assert await client.wait(made[0].id) == "kept"
    assert [attempt.outcome for attempt in (await client.get_task(made[1].id)).attempts] == ["failed"]
