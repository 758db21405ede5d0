"""The rows that differ between two states of datasets: asked for by one query, and read from its answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from weft.catalog.dataset_diff import DatasetDiff
from weft.core.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class RowChange:
    """A row that differs: ``added``, ``removed`` or ``changed``; None on the side where it is not."""

    change: str
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class RowDiff:
    """The rows that differ between two states; as many as were asked for, and how many there are."""

    old: str
    new: str
    key: tuple[str, ...]
    columns: tuple[str, ...]
    added: int
    removed: int
    changed: int
    rows: tuple[RowChange, ...]


@dataclass(frozen=True, slots=True)
class RowQuery:
    """A query for the rows that differ, and how its answer is read."""

    old: str
    new: str
    key: tuple[str, ...]
    columns: tuple[str, ...]
    sql: str

    @classmethod
    def of(cls, diff: DatasetDiff, key: Sequence[str] | None, limit: int) -> Self:
        """Return the query for what a diff is between; raises `InvalidInput` for a key that is not there."""
        if not diff.common:
            raise InvalidInput("dataset", f"{diff.old} and {diff.new} have no column in common")
        wanted = tuple((diff.unique_key or ()) if key is None else key)
        missing = [name for name in wanted if name not in diff.common]
        if missing and key is not None:
            raise InvalidInput("key", f"both have no column {missing[0]!r}; they have {', '.join(diff.common)}")
        known = () if missing else wanted
        return cls(diff.old, diff.new, known, diff.common, _sql(diff, known, limit))

    def answer(self, rows: Sequence[Mapping[str, Any]]) -> RowDiff:
        """Return what the query has found."""
        added, removed, changed = (int(rows[0][name]) if rows else 0 for name in ("added", "removed", "altered"))
        found = tuple(self._row(row) for row in rows)
        return RowDiff(self.old, self.new, self.key, self.columns, added, removed, changed, found)

    def _row(self, row: Mapping[str, Any]) -> RowChange:
        before = {name: row[f"b{place}"] for place, name in enumerate(self.columns)}
        after = {name: row[f"a{place}"] for place, name in enumerate(self.columns)}
        change = row["change"]
        return RowChange(change, None if change == "added" else before, None if change == "removed" else after)


def _sql(diff: DatasetDiff, key: Sequence[str], limit: int) -> str:
    """Return the SQL: what is on one side only, and by the key which of both sides belong together.

    Of several rows with one key the first belongs to the first of the other side, and so on.
    """
    columns = ", ".join(_name(name) for name in diff.common)
    names = {name: place for place, name in enumerate(diff.common)}
    number_name = _apart("number", diff.common)
    within = ", ".join(_name(name) for name in key)
    number = f"row_number() over (partition by {within} order by {columns})" if key else "row_number() over ()"
    joined = [f"b.{_name(name)} is not distinct from a.{_name(name)}" for name in key] if key else ["false"]
    sides = [
        f"select {columns} from {_name(one)} except all select {columns} from {_name(other)}"
        for one, other in ((diff.old, diff.new), (diff.new, diff.old))
    ]
    shown = ", ".join(f"{side}.{_name(name)} as {side}{place}" for side in ("b", "a") for name, place in names.items())
    order = ", ".join(f"coalesce(a{names[name]}, b{names[name]})" for name in key) or "all"
    counted = ", ".join(
        f"count(*) filter (change = '{word}') over () as {told}"
        for word, told in (("added", "added"), ("removed", "removed"), ("changed", "altered"))
    )
    return f"""with before_rows as ({sides[0]}), after_rows as ({sides[1]}),
before_numbered as (select *, {number} as {number_name} from before_rows),
after_numbered as (select *, {number} as {number_name} from after_rows),
paired as (
  select case when b.{number_name} is null then 'added' when a.{number_name} is null then 'removed' else 'changed' end
    as change, {shown}
  from before_numbered b full join after_numbered a on {" and ".join(joined)} and b.{number_name} = a.{number_name}
)
select *, {counted} from paired order by {order} limit {limit}"""


def _apart(name: str, taken: Sequence[str]) -> str:
    """Return a name that is none of those that are taken, whatever their case."""
    others = {each.lower() for each in taken}
    while name in others:
        name += "_"
    return name


def _name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
