"""Tells of attempts as spans of the trace of their job."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import orjson

from weft.core.tracing import Place, Tracer, place_of_attempt, place_of_job, tracer
from weft.queue.work import Completed, Postponed

if TYPE_CHECKING:
    from weft.queue.work import Claim
    from weft.worker.attempt import Attempt, Outcome

_LONGEST_MESSAGE = 1000
OnEnd = Callable[["Attempt", "Outcome | None"], None]


def told_on_end(on_end: OnEnd) -> OnEnd:
    """Return what is called at the end of each attempt: the same, or that and what tells of it as a span."""
    spans = tracer()
    if spans is None:
        return on_end

    def told(attempt: Attempt, outcome: Outcome | None) -> None:
        tell_of_attempt(spans, attempt, outcome)
        on_end(attempt, outcome)

    return told


def place_of(claim: Claim) -> Place:
    """Return the place of an attempt's span."""
    return place_of_attempt(claim.job_id, claim.id, claim.attempt)


def tell_of_attempt(spans: Tracer, attempt: Attempt, outcome: Outcome | None) -> None:
    """Tell of an attempt that is over, by what came of it; params and outputs are nobody's business."""
    claim = attempt.claim
    place = spans.chosen(place_of(claim))
    end = time.time_ns()
    took = time.monotonic() - attempt.started
    said: dict[str, Any] = {
        "weft.task.id": str(claim.id), "weft.handler": claim.handler, "weft.attempt": claim.attempt,
        "weft.worker.id": str(attempt.env.worker_id), "weft.outcome": _word(attempt, outcome),
    }  # fmt: skip
    if claim.job_id is not None:
        said["weft.job.id"] = str(claim.job_id)
        if claim.handler == "@end":
            spans.ended_jobs.append(claim.job_id)
    if claim.node is not None:
        said["weft.node"] = claim.node
    if (queue := attempt.env.queue_names.get(claim.queue_id)) is not None:
        said["weft.queue"] = queue
    events: list[tuple[str, int, dict[str, Any]]] = []
    error = None
    if outcome is not None and not isinstance(outcome, Completed):
        said["weft.reason"] = outcome.reason
        if outcome.error is not None:
            told = orjson.loads(outcome.error)
            error = f"{told['type']}: {told['message']}"[:_LONGEST_MESSAGE]
            what = {"exception.type": told["type"], "exception.message": told["message"][:_LONGEST_MESSAGE]}
            events.append(("exception", end, what))
        if isinstance(outcome, Postponed):
            events.append(("retry" if outcome.counted else "snooze", end, {"delay": outcome.delay.total_seconds()}))
    spans.tell(
        claim.node or claim.handler, place, start=end - (int(took * 1e9) if math.isfinite(took) else 0), end=end,
        attributes=said, parent=None if claim.job_id is None else place_of_job(claim.job_id), kind="CONSUMER",
        error=error, events=events, links=[_before(claim)] if claim.attempt > 1 else [],
    )  # fmt: skip


def _before(claim: Claim) -> Place:
    return place_of_attempt(claim.job_id, claim.id, claim.attempt - 1)


def _word(attempt: Attempt, outcome: Outcome | None) -> str:
    """Return in a word what came of it; without an outcome somebody else decides, or it waits for others."""
    if outcome is None:
        return attempt.why_ended or "waiting"
    return "completed" if isinstance(outcome, Completed) else outcome.outcome
