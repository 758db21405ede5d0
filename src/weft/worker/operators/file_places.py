"""Where files arrive: a folder of the machine, or a prefix of a bucket, looked through in the order of their paths."""

from __future__ import annotations

import os
import stat
import time
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple, Protocol

from weft.core.errors import InvalidInput
from weft.core.json import text_problem
from weft.db.blob_address import Bucket
from weft.flow.globs import compiled, is_deep
from weft.live.staging import LONGEST_PATH
from weft.worker.operators.bucket_listing import BucketListing, is_odd

_S3 = "s3://"
# What is still being written, by the names that programs give it.
_UNFINISHED = (".tmp", ".part", ".partial", ".filepart", ".crdownload", ".swp", "~")
# The names of folders whose round goes on: of so many, and for so many seconds. To read a million takes a while.
_LISTED, _LISTED_FOR = 4, 600.0
_listed: dict[tuple[str, str], tuple[float, list[str]]] = {}


class FoundFile(NamedTuple):
    """A file by its path within the place; ``tag`` is another when the file is."""

    path: str
    size: int
    mtime: datetime
    tag: str


class Looked(NamedTuple):
    """The next files, in order, and the path up to which these are all; None: to the end."""

    files: list[FoundFile]
    until: str | None


class FilePlace(Protocol):
    """Where files arrive."""

    is_whole_at_once: bool

    def look(self, after: str, most: int, at_once: int) -> Iterator[Looked]:
        """Yield the files after a path, so many at once, and no more than ``most`` of them."""

    def address(self, path: str) -> str:
        """Return where a file is, for whoever reads it."""

    def is_there(self, file: FoundFile) -> bool:
        """Whether what looks like an empty file is one."""


def place_at(path: str, pattern: str, roots: Sequence[str]) -> FilePlace:
    """Return the place at a folder or an ``s3://…``; raises `InvalidInput` outside of what a worker may read."""
    if path.startswith(_S3):
        bucket = path.rstrip("/")
        if not any(bucket == root or bucket.startswith(f"{root}/") for root in _roots(roots, is_bucket=True)):
            raise _closed(path)
        name, _, prefix = bucket.removeprefix(_S3).partition("/")
        if prefix and is_odd(prefix):
            raise InvalidInput("source.path", f"{path}: must have no empty part, no `.` or `..`, no control character")
        return BucketPlace(Bucket(name, prefix), pattern)
    if ".." in Path(path).parts or not os.path.isabs(path):
        raise InvalidInput("source.path", f"{path}: must be a whole path without `..`")
    real = os.path.realpath(path)
    if not any(_is_within(real, os.path.realpath(root)) for root in _roots(roots, is_bucket=False)):
        raise _closed(path)
    return FolderPlace(real, path, pattern)


def _roots(roots: Sequence[str], *, is_bucket: bool) -> list[str]:
    return [root.rstrip("/") or "/" for root in roots if root.startswith(_S3) == is_bucket]


def _is_within(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip("/") + "/")


def _closed(path: str) -> InvalidInput:
    return InvalidInput(
        "source.path", f"{path} is not within WEFT_FILES_ROOTS of this worker: whoever runs it may add the folder there"
    )


def is_unfinished(path: str) -> bool:
    """Whether a file is still being written, or hidden, by its name."""
    return path.rpartition("/")[2].startswith(".") or path.lower().endswith(_UNFINISHED)


def _can_be_kept(path: str) -> bool:
    return not is_unfinished(path) and len(path) <= LONGEST_PATH and text_problem(path) is None


