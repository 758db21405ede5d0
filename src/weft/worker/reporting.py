"""Tells in the worker's log how an attempt went wrong; what it printed is in its own."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import orjson

from weft.core.error_lines import error_line
from weft.queue.work import Ended

if TYPE_CHECKING:
    from weft.queue.work import Postponed
    from weft.worker.attempt import Attempt

logger = logging.getLogger("weft.worker")


def about(attempt: Attempt) -> dict[str, Any]:
    """Return by which fields a line of the log names an attempt, for programs that read it."""
    claim = attempt.claim
    found = {"task_id": str(claim.id), "attempt": claim.attempt, "handler": claim.handler, "node": claim.node}
    queue = attempt.env.queue_names.get(claim.queue_id)
    return found | {"job_id": None if claim.job_id is None else str(claim.job_id), "queue": queue}


def report(attempt: Attempt, outcome: Postponed | Ended) -> None:
    """Tell that an attempt was not the last, or was and did not succeed."""
    claim, fields = attempt.claim, about(attempt)
    error = error_line(orjson.loads(outcome.error)) if outcome.error else outcome.reason
    fields |= {"outcome": outcome.outcome, "reason": outcome.reason}
    what = "task %s (%s) %s"
    if isinstance(outcome, Ended):
        said = f"is {outcome.state} after attempt {claim.attempt}: {error}"
        logger.warning(what, claim.id, claim.handler, said, extra=fields)
    elif outcome.outcome == "snoozed":
        logger.debug(what, claim.id, claim.handler, f"snoozes for {outcome.delay}", extra=fields)
    else:
        count = f"{claim.failures + 1} of {attempt.policy.max_attempts}"
        again = f"again in {outcome.delay.total_seconds():.1f} s"
        logger.info(what, claim.id, claim.handler, f"failed, {count}, {again}: {error}", extra=fields)
