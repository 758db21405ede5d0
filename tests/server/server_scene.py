"""What tests of the server share."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx

import weft

MakeRemote = Callable[..., Awaitable[weft.RemoteClient]]
MakeHttp = Callable[..., Awaitable[httpx.AsyncClient]]
FLOW = """
workflow_id: etl
nodes:
  START: {type: start, next: fetch}
  fetch: {type: task, handler: echo, params: {size: 1}, next: END}
  END: {type: end}
"""


def peak(pid: int) -> int:
    """Return the most memory that a process has had at once."""
    told = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(encoding="ascii"))
    assert told is not None
    return 1024 * int(told[1])
