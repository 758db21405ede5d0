"""Keeps one process of ``weft dev`` alive: its lines under its name, another one when it dies or is to be replaced."""

from __future__ import annotations

import asyncio
import signal
import time
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import Callable, Mapping, Sequence

from weft.cli.leash import Leashed
from weft.cli.supervisor import FIRST_DELAY, LONGEST_DELAY, SOUND_AFTER, how_ended

_LONGEST_LINE = 2**20
_LAST_WORDS = 1.0


class Part:
    """One process of a command, started anew whenever it ends by itself.

    ``tell`` gets each line that it prints, and what becomes of it. With ``awaits_change`` one that cannot start is
    tried again at the next `replace`; without, `keep` returns its exit code.
    """

    def __init__(
        self, argv: Sequence[str], environment: Mapping[str, str], tell: Callable[[str], None], *,
        awaits_change: bool = False,
    ) -> None:  # fmt: skip
        self._argv = list(argv)
        self._environment = dict(environment)
        self._tell = tell
        self._awaits_change = awaits_change
        self._current: Leashed | None = None
        self._living: dict[Leashed, asyncio.Task[None]] = {}
        self._one_at_a_time = asyncio.Lock()
        self._changed = asyncio.Event()
        self._stopping = asyncio.Event()
        self.settled = asyncio.Event()

    async def keep(self) -> int:
        """Keep it alive until it is stopped, and return 0; its exit code when it cannot start at all."""
        delay, was_ready = FIRST_DELAY, False
        while not self._stopping.is_set():
            started = time.monotonic()
            self._changed.clear()
            is_ready, code = await self._start_another()
            if is_ready:
                was_ready = True
                code = await self._until_ended()
            if self._stopping.is_set():
                break
            if not is_ready and 0 < code < 128 and not (was_ready or self._awaits_change):
                return code
            if not is_ready and self._awaits_change:
                # It has said itself what is wrong, and the next one would say the same.
                self._tell("waits for a change of your files")
                await self._first_of(self._changed)
                continue
            delay = FIRST_DELAY if time.monotonic() - started > SOUND_AFTER else delay
            self._tell(f"ended with {how_ended(code)}; starting it anew in {delay:g} s")
            if not await self._first_of(timeout=delay):
                delay = min(LONGEST_DELAY, 2 * delay)
        await asyncio.gather(*self._living.values())
        return 0

    async def replace(self) -> None:
        """Put another process in its place, when that is ready; if it cannot start, the old one goes on."""
        self._changed.set()
        if self._current is not None and not (await self._start_another())[0] and not self._stopping.is_set():
            self._tell("cannot start with what you changed: the one before goes on")

    async def stop(self) -> None:
        """Ask it to end, and return when it has."""
        self.end(signal.SIGTERM)
        await asyncio.gather(*self._living.values())

    def end(self, signum: int) -> None:
        """Send a signal to all its processes, and start no other."""
        self._stopping.set()
        for child in self._living:
            child.send_signal(signum)

    async def _start_another(self) -> tuple[bool, int]:
        """Start a process and let it take over when it is ready; else return its exit code."""
        async with self._one_at_a_time:
            child = await Leashed.start(
                self._argv, env=self._environment, stdout=PIPE, stderr=STDOUT, limit=_LONGEST_LINE
            )
            self._living[child] = asyncio.create_task(self._see_out(child))
            if self._stopping.is_set():
                child.send_signal(signal.SIGTERM)
            is_ready = await child.until_ready()
            if is_ready:
                before, self._current = self._current, child
                if before is not None:
                    before.send_signal(signal.SIGTERM)
            code = 0 if is_ready else await child.process.wait()
            self.settled.set()
            return is_ready, code

    async def _until_ended(self) -> int:
        """Return how the process ended that is then the current one."""
        while True:
            child = self._current
            assert child is not None
            code = await child.process.wait()
            if child is self._current:
                self._current = None
                return code

    async def _see_out(self, child: Leashed) -> None:
        """Tell what a process prints, until it has ended."""
        reading = asyncio.create_task(self._tell_lines(child))
        await child.wait()
        # What it has started may hold the other end of the pipe for longer than it lived.
        await asyncio.wait([reading], timeout=_LAST_WORDS)
        reading.cancel()
        del self._living[child]

    async def _tell_lines(self, child: Leashed) -> None:
        stream = child.process.stdout
        assert stream is not None
        while True:
            try:
                line = await stream.readline()
            except ValueError:
                line = b"(a line that is too long)\n"
            if not line:
                return
            self._tell(line.decode("utf-8", "replace").rstrip("\r\n"))

    async def _first_of(self, *events: asyncio.Event, timeout: float | None = None) -> bool:
        """Wait for one of the events, or the wish to stop; False when neither came in time."""
        waits = [asyncio.create_task(event.wait()) for event in (self._stopping, *events)]
        try:
            done, _ = await asyncio.wait(waits, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            return bool(done)
        finally:
            for wait in waits:
                wait.cancel()
