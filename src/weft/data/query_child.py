"""One query in a process of its own: walls first, then the SQL, then its answer in frames."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import duckdb
import orjson

from weft.data import computing, plain_arrow, query_formats, query_frames, query_views, walls
from weft.data.query_reading import Refused, select_in, tables_of

if TYPE_CHECKING:
    import pyarrow as pa

_OWN_FOLDER, _SPILL = "own", "spill"
_DEEPEST = 8_000
# What each thread has beside what DuckDB counts.
_STACK = 16 * 1024 * 1024
# Whatever of this DuckDB does not know is a reason not to start.
_SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    "threads": 1,
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "allow_persistent_secrets": "false",
    "python_enable_replacements": "false",
    "python_scan_all_frames": "false",
    "secret_directory": _OWN_FOLDER,
    "home_directory": _OWN_FOLDER,
    "temp_directory": _SPILL,
}
# Not known by all of its releases that Weft works with.
_LATER: dict[str, str | bool | int | float | list[str]] = {"async_threads": 0}
# Touches what every query touches: it is not the one who asks who waits until it is copied.
_FIRST = "with t as (select 1 as a) select a, count(*) as n from t group by a order by a"
# A value of each type that is written in a way of its own.
_ALL_KINDS = """
    1 as number, 1::hugeint as huge, 1.5::decimal(5, 2) as exact, 'x' as words, 'x'::blob as raw, uuid() as id,
    now() as instant, now()::timestamp as moment, now()::timestamp_ns as fine, now()::timestamp_s as coarse,
    today() as day, time '10:11:12' as hour, timetz '10:11:12+02' as zoned, interval 1 day as span, '101'::bit as bits,
    [now()] as list, {'x': uuid(), 'y': 1.5} as record, map {'k': now()} as pairs, [1, 2]::integer[2] as fixed,
    'a'::enum ('a', 'b') as choice, union_value(x := 1) as either, null as nothing, '{}'::json as document
