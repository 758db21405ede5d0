"""``weft schema``: prints the JSON Schema of workflow definitions, or of live DAGs."""

from __future__ import annotations

from typing import Annotated

import typer

from weft.cli.apps import JsonFlag, new_app

app = new_app()


@app.command()
def schema(
    live: Annotated[bool, typer.Option("--live", help="That of live DAGs.")] = False, as_json: JsonFlag = False
) -> None:
    """Print the JSON Schema of workflow definitions, or of live DAGs, by which editors complete and check them."""
    from weft.cli.output import print_json
    from weft.flow.live.published import dag_schema
    from weft.flow.published import json_schema

    print_json(dag_schema() if live else json_schema())
