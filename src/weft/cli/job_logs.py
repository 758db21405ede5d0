"""Prints the logs of a job's tasks, each line with the name of its node, once or until the job has ended."""

from __future__ import annotations

import asyncio
import re
import sys
from typing import TYPE_CHECKING, NamedTuple

from weft.cli.output import complain, one_line, print_json_line, remark
from weft.core.errors import WeftError

if TYPE_CHECKING:
    from weft.jobs.events import JobEvent
    from weft.jobs.model import JobAttempt
    from weft.sdk.client import Client

_BEGINS = "task.claimed"
_HEADING = re.compile(rb"\[weft: attempt (\d{1,10})\]")
# So many logs are followed at once, and no more: each is a stream of which a server lets an org have only so many. A
# task beyond them has its turn when one of theirs has ended.
_AT_ONCE = 16
_PATIENCE = 5.0


class _About(NamedTuple):
    """Whose lines are printed."""

    task_id: int
    node: str
    item: int | None
    attempt: int


async def print_logs(client: Client, job_id: int, node: str | None, *, follow: bool, as_json: bool) -> None:
    """Copy what the tasks have written to the standard output, in the order in which their attempts began.

    With ``follow`` also what comes until the job has ended, in the order in which it comes.
    """
    printed = _Printed(client, as_json)
    if follow and not (await client.jobs.show(job_id)).state.is_final:
        if node is not None:
            await client.jobs.attempts(job_id, node)  # says so when there is no such node
        await _follow(client, job_id, node, printed)
    else:
        for attempt in await client.jobs.attempts(job_id, node):
            await printed.print_attempt(attempt)
    if not printed.any:
        what = f"job {job_id}" if node is None else f"{node} of job {job_id}"
        remark(f"{what} has printed and logged nothing, as far as this machine can see")


async def _follow(client: Client, job_id: int, node: str | None, printed: _Printed) -> None:
    """Follow the log of each task from the moment on at which its first attempt begins."""
    followed: set[int] = set()
    following: set[asyncio.Task[None]] = set()
    try:
        async for event in client.jobs.follow(job_id):
            if event.type != _BEGINS or event.task_id in followed or node not in (None, event.node):
                continue
            followed.add(event.task_id or 0)
            task = asyncio.create_task(printed.follow_or_complain(event))
            following.add(task)
            task.add_done_callback(following.discard)
        if following:
            # What was cancelled with the job may take a moment.
            await asyncio.wait(set(following), timeout=_PATIENCE)
    finally:
        for task in following:
            task.cancel()
        await asyncio.gather(*following, return_exceptions=True)


class _Printed:
    """Prints the lines of tasks, each with the name of its node; whether there were ``any``."""

    def __init__(self, client: Client, as_json: bool) -> None:
        self._client = client
        self._as_json = as_json
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self.any = False

    async def print_attempt(self, attempt: JobAttempt) -> None:
        """Print all that one attempt has written."""
        data = await self._client.read_log(attempt.task_id, attempt=attempt.attempt)
        if data:
            self._print(attempt, data.decode(errors="replace").splitlines())

    async def follow_or_complain(self, event: JobEvent) -> None:
        """Follow the log of a task as long as it can be; those of others are not given up for it."""
        try:
            await self.follow(event)
        except WeftError as problem:
            complain(f"the log of {event.node} is not followed any more: {problem}")

    async def follow(self, event: JobEvent) -> None:
        """Print the lines of a task, each when it is whole, until the task has ended."""
        about, rest = _About(event.task_id or 0, event.node or "", event.item, 1), b""
        held: list[str] = []
        async with self._turns:
            async for data in self._client.follow_log(about.task_id):
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    if (heading := _HEADING.fullmatch(line)) and int(heading[1]) > about.attempt:
                        # It says whose the lines below it are, and the empty line above it belongs to it.
                        about, held = about._replace(attempt=int(heading[1])), []
                    elif line:
                        self._print(about, [*held, line.decode(errors="replace")])
                        held = []
                    else:
                        self._print(about, held)
                        held = [""]
        self._print(about, [*held, rest.decode(errors="replace")] if rest else held)

    def _print(self, attempt: JobAttempt | _About, lines: list[str]) -> None:
        name = one_line(attempt.node) + ("" if attempt.item is None else f"[{attempt.item}]")
        for line in lines:
            self.any = True
            if self._as_json:
                facts = {"node": attempt.node, "item": attempt.item, "attempt": attempt.attempt, "line": line}
                print_json_line({"task_id": str(attempt.task_id), **facts})
            else:
                print(f"{name} | {one_line(line)}")
        sys.stdout.flush()