"""


class _LimitHit(Exception):
    pass


class _WallMissing(Exception):
    pass


def connect() -> duckdb.DuckDBPyConnection:
    """Return a database in memory that has no thread of its own yet, with everything loaded that an answer needs."""
    try:
        connection = duckdb.connect(config={**_SETTINGS, **_LATER})
    except duckdb.InvalidInputException:
        connection = duckdb.connect(config=_SETTINGS)
    connection.execute("set global TimeZone = 'UTC'")
    return connection


def warm(connection: duckdb.DuckDBPyConnection) -> None:
    """Do once what each query does: behind the walls nothing can be imported any more."""
    query = f"with t as (select {_ALL_KINDS}) from t"
    tables_of(connection, select_in(connection, query))
    for format in query_formats.ROWS_AT_ONCE:
        # Parquet has no spans of time, and no unions.
        columns = "* exclude (span, either)" if format == "parquet" else "*"
        _stream(connection, f"from ({query}) select {columns}", format, _Nowhere(), sys.maxsize)


def serve(place: int, connection: duckdb.DuckDBPyConnection, folder: str) -> None:
    """Answer the one request that comes at ``place``; what can be done before it is done while it waits for it."""
    sys.setrecursionlimit(_DEEPEST)
    os.makedirs(f"{folder}/{_SPILL}")
    os.chdir(folder)
    # Of its own, because the copies would all draw the same random numbers.
    connection = connection.cursor()
    tables_of(connection, select_in(connection, _FIRST))
    _stream(connection, _FIRST, "arrow", _Nowhere(), 1)
    size = int.from_bytes(query_frames.read_exactly(place, 4), "big")
    request = orjson.loads(query_frames.read_exactly(place, size))
    linked: list[query_views.Linked] = []
    try:
        if request["verb"] == "compute":
            computing.load()
        linked = query_views.link(request["tables"])
        missing = _put_up_walls(request, [real for each in linked for real in each.links.values()])
        match request["verb"]:
            case "probe":
                _tell(place, query_frames.NAMES, walls.probe(request["readable"]) | missing)
            case "mentioned":
                lock(connection, request["limits"], [])
                found = tables_of(connection, select_in(connection, request["sql"]))
                _tell(place, query_frames.NAMES, found)
            case "compute":
                [table] = linked
                _compute(place, request, table)
            case _:
                lock(connection, request["limits"], [name for each in linked for name in each.links])
                _query(place, connection, request, linked)
    except BrokenPipeError:
        pass
    except Exception as problem:  # noqa: BLE001 - whatever it is, it is this query's, and it is told
        told = _told(problem)
        told["message"] = query_views.nameless(told["message"], linked, request["sql"], folder)
        _tell(place, query_frames.ERROR, told)


def _put_up_walls(request: dict[str, Any], files: list[str]) -> dict[str, str]:
    """Put up the walls, and return those that cannot stand; only a probe goes on when one is missing unexpectedly."""
    limits = request["limits"]
    memory = limits["memory"] + limits["threads"] * _STACK
    bounds = walls.Bounds(memory, limits["spill"], limits["cpu_seconds"], limits["seconds"])
    # Only DuckDB keeps count of what is in its temporary files; a function could make as many as it likes.
    spill = _SPILL if limits["spill"] and request["verb"] != "compute" else None
    missing = walls.put_up(bounds, files, spill)
    unexpected = {name: why for name, why in missing.items() if name not in request["without"]}
    if unexpected and request["verb"] != "probe":
        raise _WallMissing(orjson.dumps(unexpected).decode())
    return missing


def lock(connection: duckdb.DuckDBPyConnection, limits: dict[str, int], files: list[str]) -> None:
    """Let DuckDB itself refuse all files but these, and every further change of that."""
    # Bytes exactly: what DuckDB calls MB are a million.
    connection.execute(f"set memory_limit = '{limits['memory']}B'")
    connection.execute(f"set max_temp_directory_size = '{limits['spill']}B'")
    if not limits["spill"]:
        connection.execute("set temp_directory = ''")
    connection.execute(f"set threads = {limits['threads']}")
    if files:
        connection.execute("set allowed_paths = ?", [files])
    connection.execute("set enable_external_access = false")
    connection.execute("set lock_configuration = true")


def _query(
    place: int, connection: duckdb.DuckDBPyConnection, request: dict[str, Any], linked: list[query_views.Linked]
) -> None:
    known = {each.given["name"].lower() for each in linked}
    for name in tables_of(connection, select_in(connection, request["sql"])):
        if name.lower() not in known:
            raise Refused(f"there is no dataset {name!r} here")
    for each in linked:
        query_views.attach(connection, each)
    limits = request["limits"]
    sink = _Frames(place, limits["bytes"])
    rows = _stream(connection, request["sql"], request["format"], sink, limits["rows"], plain="plain" in request)
    sink.flush()
    _tell(place, query_frames.END, {"rows": rows})


def _compute(place: int, request: dict[str, Any], linked: query_views.Linked) -> None:
    """Let a function make a table of a table; it can do no more than a query could."""
    limits = request["limits"]
    given = computing.table_of([*linked.links], request["schema"], linked.given["partition_columns"])
    table = computing.computed(request["sql"], request["entry"], given)
    if table.num_rows > limits["rows"]:
        raise _LimitHit("rows")
    sink = _Frames(place, limits["bytes"])
    sink.columns([{"name": field.name, "type": str(field.type)} for field in table.schema])
    schema = plain_arrow.plain_schema(table.schema)
    writer = query_formats.writer_for("arrow", sink, schema)
    for batch in table.to_batches(max_chunksize=query_formats.ROWS_AT_ONCE["arrow"]):
        writer.write(plain_arrow.plain_batch(batch, schema))
    writer.close()
    sink.flush()
    _tell(place, query_frames.END, {"rows": table.num_rows})


def _stream(
    connection: duckdb.DuckDBPyConnection, sql: str, format: str, sink: _Frames | _Nowhere, most: int,
    *, plain: bool = False,
) -> int:  # fmt: skip
    """Write the answer batch by batch, and return how many rows it has."""
    answer = _bound(connection, sql)
    names = query_formats.distinct(answer.columns)
    sink.columns([{"name": name, "type": str(kind)} for name, kind in zip(names, answer.types, strict=True)])
    reader: pa.RecordBatchReader = answer.to_arrow_reader(query_formats.ROWS_AT_ONCE[format])
    schema = _renamed(reader.schema, names)
    if plain:
        schema = plain_arrow.plain_schema(schema)
    writer = query_formats.writer_for(format, sink, schema)
    rows = 0
    for batch in reader:
        rows += batch.num_rows
        if rows > most:
            raise _LimitHit("rows")
        named = batch.rename_columns(names)
        writer.write(plain_arrow.plain_batch(named, schema) if plain else named)
    writer.close()
    return rows


def _bound(connection: duckdb.DuckDBPyConnection, sql: str) -> duckdb.DuckDBPyRelation:
    """Return a query that fits its tables; one that does not is told with its place in the text."""
    try:
        return connection.sql(sql)
    except (duckdb.BinderException, duckdb.CatalogException):
        # Of a relation DuckDB does not say where in the text something is wrong; of a statement it does.
        connection.execute(sql)
        raise


def _renamed(schema: pa.Schema, names: list[str]) -> pa.Schema:
    import pyarrow as pa

    return pa.schema([field.with_name(name) for field, name in zip(schema, names, strict=True)])


class _Frames:
    """Where an answer is written: frames to whoever asked, who reads them no faster than they can be used."""

    closed = False

    def __init__(self, place: int, most: int) -> None:
        self._place = place
        self._left = most
        self._waiting = bytearray()

    def columns(self, columns: list[dict[str, str]]) -> None:
        _tell(self._place, query_frames.COLUMNS, columns)

    def write(self, data: Any) -> int:
        data = memoryview(data).cast("B")
        self._left -= len(data)
        if self._left < 0:
            raise _LimitHit("bytes")
        self._waiting += data
        if len(self._waiting) >= query_frames.LARGEST // 2:
            self.flush()
        return len(data)

    def flush(self) -> None:
        with memoryview(bytes(self._waiting)) as whole:
            for begin in range(0, len(whole), query_frames.LARGEST):
                piece = whole[begin : begin + query_frames.LARGEST]
                query_frames.write_frame(self._place, query_frames.DATA, piece)
        self._waiting.clear()

    def close(self) -> None:
        pass


class _Nowhere:
    closed = False

    def columns(self, columns: list[dict[str, str]]) -> None:
        pass

    def write(self, data: Any) -> int:
        return len(memoryview(data).cast("B"))

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass


def _tell(place: int, letter: bytes, value: Any) -> None:
    query_frames.write_frame(place, letter, orjson.dumps(value))


def _told(problem: Exception) -> dict[str, str]:
    """Return what is told of a problem: its kind, and in which words."""
    message = str(problem)
    match problem:
        case Refused():
            return {"kind": "refused", "message": message}
        case query_views.Unreadable():
            return {"kind": "unreadable", "message": message}
        case _LimitHit():
            return {"kind": "limit", "message": message}
        case computing.Failed():
            return {"kind": "function", "message": message}
        case _WallMissing():
            return {"kind": "walls", "message": message}
        case MemoryError() | duckdb.OutOfMemoryException():
            return {"kind": "limit", "message": "spill" if "max_temp_directory_size" in message else "memory"}
        case duckdb.Error():
            kind = type(problem).__name__.removesuffix("Exception").removesuffix("Error")
            return {"kind": kind.lower() or "duckdb", "message": message}
        case _:
            return {"kind": "answer", "message": f"the answer cannot be written so: {message}"}
