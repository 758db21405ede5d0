"""Answers what a task of a live job asks of it: what it means, what it remembers, and what is to change."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from weft.live import staging
from weft.live.staging import CallbackStaged, Emitted

if TYPE_CHECKING:
    from weft.db.database import type_Connection
    from weft.queue.steps import Fence

JOB, STATE, STAGE, FILES = "read_live_job", "read_state", "stage_live", "compare_files"
VERBS = frozenset({JOB, STATE, STAGE, FILES})


async def answer(
    conn: type_Connection, fence: Fence, verb: str, said: dict[str, Any], most_bytes: int, most_of_unit: int
) -> Any:  # fmt: skip
    """Do what an attempt asks for; raises `LeaseLost` when the task is not its own any more."""
    match verb:
        case _ if verb == JOB:
            return await staging.job_of(conn, fence)
        case _ if verb == STATE:
            return await staging.state_of(conn, fence, said["key"]) or {"version": 0, "state": None}
        case _ if verb == STAGE:
            rest = None if said["rest"] is None else timedelta(seconds=said["rest"])
            units = [Emitted(each["kind"], each["lane"], each["key"], each["said"]) for each in said["units"]]
            callbacks = [CallbackStaged(each["url"], each["key"], each["payload"]) for each in said["callbacks"]]
            return await staging.stage(
                conn, fence, said["states"], units, callbacks, rest, said["is_caught_up"], said["files"],
                most_bytes=most_bytes, most_of_unit=most_of_unit,
            )  # fmt: skip
        case _ if verb == FILES:
            files, within = [(each["path"], each["tag"]) for each in said["files"]], (said["after"], said["until"])
            return await staging.changed_files(conn, fence, files, timedelta(seconds=said["settle"]), within)
        case _:
            raise AssertionError(verb)
