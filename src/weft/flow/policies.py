"""How late and how often something is tried again, as it is written and as it is kept with a task."""

from __future__ import annotations

from typing import Any

from weft.flow.model import RetryPolicy

# The fields of a policy, and how they are kept with a task.
_KEPT = {
    "max_attempts": "max_attempts",
    "backoff": "backoff",
    "initial_delay_seconds": "initial_delay",
    "max_delay_seconds": "max_delay",
    "jitter": "jitter",
}


def policy_of(own: RetryPolicy | None, general: RetryPolicy | None) -> dict[str, Any]:
    """Return how something is tried again, field by field as it says itself, else as is said for all."""
    found: dict[str, Any] = {}
    for said in (general, own):
        if said is not None:
            found |= {to: value for name, to in _KEPT.items() if (value := getattr(said, name)) is not None}
    return found
