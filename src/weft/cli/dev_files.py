"""Sees which Python files below a folder have changed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

# Folders of tools, not of those who write handlers.
_FOREIGN = frozenset({"__pycache__", "node_modules", "site-packages"})
MOST = 5000


class PythonFiles:
    """The Python files below a folder, as they were when somebody last looked.

    Hidden folders and virtual environments are left out, and so are files beyond the first 5000.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen = self._look()

    def changed(self) -> list[str]:
        """Return the files that were written, made or removed since the last call, by their names in the folder."""
        before, self._seen = self._seen, self._look()
        names = before.keys() | self._seen.keys()
        return sorted(name for name in names if before.get(name) != self._seen.get(name))

    @property
    def is_too_large(self) -> bool:
        """Whether there are files that are not looked at."""
        return len(self._seen) >= MOST

    def _look(self) -> dict[str, tuple[int, int, int]]:
        found = {}
        for entry in _python_files(self._folder):
            try:
                facts = entry.stat()
            except FileNotFoundError:
                continue  # an editor replaces files by others
            found[os.path.relpath(entry.path, self._folder)] = (facts.st_mtime_ns, facts.st_size, facts.st_ino)
            if len(found) == MOST:
                break
        return found


def _python_files(folder: Path) -> Iterator[os.DirEntry[str]]:
    waiting = [str(folder)]
    while waiting:
        try:
            entries = sorted(os.scandir(waiting.pop()), key=lambda entry: entry.name)
        except OSError:
            continue  # gone, or not ours to read
        if any(entry.name == "pyvenv.cfg" for entry in entries):
            continue
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                if not entry.name.startswith(".") and entry.name not in _FOREIGN:
                    waiting.append(entry.path)
            elif entry.name.endswith(".py"):
                yield entry
