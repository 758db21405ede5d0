"""``weft explain``: says why a task ran, or had its output from the cache."""

from __future__ import annotations

from typing import Annotated

import typer

from weft.cli.apps import JsonFlag, new_app
from weft.cli.calls import call
from weft.cli.inputs import read_id

app = new_app()


@app.command()
def explain(
    task_id: Annotated[str, typer.Argument(metavar="TASK", help="The task's id.")], as_json: JsonFlag = False
) -> None:
    """Say why a task ran or did not: by the cache, its code, its params, and the datasets that it reads and writes."""
    from weft.cli.output import as_record, clean, print_json

    key = read_id("id", task_id) or 0
    found = call(lambda client: client.explain(key))
    if as_json:
        print_json(as_record(found))
    else:
        print(clean(found.text if found.advice is None else f"{found.text}; {found.advice}"))
