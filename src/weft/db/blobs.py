"""The storage of large values: content-addressed, deduplicated, verified when read."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from typing import Protocol
from urllib.parse import quote, unquote, urlsplit

from weft.core.errors import BlobUnavailable, InvalidSetting
from weft.core.settings import Settings

_USERS = "used-by"


class Blobs(Protocol):
    """Where values are kept by the SHA-256 of their bytes."""

    async def put(self, data: bytes) -> str:
        """Keep ``data`` durably and return its digest."""
        ...

    def put_now(self, data: bytes) -> str:
        """Like `put`, where nothing can be awaited."""
        ...

    async def get(self, digest: str) -> bytes:
        """Return the bytes of ``digest``; raises `BlobUnavailable` when they are missing or damaged."""
        ...


class BlobStore(Blobs, Protocol):
    """A storage of blobs that its keeper may also remove."""

    def remove(self, digest: str, grace: timedelta) -> bool:
        """Remove a blob, unless somebody has put it within ``grace``; return whether it is gone."""
        ...

    def mark(self, user: str) -> None:
        """Note that a database uses this storage."""
        ...

    def users(self) -> set[str]:
        """Return the databases that use this storage."""
        ...


def digest_of(data: bytes) -> str:
    """Return the name of a blob: the SHA-256 of its bytes."""
    return hashlib.sha256(data).hexdigest()


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

    def _path(self, digest: str) -> Path:
        if len(digest) != 64 or not set(digest) <= set("0123456789abcdef"):
            raise BlobUnavailable(digest[:80], "is not the name of a blob")
        return self._folder / digest[:2] / digest

    def put_now(self, data: bytes) -> str:
        """Like `put`, where nothing can be awaited."""
        digest = digest_of(data)
        path = self._path(digest)
        with contextlib.suppress(OSError):
            # Touched first, so that it is not removed as an old one; looked into, not only looked at: putting a value
            # again is how a damaged one is mended. Where either is not possible, it is written anew.
            os.utime(path)
            if digest_of(path.read_bytes()) == digest:
                return digest
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
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
        return digest

    def _get(self, digest: str) -> bytes:
        try:
            data = self._path(digest).read_bytes()
        except FileNotFoundError:
            raise BlobUnavailable(
                digest, f"is missing in {self._folder}: is WEFT_BLOB_URL the same everywhere?"
            ) from None
        if digest_of(data) != digest:
            raise BlobUnavailable(
                digest, "is damaged, its bytes have another hash: bring it back from a copy of the blob storage"
            )
        return data

    def remove(self, digest: str, grace: timedelta) -> bool:
        """Remove a blob, unless somebody has put it within ``grace``; return whether it is gone."""
        path = self._path(digest)
        aside = path.with_name(f".old-{digest}")
        try:
            if _is_young(path, grace):
                return False
            os.replace(path, aside)
        except FileNotFoundError:
            return True
        if _is_young(aside, grace):
            # It was put again between the look and the move.
            os.replace(aside, path)
            return False
        aside.unlink()
        return True

    def mark(self, user: str) -> None:
        """Note that a database uses this storage, by a file of its name."""
        path = self._folder / _USERS / quote(user, safe="")
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            path.touch()

    def users(self) -> set[str]:
        """Return the databases that use this storage."""
        folder = self._folder / _USERS
        return {unquote(path.name) for path in folder.iterdir()} if folder.is_dir() else set()


def _is_young(path: Path, grace: timedelta) -> bool:
    return time.time() - path.stat().st_mtime < grace.total_seconds()


def open_blobs(settings: Settings) -> BlobStore:
    """Return the blob storage of ``settings``."""
    return FolderBlobs(blob_folder(settings))


def blob_folder(settings: Settings) -> Path:
    """Return the folder of the blobs, by default under WEFT_HOME."""
    if settings.blob_url is None:
        from weft.db.embedded_layout import home_dir

        return home_dir(settings) / "blobs"
    parts = urlsplit(settings.blob_url)
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    if parts.scheme == "":
        return Path(settings.blob_url).expanduser().absolute()
    raise InvalidSetting("WEFT_BLOB_URL", f"{parts.scheme}:// is not supported; give a folder or a file:// address")
