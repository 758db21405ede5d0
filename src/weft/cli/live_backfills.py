"""``weft live backfill``: computes partitions anew, shows how far that is, and cancels it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from weft.cli.apps import JsonFlag
from weft.cli.calls import call
from weft.cli.deploy import Dag, show_plan
from weft.cli.lists import Listing
from weft.cli.reasons import says_why

if TYPE_CHECKING:
    from weft.live.backfilling import LiveBackfill

Job = Annotated[
    str, typer.Argument(metavar="JOB", help="The job; that in effect, or `candles@4` for that of version 4.")
]
Input = Annotated[
    str | None,
    typer.Option(
        "--input", metavar="DATASET", help="The input whose partitions are meant; the first of the job unless said."
    ),
]
_COLUMNS = ("ID", "JOB~", "FROM~", "TO~", "DONE>", "OPEN>", "HELD>", "ENDED", "")
_LISTING = Listing("backfills", _COLUMNS, "no backfills", key="id", by="before")
_MOST_AT_ONCE = 1000


@says_why
def rematerialize(
    dag: Dag,
    job: Job,
    partitions: Annotated[
        str | None, typer.Option(metavar="A,B", help="These partitions of what it reads; '' for rows that are in none.")
    ] = None,
    between: Annotated[
        str | None,
        typer.Option("--range", metavar="A:B", help="Those from one key to another; either may be left out."),
    ] = None,
    dataset: Input = None,
    whole: Annotated[
        bool, typer.Option("--all", help="All of its datasets, and those after it, built beside what is in effect.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only count the partitions, or with --all show what would be done.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Compute anew what a job has computed before, of the partitions as they are by now."""
    from weft.cli.output import as_record, plural, remark, tell
    from weft.core.errors import InvalidInput

    if sum((partitions is not None, between is not None, whole)) != 1:
        raise InvalidInput("partitions", "give one of --partitions, --range and --all")
    computes = "would compute" if dry_run else "computes"
    if whole:
        done = call(lambda client: client.live.rebuild(dag, job, dry_run=dry_run))
        if dry_run:
            show_plan(done, as_json=as_json)
            return
        told = f"builds version {done.version} of {dag}, with {job} and all after it anew"
        tell(as_record(done), told, as_json=as_json)
        for warning in () if as_json else done.warnings:
            remark(warning, lead="weft: warning: ")
        return
    if between is not None:
        first, last = _range(between)
        made = call(
            lambda client: client.live.backfill(
                dag, job, first=first, last=last, at_once=_MOST_AT_ONCE, dataset=dataset, dry_run=dry_run
            )
        )
        record = as_record(made) | ({"id": None} if dry_run else {})
        tell(record, f"{computes} {plural(made.partitions, 'partition')} anew", as_json=as_json)
        return
    keys = _keys(partitions or "")
    count = call(lambda client: client.live.rematerialize(dag, job, partitions=keys, dataset=dataset, dry_run=dry_run))
    facts = {"dag": dag, "job": job, "count": count, "is_dry_run": dry_run}
    tell(facts, f"{computes} {plural(count, 'partition')} anew", as_json=as_json)


@says_why
def backfill(
    dag: Dag,
    job: Job,
    between: Annotated[
        str, typer.Option("--range", metavar="A:B", help="From one key to another; all partitions unless said.")
    ] = ":",
    dataset: Input = None,
    at_once: Annotated[int, typer.Option("--at-once", min=1, max=1000, help="How many may be open at a time.")] = 1,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count the partitions.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Compute many partitions of what a job reads anew; orchestrators see to it, a few at once."""
    from weft.cli.output import as_record, plural, tell

    first, last = _range(between)
    made = call(
        lambda client: client.live.backfill(
            dag, job, first=first, last=last, at_once=at_once, dataset=dataset, dry_run=dry_run
        )
    )
    told = "would compute" if dry_run else f"backfill {made.id} computes"
    record = as_record(made) | ({"id": None} if dry_run else {})
    tell(record, f"{told} {plural(made.partitions, 'partition')} anew, {made.at_once} at once", as_json=as_json)


def _keys(text: str) -> list[str]:
    """Return keys that are written with commas between them; one that has a comma itself stands in quotes."""
    import csv

    return next(csv.reader([text])) or [""]


def _range(text: str) -> tuple[str | None, str | None]:
    from weft.core.errors import InvalidInput

    first, colon, last = text.partition(":")
    if not colon:
        raise InvalidInput("--range", f"{text!r} is none: write A:B, A: or :B")
    return first or None, last or None


def list_backfills(
    dag: Dag,
    before: Annotated[str | None, typer.Option(metavar="ID", help="Go on before this one: the next page.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="At most so many.")] = 100,
    as_json: JsonFlag = False,
) -> None:
    """List the backfills of a live DAG, the newest first, with how far each has come."""
    from weft.cli.inputs import read_id

    highest = read_id("--before", before, shown_by=f"weft live backfills {dag}")
    found = call(lambda client: client.live.backfills(dag, before=highest, limit=limit))
    _LISTING.show(found, _row, limit, as_json=as_json)


def _row(each: LiveBackfill) -> tuple[Any, ...]:
    from weft.cli.output import state, when

    note = state("cancelled") if each.cancelled_at is not None else ""
    done = f"{each.made - each.running} of {each.partitions}"
    told = str(each.id), each.job, each.first_key or "", each.last_key or "", done, each.running
    return *told, each.held or "", when(each.ended_at), note


@says_why
def cancel_backfill(
    backfill_id: Annotated[str, typer.Argument(metavar="ID", help="The backfill's id.")], as_json: JsonFlag = False
) -> None:
    """Let nothing more begin by a backfill; units that have begun go on."""
    from weft.cli.inputs import read_id
    from weft.cli.output import tell

    chosen = read_id("id", backfill_id, shown_by="weft live backfills DAG") or 0
    call(lambda client: client.live.cancel_backfill(chosen))
    tell({"id": str(chosen), "cancelled": True}, f"cancelled backfill {chosen}", as_json=as_json)
