"""Tells the handlers of a worker that it is about to stop."""

from __future__ import annotations

import threading
from concurrent.futures import Future


class Shutdown:
    """Whether the worker was asked to stop; read and awaited from any thread."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._told: set[Future[bool]] = set()

    @property
    def is_requested(self) -> bool:
        """Whether the worker was asked to stop."""
        return self._event.is_set()

    def request(self) -> None:
        """Tell all who look or wait; a second time tells nobody anything new."""
        with self._lock:
            self._event.set()
            told, self._told = self._told, set()
        for future in told:
            if future.set_running_or_notify_cancel():
                future.set_result(True)

    def wait(self, timeout: float | None) -> bool:
        """Block until it is requested, at most ``timeout`` seconds; return whether it was."""
        return self._event.wait(timeout)

    def future(self) -> Future[bool]:
        """Return what is done when it is requested; whoever gives up waiting cancels it."""
        future: Future[bool] = Future()
        with self._lock:
            if not self._event.is_set():
                self._told.add(future)
                future.add_done_callback(self._forget)
                return future
        future.set_result(True)
        return future

    def _forget(self, future: Future[bool]) -> None:
        with self._lock:
            self._told.discard(future)
