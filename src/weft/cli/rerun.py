"""``weft jobs rerun``: runs jobs again, and says before what keeps its output, what runs, and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weft.cli.apps import JsonFlag
from weft.cli.calls import call
from weft.cli.completion import complete_tag
from weft.cli.inputs import read_duration, read_job_id
from weft.cli.reasons import says_why

if TYPE_CHECKING:
    from weft.jobs.model import Job
    from weft.jobs.rerun import RerunPlan
    from weft.sdk.client import Client
    from weft.sdk.reruns import Rerun

FIELDS = ("state", "status", "workflow")


@says_why
def rerun(
    job_id: Annotated[str | None, typer.Argument(metavar="[ID]", help="The id of a job that has ended.")] = None,
    from_node: Annotated[
        list[str] | None,
        typer.Option("--from", metavar="NODE", help="This node and all after it run in any case; may be repeated."),
    ] = None,
    failed: Annotated[
        bool, typer.Option("--failed", help="Only what failed, and what comes after it: changed code does not count.")
    ] = False,
    on: Annotated[
        str | None,
        typer.Option(metavar="FILE|TAG", help="By another version of the workflow.", autocompletion=complete_tag),
    ] = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option("--set", "--input", "-i", metavar="NAME=VALUE", help="Another input; may be repeated."),
    ] = None,
    plan: Annotated[bool, typer.Option("--plan", help="Only say what would keep its output, what would run.")] = False,
    where: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FIELD=VALUE", help="All jobs such as state=failed, workflow=etl, label.team=data; may be repeated."
        ),
    ] = None,
    workflow: Annotated[str | None, typer.Option(help="With --where: of this workflow only.")] = None,
    since: Annotated[
        str | None, typer.Option(metavar="DURATION", help="With --where: that ended within this time: 30m, 2h, 1d.")
    ] = None,
    limit: Annotated[int | None, typer.Option(help="With --where: how many at most.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="With --where: do it; without this they are counted.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until it has ended, and print its result.")] = False,
    modules: Annotated[
        list[str] | None,
        typer.Option("--app", metavar="MODULE", help="A module with handlers, to run it here; implies --wait."),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Run a job again as a new one: nodes about which nothing has changed keep their outputs, the rest runs.

    What counts is a node's definition and those before it, the inputs that it takes, and the code of its handler. With
    --where many are run again, each once: without --yes they are only counted.
    """
    from weft.cli.run import read_workflow
    from weft.core.errors import InvalidInput

    if (job_id is None) == (not where):
        raise InvalidInput("id", "give either the id of a job, or --where state=failed")
    options: dict[str, Any] = {"from_node": from_node or None, "failed": failed}
    if on is not None:
        options["on"] = read_workflow(on)
    if where:
        if wait or modules:
            raise InvalidInput("--wait", "goes with one job: many are run by workers, see `weft jobs list`")
        _rerun_many(
            _filters(where, workflow, since, limit), options, inputs or [], dry_run=plan or not yes, as_json=as_json
        )
        return
    if workflow or since or limit or yes:
        raise InvalidInput("--where", "is missing: --workflow, --since, --limit and --yes go with it")
    _rerun_one(read_job_id(job_id), options, inputs or [], modules or [], plan=plan, wait=wait, as_json=as_json)


def _rerun_one(
    key: int, options: dict[str, Any], inputs: Sequence[str], modules: Sequence[str], *, plan: bool, wait: bool,
    as_json: bool,
) -> None:  # fmt: skip
    from weft.cli.output import as_record, print_json, remark
    from weft.cli.run import declared_inputs, print_result, read_inputs, see_through
    from weft.cli.target import goes_to_server
    from weft.cli.worker_process import import_apps
    from weft.worker.registry import REGISTRY

    goes_to_server(modules)
    import_apps(modules)
    if modules:
        # It is these that will run it, and no worker has told of them yet.
        options["registry"] = REGISTRY

    async def main(client: Client) -> RerunPlan | Rerun | Job:
        if inputs:
            options["inputs"] = read_inputs(inputs, await declared_inputs(client, options.get("on", str(key))), "--set")
        if plan:
            return await client.jobs.plan_rerun(key, **options)
        again = await client.jobs.rerun(key, **options)
        if not wait and not modules:
            return again
        remark(f"job {again.id} {_summary(again.plan)}")
        return await see_through(client, again.id, modules, as_json=as_json)

    from weft.jobs.model import Job
    from weft.jobs.rerun import RerunPlan

    found = call(main)
    if isinstance(found, RerunPlan):
        print_json(as_record(found)) if as_json else print_plan(found)
    elif isinstance(found, Job):
        print_result(found, as_json=as_json)
    elif as_json:
        print_json({"id": str(found.id), "created": found.created, "plan": as_record(found.plan)})
    else:
        remark(_summary(found.plan))
        print(found.id)


def _rerun_many(
    filters: dict[str, Any], options: dict[str, Any], inputs: Sequence[str], *, dry_run: bool, as_json: bool
) -> None:
    from weft.cli.output import tell
    from weft.cli.progress import counted
    from weft.cli.run import read_inputs

    if inputs:
        options["inputs"] = read_inputs(inputs, {}, "--set")

    async def main(client: Client) -> int:
        if show is not None and not dry_run:
            show.total = await client.jobs.rerun_all(**filters, **options, dry_run=True)
        return await client.jobs.rerun_all(**filters, **options, dry_run=dry_run, on_progress=show)

    with counted("found" if dry_run else "run again") as show:
        count = call(main)
    text = f"would run again {count}: give --yes to do it" if dry_run else f"run again {count}"
    tell({"rerun": 0 if dry_run else count, "found": count}, text, as_json=as_json)


def _filters(where: Sequence[str], workflow: str | None, since: str | None, limit: int | None) -> dict[str, Any]:
    """Read which jobs are meant; ``status`` is as good as ``state``."""
    from weft.core.errors import InvalidInput
    from weft.core.suggestions import did_you_mean

    found: dict[str, Any] = {
        "workflow_id": workflow,
        "since": read_duration("since", since),
        "limit": limit,
        "labels": {},
        "state": [],
    }
    for each in where:
        field, equals, value = each.partition("=")
        if not equals or not value:
            raise InvalidInput("--where", f"{each!r} must be FIELD=VALUE, such as state=failed")
        if field.startswith("label."):
            found["labels"][field.removeprefix("label.")] = value
        elif field in ("state", "status"):
            found["state"] += value.split(",")
        elif field == "workflow":
            found["workflow_id"] = value
        else:
            raise InvalidInput(
                "--where",
                f"there is no field {field!r}: {', '.join(FIELDS)} or label.NAME.{did_you_mean(field, FIELDS)}",
            )
    return {**found, "state": found["state"] or "failed"}


def _summary(plan: RerunPlan) -> str:
    kept, run = len(plan.nodes("keep")), len(plan.nodes("run"))
    return f"keeps the outputs of {kept} nodes, and runs {run}"


def print_plan(plan: RerunPlan) -> None:
    """Print for each node whether it keeps its output, and why not."""
    from weft.cli.output import print_table

    rows = [(step.node, step.action.value, step.why) for step in plan.steps]
    print_table(("NODE~", "", "WHY~"), rows, empty="no nodes")
