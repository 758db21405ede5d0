"""Turns a task's params into a handler's arguments, and what it returns into an output, by its annotations."""

from __future__ import annotations

import contextlib
import functools
import inspect
import typing
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, get_args

import orjson

from weft.core.errors import InvalidInput
from weft.core.json import encode
from weft.worker.context import Context

if TYPE_CHECKING:
    import pydantic

_PLAIN = (inspect.Parameter.empty, Any)
_UNRESOLVED = (NameError, TypeError, AttributeError, SyntaxError)
_UNCHECKED = (Any, None, type(None))
# A value of just this type is what was promised, and needs no look.
_JSON_TYPES = (int, str, float, bool, dict, list)


class WrongOutput(Exception):
    """What a handler returned does not fit its annotation: an error of the handler, which a retry may mend."""


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
        self.checks_output = False
        self._output_type: Any = None
        self._check: Callable[[Any], Any] | None = None
        self._dump: Callable[[Any], Any] | None = None

    def prepare(self) -> None:
        """Read the annotations; raises `InvalidInput` for an argument's that cannot be resolved or validated."""
        if self._is_prepared:
            return
        hints = _hints(self._function)
        fields: dict[str, Any] = {}
        open_ended = False
        for name, parameter in self._signature.parameters.items():
            if hints.get(name) is Context or Context in get_args(hints.get(name)):
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
        if hints.get("return", Any) not in _UNCHECKED:
            self._prepare_output(hints["return"])
        self._is_prepared = True

    def _prepare_output(self, hint: Any) -> None:
        """Read what the function returns; a type that nothing is known of is not checked."""
        if hint in _JSON_TYPES:
            self.checks_output, self._output_type, self._check = True, hint, functools.partial(_checked_plain, hint)
            return
        import pydantic

        try:
            adapter = pydantic.TypeAdapter[Any](hint)
        except (pydantic.PydanticUserError, NameError):
            return
        # Newer releases take a type that speaks of others which are not found, and fail when it is used.
        if not getattr(adapter, "pydantic_complete", True):
            return
        self.checks_output = True
        self._check = functools.partial(_checked, adapter)
        self._dump = functools.partial(adapter.dump_python, mode="json", warnings=False)

    @property
    def signature(self) -> inspect.Signature:
        """The arguments that a task gives: all but the context."""
        self.prepare()
        given = [each for each in self._signature.parameters.values() if each.name != self.context_name]
        return self._signature.replace(parameters=given)

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

    def write_returned(self, output: Any) -> str:
        """Return what the handler returned as JSON text; raises `WrongOutput` when it does not fit the annotation."""
        if self._check is not None and type(output) is not self._output_type:
            output = self._check(output)
        return self.write(output)

    def write(self, output: Any) -> str:
        """Return an output as JSON text; raises `InvalidInput` when it is not JSON."""
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


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the annotations of a function; that of its result may be for type checkers only, and is left out then."""

    def without_result() -> None: ...

    with contextlib.suppress(*_UNRESOLVED):
        return typing.get_type_hints(function, include_extras=True)
    try:
        annotations = {name: hint for name, hint in function.__annotations__.items() if name != "return"}
        without_result.__annotations__ = annotations
        names = getattr(inspect.unwrap(function), "__globals__", {})
        return typing.get_type_hints(without_result, names, include_extras=True)
    except _UNRESOLVED as problem:
        raise InvalidInput(function.__qualname__, f"its annotations cannot be read: {problem}") from None


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

    if not model.__pydantic_complete__:
        # It would fail each attempt anew.
        raise InvalidInput(name, "its annotations cannot be validated: a type speaks of others that are not found")

    def validate(params: str) -> dict[str, Any]:
        try:
            found = model.__pydantic_validator__.validate_json(params)
        except pydantic.ValidationError as problem:
            raise InvalidInput(*_first(problem, "params")) from None
        values = {own[field]: value for field, value in found.__dict__.items()}
        values.update(found.__pydantic_extra__ or {})
        return values

    return validate


def _checked_plain(hint: type, output: Any) -> Any:
    """Check a value that is not just of the type of JSON that was promised; few are, so Pydantic is loaded here."""
    import pydantic

    return _checked(pydantic.TypeAdapter[Any](hint), output)


def _checked(adapter: pydantic.TypeAdapter[Any], output: Any) -> Any:
    import pydantic

    try:
        return adapter.validate_python(output)
    except pydantic.ValidationError as problem:
        raise WrongOutput(": ".join(_first(problem, "output"))) from None


def _first(problem: pydantic.ValidationError, root: str) -> tuple[str, str]:
    """Return the first place that does not fit, and what is wrong there."""
    first = problem.errors(include_url=False)[0]
    return ".".join(str(part) for part in (root, *first["loc"])), first["msg"]
