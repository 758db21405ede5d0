"""Events as the client of OpenLineage has them: its classes are made from the published schema, and as strict."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from enum import Enum
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import attr
from openlineage.client import generated
from openlineage.client.generated import base

_MODULES = [import_module(f"{generated.__name__}.{each.name}") for each in iter_modules(generated.__path__)]
# By the address that an event names: the version of a facet counts.
_FACETS = {
    each._get_schema(): each
    for module in _MODULES
    for each in vars(module).values()
    if isinstance(each, type) and attr.has(each) and issubclass(each, base.BaseFacet)
}
# These say of themselves what they are, and are told as what they are.
_SELF = {"_producer", "_schemaURL", "schemaURL"}


def require_openlineage(event: dict[str, Any]) -> None:
    """Raise AssertionError, TypeError or ValueError unless an event is one by the schema that it names."""
    assert event["schemaURL"] == base.RunEvent._get_schema()
    _made(base.RunEvent, event, "event")


def _made(kind: Any, value: Any, where: str) -> Any:
    """Return a value as what it is to be."""
    match typing.get_origin(kind):
        case types.UnionType | typing.Union:
            if value is None:
                assert type(None) in typing.get_args(kind), where
                return None
            return _made(next(each for each in typing.get_args(kind) if each is not type(None)), value, where)
        case origin if origin is list:
            assert isinstance(value, list), where
            return [_made(typing.get_args(kind)[0], each, where) for each in value]
        case origin if origin is dict:
            assert isinstance(value, dict), where
            return {name: _made(typing.get_args(kind)[1], each, f"{where}.{name}") for name, each in value.items()}
        case _ if kind is Any:
            return value
        case _ if attr.has(kind):
            return _object(kind, value, where)
        case _ if issubclass(kind, Enum):
            return kind(value)
        case _:
            assert type(value) is kind, f"{where} is no {kind.__name__}"
            return value


def _object(kind: Any, value: Any, where: str) -> Any:
    assert isinstance(value, dict), where
    if issubclass(kind, base.BaseFacet):
        kind = _FACETS[value["_schemaURL"]]
        assert value["_producer"], where
    hints = dict(_hints(kind))
    told = {name: each for name, each in value.items() if name not in _SELF}
    assert told.keys() <= hints.keys(), f"{where} has {sorted(told.keys() - hints.keys())}"
    return kind(**{name: _made(hints[name], each, f"{where}.{name}") for name, each in told.items()})


def _hints(kind: Any) -> Iterator[tuple[str, Any]]:
    known = typing.get_type_hints(kind)
    for each in attr.fields(kind):
        if each.init:
            yield each.alias, known[each.name]
