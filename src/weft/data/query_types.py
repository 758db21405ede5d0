"""The types of Arrow as DuckDB calls them, for datasets of which there is no file to look at."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as kinds

_PLAIN: dict[pa.DataType, str] = {
    pa.null(): "INTEGER", pa.bool_(): "BOOLEAN", pa.int8(): "TINYINT", pa.int16(): "SMALLINT", pa.int32(): "INTEGER",
    pa.int64(): "BIGINT", pa.uint8(): "UTINYINT", pa.uint16(): "USMALLINT", pa.uint32(): "UINTEGER",
    pa.uint64(): "UBIGINT", pa.float16(): "FLOAT", pa.float32(): "FLOAT", pa.float64(): "DOUBLE",
    pa.date32(): "DATE", pa.date64(): "DATE", pa.time32("s"): "TIME", pa.time32("ms"): "TIME",
    pa.time64("us"): "TIME", pa.time64("ns"): "TIME",
}  # fmt: skip
_MOMENTS = {"s": "TIMESTAMP", "ms": "TIMESTAMP", "us": "TIMESTAMP", "ns": "TIMESTAMP_NS"}


def duckdb_columns(schema: pa.Schema) -> tuple[tuple[str, str], ...]:
    """Return the columns of a dataset with DuckDB's names of their types."""
    return tuple((field.name, duckdb_type(field.type)) for field in schema)


def duckdb_type(type: pa.DataType) -> str:
    """Return DuckDB's name of a type, as it reads one that Arrow has written into a Parquet file."""
    if (plain := _PLAIN.get(type)) is not None:
        return plain
    if kinds.is_timestamp(type):
        return "TIMESTAMP WITH TIME ZONE" if type.tz is not None else _MOMENTS[type.unit]
    if kinds.is_decimal(type):
        return f"DECIMAL({type.precision},{type.scale})" if type.precision <= 38 else "DOUBLE"
    if kinds.is_dictionary(type):
        return duckdb_type(type.value_type)
    if kinds.is_map(type):
        return f"MAP({duckdb_type(type.key_type)}, {duckdb_type(type.item_type)})"
    if kinds.is_struct(type):
        return f"STRUCT({', '.join(f'{_quoted(field.name)} {duckdb_type(field.type)}' for field in type)})"
    if kinds.is_list(type) or kinds.is_large_list(type) or kinds.is_fixed_size_list(type):
        return f"{duckdb_type(type.value_type)}[]"
    if kinds.is_binary(type) or kinds.is_large_binary(type) or kinds.is_fixed_size_binary(type):
        return "BLOB"
    return "INTERVAL" if kinds.is_duration(type) else "VARCHAR"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
