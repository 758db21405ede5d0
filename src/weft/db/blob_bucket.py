"""Blobs as objects in a bucket of S3.

S3 renames nothing, and deletes whatever has the name when the request arrives. A removal may arrive late: its collector
was held up, or has lost its transaction and with it the lock on which others waited. So no name may ever be used again:

- A blob is the object ``ab/<digest>/<day>``, of the day in UTC on which it is put. A put always writes. It counts if it
  ended at most `LAST_CALL` after that day; else it is done again, under the new day.
- A name is removed if its day was over for `CLOSED` before the listing that showed it, and if its object was written
  longer ago than the grace.

Clocks differ by less than `CLOSED` - `LAST_CALL`: S3 refuses requests of whoever is off by more than 15 minutes. So
every put that counts for a closed name has ended before that listing, which shows when; and every later put has another
name. However late the removal comes, it meets only what was too old already.

A put also removes the names that were closed when it began: they hold nothing that its own, younger object does not.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING, BinaryIO, ClassVar, TypeVar
from urllib.parse import quote, unquote

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

from weft.core.errors import BlobUnavailable, InvalidSetting
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
from weft.db.bucket_problems import allows_http, is_denied, problem_of

if TYPE_CHECKING:
    from obstore import ObjectMeta

    from weft.db.blob_address import Bucket

Given = TypeVar("Given")
Found = TypeVar("Found")

LAST_CALL = timedelta(hours=1)
CLOSED = timedelta(hours=2)
# How often a reader looks for a blob that is put anew each time, before it calls that missing.
_LOOKS = 3
# As many requests at once. Not the threads of the event loop: an outage would fill them, and names of hosts of
# databases are looked up there too.
_THREADS = 16
_PIECE = 1 << 20
# The least that S3 takes as a part of something larger, and how many of one value are in memory.
_PART = 5 << 20
_PARTS_AT_ONCE = 2
# A value may have 64 MiB, and the way may be slow.
_TIMEOUT = timedelta(minutes=2)


class BucketBlobs:
    """Blobs as objects in a bucket, each under its digest and the day on which it was put."""

    # The process whose threads do the requests; those of a parent do not come along when it forks.
    _process: ClassVar[int | None] = None

    def __init__(self, address: Bucket, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._address = address
        self._clock = clock
        self._threads = ThreadPoolExecutor(_THREADS, "weft-blobs")
        try:
            self._bucket = S3Store(
                address.name,
                prefix=address.prefix or None,
                client_options={"allow_http": allows_http(os.environ), "timeout": _TIMEOUT},
                retry_config={"max_retries": 4, "retry_timeout": timedelta(minutes=1)},
            )
        except (BaseError, ValueError):
            # The problem may repeat a secret.
            raise InvalidSetting(
                "WEFT_BLOB_URL", f"{address} cannot be opened with the AWS variables of the environment: "
                "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY belong together, and flags are true or false",
            ) from None  # fmt: skip

    async def put(self, data: bytes) -> str:
        """Keep ``data`` durably and return its digest."""
        return await self._in_thread(self.put_now, data)

    async def get(self, digest: str) -> bytes:
        """Return the bytes of ``digest``; raises `BlobUnavailable` when they are missing or damaged."""
        return await self._in_thread(self._get, digest)

    async def open(self, digest: str) -> BinaryIO:
        """Return a file of our own with the bytes of ``digest``, looked through already."""
        return await self._in_thread(self._open, digest)

    async def put_file(self, file: BinaryIO, digest: str) -> None:
        """Keep what a file has durably: in parts, of which few are in memory at once."""
        await self._in_thread(lambda each: self._put(digest, lambda path: self._send(path, each)), file)

    def put_now(self, data: bytes) -> str:
        """Like `put`, where nothing can be awaited."""
        # In one request, so that it is there whole or not at all.
        return self._put(digest_of(data), lambda path: obstore.put(self._bucket, path, data, use_multipart=False))

    def _send(self, path: str, file: BinaryIO) -> None:
        """Send what a file has: it is there when all of its parts are, and then whole."""
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        if size <= _PART:
            obstore.put(self._bucket, path, file.read(), use_multipart=False)
            return
        pieces = iter(lambda: file.read(_PIECE), b"")
        obstore.put(self._bucket, path, pieces, chunk_size=_PART, max_concurrency=_PARTS_AT_ONCE)

    def _put(self, digest: str, send: Callable[[str], object]) -> str:
        while True:
            known = self._known(digest)
            began = self._clock()
            day = began.date()
            path = f"{place_of(digest)}/{day}"
            closed = [each for each in known if _is_closed(each, began)]
            try:
                for each in known:
                    if each["path"] == path or each in closed:
                        self._keep_damaged(digest, each["path"])
            except BlobUnavailable:
                closed = []  # whoever puts need not be allowed to read, and what cannot be read is not taken away
            with self._asking(digest, "put"):
                send(path)
            if self._clock() < _end_of(day) + LAST_CALL:
                break
        # A copy too many costs space alone, and whoever puts need not be allowed to delete.
        with contextlib.suppress(BlobUnavailable):
            self._delete(digest, closed)
        return digest

    def _known(self, digest: str) -> Sequence[ObjectMeta]:
        """Return the copies of a blob; none where nobody may list them."""
        with self._asking(digest, "put"):
            try:
                return obstore.list(self._bucket, place_of(digest)).collect()
            except BaseError as problem:
                if not is_denied(problem):
                    raise
                return []

    def _keep_damaged(self, digest: str, path: str) -> None:
        """Keep aside what an object holds that is about to go, when it is not what its name says."""
        file = self._fetch(digest, path)
        if file is None:
            return
        with file:
            if (found := digest_of_file(file)) == digest:
                return
            aside = place_aside(digest, found)
            with self._asking(digest, "kept aside"):
                self._send(aside, file)
        tell_kept(digest, f"{self._address}/{aside}")

    def _get(self, digest: str) -> bytes:
        def good(path: str) -> bytes | bool | None:
            data = self._read(digest, path)
            return data if data is None or digest_of(data) == digest else False

        return self._first(digest, good)

    def _open(self, digest: str) -> BinaryIO:
        def good(path: str) -> BinaryIO | bool | None:
            file = self._fetch(digest, path)
            if file is None:
                return None
            if digest_of_file(file) != digest:
                file.close()
                return False
            file.seek(0)
            return file

        return self._first(digest, good)

    def _fetch(self, digest: str, path: str) -> BinaryIO | None:
        """Return a file of our own with what an object holds, or None if it went since it was listed."""
        with contextlib.ExitStack() as stack:
            file = stack.enter_context(tempfile.TemporaryFile())
            with self._asking(digest, "read"):
                try:
                    for piece in obstore.get(self._bucket, path).stream(min_chunk_size=_PIECE):
                        file.write(piece)
                except FileNotFoundError:
                    return None
            stack.pop_all()
            return file

    def _first(self, digest: str, good: Callable[[str], Found | bool | None]) -> Found:
        """Return the first copy that is ``good``: that has the bytes of its name, and has not gone meanwhile."""
        for _ in range(_LOOKS):
            found = sorted(self._list(digest), key=lambda known: known["last_modified"], reverse=True)
            if not found:
                break
            has_gone = False
            for known in found:
                copy = good(known["path"])
                if copy is not None and not isinstance(copy, bool):
                    return copy
                has_gone |= copy is None
            if not has_gone:
                raise damaged(digest)
        raise missing(digest, f"{self._address}, where no lifecycle rule may delete objects")

    def _read(self, digest: str, path: str) -> bytes | None:
        """Return the bytes of an object, or None if it went since it was listed: a younger one is there then."""
        with self._asking(digest, "read"):
            try:
                return obstore.get(self._bucket, path).bytes().to_bytes()
            except FileNotFoundError:
                return None

    def remove(self, digest: str, grace: timedelta) -> bool:
        """Remove a blob, unless somebody has put it within ``grace``; return whether it is gone."""
        now = self._clock()
        found = self._list(digest)
        if not all(_is_closed(known, now) and now - known["last_modified"] >= grace for known in found):
            return False
        self._delete(digest, found)
        # Somebody may have put it meanwhile, under another name.
        return not found or not self._list(digest)

    def sweep(self, grace: timedelta) -> int:
        """Nothing is left: an object is there whole or not at all."""
        return 0

    def mark(self, user: str) -> None:
        """Note that a database uses this storage, by an object of its name."""
        name = f"{USERS}/{quote(user, safe='')}"
        with self._asking(name, "put"):
            obstore.put(self._bucket, name, b"", use_multipart=False)

    def users(self) -> set[str]:
        """Return the databases that use this storage."""
        with self._asking(USERS, "listed"):
            found = obstore.list(self._bucket, USERS).collect()
        return {unquote(known["path"].removeprefix(f"{USERS}/")) for known in found}

    def _list(self, digest: str) -> Sequence[ObjectMeta]:
        with self._asking(digest, "listed"):
            return obstore.list(self._bucket, place_of(digest)).collect()

    def _delete(self, digest: str, found: Sequence[ObjectMeta]) -> None:
        if found:
            with self._asking(digest, "removed"):
                obstore.delete(self._bucket, [known["path"] for known in found])

    async def _in_thread(self, ask: Callable[[Given], Found], given: Given) -> Found:
        if self._is_forked():
            return ask(given)  # which refuses it: there are no threads here
        return await asyncio.get_running_loop().run_in_executor(self._threads, ask, given)

    @classmethod
    def _is_forked(cls) -> bool:
        return cls._process not in (None, os.getpid())

    @contextlib.contextmanager
    def _asking(self, name: str, verb: str) -> Iterator[None]:
        """Tell what is wrong in our own words: those of obstore may have credentials in them."""
        if self._is_forked():
            raise BlobUnavailable(
                name, f"cannot be {verb} in a process that was forked from one that uses s3://: start it by spawn"
            )
        BucketBlobs._process = os.getpid()
        try:
            yield
        except (BaseError, OSError, ValueError) as problem:
            raise unavailable(name, f"cannot be {verb}: {problem_of(problem)}", self._address) from None


def _end_of(day: date) -> datetime:
    return datetime.combine(day, time(), UTC) + timedelta(days=1)


def _is_closed(known: ObjectMeta, now: datetime) -> bool:
    """Whether no put counts any more that is under this name; what has no day for a name was never put by us."""
    try:
        day = date.fromisoformat(known["path"].rpartition("/")[2])
    except ValueError:
        return True
    return now >= _end_of(day) + CLOSED
