"""Turns the first signal to end into a wish to stop, and the second into an end."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from contextlib import suppress
from datetime import timedelta
from types import FrameType
from typing import NoReturn

# How long the second signal leaves to give tasks back before the process ends come what may.
LAST_MOMENT = 2.0


class StopSignals:
    """The wish to stop, and the wish to end at once.

    Plain signal handlers, not the loop's: they also run while a handler of the user blocks the loop. With ``grace``
    they tell who pressed Ctrl-C what happens now.
    """

    def __init__(self, grace: timedelta | None, last_moment: float = LAST_MOMENT) -> None:
        self._grace = grace
        self._last_moment = last_moment
        self.stop = asyncio.Event()
        self.end = asyncio.Event()
        self.received: list[int] = []
        self._loop = asyncio.get_running_loop()
        for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            # Whoever started this by nohup has had SIGHUP ignored, and means it.
            if signal.getsignal(signum) is not signal.SIG_IGN:
                signal.signal(signum, self._receive)

    @property
    def exit_code(self) -> int:
        """What a process that was ended by these signals exits with: 128 and the signal, or 0 after a quiet stop."""
        return 128 + self.received[-1] if len(self.received) > 1 else 0

    def _receive(self, signum: int, frame: FrameType | None) -> None:
        self.received.append(signum)
        if len(self.received) == 1:
            if self._grace is not None:
                text = f"weft: stopping; what runs may end within {self._grace.total_seconds():g} s, "
                # Not by print, which the signal may just have interrupted.
                os.write(2, f"{text}a second signal ends it at once\n".encode())
            self._loop.call_soon_threadsafe(self.stop.set)
        elif len(self.received) == 2:
            guard = threading.Timer(self._last_moment, os._exit, [self.exit_code])
            guard.daemon = True
            guard.start()
            self._loop.call_soon_threadsafe(self.end.set)
        else:
            os._exit(self.exit_code)

    def end_process(self, code: int | None = None) -> NoReturn:
        """End this process now, without waiting for threads."""
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(self.exit_code if code is None else code)
