"""Keeps several worker processes alive: starts them, replaces one that died, stops them all."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Sequence
from datetime import timedelta

from weft.cli.leash import Leash, Leashed
from weft.cli.output import complain
from weft.cli.stopping import LAST_MOMENT, StopSignals

FIRST_DELAY, LONGEST_DELAY = 0.5, 30.0
# A process that lived this long was sound: whatever ended it, the next one is started without much delay.
SOUND_AFTER = 60.0


class Supervisor:
    """Runs ``count`` processes of one command until it is told to stop."""

    def __init__(self, argv: Sequence[str], count: int, leash: Leash, grace: timedelta) -> None:
        self._argv = list(argv)
        self._grace = grace
        self._count = count
        self._leash = leash
        self._children: dict[int, Leashed] = {}
        self._ready: set[int] = set()
        self._failure: int | None = None

    async def run(self) -> int:
        """Work until a signal comes; return the code to exit with."""
        self._signals = StopSignals(None if self._leash.is_tied else self._grace, 2 * LAST_MOMENT)
        self._first_is_ready = asyncio.Event()
        keepers = [asyncio.create_task(self._keep(number)) for number in range(1, self._count + 1)]
        attendants = [asyncio.create_task(work) for work in (self._forward(), self._watch_leash())]
        try:
            await asyncio.gather(*keepers)
        finally:
            for task in (*attendants, *keepers):
                task.cancel()
            await asyncio.gather(*attendants, *keepers, return_exceptions=True)
        return self._failure if self._failure is not None else self._signals.exit_code

    async def _keep(self, number: int) -> None:
        """Keep one process alive; those after the first wait until it is ready, lest all complain of the same."""
        delay = FIRST_DELAY
        if number > 1:
            await self._first_is_ready.wait()
        while not self._signals.stop.is_set():
            started = time.monotonic()
            was_ready, code = await self._run_one(number)
            if self._signals.stop.is_set():
                return
            if not was_ready and not self._ready and 0 < code < 128:
                # It has said itself what is wrong, and the next one would say the same.
                self._failure = code
                self._signals.stop.set()
                return
            delay = FIRST_DELAY if time.monotonic() - started > SOUND_AFTER else delay
            complain(f"worker process {number} ended with {how_ended(code)}; starting it anew in {delay:g} s")
            try:
                await asyncio.wait_for(self._signals.stop.wait(), delay)
            except TimeoutError:
                delay = min(LONGEST_DELAY, 2 * delay)

    async def _run_one(self, number: int) -> tuple[bool, int]:
        child = await Leashed.start(self._argv)
        self._children[number] = child
        if self._signals.stop.is_set():
            child.send_signal(signal.SIGTERM)
        try:
            was_ready = await child.until_ready()
            if was_ready:
                self._ready.add(number)
                self._first_is_ready.set()
                if len(self._ready) == self._count:
                    await self._leash.tell_ready()
            return was_ready, await child.wait()
        finally:
            del self._children[number]

    async def _forward(self) -> None:
        """Hand the wish to stop on to all processes, then the wish to end, then end those that do not hear."""
        await self._signals.stop.wait()
        self._first_is_ready.set()
        self._send(signal.SIGTERM)
        await self._signals.end.wait()
        self._send(signal.SIGINT)  # another one than before: two alike that come at once count as one
        await asyncio.sleep(1.5 * LAST_MOMENT)
        self._send(signal.SIGKILL)

    def _send(self, signum: int) -> None:
        for child in list(self._children.values()):
            child.send_signal(signum)

    async def _watch_leash(self) -> None:
        await self._leash.until_gone()
        self._signals.stop.set()


def how_ended(code: int) -> str:
    """Return how a process ended, in words."""
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
