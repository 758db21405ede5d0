"""Files of others as a file system of Arrow: to be read where an operator lets Weft read, and nowhere else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from pyarrow import NativeFile, fs

from weft.data.beneath import opened


class AllowedFiles(fs.FileSystemHandler):  # type: ignore[misc]
    """The files of this machine beneath some folders, to be read; for `pyarrow.fs.PyFileSystem`."""

    def __init__(self, folders: Sequence[str]) -> None:
        self._folders = tuple(folders)
        self._files = fs.LocalFileSystem()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AllowedFiles) and other._folders == self._folders

    __hash__ = None  # type: ignore[assignment]

    def get_type_name(self) -> str:
        """Return what this kind of file system is called."""
        return "allowed"

    def normalize_path(self, path: str) -> str:
        """Return a path as this machine has it."""
        return str(self._files.normalize_path(path))

    def get_file_info(self, paths: list[str]) -> Any:
        """Return of which kind and how large files are."""
        return self._files.get_file_info(paths)

    def get_file_info_selector(self, selector: fs.FileSelector) -> Any:
        """Return that of what lies in a folder."""
        return self._files.get_file_info(selector)

    def open_input_file(self, path: str) -> NativeFile:
        """Open a file, to be read anywhere in it; raises `DataUnavailable` if it lies elsewhere."""
        with opened(path, self._folders) as real:
            return self._files.open_input_file(real)

    def open_input_stream(self, path: str) -> NativeFile:
        """Open a file, to be read from its beginning; raises `DataUnavailable` if it lies elsewhere."""
        with opened(path, self._folders) as real:
            return self._files.open_input_stream(real)

    def _read_only(self, *_: Any, **__: Any) -> NoReturn:
        raise PermissionError("what others have written is only read")

    create_dir = delete_dir = delete_dir_contents = delete_root_dir_contents = delete_file = _read_only
    move = copy_file = open_output_stream = open_append_stream = _read_only
