"""Reads what stands on the command line, with an error that names the field when it cannot be read."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.core.errors import InvalidInput

if TYPE_CHECKING:
    from weft.queue.retry import Retry


def read_params(text: str | None, field: str = "params") -> Any:
    """Read params, or another field: JSON, ``-`` for the standard input, ``@FILE`` for a file."""
    import json

    if text is None:
        return None
    if text == "-":
        text = sys.stdin.read()
    elif text.startswith("@"):
        text = _content(Path(text[1:]), field)
    try:
        # Not by orjson, which would round integers beyond 64 bits instead of leaving them to be refused by name.
        return json.loads(text)
    except ValueError as problem:
        raise InvalidInput(field, f"is not JSON: {problem}") from None
    except RecursionError:
        raise InvalidInput(field, "is nested too deeply") from None


def read_duration(field: str, text: str | None) -> timedelta | None:
    """Read a duration such as ``10m``."""
    from weft.core.settings import parse_duration

    if text is None:
        return None
    try:
        return parse_duration(text)
    except (ValueError, OverflowError) as problem:
        raise InvalidInput(field, str(problem)) from None


def read_retry(
    max_attempts: int | None, backoff: str | None, retry_delay: str | None, max_retry_delay: str | None
) -> Retry | None:
    """Read a policy of retries; None when nothing of it was given, and it is the handler's or the default."""
    from weft.queue.retry import Retry

    said = {
        "max_attempts": max_attempts,
        "backoff": backoff,
        "initial_delay": read_duration("retry_delay", retry_delay),
        "max_delay": read_duration("max_retry_delay", max_retry_delay),
    }
    given = {name: value for name, value in said.items() if value is not None}
    return Retry(**given) if given.keys() - {"max_attempts"} else None  # type: ignore[arg-type]


def read_moment(field: str, text: str | None) -> datetime | None:
    """Read a moment in ISO 8601, or ``yesterday 10:00``, or ``2h ago``; without a zone it is in the machine's own."""
    from weft.core.moments import moment_in

    if text is None:
        return None
    try:
        return moment_in(text)
    except (ValueError, OverflowError):
        problem = f"{text!r} is not a moment; write for example 2026-11-30T09:00:00+01:00"
        raise InvalidInput(field, problem) from None


def read_since(field: str, text: str | None) -> datetime | None:
    """Read a moment, or how long ago it was: ``2h``."""
    if text is not None and text[-1:].isalpha() and text[:1].isdigit() and "T" not in text:
        return datetime.now().astimezone() - (read_duration(field, text) or timedelta())
    return read_moment(field, text)


def read_id(field: str, text: str | None, *, shown_by: str = "weft tasks list") -> int | None:
    """Read an id."""
    if text is None:
        return None
    from weft.core.checks import check_id

    return check_id(text, field, shown_by=shown_by)


def read_job_id(text: str | None, field: str = "id") -> int:
    """Read the id of a job."""
    return read_id(field, text, shown_by="weft jobs list") or 0


def read_names(field: str, text: str | None) -> list[str]:
    """Read names with commas between them."""
    names = [name.strip() for name in (text or "").split(",")]
    if text is not None and not all(names):
        raise InvalidInput(field, f"{text!r} has an empty name; write for example a,b")
    return [name for name in names if name]


def read_word(field: str, text: str | None, words: type[StrEnum]) -> str | None:
    """Read one of the words of a vocabulary."""
    from weft.core.checks import check_word

    return None if text is None else str(check_word(text, field, words))


def wants_all(ids: Sequence[str] | None, *, every: bool, narrowed: object = None, what: str = "tasks") -> bool:
    """Whether a command means all there are, and not those named; refuse one that means neither, or both."""
    if ids and (every or narrowed):
        raise InvalidInput("id", "give either ids, or --all with the options that narrow it")
    if not ids and not every:
        raise InvalidInput("id", f"name the {what}, or give --all")
    return every


def require_yes(yes: bool, what: str) -> None:
    """Refuse what cannot be undone until it was asked for twice."""
    if not yes:
        raise InvalidInput("--yes", f"{what}; run it again with --yes to do it")


def _content(path: Path, field: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as problem:
        raise InvalidInput(field, f"cannot read {path}: {problem.strerror}") from None
    except UnicodeDecodeError:
        raise InvalidInput(field, f"cannot read {path}: it is not UTF-8 text") from None
