"""How many connections a server takes: as many as its process may have files open, less some for itself."""

from __future__ import annotations

import contextlib
import resource

# What it has open beside connections of clients, at the least: those of the database, logs, large bodies.
_OWN = 64
# Of many it may need more: each stream of a log that was written elsewhere has a file.
_SHARE = 8


def raise_limit() -> None:
    """Let this process have as many files open as it may: what it is started with is often 1024."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Some systems say that there is no limit, and refuse what is beyond one that they do not tell.
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def most_connections() -> int:
    """Return how many connections leave room for what answers them."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return 1 << 30
    return max(1, soft - max(_OWN, soft // _SHARE))
