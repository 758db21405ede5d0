"""The words and the bounds of what calls take, as the document tells them; the calls themselves hold to them."""

from __future__ import annotations

import types
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import WithJsonSchema

from weft.catalog.datasets import Kind, PartitionBy
from weft.catalog.lineage import DEEPEST, MOST_PLACES, Direction
from weft.catalog.model import Role, TokenRole
from weft.core.checks import LONGEST_PAGE, MAX_ID, MAX_PRIORITY, MAX_RUNNING
from weft.core.job_states import JobState
from weft.core.states import LIVE, OutboxKind, OutboxState, Sort, TaskState, WorkerState
from weft.flow.ticks import CatchUp
from weft.live.looking import UnitState
from weft.live.schedules import Overlap
from weft.queue.audit import AuditVerb
from weft.queue.operate import REPLAYABLE
from weft.queue.retry import MAX_ATTEMPTS

PRIORITY = (-MAX_PRIORITY, MAX_PRIORITY)
ENDED = ("completed", "failed", "cancelled")
BACKOFFS = ("exponential", "linear", "fixed")
_PREFER = ("ours", "theirs")
# By the name of an argument, or by that of a call as well where they differ.
_WORDS: Mapping[str, Iterable[str]] = {
    "sort": Sort,
    "catch_up": CatchUp,
    "overlap": Overlap,
    "prefer": _PREFER,
    "verb": AuditVerb,
    "role": Role,
    "tokens.create.role": TokenRole,
    "jobs.page.state": JobState,
    "jobs.rerun_all.state": ENDED,
    "list_tasks.state": TaskState,
    "cancel_all.state": sorted(LIVE),
    "replay_all.state": sorted(REPLAYABLE),
    "replay.state": sorted(REPLAYABLE),
    "live.units.state": UnitState,
    "workers.state": WorkerState,
    "outbox.state": OutboxState,
    "outbox.kind": OutboxKind,
    "add_effect.kind": OutboxKind,
    "direction": Direction,
    "datasets.create.storage": Kind,
    "datasets.register.partition_by": PartitionBy,
}
_BOUNDS: Mapping[str, tuple[int, int]] = {
    "limit": (1, LONGEST_PAGE),
    "jobs.rerun_all.limit": (1, 1_000_000),
    "jobs.events.limit": (1, 10_000),
    "purge.limit": (1, 1_000_000),
    "workflows.list.limit": (1, 10_000),
    "workflows.log.limit": (1, 10_000),
    "workflows.artifacts.limit": (1, 10_000),
    "workflows.moves.limit": (1, 10_000),
    "priority": PRIORITY,
    "max_attempts": (1, MAX_ATTEMPTS),
    "max_running": (1, MAX_RUNNING),
    "offset": (0, MAX_ID),
    "count": (1, 1000),
    "at_once": (1, 1000),
    "steps": (1, 1000),
    "depth": (1, DEEPEST),
    "datasets.lineage.limit": (1, MOST_PLACES),
    "range_start": (-(2**53), 2**53),
    "range_end": (-(2**53), 2**53),
}


def one_of(words: Iterable[str]) -> WithJsonSchema:
    """Say of a text that it is one of some words; the call looks which, and helps whoever has misspelt it."""
    return WithJsonSchema({"type": "string", "enum": [str(word) for word in words]})


def between(low: int, high: int) -> WithJsonSchema:
    """Say of a whole number that it has bounds, which the call holds to."""
    return WithJsonSchema({"type": "integer", "minimum": low, "maximum": high})


def narrowed(call: str, name: str, kind: Any) -> Any:
    """Return the type of an argument with the words or the bounds that it has."""
    if (words := _WORDS.get(f"{call}.{name}") or _WORDS.get(name)) is not None:
        return _with(kind, str, Annotated[str, one_of(words)])
    if (bounds := _BOUNDS.get(f"{call}.{name}") or _BOUNDS.get(name)) is not None:
        return _with(kind, int, Annotated[int, between(*bounds)])
    return kind


def _with(kind: Any, plain: type, narrow: Any) -> Any:
    """Return a type with a narrower one in the place of a plain one: by itself, in a list, or beside null."""
    if kind is plain:
        return narrow
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is list:
        return list[_with(arguments[0], plain, narrow)]  # type: ignore[misc]
    if origin in (Union, types.UnionType):
        return Union[tuple(_with(each, plain, narrow) for each in arguments)]  # noqa: UP007  of as many as there are
    return kind
