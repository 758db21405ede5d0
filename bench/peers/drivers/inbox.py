"""The datagram socket on which a task reports to the driver that it started."""

import os
import socket
import struct
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

VARIABLE = "PEER_INBOX"
_MESSAGE = struct.Struct("!qq")
_outbox = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)


def tell(sent_ns: int) -> None:
    """Report from inside a task that it starts now. The time travels in the message, so delivery is not measured."""
    _outbox.sendto(_MESSAGE.pack(sent_ns, time.time_ns()), os.environ[VARIABLE])


class Inbox:
    """Where the reports arrive. Workers started while it is open inherit its path."""

    def __enter__(self) -> Self:
        self._directory = tempfile.TemporaryDirectory(prefix="peer-")
        path = str(Path(self._directory.name, "inbox"))
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(path)
        os.environ[VARIABLE] = path
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()
        self._directory.cleanup()

    def receive(self, timeout: float) -> tuple[int, int]:
        """Return ``(sent_ns, started_ns)`` of the next report. Raises `TimeoutError`."""
        self._socket.settimeout(timeout)
        sent_ns, started_ns = _MESSAGE.unpack(self._socket.recv(_MESSAGE.size))
        return sent_ns, started_ns
