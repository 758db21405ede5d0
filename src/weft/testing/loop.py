"""An event loop on which time can be moved on for handlers: what they sleep, or wait until, takes a moment."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Iterator
from contextvars import Context as Variables
from pathlib import Path
from typing import Any

import weft
from weft.worker.attempt import Attempt
from weft.worker.context import RUNNING, Running

_OURS = str(Path(weft.__file__).parent)
# What ends the wait of `asyncio.sleep`.
_WAKE = getattr(asyncio.futures, "_set_result_unless_cancelled", None)


class MovableLoop(asyncio.SelectorEventLoop):
    """Runs as any loop does, but the timers of handlers can be moved: those that they made, and those that end them.

    All others go by the true time: what talks to the database would give up a call that is under way.
    """

    _scheduled: list[asyncio.TimerHandle]

    def __init__(self) -> None:
        super().__init__()
        self._timers: list[tuple[asyncio.TimerHandle, Running]] = []

    def call_at(  # type: ignore[override]  # its types cannot be said before Python 3.12
        self, when: float, callback: Callable[..., object], *args: Any, context: Variables | None = None
    ) -> asyncio.TimerHandle:
        """Call a function at a time, and remember that if it is a handler's."""
        handle = super().call_at(when, callback, *args, context=context)
        owner = getattr(callback, "__self__", None)
        running = owner if isinstance(owner, Attempt) else RUNNING.get()
        if running is not None and (running is owner or not _is_ours(running)):
            self._timers = [*self._pending(), (handle, running)]
        return handle

    def move(self, seconds: float) -> None:
        """Let so much time have passed for handlers."""
        for handle, _ in self._pending():
            # There is no other way: whoever made a timer holds it, to cancel it.
            handle._when -= seconds  # type: ignore[attr-defined]
        heapq.heapify(self._scheduled)

    def _pending(self) -> Iterator[tuple[asyncio.TimerHandle, Running]]:
        now = self.time()
        return ((handle, owner) for handle, owner in self._timers if not handle.cancelled() and handle.when() > now)

    @property
    def next_timer(self) -> float | None:
        """The time until the next timer of a handler, in seconds."""
        return min((handle.when() - self.time() for handle, _ in self._pending()), default=None)

    def asleep(self) -> set[int]:
        """Return the tasks whose handlers sleep: they wait for nothing but the time."""
        return {
            owner.context.task_id for handle, owner in self._pending() if getattr(handle, "_callback", None) is _WAKE
        }


def _is_ours(running: Running) -> bool:
    """Whether what runs is Weft's own, begun on behalf of a handler: it looks again and again, and never sleeps."""
    task = asyncio.current_task()
    if task is None or task is getattr(running, "task", None):
        return False
    code = getattr(task.get_coro(), "cr_code", None)
    return code is not None and code.co_filename.startswith(_OURS)
