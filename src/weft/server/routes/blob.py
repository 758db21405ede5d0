"""The routes by which workers put and get large values without knowing where they are kept."""

from __future__ import annotations

from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Path, Query, Request, Response

from weft.contract.protocol import Held
from weft.contract.protocol_answers import BlobTold
from weft.core.errors import NotFound
from weft.core.json import blob_reference
from weft.queue import blobs, remote_workers
from weft.server.acting import ACTS, Act, AWorker, Caller, read
from weft.server.bodies import KnownRoute
from weft.server.files import FileAnswer, received
from weft.server.problems import refusals

router = APIRouter(route_class=KnownRoute)
PATH = "/v1/task/blob"
_PUT = "Keep a large value of a task that the worker holds: an output, or what a handler puts aside."
_GET = "Return a large value, such as params; a token of some queues gets those of their tasks, and what these need."
_BYTES = {
    "content": {
        "application/octet-stream": {"schema": {"type": "string", "format": "binary"}, "example": '{"rows": 240}'}
    }
}
_PUT_TOLD: dict[int | str, dict[str, Any]] = {200: {"description": _PUT, "model": BlobTold}, **refusals()}
_GET_TOLD: dict[int | str, dict[str, Any]] = {200: {"description": _GET, **_BYTES}, **refusals()}


@router.put(
    PATH, summary=_PUT, responses=_PUT_TOLD, tags=["workers"], response_class=Response,
    openapi_extra={"requestBody": {"required": True, **_BYTES}},
)  # fmt: skip
async def put_blob(
    request: Request, who: AWorker, task_id: Annotated[str, Query(pattern="^[0-9]{1,19}$")],
    lease_token: Annotated[str, Query(max_length=40)],
) -> Response:  # fmt: skip
    """Keep a large value of a task that the worker holds."""
    caller = Caller(request, who)
    claim = await caller.holds(read(Held, {"task_id": task_id, "lease_token": lease_token}))
    async with received(request) as file:
        digest, size = await caller.state.blobs.put_file(file)
    kept = [(claim.id, blob_reference(digest, size))]
    await caller.database.run(lambda conn: blobs.keep(conn, kept))
    return Response(orjson.dumps({"digest": digest, "size": size}), media_type="application/json")


@router.get(PATH + "/{digest}", summary=_GET, responses=_GET_TOLD, tags=["workers"], response_class=Response)
async def get_blob(request: Request, who: AWorker, digest: Annotated[str, Path(pattern="^[0-9a-f]{64}$")]) -> Response:
    """Return a large value that a task refers to which the caller has to do with."""
    caller = Caller(request, who)
    if not await caller.database.read(
        lambda conn: remote_workers.refers_to(conn, who.org_id, digest, who.queues, who.token_id)
    ):
        raise NotFound("blob", digest)
    return FileAnswer(await caller.state.blobs.open(digest), "application/octet-stream")


ACTS.append(Act("PUT", PATH, _PUT))
ACTS.append(Act("GET", PATH + "/{digest}", _GET))
