"""Whoever acts on datasets and live DAGs takes locks in the order of all others, and is told when another was first."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeAlias

import asyncpg
import pytest

import weft
from crash.harness import until, until_waiting
from crash.job_acts import settings_for
from crash.proxy import Proxy, proxy_to
from crash.test_deploy_kill import _swapped, feed
from crash.test_schedule_kill import FLOW
from weft.catalog.roles import SQL as ROLES
from weft.data.collecting import DatasetCollector
from weft.live import backfilling
from weft.live.router import Router
from weft.worker.registry import Registry
from writing import written

Conn: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
SOON = timedelta(milliseconds=1)
# Whether somebody waits for what this session holds.
WAITED_FOR = "select true from pg_locks where not granted and pg_backend_pid() = any (pg_blocking_pids(pid)) limit 1"


@pytest.fixture
async def client(url: str, home: Path) -> AsyncIterator[weft.Client]:
    async with weft.Client(settings=settings_for(url, home)) as opened:
        yield opened


@asynccontextmanager
async def held_up(conn: Conn, act: Awaitable[Any], statement: str, *said: Any) -> AsyncIterator[None]:
    """Hold something, and lend the moment at which somebody waits for it; then he goes on."""
    async with conn.transaction():
        await conn.execute(statement, *said)
        acting = asyncio.ensure_future(act)
        await until(lambda: conn.fetchval(WAITED_FOR), "he waits")
        yield
    await acting


async def _built(client: weft.Client, conn: Conn, definition: dict[str, Any]) -> None:
    await client.live.deploy(definition)
    await _swapped(client, conn)


def _reading(number: int, *more: str) -> dict[str, Any]:
    """Return a DAG of which a job reads something from outside."""
    definition = feed(number)
    definition["jobs"]["copies"]["inputs"] += more
    return definition


async def test_who_deploys_waits_for_a_dataset_before_he_holds_those_after_it(client: weft.Client, conn: Conn) -> None:
    await client.datasets.create("rates")
    await client.live.deploy(_reading(0, "rates"))
    deploy = client.live.deploy(_reading(1, "rates"))
    # As somebody who deploys the DAG that writes it.
    async with held_up(conn, deploy, "select 1 from weft.dataset where name = 'rates' for no key update"):
        await conn.execute("select 1 from weft.dataset where name <> 'rates' for no key update nowait")


async def test_who_goes_back_waits_for_a_dataset_before_he_holds_those_after_it(
    client: weft.Client, conn: Conn
) -> None:
    await client.live.deploy(feed(0))
    await client.datasets.create("rates")
    await _built(client, conn, _reading(1, "rates"))
    await client.live.rollback("feed")
    # As who publishes what was made of it.
    held = "select 1 from weft.dataset where name = 'notes' for key share"
    async with held_up(conn, client.live.rollback("feed", version=2), held):
        await conn.execute("select 1 from weft.dataset where name = 'rates' for no key update nowait")


async def test_who_deploys_waits_for_who_brings_a_dataset_back_before_he_takes_its_name(
    client: weft.Client, conn: Conn
) -> None:
    await client.live.deploy(feed(0))
    await client.live.drain("feed")
    await client.datasets.delete("notes")
    held = "select 1 from weft.dataset where deleted_at is not null for no key update"
    async with held_up(conn, client.live.deploy(feed(0)), held):
        await conn.execute("update weft.dataset set name = 'notes', deleted_at = null where deleted_at is not null")
    assert await conn.fetchval("select count(*) from weft.dataset") == 2


async def test_a_turn_waits_for_nobody_who_swaps_what_its_job_reads(client: weft.Client, conn: Conn) -> None:
    await client.live.deploy(feed(0))
    reader = {
        "activation": "reactive", "operator": "copy", "execution_strategy": "PerPartition", "inputs": ["notes"],
        "outputs": ["others"],
    }  # fmt: skip
    await client.live.deploy({"dag": "other", "jobs": {"others": reader}})
    await Router(client.database).run_once()
    await client.live.deploy(feed(1))
    await until(lambda: _is_swapped(client), "another version is current")
    behind = (
        "select count(*) from weft.live_input i join weft.dataset d on d.id = i.dataset_id"
        " where not i.is_internal and i.version_id is distinct from d.current_id"
    )
    assert await conn.fetchval(behind) == 1
    async with conn.transaction():
        await conn.execute("select 1 from weft.dataset for update")
        turn = asyncio.create_task(Router(client.database).run_once())

        async def has_met_us() -> bool:
            return turn.done() or bool(await conn.fetchval(WAITED_FOR))

        await until(has_met_us, "it waits, or is done")
        assert turn.done()
        await turn
    assert await conn.fetchval(behind) == 0


async def _is_swapped(client: weft.Client) -> bool:
    # No turn of the one that reads it.
    async with client.database.acquire() as conn:
        await conn.execute("select weft.turn_live_job(j.id, 100, true) from weft.live_job j where j.name <> 'others'")
        dag = await conn.fetchval("select id from weft.live_dag where name = 'feed'")
        return bool(await conn.fetchval("select weft.swap_when_caught_up($1, interval '1 hour')", dag))


async def test_who_settles_waits_for_those_who_send_before_he_holds_a_source(client: weft.Client, conn: Conn) -> None:
    definition = feed(0)
    asked = {**definition["jobs"]["notes"], "outputs": ["asked"], "source": {"kind": "event", "event": "asked"}}
    definition["jobs"]["asked"] = asked
    await client.live.deploy(definition)
    async with held_up(conn, client.live.drain("feed"), "select weft.lock_event(1, 'told')"):
        await conn.execute("select 1 from weft.live_source for no key update nowait")


@pytest.mark.parametrize("act", ["cancel", "go on"])
async def test_who_has_to_do_with_a_backfill_waits_for_its_job_before_he_holds_it(
    client: weft.Client, conn: Conn, act: str
) -> None:
    job_id = await _filled_job(client, conn)
    begun = await client.live.backfill("copying", "copies")
    acts: dict[str, Callable[[], Awaitable[Any]]] = {
        "cancel": lambda: client.live.cancel_backfill(begun.id),
        "go on": lambda: backfilling.run_once(client.database),
    }
    # As who collects the job, and all that is its own.
    async with held_up(conn, acts[act](), "select 1 from weft.live_job where id = $1 for update", job_id):
        await conn.execute("select 1 from weft.live_backfill for update nowait")


async def _filled_job(client: weft.Client, conn: Conn) -> int:
    """Return a job that reads a dataset in which there is something."""
    await written(client, "orders", 1)
    copies = {
        "activation": "reactive", "operator": "copy", "execution_strategy": "PerPartition", "inputs": ["orders"],
        "outputs": ["copies"],
    }  # fmt: skip
    await client.live.deploy({"dag": "copying", "jobs": {"copies": copies}})
    await Router(client.database).run_once()
    return int(await conn.fetchval("select id from weft.live_job"))


@pytest.mark.parametrize("act", ["backfill", "rematerialize"])
async def test_a_job_that_is_collected_when_it_is_to_compute_anew_is_not_found(
    url: str, home: Path, client: weft.Client, conn: Conn, act: str
) -> None:
    await _filled_job(client, conn)
    async with proxy_to(url) as proxy, _through(proxy, home) as other:
        found = proxy.hold("order by i.place limit 1")
        wanted = other.live.backfill if act == "backfill" else _partition_of(other)
        acting = asyncio.create_task(wanted("copying", "copies"))
        await found.fired.wait()
        await conn.execute("delete from weft.live_job")
        _gate(found)
        with pytest.raises(weft.NotFound):
            await acting


def _partition_of(client: weft.Client) -> Callable[[str, str], Awaitable[int]]:
    return lambda dag, job: client.live.rematerialize(dag, job, partitions=[""])


async def test_a_schedule_that_is_removed_when_it_is_made_up_for_is_not_found(
    url: str, home: Path, client: weft.Client, conn: Conn
) -> None:
    await client.workflows.push(FLOW)
    await client.schedules.add("report", every=60)
    now: datetime = await conn.fetchval("select weft.now()")
    async with proxy_to(url) as proxy, _through(proxy, home) as other:
        found = proxy.hold("select s.* from weft.schedule s where s.org_id")
        filling = asyncio.create_task(other.schedules.backfill("report", since=now - timedelta(hours=1)))
        await found.fired.wait()
        await client.schedules.delete("report")
        _gate(found)
        with pytest.raises(weft.NotFound):
            await filling


async def test_a_dataset_whose_name_is_given_away_when_it_is_to_come_back_stays_deleted(
    url: str, home: Path, client: weft.Client
) -> None:
    await written(client, "orders", 1)
    await client.datasets.delete("orders")
    async with proxy_to(url) as proxy, _through(proxy, home) as other:
        is_free = proxy.hold("where d.org_id = $1 and d.name = $2 and ($3::text[] is null")
        undeleting = asyncio.create_task(other.datasets.undelete("orders"))
        await is_free.fired.wait()
        await client.datasets.create("orders")
        _gate(is_free)
        with pytest.raises(weft.InvalidInput, match="there is another dataset orders by now"):
            await undeleting
    assert (await client.datasets.show("orders")).rows == 0


async def test_who_brings_a_dataset_back_does_not_wait_for_another_of_its_name(client: weft.Client, conn: Conn) -> None:
    await client.datasets.create("orders")
    await client.datasets.delete("orders")
    await client.datasets.create("orders")
    async with conn.transaction():
        await conn.execute("select 1 from weft.dataset where name = 'orders' for no key update")
        undeleting = asyncio.create_task(client.datasets.undelete("orders"))

        async def has_met_us() -> bool:
            return undeleting.done() or bool(await conn.fetchval(WAITED_FOR))

        await until(has_met_us, "he waits, or is told")
        assert undeleting.done()
    with pytest.raises(weft.InvalidInput, match="there is another dataset orders by now"):
        await undeleting


async def test_a_dataset_that_is_made_and_deleted_when_a_task_is_to_write_it_is_made_again(
    url: str, home: Path, client: weft.Client
) -> None:
    registry = Registry()

    @registry.task(name="write")
    async def write(ctx: weft.Context) -> None:
        await ctx.dataset("orders").write([{"value": 1}])

    async with proxy_to(url) as proxy, _through(proxy, home) as other:
        is_none, is_one = proxy.hold("as is_live"), proxy.hold("insert into weft.dataset (")
        async with weft.Worker(client=other, registry=registry):
            handle = await client.enqueue(write)
            await is_none.fired.wait()
            await client.datasets.create("orders")
            _gate(is_none)
            await is_one.fired.wait()
            await client.datasets.delete("orders")
            _gate(is_one)
            await client.wait(handle.id, timeout=60)
            assert (await client.get_task(handle.id)).attempt == 1
    assert (await client.datasets.show("orders")).rows == 1


async def test_who_deploys_is_told_when_an_output_is_made_and_deleted_by_others(
    url: str, home: Path, client: weft.Client
) -> None:
    async with proxy_to(url) as proxy, _through(proxy, home) as other:
        is_none = proxy.hold("weft.hold_datasets")
        is_one = proxy.hold("insert into weft.dataset (", lambda exchange: exchange.rows == 0)
        deploying = asyncio.create_task(other.live.deploy(feed(0)))
        await is_none.fired.wait()
        await client.datasets.create("notes")
        _gate(is_none)
        await is_one.fired.wait()
        await client.datasets.delete("notes")
        _gate(is_one)
        with pytest.raises(weft.InvalidInput, match="notes has been deleted meanwhile"):
            await deploying
    assert (await client.live.deploy(feed(0))).changes


async def test_a_role_that_is_deleted_when_somebody_is_to_have_it_is_not_found(client: weft.Client, conn: Conn) -> None:
    await client.users.add("ann")
    await client.roles.create("finance")
    async with conn.transaction():
        await conn.execute(ROLES.one_at_a_time, 1)
        await conn.execute(ROLES.delete, 1, "finance")
        granting = asyncio.create_task(client.roles.grant("finance", "ann"))
        await until(lambda: conn.fetchval(WAITED_FOR), "he waits")
    with pytest.raises(weft.NotFound):
        await granting


@pytest.mark.parametrize("dry_run", [True, False])
async def test_who_looks_for_what_is_past_waits_for_a_dataset_before_he_holds_a_version(
    client: weft.Client, conn: Conn, dry_run: bool
) -> None:
    for number in range(3):
        await written(client, f"orders{number}", 1, 2)
    # As who brings a version of a DAG into effect.
    held = "select 1 from weft.dataset where name = 'orders2' for update"
    async with held_up(conn, client.datasets.gc(SOON, dry_run=dry_run), held):
        await conn.execute("select 1 from weft.dataset_version for no key update nowait")


async def test_who_collects_waits_for_a_dataset_before_he_holds_a_version(client: weft.Client, conn: Conn) -> None:
    await written(client, "orders", 1, 2)
    collecting = DatasetCollector(client.database, client.settings, retention=SOON).run_once()
    async with held_up(conn, collecting, "select 1 from weft.dataset for update"):
        await conn.execute("select 1 from weft.dataset_version for no key update nowait")


@pytest.mark.parametrize("act", ["deploy", "rollback"])
async def test_a_dataset_that_a_version_reads_is_not_deleted_while_that_comes_into_effect(
    url: str, home: Path, client: weft.Client, conn: Conn, act: str
) -> None:
    await client.live.deploy(feed(0))
    await client.datasets.create("rates")
    if act == "rollback":
        await _built(client, conn, _reading(1, "rates"))
        await client.live.rollback("feed")
    async with proxy_to(url) as proxy, _through(proxy, home) as other:
        are_there = proxy.hold("select split_part(")
        acts = {"deploy": other.live.deploy(_reading(1, "rates")), "rollback": other.live.rollback("feed", version=2)}
        acting = asyncio.create_task(acts.pop(act))
        await are_there.fired.wait()
        deleting = asyncio.create_task(client.datasets.delete("rates"))

        async def has_met_them() -> bool:
            waiting = "select true from pg_stat_activity where cardinality(pg_blocking_pids(pid)) > 0 limit 1"
            return deleting.done() or bool(await conn.fetchval(waiting))

        await until(has_met_them, "he waits, or is done")
        _gate(are_there)
        await acting
        with pytest.raises(weft.DatasetBusy, match="the live DAG feed reads or writes it"):
            await deleting
        for left in acts.values():
            left.close()


async def test_who_looks_for_what_is_past_and_meets_a_deadlock_looks_again(
    url: str, home: Path, client: weft.Client, conn: Conn
) -> None:
    await written(client, "orders", 1, 2)
    other_conn = await asyncpg.connect(url)
    async with proxy_to(url) as proxy, _through(proxy, home) as other:
        is_begun = proxy.hold("order by d.id for key share")
        # He finds it out who waits last, for he alone looks for it so soon.
        await conn.execute("set deadlock_timeout = '1h'")
        async with conn.transaction():
            await conn.execute("select 1 from weft.dataset_version for update")
            looking = asyncio.create_task(other.datasets.gc(SOON, dry_run=True))
            await is_begun.fired.wait()
            crossing = asyncio.create_task(conn.execute("select 1 from weft.dataset for update"))
            await until_waiting(other_conn, conn.get_server_pid())
            _gate(is_begun)
            await crossing
        assert (await looking).files == 1
    await other_conn.close()


@asynccontextmanager
async def _through(proxy: Proxy, home: Path) -> AsyncIterator[weft.Client]:
    async with weft.Client(settings=settings_for(proxy.url, home)) as client:
        yield client


def _gate(rule: Any) -> None:
    rule.gate.set()
