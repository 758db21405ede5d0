"""What stands between untrusted SQL and the machine: put up by a process around itself before it reads the SQL.

| wall | what it holds back |
|---|---|
| `limits` | memory, processor time, size of files, open files, core dumps |
| `privileges` | no new ones, no capabilities, no debugger |
| `files` | every file but those of the query's datasets and its own temporary folder (Landlock) |
| `calls` | network, other processes, programs, new code in memory (seccomp) |
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import socket
import struct
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from weft.data import landlock, seccomp

ABOUT = {
    "limits": "memory, processor time, size and number of files",
    "privileges": "no new rights, no capabilities",
    "files": "no file but those of the datasets (Landlock)",
    "calls": "no network, no other processes, no programs (seccomp)",
}
# Beside DuckDB's own limit: the interpreter, Arrow's batches on their way out, stacks of threads.
HEADROOM = 256 * 1024 * 1024
_ADDRESSES = 4 * 1024 * 1024 * 1024
_OPEN_FILES = 512
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS = 1, 4, 38
_CAPABILITY_VERSION = 0x20080522


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much a process may take: bytes of memory and of each file, seconds of the processor and of the clock."""

    memory: int
    spill: int
    cpu_seconds: int
    seconds: int


def put_up(bounds: Bounds, files: Sequence[str], spill: str | None) -> dict[str, str]:
    """Put up all walls around this process, which has one thread; return those that cannot stand here, and why.

    ``files`` may be read, and ``spill`` is a folder for temporary files.
    """
    if sys.platform == "linux" and len(os.listdir("/proc/self/task")) > 1:
        # The kernel puts them up around the thread that asks, and those that it starts.
        return dict.fromkeys(ABOUT, "other threads run already")
    missing: dict[str, str] = {}
    libc = ctypes.CDLL(None, use_errno=True)
    steps: dict[str, Callable[[], None]] = {
        "limits": lambda: _limit(bounds),
        "privileges": lambda: _give_up_privileges(libc),
        "files": lambda: landlock.confine(libc, files, spill),
        "calls": lambda: seccomp.confine(libc),
    }
    for name, step in steps.items():
        if sys.platform != "linux" and name != "limits":
            missing[name] = "this is Linux's alone"
            continue
        try:
            step()
        except (OSError, ValueError) as problem:
            missing[name] = str(problem)
    return missing


def probe(readable: str) -> dict[str, str]:
    """Try each wall from inside; return those that let something through, and what. ``readable`` is a file outside."""
    found: dict[str, str] = {}
    try:
        os.close(os.open(readable, os.O_RDONLY))
        found["files"] = "a file outside could be opened"
    except OSError:
        pass
    try:
        socket.socket().close()
        found["calls"] = "a socket could be made"
    except OSError:
        pass
    if resource.getrlimit(resource.RLIMIT_CORE) != (0, 0):
        found["limits"] = "core dumps are possible"
    return found


def _limit(bounds: Bounds) -> None:
    if sys.platform == "linux":
        pages = [int(each) for each in _read("/proc/self/statm").split()]
        taken, private = pages[0] * resource.getpagesize(), pages[5] * resource.getpagesize()
        _both(resource.RLIMIT_DATA, private + bounds.memory + HEADROOM)
        _both(resource.RLIMIT_AS, taken + bounds.memory + HEADROOM + _ADDRESSES)
        # Where the machine itself runs out, this process goes first.
        _write("/proc/self/oom_score_adj", "1000")
    resource.setrlimit(resource.RLIMIT_CPU, (bounds.cpu_seconds, bounds.cpu_seconds + 1))
    _both(resource.RLIMIT_FSIZE, bounds.spill)
    _both(resource.RLIMIT_NOFILE, _OPEN_FILES)
    _both(resource.RLIMIT_CORE, 0)
    # Ended by whoever asked when its time is over; this is for when that one is gone.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, bounds.seconds + 5)


def _both(limit: int, value: int) -> None:
    most = resource.getrlimit(limit)[1]
    value = value if most == resource.RLIM_INFINITY else min(value, most)
    resource.setrlimit(limit, (value, value))


def _give_up_privileges(libc: ctypes.CDLL) -> None:
    for option, value in ((_PR_SET_NO_NEW_PRIVS, 1), (_PR_SET_DUMPABLE, 0), (_PR_SET_PDEATHSIG, signal.SIGKILL)):
        if libc.prctl(option, int(value), 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "rights cannot be given up")
    header, none = struct.pack("=Ii", _CAPABILITY_VERSION, 0), struct.pack("=6I", *[0] * 6)
    if libc.capset(header, none) != 0:
        raise OSError(ctypes.get_errno(), "capabilities cannot be given up")


def _read(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
