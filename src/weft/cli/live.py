"""``weft live``: looks at live DAGs, pauses them, and sends on what is held."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from weft.cli.apps import JsonFlag, YesFlag, new_app
from weft.cli.calls import call
from weft.cli.deploy import Dag
from weft.cli.lists import AfterName, Listing
from weft.cli.live_backfills import Job, backfill, cancel_backfill, list_backfills, rematerialize
from weft.cli.reasons import says_why

if TYPE_CHECKING:
    from datetime import datetime

    from weft.live.looking import LiveDag, LiveJob, OpenUnit, OperatorState
    from weft.sdk.client import Client

app = new_app("Look at live DAGs: what is in effect, how far their jobs are, and what is held.")
Limit = Annotated[int, typer.Option(min=1, max=1000, help="At most so many.")]
SomeJob = Annotated[str | None, typer.Argument(metavar="[JOB]", help="One of its jobs; all of it unless said.")]
Unit = Annotated[str, typer.Argument(metavar="UNIT", help="The unit's id.")]

_DAGS = Listing(
    "dags", ("DAG~", "VERSION>", "BUILDING>", "", "JOBS>", "OPEN>", "HELD>", "LAG>", "SINCE"), "no live DAGs",
    key="name", by="after",
)  # fmt: skip
_JOBS = Listing(
    "jobs",
    ("JOB~", "STATE", "", "OPERATOR~", "OPEN>", "HELD>", "LAG>", "NEXT", "DONE>", "FAILED>", "WRITES~", "LAST ERROR~"),
    "no jobs", key="cursor", by="after",
)  # fmt: skip
_UNITS = Listing(
    "units", ("ID", "KIND", "LANE~", "STATE", "SINCE", "TASK", "ERROR~"), "no open units", key="id", by="after"
)
_STATES = Listing("states", ("KEY~", "VERSION>", "CHANGED", "STATE~"), "nothing is remembered", key="key", by="after")


@app.command("list")
def list_dags(after: AfterName = "", limit: Limit = 100, as_json: JsonFlag = False) -> None:
    """List live DAGs by name, with what is in effect, and how far their jobs are."""
    found = call(lambda client: client.live.list(after=after, limit=limit))
    _DAGS.show(found, _row, limit, as_json=as_json)


def _row(each: LiveDag) -> tuple[Any, ...]:
    from weft.cli.output import state, when

    note = state("paused") if each.paused_at is not None else ""
    told = each.name, each.version or "", each.building or "", note, each.jobs, each.units + each.writes
    return *told, each.held or "", _lag(each.oldest_at), when(each.live_at)


def _lag(oldest_at: datetime | None) -> str:
    """Return how long the oldest of what is not done has been there."""
    from datetime import UTC, datetime, timedelta

    from weft.cli.output import span

    return "" if oldest_at is None else span(max(timedelta(), datetime.now(UTC) - oldest_at))


@app.command()
def show(dag: Dag, as_json: JsonFlag = False) -> None:
    """Show a live DAG with its jobs."""
    from weft.cli.output import as_record, moment_text, print_facts, print_json, print_table

    async def main(client: Client) -> tuple[LiveDag, list[LiveJob]]:
        return await client.live.show(dag), await client.live.jobs(dag, limit=1000)

    found, jobs = call(main)
    if as_json:
        print_json(as_record(found) | {"jobs": [as_record(each) for each in jobs]})
        return
    print_facts({
        "dag": found.name,
        "in effect": "nothing" if found.version is None else f"version {found.version}",
        "since": moment_text(found.live_at),
        "being built": None if found.building is None else f"version {found.building}",
        "paused": moment_text(found.paused_at),
        "open": f"{found.units} units, {found.writes} writes of inputs that are none yet",
        "held": str(found.held) if found.held else None,
        "lag": _lag(found.oldest_at) or None,
    })  # fmt: skip
    print_table(_JOBS.columns, map(_job_row, jobs), empty=_JOBS.empty)


@app.command()
def jobs(
    dag: Dag,
    after: Annotated[str, typer.Option(metavar="CURSOR", help="Go on after this one: the next page.")] = "",
    limit: Limit = 100,
    as_json: JsonFlag = False,
) -> None:
    """List the jobs of a live DAG by name: those in effect, those being built, and those that drain."""
    found = call(lambda client: client.live.jobs(dag, after=after, limit=limit))
    _JOBS.show(found, _job_row, limit, as_json=as_json)


def _job_row(each: LiveJob) -> tuple[Any, ...]:
    from weft.cli.output import one_line, state, when

    shown = state("paused") if each.paused_at is not None else state(each.state)
    note = "live" if each.is_live else "building" if each.is_building else ""
    note = f"{note} full".strip() if each.is_full else note
    told = each.name, shown, note, each.operator, each.units + each.writes, each.held or "", _lag(each.oldest_at)
    error = one_line(each.last_error or "")
    return *told, when(each.next_at), each.completed, each.failed or "", ", ".join(each.outputs), error


@app.command()
def units(
    dag: Dag,
    job: Job,
    state: Annotated[str | None, typer.Option(help="In this state only: new, waiting, ready, running or held.")] = None,
    after: Annotated[str | None, typer.Option(metavar="ID", help="Go on after this one: the next page.")] = None,
    limit: Limit = 100,
    as_json: JsonFlag = False,
) -> None:
    """List the units of work of a job that are not done, in their order; of those that are held, why."""
    from weft.cli.inputs import read_id

    last = read_id("--after", after, shown_by=f"weft live units {dag} {job}")
    found = call(lambda client: client.live.units(dag, job, state=state, after=last, limit=limit))
    _UNITS.show(found, _unit_row, limit, as_json=as_json)


def _unit_row(each: OpenUnit) -> tuple[Any, ...]:
    from weft.cli.output import one_line, state, when

    task = "" if each.task_id is None else str(each.task_id)
    shown = "all" if each.lane is None else each.lane
    return str(each.id), each.kind, shown, state(each.state), when(each.since), task, one_line(each.error or "")


@app.command("state")
def show_state(
    dag: Dag,
    job: Job,
    after: Annotated[str, typer.Option(metavar="KEY", help="Go on after this key: the next page.")] = "",
    limit: Limit = 100,
    as_json: JsonFlag = False,
) -> None:
    """Show what the operator of a job remembers, by key."""
    found = call(lambda client: client.live.state(dag, job, after=after, limit=limit))
    _STATES.show(found, _state_row, limit, as_json=as_json)


def _state_row(each: OperatorState) -> tuple[Any, ...]:
    import orjson

    from weft.cli.output import when

    return each.key, each.version, when(each.updated_at), orjson.dumps(each.state).decode()


@app.command()
@says_why
def pause(dag: Dag, job: SomeJob = None, as_json: JsonFlag = False) -> None:
    """Let no unit of a live DAG, or of one of its jobs, begin until it is resumed; what runs goes on."""
    from weft.cli.output import tell

    call(lambda client: client.live.pause(dag, job=job))
    tell({"dag": dag, "job": job, "paused": True}, f"paused {_named(dag, job)}", as_json=as_json)


@app.command()
@says_why
def resume(dag: Dag, job: SomeJob = None, as_json: JsonFlag = False) -> None:
    """Let a live DAG or a job go on; nothing that came meanwhile is lost."""
    from weft.cli.output import tell

    call(lambda client: client.live.resume(dag, job=job))
    tell({"dag": dag, "job": job, "paused": False}, f"resumed {_named(dag, job)}", as_json=as_json)


def _named(dag: str, job: str | None) -> str:
    return dag if job is None else f"{job} of {dag}"


@app.command()
@says_why
def retry(
    dag: Dag,
    job: Job,
    unit: Annotated[str | None, typer.Option(metavar="ID", help="This unit only.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Try units of a job again that failed and are held."""
    from weft.cli.inputs import read_id
    from weft.cli.output import plural, tell

    chosen = read_id("--unit", unit, shown_by=f"weft live units {dag} {job}")
    count = call(lambda client: client.live.retry(dag, job, unit_id=chosen))
    tell({"dag": dag, "job": job, "retried": count}, f"tries {plural(count, 'unit')} again", as_json=as_json)


