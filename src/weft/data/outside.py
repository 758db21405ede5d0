"""Files that others write: found where the operator lets Weft read, and looked at once, when they are complete."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from weft.core.checks import check_text
from weft.core.errors import InvalidInput
from weft.data import columns
from weft.data.beneath import is_beneath, real_folders
from weft.data.parquet import WHOLE
from weft.data.storage import Storage

if TYPE_CHECKING:
    from weft.data.parquet import Written

MOST_FILES = 20_000
_AT_ONCE = 16
_LONGEST = 1000
_S3 = re.compile(r"s3://[A-Za-z0-9][A-Za-z0-9._-]{1,61}[A-Za-z0-9](/[^?#]*)?")
_HIVE = re.compile(r"([^=]+)=(.*)")


@dataclass(frozen=True, slots=True)
class Found:
    """What lies at an address: the files by partition, the columns, and which of these stand in the paths."""

    files: tuple[Written, ...]
    schema: pa.Schema
    partition_columns: tuple[str, ...]

    def record(self) -> dict[str, Any]:
        """Return what is kept of the columns."""
        kept = columns.record(self.schema)
        return kept | {"partition_columns": list(self.partition_columns)} if self.partition_columns else kept


def check_address(address: str, allowed: Sequence[str]) -> str:
    """Return an address that ends in ``/``; raises `InvalidInput` unless it lies where Weft may read."""
    text = check_text(address, "address", _LONGEST)
    if ".." in text.split("/"):
        raise InvalidInput("address", "must not have .. in it: write the whole address")
    if text.startswith("s3:"):
        if _S3.fullmatch(text) is None:
            raise InvalidInput("address", "must be written like s3://bucket/prefix")
        whole = text.rstrip("/") + "/"
        is_allowed = any(whole.startswith(each.rstrip("/") + "/") for each in allowed if each.startswith("s3://"))
    else:
        text = text.removeprefix("file://")
        if not text.startswith("/"):
            raise InvalidInput("address", "must be the whole path of a folder, or s3://bucket/prefix")
        # Links are followed now: what they lead to is what is read, also if they are changed later.
        whole = os.path.realpath(text).rstrip("/") + "/"
        is_allowed = is_beneath(whole, real_folders(allowed))
    if not is_allowed:
        where = f"only beneath {', '.join(allowed)}" if allowed else "nowhere"
        raise InvalidInput(
            "address", f"{address} is not where datasets of others are read: that is {where}, as WEFT_DATA_OUTSIDE "
            "of the process that registers says",
        )  # fmt: skip
    return whole


def look(address: str, glob: str, *, hive: bool, allowed: Sequence[str]) -> Found:
    """Find the files at an address, and read of each what it says of itself; raises `InvalidInput` naming the file."""
    from weft.data.parquet import Written

    wanted = _pattern(glob)
    storage = Storage.at(address.rstrip("/") or "/", allowed)
    with storage.telling():
        infos = storage.files.get_file_info(fs.FileSelector(storage.root, recursive=True, allow_not_found=True))
    beginning = f"{storage.root}/"
    names = sorted(
        name
        for info in infos
        if info.is_file and wanted.fullmatch(name := info.path.removeprefix(beginning)) and not _is_hidden(name)
    )
    if not names:
        raise InvalidInput("address", f"{address} has no files that match {glob}: register it when it is complete")
    # Only a bucket has such names, and Arrow does not read them.
    if (odd := next((name for name in names if "" in name.split("/")), None)) is not None:
        raise InvalidInput(
            "address", f"{odd!r} has a part in its name that is empty, and cannot be read: copy it to another name, or "
            "say a glob that does not match it",
        )  # fmt: skip
    if len(names) > MOST_FILES:
        raise InvalidInput("address", f"{address} has more than {MOST_FILES:,} files: register a part of it")
    if storage.within is not None:
        _require_inside(storage, names, storage.within)
    with ThreadPoolExecutor(_AT_ONCE) as threads, storage.telling():
        looks = list(threads.map(lambda name: _footer(storage, name), names))
    keys = [_hive(name) if hive else {} for name in names]
    for name, key in zip(names, keys, strict=True):
        if list(key) != list(keys[0]):
            raise InvalidInput("partition_by", f"{name} is partitioned otherwise than {names[0]}")
    schema = _schema(names, [each.schema for each in looks], keys)
    files = tuple(
        Written(_partition(key), name, each.rows, each.bytes)
        for name, key, each in zip(names, keys, looks, strict=True)
    )
    return Found(files, schema, tuple(keys[0]))


def require_fitting(known: pa.Schema, found: pa.Schema) -> None:
    """Raise `InvalidInput` that names every column by which readers of what was there before would stumble."""
    problems = []
    for column in known:
        place = found.get_field_index(column.name)
        if place < 0:
            problems.append(f"{column.name} ({column.type}) is missing")
        elif not found.field(place).type.equals(column.type):
            problems.append(f"{column.name} is {found.field(place).type} and was {column.type}")
    if problems:
        raise InvalidInput("columns", f"readers would stumble: {'; '.join(problems)}; to register it so, say breaking")


@dataclass(frozen=True, slots=True)
class _Footer:
    schema: pa.Schema
    rows: int
    bytes: int


def _footer(storage: Storage, name: str) -> _Footer:
    path = storage.path("", name)
    try:
        with storage.files.open_input_file(path) as file, pq.ParquetFile(file) as opened:
            return _Footer(opened.schema_arrow.remove_metadata(), opened.metadata.num_rows, file.size())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        raise InvalidInput("address", f"{name} is no Parquet file that is whole") from None


def _schema(names: Sequence[str], schemas: Sequence[pa.Schema], keys: Sequence[dict[str, str]]) -> pa.Schema:
    whole = schemas[0]
    for name, each in zip(names[1:], schemas[1:], strict=True):
        try:
            whole = pa.unify_schemas([whole, each], promote_options="permissive")
        except (pa.ArrowInvalid, pa.ArrowTypeError) as problem:
            raise InvalidInput("address", f"{name} has other columns than the files before it: {problem}") from None
    for column in keys[0]:
        if whole.get_field_index(column) < 0:
            are_numbers = all(re.fullmatch(r"-?\d{1,18}", key[column], re.ASCII) for key in keys)
            whole = whole.append(pa.field(column, pa.int64() if are_numbers else pa.string()))
    return columns.settle(None, whole)


def _require_inside(storage: Storage, names: Sequence[str], folders: Sequence[str]) -> None:
    for name in names:
        real = os.path.realpath(storage.path("", name))
        if not is_beneath(real, folders) or not Path(real).is_file():
            raise InvalidInput("address", f"{name} is a link to where datasets of others are not read")


def _hive(name: str) -> dict[str, str]:
    parts = [_HIVE.fullmatch(part) for part in name.split("/")[:-1]]
    return {unquote(part[1]): unquote(part[2]) for part in parts if part is not None}


def _partition(key: dict[str, str]) -> str:
    """Return the key of a partition: the value of its column, or all of them as they stand in the path."""
    if len(key) <= 1:
        return next(iter(key.values()), WHOLE)
    return "/".join(f"{column}={value}" for column, value in key.items())


def _is_hidden(name: str) -> bool:
    """Whether engines keep something of their own there, such as what is not complete yet."""
    return any(part.startswith(("_", ".")) for part in name.split("/") if "=" not in part)


def _pattern(glob: str) -> re.Pattern[str]:
    """Return what a glob matches: ``*`` and ``?`` within a part of a path, ``**/`` any number of parts."""
    text = check_text(glob, "glob", _LONGEST)
    if text.startswith("/") or ".." in text.split("/"):
        raise InvalidInput("glob", "is beneath the address: it neither begins with / nor has .. in it")
    signs = {"**/": "(?:[^/]+/)*", "*": "[^/]*", "?": "[^/]"}
    parts = re.split(r"(\*\*/|\*|\?)", text)
    return re.compile("".join(signs.get(part) or re.escape(part) for part in parts))
