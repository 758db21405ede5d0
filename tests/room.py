"""Where servers of tests live: in memory if there is room, because what they do most is to make and remove files."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from functools import cache
from pathlib import Path

_MEMORY = Path("/dev/shm")
# Two processes took less than 1 GiB with the largest tests there are; a run has at most eight.
_ENOUGH = 8 * 1024**3


@cache
def _place() -> str:
    """Return a folder whose path is short, as that of a socket must be."""
    is_roomy = _MEMORY.is_dir() and os.access(_MEMORY, os.W_OK | os.X_OK) and shutil.disk_usage(_MEMORY).free > _ENOUGH
    return str(_MEMORY) if is_roomy and _free_memory() > _ENOUGH else "/tmp"


def _free_memory() -> int:
    """Return how many bytes programs may still take, 0 where that is not told."""
    told = Path("/proc/meminfo")
    found = re.search(r"^MemAvailable: +(\d+) kB", told.read_text(encoding="ascii"), re.M) if told.exists() else None
    return int(found[1]) * 1024 if found is not None else 0


def make_home(kind: str) -> Path:
    """Return a new folder for a server, which runs as another user if this is root, and has to get in."""
    home = Path(tempfile.mkdtemp(prefix=f"weft-{kind}-", dir=_place()))
    home.chmod(0o755)
    return home
