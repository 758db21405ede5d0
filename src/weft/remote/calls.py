"""Calls of the client as requests: which arguments go there, and what comes back."""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

from weft.contract.operations import Operation
from weft.contract.table import OPERATIONS
from weft.core.checks import check_span
from weft.core.errors import WaitTimeout
from weft.remote.transport import Transport

T = TypeVar("T")
# The longest that a server is asked to wait in one request.
_ONE_WAIT = 30.0
PAGE = 1000


def by_http(operation: Operation) -> Callable[..., Any]:
    """Return the method that makes a call over HTTP."""
    signature = inspect.signature(operation.function)

    @functools.wraps(operation.function)
    async def call(self: Any, *arguments: Any, **named: Any) -> Any:
        given = signature.bind(self, *arguments, **named).arguments
        if operation.pages_by is not None and given.get("limit") is None:
            return await _all_pages(transport_of(self), operation, operation.pages_by, given)
        return await transport_of(self).call(operation, given)

    return call


async def _all_pages(transport: Transport, operation: Operation, by: str, given: dict[str, Any]) -> list[Any]:
    """Return all of a list that a server gives in pages."""
    found: list[Any] = []
    while True:
        page = await transport.call(operation, given | {"limit": PAGE})
        found += page
        if len(page) < PAGE:
            return found
        given = given | {by: getattr(page[-1], operation.key or "")}


def transport_of(part: Any) -> Transport:
    """Return the way to the server of a client, or of a part of one."""
    found: Transport = getattr(part, "_session", part).transport
    return found


def remote(kind: str) -> Callable[[type[T]], type[T]]:
    """Let all calls of a part of the client go over HTTP that are in the contract."""

    def dressed(part: type[T]) -> type[T]:
        for operation in OPERATIONS:
            group, _, name = operation.call.rpartition(".")
            if group == kind and name not in vars(part):
                setattr(part, name, by_http(operation))
        return part

    return dressed


async def waited(ask: Callable[[float], Any], key: int, timeout: float | timedelta | None) -> Any:
    """Ask a server for something's end, in as many requests as it takes."""
    seconds = None if timeout is None else check_span(timeout, "timeout", zero=True).total_seconds()
    deadline = None if seconds is None else time.monotonic() + seconds
    while True:
        left = _ONE_WAIT if deadline is None else min(_ONE_WAIT, max(0.0, deadline - time.monotonic()))
        try:
            return await ask(left)
        except WaitTimeout:
            if deadline is not None and time.monotonic() >= deadline:
                raise WaitTimeout(key, seconds or 0.0) from None
