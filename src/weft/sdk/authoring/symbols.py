"""Values that are not there yet: in a Python workflow something stands for them, in its definition an expression."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Generator, Iterator, Mapping
from typing import Any, NoReturn

from weft.core.errors import InvalidInput
from weft.core.json import plain
from weft.flow.expressions import has_expression
from weft.sdk.authoring.places import cannot_compile
from weft.worker.composing import COMPOSER

Needs = tuple[str, ...]
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Between these stands the number of a value that was written into a text: f"{day}.csv".
_OPEN, _CLOSE = "\x02", "\x03"
_MARK = re.compile(f"{_OPEN}([0-9]+){_CLOSE}")


class Symbol:
    """Stands for a value that a job will have: an input, the output of a node, or what is computed of such.

    Fields and entries of it are values too, and so is what operators make of it. ``needs`` are the nodes that must have
    ended before it is known.
    """

    __slots__ = ("__weakref__", "_compared", "_is_atom", "_needs", "_text")

    def __init__(
        self, text: str, needs: Needs = (), *, is_atom: bool = False, compared: tuple[str, str] | None = None
    ) -> None:
        self._text = text
        self._needs = needs
        self._is_atom = is_atom
        self._compared = compared

    def __repr__(self) -> str:
        return f"<the value of {self._text}>"

    # Fields and entries.

    def __getattr__(self, name: str) -> Symbol:
        if name.startswith("_"):
            raise AttributeError(name)
        return self._entry(name)

    def __getitem__(self, key: Any) -> Symbol:
        if isinstance(key, slice):
            parts = [None if part is None else literal(part) for part in (key.start, key.stop, key.step)]
            written = ":".join("" if part is None else part._text for part in parts[: 2 if key.step is None else 3])
            return Symbol(
                f"{self._operand}[{written}]", _joined(self, *(p for p in parts if p is not None)), is_atom=True
            )
        return self._entry(key)

    def _entry(self, key: Any) -> Symbol:
        if isinstance(key, str) and _IDENTIFIER.fullmatch(key) is not None:
            return Symbol(f"{self._operand}.{key}", self._needs, is_atom=True)
        found = literal(key)
        return Symbol(f"{self._operand}[{found._text}]", _joined(self, found), is_atom=True)

    @property
    def _operand(self) -> str:
        return self._text if self._is_atom else f"({self._text})"

    # Operators. What `and`, `or` and `not` are in Python cannot be told from a question for true or false.

    def _with(self, operator: str, other: Any, *, swapped: bool = False) -> Symbol:
        right = literal(other)
        first, second = (right, self) if swapped else (self, right)
        return Symbol(f"{first._operand} {operator} {second._operand}", _joined(first, second))

    def _compare(self, operator: str, other: Any) -> Symbol:
        right = literal(other)
        compared = None if isinstance(other, Symbol) else (self._text, f"{operator} {right._operand}")
        return Symbol(f"{self._operand} {operator} {right._operand}", _joined(self, right), compared=compared)

    def __eq__(self, other: object) -> Symbol:  # type: ignore[override]
        return self._compare("==", other)

    def __ne__(self, other: object) -> Symbol:  # type: ignore[override]
        return self._compare("!=", other)

    def __lt__(self, other: Any) -> Symbol:
        return self._compare("<", other)

    def __le__(self, other: Any) -> Symbol:
        return self._compare("<=", other)

    def __gt__(self, other: Any) -> Symbol:
        return self._compare(">", other)

    def __ge__(self, other: Any) -> Symbol:
        return self._compare(">=", other)

    def __and__(self, other: Any) -> Symbol:
        return self._with("and", other)

    def __or__(self, other: Any) -> Symbol:
        return self._with("or", other)

    def __invert__(self) -> Symbol:
        return Symbol(f"not {self._operand}", self._needs)

    def __neg__(self) -> Symbol:
        return Symbol(f"-{self._operand}", self._needs)

    def __add__(self, other: Any) -> Symbol:
        return self._with("+", other)

    def __radd__(self, other: Any) -> Symbol:
        return self._with("+", other, swapped=True)

    def __sub__(self, other: Any) -> Symbol:
        return self._with("-", other)

    def __rsub__(self, other: Any) -> Symbol:
        return self._with("-", other, swapped=True)

    def __mul__(self, other: Any) -> Symbol:
        return self._with("*", other)

    def __rmul__(self, other: Any) -> Symbol:
        return self._with("*", other, swapped=True)

    def __truediv__(self, other: Any) -> Symbol:
        return self._with("/", other)

    def __rtruediv__(self, other: Any) -> Symbol:
        return self._with("/", other, swapped=True)

    def __floordiv__(self, other: Any) -> Symbol:
        return self._with("//", other)

    def __rfloordiv__(self, other: Any) -> Symbol:
        return self._with("//", other, swapped=True)

    def __mod__(self, other: Any) -> Symbol:
        return self._with("%", other)

    def __rmod__(self, other: Any) -> Symbol:
        return self._with("%", other, swapped=True)

    def __pow__(self, other: Any) -> Symbol:
        return self._with("**", other)

    def __rpow__(self, other: Any) -> Symbol:
        return self._with("**", other, swapped=True)

    # Order: `a >> b` lets b wait for a, `a << b` a for b.

    def __rshift__(self, other: Any) -> Any:
        return _ordered(self, other, other)

    def __lshift__(self, other: Any) -> Any:
        return _ordered(other, self, other)

    def __rrshift__(self, other: Any) -> Symbol:
        return _ordered(other, self, self)  # type: ignore[no-any-return]

    def __rlshift__(self, other: Any) -> Symbol:
        return _ordered(self, other, self)  # type: ignore[no-any-return]

    # In texts.

    def __str__(self) -> str:
        if (composer := COMPOSER.get()) is None:
            return repr(self)
        return f"{_OPEN}{composer.write(self)}{_CLOSE}"

    def __format__(self, how: str) -> str:
        if how:
            raise cannot_compile(
                f"the format {how!r} cannot be compiled: use weft.filtered, or let a task write the text"
            )
        return str(self)

    # In async workflows a call may be awaited, as it would be elsewhere.

    def __await__(self) -> Generator[None, None, Symbol]:
        return self
        yield

    # What would need the value itself.

    def __bool__(self) -> NoReturn:
        raise cannot_compile(
            f"{self._text} is known only when a job runs, so Python cannot decide by it: for `if` use weft.when; for "
            "`and`, `or`, `not` write &, | and ~, with each comparison in parentheses"
        )

    def __iter__(self) -> Iterator[Any]:
        raise cannot_compile(
            f"{self._text} is known only when a job runs, so Python cannot go through it: use task.map(…), or take "
            "single entries by [0]"
        )

    def __len__(self) -> int:
        raise cannot_compile(f'write weft.filtered(…, "length") for the length of {self._text}')

    def __contains__(self, item: object) -> bool:
        raise cannot_compile("`in` cannot be compiled: compare with each by ==, and join these with |")

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:  # noqa: D102  it says why it refuses
        raise cannot_compile(
            f"{self._text} is a value, and cannot be called: fields of it are values too; what a method would do is "
            "for a task, or for weft.filtered"
        )

    def __setitem__(self, key: object, value: object) -> None:
        raise cannot_compile(f"{self._text} cannot be changed: let a task return what it should be")

    def __int__(self) -> int:
        raise cannot_compile(f'write weft.filtered(…, "int") for {self._text} as a whole number')

    __index__ = __int__

    def __float__(self) -> float:
        raise cannot_compile(f'write weft.filtered(…, "float") for {self._text} as a number')

    __hash__ = None  # type: ignore[assignment]


def _ordered(before: Any, after: Any, result: Any) -> Any:
    if (composer := COMPOSER.get()) is None:
        raise cannot_compile("`>>` orders nodes only while a workflow is composed")
    composer.order(before, after)
    return result


def _joined(*symbols: Symbol) -> Needs:
    return tuple(dict.fromkeys(need for symbol in symbols for need in symbol._needs))


def text_of(symbol: Symbol) -> str:
    """Return a value as an expression without ``{{ }}``."""
    return symbol._text


def needs_of(symbol: Symbol) -> Needs:
    """Return the nodes that must have ended before a value is known."""
    return symbol._needs


def comparison_of(symbol: Symbol) -> tuple[str, str] | None:
    """Return the value and what it is compared with, such as ``< 100``, if that is all that a value is."""
    return symbol._compared


def chosen(condition: Symbol, then: Any, otherwise: Any, by: str) -> Symbol:
    """Return one value or the other by a condition, when the node ``by`` has decided."""
    first, second = literal(then), literal(otherwise)
    text = f"{first._operand} if {condition._operand} else {second._operand}"
    return Symbol(text, tuple(dict.fromkeys((by, *_joined(first, second, condition)))))


def filtered(value: Any, name: str, /, *args: Any, **kwargs: Any) -> Any:
    """Apply one of the [filters](expressions.md) to a value in a workflow.

    Example::

        with weft.when(weft.filtered(rows, "length") > 1000):
            warn(rows)
    """
    symbol = literal(value)
    given = [literal(each) for each in args]
    named = {key: literal(each) for key, each in kwargs.items()}
    told = [each._text for each in given] + [f"{key}={each._text}" for key, each in named.items()]
    text = f"{symbol._operand} | {name}" + (f"({', '.join(told)})" if told else "")
    return Symbol(text, _joined(symbol, *given, *named.values()))


def literal(value: Any) -> Symbol:
    """Return any value as an expression."""
    match value:
        case Symbol():
            return value
        case None:
            return Symbol("none", is_atom=True)
        case bool():
            return Symbol("true" if value else "false", is_atom=True)
        case str():
            parts = list(_parts(value))
            if parts and all(isinstance(part, str) for part in parts):
                return Symbol(_quoted(value), is_atom=True)
            written = [
                Symbol(_quoted(part), is_atom=True) if isinstance(part, str) else filtered(part, "string")
                for part in parts
            ]
            return Symbol(" ~ ".join(part._operand for part in written) or "''", _joined(*written))
        case int() | float():
            if isinstance(value, float) and not math.isfinite(value):
                raise cannot_compile(f"{value} is no number that JSON has")
            return Symbol(repr(value), is_atom=value >= 0)
        case list() | tuple():
            items = [literal(item) for item in value]
            return Symbol(f"[{', '.join(item._text for item in items)}]", _joined(*items), is_atom=True)
        case dict():
            entries = {_key(key): literal(entry) for key, entry in value.items()}
            inside = ", ".join(f"{_quoted(key)}: {entry._text}" for key, entry in entries.items())
            return Symbol(f"{{{inside}}}", _joined(*entries.values()), is_atom=True)
    return literal(_converted(value))


def template(value: Any) -> tuple[Any, Needs]:
    """Return a value of any depth as the definition has it, and the nodes that it needs."""
    needs: dict[str, None] = {}
    return _template(value, needs), tuple(needs)


def _template(value: Any, needs: dict[str, None]) -> Any:
    match value:
        case Symbol():
            needs.update(dict.fromkeys(value._needs))
            return f"{{{{ {value._text} }}}}"
        case str():
            return _text_template(value, needs)
        case None | bool() | int() | float():
            return value
        case list() | tuple():
            return [_template(item, needs) for item in value]
        case dict():
            return {_key(key): _template(entry, needs) for key, entry in value.items()}
    return _template(_converted(value), needs)


def _text_template(text: str, needs: dict[str, None]) -> str:
    parts = list(_parts(text))
    if len(parts) == 1 and isinstance(parts[0], Symbol):
        # Alone it would keep its type, and what was written is a text.
        return str(_template(filtered(parts[0], "string"), needs))
    if not any(isinstance(part, Symbol) for part in parts):
        return f"{{{{ {_quoted(text)} }}}}" if has_expression(text) else text
    found = ""
    for part in parts:
        if isinstance(part, Symbol):
            found += str(_template(part, needs))
        else:
            found += f"{{{{ {_quoted(part)} }}}}" if "{" in part or "}" in part else part
    return found


def _parts(text: str) -> Iterator[str | Symbol]:
    """Yield the pieces of a text: what was written as it stands, and the values that were written into it."""
    for place, part in enumerate(_MARK.split(text)):
        if place % 2:
            composer = COMPOSER.get()
            if composer is None:
                raise cannot_compile("a text with a value in it is of use only while its workflow is composed")
            yield composer.written(int(part))
        elif _OPEN in part or _CLOSE in part:
            raise cannot_compile("a text with a value in it was changed: let a task do that")
        elif part:
            yield part


def _key(key: object) -> str:
    if not isinstance(key, str) or _OPEN in key:
        raise cannot_compile(f"the key {key!r} must be a text that is known now")
    return key


def _converted(value: Any) -> Any:
    if inspect.iscoroutine(value):
        value.close()
        raise cannot_compile(
            f"{value.__qualname__} is no task: decorate it with @weft.task, or it is not called by a job"
        )
    if isinstance(value, type) or callable(value):
        name = getattr(value, "__qualname__", type(value).__name__)
        if "<lambda>" in name:
            raise cannot_compile("a lambda cannot be kept in a definition: make it a @weft.task")
        raise cannot_compile(f"{name} cannot be kept in a definition: make it a @weft.task, and call that")
    if isinstance(value, Mapping):
        return dict(value)
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    try:
        found = plain(value, "value")
    except InvalidInput as problem:
        raise cannot_compile(problem.problem) from None
    if found is value or not isinstance(found, (str, int, float, bool, list, dict, type(None))):
        raise cannot_compile(f"a {type(value).__name__} is no JSON")
    return found


def _quoted(text: str) -> str:
    """Return a text as a literal of an expression."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return "'" + "".join(each if each >= " " else f"\\x{ord(each):02x}" for each in escaped) + "'"
