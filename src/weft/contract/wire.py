"""How values travel: ids as text, moments as ISO 8601, spans as seconds, records as objects; there and back."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from functools import cache
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, BeforeValidator, ConfigDict, Strict, WithJsonSchema, create_model

from weft.core.checks import MAX_ID
from weft.core.errors import BlobUnavailable
from weft.flow.diff import Diff

_LISTS = (list, tuple, set, frozenset, Sequence, Iterable)
_PATTERN = r"^[0-9]{1,19}$"


def _read_id(value: object) -> object:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 19 and int(value) <= MAX_ID:
        return int(value)
    raise ValueError(f"an id is a text of digits, up to {MAX_ID}")


# 64-bit integers lose digits in browsers, so ids are texts wherever they travel.
Id = Annotated[int, BeforeValidator(_read_id), WithJsonSchema({"type": "string", "pattern": _PATTERN})]
# JSON has no moments: a text stands for one also where types are otherwise taken at their word.
Moment = Annotated[datetime, Strict(False)]


def is_id(name: str) -> bool:
    """Whether a field of that name holds an id."""
    return name in ("id", "rerun_of") or name.endswith("_id")


class Wire(NamedTuple):
    """How a type travels: what stands for it in JSON as Pydantic knows it, and the ways there and back."""

    type: Any
    encode: Callable[[Any], Any]
    decode: Callable[[Any], Any]


class Unreadable(BaseModel):
    """Why a value cannot be read."""

    digest: str
    problem: str


def new_model(
    name: str, parts: Mapping[str, tuple[Any, Any]], doc: str | None = None, **config: Any
) -> type[BaseModel]:
    """Return what Pydantic knows of an object: each part with its type, and its default or ``...``."""
    settings = ConfigDict(**config)  # type: ignore[typeddict-item]
    made: type[BaseModel] = create_model(name, __config__=settings, __doc__=doc, **parts)  # type: ignore[call-overload]
    return made


def _same(value: Any) -> Any:
    return value


def moment_text(moment: datetime) -> str:
    """Return a moment in UTC as it travels."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


_PLAIN = Wire(Any, _same, _same)
_ID = Wire(Id, str, int)
_MOMENT = Wire(Moment, moment_text, datetime.fromisoformat)
# As an argument a number of seconds is as good.
_SPAN = Wire(float, lambda span: span.total_seconds() if isinstance(span, timedelta) else span, _same)
_BLOB_PROBLEM = Wire(
    Unreadable,
    lambda problem: {"digest": problem.digest, "problem": problem.problem},
    lambda told: BlobUnavailable(told["digest"], told["problem"]),
)
_DIFF = Wire(dict[str, Any], lambda diff: diff.to_json(), Diff.from_json)


@cache
def wire(hint: Any, name: str = "") -> Wire:
    """Return how values of a type travel; ``name`` is the field that has them, by which ids are known."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return _union(arguments, name)
    if origin in _LISTS:
        return _list(arguments[0], "id" if name.endswith("_ids") else name)
    if origin in (dict, Mapping):
        return _mapping(arguments[1])
    if hint is int:
        return _ID if is_id(name) else Wire(int, _same, _same)
    if hint is datetime:
        return _MOMENT
    if hint is timedelta:
        return Wire(float, _SPAN.encode, lambda seconds: timedelta(seconds=seconds))
    if hint is BlobUnavailable:
        return _BLOB_PROBLEM
    if hint is Diff:
        return _DIFF
    if inspect.isclass(hint) and issubclass(hint, Enum):
        return Wire(hint, str, hint)
    if inspect.isclass(hint) and (is_dataclass(hint) or hasattr(hint, "_fields")):
        return _record(hint)
    return Wire(hint, _same, _same) if hint in (str, bool, float) else _PLAIN


def _union(members: Sequence[Any], name: str) -> Wire:
    present = [member for member in members if member is not types.NoneType]
    if timedelta in present and len(present) > 1:
        inner = _SPAN
    elif str in present and (many := [member for member in present if get_origin(member) in _LISTS]):
        # One of them, or several: on the way always several.
        several = wire(many[0], name)
        inner = Wire(several.type, lambda value: several.encode([value] if isinstance(value, str) else value), _same)
    elif len(present) == 1:
        inner = wire(present[0], name)
    else:
        inner = Wire(Union[tuple(present)], _same, _same)  # noqa: UP007  of as many as there are
    if len(present) == len(members):
        return inner
    return Wire(
        inner.type | None if inner.type is not Any else Any,
        lambda value: None if value is None else inner.encode(value),
        lambda value: None if value is None else inner.decode(value),
    )


def _list(member: Any, name: str) -> Wire:
    inner = wire(member, name)
    return Wire(
        list[inner.type],  # type: ignore[name-defined]
        lambda values: [inner.encode(value) for value in values],
        lambda values: tuple(inner.decode(value) for value in values),
    )


def _mapping(member: Any) -> Wire:
    inner = wire(member)
    if inner.encode is _same:
        return Wire(dict[str, inner.type], _same, _same)  # type: ignore[name-defined]
    return Wire(
        dict[str, inner.type],  # type: ignore[name-defined]
        lambda values: {key: inner.encode(value) for key, value in values.items()},
        lambda values: {key: inner.decode(value) for key, value in values.items()},
    )


def _record(kind: type[Any]) -> Wire:
    hints = get_type_hints(kind)
    names = [field.name for field in fields(kind)] if is_dataclass(kind) else list(kind._fields)
    parts = {name: wire(hints[name], name) for name in names}
    model = new_model(kind.__name__, {name: (part.type, ...) for name, part in parts.items()}, inspect.getdoc(kind))

    def encode(value: Any) -> dict[str, Any]:
        return {name: part.encode(getattr(value, name)) for name, part in parts.items()}

    def decode(told: Mapping[str, Any]) -> Any:
        # What a later release tells beyond this is left out.
        return kind(**{name: part.decode(told[name]) for name, part in parts.items() if name in told})

    return Wire(model, encode, decode)
