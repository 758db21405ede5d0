"""``weft schedules backfill``: makes up for ticks that are over, shows how far that is, and cancels it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from weft.cli.apps import JsonFlag
from weft.cli.calls import call
from weft.cli.completion import complete_schedule
from weft.cli.lists import Listing
from weft.cli.reasons import says_why

if TYPE_CHECKING:
    from weft.live.schedules import Backfill

Name = Annotated[str, typer.Argument(metavar="SCHEDULE", help="The schedule's name.", autocompletion=complete_schedule)]
_COLUMNS = ("ID", "SINCE", "UNTIL", "MADE>", "RUNNING>", "MISSED>", "ENDED", "")
_LISTING = Listing("backfills", _COLUMNS, "no backfills", key="id", by="before")


@says_why
def backfill(
    schedule: Name,
    since: Annotated[str, typer.Option(metavar="TIME", help="From when: 2026-01-01, or 30d for so long ago.")],
    until: Annotated[str | None, typer.Option(metavar="TIME", help="To when; now unless said.")] = None,
    at_once: Annotated[int, typer.Option("--at-once", min=1, max=1000, help="How many jobs may run at a time.")] = 1,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count the ticks.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Make up for the ticks of a time that is over; orchestrators see to it, a few jobs at once."""
    from weft.cli.inputs import read_since
    from weft.cli.output import as_record, plural, tell

    first, last = read_since("--since", since), read_since("--until", until)
    assert first is not None
    made = call(
        lambda client: client.schedules.backfill(schedule, since=first, until=last, at_once=at_once, dry_run=dry_run)
    )
    told = "would make jobs of" if dry_run else f"backfill {made.id} makes jobs of"
    record = as_record(made) | ({"id": None} if dry_run else {})
    tell(record, f"{told} {plural(made.ticks, 'tick')}, {made.at_once} at once", as_json=as_json)


def list_backfills(
    schedule: Name,
    before: Annotated[str | None, typer.Option(metavar="ID", help="Go on before this one: the next page.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="At most so many.")] = 100,
    as_json: JsonFlag = False,
) -> None:
    """List the backfills of a schedule, the newest first, with how far each has come."""
    from weft.cli.inputs import read_id

    highest = read_id("--before", before, shown_by=f"weft schedules backfills {schedule}")
    found = call(lambda client: client.schedules.backfills(schedule, before=highest, limit=limit))
    _LISTING.show(found, _row, limit, as_json=as_json)


def _row(each: Backfill) -> tuple[Any, ...]:
    from weft.cli.output import one_line, state, when

    note = state("cancelled") if each.cancelled_at is not None else one_line(each.last_error or "")
    made = f"{each.made} of {each.ticks}"
    moments = when(each.since), when(each.until)
    return str(each.id), *moments, made, each.running, each.missed or "", when(each.ended_at), note


@says_why
def cancel_backfill(
    backfill_id: Annotated[str, typer.Argument(metavar="ID", help="The backfill's id.")], as_json: JsonFlag = False
) -> None:
    """Let nothing more begin by a backfill; jobs that have begun go on."""
    from weft.cli.inputs import read_id
    from weft.cli.output import tell

    chosen = read_id("id", backfill_id, shown_by="weft schedules backfills SCHEDULE") or 0
    call(lambda client: client.schedules.cancel_backfill(chosen))
    tell({"id": str(chosen), "cancelled": True}, f"cancelled backfill {chosen}", as_json=as_json)
