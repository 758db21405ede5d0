"""``weft health``: says whether an installation is well."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from weft.cli.apps import JsonFlag, new_app

if TYPE_CHECKING:
    from weft.jobs.health import Health

app = new_app()
ILL = 1


@app.command()
def health(as_json: JsonFlag = False) -> None:
    """Say whether the database, workers, orchestrators and tasks are well; the exit code is 1 when one is not."""
    from weft.cli.output import as_record, print_json, print_table, styled

    found = _found()
    if as_json:
        print_json(as_record(found))
    else:
        rows = [
            (
                check.name,
                styled("ok", "green") if check.ok else styled("not ok", "red"),
                check.text + (f"; {check.advice}" if check.advice else ""),
            )
            for check in found.checks
        ]
        print_table(("PART", "", "FOUND"), rows, empty="")
    if not found.ok:
        raise typer.Exit(ILL)


def _found() -> Health:
    from weft.cli.calls import call
    from weft.core.errors import DatabaseUnavailable, SchemaOutdated
    from weft.jobs.health import without_database

    try:
        return call(lambda client: client.health())
    except (DatabaseUnavailable, SchemaOutdated) as problem:
        return without_database(problem)
