"""``weft jobs``: looks at jobs, pauses, resumes, cancels, approves and reruns them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from weft.cli.apps import JsonFlag, new_app
from weft.cli.calls import call, call_each
from weft.cli.inputs import read_id, read_job_id, read_since
from weft.cli.job_graphs import add, submit_graph
from weft.cli.job_looking import JobId, looking
from weft.cli.lists import Listing
from weft.cli.reasons import says_why
from weft.cli.rerun import rerun

if TYPE_CHECKING:
    from weft.jobs.model import Approval, Job, JobNode
    from weft.sdk.client import Client

app = new_app("Look at jobs, pause, resume, cancel, approve and rerun them.")
for command in (*looking, rerun):
    app.command()(command)
app.command()(add)
app.command("submit-graph")(submit_graph)

_APPROVALS = Listing(
    "approvals", ("JOB", "NODE~", "SINCE", "FORM~", "ENDS"), "nothing waits for a person", key="task_id", by="after"
)

JobIds = Annotated[list[str], typer.Argument(metavar="ID", help="Ids of jobs.")]


@app.command("list")
def list_jobs(
    workflow: Annotated[str | None, typer.Option(help="Of this workflow only.")] = None,
    state: Annotated[list[str] | None, typer.Option("--state", help="In this state; may be repeated.")] = None,
    limit: Annotated[int, typer.Option(help="How many at most.")] = 50,
    before: Annotated[str | None, typer.Option(metavar="ID", help="Go on below this id: the next page.")] = None,
    label: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="That have this label; may be repeated.")
    ] = None,
    actor: Annotated[str | None, typer.Option(help="That were submitted by this actor.")] = None,
    rerun_of: Annotated[str | None, typer.Option(metavar="ID", help="That run this job again.")] = None,
    since: Annotated[
        str | None, typer.Option(metavar="WHEN", help="Submitted then or later: 2h, 'yesterday 10:00', a moment.")
    ] = None,
    until: Annotated[str | None, typer.Option(metavar="WHEN", help="Submitted before.")] = None,
    oldest: Annotated[bool, typer.Option("--oldest", help="Oldest first.")] = False,
    after: Annotated[str | None, typer.Option(metavar="ID", help="Go on above this id: with --oldest.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """List jobs, newest first."""
    from weft.cli.job_output import print_jobs
    from weft.cli.run import read_labels

    asked: dict[str, Any] = {
        "workflow_id": workflow, "state": state or None, "labels": read_labels(label), "actor": actor, "limit": limit,
        "before": read_id("before", before), "after": read_id("after", after),
        "rerun_of": read_id("rerun_of", rerun_of),
        "since": read_since("since", since), "until": read_since("until", until),
        "sort": "oldest" if oldest else "newest",
    }  # fmt: skip
    found = call(lambda client: client.jobs.list(**asked))
    print_jobs(found, limit, oldest=oldest, as_json=as_json)


@app.command()
def show(job_id: JobId, as_json: JsonFlag = False) -> None:
    """Show a job with its nodes, its inputs and its result."""
    from weft.cli.job_output import print_job
    from weft.cli.output import as_record, print_json

    key = read_job_id(job_id)

    async def look(client: Client) -> tuple[Job, list[JobNode]]:
        return await client.jobs.show(key), await client.jobs.nodes(key)

    job, nodes = call(look)
    if as_json:
        print_json(as_record(job) | {"nodes": [as_record(node) for node in nodes]})
        return
    print_job(job, nodes)
    if job.state == "completed":
        print()
        print_json(job.result)


@app.command()
@says_why
def pause(job_ids: JobIds, as_json: JsonFlag = False) -> None:
    """Let nothing of jobs begin until they are resumed; what runs goes on."""
    call_each("paused", job_ids, lambda client, key: client.jobs.pause(read_job_id(key)), as_json=as_json)


@app.command()
@says_why
def resume(job_ids: JobIds, as_json: JsonFlag = False) -> None:
    """Let paused jobs go on."""
    call_each("resumed", job_ids, lambda client, key: client.jobs.resume(read_job_id(key)), as_json=as_json)


@app.command()
@says_why
def cancel(job_ids: JobIds, as_json: JsonFlag = False) -> None:
    """Cancel jobs: nothing of them begins any more, and what runs is told to stop."""
    call_each(
        "cancelled", job_ids, lambda client, key: client.jobs.cancel(read_job_id(key)), as_json=as_json
    )  # fmt: skip


@app.command()
def approvals(
    job: Annotated[str | None, typer.Option(metavar="ID", help="Of this job only.")] = None,
    after: Annotated[str | None, typer.Option(metavar="ID", help="Go on after this task's id: the next page.")] = None,
    limit: Annotated[int, typer.Option(help="How many at most.")] = 100,
    as_json: JsonFlag = False,
) -> None:
    """List what waits for a person, oldest first, and what it asks for."""
    key, above = None if job is None else read_job_id(job, "job"), read_id("after", after)
    found = call(lambda client: client.jobs.approvals(key, after=above, limit=limit))
    _APPROVALS.show(found, _approval_row, limit, as_json=as_json)


def _approval_row(each: Approval) -> tuple[Any, ...]:
    from weft.cli.output import when

    return each.job_id, each.node, when(each.since), ", ".join(each.form), when(each.expires_at)


@app.command()
@says_why
def approve(
    job_id: JobId,
    node: Annotated[str | None, typer.Argument(metavar="NODE", help="Which node, when several wait.")] = None,
    values: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A field of its form; may be repeated.")
    ] = None,
    reject: Annotated[bool, typer.Option("--reject", help="Let the node fail instead.")] = False,
    message: Annotated[str | None, typer.Option("--message", "-m", help="Why.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Answer a node that waits for a person: it goes on, or fails with --reject."""
    from weft.cli.output import tell
    from weft.cli.run import read_inputs

    key = read_job_id(job_id)

    async def main(client: Client) -> str:
        asked = [each for each in await client.jobs.approvals(key) if node in (None, each.node)]
        given = read_inputs(values or [], asked[0].form if len(asked) == 1 else {}, "--set")
        await client.jobs.approve(key, node, given, reject=reject, message=message)
        return asked[0].node

    answered, verb = call(main), "rejected" if reject else "approved"
    tell({"id": str(key), "node": answered, "approved": not reject}, f"{verb} {answered}", as_json=as_json)
