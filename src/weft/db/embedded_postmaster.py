"""The running server, as seen and touched from outside: its pid file, its socket, its locks, its signals."""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
import struct
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from weft.core.errors import EmbeddedServerFailed
from weft.db.embedded_layout import PORT, Layout, open_own, socket_path
from weft.db.embedded_programs import Programs, clean_environment, complaint, run_as

_LOG_LIMIT = 16 * 1024**2

# The protocol's question whether TLS is spoken: one byte answers it, before any login, and nothing is logged.
_GREETING = struct.pack("!ii", 8, 80877103)

# The shell ends at once, so that the server belongs to init: nobody's zombie, nobody's child. Nothing of ours is
# open in it but the log and the lock that it holds for life.
_DETACH = '"$@" </dev/null >&2 &'


@dataclass(frozen=True)
class Postmaster:
    """What the server wrote into its pid file."""

    pid: int
    started_at: datetime
    socket_dir: Path
    is_ready: bool


def read_postmaster(data_dir: Path) -> Postmaster | None:
    """Read the pid file, which a crash leaves behind and a start fills line by line."""
    try:
        lines = (data_dir / "postmaster.pid").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
        return Postmaster(
            pid=abs(int(lines[0])),  # below zero in single-user mode
            started_at=datetime.fromtimestamp(int(lines[2]), UTC),
            socket_dir=Path(lines[4]),
            is_ready=lines[7].strip() == "ready",
        )
    except (FileNotFoundError, NotADirectoryError, ValueError, IndexError):
        return None


def serving(layout: Layout) -> Postmaster | None:
    """Return the server if it accepts connections."""
    postmaster = read_postmaster(layout.data_dir)
    if postmaster is None or not postmaster.is_ready:
        return None
    return postmaster if _listener(postmaster) is not None else None


def missing_socket(layout: Layout) -> Path | None:
    """Return where the socket of a server that says it is ready should be, and is not."""
    postmaster = read_postmaster(layout.data_dir)
    if postmaster is None or not postmaster.is_ready:
        return None
    path = socket_path(postmaster.socket_dir)
    return None if path.exists() else path


