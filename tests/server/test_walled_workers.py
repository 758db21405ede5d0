"""The second wall of the worker protocol: what workers ask for is done in sessions that see nothing of other orgs."""

from __future__ import annotations

from typing import Any

import asyncpg
import httpx
import pytest

import weft
from weft.server.serving import Server

_ACTS: dict[str, dict[str, Any]] = {
    "complete": {"output": 1},
    "decline": {},
    "step": {"name": "a", "data": 1},
    "checkpoint": {"phase": "a", "data": 1},
    "step/load": {},
    "step/drop": {"name": "a"},
    "metrics": {"data": {"rows": 1}},
    "spawn": {"call": "a", "handler": "h"},
    "await": {"ids": ["1"], "wait": 0},
    "go-on": {"wait": 0},
    "take": {},
    "log": {"text": "a", "is_last": True},
    "cached": {"key": "0" * 64},
}
_EACH: dict[str, dict[str, Any]] = {"fail": {"error": {"message": "no"}}, "release": {}, "heartbeat": {}}
_WRITTEN = (
    "select (select jsonb_agg(t) from weft.task t), (select count(*) from weft.step),"
    " (select count(*) from weft.attempt), (select count(*) from weft.task_done),"
    " (select count(*) from weft.task_blob), (select count(*) from weft.task_log)"
)


@pytest.fixture
async def rival(client: weft.Client) -> int:
    await client.orgs.create("rival")
    return (await client.orgs.show("rival")).id


async def test_a_task_that_a_worker_does_not_know_is_left_to_others_by_the_rights_of_the_docs(
    walled_server: Server, client: weft.Client
) -> None:
    headers = {"authorization": f"Bearer {(await client.tokens.create('worker', role='worker')).secret}"}
    async with httpx.AsyncClient(base_url=walled_server.url, headers=headers, timeout=30) as http:
        entered = await http.post("/v1/worker/register", json={"queues": ["default"], "handlers": ["h"]})
        await client.enqueue("elsewhere")
        claimed = await http.post("/v1/task/claim", json={"worker_id": entered.json()["worker_id"]})
        (task,) = claimed.json()["tasks"]
        held = {"task_id": task["task_id"], "lease_token": task["lease_token"]}
        answer = await http.post("/v1/task/decline", json=held)
        assert (answer.status_code, answer.json()) == (200, {"is_left": True})


async def test_no_act_of_a_worker_reaches_a_task_of_another_org_whatever_its_lease_says(
    walled_server: Server, client: weft.Client, conn: asyncpg.Connection[asyncpg.Record], rival: int
) -> None:
    secret = (await client.tokens.create("worker", role="worker")).secret
    headers = {"authorization": f"Bearer {secret}"}
    async with httpx.AsyncClient(base_url=walled_server.url, headers=headers, timeout=30) as http:
        entered = await http.post("/v1/worker/register", json={"queues": ["default"], "handlers": ["h"]})
        worker_id = entered.json()["worker_id"]
        made = await client.enqueue("h")
        claimed = await http.post("/v1/task/claim", json={"worker_id": worker_id})
        (task,) = claimed.json()["tasks"]
        held = {"task_id": task["task_id"], "lease_token": task["lease_token"]}
        # As if a statement had forgotten to ask whose it is: worker, attempt and state are all as they should be.
        await conn.execute("update weft.task set org_id = $1 where id = $2", rival, made.id)
        before = await conn.fetchrow(_WRITTEN)
        for verb, more in _ACTS.items():
            answer = await http.post(f"/v1/task/{verb}", json={**held, **more})
            assert answer.status_code in (404, 409), (verb, answer.text)
        for verb, more in _EACH.items():
            answer = await http.post(f"/v1/task/{verb}", json={"tasks": [{**held, **more}]})
            assert answer.status_code == 409 or answer.json()["tasks"] == [], (verb, answer.text)
        put = await http.put("/v1/task/blob", params=held, content=b"x")
        assert put.status_code == 409
        done = await http.post("/v1/task/claim", json={"worker_id": worker_id, "completed": [{**held, "output": 1}]})
        assert done.json() | {"again_in": None} == {"tasks": [], "refused": [task["task_id"]], "again_in": None}
        told = await http.post("/v1/worker/heartbeat", json={"worker_id": worker_id, "tasks": [held]})
        assert told.json()["lost"] == [task["task_id"]]
        assert (await http.post("/v1/worker/holdings", json={"worker_id": worker_id})).json()["tasks"] == []
        left = await http.post("/v1/worker/deregister", json={"worker_id": worker_id})
        assert left.status_code == 200
        assert await conn.fetchrow(_WRITTEN) == before
