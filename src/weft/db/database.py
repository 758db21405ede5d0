"""A database: its address, and one pool of connections per process."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from copy import copy
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qs, urlsplit

import asyncpg

from weft.core.errors import DatabaseUnavailable, InvalidSetting, PermissionDenied, SchemaOutdated
from weft.core.settings import Settings
from weft.db.address import check_address
from weft.db.pool import Pool
from weft.db.pooler import LOST_STATEMENTS, refuses_settings, undeclared_pooler
from weft.db.statements import Statements
from weft.db.unreachable import unreachable
from weft.db.walls import NO_ORG, Walled
from weft.db.watched import WatchedConnection

if TYPE_CHECKING:
    from asyncpg import Connection

    type_Connection = Connection[asyncpg.Record]

T = TypeVar("T")

SQL = Statements("weft.db", "sql/partition.sql")
SERVER = Statements("weft.db", "sql/server.sql")
POOL_SIZE = 8
CONNECT_TIMEOUT = 10.0
_RETRIED = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError)
_RETRIES = 10

# What asyncpg and the operating system raise when a way to the server that was there is broken, not the statement.
_BROKEN_OFF = (
    ConnectionError,
    asyncpg.PostgresConnectionError,
    # Also what is wrong with a call, which leaves the connection open: see `_is_wrong_call`.
    asyncpg.InterfaceError,
    # What asyncpg raises when the server ended a session that was idle just then.
    asyncpg.InternalClientError,
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.TooManyConnectionsError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.IdleSessionTimeoutError,
)
# The same, and whatever else keeps one from the server.
CONNECTION_ERRORS = (*_BROKEN_OFF, OSError)
# PostgreSQL is away or does not answer: work goes on without it, and so does whoever waits for work.
OUTAGE = (*CONNECTION_ERRORS, DatabaseUnavailable, TimeoutError)
# What PostgreSQL, or the wait for it, ends a statement with that may well succeed later: it was held up by others, was
# ended by an operator, or there was no room.
PASSING = (
    TimeoutError,
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.LockNotAvailableError,
    asyncpg.TransactionRollbackError,
)


def lacks_partition(problem: BaseException) -> bool:
    """Whether a row was refused because there is no partition for it."""
    return isinstance(problem, asyncpg.CheckViolationError) and problem.constraint_name is None


async def ensure_partitions(conn: type_Connection) -> int:
    """Make the partitions of the coming days and of tasks that have not ended; return how many were missing."""
    return int(await conn.fetchval(SQL.ensure))


def _is_wrong_call(conn: type_Connection, problem: BaseException) -> bool:
    """Whether the connection is as it was, and the fault lies with whoever used it, such as one argument too many."""
    return isinstance(problem, asyncpg.InterfaceError) and not conn.is_closed()


@asynccontextmanager
async def in_transaction(conn: type_Connection) -> AsyncIterator[None]:
    """A transaction that is left without a word when its statement was broken off.

    A ROLLBACK would first wait for that statement, for ever on a connection that is dead in the network, and what it
    raised would hide the cancellation. The server rolls back by itself when the session ends.
    """
    # What is decided under a lock must be read after it was taken, whatever the database's default is.
    transaction = conn.transaction(isolation="read_committed")
    await transaction.start()
    try:
        yield
    except (TimeoutError, *_BROKEN_OFF) as problem:
        if _is_wrong_call(conn, problem):
            await transaction.rollback()
        else:
            conn.terminate()
        raise
    except Exception:
        await transaction.rollback()
        raise
    except BaseException:  # a cancellation, or Ctrl-C, which may come amid a statement
        conn.terminate()
        raise
    else:
        await transaction.commit()


class Database:
    """One PostgreSQL database, reached through a pool, or past a pooler.

    Example::

        database = await Database.open(settings)
        async with database.transaction() as conn:
            await conn.execute("select 1")
        await database.close()
    """

    def __init__(self, url: str, settings: Settings) -> None:
        self.url = check_address(url, "WEFT_DATABASE_URL")
        if settings.listen_url is not None:
            check_address(settings.listen_url, "WEFT_LISTEN_URL")
        self.settings = settings
        self.through_pooler = settings.pooler == "transaction"
        # Without a direct way there is no LISTEN behind a pooler: polling is the truth anyway.
        self.listen_url = settings.listen_url if self.through_pooler else (settings.listen_url or url)
        # No statement waits for ever: a connection may be dead in the network without anybody saying so.
        self.command_timeout = max(10.0, 1.5 * settings.lease_time.total_seconds())
        # Where the kernel can tell that nobody is there, nothing waits even for that long.
        self._noticed_within = max(4.0, 0.4 * settings.lease_time.total_seconds())
        self._pool = self._plain = Pool(lambda: self.connect(command_timeout=self.command_timeout), POOL_SIZE)
        self._walled: Walled | None = None
        self._org_id: int | None = None

    def of_org(self, org_id: int) -> Database:
        """Return the same database for what is done on behalf of one org, to which its sessions are held.

        They are sessions of their own, so that none is ever lent that is held to nothing. It lives as long as this one.
        """
        if self._walled is None:
            self._walled = Walled(self, POOL_SIZE)
        other = copy(self)
        other._pool, other._org_id = self._walled.pool, org_id
        return other

    @classmethod
    async def open(cls, settings: Settings, *, migrate: bool | None = None) -> Database:
        """Reach the database of ``settings``, starting and upgrading the embedded one when there is no other."""
        is_embedded = settings.database_url is None
        if settings.database_url is None:
            from weft.db import embedded

            if not embedded.has_data(settings):
                # Alembic takes half a second to load, and initdb, which has begun by then, longer.
                asyncio.get_running_loop().call_later(0.05, import_module, "weft.db.migrate")
            url = (await embedded.ensure_running(settings)).url
        else:
            url = settings.database_url
        database = cls(url, settings)
        try:
            await database._require_schema(upgrade=is_embedded if migrate is None else migrate)
        except BaseException as problem:
            await database.close()
            if is_embedded and isinstance(problem, SchemaOutdated):
                from weft.db.embedded_layout import home_dir

                raise SchemaOutdated(problem.found, problem.needed, str(home_dir(settings))) from None
            raise
        return database

    async def _require_schema(self, *, upgrade: bool) -> None:
        from weft.db import revisions

        async with self.acquire() as conn:
            found = await revisions.current(conn)
            needed = revisions.head()
            if found == needed:
                if not await revisions.is_same(conn):
                    raise SchemaOutdated(found, needed)
                return
        if not upgrade or (found is not None and found > needed):
            raise SchemaOutdated(found, needed)
        from weft.db import migrate

        await migrate.upgrade(self.listen_url or self.url)

    async def facts(self) -> dict[str, Any]:
        """Ask the server for its version, the size of this database, and since when it runs."""
        conn = await self.connect()
        try:
            return dict(await conn.fetchrow(SERVER.facts) or {})
        finally:
            await conn.close()

    async def connect_walled(self) -> Connection[asyncpg.Record]:
        """Open a connection that begins with seeing nothing of any org."""
        options = self._options()
        if "server_settings" in options:
            options["server_settings"] |= {"weft.org": NO_ORG}
        return await self.connect(command_timeout=self.command_timeout, **options)

    async def connect(self, url: str | None = None, **options: Any) -> Connection[asyncpg.Record]:
        """Open a connection of one's own, outside the pool."""
        target = url or self.url
        chosen = {"timeout": CONNECT_TIMEOUT, **self._options(target == self.url), **options}
        try:
            conn = await asyncpg.connect(target, connection_class=WatchedConnection, **chosen)
            conn.watch(self._noticed_within)
            return conn
        except ValueError as problem:
            # What asyncpg cannot make sense of; the address itself was looked at before, so this has no secrets in it.
            setting = "WEFT_DATABASE_URL" if target == self.url else "WEFT_LISTEN_URL"
            raise InvalidSetting(setting, f"asyncpg refuses it, or a PG variable beside it: {problem}") from problem
        except (*CONNECTION_ERRORS, TimeoutError) as problem:
            if refuses_settings(problem) and "server_settings" in chosen:
                raise undeclared_pooler(problem, on_listen_url=target != self.url) from problem
            raise unreachable(target, problem) from problem
        except asyncpg.PostgresError as problem:
            raise unreachable(target, problem) from problem

    def _options(self, pooled_url: bool = True) -> dict[str, Any]:
        if self.through_pooler and pooled_url:
            # A pooler lends sessions: it takes no settings, and a statement prepared in one is lost in the next.
            return {"statement_cache_size": 0}
        # A session whose client is cut off must not hold its locks: the server gives it up too.
        patience = str(int(1000 * max(5.0, self.settings.lease_time.total_seconds())))
        session = {"idle_in_transaction_session_timeout": patience, "tcp_user_timeout": patience}
        # Nor is a statement alone what it is meant to be under another default.
        session |= {"default_transaction_isolation": "read committed", "standard_conforming_strings": "on"}
        if "application_name" not in parse_qs(urlsplit(self.url).query):
            session["application_name"] = "weft"
        return {"server_settings": session}

    @asynccontextmanager
    async def acquire(self) -> AsyncIterator[type_Connection]:
        """Lend a connection from the pool; behind a transaction pooler it comes inside a transaction."""
        walled, org_id = self._walled, self._org_id
        suits = None if walled is None or org_id is None else walled.suits(org_id)
        async with self._pool.acquire(suits) as conn:
            try:
                async with self.one_session(conn):
                    if walled is not None and org_id is not None:
                        await walled.hold(conn, org_id)
                    yield conn
            except _BROKEN_OFF as problem:
                if _is_wrong_call(conn, problem):
                    conn.terminate()
                    raise
                # The server is gone, or after a failover answers as a standby: its other connections are worthless too.
                self.expire()
                conn.terminate()
                raise unreachable(self.url, problem) from problem
            except TimeoutError as problem:
                # It waits for others, or its connection is dead in the network: then so are those that are idle.
                conn.terminate()
                if any(await asyncio.gather(*(pool.weed() for pool in self._pools))):
                    raise unreachable(self.url, problem) from problem
                raise
            except asyncpg.InsufficientPrivilegeError as problem:
                raise await self._refusal(conn, problem) from problem

    async def _refusal(self, conn: type_Connection, problem: asyncpg.InsufficientPrivilegeError) -> PermissionDenied:
        from weft.db import privileges

        try:
            async with self.one_session(conn):
                return await privileges.explained(conn, problem)
        except (*CONNECTION_ERRORS, asyncpg.PostgresError):
            return PermissionDenied(str(problem))

    @asynccontextmanager
    async def one_session(self, conn: type_Connection) -> AsyncIterator[type_Connection]:
        """Keep ``conn`` on one session of the server, behind a transaction pooler by a transaction."""
        if self.through_pooler:
            async with in_transaction(conn):
                yield conn
            return
        try:
            yield conn
        except LOST_STATEMENTS as problem:
            raise undeclared_pooler(problem) from problem

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[type_Connection]:
        """Lend a connection inside a transaction."""
        async with self.acquire() as conn:
            if self.through_pooler:
                yield conn
            else:
                async with in_transaction(conn):
                    yield conn

    def expire(self) -> None:
        """Give up all idle connections: what lies behind them may not be there any more."""
        for pool in self._pools:
            pool.expire()

    @property
    def _pools(self) -> list[Pool]:
        """All that go to this database, also those that this one does not use itself."""
        return [self._plain] if self._walled is None else [self._plain, self._walled.pool]

    async def read(self, look: Callable[[type_Connection], Awaitable[T]]) -> T:
        """Run ``look``, which changes nothing, and once more when its connection turned out to be dead."""
        try:
            async with self.acquire() as conn:
                return await look(conn)
        except DatabaseUnavailable:
            async with self.acquire() as conn:
                return await look(conn)

    async def run_alone(self, statement: Callable[[type_Connection], Awaitable[T]]) -> T:
        """Like `run`, for what is one statement, which is a transaction by itself."""
        return await self._run(self.acquire, statement)

    async def run(self, verb: Callable[[type_Connection], Awaitable[T]]) -> T:
        """Run ``verb`` in a transaction, again when PostgreSQL broke a deadlock or a conflict by ending it.

        When there is no partition for a row, because nobody has worked for long, they are made and it runs again.
        """
        return await self._run(self.transaction, verb)

    async def _run(
        self,
        lend: Callable[[], AbstractAsyncContextManager[type_Connection]],
        verb: Callable[[type_Connection], Awaitable[T]],
    ) -> T:
        has_partitions = False
        for attempt in range(_RETRIES):
            try:
                async with lend() as conn:
                    return await verb(conn)
            except _RETRIED:
                if attempt == _RETRIES - 1:
                    raise
                await asyncio.sleep(random.uniform(0, 0.01 * 2**attempt))
            except asyncpg.CheckViolationError as problem:
                if has_partitions or not lacks_partition(problem):
                    raise
                has_partitions = True
                async with self.transaction() as conn:
                    await ensure_partitions(conn)
        raise AssertionError("unreachable")

    async def close(self) -> None:
        """Close the pool; connections in use are ended."""
        await self._pool.close()
        if self._walled is not None:
            await self._walled.pool.close()
