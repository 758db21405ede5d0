"""Expressions: Jinja's language, read by Jinja, evaluated over JSON alone.

Jinja's own parser reads the text, so that the language is the one that people know. What it read is not turned into
Python code, as Jinja does, but into closures that know values of JSON, the filters of `weft.flow.filters` and nothing
else: there are no attributes, no calls and no names to escape by, and all that can grow is counted before it does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from weft.flow.budget import Budget, ExpressionError
from weft.flow.values import Json, Missing, field_of, present, written

MAX_TEXT = 10_000
MAX_FIELDS = 200
NAMES = ("inputs", "nodes", "item", "index", "job")
# What is visible outside of the task of a fan_out.
OUTSIDE = ("inputs", "nodes", "job")
_PLAIN = re.compile(r"\{\{\s*([a-z]+(?:\.[A-Za-z_][A-Za-z0-9_]*){0,50})\s*\}\}")

Values = Mapping[str, Json]
Evaluate = Callable[[Values, Budget], Json]


class Reference(NamedTuple):
    """A name that an expression uses, and the fields that it takes of it: ``nodes``, ``a``, ``output``."""

    name: str
    fields: tuple[str | int | None, ...]

    def __str__(self) -> str:
        return ".".join((self.name, *(str(each) for each in self.fields)))


@dataclass(frozen=True)
class Expression:
    """A text that was read once and can be evaluated often."""

    source: str
    references: tuple[Reference, ...]
    _evaluate: Evaluate

    def evaluate(self, values: Values, budget: Budget | None = None) -> Json:
        """Return the value with these names; raises `ExpressionError`."""
        try:
            return present(self._evaluate(values, budget or Budget()))
        except RecursionError:
            raise ExpressionError("the expression is nested too deep") from None


@lru_cache(maxsize=20_000)
def read_template(text: str, names: tuple[str, ...] = NAMES) -> Expression:
    """Return the expression of a text with ``{{ … }}`` in it; raises `ExpressionError` for what is none.

    A text that is exactly one ``{{ … }}`` keeps the type of its value; anything else becomes text. Example::

        read_template("{{ nodes.fetch.output.rows }}").evaluate({"nodes": {"fetch": {"output": {"rows": [1]}}}})
    """
    if (plain := _PLAIN.fullmatch(text)) is not None:
        # By far the most are only a path: a hundred times quicker than by way of a syntax tree.
        name, *fields = plain[1].split(".")
        if name in names:
            return Expression(text, (Reference(name, tuple(fields)),), _path(name, fields))
    from weft.flow.compiling import Compiler, bounded, parse

    compiler = Compiler(names)
    read = parse(text)
    parts = [compiler.compile(node) for node in read]
    if len(parts) == 1 and text.strip().startswith("{{") and text.strip().endswith("}}") and not text[0].isspace():
        return Expression(text, tuple(compiler.references), bounded(read[0], parts[0]))

    def join(values: Values, budget: Budget) -> str:
        return "".join([written(part(values, budget), budget) for part in parts])

    return Expression(text, tuple(compiler.references), join)


@lru_cache(maxsize=5_000)
def read_expression(text: str, names: tuple[str, ...] = NAMES) -> Expression:
    """Return the expression of a text without ``{{ }}`` around it."""
    from weft.flow.compiling import Compiler, bounded, parse

    compiler = Compiler(names)
    parts = parse("{{" + text + "}}", is_bare=True)
    if len(parts) != 1:
        raise ExpressionError("more than one expression")
    evaluate = bounded(parts[0], compiler.compile(parts[0]))
    return Expression(text, tuple(compiler.references), evaluate)


def has_expression(text: str) -> bool:
    """Whether a text has something to evaluate or to leave out."""
    return "{{" in text or "{%" in text or "{#" in text


def _path(name: str, fields: list[str]) -> Evaluate:
    steps = [(field, ".".join((name, *fields[: place + 1]))) for place, field in enumerate(fields)]

    def evaluate(values: Values, budget: Budget) -> Json:
        value = named(values, name)
        for field, known_as in steps:
            value = field_of(value, field, known_as)
        return value

    return evaluate


def named(values: Values, name: str) -> Json:
    """Return the value of a name."""
    return values[name] if name in values else Missing(name)
