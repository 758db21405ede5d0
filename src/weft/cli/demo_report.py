"""Sums up what ``weft demo`` has done, from what the queue has kept of it."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.cli.output import print_json, print_table, span, state, styled

if TYPE_CHECKING:
    from weft.jobs.model import Job
    from weft.queue.model import TaskSummary
    from weft.sdk.client import Client


@dataclass(frozen=True)
class Run:
    """What was run: a job with many tasks at once, then some tasks one at a time."""

    count: int
    job: Job
    bulk: Sequence[TaskSummary]
    lone: Sequence[TaskSummary]


async def measure(client: Client, queue: str, after: int) -> list[TaskSummary]:
    """Return what the queue has kept of the tasks that were made after an id."""
    found: list[TaskSummary] = []
    before: int | None = None
    while True:
        page = await client.list_tasks(queue=queue, before=before, limit=1000)
        found += [task for task in page.tasks if task.id > after]
        if page.next is None or page.next <= after:
            return found
        before = page.next


def print_report(run: Run) -> None:
    """Print what was done, how fast, and what to try next."""
    completed = [task for task in run.bulk if task.state == "completed"]
    retried = [task for task in completed if task.failures]
    dead = [task for task in run.bulk if task.state in ("dead", "failed")]
    print_json(run.job.result)
    print()
    counts: list[tuple[Any, str, str]] = [
        (state("done"), f"{len(completed):,}", "pieces of work completed, their outputs kept"),
        (styled("retried", "yellow"), f"{len(retried):,}", "of them failed once and were tried again"),
        (state("dead"), f"{len(dead):,}", "failed in every attempt and are in the dead letter"),
    ]
    if run.job.started_at is not None and run.job.ended_at is not None:
        took = run.job.ended_at - run.job.started_at
        counts.append(
            ("worked", f"{run.count / took.total_seconds():,.0f}/s", f"all in {span(took)}, retries waited for")
        )
    print_table(("", ">", ""), counts, empty="")
    print()
    print_table(("LATENCY", "P50>", "P99>"), _latencies(completed, run.lone), empty="")
    _print_advice(run.job, retried, dead)


def _latencies(bulk: Sequence[TaskSummary], lone: Sequence[TaskSummary]) -> list[tuple[str, str, str]]:
    first = [task for task in bulk if not task.failures]
    return [
        ("many at once: from enqueue to start", *_quantiles(first, "created_at", "claimed_at")),
        ("many at once: from start to end", *_quantiles(first, "claimed_at", "ended_at")),
        ("one at a time: from enqueue to start", *_quantiles(lone, "created_at", "claimed_at")),
        ("one at a time: from start to end", *_quantiles(lone, "claimed_at", "ended_at")),
    ]


def _quantiles(tasks: Sequence[TaskSummary], begin: str, end: str) -> tuple[str, str]:
    spans = sorted((getattr(task, end) - getattr(task, begin)).total_seconds() for task in tasks)
    if not spans:
        return "", ""
    return span(spans[len(spans) // 2]), span(spans[min(len(spans) - 1, len(spans) * 99 // 100)])


def _print_advice(job: Job, retried: Sequence[TaskSummary], dead: Sequence[TaskSummary]) -> None:
    weft = _own_name()
    steps = []
    if home := os.environ.get("WEFT_HOME"):
        steps.append((f"export WEFT_HOME={shlex.quote(home)}", ""))
    steps.append((f"{weft} jobs show {job.id}", "the job with its nodes"))
    steps.append((f"{weft} jobs events {job.id}", "all that happened in it"))
    if retried:
        steps.append((f"{weft} tasks show {retried[0].id}", "one that failed once, with its error"))
    if dead:
        steps.append((f"{weft} dead list --queue demo", "those that were given up"))
    flow = shlex.quote(os.path.relpath(Path(__file__).with_name("demo.yaml")))
    steps.append((f"{weft} run {flow} --app weft.cli.demo_tasks -i pieces=300", "once more, in one process"))
    print("\nTry next:")
    width = max(len(command) for command, _ in steps)
    for command, meaning in steps:
        print(f"  {command:<{width}}  # {meaning}" if meaning else f"  {command}")


def _own_name() -> str:
    """Return how this command can be called from here."""
    program = os.path.abspath(sys.argv[0])
    if os.path.basename(program) != "weft":
        return f"{shlex.quote(os.path.relpath(sys.executable))} -m weft"
    found = shutil.which("weft")
    return "weft" if found and os.path.samefile(found, program) else shlex.quote(os.path.relpath(program))
