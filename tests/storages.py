"""The storages of large values as tests meddle with them, a folder and a bucket alike."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.parse import quote

from weft.db.blob_folder import FolderBlobs
from weft.db.blobs import BlobStore

if TYPE_CHECKING:
    from buckets import S3Bucket


class Storage(Protocol):
    url: str

    def open(self) -> BlobStore:
        """Open it, beside whoever else uses it."""
        ...

    def digests(self) -> list[str]:
        """Return the digests of all that is kept, one for each copy."""
        ...

    def damaged(self, digest: str) -> set[bytes]:
        """Return what was in the place of a blob and is kept aside."""
        ...

    def write(self, digest: str, data: bytes) -> None:
        """Write other bytes under the name of a blob."""
        ...

    def delete(self, digest: str) -> None:
        """Take a blob away."""
        ...

    def age(self, days: float) -> None:
        """Let the blobs be older by so many days."""
        ...

    def forget_user(self, user: str) -> None:
        """Take away the name that a database has left."""
        ...


class FolderStorage:
    def __init__(self, folder: Path) -> None:
        self.url = str(folder)
        self._folder = folder

    def open(self) -> FolderBlobs:
        return FolderBlobs(self._folder)

    def _files(self) -> list[Path]:
        return [path for path in self._folder.glob("??/*") if path.is_file()]

    def digests(self) -> list[str]:
        return [path.name for path in self._files()]

    def damaged(self, digest: str) -> set[bytes]:
        return {path.read_bytes() for path in self._folder.glob(f"damaged/{digest}-*")}

    def write(self, digest: str, data: bytes) -> None:
        (self._folder / digest[:2] / digest).write_bytes(data)

    def delete(self, digest: str) -> None:
        (self._folder / digest[:2] / digest).unlink()

    def age(self, days: float) -> None:
        for path in self._files():
            seconds = path.stat().st_mtime - days * 86400
            os.utime(path, (seconds, seconds))

    def forget_user(self, user: str) -> None:
        (self._folder / "used-by" / quote(user, safe="")).unlink()


class BucketStorage:
    def __init__(self, bucket: S3Bucket) -> None:
        self.url = bucket.url
        self._bucket = bucket
        self._now = datetime.now(UTC)

    def open(self) -> BlobStore:
        from weft.db.blob_bucket import BucketBlobs

        # A day that ends during a test would make a second copy.
        return BucketBlobs(self._bucket.address, clock=lambda: self._now)

    def digests(self) -> list[str]:
        return [name.split("/")[1] for name in self._bucket.objects() if not name.startswith("damaged/")]

    def damaged(self, digest: str) -> set[bytes]:
        objects = self._bucket.objects().items()
        return {data for name, data in objects if name.startswith(f"damaged/{digest}-")}

    def _names(self, digest: str) -> list[str]:
        return [name for name in self._bucket.objects() if name.startswith(f"{digest[:2]}/{digest}/")]

    def write(self, digest: str, data: bytes) -> None:
        for name in self._names(digest):
            self._bucket.write(name, data)

    def delete(self, digest: str) -> None:
        for name in self._names(digest):
            self._bucket.delete(name)

    def age(self, days: float) -> None:
        self._bucket.age(days)

    def forget_user(self, user: str) -> None:
        self._bucket.delete(f"used-by/{quote(user, safe='')}")
