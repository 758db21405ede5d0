"""A function of Python that somebody else wrote, over one table: runs in the process of a query, behind its walls."""

from __future__ import annotations

import base64
import importlib
import traceback
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

# What a function may import: behind the walls nothing else can be loaded.
_LIBRARIES = (
    "base64", "binascii", "bisect", "calendar", "cmath", "collections", "copy", "csv", "dataclasses", "datetime",
    "decimal", "difflib", "enum", "fractions", "functools", "hashlib", "heapq", "hmac", "html", "io", "ipaddress",
    "itertools", "json", "math", "operator", "random", "re", "statistics", "string", "struct", "textwrap", "time",
    "typing", "unicodedata", "urllib.parse", "uuid", "zlib", "pyarrow.compute", "pyarrow.dataset", "pyarrow.parquet",
)  # fmt: skip
_FILE = "<code>"


class Failed(Exception):
    """The code is none, or the function failed; the message says where and why."""


def load() -> None:
    """Load what a function may import, while files can be read."""
    for name in _LIBRARIES:
        importlib.import_module(name)


def table_of(files: Sequence[str], schema: str, partition_columns: Sequence[str]) -> pa.Table:
    """Return the files of a dataset as a table; columns that a file lacks are null, or stand in its path."""
    import pyarrow.dataset as ds

    known = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(schema)))
    if not files:
        return known.empty_table()
    by = None
    if partition_columns:
        by = ds.partitioning(pa.schema([known.field(name) for name in partition_columns]), flavor="hive")
    found = ds.dataset(list(files), schema=known, format="parquet", partitioning=by)
    return found.to_table(use_threads=False)


def computed(code: str, entry: str, table: pa.Table) -> pa.Table:
    """Return what a function makes of a table; raises `Failed`."""
    names: dict[str, Any] = {"__name__": "weft_function"}
    try:
        exec(compile(code, _FILE, "exec"), names)
        function = names.get(entry)
        if not callable(function):
            raise Failed(f"there is no function {entry!r} in it")
        return _table(function(table), entry)
    except (Failed, MemoryError):
        raise
    except SyntaxError as problem:
        raise Failed(f"line {problem.lineno}, column {problem.offset}: {problem.msg}") from None
    except BaseException as problem:  # noqa: BLE001  the boundary to user code: told to whoever asked
        raise Failed(f"{_line(problem)}{type(problem).__name__}: {_words(problem)}") from None


def _table(made: Any, entry: str) -> pa.Table:
    if isinstance(made, pa.RecordBatch):
        made = pa.Table.from_batches([made])
    elif isinstance(made, Mapping):
        made = pa.table(dict(made))
    elif isinstance(made, list):
        made = pa.Table.from_pylist(made)
    if not isinstance(made, pa.Table):
        raise Failed(f"{entry} returned {type(made).__name__}: return a table of Arrow, a list of rows, or columns")
    return made


def _words(problem: BaseException) -> str:
    """Return what an exception says, as far as that is a text; one that somebody else wrote may say anything."""
    try:
        return str(problem)[:2000].encode(errors="replace").decode()
    except BaseException:  # noqa: BLE001  the boundary to user code: what it says of itself is its own, too
        return "(it cannot be told)"


def _line(problem: BaseException) -> str:
    """Return the line of the code in which something went wrong."""
    lines = [frame.lineno for frame in traceback.extract_tb(problem.__traceback__) if frame.filename == _FILE]
    return f"line {lines[-1]}: " if lines else ""
