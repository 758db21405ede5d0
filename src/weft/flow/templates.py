"""Whole values with expressions in them: params, outputs, inputs of other workflows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from weft.flow.budget import Budget, ExpressionError
from weft.flow.expressions import NAMES, Evaluate, Reference, Values, has_expression, read_template
from weft.flow.problems import Path
from weft.flow.values import Json, present

Broken = Callable[[Path, str], None]


@dataclass(frozen=True)
class Template:
    """A value that was read once and can be rendered often; a constant where it has no expression."""

    references: tuple[tuple[Path, Reference], ...]
    _render: Evaluate | None
    _constant: Json

    @property
    def is_constant(self) -> bool:
        """Whether there is nothing to evaluate in it."""
        return self._render is None

    def render(self, values: Values, budget: Budget | None = None) -> Json:
        """Return the value with its expressions evaluated; raises `ExpressionError`."""
        return self._constant if self._render is None else self._render(values, budget or Budget())


def read_value(value: Json, path: Path = (), names: tuple[str, ...] = NAMES, broken: Broken | None = None) -> Template:
    """Return the template of a value of any depth.

    What cannot be read raises `ExpressionError`, or is told to ``broken`` with its place, and reading goes on.
    """
    references: list[tuple[Path, Reference]] = []
    made = _made(value, path, names, broken, references)
    return Template(tuple(references), made, value)


def _made(
    value: Json, path: Path, names: tuple[str, ...], broken: Broken | None, references: list[tuple[Path, Reference]]
) -> Evaluate | None:
    if type(value) is str:
        if not has_expression(value):
            return None
        try:
            expression = read_template(value, names)
        except ExpressionError as problem:
            if broken is None:
                raise
            broken(path, str(problem))
            return None
        references += [(path, reference) for reference in expression.references]
        return expression.evaluate
    if type(value) is dict:
        entries = {key: _made(entry, (*path, key), names, broken, references) for key, entry in value.items()}
        if not any(entries.values()):
            return None
        return lambda values, budget: {
            key: value[key] if make is None else present(make(values, budget)) for key, make in entries.items()
        }
    if type(value) is list:
        items = [_made(item, (*path, place), names, broken, references) for place, item in enumerate(value)]
        if not any(items):
            return None
        return lambda values, budget: [
            item if make is None else present(make(values, budget)) for item, make in zip(value, items, strict=True)
        ]
    return None