def _listener(postmaster: Postmaster) -> int | None:
    """Return who answers on the socket: its process id, 0 if that is unknown, None if nobody does.

    To connect is not enough: a process that is being killed still has its socket open for a moment.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(1)
        try:
            client.connect(os.fspath(socket_path(postmaster.socket_dir)))
            client.sendall(_GREETING)
            if not client.recv(1):
                return None
        except BlockingIOError:
            return 0  # so many come at once that its queue is full
        except OSError:
            return None
        if sys.platform != "linux":
            return 0
        pid: int = struct.unpack("3i", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
        return pid


def is_alive(layout: Layout) -> bool:
    """Tell whether any process of this home's server lives, be it starting, serving or ending."""
    try:
        descriptor = os.open(layout.life_lock, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        pass
    else:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
    # Someone may have started it by hand, without the lock.
    pid = _noted_pid(layout.data_dir)
    return pid is not None and _is_postmaster_of(pid, layout.data_dir)


def _noted_pid(data_dir: Path) -> int | None:
    try:
        return abs(int((data_dir / "postmaster.pid").read_text(errors="surrogateescape").split("\n", 1)[0]))
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None


def _is_postmaster_of(pid: int, data_dir: Path) -> bool:
    """Tell whether ``pid`` is the PostgreSQL of ``data_dir``, and not another process that got its number."""
    if sys.platform != "linux":
        shown = subprocess.run(["ps", "-o", "comm=", "-p", str(pid)], capture_output=True, text=True, check=False)
        return os.path.basename(shown.stdout.strip()) == "postgres"
    process = Path(f"/proc/{pid}")
    try:
        name, _, rest = (process / "stat").read_text(errors="replace").partition("(")[2].rpartition(")")
        if name != "postgres" or rest.split()[0] in "ZX":
            return False
        try:
            return (process / "cwd").samefile(data_dir)
        except PermissionError:  # in a container root may not look there, but anyone may see the command line
            return os.fsencode(data_dir) in (process / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return False  # it has ended


def remove_stale_pid_files(layout: Layout) -> None:
    """Remove what a killed server left; the caller holds the start lock and knows that no process of it lives.

    PostgreSQL itself refuses to start while the number it finds there belongs to any process: to a foreign one that
    got it meanwhile, or to its own zombie in a container where nobody reaps.
    """
    (layout.data_dir / "postmaster.pid").unlink(missing_ok=True)
    Path(f"{socket_path(layout.socket_dir)}.lock").unlink(missing_ok=True)


def send_signal(layout: Layout, number: int) -> None:
    """Send a signal to the server, or refuse when it is not certain that the process is the server."""
    pid = _noted_pid(layout.data_dir)
    postmaster = read_postmaster(layout.data_dir)
    if pid is not None and (
        _is_postmaster_of(pid, layout.data_dir) or (postmaster is not None and _listener(postmaster) == pid)
    ):
        with suppress(ProcessLookupError):
            os.kill(pid, number)
        return
    raise EmbeddedServerFailed(
        f"a PostgreSQL of {layout.home} is alive, but its process is not known here",
        "stop it in the container where it runs; if it lost its pid file, it ends by itself within a minute",
    )


async def until(claim: Callable[[], bool], seconds: float) -> bool:
    """Wait until ``claim`` holds; return whether it came to."""
    clock = asyncio.get_running_loop().time
    deadline = clock() + seconds
    while not claim():
        if clock() > deadline:
            return False
        await asyncio.sleep(0.005)
    return True


@asynccontextmanager
async def start_lock(layout: Layout) -> AsyncIterator[int]:
    """Hold the home's start lock, waiting for whoever has it; yields its descriptor."""
    descriptor = open_own(layout, layout.start_lock, os.O_RDWR)
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await asyncio.sleep(0.01)
        yield descriptor
    finally:
        os.close(descriptor)


async def launch(layout: Layout, programs: Programs) -> int:
    """Start the server in a session of its own; return where in the log its messages begin."""
    life = open_own(layout, layout.life_lock, os.O_RDWR)
    try:
        # `is_alive` of other processes takes it for a moment.
        if not await until(lambda: _taken(life), 5):
            raise EmbeddedServerFailed(f"another process holds {layout.life_lock}", "end that process")
        log = _opened_log(layout)
        try:
            begin = os.fstat(log).st_size
            shell = _detached(layout, programs, life, log)
        finally:
            os.close(log)
        await asyncio.to_thread(shell.wait)
        return begin
    finally:
        os.close(life)


def _detached(layout: Layout, programs: Programs, life: int, log: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        ["/bin/sh", "-c", _DETACH, "sh", *_command(layout, programs)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=log,
        cwd="/",
        env=clean_environment(),
        pass_fds=(life,),
        start_new_session=True,
        umask=0o077,
        **run_as(layout.account),
    )


def _taken(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _command(layout: Layout, programs: Programs) -> list[str]:
    # The socket's folder is a list in PostgreSQL's eyes, hence the quotes. It stands here and not in the file because
    # clients depend on it.
    folder = str(layout.socket_dir).replace('"', '""')
    return [
        *(programs.path("postgres"), "-D", str(layout.data_dir)),
        *("-c", f"config_file={layout.config_file}"),
        *("-c", f'unix_socket_directories="{folder}"'),
        *("-c", f"port={PORT}"),
    ]


def _opened_log(layout: Layout) -> int:
    """Open the log for the server, setting a large one aside."""
    with suppress(FileNotFoundError):
        if layout.log_file.stat().st_size > _LOG_LIMIT:
            layout.log_file.replace(layout.log_file.with_name("postgres.log.1"))
    return open_own(layout, layout.log_file, os.O_WRONLY | os.O_APPEND)


def trim_log(layout: Layout) -> None:
    """Empty the log of a server that has filled it without ever being restarted; it goes on writing at the front."""
    with suppress(OSError):
        if layout.log_file.stat().st_size > 4 * _LOG_LIMIT:
            os.truncate(layout.log_file, 0)


def reason_in_log(layout: Layout, begin: int) -> str:
    """Return the line of the log, from ``begin`` on, that says why the server ended."""
    with open(layout.log_file, "rb") as file:
        file.seek(begin)
        return complaint(file.read(64 * 1024).decode(errors="replace")) or "it gave no reason"
