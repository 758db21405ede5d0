"""Moves the schema between revisions by Alembic, safe when many processes try at once."""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import redirect_stdout
from importlib import resources
from typing import Any

import asyncpg
import sqlalchemy as sa
from alembic import command, context, op
from alembic.config import Config
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from asyncpg.transaction import Transaction
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from weft.core.errors import (
    InvalidInput,
    MigrationBlocked,
    OperatorError,
    PermissionDenied,
    SchemaOutdated,
)
from weft.core.suggestions import did_you_mean
from weft.db.database import CONNECTION_ERRORS
from weft.db.revisions import DIGEST, DIGESTED, SCHEMA, VERSION_TABLE, all_revisions, digest
from weft.db.statements import Statements
from weft.db.unreachable import unreachable

WALLS = Statements("weft.db", "sql/wall.sql")
# The first revision at which there are walls.
WALLED = "0004"
OLDEST = 15
LOCK_TIMEOUT = "10s"
TURN_TIMEOUT = "10min"
_LOCK = 7_238_415_001


def apply_sql(file: str, *names: str) -> None:
    """Execute the statements of ``migrations/sql/<file>``, or those named, in order; print them in ``--sql`` mode."""
    texts = Statements("weft.db.migrations", f"sql/{file}").texts
    statements = [texts[name] for name in names or texts]
    if context.is_offline_mode():
        for statement in statements:
            op.execute(statement.replace(":", r"\:"))
    else:
        dbapi: Any = op.get_bind().connection.dbapi_connection

        async def execute(conn: Any) -> None:
            for statement in statements:  # past SQLAlchemy, which has each of them prepared
                await conn.execute(statement)

        dbapi.run_async(execute)


def note_digest(revision: str) -> None:
    """Note by which state of its SQL the database came to a revision; it counts while that is not released."""
    op.execute(f"update {SCHEMA}.{VERSION_TABLE} set digest = '{digest(revision)}'")


def build_walls(server_role: str | None) -> str:
    """Return the SQL that ends an upgrade: what roles are held to an org by covers the tables that have come.

    ``server_role`` is also given what a server needs.
    """
    if server_role is None:
        return WALLS.build_again
    named = '"{}"'.format(server_role.replace('"', '""')).replace("'", "''")
    return f"{WALLS.build_again};\n\nselect weft.admit_server('{named}')"


async def upgrade(
    url: str, revision: str = "head", on_step: Callable[[str], None] | None = None, *, server_role: str | None = None
) -> None:
    """Bring the database up to ``revision``; ``on_step`` is told each revision on the way, when it is applied.

    ``server_role`` is given what a server needs; it and whatever role has walls is held to one org in new tables too.
    """
    _require_walls(revision, server_role)

    def step(config: Config) -> None:
        config.attributes["on_step"] = on_step
        command.upgrade(config, _known(revision))
        connection: sa.Connection = config.attributes["connection"]
        if server_role is not None and not connection.exec_driver_sql(WALLS.has_role, (server_role,)).scalar():
            raise InvalidInput("--server-role", f"there is no role {server_role}: make it, `create role … login`")
        for statement in build_walls(server_role).split(";\n\n"):
            connection.exec_driver_sql(statement)

    await _run(url, step, is_upgrade=True)


async def downgrade(url: str, revision: str, on_step: Callable[[str], None] | None = None) -> None:
    """Bring the database back to ``revision``; ``base`` drops everything; ``on_step`` is told each that is left."""

    def step(config: Config) -> None:
        config.attributes["on_step"] = on_step
        command.downgrade(config, _known(revision))

    await _run(url, step)


def sql_of_upgrade(revision: str = "head", found: str | None = None, *, server_role: str | None = None) -> str:
    """Return the SQL of an upgrade from the revision ``found``, or from nothing, without touching a database."""
    _require_walls(revision, server_role)
    wanted = all_revisions()[-1] if _known(revision) == "head" else revision
    if wanted == "base" or (found is not None and found >= wanted):
        told = f"-- at revision {found or 'nothing'} already: nothing to do for {wanted}\n"
        return told if server_role is None else f"{told}{build_walls(server_role)};\n"
    buffer = io.StringIO()
    config = _config()
    config.attributes |= {"output": buffer, "has_schema": found is not None, "server_role": server_role}
    with redirect_stdout(buffer):
        command.upgrade(config, wanted if found is None else f"{found}:{wanted}", sql=True)
    # A way down to nothing leaves this one table, which Alembic would make again.
    table = f"CREATE TABLE {SCHEMA}.{VERSION_TABLE} "
    return buffer.getvalue().replace(table, table.replace("TABLE", "TABLE IF NOT EXISTS"), 1)


