"""What a query is given: the datasets it reads, and how much it may take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

Format = Literal["arrow", "csv", "json", "parquet"]
FORMATS: tuple[str, ...] = get_args(Format)
MEDIA_TYPES: dict[str, str] = {
    "arrow": "application/vnd.apache.arrow.stream",
    "csv": "text/csv; charset=utf-8",
    "json": "application/x-ndjson",
    "parquet": "application/vnd.apache.parquet",
}
LONGEST_SQL = 262_144


@dataclass(frozen=True, slots=True)
class Attached:
    """A dataset under the name that the SQL has for it, with its Parquet files, which are local paths.

    ``columns`` are pairs of a name and DuckDB's name of a type. They are what there is to see while there is no file,
    and, if the files are ``mixed``, all columns: one that a file lacks reads as null. The values of
    ``partition_columns`` are read from the paths, which have a part ``name=value`` for each; their types are those in
    ``columns``, or text. Files that are to be ``within`` some folders, which have no links in their paths, are refused
    if they lead elsewhere when they are opened.

    Example::

        Attached("orders@3", ("/data/orders/v3/day=2026-11-14/1.parquet",), (("day", "DATE"),), ("day",))
    """

    name: str
    files: tuple[str, ...] = ()
    columns: tuple[tuple[str, str], ...] = ()
    partition_columns: tuple[str, ...] = ()
    mixed: bool = False
    within: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class QueryLimits:
    """How much one query may take; whatever goes beyond ends it with `QueryLimitReached`.

    ``memory`` is DuckDB's own; its process may have 256 MiB beside. ``spill`` is for temporary files, 0 for none.
    """

    memory: int = 512 * 1024 * 1024
    spill: int = 1024 * 1024 * 1024
    seconds: int = 60
    cpu_seconds: int = 120
    rows: int = 10_000_000
    bytes: int = 4 * 1024 * 1024 * 1024
    threads: int = 2


@dataclass(frozen=True, slots=True)
class Column:
    """A column of an answer, with DuckDB's name of its type."""

    name: str
    type: str


@dataclass(frozen=True, slots=True)
class Wall:
    """One of the things between untrusted SQL and the machine; ``why`` says what keeps it from standing."""

    name: str
    about: str
    stands: bool
    why: str | None = None
