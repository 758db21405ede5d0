"""Prints the log of a task, once or until the task has ended."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from weft.cli.output import complain
from weft.core.errors import TaskFailed
from weft.worker.logs import log_dir, log_path

if TYPE_CHECKING:
    from weft.sdk.client import Client

LOOK_EVERY = 0.2


async def print_log(client: Client, task_id: int, *, follow: bool) -> None:
    """Copy the log to the standard output; with ``follow`` also what comes until the task has ended."""
    task = await client.get_task(task_id)
    path = log_path(log_dir(client.settings), task_id)
    position = _copy(path, 0)
    if follow and not task.state.is_final:
        ending = asyncio.create_task(_until_ended(client, task_id))
        while not ending.done():
            await asyncio.wait([ending], timeout=LOOK_EVERY)
            position = _copy(path, position)
        await ending
    if not position:
        complain(f"task {task_id} has written nothing to {path}")


async def _until_ended(client: Client, task_id: int) -> None:
    with suppress(TaskFailed):
        await client.wait(task_id)


def _copy(path: Path, position: int) -> int:
    """Copy what stands in the file after ``position``; return where it ends now."""
    try:
        with open(path, "rb") as file:
            file.seek(position)
            while piece := file.read(65536):
                sys.stdout.buffer.write(piece)
                position += len(piece)
    except FileNotFoundError:
        return position
    sys.stdout.buffer.flush()
    return position
