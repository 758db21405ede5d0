"""``weft query``: asks datasets, and prints or writes the answer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weft.cli.apps import new_app
from weft.cli.calls import call

if TYPE_CHECKING:
    from weft.sdk.client import Client

app = new_app()
_FORMATS = ("table", "json", "csv", "arrow", "parquet")
_ENDINGS = {".json": "json", ".jsonl": "json", ".csv": "csv", ".arrow": "arrow", ".parquet": "parquet"}
# As many rows a table shows; the other formats have all.
_SHOWN = 1000


@app.command()
def query(
    sql: Annotated[str, typer.Argument(metavar="SQL", help='One select; `"orders@3"` is the version 3 of a dataset.')],
    format: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="WORD",
            help="table, json, csv, arrow or parquet; unless said a table, and with --output what its name ends in.",
        ),
    ] = None,
    as_of: Annotated[
        str | None, typer.Option(metavar="MOMENT", help="The datasets as they were at this moment.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write it there instead.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json: an object a line.")] = False,
) -> None:
    """Run a query over datasets, by DuckDB.

    It sees the datasets that you may see, and nothing else of the machine.
    """
    from weft.cli.inputs import read_moment
    from weft.core.errors import InvalidInput

    if format is not None and format not in _FORMATS:
        raise InvalidInput("--format", f"must be one of {', '.join(_FORMATS)}")
    if format == "table" and output is not None:
        raise InvalidInput("--format", "a table is only printed; a file takes json, csv, arrow or parquet")
    wanted = format or ("json" if as_json else _named(output))
    moment = read_moment("--as-of", as_of)
    if wanted == "table":
        print_rows(call(lambda client: _rows(client, sql, moment)))
        return
    if wanted in ("arrow", "parquet") and output is None and _is_terminal():
        raise InvalidInput("--output", f"name a file: {wanted} is nothing for a terminal")
    call(lambda client: _write(client, sql, wanted, moment, output))


def _named(output: Path | None) -> str:
    """Return the format that the name of a file ends in; without one that of a table."""
    from weft.core.errors import InvalidInput

    if output is None:
        return "table"
    if (ending := output.suffix.lower()) not in _ENDINGS:
        raise InvalidInput(
            "--output", f"{output.name} ends in none of {', '.join(_ENDINGS)}: say --format, or name it so"
        )
    return _ENDINGS[ending]


async def _rows(client: Client, sql: str, moment: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    async with client.datasets.query(sql, as_of=moment) as answer:
        async for row in answer.records():
            found.append(row)
            if len(found) > _SHOWN:
                break
    return found


async def _write(client: Client, sql: str, format: str, moment: Any, output: Path | None) -> None:
    import sys

    async with client.datasets.query(sql, format=format, as_of=moment) as answer:
        sink = sys.stdout.buffer if output is None else output.open("wb")
        try:
            async for piece in answer:
                sink.write(piece)
            sink.flush()
        finally:
            if output is not None:
                sink.close()


def print_rows(rows: list[dict[str, Any]]) -> None:
    """Print rows as a table, the first of many."""
    from weft.cli.output import print_table, remark

    columns = tuple(f"{name}~" for name in rows[0]) if rows else ("",)
    shown = rows[:_SHOWN]
    print_table(
        columns, [["" if value is None else str(value) for value in row.values()] for row in shown], empty="no rows"
    )
    if len(rows) > _SHOWN:
        remark(f"there are more than {_SHOWN:,} rows: take --format csv for all")


def _is_terminal() -> bool:
    import sys

    return sys.stdout.isatty()
