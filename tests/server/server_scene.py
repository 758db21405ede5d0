"""What tests of the server share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

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
