"""How processes of queries are begun and ended: orders to the one process that has everything loaded."""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import socket
import sys
import tempfile
from pathlib import Path

from weft.core.query_errors import QueryStartFailed
from weft.data import query_frames

_PROGRAM = """\
import sys
sys.path.insert(0, sys.argv[3])
import weft
del sys.path[0]
from weft.data.query_nursery import main
main(int(sys.argv[1]), sys.argv[2])
"""
_ROOT = str(Path(__file__).parents[2])
_WAIT_S = 60.0


class Begun:
    """A process of one query: what it says and is told, and how it ended once it has."""

    def __init__(
        self, starter: Starter, number: int, ended: asyncio.Future[int | None], reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:  # fmt: skip
        self.reader = reader
        self.writer = writer
        self.ended = ended
        self.folder = f"{starter.folder}/{number}"
        self._starter = starter
        self._number = number

    def kill(self) -> None:
        """End it at once, if it has not ended."""
        if not self.ended.done():
            self._starter.order(query_frames.KILL, self._number)

    async def put_away(self) -> None:
        """End it, and remove what it leaves behind."""
        self.writer.close()
        self.kill()
        self._starter.prepare()
        await asyncio.wait([self.ended])
        await asyncio.to_thread(shutil.rmtree, self.folder, ignore_errors=True)


class Starter:
    """The process that has everything loaded, seen from whoever started it."""

    def __init__(self, process: asyncio.subprocess.Process, control: socket.socket, folder: str) -> None:
        self.folder = folder
        self.ends: dict[int, asyncio.Future[int | None]] = {}
        self.is_alive = True
        self._process = process
        self._control = control
        self._numbers = itertools.count(1)
        self._heard = b""
        self._spare: asyncio.Task[Begun] | None = None
        self._loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[str | None] = self._loop.create_future()
        self._loop.add_reader(control.fileno(), self._hear)

    @classmethod
    async def start(cls, within: str | None) -> Starter:
        """Return it when it is ready; temporary files of its queries are in a folder of their own, ``within`` this."""
        folder = tempfile.mkdtemp(prefix="weft-query-", dir=within)
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                ours.setblocking(False)
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-I", "-W", "ignore", "-c", _PROGRAM, str(theirs.fileno()), folder, _ROOT),
                    stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL,
                    stderr=asyncio.subprocess.DEVNULL, pass_fds=(theirs.fileno(),), cwd=folder,
                    env=_environment(folder), start_new_session=True,
                )  # fmt: skip
        except BaseException:
            ours.close()
            shutil.rmtree(folder, ignore_errors=True)
            raise
        starter = cls(process, ours, folder)
        try:
            async with asyncio.timeout(_WAIT_S):
                problem = await starter._ready
        except TimeoutError:
            problem = f"their process is not ready after {_WAIT_S:g} s"
        except asyncio.CancelledError:
            await starter.stop()
            raise
        if problem is not None:
            await starter.stop()
            raise QueryStartFailed(problem)
        return starter

    async def stop(self) -> None:
        """End it and all processes that it began."""
        if self._spare is not None:
            (await self._spare).writer.close()
        self._lose()
        try:
            async with asyncio.timeout(10):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
        await asyncio.to_thread(shutil.rmtree, self.folder, ignore_errors=True)

    async def begin(self) -> Begun:
        """Return a process that waits for its request: one that was prepared, if there is one."""
        begun = await self._taken()
        if begun.ended.done():
            begun.writer.close()
            begun = await self._taken()
        return begun

    async def _taken(self) -> Begun:
        spare, self._spare = self._spare or asyncio.create_task(self._new()), None
        try:
            return await asyncio.shield(spare)
        except asyncio.CancelledError:
            # Whoever asked is gone: it waits for the next.
            if self._spare is None and self.is_alive:
                self._spare = spare
            else:
                spare.add_done_callback(lambda made: made.result().writer.close())
            raise

    def prepare(self) -> None:
        """Begin a process for the next query, so that it waits ready: not while one computes, which it would delay."""
        if self._spare is None and self.is_alive:
            self._spare = asyncio.create_task(self._new())

    async def _new(self) -> Begun:
        number = next(self._numbers)
        ours, theirs = socket.socketpair()
        with theirs:
            ours.setblocking(False)
            ended = self.ends[number] = self._loop.create_future()
            self.order(query_frames.BEGIN, number, theirs.fileno())
        reader, writer = await asyncio.open_unix_connection(sock=ours, limit=query_frames.LARGEST)
        return Begun(self, number, ended, reader, writer)

    def order(self, verb: bytes, number: int, *places: int) -> None:
        """Give an order; nothing comes of it if the process is gone."""
        if self.is_alive:
            try:
                socket.send_fds(self._control, [query_frames.ORDER.pack(verb, number)], list(places))
            except OSError:
                self._lose()
        if not self.is_alive and (waiting := self.ends.pop(number, None)) is not None and not waiting.done():
            waiting.set_result(None)

    def _hear(self) -> None:
        try:
            heard = self._control.recv(65_536)
        except BlockingIOError:
            return
        except OSError:
            heard = b""
        self._heard += heard
        size = query_frames.ENDED.size
        while len(self._heard) >= size:
            number, status = query_frames.ENDED.unpack(self._heard[:size])
            if number == 0 and status != 0:
                break
            self._heard = self._heard[size:]
            waiting = self._ready if number == 0 else self.ends.pop(number, None)
            if waiting is not None and not waiting.done():
                waiting.set_result(None if number == 0 else status)
        if not heard:
            self._lose(self._heard[size:].decode(errors="replace"))

    def _lose(self, problem: str = "") -> None:
        if not self.is_alive:
            return
        self.is_alive = False
        self._loop.remove_reader(self._control.fileno())
        self._control.close()
        if not self._ready.done():
            self._ready.set_result(problem or "their process ended before it was ready")
        for waiting in self.ends.values():
            if not waiting.done():
                waiting.set_result(None)
        self.ends.clear()


def _environment(folder: str) -> dict[str, str]:
    """Return all that the process knows of ours: nothing that is set here is there."""
    return {
        "ARROW_DEFAULT_MEMORY_POOL": "system",
        "HOME": folder,
        "LANG": "C.UTF-8",
        "MALLOC_ARENA_MAX": "2",
        "OMP_NUM_THREADS": "1",
        "PATH": os.defpath,
        "TZ": "UTC",
    }
