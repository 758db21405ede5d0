"""The socket of a server, taken before anything else of it is loaded."""

from __future__ import annotations

import errno
import socket

from weft.core.errors import InvalidInput
from weft.core.server_errors import AddressTaken

PORT = 8400
BACKLOG = 2048


def take_address(host: str, port: int) -> socket.socket:
    """Return a socket that listens; raises `AddressTaken` when somebody else does.

    Whoever connects before the server answers waits until it does.
    """
    if not 0 <= port <= 65535:
        raise InvalidInput("port", f"{port} is not between 0 and 65535")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With its protocol: by that asyncio knows that what it accepts must not hold back the ends of answers.
    found = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((host, port))
    except OSError as problem:
        found.close()
        in_use = problem.errno == errno.EADDRINUSE
        raise AddressTaken(f"{host}:{port}", problem.strerror or str(problem), in_use=in_use) from problem
    found.listen(BACKLOG)
    found.setblocking(False)
    return found
