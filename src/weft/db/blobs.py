"""The storage of large values: content-addressed, deduplicated, verified when read."""

from __future__ import annotations

import hashlib
import logging
from datetime import timedelta
from pathlib import Path
from typing import BinaryIO, Protocol

from weft.core.errors import BlobUnavailable, InvalidSetting
from weft.core.settings import Settings
from weft.db.blob_address import blob_address

logger = logging.getLogger("weft.blobs")
# Under this name each database that uses a storage leaves its own.
USERS = "used-by"
# Here a storage keeps what was in the place of a blob and is not it, when that is put again.
DAMAGED = "damaged"


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

    async def open(self, digest: str) -> BinaryIO:
        """Return a file with the bytes of ``digest``, looked through already; raises what `get` does."""
        ...

    async def put_file(self, file: BinaryIO, digest: str) -> None:
        """Keep what a file has durably; ``digest`` is that of its bytes."""
        ...

    def remove(self, digest: str, grace: timedelta) -> bool:
        """Remove a blob, unless somebody has put it within ``grace``; return whether it is gone."""
        ...

    def sweep(self, grace: timedelta) -> int:
        """Clear away what processes that were killed longer ago than ``grace`` have left; return how much that was."""
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


def digest_of_file(file: BinaryIO) -> str:
    """Return the name that what a file has from its beginning on has as a blob."""
    file.seek(0)
    return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]


def place_of(digest: str) -> str:
    """Return where a blob lies in its storage; raises `BlobUnavailable` for what is not the name of one."""
    if len(digest) != 64 or not set(digest) <= set("0123456789abcdef"):
        raise BlobUnavailable(digest[:80], "is not the name of a blob")
    return f"{digest[:2]}/{digest}"


def place_aside(digest: str, found: str) -> str:
    """Return where a storage keeps what it ``found`` for a blob, by its digest: damage that comes again is other."""
    return f"{DAMAGED}/{digest}-{found[:12]}"


def tell_kept(digest: str, place: object) -> None:
    """Say that a blob was damaged, and where what it held is kept."""
    logger.warning("blob %s was damaged, and is put anew: what was there is kept in %s", digest, place)


def missing(digest: str, storage: object) -> BlobUnavailable:
    """Return the error of a blob that is not there."""
    return unavailable(digest, "is missing in the blob storage: is WEFT_BLOB_URL the same everywhere?", storage)


def unavailable(digest: str, problem: str, storage: object) -> BlobUnavailable:
    """Return the error of a blob; the log alone tells where that is: the error is kept, and shown to others."""
    logger.info("blob %s %s (it is %s)", digest, problem, storage)
    return BlobUnavailable(digest, problem)


def damaged(digest: str) -> BlobUnavailable:
    """Return the error of a blob whose bytes are not those that were put."""
    return BlobUnavailable(
        digest, "is damaged, its bytes have another hash: bring it back from a copy of the blob storage"
    )


def open_blobs(settings: Settings) -> BlobStore:
    """Return the blob storage of ``settings``."""
    address = blob_address(settings)
    if isinstance(address, Path):
        from weft.db.blob_folder import FolderBlobs

        return FolderBlobs(address)
    try:
        from weft.db.blob_bucket import BucketBlobs
    except ModuleNotFoundError as problem:
        if problem.name != "obstore":
            raise
        raise InvalidSetting("WEFT_BLOB_URL", 's3:// needs a further package: pip install "weft[s3]"') from None
    return BucketBlobs(address)
