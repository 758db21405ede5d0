"""``weft schema``: prints the JSON Schema of workflow definitions."""

from __future__ import annotations

from weft.cli.apps import JsonFlag, new_app

app = new_app()


@app.command()
def schema(as_json: JsonFlag = False) -> None:
    """Print the JSON Schema of workflow definitions, by which editors complete and check them."""
    from weft.cli.output import print_json
    from weft.flow.published import json_schema

    print_json(json_schema())
