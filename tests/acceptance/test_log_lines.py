"""The log as programs read it: one object a line that says what it is about, and never a secret."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

import httpx
from apps.cli_scene import Cli, Command

import weft

CANARY = "canary-0815"


def _objects(command: Command) -> list[dict[str, Any]]:
    """Return the lines of the log; the one line of the standard output is for people."""
    return [json.loads(line) for line in command.lines if not line.startswith("weft: worker")]


async def test_each_line_is_an_object_that_names_request_task_and_worker_and_no_secret(
    url: str, home: Path, client: weft.Client
) -> None:
    secret = (await client.tokens.create("nightly", role="writer")).secret
    cli = Cli(url.replace("postgres@", f"postgres:{CANARY}@"), home, WEFT_LOG_FORMAT="json")
    with (
        cli.start("server", "--port", "0") as server,
        cli.start("worker", "--app", "traced_app", "--fast", "--log-format", "json") as worker,
    ):
        address = json.loads(await asyncio.to_thread(server.line, "answers at"))["message"].split()[-1]
        async with httpx.AsyncClient(base_url=address, headers={"authorization": f"Bearer {secret}"}) as http:
            asked = {"handler": "traced:flaky", "params": {"secret": CANARY}}
            task_id = (await http.post("/api/v1/tasks", json=asked)).json()["id"]
            await http.get(f"/api/v1/tasks/{task_id}", params={"token": CANARY}, headers={"x-request-id": "r-1"})
            await http.get("/api/v1/jobs/12", headers={"authorization": f"Bearer {CANARY}"})
            await client.wait(int(task_id), timeout=30)
        for command in (server, worker):
            command.signal(signal.SIGTERM)
            assert await asyncio.to_thread(command.code) == 0
    assert CANARY not in str(server.lines + worker.lines)
    assert secret not in str(server.lines)
    (line,) = [line for line in _objects(server) if line.get("request_id") == "r-1"]
    assert {name: line[name] for name in ("level", "logger", "actor", "route", "status", "task_id")} == {
        "level": "info", "logger": "weft.server.requests", "actor": "token:nightly", "status": 200, "task_id": task_id,
        "route": "/api/v1/tasks/{task_id}",
    }  # fmt: skip
    (failed,) = [line for line in _objects(worker) if line.get("outcome") == "failed"]
    assert {name: failed[name] for name in ("task_id", "attempt", "handler", "queue", "reason")} == {
        "task_id": task_id, "attempt": 1, "handler": "traced:flaky", "queue": "default", "reason": "error",
    }  # fmt: skip
    (known,) = await client.workers(state="stopped")
    assert failed["worker_id"] == str(known.id)
    assert failed["time"].endswith("Z")