class FolderPlace:
    """A folder of this machine; links in it are not followed, for they may lead anywhere."""

    is_whole_at_once = False

    def __init__(self, real: str, path: str, pattern: str) -> None:
        self._real, self._path, self._pattern = real, path.rstrip("/"), compiled(pattern)
        self._key = real, pattern
        self._is_deep = is_deep(pattern)

    def look(self, after: str, most: int, at_once: int) -> Iterator[Looked]:
        """Yield the files after a path: all names are read first, and each file is looked at when it is its turn."""
        names = self._all_names(after)
        begin = bisect_right(names, after)
        for first in range(begin, max(begin + 1, min(begin + most, len(names))), at_once):
            part = names[first : first + at_once]
            until = part[-1] if first + at_once < len(names) else None
            if until is None:
                _listed.pop(self._key, None)
            yield Looked([found for name in part if (found := self._found(name)) is not None], until)

    def address(self, path: str) -> str:
        """Return the whole path of a file."""
        return f"{self._path}/{path}"

    def is_there(self, file: FoundFile) -> bool:
        """Whether it is: it was looked at."""
        return True

    def _all_names(self, after: str) -> list[str]:
        """Return all names in order; amid a round they are those of its beginning, where this process has these."""
        read_at, names = _listed.get(self._key, (0.0, []))
        if after and read_at > time.monotonic() - _LISTED_FOR:
            return names
        try:
            names = sorted(self._names(""))
        except OSError as problem:
            raise InvalidInput("source.path", f"{self._path} cannot be read: {problem.strerror}") from None
        for key in [*_listed][: max(0, len(_listed) - _LISTED + 1)]:
            _listed.pop(key, None)
        _listed[self._key] = time.monotonic(), names
        return names

    def _names(self, within: str) -> Iterator[str]:
        try:
            entries = os.scandir(os.path.join(self._real, within))
        except OSError:
            if not within:
                raise
            # A folder that was taken away meanwhile, or that nobody may see.
            return
        with entries:
            for entry in entries:
                name = within + entry.name
                if self._is_deep and entry.is_dir(follow_symlinks=False):
                    # Nothing that is in deeper ones has a path that can be kept.
                    yield from self._names(f"{name}/") if len(name) < LONGEST_PATH else ()
                elif self._pattern.fullmatch(name) and _can_be_kept(name):
                    yield name

    def _found(self, name: str) -> FoundFile | None:
        try:
            seen = os.stat(os.path.join(self._real, name), follow_symlinks=False)
        except OSError:
            return None
        if not stat.S_ISREG(seen.st_mode):
            return None
        mtime = datetime.fromtimestamp(seen.st_mtime, UTC)
        # Not by its inode or ctime, which are others on each machine that has a copy of the folder, after a restore,
        # and on some file systems each time: all files would be taken up again.
        return FoundFile(name, seen.st_size, mtime, f"{seen.st_mtime_ns}:{seen.st_size}")


class BucketPlace:
    """A prefix of a bucket, whose objects are whole as soon as they are there."""

    is_whole_at_once = True

    def __init__(self, address: Bucket, pattern: str) -> None:
        self._address, self._pattern = address, compiled(pattern)
        self._listing = BucketListing(address)

    def look(self, after: str, most: int, at_once: int) -> Iterator[Looked]:
        """Yield the objects after a path, as the bucket lists them; those that are not meant count too."""
        found: list[FoundFile] = []
        for looked, each in enumerate(self._listing.after(after), 1):
            path = each.path
            if self._is_wanted(path) and (seen := self._listing.looked_at(each)) is not None:
                found.append(FoundFile(path, seen.size, seen.mtime, seen.tag or ""))
            if looked % at_once == 0 or looked == most:
                yield Looked(found, path)
                found = []
            if looked == most:
                return
        yield Looked(found, None)

    def address(self, path: str) -> str:
        """Return the address of an object."""
        return f"{self._address}/{path}"

    def is_there(self, file: FoundFile) -> bool:
        """Whether there is an object of that name; what stands for a folder is listed without the `/` at its end."""
        return self._listing.is_there(file.path)

    def _is_wanted(self, path: str) -> bool:
        name = path.rpartition("/")[2]
        return bool(name and self._pattern.fullmatch(path)) and _can_be_kept(path)
