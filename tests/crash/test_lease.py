"""Workers that are slow, paused, busy, asked to stop, or without the handler; and a server that refuses for a while."""

from __future__ import annotations

import asyncio
import contextlib
import json
from datetime import datetime
from pathlib import Path

import asyncpg
import pytest

import weft
from crash.checker import check, check_outcomes
from crash.harness import LIVENESS, Crew, Process, until, until_call_waits, until_settled
from crash.proxy import Fault, proxy_to
from crash.scene import NEVER, Scene
from crash.sessions import sessions


@pytest.fixture
def scene(url: str, tmp_path: Path) -> Scene:
    return Scene(url, tmp_path / "home")


async def until_state(conn: asyncpg.Connection[asyncpg.Record], process: Process, state: str) -> None:
    """Return when the first registration of a process is in a state."""

    async def is_in_it() -> bool:
        found = await conn.fetchval(
            "select state::text from weft.worker where pid = $1 order by id limit 1", process.pid
        )
        return bool(found == state)

    await until(is_in_it, f"the worker is {state}")


async def test_the_tasks_of_a_killed_worker_run_again_soon(
    crew: Crew, client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    """How soon that is promised to be is asserted in `test_promised_times`."""
    victim, _ = await crew.workers(2, concurrency=1)
    first, second = [(await client.enqueue("gated", {"folder": str(crew.folder)})).id for _ in range(2)]
    spans = await crew.until_started(first, second)
    (mine,) = [span.task_id for span in spans if span.pid == victim.pid]
    await victim.kill()
    third = await crew.worker(concurrency=1)
    (again,) = await crew.until_started(mine, attempt=2)
    seconds = (again.began - crew.ledger().deaths[victim.pid]) / 1e9
    print(f"killed: running again after {seconds:.1f} s")
    assert again.worker == third.pid
    (crew.folder / "open").touch()
    await until_settled(conn)
    await check_outcomes(conn, crew.ledger())


@pytest.mark.parametrize("handler", ["gated", "gated_in_thread"])
async def test_a_worker_paused_past_its_lease_is_refused_and_works_on_under_a_new_id(
    crew: Crew, client: weft.Client, conn: asyncpg.Connection[asyncpg.Record], handler: str
) -> None:
    paused = await crew.worker()
    task = await client.enqueue(handler, {"folder": str(crew.folder)})
    await crew.until_started(task.id)
    paused.pause()
    other = await crew.worker()
    await crew.until_started(task.id, attempt=2)
    (crew.folder / "open").touch()
    assert (await client.wait(task.id, timeout=LIVENESS))["attempt"] == 2
    other.terminate()
    assert await other.wait() == 0
    paused.resume()
    # What it ran has ended too by now, and its outcome comes too late; what comes next it does under a new id.
    more = await client.enqueue_many([weft.NewTask("work", {"folder": str(crew.folder)}) for _ in range(20)])
    for handle in more:
        assert (await client.wait(handle.id, timeout=LIVENESS))["pid"] == paused.pid
    await until_state(conn, paused, "lost")
    assert await conn.fetchval("select count(*) from weft.worker where pid = $1", paused.pid) == 2
    paused.terminate()
    assert await paused.wait() == 0
    await check_outcomes(conn, crew.ledger())


async def test_a_busy_interpreter_does_not_cost_a_worker_its_lease(
    crew: Crew, client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    """A thread of pure Python for three leases, beside others that want their turn."""
    await crew.workers(2)
    tasks = [await client.enqueue("burn", {"folder": str(crew.folder), "seconds": 6.0})]
    await crew.until_started(tasks[0].id)
    tasks += await client.enqueue_many([weft.NewTask("work", {"folder": str(crew.folder)}) for _ in range(50)])
    for handle in tasks:
        assert (await client.wait(handle.id, timeout=LIVENESS))["attempt"] == 1
    assert await conn.fetchval("select count(*) from weft.worker where state = 'lost'") == 0
    await check_outcomes(conn, crew.ledger())


@pytest.mark.parametrize("grace", [0.2, 30.0], ids=["handed_back", "completed"])
async def test_a_worker_that_is_asked_to_stop_loses_nothing(
    crew: Crew, client: weft.Client, conn: asyncpg.Connection[asyncpg.Record], grace: float
) -> None:
    """Long tasks are completed within the grace, or handed back at once; what has not begun goes to others."""
    stopping = await crew.worker(concurrency=4, grace=grace)
    params = {"folder": str(crew.folder)}
    long = [handle.id for handle in await client.enqueue_many([weft.NewTask("gated", params) for _ in range(4)])]
    await crew.until_started(*long)
    other = await crew.worker(concurrency=8)
    stopping.terminate()
    if grace < 1:
        # Handed back, not rescued: others have them although no lease has lapsed.
        assert await stopping.wait() == 0
        spans = await crew.until_started(*long, attempt=2)
        assert {span.worker for span in spans} == {other.pid}
        assert await conn.fetchval("select count(*) from weft.attempt where outcome = 'lost'") == 0
    else:
        more = await client.enqueue("work", params)
        assert (await client.wait(more.id, timeout=LIVENESS))["pid"] == other.pid
    (crew.folder / "open").touch()
    outputs = [await client.wait(task_id, timeout=LIVENESS) for task_id in long]
    assert await stopping.wait() == 0
    assert {output["pid"] for output in outputs} == {other.pid if grace < 1 else stopping.pid}
    assert await conn.fetchval("select state::text from weft.worker where pid = $1", stopping.pid) == "stopped"
    await check_outcomes(conn, crew.ledger())


async def test_a_worker_that_is_asked_to_stop_amid_a_flood_loses_nothing(
    crew: Crew, client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    """At any moment: between a claim and its answer, with outcomes under way, with tasks not begun."""
    new = [weft.NewTask("work", {"folder": str(crew.folder)}) for _ in range(150)]
    for _ in range(3):
        worker = await crew.worker(concurrency=50)
        handles = await client.enqueue_many(new)
        await crew.until_any_started({handle.id for handle in handles})
        worker.terminate()
        assert await worker.wait() == 0
        await check(conn)
        assert await conn.fetchval("select count(*) from weft.task where state = 'running'") == 0
    await crew.worker(concurrency=50)
    await until_settled(conn)
    assert await conn.fetchval("select count(*) from weft.attempt where outcome = 'lost'") == 0
    await check_outcomes(conn, crew.ledger())


@pytest.mark.long
async def test_a_task_waits_for_a_worker_that_has_its_handler(
    scene: Scene, client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    task = await client.enqueue("late")
    async with scene.worker():

        async def is_declined() -> bool:
            return await conn.fetchval("select exists (select 1 from weft.attempt where outcome = 'declined')")

        await until(is_declined, "the worker that does not know the handler declines")
        able = Scene(scene.url, scene.home)

        @able.registry.task(name="late")
        async def late() -> str:
            return "done"

        async with able.worker():
            assert await client.wait(task.id, timeout=LIVENESS) == "done"
    done = await client.get_task(task.id)
    assert (done.failures, done.crashes, {a.outcome for a in done.attempts}) == (0, 0, {"declined"})
    await check(conn)


async def test_a_task_whose_handler_nobody_has_fails_only_after_the_timeout(
    scene: Scene, client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    """Ten minutes pass in a moment: the clock is the test's own."""
    task = await client.enqueue("nobody")
    async with scene.worker():

        async def is_declined() -> bool:
            return await conn.fetchval("select exists (select 1 from weft.attempt where outcome = 'declined')")

        await until(is_declined, "the worker declines")
        await set_clock(conn, "9 minutes")
        await until_declined_again(conn, task.id)
        assert (await client.get_task(task.id)).state not in ("failed", "dead")
        await set_clock(conn, "11 minutes")
        with pytest.raises(weft.TaskFailed):
            await client.wait(task.id, timeout=LIVENESS)
    failed = await client.get_task(task.id)
    assert (failed.state, failed.reason) == ("failed", "no_handler")
    await check(conn)


async def set_clock(conn: asyncpg.Connection[asyncpg.Record], ahead: str) -> None:
    """Let the one clock of this database be ahead of the machine's."""
    await conn.execute(
        "create or replace function weft.now() returns timestamptz language sql volatile parallel safe"
        f" return clock_timestamp() + interval '{ahead}'"
    )


async def until_declined_again(conn: asyncpg.Connection[asyncpg.Record], task_id: int) -> None:
    """Return when the task was declined once more than now."""
    last = "select max(attempt) from weft.attempt where task_id = $1 and outcome = 'declined'"
    before = await conn.fetchval(last, task_id)

    async def is_declined_again() -> bool:
        return bool(await conn.fetchval(last, task_id) > before)

    await until(is_declined_again, "the task is declined again")


@pytest.mark.own_database
async def test_a_deadlock_of_which_the_worker_is_the_victim_is_tried_again(
    scene: Scene, client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    """The worker locks the task, then its key; the other session the key, then the task."""
    await conn.execute(
        f"alter database \"{await conn.fetchval('select current_database()')}\" set deadlock_timeout = '2s'"
    )
    async with sessions(scene.url, 1) as (other,), scene.worker() as worker:
        await other.conn.execute("set deadlock_timeout = '5min'")
        task = await client.enqueue("held", concurrency_key="k")
        await scene.until_started(task.id)
        async with other.conn.transaction():
            await other.conn.execute("select 1 from weft.key_slot for update")
            scene.let_go(task.id)
            await until_call_waits(conn)
            # Ends when the worker's session, whose patience is shorter, is the victim.
            await other.conn.execute("select 1 from weft.task where id = $1 for update", task.id)
        assert await client.wait(task.id, timeout=LIVENESS) == 1
        assert scene.started == [(task.id, 1)]
    assert (worker.process.completed, worker.process.fenced) == (1, 0)
    await check(conn)


@pytest.mark.own_database
async def test_a_deadlock_of_a_caller_is_tried_again(
    scene: Scene, client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    await conn.execute(
        f"alter database \"{await conn.fetchval('select current_database()')}\" set deadlock_timeout = '2s'"
    )
    await client.limit_queue("default", 1, per_key=True)
    task = await client.enqueue("step", concurrency_key="k")
    async with sessions(scene.url, 1) as (other,), weft.Client(settings=scene.settings()) as caller:
        await other.conn.execute("set deadlock_timeout = '5min'")
        async with other.conn.transaction():
            await other.conn.execute("select 1 from weft.key_slot for update")
            cancel = asyncio.create_task(caller.cancel(task.id))
            await until_call_waits(conn, "free_slots")
            await other.conn.execute("select 1 from weft.task where id = $1 for update", task.id)
        await cancel
    assert (await client.get_task(task.id)).state == "cancelled"
    await check(conn)


@pytest.mark.own_database
async def test_workers_survive_a_server_that_is_read_only_for_a_while(
    crew: Crew, client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    """As during a switch to another server: every write is refused, longer than a lease."""
    name = await conn.fetchval("select current_database()")
    await crew.workers(2)
    params = {"folder": str(crew.folder), "seconds": 0.05}
    await client.enqueue_many([weft.NewTask("work", params) for _ in range(100)])
    await conn.execute(f'alter database "{name}" set default_transaction_read_only = on')
    await end_sessions(conn)

    async def is_refused() -> bool:
        return crew.log().count("read-only") >= 4

    await until(is_refused, "the workers' writes are refused")
    lapsed = "select bool_and(until < weft.now()) from weft.worker where state in ('active', 'idle')"
    await until(lambda: conn.fetchval(lapsed), "every lease has lapsed")
    await conn.execute(f'alter database "{name}" reset default_transaction_read_only')
    await end_sessions(conn)
    await until_settled(conn)
    await check_outcomes(conn, crew.ledger())


async def end_sessions(conn: asyncpg.Connection[asyncpg.Record]) -> None:
    """End the sessions of all workers, so that new ones see the new setting."""
    await conn.execute("set default_transaction_read_only = off")
    await conn.fetch(
        "select pg_terminate_backend(pid) from pg_stat_activity"
        " where datname = current_database() and application_name = 'weft'"
    )


async def test_workers_survive_a_server_without_a_free_connection(
    crew: Crew, client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    """Others take every connection, and those that the workers had are ended."""
    await crew.workers(2)
    tasks = await client.enqueue_many([weft.NewTask("work", {"folder": str(crew.folder), "seconds": 0.02})] * 100)
    hogs: list[asyncpg.Connection[asyncpg.Record]] = []
    try:
        await until_full(crew.url, hogs)

        async def is_refused() -> bool:
            # A worker may be quicker than the others are; then it has a session again, and loses that.
            await end_sessions(conn)
            await until_full(crew.url, hogs)
            return "too many clients" in crew.log() or "remaining connection slots" in crew.log()

        await until(is_refused, "the workers are refused")
    finally:
        await asyncio.gather(*(hog.close() for hog in hogs))
    for task in tasks:
        await client.wait(task.id, timeout=LIVENESS)
    await check_outcomes(conn, crew.ledger())


async def test_leases_are_renewed_and_tasks_done_while_the_server_has_no_free_connection(
    crew: Crew, client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    """Others take every connection that is left; what a worker needs for its lease it has, and keeps."""
    await crew.workers(2)
    params = {"folder": str(crew.folder)}
    held = [(await client.enqueue("gated", params)).id for _ in range(4)]
    await crew.until_started(*held)
    hogs: list[asyncpg.Connection[asyncpg.Record]] = []
    moments: dict[int, set[datetime]] = {}

    async def have_beaten() -> bool:
        for row in await conn.fetch("select id, heartbeat_at, until > weft.now() as holds from weft.worker"):
            assert row["holds"]
            moments.setdefault(row["id"], set()).add(row["heartbeat_at"])
        # For longer than a lease, which is four beats long.
        return len(moments) == 2 and all(len(beats) > 5 for beats in moments.values())

    try:
        await until_full(crew.url, hogs)
        await until(have_beaten, "both workers beat on")
        with pytest.raises(asyncpg.TooManyConnectionsError):
            await asyncpg.connect(crew.url)
        ids = [await conn.fetchval("select id from weft.enqueue('work', $1)", json.dumps(params)) for _ in range(20)]
        done = "select count(*) = 20 from weft.task_done where id = any ($1)"
        await until(lambda: conn.fetchval(done, ids), "tasks are done meanwhile")
        with pytest.raises(asyncpg.TooManyConnectionsError):
            await asyncpg.connect(crew.url)
    finally:
        await asyncio.gather(*(hog.close() for hog in hogs))
    (crew.folder / "open").touch()
    await until_settled(conn)
    assert len(moments) == 2
    assert await conn.fetchval("select count(*) from weft.attempt") == 0
    await check_outcomes(conn, crew.ledger())


async def test_a_worker_goes_on_when_it_can_have_no_connection_but_the_one_by_which_it_claims(
    scene: Scene, client: weft.Client, conn: asyncpg.Connection[asyncpg.Record], caplog: pytest.LogCaptureFixture
) -> None:
    """It has told that it has no room, and cannot tell that it has some again."""
    hogs: list[asyncpg.Connection[asyncpg.Record]] = []
    async with (
        weft.Client(settings=scene.settings()) as own,
        weft.Worker(client=own, concurrency=1, registry=scene.registry) as worker,
    ):
        first = (await client.enqueue("held")).id
        await scene.until_started(first)
        second = (await client.enqueue("step")).id
        saturated = "select saturated from weft.worker where id = $1"
        await until(lambda: conn.fetchval(saturated, worker.process.id), "it has told that it has no room")
        try:
            # The upkeep may have taken a connection first; a few tries, for each costs the server a process.
            for _ in range(10):
                own.database.expire()
                await until_full(scene.url, hogs)
                if not own.database._pool._open:
                    break
                await asyncio.sleep(0.1)
            caplog.clear()
            scene.let_go(first)
            done = "select count(*) = 2 from weft.task_done where id = any ($1)"
            await until(lambda: conn.fetchval(done, [first, second]), "tasks are done meanwhile")
            third = await conn.fetchval("select id from weft.enqueue('step')")
            await until(lambda: conn.fetchval("select true from weft.task_done where id = $1", third), "and later ones")
            assert "connection lost" not in caplog.text
        finally:
            await asyncio.gather(*(hog.close() for hog in hogs))
        await until(lambda: conn.fetchval("select not saturated from weft.worker"), "it tells that it has room")
    await check(conn)


async def until_full(url: str, hogs: list[asyncpg.Connection[asyncpg.Record]]) -> None:
    """Take connections until the server has none left."""
    with contextlib.suppress(asyncpg.TooManyConnectionsError):
        while True:
            hogs.append(await asyncpg.connect(url, server_settings={"application_name": "hog"}))


@pytest.mark.own_database
async def test_serialization_errors_are_tried_again(
    crew: Crew, client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    """A database whose transactions are all repeatable read: whoever comes second is refused, and tries again."""
    name = await conn.fetchval("select current_database()")
    await client.limit_queue("default", 3, per_key=True)
    await conn.execute(f"alter database \"{name}\" set default_transaction_isolation = 'repeatable read'")
    await crew.workers(3)
    params = {"folder": str(crew.folder)}
    await client.enqueue_many([weft.NewTask("work", params, concurrency_key=f"k{n % 3}") for n in range(150)])
    await until_settled(conn)
    assert set(await check_outcomes(conn, crew.ledger())) == {"completed"}


@pytest.mark.own_database
async def test_a_held_vacuum_horizon_does_not_stop_the_queue(
    scene: Scene, client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    """An idle transaction keeps every dead row at the head of the queue; workers claim above what they claimed last."""
    horizon = conn.transaction(isolation="repeatable_read")
    await horizon.start()
    await conn.fetchval("select 1 from weft.task limit 1")
    async with sessions(scene.url, 1) as (watcher,), proxy_to(scene.url) as proxy:
        await watcher.conn.execute(
            "insert into weft.task (id, org_id, queue_id, order_id, state, handler)"
            " select n, 1, 1, n, 'ready', 'step' from generate_series(1, 200000) n"
        )
        await watcher.conn.execute("delete from weft.task")
        calls = proxy.rule("weft.finish_and_claim", Fault.PASS, times=10**6)
        async with scene.worker(proxy.url, concurrency=50, worker_poll_interval=NEVER):
            for _ in range(10):
                handles = await client.enqueue_many([weft.NewTask("step") for _ in range(100)])
                await client.wait(handles[-1].id, timeout=LIVENESS)
            urgent = await client.enqueue("step", priority=9)
            assert await client.wait(urgent.id, timeout=LIVENESS) == 1
            await until_settled(watcher.conn)
        assert len(scene.started) == 1001
        looks = [call for call in calls.seen if call.integer(9) > 0]
        above = [call for call in looks if call.integers(8)[0] > 0]
        print(f"horizon: {len(above)} of {len(looks)} claims above the mark")
        assert above
        await check(watcher.conn)
    await horizon.rollback()
