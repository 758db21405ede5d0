"""Backups of the embedded database, each one file."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

from weft.core.errors import EmbeddedServerFailed
from weft.core.settings import Settings
from weft.db.embedded import DATABASE, EmbeddedServer, database_url, ensure_running, sync_folder
from weft.db.embedded_layout import explained, layout_of
from weft.db.embedded_postmaster import start_lock
from weft.db.embedded_programs import Finished, pg_bin, run_program

_RESTORING = f"{DATABASE}_restoring"
_REPLACED = f"{DATABASE}_replaced"
_MAGIC = b"PGDMP"
_MOMENT = 0.2

_DROP = """DROP DATABASE IF EXISTS "{}" WITH (FORCE)"""
_CREATE = f'CREATE DATABASE "{_RESTORING}" TEMPLATE template0'
_SWAP = f"""
BEGIN;
ALTER DATABASE "{DATABASE}" RENAME TO "{_REPLACED}";
ALTER DATABASE "{_RESTORING}" RENAME TO "{DATABASE}";
COMMIT;
"""
_TERMINATE = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{DATABASE}'"

_WHAT_IS_THERE = """
SELECT CASE WHEN EXISTS (SELECT FROM pg_tables WHERE schemaname NOT IN ('weft', 'pg_catalog', 'information_schema'))
  THEN 'others' WHEN to_regclass('weft.task') IS NULL THEN 'nothing' ELSE 'weft' END
"""
_LOADED = f"SELECT pg_database_size(oid) FROM pg_database WHERE datname = '{_RESTORING}'"
_HOLDS_ROWS = """
SELECT EXISTS (SELECT FROM weft.task) OR EXISTS (SELECT FROM weft.task_done) OR EXISTS (SELECT FROM weft.outbox)
  OR EXISTS (SELECT FROM weft.queue WHERE name <> 'default' AND name NOT LIKE '@%')
"""


async def backup(settings: Settings, file: Path, on_progress: Callable[[int], None] | None = None) -> None:
    """Write the database, as it is at one moment, to ``file``; work goes on meanwhile.

    The file appears under its name when it is whole. It contains params and outputs: only its owner may read it.
    ``on_progress`` is told how many bytes are written, every moment.

    Example::

        await backup(settings, Path("weft.dump"))
    """
    server = await ensure_running(settings)
    file = file.absolute()
    scratch = file.with_name(f".{file.name}.{os.getpid()}.part")
    with explained(layout_of(settings)):
        if not file.parent.is_dir():
            raise EmbeddedServerFailed(f"cannot write {file}", f"there is no folder {file.parent}")
        telling = None if on_progress is None else asyncio.create_task(_tell_size(scratch, on_progress))
        try:
            dumped = await _run("pg_dump", "-Fc", "-f", str(scratch), "-d", server.url)
            if dumped.code != 0:
                raise EmbeddedServerFailed(f"cannot write the backup {file}", dumped.complaint)
            scratch.replace(file)
            sync_folder(file.parent)
        finally:
            if telling is not None:
                telling.cancel()
            scratch.unlink(missing_ok=True)


async def _tell_size(file: Path, on_progress: Callable[[int], None]) -> None:
    while True:
        await asyncio.sleep(_MOMENT)
        with suppress(FileNotFoundError):
            on_progress(file.stat().st_size)


async def holds_data(settings: Settings) -> bool:
    """Whether a restore would replace anything that people made: tasks, queues, effects, or tables of their own.

    Example::

        if await holds_data(settings): ...
    """
    server = await ensure_running(settings)
    there = (await _sql(server, _WHAT_IS_THERE, DATABASE)).output.strip()
    if there == "weft":
        # A schema of another release may have other tables: better asked once too often.
        return (await _sql(server, _HOLDS_ROWS, DATABASE)).output.strip() != "f"
    return there != "nothing"


async def restore(settings: Settings, file: Path, on_progress: Callable[[int], None] | None = None) -> None:
    """Replace the database by the one in ``file``, or leave it as it is and say why.

    Stop workers and servers before: what they write while the backup loads is lost. When it has loaded, their
    connections are ended, and they go on with the restored tasks. ``on_progress`` is told how large the new database
    is, every moment.

    Example::

        await restore(settings, Path("weft.dump"))
    """
    file = file.absolute()
    await require_backup(file)
    server = await ensure_running(settings)
    layout = layout_of(settings)
    # The lock keeps a second restore, a stop or a reset waiting.
    with explained(layout):
        async with start_lock(layout):
            for name in (_RESTORING, _REPLACED):  # what a killed restore left
                await _require(_sql(server, _DROP.format(name)), file)
            telling = None if on_progress is None else asyncio.create_task(_tell_loaded(server, on_progress))
            try:
                await _require(_sql(server, _CREATE), file)
                url = database_url(server.socket_dir, _RESTORING)
                await _require(_run("pg_restore", "--exit-on-error", "--no-owner", "-d", url, str(file)), file)
                await _require(_sql(server, "ANALYZE", _RESTORING), file)
                await _swap(server, file)
            finally:
                if telling is not None:
                    telling.cancel()
                    await asyncio.gather(telling, return_exceptions=True)
                for name in (_RESTORING, _REPLACED):
                    await _sql(server, _DROP.format(name))


async def _tell_loaded(server: EmbeddedServer, on_progress: Callable[[int], None]) -> None:
    while True:
        await asyncio.sleep(_MOMENT)
        found = await _sql(server, _LOADED)
        if found.output.strip().isdigit():
            on_progress(int(found.output))


async def require_backup(file: Path) -> None:
    """Refuse a file that is not a whole backup.

    Example::

        await require_backup(Path("weft.dump"))
    """
    file = file.absolute()
    if await asyncio.to_thread(_first_bytes, file) != _MAGIC:
        raise EmbeddedServerFailed(f"{file} is not a backup of Weft", "nothing was changed")
    await _require(_run("pg_restore", "--list", str(file)), file)


def _first_bytes(file: Path) -> bytes:
    try:
        with open(file, "rb") as opened:
            return opened.read(len(_MAGIC))
    except OSError as problem:
        raise EmbeddedServerFailed(f"cannot read {file}: {problem.strerror}", "nothing was changed") from None


async def _swap(server: EmbeddedServer, file: Path) -> None:
    """Rename both databases in one transaction.

    The rename first bars newcomers, then waits a few seconds for those who are there, and these we end meanwhile.
    Ended before the rename, they would be back in time to fail it.
    """
    renaming = asyncio.create_task(_sql(server, _SWAP))
    try:
        while not renaming.done():
            await _sql(server, _TERMINATE)
            await asyncio.wait([renaming], timeout=0.05)
        await _require(renaming, file)
    finally:
        renaming.cancel()


async def _require(finishing: Awaitable[Finished], file: Path) -> None:
    finished = await finishing
    if finished.code != 0:
        raise EmbeddedServerFailed(f"cannot restore {file}: {finished.complaint}", "nothing was changed")


async def _run(program: str, *arguments: str) -> Finished:
    return await run_program([str(pg_bin() / program), *arguments])


async def _sql(server: EmbeddedServer, statement: str, database: str = "postgres") -> Finished:
    url = database_url(server.socket_dir, database)
    return await _run("psql", "-XAtq", "-v", "ON_ERROR_STOP=1", "-d", url, "-c", statement)
