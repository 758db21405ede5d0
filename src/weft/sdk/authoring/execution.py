"""What an author says of how tasks are executed, as definitions say it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import fields
from datetime import timedelta
from typing import Any

from weft.core.checks import check_span
from weft.core.errors import InvalidInput
from weft.core.suggestions import did_you_mean
from weft.queue.retry import Retry
from weft.sdk.authoring.places import cannot_compile
from weft.sdk.authoring.symbols import template
from weft.worker.caching import REFRESH
from weft.worker.composing import NodeOptions
from weft.worker.registry import retry_policy

# How each option is called in a definition.
_WRITTEN = {
    "queue": "queue", "priority": "priority", "retry": "retry", "timeout": "timeout_seconds",
    "heartbeat_timeout": "heartbeat_timeout_seconds", "allow_failure": "allow_failure", "cache": "cache",
    "concurrency_key": "concurrency_key",
}  # fmt: skip


def execution_of(options: NodeOptions, allowed: Collection[str] | None = None, what: str = "this") -> dict[str, Any]:
    """Return the fields of a node that say how it is executed."""
    found: dict[str, Any] = {}
    for option, field in _WRITTEN.items():
        value = getattr(options, option)
        if value is None:
            continue
        if allowed is not None and field not in allowed:
            raise cannot_compile(f"{option} cannot be said of {what}")
        try:
            found[field] = _written(option, value)
        except InvalidInput as problem:
            raise cannot_compile(str(problem)) from None
    return found


def defaults_of(said: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the defaults of a workflow; raises `InvalidInput` for what is none."""
    if said is None:
        return {}
    known = [field.name for field in fields(NodeOptions) if field.name in _WRITTEN and field.name != "concurrency_key"]
    for name in said:
        if name not in known:
            raise InvalidInput("defaults", f"there is no {name!r}.{did_you_mean(name, known)}")
    return {_WRITTEN[name]: _written(name, value) for name, value in said.items()}


def _written(option: str, value: Any) -> Any:
    match option:
        case "retry":
            return _retry(retry_policy(value))
        case "timeout" | "heartbeat_timeout":
            return seconds(value, option)
        case "cache":
            return value if isinstance(value, bool) or value == REFRESH else seconds(value, option)
        case "concurrency_key":
            key, needs = template(value)
            if needs:
                raise InvalidInput("concurrency_key", "is known when the job is submitted: it cannot take outputs")
            return key
    return value


def _retry(policy: Retry) -> dict[str, Any]:
    if policy.non_retryable:
        raise InvalidInput("retry.non_retryable", "belongs to the handler: give it in @weft.task(retry=…)")
    found: dict[str, Any] = {"max_attempts": policy.max_attempts}
    names = {
        "backoff": "backoff", "initial_delay": "initial_delay_seconds", "max_delay": "max_delay_seconds",
        "jitter": "jitter",
    }  # fmt: skip
    for name, field in names.items():
        if (value := getattr(policy, name)) != getattr(Retry, name):
            found[field] = value
    return found


def seconds(value: float | timedelta, field: str) -> float | int:
    """Return a span in seconds, a whole number where it is one; raises `InvalidInput`."""
    found = check_span(value, field).total_seconds()
    return int(found) if found == int(found) else found
