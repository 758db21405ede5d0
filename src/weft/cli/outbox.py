"""``weft outbox``: looks at effects that wait to be carried out, adds one, and replays or purges those that failed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weft.cli.apps import JsonFlag, YesFlag, new_app
from weft.cli.calls import call, call_each
from weft.cli.inputs import read_id, read_params, read_word, require_yes, wants_all
from weft.cli.lists import Listing
from weft.cli.reasons import says_why
from weft.cli.tasks import After, Before, Oldest

if TYPE_CHECKING:
    from weft.queue.outbox import OutboxRow
    from weft.sdk.client import Client

app = new_app("Look at the outbox, effects that are carried out after a commit; replay or purge what failed.")

_COLUMNS = ("ID", "STATE", "KIND~", "KEY~", "ATTEMPTS>", "CREATED", "DUE", "LAST ERROR~")


@app.command("list")
def list_rows(
    state: Annotated[str | None, typer.Option(help="pending, processing, done or failed.")] = None,
    kind: Annotated[str | None, typer.Option(help="enqueue_task, route_event, callback or openlineage.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many at most.")] = 50,
    before: Before = None,
    oldest: Oldest = False,
    after: After = None,
    as_json: JsonFlag = False,
) -> None:
    """List effects, newest first."""
    from weft.core.states import OutboxKind, OutboxState

    read_word("state", state, OutboxState)
    read_word("kind", kind, OutboxKind)
    below, above, sort = read_id("before", before), read_id("after", after), "oldest" if oldest else "newest"
    rows = call(lambda client: client.outbox(state=state, kind=kind, sort=sort, before=below, after=above, limit=limit))
    shown = Listing("effects", _COLUMNS, "the outbox is empty", key="id", by="after" if oldest else "before")
    shown.show(rows, _row, limit, as_json=as_json)


@app.command()
def add(
    kind: Annotated[str, typer.Argument(metavar="KIND", help="enqueue_task; the engine adds the others.")],
    payload: Annotated[str, typer.Option(metavar="JSON|-|@FILE", help="What the effect is about.")],
    ordering_key: Annotated[str | None, typer.Option(help="Effects of one key are carried out in order.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Add an effect, to be carried out at least once, and print its id."""
    from weft.cli.output import print_json
    from weft.core.states import OutboxKind

    read_word("kind", kind, OutboxKind)
    value = read_params(payload, "payload")
    made = call(lambda client: client.add_effect(kind, value, ordering_key=ordering_key))
    if as_json:
        print_json({"id": str(made)})
    else:
        print(made)


def _row(row: OutboxRow) -> tuple[Any, ...]:
    from weft.cli.output import state, when

    due = when(row.available_at) if row.state == "pending" else ""
    if row.state == "pending" and not row.has_sink:
        due = "no release carries it out yet"
    return (
        row.id,
        state(row.state),
        row.kind,
        row.ordering_key,
        row.attempts,
        when(row.created_at),
        due,
        row.last_error,
    )


@app.command()
@says_why
def replay(
    ids: Annotated[list[str] | None, typer.Argument(metavar="ID", help="Ids of effects that failed.")] = None,
    every: Annotated[bool, typer.Option("--all", help="All that failed.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Send effects that failed round again."""
    from weft.cli.output import tell

    if not wants_all(ids, every=every, what="effects"):
        call_each("replayed", ids or [], _replay, as_json=as_json)
        return
    count = call(lambda client: client.replay_outbox())
    tell({"replayed": count, "found": count}, f"replayed {count}", as_json=as_json)


@app.command()
@says_why
def purge(
    ids: Annotated[list[str] | None, typer.Argument(metavar="ID", help="Ids of effects that failed.")] = None,
    every: Annotated[bool, typer.Option("--all", help="All that failed; takes --yes.")] = False,
    yes: YesFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Remove effects that failed for good; what waits behind them, of the same ordering key, is carried out."""
    from weft.cli.output import tell

    if not wants_all(ids, every=every, what="effects"):
        call_each("purged", ids or [], _purge, as_json=as_json)
        return
    require_yes(yes, "this removes all effects that failed for good")
    count = call(lambda client: client.purge_outbox())
    tell({"purged": count, "found": count}, f"purged {count}", as_json=as_json)


async def _replay(client: Client, key: str) -> None:
    await _act("replay", client.replay_outbox, client, key)


async def _purge(client: Client, key: str) -> None:
    await _act("purge", client.purge_outbox, client, key)


async def _act(verb: str, act: Callable[[list[int]], Awaitable[int]], client: Client, key: str) -> None:
    from weft.core.checks import check_id
    from weft.core.errors import NotFound, StateConflict

    effect_id = check_id(key, shown_by="weft outbox list")
    if await act([effect_id]):
        return
    for row in await client.outbox(before=effect_id + 1, limit=1):
        if row.id == effect_id:
            raise StateConflict(verb, key, row.state, ["failed"], "effect")
    raise NotFound("effect", key)
