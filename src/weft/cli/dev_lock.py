"""One ``weft dev`` for each home: the second is told where the first is."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from weft.core.server_errors import DevRuns

if TYPE_CHECKING:
    from weft.core.settings import Settings

FILE = "dev.lock"


class DevLock:
    """Held by the one ``weft dev`` of a home; the system lets go of it when the process ends, however that happens."""

    def __init__(self, home: Path) -> None:
        self._path = home / FILE
        self._descriptor = -1

    def __enter__(self) -> Self:
        """Take it; raises `DevRuns` when another process holds it."""
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            told = self._read()
            os.close(self._descriptor)
            raise DevRuns(str(self._path.parent), told.get("pid"), told.get("url")) from None
        self._write({"pid": os.getpid()})
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let go of it. The file stays: were it removed, two could hold locks on two files of one name."""
        os.close(self._descriptor)

    def tell(self, url: str) -> None:
        """Say at which address this one answers."""
        self._write({"pid": os.getpid(), "url": url})

    def _read(self) -> dict[str, Any]:
        try:
            found = json.loads(os.pread(self._descriptor, 10_000, 0))
        except ValueError:  # it has only just taken the lock
            return {}
        return found if isinstance(found, dict) else {}

    def _write(self, facts: dict[str, Any]) -> None:
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, json.dumps(facts).encode(), 0)


def running_at(settings: Settings) -> str | None:
    """Return the address of the ``weft dev`` of the home in force; None when none runs.

    By its process, and not by the lock: to try that could keep one that is about to start from having it.
    """
    from weft.db.embedded_layout import layout_of

    try:
        found = json.loads((layout_of(settings).home / FILE).read_bytes())
        os.kill(found["pid"], 0)
        return str(found["url"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
