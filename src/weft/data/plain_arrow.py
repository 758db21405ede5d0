"""Arrow's batches as one process sends them to another that does not trust it: as large as they look, and no larger.

A value that stands once in a code book, behind a view or in a packed buffer may unfold to any size where it is read.
"""

from __future__ import annotations

import struct

import pyarrow as pa
import pyarrow.types as kinds

# Where the flatbuffer of a message has what it is about, and a batch how it is packed.
_HEADER, _COMPRESSION = 2, 3


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Return columns of which nothing unfolds."""
    return pa.schema([pa.field(each.name, _plain(each.type), each.nullable) for each in schema])


def plain_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch by the plain columns of its own; that takes as much memory as it has values."""
    arrays = [
        column if column.type.equals(field.type) else column.cast(field.type)
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def is_plain(schema: pa.Schema) -> bool:
    """Whether nothing of these columns unfolds."""
    return all(_plain(each.type).equals(each.type) for each in schema)


def is_packed(message: pa.Message) -> bool:
    """Whether the buffers of a batch are packed, which Arrow's own reader would unpack without a word."""
    data = memoryview(message.metadata)
    [root] = struct.unpack_from("<I", data, 0)
    header = _place(data, root, _HEADER)
    if header is None:
        return False
    return _place(data, header + struct.unpack_from("<I", data, header)[0], _COMPRESSION) is not None


def hollow_items(array: pa.Array) -> int:
    """Return how many items an array has that take no room, however many there are."""
    type = array.type
    if kinds.is_null(type) or (kinds.is_fixed_size_binary(type) and type.byte_width == 0):
        return len(array)
    if kinds.is_struct(type):
        parts = [array.field(place) for place in range(type.num_fields)]
        return sum(map(hollow_items, parts)) if parts else len(array)
    if kinds.is_map(type):
        return hollow_items(array.keys) + hollow_items(array.items)
    if kinds.is_list(type) or kinds.is_large_list(type) or kinds.is_fixed_size_list(type):
        return hollow_items(array.values)
    return hollow_items(array.storage) if isinstance(type, pa.BaseExtensionType) else 0


def _place(data: memoryview, table: int, field: int) -> int | None:
    """Return where a flatbuffer's table has a field; None where it has none."""
    names = table - struct.unpack_from("<i", data, table)[0]
    [size] = struct.unpack_from("<H", data, names)
    if 4 + 2 * field >= size:
        return None
    [offset] = struct.unpack_from("<H", data, names + 4 + 2 * field)
    return table + offset if offset else None


def _plain(type: pa.DataType) -> pa.DataType:
    if kinds.is_dictionary(type) or kinds.is_run_end_encoded(type):
        return _plain(type.value_type)
    if kinds.is_string_view(type):
        return pa.large_string()
    if kinds.is_binary_view(type):
        return pa.large_binary()
    if kinds.is_struct(type):
        return pa.struct([each.with_type(_plain(each.type)) for each in type])
    if kinds.is_map(type):
        return pa.map_(_plain(type.key_type), _plain(type.item_type), type.keys_sorted)
    if kinds.is_fixed_size_list(type):
        return pa.list_(type.value_field.with_type(_plain(type.value_type)), type.list_size)
    if kinds.is_list(type) or kinds.is_list_view(type):
        return pa.list_(type.value_field.with_type(_plain(type.value_type)))
    if kinds.is_large_list(type) or kinds.is_large_list_view(type):
        return pa.large_list(type.value_field.with_type(_plain(type.value_type)))
    if isinstance(type, pa.BaseExtensionType) and not _plain(type.storage_type).equals(type.storage_type):
        return _plain(type.storage_type)
    return type
