"""Turns a task's params into a handler's arguments, and what it returns into an output, by its annotations."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from typing import Any

import orjson

from weft.core.errors import InvalidInput
from weft.core.json import encode
from weft.worker.context import Context

_PLAIN = (inspect.Parameter.empty, Any)


class Arguments:
    """The arguments and the result of one function.

    Annotations are read when the first task comes, not when the function is decorated: they may name what is defined
    later in its module.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._signature = inspect.signature(function)
        for parameter in self._signature.parameters.values():
            if (
                parameter.kind is inspect.Parameter.POSITIONAL_ONLY
                or parameter.kind is inspect.Parameter.VAR_POSITIONAL
            ):
                raise InvalidInput(parameter.name, "a handler's arguments come by name: it cannot be positional only")
        self._is_prepared = False
        self.context_name: str | None = None
        self._required: frozenset[str] = frozenset()
        self._allowed: frozenset[str] | None = frozenset()
        self._validate: Callable[[str], dict[str, Any]] | None = None
        self._dump: Callable[[Any], Any] | None = None

    def prepare(self) -> None:
        """Read the annotations; raises `InvalidInput` for one that cannot be resolved or validated."""
        if self._is_prepared:
            return
        try:
            hints = typing.get_type_hints(self._function, include_extras=True)
        except (NameError, TypeError) as problem:
            raise InvalidInput(self._function.__qualname__, f"its annotations cannot be read: {problem}") from None
        fields: dict[str, Any] = {}
        open_ended = False
        for name, parameter in self._signature.parameters.items():
            if hints.get(name) is Context:
                self.context_name = name
            elif parameter.kind is inspect.Parameter.VAR_KEYWORD:
                open_ended = True
            else:
                default = ... if parameter.default is inspect.Parameter.empty else parameter.default
                fields[name] = (hints.get(name, Any), default)
        self._required = frozenset(name for name, (_, default) in fields.items() if default is ...)
        self._allowed = None if open_ended else frozenset(fields)
        if any(hint not in _PLAIN for hint, _ in fields.values()):
            self._validate = _validator(self._function.__qualname__, fields, open_ended)
        if hints.get("return", Any) not in (Any, None, type(None), int, str, float, bool, dict, list):
            self._dump = _dumper(hints["return"])
        self._is_prepared = True

    def read(self, params: str) -> dict[str, Any]:
        """Return the keyword arguments for a task's params; raises `InvalidInput` when they do not fit."""
        if not self._is_prepared:
            self.prepare()
        if self._validate is not None:
            return self._validate(params)
        values: Any = orjson.loads(params)
        if values.keys() != self._required:
            self._check_names(values)
        return values  # type: ignore[no-any-return]

    def write(self, output: Any) -> str:
        """Return what the handler returned as JSON text; raises `InvalidInput` when it is not JSON."""
        if output is None:
            return "null"
        if self._dump is not None:
            output = self._dump(output)
        elif hasattr(output, "model_dump"):
            output = output.model_dump(mode="json")
        return encode(output, "output")

    def _check_names(self, values: dict[str, Any]) -> None:
        if missing := self._required - values.keys():
            raise InvalidInput(f"params.{min(missing)}", "is missing")
        if self._allowed is not None and (unknown := values.keys() - self._allowed):
            raise InvalidInput(f"params.{min(unknown)}", f"{self._function.__qualname__} has no such argument")


def _validator(name: str, fields: dict[str, Any], open_ended: bool) -> Callable[[str], dict[str, Any]]:
    import pydantic

    # The fields have names of our own: an author's may be `json` or `_x`, which a model cannot have.
    own = {f"argument_{n}": argument for n, argument in enumerate(fields)}
    definitions: dict[str, Any] = {
        field: (hint, pydantic.Field(default, alias=own[field]))
        for field, (hint, default) in zip(own, fields.values(), strict=True)
    }
    extra: Any = "allow" if open_ended else "forbid"
    try:
        model: Any = pydantic.create_model(
            name,
            __config__=pydantic.ConfigDict(extra=extra),
            **definitions,
        )
    except (pydantic.PydanticUserError, NameError) as problem:
        raise InvalidInput(name, f"its annotations cannot be validated: {str(problem).splitlines()[0]}") from None

    def validate(params: str) -> dict[str, Any]:
        try:
            found = model.__pydantic_validator__.validate_json(params)
        except pydantic.ValidationError as problem:
            first = problem.errors(include_url=False)[0]
            place = ".".join(str(part) for part in ("params", *first["loc"]))
            raise InvalidInput(place, first["msg"]) from None
        values = {own[field]: value for field, value in found.__dict__.items()}
        values.update(found.__pydantic_extra__ or {})
        return values

    return validate


def _dumper(hint: Any) -> Callable[[Any], Any]:
    import pydantic

    adapter = pydantic.TypeAdapter[Any](hint)

    def dump(value: Any) -> Any:
        return adapter.dump_python(value, mode="json", warnings=False)

    return dump
