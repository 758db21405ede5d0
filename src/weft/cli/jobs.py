"""``weft jobs``: looks at jobs, pauses, resumes and cancels them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from weft.cli.apps import JsonFlag, new_app
from weft.cli.calls import call, call_each
from weft.cli.inputs import read_id

if TYPE_CHECKING:
    from weft.jobs.model import Job, JobNode
    from weft.sdk.client import Client

app = new_app("Look at jobs, pause, resume and cancel them.")

JobId = Annotated[str, typer.Argument(metavar="ID", help="The id of a job.")]

JobIds = Annotated[list[str], typer.Argument(metavar="ID", help="Ids of jobs.")]


@app.command("list")
def list_jobs(
    workflow: Annotated[str | None, typer.Option(help="Of this workflow only.")] = None,
    state: Annotated[list[str] | None, typer.Option("--state", help="In this state; may be repeated.")] = None,
    limit: Annotated[int, typer.Option(help="How many at most.")] = 50,
    before: Annotated[str | None, typer.Option(metavar="ID", help="Go on below this id: the next page.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """List jobs, newest first."""
    from weft.cli.job_output import print_jobs

    key = read_id("before", before)
    found = call(
        lambda client: client.jobs.list(workflow_id=workflow, state=state or None, before=key, limit=limit)
    )  # fmt: skip
    print_jobs(found, limit, as_json=as_json)


@app.command()
def show(job_id: JobId, as_json: JsonFlag = False) -> None:
    """Show a job with its nodes, its inputs and its result."""
    from weft.cli.job_output import print_job
    from weft.cli.output import as_record, print_json

    key = read_id("id", job_id) or 0

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
def pause(job_ids: JobIds, as_json: JsonFlag = False) -> None:
    """Let nothing of jobs begin until they are resumed; what runs goes on."""
    call_each("paused", job_ids, lambda client, key: client.jobs.pause(read_id("id", key) or 0), as_json=as_json)


@app.command()
def resume(job_ids: JobIds, as_json: JsonFlag = False) -> None:
    """Let paused jobs go on."""
    call_each("resumed", job_ids, lambda client, key: client.jobs.resume(read_id("id", key) or 0), as_json=as_json)


@app.command()
def cancel(job_ids: JobIds, as_json: JsonFlag = False) -> None:
    """Cancel jobs: nothing of them begins any more, and what runs is told to stop."""
    call_each(
        "cancelled", job_ids, lambda client, key: client.jobs.cancel(read_id("id", key) or 0), as_json=as_json
    )  # fmt: skip
