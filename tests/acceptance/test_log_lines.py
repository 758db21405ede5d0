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
FLOW = {
    "workflow_id": "logged",
    "inputs": {"secret": {"type": "string"}},
    "nodes": {
        "START": {"type": "start", "next": "flaky"},
        "flaky": {
            "type": "task", "handler": "traced:flaky", "params": {"secret": "{{ inputs.secret }}"}, "next": "END",
        },
        "END": {"type": "end"},
    },
}  # fmt: skip


def _objects(command: Command) -> list[dict[str, Any]]:
    """Return the lines of the log; the one line of the standard output is for people."""
    return [json.loads(line) for line in command.lines if not line.startswith("weft: worker")]


async def test_each_line_is_an_object_that_names_request_job_task_and_worker_and_no_secret(
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
            task_id = (await http.post("/api/v1/tasks", json=asked, headers={"x-request-id": "r-0"})).json()["id"]
            await http.get(f"/api/v1/tasks/{task_id}", params={"token": CANARY}, headers={"x-request-id": "r-1"})
            await http.get("/api/v1/jobs/12", headers={"authorization": f"Bearer {CANARY}"})
            await client.wait(int(task_id), timeout=30)
            asked = {"workflow": FLOW, "inputs": {"secret": CANARY}}
            job_id = (await http.post("/api/v1/jobs", json=asked, headers={"x-request-id": "r-2"})).json()["id"]
            answered = await http.get(f"/api/v1/jobs/{job_id}")
            (node,) = [each for each in await client.jobs.nodes(int(job_id)) if each.node == "flaky"]
            await client.wait(node.id, timeout=30)
        for command in (server, worker):
            command.signal(signal.SIGTERM)
            assert await asyncio.to_thread(command.code) == 0
    assert CANARY not in str(server.lines + worker.lines)
    assert secret not in str(server.lines)
    told = "there is no second wall between orgs: its role postgres is a superuser; "
    assert [line["level"] for line in _objects(server) if line["message"].startswith(told)] == ["warning"]
    requests = {line["request_id"]: line for line in _objects(server) if "request_id" in line}
    said = {"level": "info", "logger": "weft.server.requests", "actor": "token:nightly", "org": "default"}
    # There is no such parameter, and what is in it is nobody's business.
    about_task = {"method": "GET", "route": "/api/v1/tasks/{task_id}", "status": 422, "task_id": task_id}
    about_job = {"method": "GET", "route": "/api/v1/jobs/{job_id}", "status": 200, "job_id": job_id}
    submitted = {"method": "POST", "route": "/api/v1/jobs", "status": 201, "job_id": job_id}
    enqueued = {"method": "POST", "route": "/api/v1/tasks", "status": 201, "task_id": task_id}
    # One to whom the caller gave no name has one all the same, and is told it.
    unnamed = answered.headers["x-request-id"]
    for request_id, about in {"r-0": enqueued, "r-1": about_task, "r-2": submitted, unnamed: about_job}.items():
        assert {name: requests[request_id].get(name) for name in (*said, *about)} == said | about
    alone, failed = [line for line in _objects(worker) if line.get("outcome") == "failed"]
    common = {"attempt": 1, "handler": "traced:flaky", "queue": "default", "reason": "error"}
    about_node = {"task_id": str(node.id), "job_id": job_id, "node": "flaky"}
    assert {name: alone.get(name) for name in (*common, *about_node)} == {
        **common, "task_id": task_id, "job_id": None, "node": None,
    }  # fmt: skip
    assert {name: failed.get(name) for name in (*common, *about_node)} == common | about_node
    (known,) = await client.workers(state="stopped")
    assert failed["worker_id"] == str(known.id)
    assert failed["time"].endswith("Z")
