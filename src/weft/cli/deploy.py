"""``weft deploy``: deploys live DAGs, shows what that would do, and goes back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weft.cli.apps import Group, JsonFlag
from weft.cli.calls import call
from weft.cli.completion import complete_dag
from weft.cli.lists import Listing
from weft.cli.reasons import says_why

if TYPE_CHECKING:
    from datetime import timedelta

    from weft.cli.progress import Count
    from weft.live.dag_versions import DagVersion
    from weft.live.looking import LiveDag
    from weft.live.plans import DatasetPlan, DeployPlan, JobPlan
    from weft.sdk.client import Client

_APPLY = "apply"
_LOOK_EVERY = 0.5


class DeployGroup(Group):
    """A group in which whatever is no command of it is what is to be deployed: ``weft deploy market.yaml``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments; a file, or an option of it, stands for the command that deploys."""
        if args and args[0] not in (*self.list_commands(ctx), "--help", "-h") and not ctx.resilient_parsing:
            args = [_APPLY, *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=DeployGroup,
    help="Deploy live DAGs: `weft deploy market.yaml`; with --plan only see what that would do.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
Dag = Annotated[str, typer.Argument(metavar="DAG", help="The live DAG.", autocompletion=complete_dag)]
Message = Annotated[str | None, typer.Option("--message", "-m", metavar="TEXT", help="Why, for the history.")]
_VERSIONS = Listing(
    "versions", ("VERSION>", "STATE", "HASH", "DEPLOYED", "LIVE", "BY~", "MESSAGE~"), "no versions", key="number",
    by="before",
)  # fmt: skip


@app.command(_APPLY)
@says_why
def apply(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="The live DAG: a file of YAML or JSON, - for the input.")
    ],
    plan: Annotated[bool, typer.Option("--plan", help="Only show what would be done.")] = False,
    message: Message = None,
    seen: Annotated[
        int | None, typer.Option(metavar="N", help="Only if no version was deployed after this one.")
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Until it is in effect, showing how far it is.")] = False,
    timeout: Annotated[
        str | None, typer.Option(metavar="DURATION", help="With --wait, for so long at most: 90s, 15m.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Deploy a live DAG; `weft deploy FILE` is the same.

    Jobs that mean what they did go on; others are built beside what is in effect, and all come into effect at once when
    they have caught up.
    """
    from weft.cli.inputs import read_duration
    from weft.cli.output import as_record, print_json

    definition, patience = _read(file), read_duration("--timeout", timeout)
    with _problems_of(file):
        if plan:
            found = call(lambda client: client.live.plan(definition))
        else:
            found = call(lambda client: client.live.deploy(definition, message=message, seen=seen))
    if plan:
        show_plan(found, as_json=as_json)
        return
    shown = _wait(found, patience) if wait and found.changes and not found.at_once else None
    if as_json:
        print_json(as_record(found) | {"is_plan": False} | ({} if shown is None else {"in_effect": True}))
        return
    _print_plan(found)
    print(_told(found, is_in_effect=found.at_once or shown is not None))


def _read(file: Path) -> str:
    """Return the text of a live DAG; all that is wrong with it is told with its lines, before it is sent anywhere."""
    from weft.cli.definitions import is_input, read_input
    from weft.cli.output import print_complaints
    from weft.core.errors import InvalidDefinition
    from weft.flow.live.reading import check_dag_file
    from weft.flow.live.validation import check_dag_text

    checked = check_dag_text(read_input(), "-") if is_input(file) else check_dag_file(file)
    for problem in checked.problems if checked.is_sound else ():
        _remark(str(problem))
    try:
        _ = checked.sound
    except InvalidDefinition as problem:
        print_complaints(problem.problems)
        raise
    return checked.document.text


@contextmanager
def _problems_of(file: Path) -> Iterator[None]:
    """Tell what is found only where it is sent to, such as SQL that cannot be read, with the name of the file too."""
    from weft.cli.definitions import is_input
    from weft.cli.output import print_complaints
    from weft.core.errors import InvalidDefinition
    from weft.flow.problems import Problem

    try:
        yield
    except InvalidDefinition as problem:
        name = "-" if is_input(file) else str(file)
        named = [replace(each, file=name) if isinstance(each, Problem) else each for each in problem.problems]
        print_complaints(named)
        raise InvalidDefinition(named) from None


def _remark(text: str) -> None:
    from weft.cli.output import remark

    remark(text, lead="")


def _wait(plan: DeployPlan, timeout: timedelta | None) -> LiveDag:
    from weft.cli.progress import counted

    with counted(f"building version {plan.version} of {plan.dag}") as show:
        return call(lambda client: _watched(client, plan, timeout, show))


async def _watched(client: Client, plan: DeployPlan, timeout: timedelta | None, show: Count | None) -> LiveDag:
    """Wait for a version, and show again and again how much its new jobs have left, where somebody looks."""
    import asyncio

    waiting, most = asyncio.create_task(client.live.wait(plan.dag, plan.version, timeout)), 0
    while show is not None and not waiting.done():
        jobs = await client.live.jobs(plan.dag, limit=1000)
        left = sum(job.units + job.writes for job in jobs if job.is_building and not job.is_live)
        most = max(most, left)
        show.total = most or None
        show(most - left)
        await asyncio.wait([waiting], timeout=_LOOK_EVERY)
    return await waiting


