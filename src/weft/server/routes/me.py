"""Who am I: what a credential stands for, told to whoever sends it."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Depends, Request
from pydantic import BaseModel, Field

from weft.catalog import tokens
from weft.catalog.model import Principal
from weft.server.bodies import KnownRoute
from weft.server.credentials import principal
from weft.server.paths import PREFIX
from weft.server.problems import MEDIA_TYPE
from weft.version import __version__

if TYPE_CHECKING:
    from weft.server.state import State

router = APIRouter(route_class=KnownRoute)
_PROBLEM = {"content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}}
_REFUSALS: dict[int | str, dict[str, Any]] = {
    401: {"description": "Nobody is known by the credential.", **_PROBLEM},
    503: {"description": "The installation needs attention.", **_PROBLEM},
}


class Me(BaseModel):
    """Whom a credential stands for."""

    org: str = Field(examples=["default"])
    org_id: str = Field(examples=["1"])
    actor: str = Field(description="The name under which acts are kept.", examples=["token:nightly"])
    role: str = Field(examples=["writer"])
    queues: list[str] | None = Field(description="The queues that a worker's token is limited to.")
    expires_at: datetime | None = Field(description="When the credential is good no more.")
    version: str = Field(description="The release of the server.")


@router.get(
    f"{PREFIX}/me",
    operation_id="me",
    tags=["me"],
    summary="Return whom the credential stands for.",
    responses=_REFUSALS,
)
async def me(request: Request, who: Annotated[Principal, Depends(principal)]) -> Me:
    """Takes any credential that is good, a worker's too."""
    state: State = request.app.state.weft
    end = None
    if (token_id := who.token_id) is not None:
        end = (
            await state.client_of(who).database.read(lambda conn: tokens.show(conn, who.org_id, token_id))
        ).expires_at
    queues = None if who.queues is None else list(who.queues)
    return Me(
        org=who.org,
        org_id=str(who.org_id),
        actor=who.actor,
        role=who.role,
        queues=queues,
        expires_at=end,
        version=__version__,
    )
