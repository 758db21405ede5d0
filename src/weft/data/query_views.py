"""Datasets as views of DuckDB: their files are linked into the query's own folder, so that no path is ever shown."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import duckdb

from weft.data.beneath import is_beneath

_FOLDER_SIGNS = re.compile(r"[^A-Za-z0-9_@-]+")


class Unreadable(Exception):
    """A file of a dataset is not there, or not where its partition says; the message names the dataset."""


@dataclass(frozen=True, slots=True)
class Linked:
    """A dataset whose files have links in the folder: what it was given as, and the links, each with its file."""

    given: dict[str, Any]
    folder: str
    links: dict[str, str]


def link(tables: list[dict[str, Any]]) -> list[Linked]:
    """Make links to the files of all datasets in the current folder; raises `Unreadable` for one that is not there."""
    found: list[Linked] = []
    for table in tables:
        if any(table["name"].lower() == other.given["name"].lower() for other in found):
            raise Unreadable(f"two datasets have the name {table['name']!r} where case does not matter")
        clean = _FOLDER_SIGNS.sub("_", table["name"])[:100] or "_"
        taken = {other.folder for other in found}
        folder = next(name for name in _numbered(clean) if name not in taken)
        links = {}
        for number, path in enumerate(table["files"]):
            place = "/".join([folder, *_partition(table, path)])
            os.makedirs(place, exist_ok=True)
            name = f"{place}/{number:06d}.parquet"
            real = os.path.realpath(path)
            if table["within"] is not None and not is_beneath(real, table["within"]):
                raise Unreadable(f"a file of dataset {table['name']} leads to where files of others are not read")
            if not os.path.isfile(real):
                raise Unreadable(f"a file of dataset {table['name']} is missing")
            os.symlink(real, name)
            links[name] = real
        found.append(Linked(table, folder, links))
    return found


def attach(connection: duckdb.DuckDBPyConnection, linked: Linked) -> None:
    """Make the view of a dataset; raises `Unreadable` if its files are none that can be read."""
    name = linked.given["name"]
    try:
        connection.execute(f"create view {_name(name)} as {_source(connection, linked)}")
    except duckdb.OutOfMemoryException:
        raise
    except duckdb.Error as problem:
        # The rest of it shows our own statement.
        raise Unreadable(f"dataset {name} cannot be read: {str(problem).partition(chr(10))[0]}") from None


def nameless(message: str, linked: list[Linked], sql: str, folder: str) -> str:
    """Return a message of DuckDB with datasets in place of files, and without any path but those in the SQL itself."""
    message = message.partition("\n\nStack Trace:")[0].replace(f"{folder}/", "")
    for each in linked:
        for real in each.links.values() if len(each.links) < 1000 else ():
            message = message.replace(real, each.given["name"])
        parts = re.split(rf"{re.escape(each.folder)}/[^\s'\"]*\d{{6,}}\.parquet", message)
        message = each.given["name"].join(parts)
    return re.sub(r"(?<![\w.)])/[\w.@+-]+(?:/[\w.@+-]+)+/?", lambda it: it[0] if it[0] in sql else "…", message)


def _numbered(name: str) -> Iterator[str]:
    yield name
    for number in range(2, 1_000_000):
        yield f"{name}_{number}"


def _partition(table: dict[str, Any], path: str) -> list[str]:
    """Return the parts of a path that say its partition, in a form in which no sign means anything to DuckDB."""
    parts = dict(part.partition("=")[::2] for part in path.split("/")[:-1] if "=" in part)
    names = table["partition_columns"]
    if any(name not in parts for name in names):
        raise Unreadable(f"a file of dataset {table['name']} does not say its partition ({', '.join(names)})")
    return [f"{quote(name, safe='')}={quote(parts[name], safe='%')}" for name in names]


def _source(connection: duckdb.DuckDBPyConnection, linked: Linked) -> str:
    given = linked.given
    types = {name: str(connection.dtype(kind)) for name, kind in given["columns"]}
    empty = ", ".join(f"null::{kind} as {_name(name)}" for name, kind in types.items())
    nothing = f"from range(0) select {empty or '1 as nothing'}"
    if not linked.links:
        return nothing
    files = ", ".join(_text(name) for name in linked.links)
    options = f"union_by_name := {str(given['mixed']).lower()}"
    if given["partition_columns"]:
        kinds = ", ".join(f"{_text(name)}: {types.get(name, 'VARCHAR')}" for name in given["partition_columns"])
        options += f", hive_partitioning := true, hive_types := {{{kinds}}}"
    else:
        options += ", hive_partitioning := false"
    source = f"from read_parquet([{files}], {options})"
    return f"({nothing}) union all by name ({source})" if given["mixed"] and empty else source


def _name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
