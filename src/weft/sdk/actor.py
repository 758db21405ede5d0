"""Who acts when nobody says so."""

from __future__ import annotations

import getpass
import socket


def default_actor() -> str:
    """Return the user of the operating system and the machine, as ``user@host``."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "unknown"
    return f"{user}@{socket.gethostname()}"
