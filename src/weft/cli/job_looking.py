"""The commands of ``weft jobs`` that tell how a job goes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from weft.cli.apps import JsonFlag
from weft.cli.calls import call
from weft.cli.graph import Mermaid, Svg
from weft.cli.inputs import read_id, read_job_id

if TYPE_CHECKING:
    from weft.jobs.model import Job
    from weft.sdk.client import Client

JobId = Annotated[str, typer.Argument(metavar="ID", help="The id of a job.")]
NodeName = Annotated[str | None, typer.Argument(metavar="NODE", help="Of this node only.")]
LinesFlag = Annotated[bool, typer.Option("--json", help="Print a JSON document on each line instead of text.")]


def watch(job_id: JobId, as_json: JsonFlag = False) -> None:
    """Show how a job goes until it has ended, and print its result; the exit code tells how it ended.

    Ctrl-C leaves the job alone. With --json only the job is printed, when it has ended.
    """
    from weft.cli.leaving import Leaving
    from weft.cli.run import print_result

    key = read_job_id(job_id)

    async def main(client: Client) -> Job:
        if as_json:
            return await client.jobs.wait(key)
        from weft.cli.job_watch import watch

        await client.jobs.show(key)
        async with Leaving(client, key, works=False) as leaving:
            return await watch(client, key, leaving)

    print_result(call(main), as_json=as_json)


def why(
    job_id: JobId,
    node: NodeName = None,
    after: Annotated[str | None, typer.Option(metavar="ID", help="Go on after this task's id: the next page.")] = None,
    limit: Annotated[int, typer.Option(help="How many at most.")] = 100,
    as_json: JsonFlag = False,
) -> None:
    """Tell what a job waits for, node by node, and what to do about it."""
    from weft.cli.output import as_record, print_json, print_line, print_more, state, styled

    key, above = read_job_id(job_id), read_id("after", after)
    found = call(lambda client: client.jobs.why(key, node, after=above, limit=limit))
    following = found[-1].task_id if len(found) == limit else None
    if as_json:
        told = None if following is None else str(following)
        print_json({"nodes": [as_record(each) for each in found], "next_after": told})
        return
    for each in found:
        from rich.text import Text

        count = f" ({each.count:,} tasks)" if each.count > 1 else ""
        name = Text.assemble((f"{each.node}", "bold"), count, " ", state(each.state), ": ") if each.node else Text()
        print_line(
            Text.assemble(name, styled(each.text, ""), styled(f"; {each.advice}" if each.advice else "", "yellow"))
        )
    if following is not None:
        print_more("--after", following)


def events(
    job_id: JobId,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job has ended.")] = False,
    after: Annotated[str | None, typer.Option(metavar="CURSOR", help="Go on after this cursor: the next page.")] = None,
    limit: Annotated[int, typer.Option(help="How many at most; all with --follow.")] = 1000,
    as_json: LinesFlag = False,
) -> None:
    """Print what happened in a job, oldest first."""
    from weft.cli.job_events import print_events

    key = read_job_id(job_id)
    call(lambda client: print_events(client, key, after=after, limit=limit, follow=follow, as_json=as_json))


def logs(
    job_id: JobId,
    node: NodeName = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job has ended.")] = False,
    as_json: LinesFlag = False,
) -> None:
    """Print what the tasks of a job have printed and logged, each line with the name of its node."""
    from weft.cli.job_logs import print_logs

    key = read_job_id(job_id)
    call(lambda client: print_logs(client, key, node, follow=follow, as_json=as_json))


def graph(job_id: JobId, svg: Svg = False, mermaid: Mermaid = False, as_json: JsonFlag = False) -> None:
    """Draw a job with how it goes: as text, or as a picture to be written to a file."""
    from weft.cli.job_graph import print_graph
    from weft.core.errors import InvalidInput

    if svg + mermaid + as_json > 1:
        raise InvalidInput("--svg", "give one of --svg, --mermaid and --json")
    key = read_job_id(job_id)
    print_graph(call(lambda client: client.jobs.graph(key)), svg=svg, mermaid=mermaid, as_json=as_json)


def result(job_id: JobId, as_json: JsonFlag = False) -> None:
    """Print the result of a job that has completed, as JSON, and nothing else of it."""
    from weft.cli.output import print_json
    from weft.core.errors import StateConflict
    from weft.core.job_states import JobState

    key = read_job_id(job_id)
    job = call(lambda client: client.jobs.show(key))
    if job.state is not JobState.COMPLETED:
        raise StateConflict("read the result of", key, job.state, [JobState.COMPLETED], "job")
    if job.unavailable:
        raise job.unavailable["result"]
    print_json(job.result)


looking: tuple[Callable[..., None], ...] = (watch, why, events, logs, graph, result)
