"""Where the files of datasets are: a folder, or a bucket; a file that was written is there for good."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from pyarrow import NativeFile, fs

from weft.core.errors import InvalidSetting


class Storage:
    """The files of all datasets, by their paths beneath the root."""

    def __init__(self, files: fs.FileSystem, root: str, *, is_local: bool) -> None:
        self.files = files
        self.root = root.rstrip("/")
        self.is_local = is_local

    @classmethod
    def at(cls, root: str) -> Storage:
        """Return the storage at a folder, or an address that begins with ``s3://``."""
        if not root.startswith("s3://"):
            return cls(fs.LocalFileSystem(), root, is_local=True)
        endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
        try:
            bucket = fs.S3FileSystem(
                endpoint_override=endpoint,
                region=os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1",
                request_timeout=60,
                connect_timeout=10,
            )
        except (OSError, ValueError):
            # The problem may repeat a secret.
            raise InvalidSetting(
                "WEFT_DATA_URL", f"{root} cannot be opened with the AWS variables of the environment"
            ) from None
        return cls(bucket, root.removeprefix("s3://"), is_local=False)

    def path(self, location: str, name: str) -> str:
        """Return the whole path of a file of a version."""
        return f"{self.root}/{location}{name}"

    def create(self, location: str, name: str) -> NativeFile:
        """Return a new file to write into."""
        if self.is_local:
            Path(self.root, location).mkdir(parents=True, exist_ok=True)
        return self.files.open_output_stream(self.path(location, name))

    def keep(self, location: str, names: Iterable[str]) -> None:
        """Return when files that were written will be there after a crash of the machine."""
        if not self.is_local:
            return
        for name in names:
            _flush(self.path(location, name))
        folder = Path(self.root, location)
        # The folders themselves may be new.
        for each in (folder, *folder.parents):
            _flush(str(each))
            if each == Path(self.root):
                break

    def remove(self, location: str, names: Iterable[str]) -> None:
        """Remove files; those that are gone already are no problem."""
        for name in names:
            try:
                self.files.delete_file(self.path(location, name))
            except FileNotFoundError:
                continue

    def beginning_with(self, location: str, prefix: str) -> list[str]:
        """Return the names of the files of a version that begin so."""
        found = self.files.get_file_info(fs.FileSelector(self.path(location, ""), allow_not_found=True))
        return [each.base_name for each in found if each.is_file and each.base_name.startswith(prefix)]


def _flush(path: str) -> None:
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
