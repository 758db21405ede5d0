"""``weft schedules``: lets workflows begin by themselves, looks at when, and changes that."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weft.cli.apps import InputsOption, JsonFlag, YesFlag, new_app
from weft.cli.backfills import Name, backfill, cancel_backfill, list_backfills
from weft.cli.calls import call
from weft.cli.completion import complete_tag
from weft.cli.lists import AfterName, Listing
from weft.cli.reasons import says_why

if TYPE_CHECKING:
    from weft.live.schedules import Schedule
    from weft.sdk.client import Client

app = new_app("Let workflows begin by themselves, by cron or an interval, and make up for what was missed.")

Cron = Annotated[
    str | None,
    typer.Option(metavar="EXPRESSION", help="Minute, hour, day, month, weekday, as in `30 6 * * 1-5`; or @daily."),
]
Every = Annotated[str | None, typer.Option(metavar="DURATION", help="An interval instead: 90s, 15m, 6h.")]
Zone = Annotated[str | None, typer.Option("--timezone", metavar="ZONE", help="Such as Europe/Berlin; else UTC.")]
CatchUp = Annotated[
    str | None,
    typer.Option("--catch-up", metavar="WORD", help="What becomes of missed ticks: none, latest (unless said) or all."),
]
Overlap = Annotated[
    str | None,
    typer.Option(metavar="WORD", help="While the job before goes on: allow (unless said), or skip the tick."),
]
Priority = Annotated[int | None, typer.Option(help="The priority of its jobs.")]

_COLUMNS = ("SCHEDULE~", "TAG~", "WHEN~", "NEXT", "LAST", "JOB", "MISSED>", "")
_LISTING = Listing("schedules", _COLUMNS, "no schedules", key="name", by="after")
_SHOWN = 5


@app.command("list")
def list_schedules(
    tag: Annotated[str | None, typer.Option(help="Only those of this tag.", autocompletion=complete_tag)] = None,
    after: AfterName = "",
    limit: Annotated[int, typer.Option(min=1, max=1000, help="At most so many.")] = 100,
    as_json: JsonFlag = False,
) -> None:
    """List schedules by name, with their next tick and how the last one went."""
    found = call(lambda client: client.schedules.list(tag=tag, after=after, limit=limit))
    _LISTING.show(found, _row, limit, as_json=as_json)


def _row(each: Schedule) -> tuple[Any, ...]:
    from weft.cli.output import one_line, state, when

    is_paused = each.paused_at is not None
    note = state("paused") if is_paused else one_line(each.last_error or "")
    next_at = "" if is_paused else when(each.next_at)
    job_id = "" if each.last_job_id is None else str(each.last_job_id)
    return each.name, each.tag, _times(each), next_at, when(each.last_at), job_id, each.missed or "", note


def _times(each: Schedule) -> str:
    from weft.cli.output import span

    return f"{each.cron} {each.timezone}" if each.every is None else f"every {span(each.every)}"


@app.command()
@says_why
def add(
    tag: Annotated[
        str,
        typer.Argument(
            metavar="TAG",
            help="The workflow, by its tag: each job goes by where it stands then.",
            autocompletion=complete_tag,
        ),
    ],
    cron: Cron = None,
    every: Every = None,
    timezone: Zone = None,
    name: Annotated[str | None, typer.Option(help="What the schedule is called; the tag unless said.")] = None,
    inputs: InputsOption = None,
    catch_up: CatchUp = None,
    overlap: Overlap = None,
    priority: Priority = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Let a schedule of that name become as is said here.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print the first ticks that it would have.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Let the workflow at a tag begin by itself.

    Inputs may speak of the tick: -i 'day={{ tick.date }}'; so may tick.at and tick.previous, the tick before.

    With --replace the same command may be given again, as in a script that deploys: what is not said is as in a new
    schedule, one that is paused stays so, and the next tick stays where it is unless the times change.
    """
    said = _said(cron, every, timezone)
    if dry_run:
        _print_ticks(call(lambda client: client.schedules.preview(**said, count=_SHOWN)), timezone, as_json=as_json)
        return

    async def main(client: Client) -> tuple[Schedule, list[datetime]]:
        from weft.cli.run import declared_inputs, read_inputs

        given = read_inputs(inputs or [], await declared_inputs(client, tag))
        more = _given(catch_up=catch_up, overlap=overlap, priority=priority)
        made = await client.schedules.add(tag, name=name, inputs=given, replace=replace, **said, **more)
        return made, await client.schedules.ticks(made.name, _SHOWN)

    _tell("set" if replace else "added", *call(main), as_json=as_json)


def _said(cron: str | None, every: str | None, timezone: str | None) -> dict[str, Any]:
    from weft.cli.inputs import read_duration

    return _given(cron=cron, every=read_duration("--every", every), timezone=timezone)


