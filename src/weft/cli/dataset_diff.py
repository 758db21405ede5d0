"""Prints what differs between two states of datasets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.cli.output import print_facts, print_table, remark

if TYPE_CHECKING:
    from weft.catalog.dataset_diff import DatasetDiff
    from weft.catalog.datasets import Column
    from weft.sdk.row_diff import RowChange, RowDiff

_SIGNS = {"added": "+", "removed": "-", "rewritten": "~", "changed": "~"}


def print_diff(found: DatasetDiff) -> None:
    """Print what differs in columns and partitions, and how many rows there are."""
    partitions = f"{found.partitions_added} added, {found.partitions_removed} removed"
    print_facts(
        {
            "from": found.old,
            "to": found.new,
            "rows": f"{found.rows_before} to {found.rows_after}",
            "partitions": f"{partitions}, {found.partitions_rewritten} rewritten",
        }
    )
    if found.columns:
        print_table(
            ("", "COLUMN~", "WAS~", "IS~"),
            [(_column_sign(each.old, each.new), each.name, _type(each.old), _type(each.new)) for each in found.columns],
            empty="",
        )
    # Data without partitions have one without a name, of which nothing more is to be told.
    if any(each.key for each in found.partitions):
        print_table(
            ("", "PARTITION~", "ROWS BEFORE>", "ROWS AFTER>"),
            [(_SIGNS[each.change], each.key, each.rows_before, each.rows_after) for each in found.partitions],
            empty="",
        )
    every = found.partitions_added + found.partitions_removed + found.partitions_rewritten
    if every > len(found.partitions):
        remark(f"there are {every:,} partitions that differ: see --limit")


def print_row_diff(found: RowDiff) -> None:
    """Print the rows that differ, each side of one that was changed on a line of its own."""
    counts = {"added": found.added, "removed": found.removed, "changed": found.changed}
    print_facts({"rows": ", ".join(f"{count} {word}" for word, count in counts.items())})
    lines: list[tuple[Any, ...]] = []
    for row in found.rows:
        lines += _lines(row)
    print_table(("", *(f"{name}~" for name in found.columns)), lines, empty="no rows differ")
    if sum(counts.values()) > len(found.rows):
        remark(f"there are {sum(counts.values()):,} rows that differ: see --limit")


def _lines(row: RowChange) -> list[tuple[Any, ...]]:
    sides = [("-" if row.after is None else "~ -", row.before), ("+" if row.before is None else "~ +", row.after)]
    return [(sign, *("" if cell is None else str(cell) for cell in side.values())) for sign, side in sides if side]


def _column_sign(old: Column | None, new: Column | None) -> str:
    return "+" if old is None else "-" if new is None else "~"


def _type(column: Column | None) -> str:
    return "" if column is None else column.type + ("" if column.nullable else " not null")
