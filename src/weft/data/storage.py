"""Where the files of datasets are: a folder, or a bucket; a file that was written is there for good."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path

from pyarrow import NativeFile, fs

from weft.core.data_errors import DataUnavailable
from weft.data.allowed import AllowedFiles
from weft.data.beneath import real_folders, require_beneath
from weft.data.bucket import Objects, open_bucket, telling
from weft.db.blob_address import Bucket

_AT_ONCE = 16


class Storage:
    """The files of all datasets, by their paths beneath the root."""

    def __init__(self, files: fs.FileSystem, address: Path | Bucket, within: tuple[str, ...] | None = None) -> None:
        self.files = files
        # The folders that files of others must really lie in; None for our own, and in a bucket, which has no links.
        self.within = within
        self.address = address
        self.is_local = isinstance(address, Path)
        self.root = (str(address) if isinstance(address, Path) else f"{address.name}/{address.prefix}").rstrip("/")
        self._objects: Objects | None = None

    @classmethod
    def at(cls, root: str, allowed: Sequence[str] | None = None) -> Storage:
        """Return the storage at a folder, or an address that begins with ``s3://``.

        Files of others are read where that is ``allowed``: each is looked at when it is opened.
        """
        if not root.startswith("s3://"):
            if allowed is None:
                return cls(fs.LocalFileSystem(), Path(root))
            within = real_folders(allowed)
            return cls(fs.PyFileSystem(AllowedFiles(within)), Path(root), within)
        name, _, prefix = root.removeprefix("s3://").partition("/")
        address = Bucket(name, prefix.strip("/"))
        return cls(open_bucket(address), address)

    @classmethod
    def of(cls, root: str, location: str, *, is_outside: bool, allowed: Sequence[str]) -> tuple[Storage, str]:
        """Return where a version is: under a location of our own storage, or at an address that others write.

        Of these only what is ``allowed`` is read, as the settings of this process have it.
        """
        return (cls.at(location, allowed), "") if is_outside else (cls.at(root), location)

    def telling(self) -> AbstractContextManager[None]:
        """Tell what is wrong with files, while they are read or written, in words to act on: `DataUnavailable`."""
        return telling(str(self.address))

    def path(self, location: str, name: str) -> str:
        """Return the whole path of a file of a version."""
        return f"{self.root}/{location}{name}"

    def require_allowed(self, location: str, names: Iterable[str]) -> None:
        """Raise `DataUnavailable` if one of these files leads to where files of others are not read."""
        if self.within is not None:
            require_beneath([self.path(location, name) for name in names], self.within)

    def create(self, location: str, name: str) -> NativeFile:
        """Return a new file to write into."""
        if self.is_local:
            Path(self.root, location).mkdir(parents=True, exist_ok=True)
        return self.files.open_output_stream(self.path(location, name))

    def keep(self, location: str, sizes: Mapping[str, int]) -> None:
        """Return when files that were written, by name, will be there after a crash of the machine, and whole."""
        if not sizes:
            return
        if not self.is_local:
            self._require_whole(location, sizes)
            return
        for name in sizes:
            _flush(self.path(location, name))
        folder = Path(self.root, location)
        # The folders themselves may be new.
        for each in (folder, *folder.parents):
            _flush(str(each))
            if each == Path(self.root):
                break

    def fetch(self, location: str, name: str, to: Path) -> str:
        """Copy a file to a path of this machine; return that."""
        to.parent.mkdir(parents=True, exist_ok=True)
        with self.telling():
            fs.copy_files(self.path(location, name), str(to), self.files, fs.LocalFileSystem())
        return str(to)

    def remove(self, location: str, names: Iterable[str]) -> None:
        """Remove files; those that are gone already are no problem."""
        if not self.is_local:
            # Arrow would leave an empty object in place of the folder.
            self._in_bucket().remove(location, names)
            return
        for name in names:
            Path(self.path(location, name)).unlink(missing_ok=True)

    def beginning_with(self, location: str, prefix: str) -> list[str]:
        """Return the names of the files of a version that begin so."""
        if not self.is_local:
            return self._in_bucket().beginning_with(location, prefix)
        folder = Path(self.root, location)
        return [each.name for each in folder.iterdir() if each.name.startswith(prefix)] if folder.is_dir() else []

    def _require_whole(self, location: str, sizes: Mapping[str, int]) -> None:
        """Raise `DataUnavailable` unless a bucket has all that it said it took: what it says may have been cut off."""
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            infos = threads.map(self.files.get_file_info, [self.path(location, name) for name in sizes])
            for (name, size), info in zip(sizes.items(), infos, strict=True):
                if info.size != size:
                    problem = f"were not kept: the bucket took {location}{name}, and has not all of its {size:,} bytes"
                    raise DataUnavailable(str(self.address), problem)

    def _in_bucket(self) -> Objects:
        if self._objects is None:
            assert isinstance(self.address, Bucket)
            self._objects = Objects(self.address)
        return self._objects


def _flush(path: str) -> None:
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
