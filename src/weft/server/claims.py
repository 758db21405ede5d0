"""How a claimed task is told to a worker: its lease, and its params, rendered here or as they are kept."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import orjson

from weft.contract.protocol import Lease
from weft.core.errors import InvalidInput
from weft.core.json import BLOB_MARK, CACHED_MARK, RENDER_MARK, referenced_blob
from weft.db.database import OUTAGE
from weft.flow.budget import ExpressionError
from weft.jobs.cached_params import without_cache
from weft.jobs.rendering import rendered, unpacked
from weft.queue.retry import Retry
from weft.queue.work import MISSING_PARAMS, Claim, Ended, Postponed
from weft.worker.context import describe_error

if TYPE_CHECKING:
    from weft.core.settings import Settings
    from weft.server.seats import Seat
    from weft.server.state import State

_GONE = "the params of this task are gone: its partition was dropped"


def policy_of(settings: Settings, claim: Claim) -> Retry:
    """Return how a task is retried, as far as it says so itself."""
    general = Retry(max_attempts=settings.worker_max_attempts)
    if claim.max_attempts is None and claim.retry is None:
        return general
    return Retry.from_json(claim.retry, claim.max_attempts or general.max_attempts, general)


def failed(settings: Settings, claim: Claim, error: str, reason: str, outcome: str = "failed") -> Postponed | Ended:
    """Return the outcome of an attempt that failed: a further one, or the end of the task."""
    policy, failures = policy_of(settings, claim), claim.failures + 1
    if failures >= policy.max_attempts:
        return Ended(claim.id, claim.attempt, "dead", outcome, reason, error)
    return Postponed(claim.id, claim.attempt, policy.delay(failures), outcome, reason, error, True)


async def told(state: State, seat: Seat, claims: Sequence[Claim], *, stored: bool) -> list[dict[str, Any]]:
    """Return claims as they are told; what cannot be rendered is settled here, and not told."""
    if stored:
        return [as_stored(seat, claim) for claim in claims]
    found: list[dict[str, Any]] = []
    outcomes: list[Postponed | Ended] = []
    for claim in claims:
        if claim.params is None or not claim.params.startswith((RENDER_MARK, CACHED_MARK, BLOB_MARK, MISSING_PARAMS)):
            found.append(_told(seat, claim, claim.params or "{}"))
            continue
        try:
            found.append(_told(seat, claim, await params_of(state, seat, claim)))
        except OUTAGE:
            raise  # nothing can be settled then: the worker asks again for what it holds
        except Exception as problem:  # noqa: BLE001  recorded with the attempt: one task must not cost the others' answer
            outcomes.append(_outcome(state.client.settings, claim, problem))
    if outcomes:
        await seat.settle(outcomes)
    return found


async def params_of(state: State, seat: Seat, claim: Claim, *, whole: bool = False) -> str:
    """Return a task's params: rendered, and ``whole`` also when they are in the blob storage."""
    params = claim.params or "{}"
    if params == MISSING_PARAMS:
        raise InvalidInput("params", _GONE)
    if claim.job_id is not None:
        if params.startswith(CACHED_MARK):
            params, _, _ = without_cache(params)
        if params.startswith(RENDER_MARK) and claim.given is not None:
            limit = state.client.settings.value_limit
            spec, values = await unpacked(params, claim.given, lambda: state.blobs_of(seat.found.org_id), limit)
            params = rendered(spec, values)
    if whole and (digest := referenced_blob(params)) is not None:
        return (await state.blobs_of(seat.found.org_id).get(digest)).decode()
    return params


def _outcome(settings: Settings, claim: Claim, problem: Exception) -> Postponed | Ended:
    error = describe_error(problem)
    if isinstance(problem, ExpressionError):
        return Ended(claim.id, claim.attempt, "failed", "failed", "expression", error)
    if isinstance(problem, InvalidInput):
        return Ended(claim.id, claim.attempt, "failed", "failed", "non_retryable", error)
    return failed(settings, claim, error, "error")


def _told(seat: Seat, claim: Claim, params: str) -> dict[str, Any]:
    digest = referenced_blob(params)
    return {
        "task_id": str(claim.id),
        "attempt": claim.attempt,
        "lease_token": str(Lease(seat.id, claim.attempt)),
        "queue": seat.found.queues.get(claim.queue_id),
        "handler": claim.handler,
        "params": orjson.Fragment(params) if digest is None else None,
        "params_blob": None if digest is None else {"digest": digest, "size": orjson.loads(params)["size"]},
        "job_id": None if claim.job_id is None else str(claim.job_id),
        "node_id": claim.node,
        "timeout_seconds": _seconds(claim.timeout),
        "heartbeat_timeout_seconds": _seconds(claim.heartbeat_timeout),
        "retry_count": claim.failures,
        "max_attempts": claim.max_attempts,
        "crashes": claim.crashes,
    }


def whole(seat: Seat, claim: Claim, params: str) -> dict[str, Any]:
    """Return a task as it is told with all of its params, wherever they are kept."""
    return _told(seat, claim, "null") | {"params": orjson.Fragment(params)}


def as_stored(seat: Seat, claim: Claim) -> dict[str, Any]:
    """Return a claim as it is kept, for workers that render params themselves."""
    return {
        "task_id": str(claim.id),
        "lease_token": str(Lease(seat.id, claim.attempt)),
        "claim": [*claim[1:10], _seconds(claim.timeout), _seconds(claim.heartbeat_timeout), *claim[12:16]],
    }


def _seconds(span: timedelta | None) -> float | None:
    return None if span is None else span.total_seconds()
