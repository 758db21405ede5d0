"""``weft events``: tells jobs of what happened outside."""

from __future__ import annotations

from typing import Annotated

import typer

from weft.cli.apps import JsonFlag, new_app
from weft.cli.calls import call
from weft.cli.inputs import read_params
from weft.cli.reasons import says_why

app = new_app("Tell jobs of events.")


@app.callback()
def group() -> None:
    """Tell jobs of events."""


@app.command()
@says_why
def send(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the event, such as file.arrived.")],
    payload: Annotated[
        str | None, typer.Option(metavar="JSON|-|@FILE", help="A JSON object: what nodes match, and are given.")
    ] = None,
    key: Annotated[
        str | None, typer.Option("--idempotency-key", help="A known key sends nothing, and tells what the first did.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Send an event to all nodes that wait for one like it, now or later in jobs that are there."""
    from weft.cli.output import tell

    value = read_params(payload, "payload")
    sent = call(lambda client: client.jobs.send_event(name, value, idempotency_key=key))
    told = {"id": str(sent.id), "name": name, "answered": sent.answered, "created": sent.created}
    what = f"sent {name}" if sent.created else f"{name} was sent before with that key"
    tell(told, f"{what}, {sent.answered} waited for it", as_json=as_json)
