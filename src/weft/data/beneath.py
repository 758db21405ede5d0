"""Files of others, opened where an operator lets Weft read: a link that leads elsewhere is refused when it is followed.

What a path leads to may be changed at any time by whoever writes there. So a file is opened first, and the opened file
is asked where it is: what is read is what was looked at.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NoReturn

from weft.core.data_errors import DataUnavailable

_BUCKET = "s3://"
_FILE = "file://"


def real_folders(allowed: Sequence[str]) -> tuple[str, ...]:
    """Return the folders among what is allowed, links followed."""
    return tuple(os.path.realpath(each.removeprefix(_FILE)) for each in allowed if not each.startswith(_BUCKET))


def is_beneath(real: str, folders: Sequence[str]) -> bool:
    """Whether a path without links lies in one of some folders."""
    return any(real.startswith(folder.rstrip("/") + "/") for folder in folders)


def require_beneath(paths: Sequence[str], folders: Sequence[str]) -> None:
    """Raise `DataUnavailable` if one of these files lies elsewhere, links followed."""
    for path in paths:
        if not is_beneath(os.path.realpath(path), folders):
            _refuse(path)


@contextmanager
def opened(path: str, folders: Sequence[str]) -> Iterator[str]:
    """Lend a path that leads to one opened file alone; raises `DataUnavailable` if that lies elsewhere."""
    # What waits for somebody at its other end, a pipe, would hold up a thread for ever.
    place = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(place).st_mode) or not is_beneath(_path_of(place), folders):
            _refuse(path)
        yield f"/dev/fd/{place}"
    finally:
        os.close(place)


def _path_of(place: int) -> str:
    """Return where an opened file is."""
    if sys.platform == "darwin":
        import fcntl

        return os.fsdecode(fcntl.fcntl(place, fcntl.F_GETPATH, bytes(1024)).rstrip(b"\0"))
    return os.readlink(f"/proc/self/fd/{place}")


def _refuse(path: str) -> NoReturn:
    raise DataUnavailable(
        os.path.dirname(path), f"are not read here: WEFT_DATA_OUTSIDE of this process does not allow what "
        f"{os.path.basename(path)} leads to",
    )  # fmt: skip
