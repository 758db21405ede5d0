"""The embedded PostgreSQL: one server for all processes of a user, started by the first that needs it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from weft.core.errors import EmbeddedServerFailed
from weft.core.settings import Settings
from weft.db.embedded_config import noted_version, write_config
from weft.db.embedded_layout import PORT, Layout, explained, layout_of, prepare_home, prepare_socket_dir
from weft.db.embedded_postmaster import (
    Postmaster,
    is_alive,
    launch,
    missing_socket,
    reason_in_log,
    remove_stale_pid_files,
    send_signal,
    serving,
    start_lock,
    trim_log,
    until,
)
from weft.db.embedded_programs import MAJOR, Finished, Programs, pg_bin, run_program, usable_programs

DATABASE = "weft"
SUPERUSER = "postgres"
# A start may have to replay all WAL since the last checkpoint, and a stop has to write one.
_START_SECONDS = 300.0
_LOOKS_FOR_A_SOCKET = 200
_STOP_SECONDS = 120.0
_SIGNALS = {"fast": signal.SIGINT, "immediate": signal.SIGQUIT}


@dataclass(frozen=True)
class EmbeddedServer:
    """A server that accepts connections."""

    home: Path
    data_dir: Path
    socket_dir: Path
    url: str
    pid: int
    version: str


@dataclass(frozen=True)
class ServerStatus:
    """What is known of a home's server, be it up or not."""

    running: bool
    pid: int | None
    version: str
    url: str | None
    data_dir: Path
    size: int
    started_at: datetime | None


async def ensure_running(settings: Settings) -> EmbeddedServer:
    """Return the server of this home, made and started if need be.

    Any number of processes may call at once and get the same server. It goes on when they end.

    Example::

        server = await ensure_running(Settings.load())
        conn = await asyncpg.connect(server.url)
    """
    layout = layout_of(settings)
    with explained(layout):
        if server := _found(layout):
            trim_log(layout)
            return server
        prepare_home(layout)
        async with start_lock(layout) as lock:
            return await _ensure_locked(layout, lock)


def has_data(settings: Settings) -> bool:
    """Whether there is a data folder, or one is yet to be made."""
    return layout_of(settings).data_dir.exists()


def has_died(settings: Settings) -> bool:
    """Whether the server has ended without being stopped: its pid file is there, and no process of it lives."""
    layout = layout_of(settings)
    return (layout.data_dir / "postmaster.pid").exists() and not is_alive(layout)


async def status(settings: Settings) -> ServerStatus:
    """Look at the server without starting it.

    Example::

        if not (await status(settings)).running: ...
    """
    layout = layout_of(settings)
    with explained(layout):
        postmaster = serving(layout)
        return ServerStatus(
            running=postmaster is not None,
            pid=postmaster.pid if postmaster else None,
            version=noted_version(layout),
            url=database_url(postmaster.socket_dir) if postmaster else None,
            data_dir=layout.data_dir,
            size=await asyncio.to_thread(_size, layout.data_dir),
            started_at=postmaster.started_at if postmaster else None,
        )


async def stop(settings: Settings, mode: Literal["fast", "immediate"] = "fast") -> bool:
    """Stop the server, and return when its last process has ended; False when there was none.

    Open transactions are rolled back. With ``immediate`` nothing is written any more, and the next start recovers.

    Example::

        await stop(settings)
    """
    layout = layout_of(settings)
    with explained(layout):
        if not layout.home.is_dir():
            return False
        async with start_lock(layout):
            return await _stop_locked(layout, mode)


async def reset(settings: Settings) -> None:
    """Stop the server and remove its data for good. Logs, blobs and settings in the home stay.

    Example::

        await reset(settings)
    """
    layout = layout_of(settings)
    with explained(layout):
        if not layout.home.is_dir():
            return
        async with start_lock(layout):
            await _stop_locked(layout, "immediate")
            if layout.data_dir.is_symlink():
                raise EmbeddedServerFailed(f"{layout.data_dir} is a link", "remove what it leads to yourself")
            if layout.data_dir.exists():
                layout.data_dir.rename(layout.home / f"pgdata.removed-{os.getpid()}")
                sync_folder(layout.home)
            await asyncio.to_thread(_remove_leftovers, layout)


