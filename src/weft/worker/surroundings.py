"""What tasks of one process have around them: put back after each, so that none inherits from the one before."""

from __future__ import annotations

import os
import resource
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from weft.core.errors import InvalidInput

_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
_LIMITS = [getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")]
_LOADING = threading.Event()


class Surroundings:
    """The timers, signal handlers, working folder, mask, environment and limits of this process as they are now."""

    def __init__(self) -> None:
        self._folder = os.getcwd()
        self._environment = dict(os.environ)
        self._mask = os.umask(0o077)
        os.umask(self._mask)
        self._handlers = {number: signal.getsignal(number) for number in signal.valid_signals()}
        self._limits = {kind: resource.getrlimit(kind) for kind in _LIMITS}

    def restore(self) -> None:
        """Make them again what they were, as far as this process may."""
        for timer in _TIMERS:
            signal.setitimer(timer, 0)
        for number, handler in self._handlers.items():
            if signal.getsignal(number) is not handler:
                with suppress(OSError, ValueError, TypeError):
                    signal.signal(number, handler if handler is not None else signal.SIG_DFL)
        for kind, bounds in self._limits.items():
            if resource.getrlimit(kind) != bounds:
                with suppress(OSError, ValueError):  # who is not root cannot raise what was lowered for good
                    resource.setrlimit(kind, bounds)
        with suppress(OSError):
            os.chdir(self._folder)
        os.umask(self._mask)
        if os.environ != self._environment:
            os.environ.clear()
            os.environ.update(self._environment)

    @property
    def is_whole(self) -> bool:
        """Whether everything is as it was: else the process is of no use to another task."""
        return all(resource.getrlimit(kind) == bounds for kind, bounds in self._limits.items())


@contextmanager
def loading() -> Iterator[None]:
    """Mark the time in which a process for tasks imports the modules that have their handlers."""
    _LOADING.set()
    try:
        yield
    finally:
        _LOADING.clear()


def refuse_while_loading(what: str) -> None:
    """Refuse what a module does when it is imported for its handlers only: it would be done again in each process."""
    if _LOADING.is_set():
        raise InvalidInput(
            what,
            "is started while the module is imported in a process for tasks: put what the program does under "
            '`if __name__ == "__main__":`',
        )
