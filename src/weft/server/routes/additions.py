"""The route by which a running task adds tasks and groups to its own job."""

from __future__ import annotations

from typing import Any

import orjson
from fastapi import APIRouter

from weft.contract.graphs import Add, Added, items_in
from weft.core.errors import InvalidInput, UnknownQueue
from weft.jobs.adding import Call
from weft.jobs.items import Task
from weft.queue.steps import Fence
from weft.server.acting import Caller, act
from weft.server.values import value_of

router = APIRouter()
_EXAMPLE = {
    "task_id": "7340085817581570", "lease_token": "7340085817581568.1", "number": 1,
    "items": [{"handler": "etl:load"}, {"handler": "etl:report"}], "pairs": [[0, 1]],
}  # fmt: skip


@act(router, "/v1/task/add", Add, Added, _EXAMPLE)
async def add(caller: Caller, asked: Add) -> dict[str, Any]:
    """Add tasks and groups to the job of a running task; the same call of a later attempt is told the same tasks."""
    claim = await caller.holds(asked)
    if claim.job_id is None:
        raise InvalidInput("task_id", f"task {claim.id} is part of no job, and cannot add to one")
    for item in asked.items:
        if item.blob is not None:
            item.params = orjson.loads(await value_of(caller, claim.id, item.blob, item.params))
    new, known = items_in(asked)
    own = caller.who.queues
    for each in new:
        if own is not None and isinstance(each, Task) and each.queue not in own:
            raise UnknownQueue(each.queue, own)
    fence = Fence(asked.lease_token.worker_id, claim.id, claim.attempt)
    jobs = caller.state.client_of(caller.who).jobs
    await jobs._add(claim.job_id, [*new, *known], Call(fence, asked.number))
    return {"ids": [str(each.id) for each in new]}
