"""A connection whose other end the kernel looks after: that it is gone without a word is noticed soon."""

from __future__ import annotations

import socket
from contextlib import suppress

from weft.db.known_types import KnowingConnection

# What a system does not know, it does not do: then a statement that has waited for too long tells.
_USER_TIMEOUT = getattr(socket, "TCP_USER_TIMEOUT", None)
_IDLE, _INTERVAL, _COUNT = (getattr(socket, f"TCP_KEEP{name}", None) for name in ("IDLE", "INTVL", "CNT"))
_PROBES = 3


class WatchedConnection(KnowingConnection):
    """A connection that may be told how long the other end may be silent."""

    def watch(self, patience: float) -> None:
        """Let it end when nothing of what is sent is acknowledged for so many seconds, used or idle."""
        # Not part of what asyncpg promises: one that has it no more leaves it to the statements.
        transport = getattr(self, "_transport", None)
        sock = None if transport is None else transport.get_extra_info("socket")
        if sock is None or sock.family not in (socket.AF_INET, socket.AF_INET6):
            return
        between = max(1, int(patience / (_PROBES + 2)))
        options = {_USER_TIMEOUT: int(1000 * patience), _IDLE: 2 * between, _INTERVAL: between, _COUNT: _PROBES}
        with suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, value in options.items():
                if option is not None:
                    sock.setsockopt(socket.IPPROTO_TCP, option, value)
