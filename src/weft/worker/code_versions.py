"""The hash of a handler's code: what it does when it is called, and not where it stands."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from inspect import getattr_static
from types import CodeType, FunctionType, MethodType
from typing import Any

# Values that are written the same in every process; of others only the type is known.
_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis))
_LENGTH = 32


def code_version(function: Callable[..., Any]) -> str:
    """Return the hash of a function, and of the functions of its own module that it names; the same in every process.

    Lines, file names and docstrings make no difference; another release of Python may. Example::

        assert code_version(handler.function) == code_version(handler.function)
    """
    found = hashlib.sha256()
    for each in _reached(function):
        for part in _function(each):
            found.update(part.encode(errors="backslashreplace"))
            found.update(b"\0")
    return found.hexdigest()[:_LENGTH]


def _reached(function: Any) -> Iterator[FunctionType]:
    """Yield a function and those that it can call and that are part of it: wrapped, enclosed, named in its module."""
    seen: set[int] = set()
    open_ = [function]
    while open_:
        each = _plain_function(open_.pop())
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        cells = (_content(cell) for cell in each.__closure__ or ())
        named = (_plain_function(each.__globals__.get(name)) for name in sorted(_names(each.__code__)))
        own = (value for value in named if value is not None and value.__module__ == each.__module__)
        open_ += reversed([getattr(each, "__wrapped__", None), *cells, *own])


def _plain_function(value: Any) -> FunctionType | None:
    """Return the function that a value is or stands for, as a handler does; asks nothing of a stranger's own code."""
    if type(value) is MethodType:
        value = value.__func__
    if type(value) is not FunctionType:
        value = getattr_static(value, "__wrapped__", None)
    return value if type(value) is FunctionType else None


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return None


def _names(code: CodeType) -> set[str]:
    inner = (_names(const) for const in code.co_consts if isinstance(const, CodeType))
    return set(code.co_names).union(*inner)


def _function(function: FunctionType) -> Iterator[str]:
    yield from _code(function.__code__, function.__doc__)
    yield _value(function.__defaults__)
    yield _value(tuple(sorted((function.__kwdefaults__ or {}).items())))


def _code(code: CodeType, doc: str | None) -> Iterator[str]:
    yield code.co_code.hex()
    yield code.co_exceptiontable.hex()
    names = code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars
    yield repr((code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags, *names))
    for place, const in enumerate(code.co_consts):
        if isinstance(const, CodeType):
            yield from _code(const, None)
        elif place > 0 or doc is None or const != doc:
            yield _value(const)


def _value(value: Any) -> str:
    kind = type(value)
    if kind in _PLAIN:
        return f"{kind.__name__}:{value!r}"
    if kind in (tuple, list):
        return f"{kind.__name__}({','.join(map(_value, value))})"
    if kind in (frozenset, set):
        return f"{kind.__name__}({','.join(sorted(map(_value, value)))})"
    if kind is dict:
        return f"dict({','.join(sorted(_value(item) for item in value.items()))})"
    return f"<{kind.__module__}.{kind.__qualname__}>"
