"""The columns of a dataset: recorded with each version, and what may be written by them without harm to readers."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from weft.core.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable

# Between types of one family values are cast where none is changed by it.
_FAMILIES: tuple[tuple[Callable[[pa.DataType], bool], ...], ...] = (
    (kinds.is_integer, kinds.is_floating, kinds.is_decimal),
    (kinds.is_string, kinds.is_large_string, kinds.is_string_view),
    (kinds.is_binary, kinds.is_large_binary, kinds.is_fixed_size_binary, kinds.is_binary_view),
    (kinds.is_date, kinds.is_timestamp),
    (kinds.is_time,),
    (kinds.is_duration,),
)
HOW_TO_BREAK = "to change that, replace all of it with breaking=True: a new version begins, and the old one stays"


def record(schema: pa.Schema) -> dict[str, Any]:
    """Return what is kept of a schema: the columns as they are told, and as Arrow has them."""
    bare = schema.remove_metadata()
    told = [{"name": each.name, "type": str(each.type), "nullable": each.nullable} for each in bare]
    return {"columns": told, "arrow": base64.b64encode(bare.serialize().to_pybytes()).decode()}


def recorded(text: str | None) -> pa.Schema | None:
    """Return the schema that was kept."""
    if text is None:
        return None
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(orjson.loads(text)["arrow"])))


def partition_columns(text: str | None) -> tuple[str, ...]:
    """Return the columns whose values stand in the paths of the files, and not in these."""
    return () if text is None else tuple(orjson.loads(text).get("partition_columns", ()))


def settle(known: pa.Schema | None, given: pa.Schema) -> pa.Schema:
    """Return the columns that a dataset has with a write: those it had, and new ones, which may be null.

    Raises `InvalidInput` that names every column by which readers would stumble.
    """
    _require_distinct(given)
    if known is None:
        return pa.schema([pa.field(each.name, _lasting(each.type), each.nullable) for each in given])
    problems = []
    fields = []
    for column in known:
        place = given.get_field_index(column.name)
        if place < 0:
            problems.append(f"{column.name} ({column.type}) is missing")
            continue
        found = given.field(place)
        if kinds.is_null(column.type):
            # Of which nothing was known so far but that it may be empty.
            fields.append(pa.field(column.name, _lasting(found.type), True))
            continue
        if not may_become(found.type, column.type):
            problems.append(f"{column.name} is {found.type} and was {column.type}")
        fields.append(column)
    if problems:
        raise InvalidInput("columns", f"readers would stumble: {'; '.join(problems)}; {HOW_TO_BREAK}")
    names = set(known.names)
    fields += [pa.field(each.name, _lasting(each.type), True) for each in given if each.name not in names]
    return pa.schema(fields)


def fit(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch with exactly these columns; raises `InvalidInput` where a value would be changed by it."""
    if batch.schema.equals(schema):
        return batch
    arrays = []
    for field in schema:
        place = batch.schema.get_field_index(field.name)
        if place < 0:
            arrays.append(pa.nulls(batch.num_rows, field.type))
            continue
        array = batch.column(place)
        if not array.type.equals(field.type):
            if not may_become(array.type, field.type):
                raise InvalidInput("columns", f"{field.name} is {array.type} and was {field.type}; {HOW_TO_BREAK}")
            try:
                array = _cast(array, field.type)
            except pa.ArrowInvalid as problem:
                what = f"{field.name} does not fit into {field.type}: {problem}; {HOW_TO_BREAK}"
                raise InvalidInput("columns", what) from None
        if not field.nullable and array.null_count:
            raise InvalidInput("columns", f"{field.name} has nulls, and may not: it had none so far")
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _cast(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    found = array.type
    if kinds.is_dictionary(found):
        return _cast(array.dictionary, wanted).take(array.indices)
    if kinds.is_decimal(wanted) and kinds.is_integer(found):
        # Arrow looks at what an integer of that size could be: here it is looked at what each is.
        array = array.cast(pa.decimal256(76, wanted.scale))
    made = array.cast(wanted, safe=True)
    # Where Arrow takes no care: of a time a day would be left, and of a fraction its first digits.
    if (kinds.is_timestamp(found) and kinds.is_date(wanted)) or (kinds.is_floating(found) and kinds.is_decimal(wanted)):
        _require_same(array, made, pc.equal(made.cast(found), array))
    elif kinds.is_floating(wanted) and not kinds.is_integer(found):
        finite = pc.is_finite(array if kinds.is_floating(found) else array.cast(pa.float64()))
        _require_same(array, made, pc.or_(pc.is_finite(made), pc.invert(finite)))
    return made


def _require_same(array: pa.Array, made: pa.Array, same: pa.Array) -> None:
    place = pc.index(same, False).as_py()
    if place >= 0:
        raise pa.ArrowInvalid(f"{array[place]} would become {made[place]}")


def may_become(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether values of one type are stored as another, as far as each fits."""
    if found.equals(wanted) or kinds.is_null(found):
        return True
    if kinds.is_dictionary(found):
        return may_become(found.value_type, wanted)
    if kinds.is_nested(found):
        return bool(_lasting(found).equals(_lasting(wanted)))
    return any(_is_one(found, family) and _is_one(wanted, family) for family in _FAMILIES)


def _is_one(type: pa.DataType, family: tuple[Callable[[pa.DataType], bool], ...]) -> bool:
    return any(test(type) for test in family)


def _lasting(type: pa.DataType) -> pa.DataType:
    """Return the type of a column by what is written first: a code book is how it is stored, and not what it is.

    So is a view, by which Arrow can neither take rows nor tell them apart.
    """
    if kinds.is_string_view(type):
        return pa.large_string()
    if kinds.is_binary_view(type):
        return pa.large_binary()
    if kinds.is_dictionary(type):
        return _lasting(type.value_type)
    if kinds.is_struct(type):
        return pa.struct([each.with_type(_lasting(each.type)) for each in type])
    if kinds.is_list(type) or kinds.is_large_list(type):
        made = pa.list_ if kinds.is_list(type) else pa.large_list
        return made(type.value_field.with_type(_lasting(type.value_type)))
    return type


def _require_distinct(schema: pa.Schema) -> None:
    seen: dict[bytes, str] = {}
    for name in schema.names:
        if not name:
            raise InvalidInput("columns", "a column has no name: give each one")
        known = seen.setdefault(name.encode().lower(), name)
        if known == name and schema.get_field_index(name) < 0:
            raise InvalidInput("columns", f"{name} occurs twice: give each column a name of its own")
        if known != name:
            raise InvalidInput("columns", f"{known} and {name} are one name for queries, which know no capital letters")
    if not schema.names:
        raise InvalidInput("columns", "there are none: data need at least one column")
