"""Prints a page of a list, with how the next one is asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

Limit = Annotated[int | None, typer.Option(min=1, max=1000, help="How many at most; all when left out.")]
AfterName = Annotated[str, typer.Option(metavar="NAME", help="Go on after this name: the next page.")]


@dataclass(frozen=True, slots=True)
class Listing:
    """How a list is shown: its name in JSON, its columns, and what stands there when there is nothing.

    ``key`` is the field by which the page that follows is asked for, with the option ``--{by}``.
    """

    name: str
    columns: Sequence[str]
    empty: str
    key: str
    by: str

    def show(
        self, found: Sequence[Any], row: Callable[[Any], Sequence[Any]], limit: int | None, *, as_json: bool
    ) -> None:
        """Print a page."""
        from weft.cli.output import as_record, print_json, print_more, print_table

        following = getattr(found[-1], self.key) if found and len(found) == limit else None
        if as_json:
            key = None if following is None else str(following)
            print_json({self.name: [as_record(each) for each in found], f"next_{self.by}": key})
            return
        print_table(self.columns, map(row, found), empty=self.empty)
        if following is not None:
            print_more(f"--{self.by}", following)
