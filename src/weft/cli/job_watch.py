"""Shows a job while it goes on: a tree on a terminal, else a line for each node that ends."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from weft.cli.job_output import error_of, node_row, progress_of, time_of
from weft.cli.output import clean, span, state

if TYPE_CHECKING:
    from rich.console import RenderableType

    from weft.jobs.model import Job, JobNode
    from weft.sdk.client import Client

_LOOK_EVERY = 0.1


async def watch(client: Client, job_id: int) -> Job:
    """Show a job until it has ended, and return it."""
    if sys.stderr.isatty():
        return await _watch_live(client, job_id)
    return await _watch_in_lines(client, job_id)


async def _watch_in_lines(client: Client, job_id: int) -> Job:
    told: set[int] = set()
    waiting = asyncio.create_task(client.jobs.wait(job_id))
    while not waiting.done():
        await asyncio.wait([waiting], timeout=_LOOK_EVERY)
        _tell_ended(await client.jobs.nodes(job_id), told)
    job = waiting.result()
    _tell_ended(await client.jobs.nodes(job_id), told)
    print(f"weft: job {job.id} {job.state}, {time_of(job)}", file=sys.stderr)
    return job


def _tell_ended(nodes: Sequence[JobNode], told: set[int]) -> None:
    for node in nodes:
        is_over = node.ended_at is not None and not (set(node.items) - {"completed", "failed", "dead", "skipped"})
        if is_over and node.id not in told:
            told.add(node.id)
            began, ended = node.claimed_at, node.ended_at
            took = f" in {span(ended - began)}" if began is not None and ended is not None else ""
            items = f", {progress_of(node)}" if node.items else ""
            error = f": {error_of(node)}" if node.error else ""
            print(f"weft: {node.node} {node.state}{took}{items}{clean(error)}", file=sys.stderr)


async def _watch_live(client: Client, job_id: int) -> Job:
    from rich.console import Console
    from rich.live import Live

    waiting = asyncio.create_task(client.jobs.wait(job_id))
    with Live(console=Console(stderr=True), auto_refresh=False, transient=False) as live:
        while True:
            await asyncio.wait([waiting], timeout=_LOOK_EVERY)
            job, nodes = await client.jobs.show(job_id), await client.jobs.nodes(job_id)
            live.update(_drawn(job, nodes), refresh=True)
            if waiting.done():
                return waiting.result()


def _drawn(job: Job, nodes: Sequence[JobNode]) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, show_header=False, title_justify="left")
    title = Text.assemble(
        (job.workflow_id, "bold"), f"  job {job.id}  ", state(job.state, job.reason), f"  {time_of(job)}"
    )
    table.title = title
    for node in nodes:
        name, shown, tries, time, error = node_row(node)
        table.add_row(Text(clean(name)), shown, Text(str(tries)), Text(time), Text(clean(error), style="red"))
    return table
