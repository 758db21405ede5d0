"""A program under test that is a copy of a warm process; to tests it is what asyncio would have started."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

import warm

# So long may what it printed take to be read when it has ended.
_LAST_WORDS = 1.0


class _Reading(asyncio.StreamReaderProtocol):
    def __init__(self, reader: asyncio.StreamReader) -> None:
        super().__init__(reader)
        self.is_over = asyncio.Event()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.is_over.set()


class Copy:
    """A module that runs as a program, with the streams and the end of a process of its own."""

    stdin: IO[bytes]
    stdout: asyncio.StreamReader
    _reading: _Reading
    _transport: asyncio.ReadTransport

    def __init__(self, process: warm.WarmProcess) -> None:
        self._process = process
        self.pid = process.pid
        self._end = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().add_reader(process.sentinel, self._note_end)

    @classmethod
    async def start(
        cls, module: str, arguments: Sequence[str], environment: Mapping[str, str], folder: Path, errors: int
    ) -> Copy:
        """Start it, with a pipe at its standard input and one at its standard output."""
        await asyncio.to_thread(warm.wait_until_loaded)
        (its_in, our_out), (our_in, its_out) = os.pipe(), os.pipe()
        try:
            started = cls(warm.WarmModule(module, arguments, environment, folder, [its_in, its_out, errors]))
        finally:
            os.close(its_in)
            os.close(its_out)
        started.stdin = open(our_out, "wb", buffering=0)  # noqa: SIM115  (closed when it ends)
        started.stdout = asyncio.StreamReader()
        started._reading = _Reading(started.stdout)
        pipe = open(our_in, "rb", buffering=0)  # noqa: SIM115  (the transport closes it)
        started._transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: started._reading, pipe)
        return started

    @property
    def returncode(self) -> int | None:
        """How it ended; None while it goes on."""
        return self._process.poll()

    def kill(self) -> None:
        """End it by SIGKILL."""
        self._process.kill()

    def terminate(self) -> None:
        """Ask it to end."""
        self._process.send_signal(signal.SIGTERM)

    async def wait(self) -> int:
        """Return how it ended when it has."""
        code: int = await asyncio.shield(self._end)
        try:
            # Not `wait_for`, which forgets that it was cancelled when the end comes at the same moment (Python 3.11).
            async with asyncio.timeout(_LAST_WORDS):
                await self._reading.is_over.wait()
        except TimeoutError:
            self._transport.close()
        return code

    def _note_end(self) -> None:
        asyncio.get_running_loop().remove_reader(self._process.sentinel)
        self.stdin.close()
        self._end.set_result(self._process.wait(_LAST_WORDS))
