"""``weft outbox``: looks at effects that wait to be carried out, and replays those that failed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from weft.cli.apps import JsonFlag, new_app
from weft.cli.calls import call
from weft.cli.inputs import read_id

if TYPE_CHECKING:
    from weft.queue.outbox import OutboxRow

app = new_app("Look at the outbox, effects that are carried out after their cause is committed; replay what failed.")

_COLUMNS = ("ID", "STATE", "KIND~", "KEY~", "ATTEMPTS>", "CREATED", "DUE", "LAST ERROR~")


@app.command("list")
def list_rows(
    state: Annotated[str | None, typer.Option(help="pending, processing, done or failed.")] = None,
    kind: Annotated[str | None, typer.Option(help="Of this kind only.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many at most.")] = 50,
    before: Annotated[str | None, typer.Option(metavar="ID", help="Go on below this id: the next page.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """List effects, newest first."""
    from weft.cli.output import as_record, print_json, print_table
    from weft.core.errors import InvalidInput
    from weft.core.states import OutboxState

    if state is not None and state not in list(OutboxState):
        raise InvalidInput("state", f"{state!r} is not one of {', '.join(OutboxState)}")
    key = read_id("before", before)
    rows = call(lambda client: client.outbox(state=state, kind=kind, before=key, limit=limit))
    if as_json:
        following = str(rows[-1].id) if len(rows) == limit else None
        print_json({"effects": [as_record(row) for row in rows], "next_before": following})
    else:
        print_table(_COLUMNS, map(_row, rows), empty="the outbox is empty")


def _row(row: OutboxRow) -> tuple[Any, ...]:
    from weft.cli.output import state, when

    due = when(row.available_at) if row.state == "pending" else ""
    if row.state == "pending" and not row.has_sink:
        due = "no release carries it out yet"
    return (
        row.id, state(row.state), row.kind, row.ordering_key, row.attempts, when(row.created_at), due, row.last_error,
    )  # fmt: skip


@app.command()
def replay(
    ids: Annotated[list[str] | None, typer.Argument(metavar="ID", help="Ids of effects that failed.")] = None,
    every: Annotated[bool, typer.Option("--all", help="All that failed.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Send effects that failed round again."""
    from weft.cli.output import print_json
    from weft.core.errors import InvalidInput

    if bool(ids) == every:
        raise InvalidInput("id", "name the effects to replay, or give --all")
    keys = [read_id("id", key) or 0 for key in ids] if ids else None
    count = call(lambda client: client.replay_outbox(keys))
    if as_json:
        print_json({"replayed": count})
    else:
        print(f"replayed {count}")
