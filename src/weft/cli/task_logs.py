"""Prints the log of a task, once or until the task has ended."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import typer

from weft.cli.output import complain
from weft.core.errors import DatabaseUnavailable, NotFound, TaskFailed

if TYPE_CHECKING:
    from weft.sdk.client import Client

LOOK_EVERY = 0.2


async def print_log(client: Client, task_id: int, *, follow: bool, attempt: int | None = None) -> None:
    """Copy the log to the standard output; with ``follow`` also what comes until the task has ended."""
    if attempt is not None:
        await _print_attempt(client, task_id, attempt)
        return
    task = await client.get_task(task_id)
    position = await _copy(client, task_id, 0)
    if follow and not task.state.is_final:
        position = await _follow(client, task_id, position)
    if not position:
        complain(f"task {task_id} has printed and logged nothing, as far as this machine can see")


async def _print_attempt(client: Client, task_id: int, attempt: int) -> None:
    """Print what one attempt has written; in the log of the task all of them stand one after the other."""
    data = await client.read_log(task_id, attempt=attempt)
    if data is None:
        complain(
            f"there is no log of attempt {attempt}, as far as this machine can see; without --attempt all are shown"
        )
        raise typer.Exit(NotFound.exit_code)
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


async def _follow(client: Client, task_id: int, position: int) -> int:
    ending = asyncio.create_task(_until_ended(client, task_id))
    try:
        while not ending.done():
            await asyncio.wait([ending], timeout=LOOK_EVERY)
            # PostgreSQL may be away meanwhile; the task goes on without it.
            with suppress(DatabaseUnavailable):
                position = await _copy(client, task_id, position)
        await ending
        position = await _copy(client, task_id, position)
    finally:
        ending.cancel()
        await asyncio.gather(ending, return_exceptions=True)
    return position


async def _until_ended(client: Client, task_id: int) -> None:
    with suppress(TaskFailed):
        await client.wait(task_id)


async def _copy(client: Client, task_id: int, position: int) -> int:
    """Copy what stands in the log after ``position``; return where it ends now."""
    data = await client.read_log(task_id, position)
    if data:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        position += len(data)
    return position
