"""The route of hooks: events from senders that have no token, and sign what they send."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Annotated, Any

import orjson
from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel

from weft.catalog.model import Principal, TokenRole
from weft.contract.bounds import Text
from weft.contract.wire import Id
from weft.core.errors import InvalidInput
from weft.core.log_lines import add_to_lines
from weft.core.server_errors import InvalidSignature
from weft.live import hooks
from weft.queue.audit import acting_from
from weft.sdk.session import acting_as
from weft.server.bodies import KnownRoute, read_json
from weft.server.credentials import HOOKS, origin_of
from weft.server.problems import refusals

if TYPE_CHECKING:
    from weft.server.state import State

logger = logging.getLogger("weft.server")
router = APIRouter(tags=["events"], route_class=KnownRoute)
_JSON = "application/json"
_LONGEST = 200
_SAID = "Accept an event from a sender without a token, by its signature."
_REFUSED = refusals()
_TOLD: dict[int | str, dict[str, Any]] = {
    **{status: _REFUSED[status] for status in (400, 401, 413, 422, 503)},
    429: {**_REFUSED[413], "description": "A source that listens for it has no room for more."},
}


class Taken(BaseModel):
    """An event that was accepted, and whether it is new: what is delivered again is the same."""

    id: Id
    created: bool


@router.post(
    HOOKS, name="hooks", operation_id="hooks", response_class=Response, status_code=201, summary=_SAID,
    description="Takes no token: the body is signed as the `hmac` of a source says that listens for the event. "
    "Without such a source nothing is taken. What was delivered before is not sent again.",
    responses={201: {"description": _SAID, "model": Taken}, **_TOLD},
    openapi_extra={"requestBody": {"required": True, "content": {_JSON: {"schema": {"type": "object"}}}}},
)  # fmt: skip
async def take(
    request: Request, org: Annotated[Text, Query(max_length=_LONGEST, description="The org, by its slug.")],
    event: Annotated[Text, Query(max_length=_LONGEST, description="The name of the event.")],
) -> Response:  # fmt: skip
    """Send what the body says as an event, if it is signed."""
    state: State = request.app.state.weft
    body = await request.body()
    found = await state.client.database.read(lambda conn: hooks.find(conn, org, event))
    try:
        delivery = hooks.admit(found, event, request.headers, body)
    except InvalidSignature as problem:
        # Why is nobody's business who may only be trying: whoever runs the server reads it there.
        logger.warning("the hook of %r for %r took nothing: %s", org, event, problem.problem)
        raise InvalidSignature("there is no such hook, or what was sent is not signed as it asks for") from None
    payload = read_json(body)
    if not isinstance(payload, dict):
        raise InvalidInput("body", f"must be an object, not {type(payload).__name__}")
    who = Principal(delivery.org_id, delivery.org, f"hook:{event}", TokenRole.WRITER)
    add_to_lines(actor=who.actor, org=who.org)
    with acting_as(who.actor), acting_from(origin_of(request)):
        sent = await state.client_of(who).jobs.send_event(event, payload, idempotency_key=delivery.key)
    return Response(orjson.dumps({"id": str(sent.id), "created": sent.created}), 201, media_type=_JSON)
