"""Outcomes that a server will not take, however often they are sent: they fail, and hold up no others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta

import asyncpg
import httpx
import pytest
from gate import Gate

import weft
from weft.queue import upkeep
from weft.server.serving import Server
from weft.worker.registry import Registry

Working = Callable[[str], AbstractAsyncContextManager[weft.Worker]]
_FORGETFUL = """
create function weft.forget() returns trigger language plpgsql as 'begin return null; end';
create trigger forget before insert on weft.task_blob for each row execute function weft.forget();
"""


@pytest.fixture
def registry() -> Registry:
    return Registry()


@pytest.fixture
def working(client: weft.Client, registry: Registry) -> Working:
    """Runs a worker that knows nothing but an address and a token."""

    @asynccontextmanager
    async def run(url: str) -> AsyncIterator[weft.Worker]:
        secret = (await client.tokens.create("far", role="worker")).secret
        async with (
            weft.RemoteClient(url, secret, settings=weft.Settings.load(environ={})) as remote,
            weft.Worker(client=remote, registry=registry, concurrency=40) as worker,
        ):
            yield worker

    return run


async def _reason(client: weft.Client, task_id: int) -> str:
    with pytest.raises(weft.TaskFailed):
        await client.wait(task_id, 30)
    return str((await client.get_task(task_id)).attempts[-1].reason)


async def test_an_output_that_is_not_known_any_more_fails_its_attempt_alone(
    server: Server, client: weft.Client, conn: asyncpg.Connection[asyncpg.Record], working: Working, registry: Registry
) -> None:
    @registry.task(name="text")
    async def text(size: int) -> str:
        return "x" * size

    # What was put is forgotten, as by a failover that loses the last second.
    await conn.execute(_FORGETFUL)
    try:
        made = [await client.enqueue("text", {"size": size}) for size in (client.settings.inline_limit, 1, 2)]
        async with working(server.url):
            assert [await client.wait(each.id, 30) for each in made[1:]] == ["x", "xx"]
            assert await _reason(client, made[0].id) == "output_refused"
            assert await client.wait((await client.enqueue("text", {"size": 3})).id, 30) == "xxx"
    finally:
        await conn.execute("drop trigger forget on weft.task_blob; drop function weft.forget()")


async def test_an_output_that_cannot_be_looked_at_waits_and_others_do_not(
    gate: tuple[Gate, str], client: weft.Client, working: Working, registry: Registry
) -> None:
    assert client.settings.home is not None
    storage, aside, gone = client.settings.home / "blobs", client.settings.home / "aside", asyncio.Event()

    @registry.task(name="text")
    async def text(size: int) -> str:
        return "x" * size

    def look(body: bytes) -> None:
        if b'"blob":' in body and not gone.is_set():
            storage.rename(aside)
            gone.set()

    gate[0].on_body = look
    size = client.settings.inline_limit
    large = await client.enqueue("text", {"size": size})
    async with working(gate[1]):
        await asyncio.wait_for(gone.wait(), 30)
        small = [await client.enqueue("text", {"size": 1}) for _ in range(3)]
        assert [await client.wait(each.id, 30) for each in small] == ["x"] * 3
        assert (await client.get_task(large.id)).state == "running"
        aside.rename(storage)
        assert len(str(await client.wait(large.id, 30))) == size


async def test_what_the_storage_cannot_keep_is_told_as_an_outage_of_it(
    http: httpx.AsyncClient, client: weft.Client
) -> None:
    assert client.settings.home is not None
    asked = {"handler": "text", "params": {"text": "x" * client.settings.inline_limit}}
    assert (await http.post("/api/v1/tasks", json=asked)).status_code == 201
    storage, aside = client.settings.home / "blobs", client.settings.home / "aside"
    storage.rename(aside)
    storage.touch()
    answer = await http.post("/api/v1/tasks", json=asked)
    assert (answer.status_code, answer.json()["code"]) == (503, "blob_unavailable")
    storage.unlink()
    aside.rename(storage)
    assert (await http.post("/api/v1/tasks", json=asked)).status_code == 201


async def test_what_a_proxy_lets_through_is_settled_and_what_it_never_will_fails(
    gate: tuple[Gate, str], client: weft.Client, working: Working, registry: Registry
) -> None:
    go, begun = asyncio.Event(), asyncio.Semaphore(0)

    async def begun_all(count: int) -> None:
        async with asyncio.timeout(30):
            for _ in range(count):
                await begun.acquire()

    @registry.task(name="text")
    async def text(size: int) -> str:
        begun.release()
        await go.wait()
        return "x" * size

    @registry.task(name="bad", retry=weft.Retry(max_attempts=1))
    async def bad() -> None:
        begun.release()
        await go.wait()
        raise ValueError("x" * 4000)

    small = await client.enqueue_many([weft.NewTask("text", {"size": 1500}) for _ in range(20)])
    large, failing = await client.enqueue("text", {"size": 7000}), await client.enqueue("bad")
    async with working(gate[1]):
        await begun_all(22)
        gate[0].most = 6000
        go.set()
        assert [len(str(await client.wait(each.id, 30))) for each in small] == [1500] * 20
        assert await _reason(client, large.id) == "output_refused"
        assert await _reason(client, failing.id) == "output_refused"
        for _ in range(4):  # it learns how much at once is let through
            refused = gate[0].refused
            go.clear()
            more = await client.enqueue_many([weft.NewTask("text", {"size": 500}) for _ in range(20)])
            await begun_all(20)
            go.set()
            assert [len(str(await client.wait(each.id, 30))) for each in more] == [500] * 20
        assert gate[0].refused == refused


async def test_a_worker_that_nobody_knows_any_more_registers_anew(
    settings: weft.Settings, client: weft.Client, conn: asyncpg.Connection[asyncpg.Record], working: Working,
    registry: Registry,
) -> None:  # fmt: skip
    @registry.task(name="one")
    async def one() -> int:
        return 1

    first = await Server(settings, port=0).__aenter__()
    url = first.url
    async with working(url) as worker:
        known = worker.process.id
        await first.__aexit__(None, None, None)
        # It is cut off for longer than lost workers are kept.
        await conn.execute(
            "update weft.worker set state = 'lost', rescued_at = weft.now(), until = weft.now() - interval '2 h' "
            "where id = $1",
            known,
        )
        assert await upkeep.prune_workers(conn, timedelta(hours=1)) == 1
        made = await client.enqueue("one")
        async with Server(settings, port=int(url.rpartition(":")[2])):
            assert await client.wait(made.id, 30) == 1
            assert worker.process.id != known
            await worker.stop()
