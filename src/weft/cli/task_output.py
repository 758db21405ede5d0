"""Shows tasks to people."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from weft.cli.audit import detail_text
from weft.cli.output import (
    as_record,
    clean,
    console,
    moment_text,
    print_facts,
    print_json,
    print_table,
    remark,
    span,
    state,
    styled,
    when,
)
from weft.core.error_lines import error_line
from weft.queue.model import Page

if TYPE_CHECKING:
    from weft.queue.model import Attempt, Task, TaskSummary
    from weft.queue.steps import TaskStep
    from weft.queue.why import Why

_COLUMNS = ("ID", "STATE", "QUEUE~", "HANDLER~", "FAILED>", "CREATED", "TIME")
_STEP_COLUMNS = ("NAME~", "BYTES>", "TOOK>", "ATTEMPT>", "SAVED")
_PAST = {"cancel": "cancelled", "replay": "replayed"}
_DEAD_COLUMNS = ("ID", "STATE", "QUEUE~", "HANDLER~", "FAILED>", "ENDED", "ERROR~")


async def full_page(
    look: Callable[..., Awaitable[Page]], *, oldest: bool, before: int | None, after: int | None, limit: int,
    **filters: Any,
) -> Page:  # fmt: skip
    """Return as many tasks as were asked for, where there are so many: where few of many pass, of several pages."""
    found: list[TaskSummary] = []
    sort = "oldest" if oldest else "newest"
    while True:
        page = await look(sort=sort, before=before, after=after, limit=limit - len(found), **filters)
        found += page.tasks
        if page.next is None or len(found) == limit:
            return Page(tuple(found), page.next)
        before, after = (before, page.next) if oldest else (page.next, after)


def print_page(page: Page, *, oldest: bool, as_json: bool, empty: str, with_errors: bool = False) -> None:
    """Print a page of tasks, and how to get the next; with ``with_errors`` tell what ended them."""
    if as_json:
        following = None if page.next is None else str(page.next)
        key = "next_after" if oldest else "next_before"
        print_json({"tasks": [as_record(task) for task in page.tasks], key: following})
        return
    if with_errors:
        print_table(_DEAD_COLUMNS, map(_dead_row, page.tasks), empty=empty)
    else:
        print_table(_COLUMNS, map(_row, page.tasks), empty=empty)
    if page.next is not None:
        remark(f"more with {'--after' if oldest else '--before'} {page.next}", lead="")


def _row(task: TaskSummary) -> tuple[Any, ...]:
    return (*_beginning(task), when(task.created_at), _time(task))


def _dead_row(task: TaskSummary) -> tuple[Any, ...]:
    return (*_beginning(task), when(task.ended_at), error_line(task.error or {}))


def _beginning(task: TaskSummary) -> tuple[Any, ...]:
    reason = None if task.reason == "error" else task.reason
    return task.id, state(task.state, reason), task.queue, task.handler, _failures(task)


def _failures(task: TaskSummary) -> str:
    # Not the number of the attempt: a snooze, a decline, a crash of the worker count for nothing against the limit.
    return str(task.failures) if task.max_attempts is None else f"{task.failures} of {task.max_attempts}"


def _time(task: TaskSummary) -> str:
    if task.ended_at is not None:
        return f"took {span(task.ended_at - task.claimed_at)}" if task.claimed_at is not None else ""
    if task.state == "scheduled" and task.due_at is not None:
        return f"due {when(task.due_at)}"
    if task.state == "running" and task.claimed_at is not None:
        return f"since {when(task.claimed_at).removesuffix(' ago')}"
    return ""


def why_text(why: Why) -> str:
    """Return what a task waits for, and what to do about it."""
    return clean(why.text if why.advice is None else f"{why.text}; {why.advice}")


def print_task(task: Task, why: Why) -> None:
    """Print all that is known of one task."""
    took = None
    if task.ended_at is not None and task.claimed_at is not None:
        took = (
            f"{span(task.claimed_at - task.created_at)} in the queue, {span(task.ended_at - task.claimed_at)} running"
        )
    print_facts(
        {
            "task": task.id,
            "state": state(task.state, task.reason),
            "why": None if task.state.is_final or why.cause == "ended" else why_text(why),
            "handler": task.handler,
            "queue": f"{task.queue}, priority {task.priority}",
            "attempts": task.attempt,
            "failed": _failures(task),
            "crashes": task.crashes or None,
            "generation": task.generation or None,
            "key": task.concurrency_key,
            "waits for": f"{task.waiting_on} tasks" if task.waiting_on else None,
            "job": task.job_id,
            "worker": task.worker_id,
            "code": task.code_version,
            "created": f"{moment_text(task.created_at)}" + (f" by {task.actor}" if task.actor else ""),
            "due": moment_text(task.due_at),
            "started": moment_text(task.claimed_at),
            "ended": moment_text(task.ended_at),
            "took": took,
        }
    )
    _print_value(task, "params")
    if task.state == "completed":
        _print_value(task, "output")
    if task.steps:
        _print_part("steps", None)
        print_table(_STEP_COLUMNS, map(_step_row, task.steps), empty="")
    if task.metrics:
        _print_part("metrics", _pretty(task.metrics))
    for attempt in task.attempts:
        _print_attempt(attempt)
    for entry in task.audit:
        detail = detail_text(entry)
        told = f" ({detail})" if detail else ""
        _print_part(f"{_PAST.get(entry.verb, entry.verb)} {moment_text(entry.at)} by {entry.actor}{told}", None)
    if task.error is not None and not task.attempts:
        _print_part("error", _error_text(task.error))


def _step_row(step: TaskStep) -> tuple[Any, ...]:
    took = "" if step.took is None else span(step.took)
    return step.name, f"{step.bytes:,}", took, step.attempt, moment_text(step.saved_at)


def _print_value(task: Task, name: str) -> None:
    problem = task.unavailable.get(name)
    _print_part(name, _pretty(getattr(task, name)) if problem is None else f"cannot be read: {problem}")


def _print_attempt(attempt: Attempt) -> None:
    took = "" if attempt.started_at is None else f" after {span(attempt.ended_at - attempt.started_at)}"
    by = "" if attempt.worker_id is None else f", worker {attempt.worker_id}"
    reason = "" if attempt.reason in (None, "error", attempt.outcome) else f" ({attempt.reason})"
    title = f"attempt {attempt.attempt}: {attempt.outcome}{reason}{took}, {moment_text(attempt.ended_at)}{by}"
    _print_part(title, None if attempt.error is None else _error_text(attempt.error))


def _error_text(error: Mapping[str, Any]) -> str:
    if error.get("traceback"):
        return str(error["traceback"]).rstrip()
    return error_line(error)


def _pretty(value: Any) -> str:
    import json

    import orjson

    try:
        return orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()
    except TypeError:  # deeper than orjson goes, or with integers beyond 64 bits: not written by a client
        return json.dumps(value, indent=2, ensure_ascii=False)


def _print_part(title: str, text: str | None) -> None:
    shown = console()
    shown.print()
    shown.print(styled(title, "bold"))
    for line in clean(text or "").splitlines():
        shown.print(f"  {line}", overflow="fold", soft_wrap=True)
