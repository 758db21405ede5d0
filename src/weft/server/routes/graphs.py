"""The routes of graphs that are put together in Python: a job that is made of one, and one that is added to a job."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any

import orjson
from fastapi import APIRouter, Body, Depends, Path, Request, Response

from weft.catalog.model import Principal
from weft.contract.graphs import Added, Begun, Growth, NewGraph, items_in
from weft.contract.operations import Access
from weft.contract.wire import Id
from weft.queue.audit import acting_because, acting_from
from weft.sdk.client import Client
from weft.sdk.session import acting_as
from weft.server.bodies import JsonRoute
from weft.server.credentials import Who, origin_of, require
from weft.server.endpoints import REPEATED, IdempotencyKey
from weft.server.idempotency import Answered, Kept, once
from weft.server.paths import PREFIX
from weft.server.problems import refusals
from weft.server.reasons import Reason, reason_in
from weft.server.spans import made_job

if TYPE_CHECKING:
    from weft.server.state import State

router = APIRouter(prefix=PREFIX, tags=["graphs"], route_class=JsonRoute)
_JSON = "application/json"
_WRITER = "Takes the role `writer`."
_ITEMS = {"items": [{"handler": "etl:extract"}, {"handler": "etl:load"}], "pairs": [[0, 1]]}
_BEGIN = "Execute tasks and groups with what comes before what, as they were put together."
_ADD = "Add tasks and groups to a job that goes on."


async def _a_writer(who: Who) -> Principal:
    """Refuse whoever may not write, before anything of what he sent is looked at."""
    require(who, Access.WRITER)
    return who


def _example(value: dict[str, Any]) -> Any:
    return Body(openapi_examples={"usual": {"value": value}})


Writer = Annotated[Principal, Depends(_a_writer)]


@router.post(
    "/jobs/graph", name="jobs.submit_graph", operation_id="jobs_submit_graph", response_class=Response, status_code=201,
    summary=_BEGIN, description=_WRITER, responses={201: {"description": _BEGIN, "model": Begun}, **refusals()},
)  # fmt: skip
async def submit_graph(
    request: Request, who: Writer, body: Annotated[NewGraph, _example({"name": "etl", **_ITEMS})],
    idempotency_key: IdempotencyKey = None, weft_reason: Reason = None,
) -> Response:  # fmt: skip
    """Answer with the job, and the ids of what it is made of."""
    new, _ = items_in(body)

    async def act(client: Client) -> Answered:
        job = await client.jobs.submit_graph(
            body.name, new, priority=body.priority, idempotency_key=body.idempotency_key, labels=body.labels,
            on_failure=body.on_failure,
        )  # fmt: skip
        made_job(request.scope, job)
        ids = [str(item.id) for item in new] if job.created else []
        return Answered(201, orjson.dumps({"id": str(job.id), "created": job.created, "ids": ids}), None)

    return await _answer(request, who, idempotency_key, weft_reason, act)


@router.post(
    "/jobs/{job_id}/add", name="jobs.add", operation_id="jobs_add", response_class=Response,
    summary=_ADD, description=_WRITER, responses={200: {"description": _ADD, "model": Added}, **refusals()},
)  # fmt: skip
async def add(
    request: Request, who: Writer, job_id: Annotated[Id, Path(description="The job's id.")],
    body: Annotated[Growth, _example(_ITEMS)], idempotency_key: IdempotencyKey = None, weft_reason: Reason = None,
) -> Response:  # fmt: skip
    """Answer with the ids of what was added."""
    new, known = items_in(body)

    async def act(client: Client) -> Answered:
        await client.jobs.add(job_id, [*new, *known])
        return Answered(200, orjson.dumps({"ids": [str(item.id) for item in new]}), None)

    return await _answer(request, who, idempotency_key, weft_reason, act)


async def _answer(
    request: Request, who: Principal, key: str | None, reason: str | None, act: Callable[[Client], Awaitable[Answered]]
) -> Response:
    state: State = request.app.state.weft
    client = state.client_of(who)
    with acting_as(who.actor), acting_from(origin_of(request)), acting_because(reason_in(reason)):
        if key is None:
            kept = Kept(await act(client), False)
        else:
            asked = b"%s\n%s" % (request.url.path.encode(), await request.body())
            kept = await once(client, key, asked, act, is_secret=False)
    status, told, _ = kept.answered
    return Response(told, status, {REPEATED: "true"} if kept.is_repeated else {}, _JSON)
