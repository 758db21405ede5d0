"""Waits for somebody outside in a thread of one's own: whoever shares threads would wait with those who wait."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


async def in_own_thread(function: Callable[..., T], /, *args: Any, **named: Any) -> T:
    """Return what a function returns that may take as long as a disk or a bucket likes.

    As `asyncio.to_thread`, but for the few threads that all of a process share there: a bucket that does not answer
    would have them all. Whoever is cancelled leaves the thread behind until the function ends.
    """
    context, future = contextvars.copy_context(), Future[T]()

    def run() -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            result = context.run(function, *args, **named)
        except BaseException as problem:  # noqa: BLE001  told to whoever awaits it
            future.set_exception(problem)
        else:
            future.set_result(result)

    threading.Thread(target=run, name=f"weft-{getattr(function, '__name__', 'call')}").start()
    return await asyncio.wrap_future(future)
