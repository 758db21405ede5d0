"""JSON at the edge: what may enter the queue, with an error that names the field when it may not."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from contextlib import suppress
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import orjson

from weft.core.errors import InvalidInput

Json = Any
MAX_DEPTH = 200
_INT_MIN, _INT_MAX = -(2**63), 2**64 - 1
BLOB_MARK = '{"$blob":'
GATHERED = "$gathered"
RENDER_MARK = '{"$render":'
CACHED_MARK = '{"$cached":'
# Keys that no value from outside begins with, and what they are for: the engine writes them, and trusts them.
RESERVED_KEYS = {
    "$blob": "values in the blob storage",
    GATHERED: "what a fan_in gathers",
    "$render": "params that are rendered later",
    "$cached": "params with what is said of the cache",
}
_RESERVED = tuple(f'{{"{key}":' for key in RESERVED_KEYS)
_REFERENCE = re.compile(r'\{"\$blob":"([0-9a-f]{64})","size":\d+\}')
_MANY_DIGITS = re.compile(r"\d{19}")
# Escaped backslashes and whole pairs, so that they are passed over; what the group holds stands alone.
_SURROGATES = re.compile(
    r"\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
)


def encode(value: Json, field: str) -> str:
    """Return ``value`` as JSON text.

    Raises `InvalidInput`, naming the place, for what JSON in PostgreSQL cannot hold or would change: NUL and lone
    surrogates, NaN and Infinity, integers beyond 64 bits, keys that are not strings, too deep a nesting, other types.
    """
    try:
        text = orjson.dumps(value, default=_plain, option=orjson.OPT_PASSTHROUGH_DATACLASS).decode()
    except (TypeError, orjson.JSONEncodeError, RecursionError):
        _explain(value, field)
        text = _encode_with_any_text_as_key(value, field)
    return _sound(text, value, field)


def encode_plain(value: Json, field: str) -> str:
    """Like `encode`, but for JSON's own types only: nobody's code is called, and less is said of what is wrong."""
    try:
        text = orjson.dumps(value, option=orjson.OPT_PASSTHROUGH_DATACLASS).decode()
    except (TypeError, orjson.JSONEncodeError, RecursionError):
        raise InvalidInput(field, "is not plain JSON") from None
    return _sound(text, value, field)


def encode_unordered(value: dict[str, Json], field: str) -> str:
    """Like `encode`, for what is kept as ``jsonb``: there any key may come first, so none may be a reserved one."""
    for key in RESERVED_KEYS:
        if key in value:
            raise _reserved(key, field)
    return encode(value, field)


def plain(value: Json, field: str) -> Json:
    """Return a copy of ``value`` in JSON's own types; raises like `encode`, but for the depth: that is the caller's."""
    try:
        text = orjson.dumps(value, default=_plain, option=orjson.OPT_PASSTHROUGH_DATACLASS)
    except (TypeError, orjson.JSONEncodeError, RecursionError):
        return decode(encode(value, field))
    if b"null" in text or b"\\u0000" in text:
        _explain(value, field)
    return orjson.loads(text)


def _sound(text: str, value: Json, field: str) -> str:
    """Return the text that orjson made of a value; refuse what it let through and should not have."""
    # orjson writes NaN as null and NUL as an escape, so what it let through is looked at only when it could hide one.
    if "null" in text or "\\u0000" in text or _may_be_deep(text):
        _explain(value, field)
    if text.startswith(_RESERVED):
        raise _reserved(text[2:].partition('"')[0], field)
    return text


def _reserved(key: str, field: str) -> InvalidInput:
    return InvalidInput(field, f"the key {key!r} is reserved for {RESERVED_KEYS[key]}")


def _may_be_deep(text: str) -> bool:
    """Whether JSON is nested deeper than it may be, as far as can be told without looking at each value."""
    if len(text) <= MAX_DEPTH or text.count("[") + text.count("{") <= MAX_DEPTH:
        return False
    return depth_of(orjson.loads(text)) > MAX_DEPTH


def depth_of(value: Json) -> int:
    """Return how deep mappings and lists are nested in plain data."""
    level, depth = [value] if type(value) in (dict, list) else [], 0
    while level:
        depth += 1
        inner = (item.values() if type(item) is dict else item for item in level)
        level = [each for items in inner for each in items if type(each) in (dict, list)]
    return depth


def _encode_with_any_text_as_key(value: Json, field: str) -> str:
    """Encode what has nothing wrong with it but keys of a class that extends ``str``."""
    options = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_NON_STR_KEYS
    try:
        return orjson.dumps(value, default=_plain, option=options).decode()
    except (TypeError, orjson.JSONEncodeError, RecursionError):
        raise InvalidInput(field, "is not JSON") from None


def decode(text: str | bytes) -> Json:
    """Return the value of JSON text that came from the database."""
    return orjson.loads(text)


def readable(text: str) -> Json:
    """Return the value of JSON text, whoever wrote it; what cannot be a value here is returned as its text."""
    if _MANY_DIGITS.search(text) is None:
        with suppress(ValueError):
            return orjson.loads(text)
    # What orjson would round or refuse: integers beyond 64 bits, lone surrogates, numbers beyond a double.
    try:
        return json.loads(_SURROGATES.sub(lambda found: found[0] if found[1] is None else r"\ufffd", text))
    except (ValueError, RecursionError):
        return text


def exact(value: Json) -> Json:
    """Return a value in which orjson writes each number as it is: decimals, and integers beyond 64 bits."""
    if isinstance(value, dict):
        return {key: exact(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [exact(item) for item in value]
    is_large = isinstance(value, int) and not _INT_MIN <= value <= _INT_MAX
    return orjson.Fragment(str(value)) if is_large or isinstance(value, Decimal) else value


def blob_reference(digest: str, size: int) -> str:
    """Return the JSON text that stands in the database for a value kept in the blob storage."""
    return f'{BLOB_MARK}"{digest}","size":{size}}}'


def referenced_blob(text: str) -> str | None:
    """Return the digest when ``text`` is a reference to the blob storage, else None."""
    found = _REFERENCE.fullmatch(text) if text.startswith(BLOB_MARK) else None
    return None if found is None else found[1]


def size_of(text: str) -> int:
    """Return how many bytes a text takes in UTF-8."""
    return len(text) if text.isascii() else len(text.encode())


def check_size(field: str, text: str, limit: int) -> None:
    """Refuse a value that is larger than values may be."""
    if (size := size_of(text)) > limit:
        raise InvalidInput(field, f"has {size} bytes, and may have {limit}")


def fields_of(value: object) -> dict[str, Json] | None:
    """Return the fields of a model or a dataclass; None for anything else."""
    if isinstance(value, type) or not (dataclasses.is_dataclass(value) or hasattr(value, "model_dump")):
        return None
    fields = _plain(value)
    return fields if isinstance(fields, dict) else None


def _plain(value: object) -> Json:
    """Return what Pydantic would write for a model or a common type; refuse what else JSON does not know."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, tuple):
        return list(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, Decimal) or hasattr(type(value), "__fspath__"):
        return str(value)
    if isinstance(value, timedelta) or (hasattr(value, "model_dump") and not isinstance(value, type)):
        from pydantic_core import to_jsonable_python

        return to_jsonable_python(value)
    raise TypeError(type(value).__name__)


