"""Lines of a process's log as JSON objects, one a line, for programs that gather them."""

from __future__ import annotations

import contextvars
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import orjson

from weft.core.tracing import place_of_job, tracer

FIELDS = (
    "job_id", "task_id", "task_ids", "attempt", "handler", "node", "queue", "worker_id", "outcome", "reason",
    "request_id", "actor", "org", "method", "route", "status", "ms", "trace_id",
)  # fmt: skip
_around: contextvars.ContextVar[dict[str, Any] | None] = contextvars.ContextVar("weft_log_fields", default=None)


@contextmanager
def lines_about(fields: dict[str, Any]) -> Iterator[None]:
    """Put fields into every line that is logged inside; what comes to be known only later is added to them."""
    before = _around.set(fields)
    try:
        yield
    finally:
        _around.reset(before)


def add_to_lines(**fields: Any) -> None:
    """Add fields to those that `lines_about` puts into every line."""
    if (known := _around.get()) is not None:
        known.update(fields)


class JsonLines(logging.Formatter):
    """Writes a record as one JSON object: what is known of it by name, and nothing else of what it carries.

    ``always`` are fields of the process, each asked for when a line is written.
    """

    def __init__(self, **always: Callable[[], Any]) -> None:
        super().__init__()
        self.always = dict(always)

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, without the end of it."""
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, Any] = {
            "time": at.replace("+00:00", "Z"), "level": record.levelname.lower(), "logger": record.name,
            "message": record.getMessage(),
        }  # fmt: skip
        known = {name: ask() for name, ask in self.always.items()} | (_around.get() or {}) | vars(record)
        line |= {name: known[name] for name in FIELDS if known.get(name) is not None}
        if "trace_id" not in line and "job_id" in line and tracer() is not None:
            line["trace_id"] = f"{place_of_job(int(line['job_id'])).trace_id:032x}"
        if record.exc_info and record.exc_info[1] is not None:
            kind, problem, _ = record.exc_info
            said = {"type": getattr(kind, "__name__", ""), "message": str(problem)}
            line["error"] = said | {"traceback": self.formatException(record.exc_info)}
        return orjson.dumps(line, default=str).decode()
