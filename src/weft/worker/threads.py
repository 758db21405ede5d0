"""Lets the threads that a task starts belong to the task, and what it hands to a pool of threads too."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from threading import Thread
from typing import Any

from weft.worker.context import RUNNING, Running


class Threads:
    """Stands in for `Thread.start` and `ThreadPoolExecutor.submit` while a worker runs.

    A thread begins with an empty context, in which nothing says for which task it works. Only that is carried over:
    the other context variables of a handler stay with the handler, as everywhere in Python.
    """

    _real: tuple[Any, Any] | None = None

    @classmethod
    def follow(cls) -> None:
        """Begin to carry over."""
        real_start, real_submit = Thread.start, ThreadPoolExecutor.submit

        def start(self: Thread) -> None:
            running = RUNNING.get()
            if running is not None:
                self.run = partial(_run, running, self.run)  # type: ignore[method-assign]
            real_start(self)

        def submit(self: ThreadPoolExecutor, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
            return real_submit(self, _call, RUNNING.get(), fn, *args, **kwargs)

        cls._real = real_start, real_submit
        Thread.start, ThreadPoolExecutor.submit = start, submit  # type: ignore[method-assign, assignment]

    @classmethod
    def leave(cls) -> None:
        """Put back what was there before."""
        assert cls._real is not None
        Thread.start, ThreadPoolExecutor.submit = cls._real  # type: ignore[method-assign]


def _run(running: Running, run: Callable[[], None]) -> None:
    # For as long as the thread lives: what it dies of is printed after its `run`.
    RUNNING.set(running)
    run()


def _call(running: Running | None, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    # Also when it is none: the thread of the pool may have been started by some other task.
    token = RUNNING.set(running)
    try:
        return function(*args, **kwargs)
    finally:
        RUNNING.reset(token)
