"""Prints the log of a task, once or until the task has ended."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import typer

from weft.cli.output import complain, remark
from weft.core.errors import NotFound

if TYPE_CHECKING:
    from weft.sdk.client import Client


async def print_log(client: Client, task_id: int, *, follow: bool, attempt: int | None = None) -> None:
    """Copy the log to the standard output; with ``follow`` also what comes until the task has ended."""
    if attempt is not None:
        await _print_attempt(client, task_id, attempt)
        return
    has_text = False
    if follow:
        async for data in client.follow_log(task_id):
            has_text = _print(data)
    elif log := await client.read_log(task_id):
        has_text = _print(log)
    if not has_text:
        remark(f"task {task_id} has printed and logged nothing, as far as this machine can see")


async def _print_attempt(client: Client, task_id: int, attempt: int) -> None:
    """Print what one attempt has written; in the log of the task all of them stand one after the other."""
    data = await client.read_log(task_id, attempt=attempt)
    if data is None:
        complain(
            f"there is no log of attempt {attempt}, as far as this machine can see; without --attempt all are shown"
        )
        raise typer.Exit(NotFound.exit_code)
    _print(data)


def _print(data: bytes) -> bool:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
    return True
