"""Answers what a task of a live job asks of it: what it means, what it remembers, and what is to change."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from weft.live import staging
from weft.live.staging import Emitted

if TYPE_CHECKING:
    from weft.db.database import type_Connection
    from weft.queue.steps import Fence

JOB, STATE, STAGE = "read_live_job", "read_state", "stage_live"
VERBS = frozenset({JOB, STATE, STAGE})


async def answer(conn: type_Connection, fence: Fence, verb: str, said: dict[str, Any]) -> Any:
    """Do what an attempt asks for; raises `LeaseLost` when the task is not its own any more."""
    match verb:
        case _ if verb == JOB:
            return await staging.job_of(conn, fence)
        case _ if verb == STATE:
            return await staging.state_of(conn, fence, said["key"]) or {"version": 0, "state": None}
        case _ if verb == STAGE:
            rest = None if said["rest"] is None else timedelta(seconds=said["rest"])
            units = [Emitted(each["kind"], each["lane"], each["key"], each["said"]) for each in said["units"]]
            return await staging.stage(conn, fence, said["states"], units, rest, said["is_caught_up"])
        case _:
            raise AssertionError(verb)
