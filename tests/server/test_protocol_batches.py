"""Batches of the worker protocol: a request about many tasks takes no more transactions than one about one."""

from __future__ import annotations

import asyncpg
import httpx
import pytest
from server_scene import MakeHttp

import weft

_MANY = 100
# Some of what goes on beside: hints, and the upkeep of whoever leads.
_FEW = 10


@pytest.mark.parametrize("verb", ["heartbeat", "complete", "fail", "release"])
async def test_a_request_about_many_tasks_takes_few_transactions(
    verb: str, make_http: MakeHttp, client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    made = await client.enqueue_many([weft.NewTask("h", heartbeat_timeout=60) for _ in range(_MANY)])
    http = await make_http(role="worker")
    leases = await _claimed(http)
    first = int(await conn.fetchval("select pg_current_xact_id()::text"))
    answer = await http.post(f"/v1/task/{verb}", json={"tasks": leases})
    last = int(await conn.fetchval("select pg_current_xact_id()::text"))
    assert sorted(answer.json()["tasks"]) == sorted(str(each.id) for each in made), answer.text
    assert last - first <= _FEW


async def _claimed(http: httpx.AsyncClient) -> list[dict[str, str]]:
    """Register a worker, and return the leases of all that there is."""
    told = await http.post("/v1/worker/register", json={"queues": ["default"], "handlers": ["h"]})
    claimed = await http.post("/v1/task/claim", json={"worker_id": told.json()["worker_id"], "limit": _MANY})
    return [{name: task[name] for name in ("task_id", "lease_token")} for task in claimed.json()["tasks"]]
