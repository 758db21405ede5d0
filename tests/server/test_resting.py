"""Tasks that wait for others take no slot of a limited queue; the limit holds whichever server is asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import timedelta
from typing import Any

import asyncpg
import httpx
import pytest

import weft
from weft.queue.work import Lane
from weft.server.serving import Server
from weft.server.shares import Shares

QUEUE = "few"


class Pair:
    """One worker with one token that speaks to two servers, a and b, as it pleases."""

    def __init__(self, client: weft.Client, a: httpx.AsyncClient, b: httpx.AsyncClient) -> None:
        self.client = client
        self.a, self.b = a, b
        self.id = ""

    async def ask(self, at: httpx.AsyncClient, path: str, **body: Any) -> dict[str, Any]:
        answer = await at.post(f"/v1/{path}", json=body)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    async def claim(self, at: httpx.AsyncClient, limit: int = 5, **more: Any) -> list[dict[str, str]]:
        told = await self.ask(at, "task/claim", worker_id=self.id, limit=limit, **more)
        return [{name: task[name] for name in ("task_id", "lease_token")} for task in told["tasks"]]

    async def rest(self, at: httpx.AsyncClient, task: dict[str, str]) -> None:
        """Let a task wait for one that nobody runs."""
        other = await self.client.enqueue("never", queue="default")
        told = await self.ask(at, "task/await", **task, ids=[str(other.id)], wait=0.01)
        assert told["ended"] is None

    async def may_go_on(self, at: httpx.AsyncClient, task: dict[str, str], wait: float = 0.05) -> bool:
        return bool((await self.ask(at, "task/go-on", **task, wait=wait))["may"])


@pytest.fixture
async def pair(settings: weft.Settings, client: weft.Client) -> AsyncIterator[Pair]:
    async with AsyncExitStack() as stack:
        token = (await client.tokens.create("pair", role="worker")).secret
        await client.create_queue(QUEUE)
        await client.limit_queue(QUEUE, 1)
        each = []
        for _ in range(2):
            server = await stack.enter_async_context(Server(settings, port=0))
            headers = {"authorization": f"Bearer {token}"}
            each.append(
                await stack.enter_async_context(httpx.AsyncClient(base_url=server.url, headers=headers, timeout=30))
            )
        made = Pair(client, *each)
        told = await made.ask(made.a, "worker/register", queues=[QUEUE], handlers=["h"], concurrency=10)
        made.id = told["worker_id"]
        yield made


async def test_a_task_that_rested_at_a_server_that_is_gone_goes_on_at_another(pair: Pair) -> None:
    await pair.client.enqueue_many([weft.NewTask("h", queue=QUEUE) for _ in range(3)])
    (resting,) = await pair.claim(pair.a)
    await pair.rest(pair.a, resting)
    (another,) = await pair.claim(pair.a)
    assert not await pair.may_go_on(pair.b, resting), "its slot is another's"
    await pair.ask(pair.a, "task/complete", **another, output=1)
    assert await pair.may_go_on(pair.b, resting, 10)
    assert await pair.may_go_on(pair.a, resting), "told again it is no news"
    assert await pair.claim(pair.a) == await pair.claim(pair.b) == []
    await pair.ask(pair.b, "task/complete", **resting, output=1)
    assert len(await pair.claim(pair.b)) == 1


async def test_one_that_went_on_at_another_server_takes_its_slot_again(pair: Pair) -> None:
    await pair.client.limit_queue(QUEUE, 2)
    await pair.client.enqueue_many([weft.NewTask("h", queue=QUEUE) for _ in range(5)])
    (resting,) = await pair.claim(pair.a, 1)
    await pair.rest(pair.a, resting)
    assert await pair.may_go_on(pair.b, resting, 10)
    assert len(await pair.claim(pair.a)) == 1


async def test_the_attempt_after_one_that_ended_while_it_rested_takes_a_slot(pair: Pair) -> None:
    made = await pair.client.enqueue("h", queue=QUEUE, max_attempts=2)
    (resting,) = await pair.claim(pair.a)
    await pair.rest(pair.a, resting)
    await pair.ask(pair.a, "task/fail", **resting, retry_in=0)
    (again,) = await pair.claim(pair.a, wait=20)
    assert again["task_id"] == str(made.id)
    await pair.client.enqueue_many([weft.NewTask("h", queue=QUEUE) for _ in range(2)])
    assert await pair.claim(pair.a) == await pair.claim(pair.b) == []


async def test_two_servers_that_claim_at_once_for_a_worker_stay_within_the_limit(
    pair: Pair, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    await pair.client.enqueue_many([weft.NewTask("h", queue=QUEUE) for _ in range(2)])
    async with conn.transaction():
        await conn.execute("select pg_advisory_xact_lock(hashtextextended('weft.share', $1))", int(pair.id))
        claims = [asyncio.create_task(pair.claim(at)) for at in (pair.a, pair.b)]
        waiting = "select count(*) from pg_locks where locktype = 'advisory' and not granted and database ="
        while await conn.fetchval(f"{waiting} (select oid from pg_database where datname = current_database())") < 2:
            await conn.execute("select pg_sleep(0.005)")
    assert sorted(len(each) for each in await asyncio.gather(*claims)) == [0, 1]


async def test_a_slot_that_one_server_gave_back_is_not_taken_by_another(pair: Pair) -> None:
    await pair.client.limit_queue(QUEUE, 2)
    await pair.client.enqueue_many([weft.NewTask("h", queue=QUEUE) for _ in range(2)])
    first, second = await pair.claim(pair.a, 2)
    await pair.ask(pair.a, "task/complete", **first, output=1)
    # There is nothing to claim: of the two slots one goes back.
    assert await pair.claim(pair.b) == []
    token = (await pair.client.tokens.create("other", role="worker")).secret
    headers = {"authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(base_url=str(pair.b.base_url), headers=headers, timeout=30) as http:
        other = Pair(pair.client, http, http)
        other.id = (await other.ask(http, "worker/register", queues=[QUEUE], handlers=["h"]))["worker_id"]
        await pair.client.enqueue_many([weft.NewTask("h", queue=QUEUE) for _ in range(3)])
        assert len(await other.claim(http)) == 1
        assert await pair.claim(pair.a) == []
    await pair.ask(pair.a, "task/complete", **second, output=1)


async def test_whoever_would_go_on_comes_before_whoever_has_not_begun(pair: Pair) -> None:
    await pair.client.enqueue_many([weft.NewTask("h", queue=QUEUE) for _ in range(2)])
    (resting,) = await pair.claim(pair.a)
    await pair.rest(pair.a, resting)
    database, queue_id = pair.client.database, await _queue_id(pair.client)
    lane = Lane(queue_id)
    shares = Shares(database, int(pair.id), [lane])

    async def room() -> int:
        async with database.transaction() as conn:
            await shares.measure(conn, 1)
        return lane.room

    await shares.ask(1)
    with shares.returning(queue_id):
        assert await room() == 0
        assert await shares.give_back() == set(), "it is kept for whoever would go on"
    assert await room() == 1


async def _queue_id(client: weft.Client) -> int:
    async with client.database.acquire() as conn:
        return int(await conn.fetchval("select id from weft.queue where name = $1", QUEUE))


async def test_a_server_to_which_no_heartbeats_come_knows_of_a_limit_all_the_same(
    settings: weft.Settings, client: weft.Client
) -> None:
    quick = replace(settings, worker_heartbeat_interval=timedelta(milliseconds=1))
    token = (await client.tokens.create("pair", role="worker")).secret
    headers = {"authorization": f"Bearer {token}"}
    async with (
        Server(quick, port=0) as server,
        httpx.AsyncClient(base_url=server.url, headers=headers, timeout=30) as http,
    ):
        pair = Pair(client, http, http)
        pair.id = (await pair.ask(http, "worker/register", queues=[QUEUE], handlers=["h"]))["worker_id"]
        await client.limit_queue(QUEUE, 1)
        await client.enqueue_many([weft.NewTask("h", queue=QUEUE) for _ in range(2)])
        assert len(await pair.claim(http)) == 1


async def test_a_slot_for_which_a_worker_has_no_room_left_is_anothers(pair: Pair) -> None:
    await pair.client.enqueue("h", queue="default", priority=9)
    await pair.client.enqueue("h", queue=QUEUE)
    token = (await pair.client.tokens.create("other", role="worker")).secret
    headers = {"authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(base_url=str(pair.a.base_url), headers=headers, timeout=30) as http:
        other = Pair(pair.client, http, http)
        other.id = (await other.ask(http, "worker/register", queues=["default", QUEUE], handlers=["h"]))["worker_id"]
        # It takes one of the queue without a limit, for hours perhaps.
        assert len(await other.claim(http, 1)) == 1
        assert len(await pair.claim(pair.b)) == 1
