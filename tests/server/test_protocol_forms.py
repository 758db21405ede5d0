"""What all acts of the worker protocol have in common: one task or several, the lease they extend, their line."""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import asyncpg
import httpx
import pytest
from server_scene import MakeHttp

import weft
from weft.server.serving import Server


async def _ask(http: httpx.AsyncClient, path: str, /, status: int = 200, **body: Any) -> dict[str, Any]:
    answer = await http.post(path, json=body)
    assert answer.status_code == status, answer.text
    return dict(answer.json())


async def _register(http: httpx.AsyncClient) -> str:
    told = await _ask(http, "/v1/worker/register", queues=["default"], handlers=["h"])
    return str(told["worker_id"])


async def _claim(http: httpx.AsyncClient, worker: str, limit: int = 1) -> list[dict[str, Any]]:
    told = await _ask(http, "/v1/task/claim", worker_id=worker, limit=limit)
    return [{name: task[name] for name in ("task_id", "lease_token")} for task in told["tasks"]]


async def test_each_act_takes_one_task_by_itself_or_several_and_never_both(
    make_http: MakeHttp, client: weft.Client
) -> None:
    http = await make_http(role="worker")
    worker = await _register(http)
    verbs = ("heartbeat", "release", "fail", "complete")
    await client.enqueue_many([weft.NewTask("h") for _ in verbs])
    tasks = await _claim(http, worker, len(verbs))
    for lease, verb in zip(tasks, verbs, strict=True):
        path, lost = f"/v1/task/{verb}", {**lease, "lease_token": f"{worker}.9"}
        both = await _ask(http, path, 422, **lease, tasks=[lease])
        assert both["field"] == "task_id"
        assert (await _ask(http, path, 422))["field"] == "task_id"
        assert (await _ask(http, path, 409, **lost))["code"] == "lease_lost"
        assert await _ask(http, path, tasks=[lost]) == {"tasks": [], "refused": [lease["task_id"]]}
        assert await _ask(http, path, **lease) == {"tasks": [lease["task_id"]], "refused": []}


async def test_a_worker_that_sends_no_other_heartbeats_than_those_of_its_tasks_keeps_them(
    settings: weft.Settings, client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    async def lapse() -> None:
        await conn.execute("update weft.worker set until = weft.now() + interval '9 s', heartbeat_at = '2020-01-01'")

    async def until() -> tuple[timedelta, datetime]:
        row = await conn.fetchrow("select until - weft.now() as rest, heartbeat_at from weft.worker where token_id > 0")
        assert row is not None
        return row["rest"], row["heartbeat_at"]

    secret = (await client.tokens.create("w", role="worker")).secret
    await client.enqueue("h")
    slow = replace(settings, worker_timeout=timedelta(hours=2), worker_heartbeat_interval=timedelta(hours=1))
    quick = replace(slow, worker_heartbeat_interval=timedelta(microseconds=1))
    headers = {"authorization": f"Bearer {secret}"}
    async with Server(quick, port=0) as server, httpx.AsyncClient(base_url=server.url, headers=headers) as http:
        worker = await _register(http)
        (lease,) = await _claim(http, worker)
        await lapse()
        await _ask(http, "/v1/task/heartbeat", **lease)
        assert (await until())[0] > timedelta(hours=1)
        await lapse()
        await _ask(http, "/v1/task/heartbeat", 409, task_id=lease["task_id"], lease_token=f"{worker}.9")
        assert (await until())[0] < timedelta(hours=1), "of a task that it does not hold"
    async with Server(slow, port=0) as server, httpx.AsyncClient(base_url=server.url, headers=headers) as http:
        await _ask(http, "/v1/worker/heartbeat", worker_id=worker)
        beaten = (await until())[1]
        await _ask(http, "/v1/task/heartbeat", **lease)
        assert (await until())[1] == beaten, "its own came not long ago: nothing is written"
    async with Server(slow, port=0) as server, httpx.AsyncClient(base_url=server.url, headers=headers) as http:
        await _ask(http, "/v1/task/heartbeat", **lease)
        assert (await until())[1] == beaten, "nor where it came to another server"
        await conn.execute("update weft.worker set state = 'lost'")
    async with Server(slow, port=0) as server, httpx.AsyncClient(base_url=server.url, headers=headers) as http:
        assert (await _ask(http, "/v1/task/heartbeat", 409, **lease))["code"] == "worker_lost"


async def test_a_value_that_is_too_large_says_which_setting_it_is(settings: weft.Settings, client: weft.Client) -> None:
    secret = (await client.tokens.create("w", role="worker")).secret
    headers = {"authorization": f"Bearer {secret}", "content-type": "application/json"}
    small = replace(settings, value_limit=1000, server_body_limit=500)
    async with Server(small, port=0) as server, httpx.AsyncClient(base_url=server.url, headers=headers) as http:
        blob = await http.put("/v1/task/blob", params={"task_id": "1", "lease_token": "1.1"}, content=b"x" * 1001)
        body = await http.post("/v1/task/complete", content=b" " * 501)
    assert (blob.status_code, body.status_code) == (413, 413)
    assert "1000 bytes, which is WEFT_VALUE_LIMIT" in blob.json()["detail"]
    assert "500 bytes, which is WEFT_SERVER_BODY_LIMIT" in body.json()["detail"]


async def test_lines_of_the_log_name_worker_tasks_and_job(
    make_http: MakeHttp, client: weft.Client, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "weft.server.requests")
    nodes = {
        "START": {"type": "start", "next": "a"},
        "a": {"type": "task", "handler": "h", "next": "END"},
        "END": {"type": "end"},
    }
    http = await make_http(role="worker")
    worker = await _register(http)

    def last() -> dict[str, Any]:
        names = ("route", "worker_id", "job_id", "task_id", "task_ids")
        return {name: value for name in names if (value := getattr(caplog.records[-1], name, None)) is not None}

    async with weft.Orchestrator(client=client):
        job = await client.jobs.submit({"workflow_id": "w", "nodes": nodes})
        while not (tasks := await _claim(http, worker)):
            pass
    (lease,) = tasks
    about = {"worker_id": worker, "task_id": lease["task_id"]}
    assert last() == {"route": "/v1/task/claim", "job_id": str(job.id), **about}
    await _ask(http, "/v1/task/step/load", **lease)
    assert last() == {"route": "/v1/task/step/load", "job_id": str(job.id), **about}
    await _ask(http, "/v1/task/complete", **lease)
    assert last() == {"route": "/v1/task/complete", **about}
    await client.enqueue_many([weft.NewTask("h") for _ in range(12)])
    several = await _claim(http, worker, 12)
    await _ask(http, "/v1/task/release", tasks=several)
    ids = [task["task_id"] for task in several]
    assert last() == {"route": "/v1/task/release", "worker_id": worker, "task_ids": ids[:10]}
