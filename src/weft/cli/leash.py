"""Ties a process to the one that started it: it says when it is ready, and stops when the other has gone."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Self

READY = b"r"


class Leash:
    """This process's end of the leash, when it was started on one."""

    def __init__(self, descriptor: int | None) -> None:
        self._socket: socket.socket | None = None
        if descriptor is not None:
            os.set_inheritable(descriptor, False)  # what this process starts must not keep it
            self._socket = socket.socket(fileno=descriptor)
            self._socket.setblocking(False)

    @property
    def is_tied(self) -> bool:
        """Whether another process started this one on a leash, and speaks to people itself."""
        return self._socket is not None

    async def tell_ready(self) -> None:
        """Tell the other end that this process is ready; that it has gone shows in `until_gone`."""
        if self._socket is not None:
            with suppress(ConnectionError):
                await asyncio.get_running_loop().sock_sendall(self._socket, READY)

    async def until_gone(self) -> None:
        """Return when the process at the other end has ended; without a leash never."""
        if self._socket is None:
            await asyncio.get_running_loop().create_future()
        else:
            with suppress(ConnectionError):
                await asyncio.get_running_loop().sock_recv(self._socket, 1)


class Leashed:
    """A process that was started on a leash."""

    def __init__(self, process: asyncio.subprocess.Process, end: socket.socket) -> None:
        self.process = process
        self._end = end

    @classmethod
    async def start(cls, argv: Sequence[str], **options: Any) -> Self:
        """Start ``argv`` with ``--leash`` in a session of its own, so that a Ctrl-C does not reach it twice."""
        ours, theirs = socket.socketpair()
        try:
            process = await asyncio.create_subprocess_exec(
                *argv, "--leash", str(theirs.fileno()), pass_fds=[theirs.fileno()], start_new_session=True, **options
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        ours.setblocking(False)
        return cls(process, ours)

    async def until_ready(self) -> bool:
        """Return True when the process is ready, False when it ended before."""
        try:
            return bool(await asyncio.get_running_loop().sock_recv(self._end, 1))
        except ConnectionError:
            return False

    async def wait(self) -> int:
        """Return how the process ended."""
        try:
            return await self.process.wait()
        finally:
            self._end.close()

    def send_signal(self, signum: int) -> None:
        """Send it a signal, if it is still there."""
        if self.process.returncode is None:
            self.process.send_signal(signum)
