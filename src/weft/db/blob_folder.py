"""Blobs as files in a folder."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from datetime import timedelta
from io import BytesIO
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote, unquote

from weft.core.errors import BlobUnavailable
from weft.db.blobs import (
    USERS,
    damaged,
    digest_of,
    digest_of_file,
    missing,
    place_aside,
    place_of,
    tell_kept,
    unavailable,
)

# So begins the name of a file that is being written, and of one that is being removed.
_NEW, _OLD = ".new-", ".old-"
_PIECE = 1 << 18


class FolderBlobs:
    """Blobs as files in a folder, two levels deep, each written once and renamed into place."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def put(self, data: bytes) -> str:
        """Keep ``data`` durably and return its digest."""
        return await asyncio.to_thread(self.put_now, data)

    async def get(self, digest: str) -> bytes:
        """Return the bytes of ``digest``; raises `BlobUnavailable` when they are missing or damaged."""
        return await asyncio.to_thread(self._get, digest)

    async def open(self, digest: str) -> BinaryIO:
        """Return a file with the bytes of ``digest``, looked through already: it is written once, and never changed."""
        return await asyncio.to_thread(self._open, digest)

    async def put_file(self, file: BinaryIO, digest: str) -> None:
        """Keep what a file has durably; ``digest`` is that of its bytes."""
        await asyncio.to_thread(self._put, digest, file)

    def _path(self, digest: str) -> Path:
        return self._folder / place_of(digest)

    def put_now(self, data: bytes) -> str:
        """Like `put`, where nothing can be awaited."""
        digest = digest_of(data)
        self._put(digest, BytesIO(data))
        return digest

    def _put(self, digest: str, file: BinaryIO) -> None:
        try:
            self._write(digest, file)
        except OSError as problem:
            raise self._out_of_reach(digest, "written to", problem) from None

    def _write(self, digest: str, file: BinaryIO) -> None:
        path = self._path(digest)
        found: BinaryIO | None = None
        with contextlib.suppress(OSError):
            # Touched first, so that it is not removed as an old one; looked into, not only looked at: putting a value
            # again is how a damaged one is mended. Where either is not possible, it is written anew.
            os.utime(path)
            found = path.open("rb")
        if found is not None:
            with found:
                if (held := digest_of_file(found)) == digest:
                    return
                # Before it is replaced: whoever wants to know what has happened needs it.
                aside = self._folder / place_aside(digest, held)
                _write(aside, found)
            tell_kept(digest, aside)
        _write(path, file)

    def _get(self, digest: str) -> bytes:
        with self._reading(digest):
            data = self._path(digest).read_bytes()
        if digest_of(data) != digest:
            raise damaged(digest)
        return data

    def _open(self, digest: str) -> BinaryIO:
        with self._reading(digest), contextlib.ExitStack() as stack:
            file = stack.enter_context(self._path(digest).open("rb"))
            if digest_of_file(file) != digest:
                raise damaged(digest)
            file.seek(0)
            stack.pop_all()
            return file

    @contextlib.contextmanager
    def _reading(self, digest: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise missing(digest, self._folder) from None
        except OSError as problem:
            raise self._out_of_reach(digest, "read from", problem) from None

    def _out_of_reach(self, digest: str, verb: str, problem: OSError) -> BlobUnavailable:
        why = problem.strerror or type(problem).__name__
        return unavailable(digest, f"cannot be {verb} the blob storage: {why}", self._folder)

    def remove(self, digest: str, grace: timedelta) -> bool:
        """Remove a blob, unless somebody has put it within ``grace``; return whether it is gone."""
        path = self._path(digest)
        aside = path.with_name(f"{_OLD}{digest}")
        try:
            if _is_young(path, grace):
                return False
            os.replace(path, aside)
        except FileNotFoundError:
            return True
        try:
            if _is_young(aside, grace):
                # It was put again between the look and the move.
                os.replace(aside, path)
                return False
            aside.unlink()
        except FileNotFoundError:
            return False  # swept back into its place
        return True

    def sweep(self, grace: timedelta) -> int:
        """Clear away what processes that were killed have left; return how many files were."""
        swept = 0
        # Amid a removal: that may have been of what was just put again, and is done anew where it was not.
        for path in self._folder.glob(f"*/{_OLD}*"):
            place = path.with_name(path.name.removeprefix(_OLD))
            with contextlib.suppress(FileNotFoundError):
                path.unlink() if place.exists() else os.replace(path, place)
                swept += 1
        for path in self._folder.glob(f"*/{_NEW}*"):
            # Whoever writes it may put it into its place at this moment.
            with contextlib.suppress(FileNotFoundError):
                if not _is_young(path, grace):
                    path.unlink()
                    swept += 1
        return swept

    def mark(self, user: str) -> None:
        """Note that a database uses this storage, by a file of its name."""
        path = self._folder / USERS / quote(user, safe="")
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            path.touch()

    def users(self) -> set[str]:
        """Return the databases that use this storage."""
        folder = self._folder / USERS
        return {unquote(path.name) for path in folder.iterdir()} if folder.is_dir() else set()


def _is_young(path: Path, grace: timedelta) -> bool:
    return time.time() - path.stat().st_mtime < grace.total_seconds()


def _write(path: Path, data: BinaryIO) -> None:
    """Write a file durably: whole, or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=_NEW)
    try:
        with os.fdopen(handle, "wb") as file:
            data.seek(0)
            shutil.copyfileobj(data, file, _PIECE)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
