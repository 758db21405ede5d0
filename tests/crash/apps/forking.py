"""A handler that forks children of its own, which end in many ways."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import stat
from multiprocessing.connection import Connection
from typing import Any

import weft


def _end(ending: str, told: Connection) -> None:
    """Tell how many sockets came along, then end."""
    sockets = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            sockets += stat.S_ISSOCK(os.fstat(int(name)).st_mode)
        except OSError:
            continue  # the folder's own
    told.send((os.getpid(), sockets))
    told.close()
    if ending == "raises":
        raise ValueError("in a child")
    if ending == "exits":
        raise SystemExit(3)
    if ending == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if ending == "collects":
        gc.collect()
    if ending == "prints":
        print("from a child", flush=True)


@weft.task(name="fork")
def fork(ending: str, children: int) -> dict[str, Any]:
    """Fork children as `multiprocessing` does on Linux, and wait for all of them."""
    context = multiprocessing.get_context("fork")
    heard = []
    started = []
    for _ in range(children):
        mine, theirs = context.Pipe(duplex=False)
        child = context.Process(target=_end, args=(ending, theirs))
        child.start()
        theirs.close()
        started.append((child, mine))
    for child, mine in started:
        heard.append(mine.recv())
        child.join(30)
    return {
        "worker": os.getpid(),
        "children": [pid for pid, _ in heard],
        "inherited": min(sockets for _, sockets in heard),
        "codes": [child.exitcode for child, _ in started],
    }
