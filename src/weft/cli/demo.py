"""``weft demo``: executes a real workflow of a few thousand tasks with worker processes, shows it, and sums up."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from weft.cli.apps import new_app

if TYPE_CHECKING:
    from weft.cli.demo_report import Run
    from weft.core.settings import Settings
    from weft.sdk.client import Client

app = new_app()

APP = "weft.cli.demo_tasks"
FLOW = Path(__file__).with_name("demo.yaml")
LONE_TASKS = 100
INTERRUPTED = 130


@app.command()
def demo(
    tasks: Annotated[int, typer.Option(min=20, max=100_000, metavar="N", help="How many pieces of work.")] = 5000,
    workers: Annotated[int, typer.Option(min=1, max=64, metavar="P", help="How many worker processes.")] = 2,
    renews: Annotated[
        bool, typer.Option("--renew", help="Make the embedded database anew when another build of Weft has made it.")
    ] = False,
) -> None:
    """Execute a real workflow with worker processes, show it live, and print what happened.

    It plans pieces of work, takes a branch, works on all pieces at once, gathers what came out and delivers a report.
    Some tasks fail once and are retried, a few are dead in the end. All that is durable, in the database in force: the
    embedded one, unless WEFT_DATABASE_URL names another. `--renew` is for a home that only demos use: when the schema
    in it is that of another build, all of it is removed first.
    """
    from weft.cli.demo_report import print_report

    run = asyncio.run(_demo(tasks, workers, renews=renews))
    if run is None:
        raise typer.Exit(INTERRUPTED)
    print_report(run)


async def _demo(count: int, workers: int, *, renews: bool) -> Run | None:
    from weft.cli.target import database_settings
    from weft.sdk.client import Client

    settings = database_settings("weft demo")
    async with _server_as_found(settings) as is_ours:
        _say("reaching the database")
        if renews:
            await _renew(settings, is_ours=is_ours)
        async with Client(settings=settings) as client:
            return await _run(client, count, workers)


@asynccontextmanager
async def _server_as_found(settings: Settings) -> AsyncIterator[bool]:
    """Stop the embedded server in the end, unless it ran in the beginning or is another one; yield whether it is so."""
    from weft.db import embedded

    is_ours = settings.database_url is None and not (await embedded.status(settings)).running
    try:
        yield is_ours
    finally:
        if is_ours:
            await embedded.stop(settings)


async def _renew(settings: Settings, *, is_ours: bool) -> None:
    """Remove the embedded database if another build made its schema; one that ran before, or an outside one, stays."""
    from weft.core.errors import SchemaOutdated
    from weft.db import embedded
    from weft.sdk.client import Client

    try:
        async with Client(settings=settings):
            return
    except SchemaOutdated as problem:
        if not is_ours:
            raise
        _say(f"the demo's database was made by another build of Weft (revision {problem.found}): making it anew")
        await embedded.reset(settings)


async def _run(client: Client, count: int, workers: int) -> Run | None:
    from weft.cli.demo_report import Run, measure
    from weft.cli.demo_tasks import QUEUE
    from weft.cli.job_watch import watch
    from weft.cli.leaving import Leaving
    from weft.sdk.orchestrator import Orchestrator

    await client.create_queue(QUEUE)
    _say(f"starting {workers} worker processes")
    async with _working(workers), Orchestrator(client=client):
        _say(f"executing {FLOW.name} with {count:,} pieces of work")
        handle = await client.jobs.submit(FLOW, {"pieces": count})
        async with Leaving(client, handle.id, works=True) as leaving:
            job = await watch(client, handle.id, leaving)
            await leaving.settle()
        if not job.state.is_final:
            return None
        lone = await _run_lone_tasks(client, min(count, LONE_TASKS))
    tasks = await measure(client, QUEUE, handle.id)
    bulk = [task for task in tasks if task.handler == "demo:work" and task.id < min(lone)]
    return Run(count, job, bulk, [task for task in tasks if task.id in lone])


@asynccontextmanager
async def _working(workers: int) -> AsyncIterator[None]:
    """Run worker processes as anyone would, by `weft worker`; they are tied to this process and end with it."""
    import signal

    from weft.cli.demo_tasks import QUEUE
    from weft.cli.leash import Leashed
    from weft.core.errors import OperatorError

    argv = [sys.executable, "-m", "weft", "worker", "--app", APP, "--queues", QUEUE, "--processes", str(workers)]
    started = await Leashed.start([*argv, "--log-level", "error"], stdout=asyncio.subprocess.DEVNULL)
    try:
        if not await started.until_ready():
            raise OperatorError(f"the worker processes of the demo ended with exit code {await started.wait()}")
        yield
    finally:
        _say("stopping the worker processes")
        started.send_signal(signal.SIGTERM)
        await started.wait()


async def _run_lone_tasks(client: Client, count: int) -> set[int]:
    """Enqueue one task at a time to workers that have nothing to do, and wait for it; return the ids."""
    from weft.cli.demo_tasks import count_primes

    ids = set()
    for _ in range(count):
        handle = await client.enqueue(count_primes, {"below": 1000})
        await client.wait(handle.id, timeout=30)
        ids.add(handle.id)
    return ids


def _say(text: str) -> None:
    print(f"weft: {text}", flush=True)