def psql_command(server: EmbeddedServer) -> list[str]:
    """Return the command line of the wheel's psql on ``server``, for `os.execvp`.

    Example::

        command = psql_command(server)
        os.execvp(command[0], command)
    """
    return [str(pg_bin() / "psql"), server.url]


def database_url(socket_dir: Path, database: str = DATABASE) -> str:
    """Return the address of a database behind a socket, as asyncpg and psql read it."""
    # The port is said, lest a PGPORT in the environment leads elsewhere.
    return f"postgresql://{SUPERUSER}@/{database}?host={quote(str(socket_dir), safe='/')}&port={PORT}"


def _found(layout: Layout) -> EmbeddedServer | None:
    postmaster = serving(layout)
    return _described(layout, postmaster) if postmaster else None


def _described(layout: Layout, postmaster: Postmaster) -> EmbeddedServer:
    return EmbeddedServer(
        home=layout.home,
        data_dir=layout.data_dir,
        socket_dir=postmaster.socket_dir,
        url=database_url(postmaster.socket_dir),
        pid=postmaster.pid,
        version=noted_version(layout),
    )


async def _ensure_locked(layout: Layout, lock: int) -> EmbeddedServer:
    """Return the server, started if need be; the caller holds the start lock."""
    if server := await _settled(layout):
        return server
    programs = await usable_programs(layout)
    if _has_cluster(layout):
        _require_major_version(layout)
    else:
        await asyncio.to_thread(_remove_leftovers, layout)
        await _make_cluster(layout, programs, lock)
    prepare_socket_dir(layout)
    remove_stale_pid_files(layout)
    write_config(layout, programs.version)
    begin = await launch(layout, programs)
    if server := await _settled(layout):
        return server
    reason = reason_in_log(layout, begin)
    raise EmbeddedServerFailed(f"PostgreSQL did not start: {reason}", _advice(layout, reason))


async def _settled(layout: Layout) -> EmbeddedServer | None:
    """Wait while a server is starting or ending; return it when it serves, None when there is none."""
    found: EmbeddedServer | None = None
    without_socket = 0

    def is_settled() -> bool:
        nonlocal found, without_socket
        found = _found(layout)
        if found is not None or not is_alive(layout):
            return True
        missing = missing_socket(layout)
        without_socket = 0 if missing is None else without_socket + 1
        if missing is not None and without_socket >= _LOOKS_FOR_A_SOCKET:
            raise EmbeddedServerFailed(
                f"PostgreSQL of {layout.home} runs, but something has removed its socket {missing}",
                "stop it with `weft db stop`, then try again",
            )
        return False

    if await until(is_settled, _START_SECONDS):
        return found
    raise EmbeddedServerFailed(
        f"PostgreSQL of {layout.home} is alive but accepts no connections after {_START_SECONDS:g} s",
        f"it may be recovering from a crash: see {layout.log_file}, and try again later",
    )


def _has_cluster(layout: Layout) -> bool:
    if (layout.data_dir / "PG_VERSION").exists():
        return True
    if layout.data_dir.exists() and any(layout.data_dir.iterdir()):
        raise EmbeddedServerFailed(
            f"{layout.data_dir} is not a data folder of PostgreSQL", "move it away, or set WEFT_HOME to another folder"
        )
    return False


def _require_major_version(layout: Layout) -> None:
    found = (layout.data_dir / "PG_VERSION").read_text(encoding="ascii", errors="replace").strip()
    if found != str(MAJOR):
        raise EmbeddedServerFailed(
            f"{layout.data_dir} was made by PostgreSQL {found}, and this release of Weft runs PostgreSQL {MAJOR}",
            "back it up with the release that made it, then restore the backup with this one in another WEFT_HOME",
        )


