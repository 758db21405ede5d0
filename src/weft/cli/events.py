"""``weft events``: tells jobs of what happened outside."""

from __future__ import annotations

from typing import Annotated

import typer

from weft.cli.apps import JsonFlag, new_app
from weft.cli.calls import call
from weft.cli.inputs import read_params
from weft.cli.reasons import says_why
from weft.core.errors import InvalidInput

app = new_app("Tell jobs and live DAGs of events.")


@app.callback()
def group() -> None:
    """Tell jobs and live DAGs of events."""


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
    """Send an event to all sources of live DAGs that listen for it, and all nodes that wait for one like it.

    The nodes are those that wait now, and later in jobs that are there.
    """
    from weft.cli.output import tell

    value = read_params(payload, "payload")
    sent = call(lambda client: client.jobs.send_event(name, value, idempotency_key=key))
    told = {"id": str(sent.id), "name": name, "answered": sent.answered, "created": sent.created}
    told["sources"] = sent.sources
    what = f"sent {name}" if sent.created else f"{name} was sent before with that key"
    tell(
        told, f"{what}; {sent.answered} nodes of jobs waited for it, {sent.sources} sources of live DAGs took it",
        as_json=as_json,
    )  # fmt: skip


@app.command("send-many")
@says_why
def send_many(
    events: Annotated[
        str,
        typer.Argument(metavar="JSON|-|@FILE", help="A JSON array of objects: name, payload and idempotency_key."),
    ],
    as_json: JsonFlag = False,
) -> None:
    """Send many events, a thousand in a transaction; with keys, the same again sends what is missing."""
    from weft.cli.output import tell
    from weft.jobs.model import NewEvent
    from weft.jobs.sending import MOST

    found = read_params(events, "events")
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise InvalidInput("events", "must be an array of objects, each with name, payload and idempotency_key")
    known = set(NewEvent._fields)
    for place, each in enumerate(found):
        if wrong := sorted(each.keys() - known) or ({"name"} - each.keys()):
            raise InvalidInput(
                f"events.{place}", f"must have name, and may have payload, idempotency_key: {min(wrong)}"
            )
    told = [NewEvent(**each) for each in found]
    created = 0
    for first in range(0, len(told), MOST):
        part = told[first : first + MOST]
        sent = call(lambda client, part=part: client.jobs.send_events(part))  # type: ignore[misc]
        created += sum(each.created for each in sent)
    tell(
        {"sent": created, "known": len(told) - created},
        f"sent {created}, {len(told) - created} were sent before with their keys", as_json=as_json,
    )  # fmt: skip
