"""Every verb by which somebody changes a job, each on a job that was made ready for it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import weft
from crash.job_sessions import flow

DEFINITION = flow(name="acted", ask={"type": "wait", "for": "approval", "next": "then"}, then={"handler": "act"})
LISTENING = flow(
    name="listening", told={"type": "wait", "for": "event", "event": "go", "next": "then"}, then={"handler": "act"}
)


@dataclass(frozen=True)
class Act:
    """A verb; ``before`` and ``done`` are the states of the job, and how it ends when all else is done."""

    perform: Callable[[weft.Client, Any, Any], Awaitable[Any]]
    before: str | None
    done: str | None
    end: str
    definition: dict[str, Any]


def settings_for(url: str, home: Path | str, **more: Any) -> weft.Settings:
    """Settings of somebody who is soon given up when they are gone."""
    said = {"database_url": url, "home": home, "profile": "fast", "worker_loss_limit": 1000}
    return weft.Settings.load(environ={}, **{**said, **more})


ACTS: dict[str, Act] = {
    "submit": Act(
        lambda c, _, key: c.jobs.submit(DEFINITION, idempotency_key=key), None, "pending", "completed", DEFINITION
    ),
    "cancel": Act(lambda c, job, _: c.jobs.cancel(job), "running", "cancelling", "cancelled", DEFINITION),
    "pause": Act(lambda c, job, _: c.jobs.pause(job), "running", "paused", "completed", DEFINITION),
    "resume": Act(lambda c, job, _: c.jobs.resume(job), "paused", "running", "completed", DEFINITION),
    "approve": Act(lambda c, job, _: c.jobs.approve(job), "waiting", "ready", "completed", DEFINITION),
    "reject": Act(lambda c, job, _: c.jobs.approve(job, reject=True), "waiting", "failed", "failed", DEFINITION),
    "send_event": Act(lambda c, _, key: c.jobs.send_event("go"), "waiting", "ready", "completed", LISTENING),
}