def show_plan(plan: DeployPlan, *, goes_back: bool = False, as_json: bool) -> None:
    """Print what a deploy would do, or a rollback."""
    from weft.cli.output import as_record, print_json

    if as_json:
        print_json(as_record(plan) | {"is_plan": True})
        return
    _print_plan(plan, goes_back=goes_back)
    print(_planned(plan, goes_back=goes_back))


def _print_plan(plan: DeployPlan, *, goes_back: bool = False) -> None:
    from weft.cli.output import print_table, remark

    print_table(
        ("JOB~", "WHAT", "WHY~"), [(each.name, each.action, _what(each)) for each in plan.jobs], empty="no jobs"
    )
    if plan.datasets and goes_back:
        rows = [(each.name, each.action, each.job, each.current, each.version) for each in plan.datasets]
        print_table(("DATASET~", "WHAT", "BY~", "NOW>", "THEN>"), rows, empty="")
    elif plan.datasets:
        print_table(
            ("DATASET~", "WHAT", "BY~"), [(_dataset(each), each.action, each.job) for each in plan.datasets], empty=""
        )
    for each in plan.inputs:
        print(f"{each.job} reads {each.name}, which is written by {each.producer or 'nobody yet'}")
    for reader in plan.touched:
        when = "" if reader.schedule is None else f", by the schedule {reader.schedule}"
        kind = "live DAG" if reader.kind == "live" else "workflow"
        print(f"{reader.dataset} is read by the {kind} {reader.name}, {reader.node}{when}")
    for warning in plan.warnings:
        remark(warning, lead="weft: warning: ")


def _what(job: JobPlan) -> str:
    fields = ", ".join(job.fields)
    upstream = f"by {', '.join(job.upstream)}" if job.upstream else ""
    return "; ".join(part for part in (fields, upstream, "goes on where it was" if job.resumed else "") if part)


def _dataset(each: DatasetPlan) -> str:
    return each.name if each.version is None else f"{each.name}@{each.version}"


def _planned(plan: DeployPlan, *, goes_back: bool) -> str:
    name = f"version {plan.version} of {plan.dag}"
    if not plan.changes:
        return f"nothing changes: {name} is {'in effect' if goes_back else 'that already'}"
    given_up = "" if plan.replaces is None else f"; version {plan.replaces}, which is being built, is given up for it"
    if goes_back:
        was = "" if plan.base is None else f", in the place of {plan.base}"
        return f"would bring {name} into effect at once{was}{given_up}"
    how = "in effect at once" if plan.at_once else "built beside what is in effect"
    return f"would deploy {name}, {how}{given_up}"


def _told(plan: DeployPlan, *, is_in_effect: bool) -> str:
    name = f"version {plan.version} of {plan.dag}"
    if not plan.changes:
        return f"nothing changes: {name} is that already"
    if is_in_effect:
        return f"deployed {name}, which is in effect"
    look = f"`weft live show {plan.dag}` says how far it is"
    return f"deployed {name}: it is being built, and comes into effect when it has caught up; {look}"


@app.command()
@says_why
def rollback(
    dag: Dag,
    to: Annotated[int | None, typer.Option(metavar="N", help="The version; the one before unless said.")] = None,
    plan: Annotated[bool, typer.Option("--plan", help="Only show what would be done.")] = False,
    message: Message = None,
    as_json: JsonFlag = False,
) -> None:
    """Bring an earlier version into effect, at once; its jobs go on where they were.

    Nothing is lost by it: the version that was in effect can be gone back to in the same way.
    """
    from weft.cli.output import as_record, tell

    if plan:
        show_plan(call(lambda client: client.live.plan_rollback(dag, version=to)), goes_back=True, as_json=as_json)
        return
    done = call(lambda client: client.live.rollback(dag, version=to, message=message))
    told = f"version {done.version} of {dag} is in effect"
    tell(as_record(done), told if done.was in (None, done.version) else f"{told}, was {done.was}", as_json=as_json)


@app.command()
@says_why
def abandon(dag: Dag, as_json: JsonFlag = False) -> None:
    """Give up the version that is being built; what is in effect goes on."""
    from weft.cli.output import tell

    number = call(lambda client: client.live.abandon(dag))
    tell({"dag": dag, "abandoned": number}, f"gave up version {number} of {dag}", as_json=as_json)


@app.command()
def history(
    dag: Dag,
    before: Annotated[int | None, typer.Option(metavar="N", help="Go on below this number: the next page.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="At most so many.")] = 100,
    as_json: JsonFlag = False,
) -> None:
    """List the versions of a live DAG that can be gone back to, newest first.

    What each of them says is in the history of workflows: `weft workflows log DAG/live`, `weft diff`.
    """
    found = call(lambda client: client.live.history(dag, before=before, limit=limit))
    _VERSIONS.show(found, _version_row, limit, as_json=as_json)


def _version_row(each: DagVersion) -> tuple[Any, ...]:
    from weft.cli.output import state, when

    moments = when(each.created_at), when(each.live_at)
    return each.number, state(each.state), each.version_hash[:12], *moments, each.actor, each.message or ""
