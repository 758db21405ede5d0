"""Reads tasks from lines of JSON, and enqueues them some at a time."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from weft.cli.inputs import read_duration, read_moment
from weft.cli.progress import counted
from weft.core.errors import CallerError, InvalidInput, UnknownQueue
from weft.core.suggestions import did_you_mean
from weft.queue.model import NewTask

if TYPE_CHECKING:
    from weft.sdk.client import Client

AT_ONCE = 1000
_PLACE = re.compile(r"^tasks\[(\d+)\]\.?")
_NAMES = {each.name for each in fields(NewTask)}
_SPANS = ("delay", "timeout", "heartbeat_timeout")


def read_tasks(lines: Iterable[str]) -> list[tuple[int, NewTask]]:
    """Return the tasks with the numbers of their lines; empty lines are passed over."""
    return [(number, _task(number, line)) for number, line in enumerate(lines, start=1) if line.strip()]


def _task(number: int, line: str) -> NewTask:
    where = f"line {number}"
    try:
        # Not by orjson, which would round integers beyond 64 bits instead of leaving them to be refused by name.
        found = json.loads(line)
    except ValueError as problem:
        raise InvalidInput(where, f"is not JSON: {problem}") from None
    if not isinstance(found, dict):
        raise InvalidInput(where, 'must be an object, such as {"handler": "email:send", "params": {"to": "ada"}}')
    if unknown := sorted(found.keys() - _NAMES):
        raise InvalidInput(f"{where}, {unknown[0]}", f"is no field of a task.{did_you_mean(unknown[0], _NAMES)}")
    if "handler" not in found:
        raise InvalidInput(f"{where}, handler", "is missing")
    return NewTask(**{name: _value(f"{where}, {name}", name, value) for name, value in found.items()})


def _value(where: str, name: str, value: Any) -> Any:
    """Return a field as the client takes it: spans of time may be texts, as on the command line."""
    if name in _SPANS and isinstance(value, str):
        return read_duration(where, value)
    if name == "run_at" and isinstance(value, str):
        return read_moment(where, value)
    if name == "retry" and isinstance(value, dict):
        from weft.queue.retry import Retry

        try:
            return Retry(**value)
        except TypeError as problem:
            raise InvalidInput(where, str(problem)) from None
    return value


async def enqueue_lines(client: Client, found: list[tuple[int, NewTask]]) -> list[tuple[int, bool]]:
    """Enqueue tasks, a page of them in each call, and return their ids and which are new.

    Raises `InvalidInput` that names the line; all lines before its page have been enqueued by then.
    """
    made: list[tuple[int, bool]] = []
    with counted("enqueued", len(found)) as show:
        for place in range(0, len(found), AT_ONCE):
            page = found[place : place + AT_ONCE]
            try:
                handles = await client.enqueue_many([task for _, task in page])
            except (InvalidInput, UnknownQueue) as problem:
                raise _at_line(problem, page, len(made)) from None
            made += [(handle.id, handle.created) for handle in handles]
            if show is not None:
                show(len(made))
    return made


def _at_line(problem: InvalidInput | UnknownQueue, page: list[tuple[int, NewTask]], done: int) -> CallerError:
    place = _PLACE.match(problem.field)
    if place is None or int(place[1]) >= len(page):
        return problem
    field = f"line {page[int(place[1])][0]}, {problem.field[place.end() :]}".removesuffix(", ")
    if isinstance(problem, UnknownQueue):
        return UnknownQueue(problem.name, problem.known, field)
    return InvalidInput(field, f"{problem.problem} ({done} tasks of lines before were enqueued)")