@app.command()
@says_why
def skip(dag: Dag, job: Job, unit: Unit, as_json: JsonFlag = False) -> None:
    """Leave out a unit that is held, or has not begun; what comes after it goes on."""
    from weft.cli.inputs import read_id
    from weft.cli.output import tell

    chosen = read_id("UNIT", unit, shown_by=f"weft live units {dag} {job}") or 0
    call(lambda client: client.live.skip(dag, job, chosen))
    tell({"dag": dag, "job": job, "unit": str(chosen), "skipped": True}, f"left out unit {chosen}", as_json=as_json)


@app.command()
@says_why
def drain(dag: Dag, yes: YesFlag = False, as_json: JsonFlag = False) -> None:
    """Let all jobs of a live DAG end what they are at, and stop; its datasets stay as they are."""
    from weft.cli.output import tell

    if yes:
        call(lambda client: client.live.drain(dag))
        tell({"dag": dag, "drained": True}, f"{dag} drains; a deploy or a rollback brings it back", as_json=as_json)
        return
    found = call(lambda client: client.live.show(dag))
    told = f"would let the {found.jobs} jobs of {dag} stop: add --yes"
    tell({"dag": dag, "drained": False}, told, as_json=as_json)


app.command()(rematerialize)
app.command()(backfill)
app.command("backfills")(list_backfills)
app.command("cancel-backfill")(cancel_backfill)
