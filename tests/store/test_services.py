"""All services of the upkeep run with whoever leads, and the admitter wakes somebody for what it admits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import asyncpg
from store_scene import Ears, Store

import weft
from reset import EMPTIER
from weft.core.settings import Settings
from weft.db.database import Database
from weft.queue.service import Service
from weft.queue.services import Admitter, Upkeep
from weft.queue.workers import Pulse
from weft.worker.registry import Registry

SERVICES = {f"weft-{name}" for name in ("stager", "rescuer", "drainer", "admitter", "pruner", "collector")}


async def test_a_round_of_the_admitter_admits_what_has_room_and_wakes_a_worker(
    store: Store, database: Database, ears: Ears
) -> None:
    """As after a limit that was raised while somebody parked a task under the old one."""
    await store.limit(1, per_key=True)
    first, second, third = [await store.enqueue(concurrency_key="k") for _ in range(3)]
    worker = await store.worker()
    await ears.lend(worker)
    assert await Admitter(database).run_once() == 0
    assert [await store.state(id) for id in (first, second, third)] == ["ready", "pending", "pending"]
    assert await ears.told() == []
    await store.conn.execute("update weft.queue set max_running_per_key = 2")
    assert await Admitter(database).run_once() == 1
    assert [await store.state(id) for id in (first, second, third)] == ["ready", "ready", "pending"]
    assert set(await ears.told()) == {worker}


class _Looking(Service):
    """A service that does what a test wants."""

    name = "looking"
    interval = 3600.0

    def __init__(self, look: Callable[[], Awaitable[object]]) -> None:
        super().__init__()
        self._look = look

    async def run_once(self) -> int:
        await self._look()
        return 0


async def test_a_service_looks_first_after_another_unless_that_takes_long() -> None:
    seen, both, hang = list[str](), asyncio.Event(), asyncio.Event()

    async def first() -> None:
        for _ in range(3):
            await asyncio.sleep(0)
        seen.append("first")

    async def second() -> None:
        seen.append("second")
        both.set()

    for look, expected in ((first, ["first", "second"]), (hang.wait, ["second"])):
        services = _Looking(look), _Looking(second)
        await services[0].start()
        await services[1].start_after(services[0])
        async with asyncio.timeout(60):
            await both.wait()
        assert seen == expected
        for service in services:
            await service.stop()
        seen.clear()
        both.clear()


async def test_whoever_begins_to_lead_takes_few_connections_for_it(
    client: weft.Client, database: Database, settings: Settings, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    await client.create_queue("mail")
    upkeep = Upkeep(database, settings, 1, {}, lambda: True)
    await upkeep.follow(Pulse(0, True, None, None, has_outbox=None, lapsed=None, limited=False))
    try:
        async with asyncio.timeout(60):
            # The last of all seals what was done.
            while not (await client.verify_audit()).sealed:  # noqa: ASYNC110  nobody is told
                await asyncio.sleep(0.01)
    finally:
        await upkeep.stop()
    sessions = await conn.fetchval(
        "select count(*) from pg_stat_activity"
        " where datname = current_database() and pid <> pg_backend_pid() and application_name <> $1",
        EMPTIER,
    )
    assert sessions <= 4  # one of the client, and of the nine that have looked not one each


def _running() -> set[str]:
    return {task.get_name() for task in asyncio.all_tasks()} & SERVICES


async def test_all_services_run_while_their_worker_leads(database: Database, settings: Settings) -> None:
    upkeep = Upkeep(database, settings, 1, {}, lambda: True)
    leads, follows = [
        Pulse(0, leader, None, None, has_outbox=None, lapsed=None, limited=False) for leader in (True, False)
    ]
    await upkeep.follow(follows)
    assert _running() == set()
    for _ in range(2):
        await upkeep.follow(leads)
        assert _running() == SERVICES
        await upkeep.follow(follows)
        assert _running() == set()


async def test_a_worker_without_others_runs_all_services_until_it_stops(client: weft.Client) -> None:
    async with weft.Worker(client=client, registry=Registry()), asyncio.timeout(60):
        while _running() != SERVICES:  # noqa: ASYNC110  nobody is told
            await asyncio.sleep(0.01)
    assert _running() == set()
