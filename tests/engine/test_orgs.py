"""What one org can see and change of another's: nothing, by any verb of the client."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
import pytest
from engine_scene import MakeClient, until

import weft
from weft.worker.registry import Registry

# Each verb with what a caller of another org gets from it; `id` is a task that is dead, `live` one that waits.
Call = Callable[[weft.Client, int, int], Awaitable[Any]]
SEES_NOTHING: dict[str, list[Call]] = {
    "list_tasks": [
        lambda them, id, live: _tasks(them.list_tasks()),
        lambda them, id, live: _tasks(them.list_tasks(state="dead")),
        lambda them, id, live: _tasks(them.list_tasks(state="completed")),
        lambda them, id, live: _tasks(them.list_tasks(handler="die")),
        lambda them, id, live: _tasks(them.list_tasks(queue="default")),
    ],
    "dead_letters": [lambda them, id, live: _tasks(them.dead_letters())],
    "cancel_all": [lambda them, id, live: them.cancel_all(), lambda them, id, live: them.cancel_all(dry_run=True)],
    "replay_all": [lambda them, id, live: them.replay_all()],
    "replay_dead": [lambda them, id, live: them.replay_dead()],
    "purge": [lambda them, id, live: them.purge(), lambda them, id, live: them.purge(ids=[id])],
    "count_dead": [lambda them, id, live: them.count_dead()],
    "workers": [lambda them, id, live: them.workers()],
    "audit": [
        lambda them, id, live: them.audit(),
        lambda them, id, live: them.audit(verb="replay"),
        lambda them, id, live: them.audit(task=id),
        lambda them, id, live: them.audit(queue="ours"),
    ],
    "verify_audit": [lambda them, id, live: _acts_seen(them)],
    "outbox": [lambda them, id, live: them.outbox()],
    "cached_outputs": [lambda them, id, live: them.cached_outputs()],
    "clear_cache": [lambda them, id, live: them.clear_cache(), lambda them, id, live: them.clear_cache("live")],
    "replay_outbox": [lambda them, id, live: them.replay_outbox()],
    "purge_outbox": [lambda them, id, live: them.purge_outbox()],
    "metrics": [lambda them, id, live: _numbers(them)],
    "health": [lambda them, id, live: _workers_found(them)],
}
FINDS_NOTHING: dict[str, list[Call]] = {
    "get_task": [lambda them, id, live: them.get_task(id), lambda them, id, live: them.get_task(live)],
    "why": [lambda them, id, live: them.why(id), lambda them, id, live: them.why(live)],
    "explain": [lambda them, id, live: them.explain(id), lambda them, id, live: them.explain(live)],
    "wait": [lambda them, id, live: them.wait(id, timeout=60)],
    "cancel": [lambda them, id, live: them.cancel(live)],
    "replay": [lambda them, id, live: them.replay(id)],
    "read_log": [lambda them, id, live: them.read_log(id), lambda them, id, live: them.read_log(id, attempt=1)],
    "pause_queue": [lambda them, id, live: them.pause_queue("ours")],
    "resume_queue": [lambda them, id, live: them.resume_queue("ours")],
    "limit_queue": [
        lambda them, id, live: them.limit_queue("ours", 1),
        lambda them, id, live: them.limit_queue("ours", 1, per_key=True),
        lambda them, id, live: them.limit_queue("ours", 1, key="k"),
    ],
    "enqueue": [lambda them, id, live: them.enqueue("h", queue="ours")],
    "enqueue_many": [lambda them, id, live: them.enqueue_many([weft.NewTask("h", queue="ours")])],
    "add_effect": [lambda them, id, live: them.add_effect("enqueue_task", {"handler": "h", "queue": "ours"})],
}
# These make something of the caller's own, or tell of its own queues: looked at below.
OWN = {"org_id", "queues", "create_queue"}


async def _numbers(them: weft.Client) -> list[tuple[str, float]]:
    """Return the metrics that are not zero."""
    return [(metric.name, each.value) for metric in await them.metrics() for each in metric.samples if each.value]


async def _acts_seen(them: weft.Client) -> int:
    found = await them.verify_audit()
    return found.sealed + found.unsealed


async def _workers_found(them: weft.Client) -> list[str]:
    """Return what health says of workers, if it found any."""
    return [check.text for check in (await them.health()).checks if check.name == "workers" and check.ok]


async def _tasks(page: Awaitable[Any]) -> tuple[Any, ...]:
    return tuple((await page).tasks)


@pytest.fixture
async def theirs(make_client: MakeClient, conn: asyncpg.Connection[asyncpg.Record]) -> weft.Client:
    """A client of another org, which has a queue of the same name."""
    await conn.execute("insert into weft.org (id, slug, name) values (2, 'acme', 'Acme')")
    client = await make_client(org="acme", actor="ada")
    await client.create_queue("default")
    await conn.execute("delete from weft.audit where org_id = 2")
    return client


@pytest.fixture
async def ours(
    make_client: MakeClient, registry: Registry, conn: asyncpg.Connection[asyncpg.Record]
) -> tuple[int, int]:
    """A dead task with a log, one that waits, one that completed, an effect that failed, acts in the audit."""

    @registry.task(name="die")
    async def die() -> None:
        print("a word")
        raise weft.NonRetryable("no")

    @registry.task(name="live", cache=True)
    async def live() -> None: ...

    client = await make_client(log_upload=True)
    await client.create_queue("ours")
    dead, done = await client.enqueue("die"), await client.enqueue("live")
    await weft.Worker(client=client, registry=registry).run_until_idle()
    await client.replay(dead.id)
    await weft.Worker(client=client, registry=registry).run_until_idle()
    assert (await client.get_task(done.id)).state == "completed"
    await client.add_effect("enqueue_task", {"handler": "h"})
    await conn.execute("update weft.outbox set state = 'failed'")
    return dead.id, (await client.enqueue("live", delay=3600)).id


async def _rows(conn: asyncpg.Connection[asyncpg.Record]) -> list[Any]:
    """All that the org has."""
    tables = ["task", "task_done", "attempt", "queue", "outbox", "audit", "idempotency_key", "key_slot", "task_log",
              "output_cache"]  # fmt: skip
    return [sorted(map(str, await conn.fetch(f"select * from weft.{table} where org_id = 1"))) for table in tables]


def test_every_verb_of_the_client_is_looked_at() -> None:
    verbs = {name for name, verb in inspect.getmembers(weft.Client, inspect.iscoroutinefunction) if name[0] != "_"}
    assert verbs == OWN | SEES_NOTHING.keys() | FINDS_NOTHING.keys()


async def test_no_verb_shows_or_changes_what_is_another_orgs(
    ours: tuple[int, int], theirs: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    before = await _rows(conn)
    for name, calls in SEES_NOTHING.items():
        for call in calls:
            assert not await call(theirs, *ours), name
    for name, calls in FINDS_NOTHING.items():
        for call in calls:
            with pytest.raises((weft.NotFound, weft.UnknownQueue)):
                print(name, await asyncio.wait_for(call(theirs, *ours), 20))
    assert await _rows(conn) == before


async def test_what_is_done_to_a_queue_is_not_done_to_its_namesake(
    ours: tuple[int, int], theirs: weft.Client, client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    await client.limit_queue("default", 9, key="j")
    before = await _rows(conn)
    [queue] = await theirs.queues()
    assert (queue.name, queue.depth, queue.rate, queue.key_limits) == ("default", 0, 0, ())
    await theirs.limit_queue("default", 1)
    await theirs.limit_queue("default", 2, per_key=True)
    await theirs.limit_queue("default", 3, key="k")
    await theirs.pause_queue("default")
    assert await theirs.create_queue("ours")
    await theirs.enqueue("live")
    assert await _rows(conn) == before
    await client.pause_queue("default")
    await theirs.resume_queue("default")
    info = await until(lambda: client.queues(), lambda found: len(found) == 2)
    assert [queue.paused for queue in info if queue.name == "default"] == [True]


async def test_a_worker_takes_only_what_is_its_own_orgs(
    ours: tuple[int, int], theirs: weft.Client, client: weft.Client, registry: Registry
) -> None:
    task = await theirs.enqueue("live")
    await weft.Worker(client=client, registry=registry).run_until_idle()
    assert (await theirs.get_task(task.id)).state == "ready"
    await weft.Worker(client=theirs, registry=registry).run_until_idle()
    assert (await theirs.get_task(task.id)).state == "completed"
