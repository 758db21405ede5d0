"""All services of the upkeep run with whoever leads, and the admitter wakes somebody for what it admits."""

from __future__ import annotations

import asyncio

from store_scene import Ears, Store

import weft
from weft.core.settings import Settings
from weft.db.database import Database
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
    async with weft.Worker(client=client, registry=Registry()), asyncio.timeout(20):
        while _running() != SERVICES:  # noqa: ASYNC110  nobody is told
            await asyncio.sleep(0.01)
    assert _running() == set()
