"""Turns what a step returns into JSON text and back, by the annotation of its function."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import orjson

from weft.core.json import encode

# What is the same before and after.
_PLAIN = (Any, None, type(None), int, str, float, bool, dict, list, inspect.Parameter.empty)


class Returned:
    """The result of one function; read back it is of the type that the function promises, where it promises one."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._adapter = _adapter_of(function)

    def write(self, value: Any, name: str) -> str:
        """Return a result as JSON text; raises `InvalidInput` when it is not JSON."""
        if self._adapter is not None:
            value = self._adapter.dump_python(value, mode="json", warnings=False)
        elif hasattr(value, "model_dump") and not isinstance(value, type):
            value = value.model_dump(mode="json")
        return encode(value, name)

    def read(self, text: str) -> Any:
        """Return the result that a text stands for."""
        return orjson.loads(text) if self._adapter is None else self._adapter.validate_json(text)


def _adapter_of(function: Callable[..., Any]) -> Any:
    while isinstance(function, functools.partial):
        function = function.func
    hint: Any = Any
    with suppress(NameError, TypeError, AttributeError, SyntaxError):
        hint = typing.get_type_hints(inspect.unwrap(function), include_extras=True).get("return", Any)
    if hint in _PLAIN:
        return None
    import pydantic

    with suppress(pydantic.PydanticUserError, NameError):
        adapter = pydantic.TypeAdapter[Any](hint)
        return adapter if getattr(adapter, "pydantic_complete", True) else None
    return None