def text_problem(text: str) -> str | None:
    """Return what keeps a text out of PostgreSQL, if anything."""
    if "\x00" in text:
        return "has a NUL character, which PostgreSQL cannot store"
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return "has a lone surrogate, which is not valid Unicode"
    return None


def _explain(value: Json, field: str) -> None:
    """Raise `InvalidInput` for the first place in ``value`` that cannot be stored; return when there is none."""
    stack: list[tuple[Json, str, int]] = [(value, field, 0)]
    while stack:
        item, path, depth = stack.pop()
        if depth > MAX_DEPTH:
            raise InvalidInput(field, f"is nested deeper than {MAX_DEPTH} levels")
        if item is None or item is True or item is False:
            continue
        if isinstance(item, str):
            if (problem := text_problem(item)) is not None:
                raise InvalidInput(path, problem)
        elif isinstance(item, int):
            if not _INT_MIN <= item <= _INT_MAX:
                raise InvalidInput(path, "is an integer beyond 64 bits; send it as text")
        elif isinstance(item, float):
            if not math.isfinite(item):
                raise InvalidInput(path, f"is {item}, which JSON does not have")
        elif isinstance(item, dict):
            for key, entry in item.items():
                if not isinstance(key, str):
                    raise InvalidInput(path, f"has the key {key!r}, and keys must be text")
                if (problem := text_problem(key)) is not None:
                    raise InvalidInput(path, f"has a key that {problem}")
                stack.append((entry, f"{path}.{key}", depth + 1))
        elif isinstance(item, (list, tuple)):
            stack.extend((entry, f"{path}[{index}]", depth + 1) for index, entry in enumerate(item))
        elif isinstance(item, Enum):
            stack.append((item.value, path, depth))
        elif not isinstance(item, (datetime, date, time, UUID)):
            try:
                stack.append((_plain(item), path, depth))
            except (TypeError, ValueError):
                raise InvalidInput(path, f"is of type {type(item).__name__}, which is not JSON") from None
