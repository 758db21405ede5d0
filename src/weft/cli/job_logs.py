"""Prints the logs of a job's tasks, each line with the name of its node, once or until the job has ended."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from weft.cli.output import complain, one_line, print_json_line
from weft.core.errors import DatabaseUnavailable

if TYPE_CHECKING:
    from weft.jobs.model import JobAttempt
    from weft.sdk.client import Client

LOOK_EVERY = 0.2


async def print_logs(client: Client, job_id: int, node: str | None, *, follow: bool, as_json: bool) -> None:
    """Copy what the tasks have written to the standard output, in the order in which their attempts began.

    With ``follow`` also what comes until the job has ended, in the order in which it comes.
    """
    printed = _Printed(client, as_json)
    if follow:
        await _follow(client, job_id, node, printed)
    else:
        for attempt in await client.jobs.attempts(job_id, node):
            await printed.print_attempt(attempt)
    if not printed.any:
        what = f"job {job_id}" if node is None else f"{node} of job {job_id}"
        complain(f"{what} has printed and logged nothing, as far as this machine can see")


async def _follow(client: Client, job_id: int, node: str | None, printed: _Printed) -> None:
    ending = asyncio.create_task(client.jobs.wait(job_id))
    try:
        while True:
            is_over = ending.done()
            # PostgreSQL may be away meanwhile; the job goes on without it.
            with suppress(DatabaseUnavailable):
                latest = {attempt.task_id: attempt for attempt in await client.jobs.attempts(job_id, node)}
                for attempt in latest.values():
                    await printed.print_new(attempt)
                if is_over:
                    break
            await asyncio.wait([ending], timeout=LOOK_EVERY)
        await ending
    finally:
        ending.cancel()
        await asyncio.gather(ending, return_exceptions=True)


class _Printed:
    """What has been printed of each task so far."""

    def __init__(self, client: Client, as_json: bool) -> None:
        self._client = client
        self._as_json = as_json
        self._positions: dict[int, int] = {}
        self._rests: dict[int, bytes] = {}
        self._ended: set[tuple[int, int]] = set()
        self.any = False

    async def print_attempt(self, attempt: JobAttempt) -> None:
        """Print all that one attempt has written."""
        data = await self._client.read_log(attempt.task_id, attempt=attempt.attempt)
        if data:
            self._print(attempt, data.decode(errors="replace").splitlines())

    async def print_new(self, attempt: JobAttempt) -> None:
        """Print the whole lines that a task has written since the last time; the rest of one comes with the next."""
        key = attempt.task_id
        if (key, attempt.attempt) in self._ended:
            return
        data = await self._client.read_log(key, self._positions.get(key, 0)) or b""
        self._positions[key] = self._positions.get(key, 0) + len(data)
        *lines, rest = (self._rests.get(key, b"") + data).split(b"\n")
        if attempt.ended_at is not None:
            self._ended.add((key, attempt.attempt))
            lines, rest = [*lines, rest] if rest else lines, b""
        self._rests[key] = rest
        self._print(attempt, [line.decode(errors="replace") for line in lines])

    def _print(self, attempt: JobAttempt, lines: list[str]) -> None:
        name = one_line(attempt.node) + ("" if attempt.item is None else f"[{attempt.item}]")
        for line in lines:
            self.any = True
            if self._as_json:
                facts = {"node": attempt.node, "item": attempt.item, "attempt": attempt.attempt, "line": line}
                print_json_line({"task_id": str(attempt.task_id), **facts})
            else:
                print(f"{name} | {one_line(line)}")
        sys.stdout.flush()
