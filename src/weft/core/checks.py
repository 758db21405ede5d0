"""Checks of what callers pass: each returns the value, or raises an error that names the field."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import NamedTuple, TypeVar

from weft.core.errors import InvalidInput
from weft.core.job_states import JobState
from weft.core.json import text_problem
from weft.core.states import SPELLINGS, Sort, TaskState
from weft.core.suggestions import did_you_mean

MAX_PRIORITY = 32767
MAX_NAME = 200
MAX_KEY = 500
MAX_RUNNING = 2**31 - 1
MAX_ID = 2**63 - 1
LONGEST_PAGE = 1000
_EARLIEST = datetime(2000, 1, 1, tzinfo=UTC)
_LATEST = datetime(2090, 1, 1, tzinfo=UTC)
LONGEST_SPAN = timedelta(days=20_000)

Word = TypeVar("Word", bound=StrEnum)


RESERVED = "names that begin with @ are kept for the engine"
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_SLUG = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")


def check_text(value: object, field: str, limit: int) -> str:
    """A text of 1 to ``limit`` characters that PostgreSQL can store."""
    if not isinstance(value, str):
        raise InvalidInput(field, f"must be text, not {type(value).__name__}")
    if not value:
        raise InvalidInput(field, "must not be empty")
    if len(value) > limit:
        raise InvalidInput(field, f"has {len(value)} characters, and may have {limit}")
    if (problem := text_problem(value)) is not None:
        raise InvalidInput(field, problem)
    return value


def has_control(text: str) -> bool:
    """Whether a text has a control character."""
    return _CONTROL.search(text) is not None


def check_name(value: object, field: str) -> str:
    """The name of a queue or a handler."""
    name = check_text(value, field, MAX_NAME)
    if has_control(name):
        raise InvalidInput(field, f"{name!r} has a control character")
    if name in (".", ".."):
        raise InvalidInput(field, f"{name!r} is no name: in an address it leads elsewhere")
    return name


def check_slug(value: object, field: str) -> str:
    """The short name of an org or a role, as it stands in settings and addresses."""
    name = check_text(value, field, 63)
    if not _SLUG.fullmatch(name):
        raise InvalidInput(
            field, f"{name!r} may have small letters, digits, - and _, and begins with a letter or a digit"
        )
    return name


def check_handler(value: object, field: str = "handler") -> str:
    """The name of a handler that callers may let run."""
    name = check_name(value, field)
    if name.startswith("@"):
        raise InvalidInput(field, RESERVED)
    return name


def check_queue(value: object, field: str = "queue") -> str:
    """The name of a queue that callers may make and use."""
    name = check_name(value, field)
    if name.startswith("@"):
        raise InvalidInput(field, RESERVED)
    if "," in name:
        raise InvalidInput(field, f"{name!r} has a comma, which separates names on the command line")
    return name


def check_names(value: object, field: str) -> list[str]:
    """Names of one kind. A text is refused: its characters would be taken for names."""
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise InvalidInput(field, f"must be a list of names, not {type(value).__name__}")
    return [check_name(name, f"{field}[{index}]") for index, name in enumerate(value)]


def check_queues(value: object, field: str = "queues") -> list[str]:
    """Names of queues, at least one."""
    names = check_names(value, field)
    if not names:
        raise InvalidInput(field, "must name at least one queue")
    return [check_queue(name, f"{field}[{index}]") for index, name in enumerate(names)]


def check_key(value: object, field: str) -> str:
    """An idempotency or concurrency key."""
    return check_text(value, field, MAX_KEY)


def check_id(value: object, field: str = "id", *, shown_by: str = "weft tasks list") -> int:
    """An id: a number, or the text of one, as JSON carries it."""
    if isinstance(value, str) and value.isascii() and value.isdigit():
        digits = value.lstrip("0")
        value = int(digits) if 0 < len(digits) < 20 else value[:40]
    if type(value) is not int or not 0 < value <= MAX_ID:
        raise InvalidInput(field, f"{value!r} is not an id: give a number as `{shown_by}` shows it")
    return value


def check_ids(value: object, field: str = "ids") -> list[int]:
    """A list of ids."""
    if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
        raise InvalidInput(field, f"must be a list of ids, not {type(value).__name__}")
    return [check_id(entry, field) for entry in value]


def check_number(value: object, field: str, lowest: int, highest: int) -> int:
    """A whole number within bounds."""
    if type(value) is not int or not lowest <= value <= highest:
        raise InvalidInput(field, f"must be a whole number between {lowest} and {highest}")
    return value


def check_page(value: object) -> int | None:
    """How much of a list is asked for: None for all of it."""
    return None if value is None else check_number(value, "limit", 1, LONGEST_PAGE)


class Stretch(NamedTuple):
    """The part of a list that a page is taken from: between two ids, both left out, the newest of it or the oldest."""

    above: int
    below: int
    is_newest: bool


WHOLE = Stretch(0, MAX_ID, True)


def check_stretch(before: object, after: object, sort: object) -> Stretch:
    """Where the page of a list begins that goes on below ``before``, or above ``after`` with the oldest first."""
    return Stretch(
        0 if after is None else check_number(after, "after", 0, MAX_ID),
        MAX_ID if before is None else check_number(before, "before", 0, MAX_ID),
        check_word(sort, "sort", Sort) is Sort.NEWEST,
    )


def check_after(value: object) -> str:
    """The name after which a list goes on; empty for its beginning."""
    return "" if value == "" else check_text(value, "after", MAX_KEY)


def check_priority(value: object) -> int:
    """A priority: higher comes first."""
    return check_number(value, "priority", -MAX_PRIORITY, MAX_PRIORITY)


def check_moment(value: object, field: str = "run_at") -> datetime:
    """A moment at which a task can be due."""
    if not isinstance(value, datetime):
        raise InvalidInput(field, f"must be a datetime, not {type(value).__name__}")
    if value.tzinfo is None:
        raise InvalidInput(field, "must have a time zone; write for example datetime.now(UTC)")
    if not _EARLIEST <= value <= _LATEST:
        raise InvalidInput(field, f"must lie between {_EARLIEST:%Y-%m-%d} and {_LATEST:%Y-%m-%d}")
    return value


def check_span(value: object, field: str, *, zero: bool = False) -> timedelta:
    """A span of time, as seconds or a timedelta."""
    if isinstance(value, bool) or not isinstance(value, (int, float, timedelta)):
        raise InvalidInput(field, f"must be a number of seconds or a timedelta, not {type(value).__name__}")
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidInput(field, "is not a span of time")
    try:
        span = value if isinstance(value, timedelta) else timedelta(seconds=value)
    except OverflowError:
        raise InvalidInput(field, "is not a span of time") from None
    if span < timedelta(0) or (not zero and not span):
        raise InvalidInput(field, "must not be negative" if zero else "must be above zero")
    if span > LONGEST_SPAN:
        raise InvalidInput(field, f"is longer than {LONGEST_SPAN.days:,} days")
    return span


def check_word(value: object, field: str, words: type[Word]) -> Word:
    """One of the words of a vocabulary."""
    known = [str(word) for word in words]
    if words is TaskState:
        value = SPELLINGS.get(str(value), value)
    elif words is JobState and isinstance(value, str):
        value = value.lower()
    if value not in known:
        hint = did_you_mean(value, known) if isinstance(value, str) else ""
        raise InvalidInput(field, f"{value!r} is not one of {', '.join(known)}.{hint}")
    return words(str(value))


def check_words(value: object, field: str, words: type[Word]) -> frozenset[Word]:
    """Some of the words of a vocabulary: one, or a list of them."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        return frozenset({check_word(value, field, words)})
    found = frozenset(check_word(entry, field, words) for entry in value)
    if not found:
        raise InvalidInput(field, "must name at least one, or be left out")
    return found