def history() -> list[tuple[str, str]]:
    """Return each revision with its title, newest first."""
    script = ScriptDirectory.from_config(_config())
    return [(step.revision, step.doc) for step in script.walk_revisions()]


def _known(revision: str) -> str:
    names = (*all_revisions(), "head", "base")
    if revision not in names:
        raise InvalidInput("revision", f"there is no revision {revision!r}.{did_you_mean(revision, names)}")
    return revision


def _require_walls(revision: str, server_role: str | None) -> None:
    if server_role is not None and _known(revision) != "head" and revision < WALLED:
        raise InvalidInput("--server-role", f"there are no servers before revision {WALLED}: leave it out")


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(resources.files("weft.db") / "migrations").replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


def _require_version(connection: sa.Connection) -> None:
    major = int(connection.exec_driver_sql("select current_setting('server_version_num')").scalar_one()) // 10000
    if major < OLDEST:
        raise OperatorError(f"this is PostgreSQL {major}, and Weft needs {OLDEST} or later: upgrade PostgreSQL")


def _require_known_revision(connection: sa.Connection, *, is_upgrade: bool) -> None:
    """A database that a newer release has migrated is not ours to touch, nor one of another build."""
    if connection.exec_driver_sql(f"select to_regclass('{SCHEMA}.{VERSION_TABLE}')").scalar() is None:
        return
    found = connection.exec_driver_sql(f"select version_num from {SCHEMA}.{VERSION_TABLE}").scalar()
    newest = all_revisions()[-1]
    if found is not None and found not in all_revisions():
        raise SchemaOutdated(found, newest)
    if found is None or found < DIGESTED or not is_upgrade:
        return
    if connection.exec_driver_sql(DIGEST).scalar() != digest(found):
        raise SchemaOutdated(found, found)


async def _run(url: str, step: Any, *, is_upgrade: bool = False) -> None:
    has_turn = False

    def locked(connection: sa.Connection) -> None:
        nonlocal has_turn
        # Whoever else migrates may take its time; only then must no lock of ours hold up the work.
        connection.exec_driver_sql(f"set local lock_timeout = '{TURN_TIMEOUT}'")
        connection.exec_driver_sql(f"select pg_advisory_xact_lock({_LOCK})")
        has_turn = True
        connection.exec_driver_sql(f"set local lock_timeout = '{LOCK_TIMEOUT}'")
        _require_version(connection)
        # Not `if not exists`: that asks for the right to make schemas even when there is nothing to make.
        if connection.exec_driver_sql(f"select to_regnamespace('{SCHEMA}')").scalar() is None:
            connection.exec_driver_sql(f"create schema {SCHEMA}")
        _require_known_revision(connection, is_upgrade=is_upgrade)
        config = _config()
        config.attributes["connection"] = connection
        step(config)

    whole: list[Transaction] = []

    async def connect() -> Any:
        # asyncpg reads the URL itself: SQLAlchemy would not understand all that it may contain.
        conn = await asyncpg.connect(url, timeout=10, statement_cache_size=0)
        # All in one transaction, also what SQLAlchemy asks before its own: a pooler may give each another session.
        whole.append(conn.transaction())
        await whole[0].start()
        return conn

    # No statement is prepared under a name, which a session behind a pooler may know already: str() is empty.
    options = {"async_creator_fn": connect, "prepared_statement_cache_size": 0, "prepared_statement_name_func": str}
    engine = create_async_engine("postgresql+asyncpg://", poolclass=NullPool, connect_args=options)
    try:
        async with engine.connect() as connection:
            await connection.run_sync(locked)
            await connection.commit()
            await whole[0].commit()
    except (*CONNECTION_ERRORS, TimeoutError) as problem:
        raise unreachable(url, problem) from problem
    except asyncpg.PostgresError as problem:
        raise (_failure(problem, has_turn=has_turn) if whole else unreachable(url, problem)) from problem
    except sa.exc.DBAPIError as problem:
        raise _failure(problem.orig, has_turn=has_turn) from problem
    except CommandError as problem:
        raise OperatorError(f"the migration failed, nothing is changed: {problem}") from problem
    finally:
        await engine.dispose()


def _failure(problem: BaseException | None, *, has_turn: bool) -> OperatorError:
    """Return the error that says why a migration did not land."""
    state = getattr(problem, "sqlstate", None)
    if state == "55P03":
        return MigrationBlocked(LOCK_TIMEOUT if has_turn else TURN_TIMEOUT, by_migration=not has_turn)
    told = f"the migration failed, nothing is changed: {problem}"
    return PermissionDenied(told) if state == "42501" else OperatorError(told)


__all__ = [
    "SCHEMA",
    "VERSION_TABLE",
    "apply_sql",
    "build_walls",
    "downgrade",
    "history",
    "note_digest",
    "sql_of_upgrade",
    "upgrade",
]