def _given(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _tell(verb: str, made: Schedule, ticks: Sequence[datetime], *, as_json: bool) -> None:
    from weft.cli.output import as_record, tell

    first = ", ".join(_in_zone(tick, made.timezone) for tick in ticks[:3])
    tell(as_record(made) | {"ticks": ticks}, f"{verb} {made.name}: {_times(made)}; next {first}", as_json=as_json)


def _in_zone(moment: datetime, zone: str) -> str:
    """Return a moment as clocks show it in a zone."""
    from zoneinfo import ZoneInfo

    return moment.astimezone(ZoneInfo(zone)).isoformat(" ", timespec="seconds")


def _print_ticks(ticks: Sequence[datetime], zone: str | None, *, as_json: bool) -> None:
    from weft.cli.output import print_json

    if as_json:
        print_json({"ticks": ticks})
        return
    print(*(_in_zone(tick, zone or "UTC") for tick in ticks), sep="\n")


@app.command()
def show(schedule: Name, as_json: JsonFlag = False) -> None:
    """Show a schedule, with its next ticks."""
    import orjson

    from weft.cli.output import as_record, moment_text, print_facts, print_json

    async def main(client: Client) -> tuple[Schedule, list[datetime]]:
        return await client.schedules.show(schedule), await client.schedules.ticks(schedule, _SHOWN)

    found, ticks = call(main)
    if as_json:
        print_json(as_record(found) | {"ticks": ticks})
        return
    moments = {name: moment_text(getattr(found, name)) for name in ("paused_at", "last_at", "created_at")}
    facts = {
        **{name: value for name, value in as_record(found).items() if name not in ("every", "next_at")},
        **moments, "inputs": orjson.dumps(found.inputs).decode(),
        "every": None if found.every is None else _times(found).removeprefix("every "),
        "ticks": ", ".join(_in_zone(tick, found.timezone) for tick in ticks),
    }  # fmt: skip
    print_facts(facts)


@app.command()
def ticks(
    schedule: Name,
    count: Annotated[int, typer.Option("--count", "-n", min=1, max=1000, help="How many.")] = 10,
    as_json: JsonFlag = False,
) -> None:
    """Print the next ticks of a schedule, as clocks show them in its time zone."""

    async def main(client: Client) -> tuple[list[datetime], str]:
        return await client.schedules.ticks(schedule, count), (await client.schedules.show(schedule)).timezone

    _print_ticks(*call(main), as_json=as_json)


@app.command()
@says_why
def change(
    schedule: Name,
    tag: Annotated[str | None, typer.Option(help="Another tag.", autocompletion=complete_tag)] = None,
    cron: Cron = None,
    every: Every = None,
    timezone: Zone = None,
    inputs: InputsOption = None,
    catch_up: CatchUp = None,
    overlap: Overlap = None,
    priority: Priority = None,
    as_json: JsonFlag = False,
) -> None:
    """Change what is given of a schedule. Inputs that are given take the place of all that it had."""

    async def main(client: Client) -> tuple[Schedule, list[datetime]]:
        from weft.cli.run import declared_inputs, read_inputs

        said = _said(cron, every, timezone) | _given(tag=tag, catch_up=catch_up, overlap=overlap, priority=priority)
        if inputs is not None:
            of = (await client.schedules.show(schedule)).tag if tag is None else tag
            said["inputs"] = read_inputs(inputs, await declared_inputs(client, of))
        made = await client.schedules.change(schedule, **said)
        return made, await client.schedules.ticks(schedule, _SHOWN)

    _tell("changed", *call(main), as_json=as_json)


@app.command()
@says_why
def pause(schedule: Name, as_json: JsonFlag = False) -> None:
    """Let nothing more begin by a schedule until it is resumed."""
    from weft.cli.output import tell

    call(lambda client: client.schedules.pause(schedule))
    tell({"schedule": schedule, "paused": True}, f"paused {schedule}", as_json=as_json)


@app.command()
@says_why
def resume(schedule: Name, as_json: JsonFlag = False) -> None:
    """Let a schedule go on; what it missed is made up for as its --catch-up says."""
    from weft.cli.output import tell

    call(lambda client: client.schedules.resume(schedule))
    tell({"schedule": schedule, "paused": False}, f"resumed {schedule}", as_json=as_json)


@app.command()
@says_why
def trigger(schedule: Name, as_json: JsonFlag = False) -> None:
    """Begin a job of a schedule now, as if it ticked; its next tick stays where it is."""
    from weft.cli.output import tell

    job = call(lambda client: client.schedules.trigger(schedule))
    tell({"schedule": schedule, "job_id": str(job.id)}, f"began job {job.id} of {schedule}", as_json=as_json)


@app.command()
@says_why
def delete(schedule: Name, yes: YesFlag = False, as_json: JsonFlag = False) -> None:
    """Remove a schedule and its backfills; jobs that have begun go on."""
    from weft.cli.output import tell

    if yes:
        call(lambda client: client.schedules.delete(schedule))
        tell({"schedule": schedule, "deleted": True}, f"deleted {schedule}", as_json=as_json)
        return
    found = call(lambda client: client.schedules.show(schedule))
    told = f"would delete {schedule}, {_times(found)}: add --yes"
    tell({"schedule": schedule, "deleted": False}, told, as_json=as_json)


app.command()(backfill)
app.command("backfills")(list_backfills)
app.command("cancel-backfill")(cancel_backfill)
