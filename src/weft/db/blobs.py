"""The storage of large values: content-addressed, deduplicated, verified when read."""

from __future__ import annotations

import asyncio
import hashlib
import os
import tempfile
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

from weft.core.errors import BlobUnavailable, InvalidSetting
from weft.core.settings import Settings


class BlobStore(Protocol):
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
        digest = hashlib.sha256(data).hexdigest()
        path = self._path(digest)
        # Looked into, not only looked at: putting a value again is how a damaged one is mended.
        if path.exists() and hashlib.sha256(path.read_bytes()).hexdigest() == digest:
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
        if hashlib.sha256(data).hexdigest() != digest:
            raise BlobUnavailable(digest, "is damaged: its bytes have another hash")
        return data


def open_blobs(settings: Settings) -> BlobStore:
    """Return the blob storage of ``settings``: a folder, by default under WEFT_HOME."""
    if settings.blob_url is None:
        from weft.db.embedded_layout import home_dir

        return FolderBlobs(home_dir(settings) / "blobs")
    parts = urlsplit(settings.blob_url)
    if parts.scheme == "file":
        return FolderBlobs(Path(unquote(parts.path)))
    if parts.scheme == "":
        return FolderBlobs(Path(settings.blob_url).expanduser().absolute())
    raise InvalidSetting("WEFT_BLOB_URL", f"{parts.scheme}:// is not supported; give a folder or a file:// address")