async def _make_cluster(layout: Layout, programs: Programs, lock: int) -> None:
    """Make the data folder under another name, and give it its own when all of it is on the disk."""
    if any(char in str(programs.folder) for char in '"$`\\'):
        raise EmbeddedServerFailed(
            f"PostgreSQL cannot run from {programs.folder}", "its path must not contain quotes, $ or backslashes"
        )
    scratch = layout.home / f"pgdata.new-{os.getpid()}"
    scratch.mkdir(mode=0o700)
    if layout.account:
        os.chown(scratch, layout.account.uid, layout.account.gid)

    async def step(program: str, *arguments: str, text: str = "") -> None:
        argv = [programs.path(program), *arguments]
        finished = await run_program(argv, account=layout.account, text=text, keep=[lock])
        if finished.code != 0:
            raise _making_failed(layout, finished)

    try:
        # The locale of PostgreSQL's own sorts alike on every machine. Whoever connects from the network, should the
        # user allow that, needs a password.
        await step(
            *("initdb", "-D", str(scratch)),
            *("-U", SUPERUSER, "--auth-local=trust", "--auth-host=scram-sha-256", "--encoding=UTF8", "--no-locale"),
            *("--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--no-sync", "--no-instructions"),
        )
        # Made here, so that no process ever meets a server without it.
        create = f"CREATE DATABASE {DATABASE} STRATEGY file_copy;\n"
        alone = ("--single", "-D", str(scratch), "-F", "-c", "exit_on_error=on")
        await step("postgres", *alone, "template1", text=create)
        # All at once is many times faster than file by file.
        at_once = ["--sync-method=syncfs"] if sys.platform == "linux" else []
        await step("initdb", "-D", str(scratch), "--sync-only", *at_once)
        scratch.rename(layout.data_dir)
        sync_folder(layout.home)
    finally:
        await asyncio.to_thread(_remove_leftovers, layout)


def _making_failed(layout: Layout, finished: Finished) -> EmbeddedServerFailed:
    reason = finished.complaint
    return EmbeddedServerFailed(
        f"cannot make a PostgreSQL data folder in {layout.home}: {reason}", _advice(layout, reason)
    )


def _advice(layout: Layout, reason: str) -> str:
    if "shared memory" in reason:
        return "free memory, or lower shared_buffers in postgres.conf in WEFT_HOME"
    if "No space left" in reason or "quota" in reason:
        return f"free space on the disk of {layout.home}, then try again"
    if "could not look up effective user" in reason:
        return "give this user a line in /etc/passwd, or set WEFT_DATABASE_URL to a PostgreSQL of your own"
    if "File too large" in reason:
        return "raise the limit on file sizes (ulimit -f), then try again"
    return f"see {layout.log_file}" if layout.log_file.exists() else ""


async def _stop_locked(layout: Layout, mode: Literal["fast", "immediate"]) -> bool:
    if not is_alive(layout):
        return False
    send_signal(layout, _SIGNALS[mode])
    if not await until(lambda: not is_alive(layout), _STOP_SECONDS):
        raise EmbeddedServerFailed(
            f"PostgreSQL of {layout.home} is still ending after {_STOP_SECONDS:g} s",
            "stop it with `weft db stop --immediate`",
        )
    return True


def _remove_leftovers(layout: Layout) -> None:
    """Remove what a killed process left; the caller holds the start lock, so nobody is at work on it."""
    from shutil import rmtree

    for pattern in ("pgdata.new-*", "pgdata.removed-*", "programs.new-*"):
        for folder in layout.home.glob(pattern):
            rmtree(folder, ignore_errors=True)


def sync_folder(folder: Path) -> None:
    """Bring the names in ``folder`` to the disk: without that, a rename may be forgotten in a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _size(folder: Path) -> int:
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(path, name)).st_size
            except FileNotFoundError:
                continue  # the server removes files while we look
    return total
