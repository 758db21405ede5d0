"""Batches of the worker protocol: a request about many tasks takes no more transactions than one about one."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest
from server_scene import MakeHttp

import weft
from weft.remote.asking import Asking
from weft.server.serving import Server
from weft.worker.registry import Registry

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


async def test_logs_of_many_tasks_of_one_worker_are_sent_in_few_requests(
    server: Server, client: weft.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry, asked, go = Registry(), list[str](), asyncio.Event()

    @registry.task(name="talk")
    async def talk(n: int) -> None:
        print(f"task {n} began")
        await go.wait()

    ask = Asking.ask

    async def noted(self: Asking, path: str, body: dict[str, Any], *, wait: float = 0.0) -> dict[str, Any]:
        asked.append(path)
        return await ask(self, path, body, wait=wait)

    monkeypatch.setattr(Asking, "ask", noted)
    made = await client.enqueue_many([weft.NewTask("talk", {"n": n}) for n in range(20)])
    secret = (await client.tokens.create("w", role="worker")).secret
    elsewhere = weft.Settings.load(environ={}, home=tmp_path / "elsewhere")
    async with (
        weft.RemoteClient(server.url, secret, settings=elsewhere) as far,
        weft.Worker(client=far, registry=registry, concurrency=20),
    ):
        async with asyncio.timeout(60):
            while not all([await client.read_log(each.id) for each in made]):  # noqa: ASYNC110  (only the disk knows)
                await asyncio.sleep(0.05)
        assert asked.count("/v1/task/log") == 0
        assert 1 <= asked.count("/v1/task/logs") <= len(made)
        go.set()
        for each in made:
            await client.wait(each.id, 60)
    assert [await client.read_log(each.id) for each in made] == [f"task {n} began\n".encode() for n in range(20)]


async def _claimed(http: httpx.AsyncClient) -> list[dict[str, str]]:
    """Register a worker, and return the leases of all that there is."""
    told = await http.post("/v1/worker/register", json={"queues": ["default"], "handlers": ["h"]})
    claimed = await http.post("/v1/task/claim", json={"worker_id": told.json()["worker_id"], "limit": _MANY})
    return [{name: task[name] for name in ("task_id", "lease_token")} for task in claimed.json()["tasks"]]
