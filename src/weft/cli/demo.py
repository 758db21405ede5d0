"""``weft demo``: enqueues a few thousand real tasks, works them with worker processes, and sums up."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from weft.cli.apps import new_app

if TYPE_CHECKING:
    from weft.cli.demo_report import Run
    from weft.queue.model import NewTask
    from weft.sdk.client import Client

app = new_app()

APP = "weft.cli.demo_tasks"
LOOK_EVERY = 0.1
LONE_TASKS = 100


@app.command()
def demo(
    tasks: Annotated[int, typer.Option(min=20, max=1_000_000, metavar="N", help="How many tasks.")] = 5000,
    workers: Annotated[int, typer.Option(min=1, max=64, metavar="P", help="How many worker processes.")] = 2,
) -> None:
    """Enqueue real tasks, work them with worker processes, and print what happened.

    It counts primes, stretches keys and adds up CSV files. Some tasks fail once and are retried, a few are dead in the
    end. All that is durable, in the database in force: the embedded one, unless WEFT_DATABASE_URL names another.
    """
    from weft.cli.demo_report import print_report

    run = asyncio.run(_demo(tasks, workers))
    print_report(run)


async def _demo(count: int, workers: int) -> Run:
    from weft.core.settings import Settings
    from weft.sdk.client import Client

    settings = Settings.load()
    async with _server_as_found(settings):
        _say("reaching the database")
        async with Client(settings=settings) as client:
            return await _run(client, count, workers)


@asynccontextmanager
async def _server_as_found(settings: object) -> AsyncIterator[None]:
    """Stop the embedded server in the end, unless it ran in the beginning or is another one."""
    from weft.core.settings import Settings
    from weft.db import embedded

    assert isinstance(settings, Settings)
    is_ours = settings.database_url is None and not (await embedded.status(settings)).running
    try:
        yield
    finally:
        if is_ours:
            await embedded.stop(settings)


async def _run(client: Client, count: int, workers: int) -> Run:
    from weft.cli.demo_report import Run, measure
    from weft.cli.demo_tasks import QUEUE

    await client.create_queue(QUEUE)
    if older := await _left(client, QUEUE):
        _say(f"{older:,} tasks of a demo that was broken off are still there, and are worked too")
    _say(f"starting {workers} worker processes")
    async with _working(workers):
        _say(f"enqueueing {count:,} tasks")
        begin = time.perf_counter()
        handles = await client.enqueue_many(_new_tasks(count))
        enqueued = time.perf_counter()
        await _watch(client, QUEUE, count + older)
        ended = time.perf_counter()
        lone = await _run_lone_tasks(client, min(count, LONE_TASKS))
    bulk = await measure(client, QUEUE, {handle.id for handle in handles})
    return Run(count, enqueued - begin, ended - begin, bulk, await measure(client, QUEUE, lone))


def _new_tasks(count: int) -> list[NewTask]:
    from weft.cli import demo_tasks
    from weft.queue.model import NewTask

    made = []
    for number in range(count):
        match number % 20:
            case 3:
                made.append(NewTask(demo_tasks.flaky_import, {"rows": 1000 + number}))
            case 7 if number % 400 == 7:
                made.append(NewTask(demo_tasks.broken_report, {"month": f"{2000 + number // 400}-02"}))
            case 1 | 5 | 11 | 17:
                made.append(NewTask(demo_tasks.stretch_key, {"password": f"secret {number}", "rounds": 500}))
            case 2 | 6 | 12 | 18:
                made.append(NewTask(demo_tasks.sum_orders, {"seed": number, "lines": 200}))
            case _:
                made.append(NewTask(demo_tasks.count_primes, {"below": 10_000 + number}))
    return made


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


async def _watch(client: Client, queue: str, count: int) -> None:
    """Show how far it has come until nothing is left: a bar on a terminal, else a line each second."""
    if sys.stdout.isatty():
        await _watch_with_bar(client, queue, count)
        return
    begin = last = time.perf_counter()
    while (left := await _left(client, queue)) > 0:
        now = time.perf_counter()
        if now - last >= 1:
            last = now
            _say(f"{count - left:,} of {count:,} ended after {now - begin:.0f} s")
        await asyncio.sleep(LOOK_EVERY)
    _say(f"{count:,} of {count:,} ended after {time.perf_counter() - begin:.1f} s")


async def _watch_with_bar(client: Client, queue: str, count: int) -> None:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("working"),
        BarColumn(bar_width=40),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}"),
        TimeElapsedColumn(),
    )
    begin = time.perf_counter()
    with Progress(*columns) as progress:
        bar = progress.add_task("working", total=count, note="")
        while (left := await _left(client, queue)) > 0:
            rate = (count - left) / (time.perf_counter() - begin)
            progress.update(bar, completed=count - left, note=f"{rate:,.0f}/s")
            await asyncio.sleep(LOOK_EVERY)
        progress.update(bar, completed=count, note="")


async def _left(client: Client, queue: str) -> int:
    """Return how many tasks of the queue have not ended."""
    return sum(sum(info.tasks.values()) for info in await client.queues() if info.name == queue)


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
