"""The tables that a query reads or makes, as far as it matters of what their columns are made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# Columns of datasets, each by the dataset and its name there.
Sources = frozenset[tuple[str, str]]


class Untellable(Exception):
    """What a query has that keeps its columns from being told; the message says it."""


@dataclass(frozen=True, slots=True)
class Relation:
    """A table: its columns by name in small letters, each as it is written and what it is made of.

    Where ``rest`` is given there may be others, of whatever name, that are made of this.
    """

    columns: Mapping[str, tuple[str, Sources]]
    rest: Sources | None = None

    def get(self, name: str) -> Sources | None:
        """Return what a column is made of; None when there is none of that name."""
        return self.columns[name][1] if name in self.columns else self.rest

    def all(self) -> Sources:
        """Return what all columns together are made of."""
        return (self.rest or frozenset()).union(*(sources for _, sources in self.columns.values()))


@dataclass(slots=True)
class Outer:
    """What a query may name that stands outside of it: tables that were made before, and the selects around it."""

    made: Mapping[str, Relation]
    above: Outer | None = None


def named_apart(
    outputs: Sequence[tuple[str | None, Sources]], renamed: Sequence[str]
) -> dict[str, tuple[str, Sources]]:
    """Return columns by name as a table has them: renamed in their order, and with a number where a name is taken."""
    found: dict[str, tuple[str, Sources]] = {}
    taken: dict[str, int] = {}
    for place, (name, sources) in enumerate(outputs):
        shown = apart = renamed[place] if place < len(renamed) else name or f"\0{place}"
        while apart.lower() in found:
            taken[shown] = taken.get(shown, 0) + 1
            apart = f"{shown}_{taken[shown]}"
        found[apart.lower()] = apart, sources
    return found
