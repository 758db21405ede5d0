"""Enqueueing and completing inside a transaction of the caller's, whichever driver it is of."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import asyncpg
import psycopg
import pytest
import sqlalchemy as sa
from engine_scene import claimed_by_a_ghost, until
from psycopg.rows import dict_row, scalar_row
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session, sessionmaker
from sqlalchemy.pool import NullPool

import weft
from weft.queue import upkeep
from weft.worker.registry import Registry

# A worker without a database cannot take part in a transaction, and says so.
pytestmark = pytest.mark.direct
# A connection of a driver inside a transaction, which commits or rolls back at its end.
Transaction = Callable[[str, bool], AbstractAsyncContextManager[Any]]


def _sqlalchemy_url(url: str, driver: str) -> sa.URL:
    parts = urlsplit(url)
    options = {name: values[0] for name, values in parse_qs(parts.query).items()}
    return sa.URL.create(f"postgresql+{driver}", parts.username, database=parts.path[1:], query=options)


@asynccontextmanager
async def _asyncpg(url: str, commits: bool) -> AsyncIterator[Any]:
    conn = await asyncpg.connect(url)
    try:
        transaction = conn.transaction()
        await transaction.start()
        yield conn
        await (transaction.commit() if commits else transaction.rollback())
    finally:
        await conn.close()


@asynccontextmanager
async def _asyncpg_pool(url: str, commits: bool) -> AsyncIterator[Any]:
    async with asyncpg.create_pool(url, min_size=1, max_size=1) as pool, pool.acquire() as conn:
        transaction = conn.transaction()
        await transaction.start()
        yield conn
        await (transaction.commit() if commits else transaction.rollback())


@asynccontextmanager
async def _asyncpg_codecs(url: str, commits: bool) -> AsyncIterator[Any]:
    """As many programs set them, so that values of Python are JSON by themselves."""
    async with _asyncpg(url, commits) as conn:
        for kind in ("json", "jsonb"):
            await conn.set_type_codec(kind, encoder=json.dumps, decoder=json.loads, schema="pg_catalog")
        yield conn


def _psycopg_sync(**options: Any) -> Transaction:
    @asynccontextmanager
    async def transaction(url: str, commits: bool) -> AsyncIterator[Any]:
        with psycopg.connect(url, **options) as conn:
            yield conn
            conn.commit() if commits else conn.rollback()

    return transaction


def _psycopg_async(**options: Any) -> Transaction:
    @asynccontextmanager
    async def transaction(url: str, commits: bool) -> AsyncIterator[Any]:
        async with await psycopg.AsyncConnection.connect(url, **options) as conn:
            yield conn
            await (conn.commit() if commits else conn.rollback())

    return transaction


@asynccontextmanager
async def _sqlalchemy_sync(url: str, commits: bool) -> AsyncIterator[Any]:
    engine = sa.create_engine(_sqlalchemy_url(url, "psycopg"), poolclass=NullPool)
    with engine.connect() as conn:
        yield conn
        conn.commit() if commits else conn.rollback()
    engine.dispose()


@asynccontextmanager
async def _sqlalchemy_session(url: str, commits: bool) -> AsyncIterator[Any]:
    engine = sa.create_engine(_sqlalchemy_url(url, "psycopg"), poolclass=NullPool)
    with Session(engine) as session:
        yield session
        session.commit() if commits else session.rollback()
    engine.dispose()


def _sqlalchemy_async(driver: str) -> Transaction:
    @asynccontextmanager
    async def transaction(url: str, commits: bool) -> AsyncIterator[Any]:
        engine = create_async_engine(_sqlalchemy_url(url, driver), poolclass=NullPool)
        async with engine.connect() as conn:
            yield conn
            await (conn.commit() if commits else conn.rollback())
        await engine.dispose()

    return transaction


@asynccontextmanager
async def _sqlalchemy_async_session(url: str, commits: bool) -> AsyncIterator[Any]:
    engine = create_async_engine(_sqlalchemy_url(url, "asyncpg"), poolclass=NullPool)
    async with AsyncSession(engine) as session:
        yield session
        await (session.commit() if commits else session.rollback())
    await engine.dispose()


@pytest.fixture
def client_settings(url: str, home: Path) -> weft.Settings:
    return weft.Settings.load(environ={}, database_url=url, home=home)


DRIVERS: dict[str, Transaction] = {
    "asyncpg": _asyncpg,
    "asyncpg pool": _asyncpg_pool,
    "asyncpg with codecs": _asyncpg_codecs,
    "psycopg": _psycopg_sync(),
    "psycopg dict_row": _psycopg_sync(row_factory=dict_row),
    "psycopg scalar_row": _psycopg_sync(row_factory=scalar_row),
    "psycopg RawCursor": _psycopg_sync(cursor_factory=psycopg.RawCursor),
    "psycopg async": _psycopg_async(),
    "psycopg async dict_row": _psycopg_async(row_factory=dict_row),
    "psycopg async RawCursor": _psycopg_async(cursor_factory=psycopg.AsyncRawCursor),
    "sqlalchemy": _sqlalchemy_sync,
    "sqlalchemy session": _sqlalchemy_session,
    "sqlalchemy asyncpg": _sqlalchemy_async("asyncpg"),
    "sqlalchemy psycopg": _sqlalchemy_async("psycopg"),
    "sqlalchemy async session": _sqlalchemy_async_session,
}


@pytest.fixture(params=DRIVERS)
def transaction(request: pytest.FixtureRequest) -> Transaction:
    return DRIVERS[request.param]


async def test_a_task_is_committed_with_the_callers_transaction_and_gone_with_its_rollback(
    client: weft.Client, url: str, transaction: Transaction
) -> None:
    async with transaction(url, True) as conn:
        kept = await client.enqueue(
            "h", {"text": "ä: %s $1 :a1", "n": None}, priority=3, delay=timedelta(seconds=90), timeout=2.5,
            heartbeat_timeout=1, idempotency_key="k:1", concurrency_key="c%", connection=conn, max_attempts=9,
            retry=weft.Retry(9, backoff="linear", initial_delay=3),
        )  # fmt: skip
        again = await client.enqueue("h", idempotency_key="k:1", connection=conn)
        plain = await client.enqueue("h", connection=conn)
        with pytest.raises(weft.NotFound):
            await client.get_task(kept.id)
    assert (kept.created, again.created, again.id) == (True, False, kept.id)
    task = await client.get_task(kept.id)
    assert (task.state, task.params, task.priority, task.max_attempts, task.concurrency_key) == (
        "scheduled", {"text": "ä: %s $1 :a1", "n": None}, 3, 9, "c%",
    )  # fmt: skip
    assert task.due_at is not None
    assert timedelta(seconds=85) < task.due_at - task.created_at <= timedelta(seconds=91)
    assert (await client.get_task(plain.id)).state == "ready"
    async with transaction(url, False) as conn:
        gone = await client.enqueue("h", idempotency_key="k:2", connection=conn)
        assert gone.created
    with pytest.raises(weft.NotFound):
        await client.get_task(gone.id)
    assert (await client.enqueue("h", idempotency_key="k:2")).created
    with pytest.raises(weft.UnknownQueue, match="queue: there is no queue 'nowhere'"):
        async with transaction(url, False) as conn:
            await client.enqueue("h", queue="nowhere", connection=conn)


def test_a_program_without_an_event_loop_enqueues_on_its_own_connection(client_settings: weft.Settings) -> None:
    """As in a view of a web framework: nothing but the SQL function is called, so the client need not be open."""
    with psycopg.connect(str(client_settings.database_url)) as conn:
        client = weft.Client(settings=client_settings)
        handle = asyncio.run(client.enqueue("h", {"a": 1}, connection=conn))
        conn.commit()
        assert conn.execute("select state::text from weft.task where id = %s", [handle.id]).fetchone() == ("ready",)


async def test_a_thing_that_is_no_connection_is_refused(client: weft.Client) -> None:
    with pytest.raises(weft.InvalidInput, match="connection: object is not a connection"):
        await client.enqueue("h", connection=object())
    assert (await client.list_tasks()).tasks == ()


async def test_a_connection_of_a_class_of_the_callers_own_is_one_of_its_driver(client: weft.Client, url: str) -> None:
    class OwnConnection(asyncpg.Connection):  # type: ignore[type-arg]
        """As frameworks make them."""

    class OwnSession(Session):
        """As SQLModel and Flask-SQLAlchemy have them."""

    own = await asyncpg.connect(url, connection_class=OwnConnection)
    assert (await client.enqueue("h", connection=own)).created
    await own.close()
    engine = sa.create_engine(_sqlalchemy_url(url, "psycopg"), poolclass=NullPool)
    with OwnSession(engine) as session:
        assert (await client.enqueue("h", connection=session)).created
        session.commit()
    assert len((await client.list_tasks()).tasks) == 2


async def test_a_pool_or_an_engine_is_refused_because_it_has_no_transaction(client: weft.Client, url: str) -> None:
    engine = sa.create_engine(_sqlalchemy_url(url, "psycopg"))
    async with asyncpg.create_pool(url, min_size=0) as pool:
        for no_connection in (pool, engine, create_async_engine(_sqlalchemy_url(url, "asyncpg")), sessionmaker(engine)):
            with pytest.raises(weft.InvalidInput, match=r"connection: .* of a pool or an engine take a connection"):
                await client.enqueue("h", connection=no_connection)
    assert (await client.list_tasks()).tasks == ()


# --- completing inside a transaction ---


async def _completed(ctx: weft.Context, conn: Any, output: Any) -> None:
    answer = ctx.complete_in(conn, output)
    if answer is not None:
        await answer


async def test_a_task_completes_with_the_users_transaction(
    client: weft.Client, registry: Registry, url: str, transaction: Transaction
) -> None:
    @registry.task(name="book")
    async def book(ctx: weft.Context) -> str:
        async with transaction(url, True) as conn:
            await _completed(ctx, conn, {"booked": "ä"})
            assert (await client.get_task(ctx.task_id)).state == "running"
        assert (await client.get_task(ctx.task_id)).state == "completed"
        return "what the handler returns afterwards"

    handle = await client.enqueue("book")
    worker = weft.Worker(client=client, registry=registry)
    await worker.run_until_idle()
    task = await client.get_task(handle.id)
    assert (task.state, task.output, task.attempts) == ("completed", {"booked": "ä"}, ())
    assert worker.process.fenced == 0


async def test_a_completion_that_is_rolled_back_never_was(
    client: weft.Client, registry: Registry, url: str, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    await conn.execute("create table ledger (task_id bigint, attempt int)")

    @registry.task(name="book")
    async def book(ctx: weft.Context) -> str:
        own = await asyncpg.connect(url)
        try:
            async with own.transaction():
                await own.execute("insert into ledger values ($1, $2)", ctx.task_id, ctx.attempt)
                await _completed(ctx, own, "inside")
                if ctx.attempt == 1:
                    raise ValueError("rolls back")
        finally:
            await own.close()
        return "outside"

    handle = await client.enqueue("book", retry=weft.Retry(initial_delay=0))
    async with weft.Worker(client=client, registry=registry):
        assert await client.wait(handle.id, timeout=60) == "inside"
    assert [tuple(row) for row in await conn.fetch("select * from ledger")] == [(handle.id, 2)]
    task = await client.get_task(handle.id)
    assert [(a.attempt, a.outcome) for a in task.attempts] == [(1, "failed")]


async def test_an_error_after_the_completion_was_committed_changes_nothing(
    client: weft.Client, registry: Registry, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    @registry.task(name="book")
    async def book(ctx: weft.Context) -> None:
        await _completed(ctx, conn, 1)
        raise ValueError("too late")

    handle = await client.enqueue("book")
    await weft.Worker(client=client, registry=registry).run_until_idle()
    task = await client.get_task(handle.id)
    assert (task.state, task.output, task.attempts) == ("completed", 1, ())


@pytest.mark.parametrize("how", ["cancelled", "rescued"])
async def test_a_late_worker_cannot_complete_in_its_own_transaction(
    client: weft.Client, url: str, conn: asyncpg.Connection[asyncpg.Record], how: str
) -> None:
    handle = await client.enqueue("h")
    ghost, claimed = await claimed_by_a_ghost(conn)
    assert claimed == handle.id
    ctx = weft.Context(task_id=handle.id, attempt=1, handler="h", worker_id=ghost)
    if how == "cancelled":
        await client.cancel(handle.id)
    else:
        await conn.execute("update weft.worker set state = 'lost' where id = $1", ghost)
        async with conn.transaction():
            await upkeep.rescue(conn, ghost, 3)
    for transaction in DRIVERS.values():
        with pytest.raises(weft.LeaseLost, match=f"the lease on task {handle.id} is lost"):
            async with transaction(url, False) as own:
                await _completed(ctx, own, "late")
    assert (await client.get_task(handle.id)).state == ("cancelled" if how == "cancelled" else "ready")


async def test_a_completion_inside_a_transaction_releases_nothing_before_the_commit(
    client: weft.Client, registry: Registry, url: str
) -> None:
    """The next of a concurrency key starts when the transaction commits, not when it calls."""
    await client.limit_queue("default", 1, per_key=True)
    inside, go = asyncio.Event(), asyncio.Event()

    @registry.task(name="first")
    async def first(ctx: weft.Context) -> None:
        async with _asyncpg(url, True) as conn:
            await _completed(ctx, conn, None)
            inside.set()
            await go.wait()

    @registry.task(name="second")
    async def second() -> str:
        return "ran"

    await client.enqueue("first", concurrency_key="k")
    handle = await client.enqueue("second", concurrency_key="k")
    async with weft.Worker(client=client, registry=registry):
        await inside.wait()
        assert (await client.get_task(handle.id)).state == "pending"
        go.set()
        assert await client.wait(handle.id, timeout=60) == "ran"
    await until(lambda: client.list_tasks(state="completed"), lambda page: len(page.tasks) == 2)


async def test_a_large_output_of_a_completion_inside_a_transaction_goes_the_way_of_all_outputs(
    client: weft.Client, registry: Registry, url: str, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    large = "x" * (client.settings.inline_limit + 1)

    @registry.task(name="give")
    async def give(ctx: weft.Context) -> None:
        async with _asyncpg(url, True) as own:
            await _completed(ctx, own, large)

    handle = await client.enqueue("give")
    await weft.Worker(client=client, registry=registry).run_until_idle()
    assert await client.wait(handle.id) == large
    stored = await conn.fetchval("select length(output::text) from weft.task_done where id = $1", handle.id)
    assert stored < 200


@pytest.mark.parametrize("commits", [True, False], ids=["committed", "rolled back"])
@pytest.mark.parametrize("ending", ["returns", "times out"])
async def test_a_transaction_that_a_handler_leaves_open_holds_up_no_other_task(
    client: weft.Client, registry: Registry, url: str, ending: str, commits: bool
) -> None:
    """Its outcome is settled when the transaction has ended, and lands if that was rolled back."""
    conn = await asyncpg.connect(url)
    transaction, is_open = conn.transaction(), asyncio.Event()

    @registry.task(name="open", retry=weft.Retry(1))
    async def leave_open(ctx: weft.Context) -> str:
        await transaction.start()
        await ctx.complete_in(conn, "inside")
        is_open.set()
        if ending == "times out":
            await asyncio.Event().wait()
        return "outside"

    @registry.task(name="other")
    async def other() -> int:
        return 1

    async with weft.Worker(client=client, registry=registry, concurrency=5):
        task = await client.enqueue("open", timeout=3 if ending == "times out" else None, max_attempts=1)
        await asyncio.wait_for(is_open.wait(), 60)
        for _ in range(3):
            assert await client.wait((await client.enqueue("other")).id, timeout=60) == 1
        assert (await client.get_task(task.id)).state == "running"
        await (transaction.commit() if commits else transaction.rollback())
        expected = "completed" if commits or ending == "returns" else "dead"
        ended = await until(lambda: client.get_task(task.id), lambda found: found.state == expected)
        assert ended.output == (None if expected == "dead" else "inside" if commits else "outside")
    await conn.close()


async def test_a_key_that_an_open_transaction_has_locked_holds_up_only_tasks_of_that_key(
    client: weft.Client, registry: Registry, url: str
) -> None:
    """The task itself is not locked, but its outcome gives back a slot of the same key."""
    conn = await asyncpg.connect(url)
    transaction, is_open = conn.transaction(), asyncio.Event()

    @registry.task(name="open")
    async def leave_open(ctx: weft.Context) -> None:
        await transaction.start()
        await ctx.complete_in(conn)
        is_open.set()
        await asyncio.Event().wait()

    @registry.task(name="other")
    async def other() -> int:
        return 1

    worker = await weft.Worker(client=client, registry=registry, concurrency=5).start()
    await client.enqueue("open", concurrency_key="k")
    await asyncio.wait_for(is_open.wait(), 60)
    keyed = await client.enqueue("other", concurrency_key="free")
    await conn.execute("select 1 from weft.key_slot for update")
    for _ in range(3):
        assert await client.wait((await client.enqueue("other")).id, timeout=60) == 1
    await transaction.commit()
    assert await client.wait(keyed.id, timeout=60) == 1
    await worker.stop(0)
    await conn.close()
