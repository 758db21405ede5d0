"""Rows of JSON as columns with types, so that what comes later fits to what came first."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime
from decimal import Context, Decimal
from typing import Any

import orjson
import pyarrow as pa

from weft.core.errors import InvalidInput
from weft.flow.live.configs import TypedColumn
from weft.worker.operators.fetching import found_at

TYPES = {
    "bigint": pa.int64(), "double": pa.float64(), "boolean": pa.bool_(), "text": pa.string(), "json": pa.string(),
    "timestamp": pa.timestamp("us", "UTC"), "date": pa.date32(), "decimal": pa.decimal128(38, 18),
}  # fmt: skip

_EXACT = Context(prec=38)
_AT_ONCE = 10_000


def has_decimals(columns: Mapping[str, TypedColumn] | None) -> bool:
    """Whether it matters that numbers are read as exactly as they are written."""
    return any(each.type == "decimal" for each in (columns or {}).values())


def whole_number(value: Any) -> int | None:
    """Return a whole number that may be written as text, also in hexadecimal; None for what is none."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int):
        return value
    try:
        if isinstance(value, str):
            return int(value, 16 if value[:2].lower() == "0x" else 10)
        return int(value) if value == int(value) else None
    except (ValueError, OverflowError, TypeError):
        return None


def typed_table(rows: Iterable[Mapping[str, Any]], columns: Mapping[str, TypedColumn], field: str) -> pa.Table:
    """Return rows as a table of just these columns; raises `InvalidInput` for a value that is not of its type.

    So many of them at a time: as objects of Python they take many times the memory that they take in a table.
    """
    schema, left = pa.schema([(name, TYPES[each.type]) for name, each in columns.items()]), iter(rows)
    batches = []
    while found := list(itertools.islice(left, _AT_ONCE)):
        arrays = [
            pa.array(
                [_typed(found_at(row, each.path or name), each.type, f"{field}.{name}") for row in found],
                TYPES[each.type],
            )
            for name, each in columns.items()
        ]
        batches.append(pa.record_batch(arrays, schema))
    return pa.Table.from_batches(batches, schema)


def _typed(value: Any, type: str, field: str) -> Any:
    if value is None:
        return None
    try:
        match type:
            case "bigint":
                if (number := whole_number(value)) is None or not -(2**63) <= number < 2**63:
                    raise ValueError
                return number
            case "double":
                return float(value)
            case "boolean":
                return _truth(value)
            case "text":
                return value if isinstance(value, str) else _text(value)
            case "json":
                return orjson.dumps(value, default=_told).decode()
            case "timestamp":
                return _moment(value)
            case "date":
                return value if type_is_date(value) else date.fromisoformat(str(value)[:10])
            case _:
                return Decimal(str(value)).quantize(Decimal(1).scaleb(-18), context=_EXACT)
    except (ValueError, ArithmeticError, TypeError, KeyError):
        raise InvalidInput(field, f"{str(value)[:100]!r} is no {type}") from None


def type_is_date(value: Any) -> bool:
    """Whether a value is a day, and no moment."""
    return isinstance(value, date) and not isinstance(value, datetime)


def _truth(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    return {"true": True, "false": False, "1": True, "0": False}[str(value).strip().lower()]


def _text(value: Any) -> str:
    return orjson.dumps(value, default=_told).decode() if isinstance(value, (dict, list)) else str(value)


def _told(value: Any) -> Any:
    return orjson.Fragment(str(value)) if isinstance(value, Decimal) and value.is_finite() else str(value)


def _moment(value: Any) -> datetime:
    """Return a moment: a text of ISO 8601, or seconds since 1970; a text without a zone is UTC's."""
    if isinstance(value, datetime):
        return value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    if isinstance(value, (int, float, Decimal)) and not isinstance(value, bool):
        return datetime.fromtimestamp(float(value), UTC)
    if (number := whole_number(value)) is not None:
        return datetime.fromtimestamp(number, UTC)
    found = datetime.fromisoformat(str(value))
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
