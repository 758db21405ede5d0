"""The route of a job's result alone, sent as it is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Path, Request, Response

from weft.contract.operations import Access
from weft.contract.wire import Id
from weft.core.errors import NotFound, StateConflict
from weft.core.job_states import JobState
from weft.core.json import referenced_blob
from weft.jobs.submit import SQL
from weft.server.bodies import KnownRoute
from weft.server.credentials import Who, require
from weft.server.files import FileAnswer
from weft.server.problems import refusals

if TYPE_CHECKING:
    from weft.server.state import State

router = APIRouter(tags=["jobs"], route_class=KnownRoute)
_JSON = "application/json"
_LIKE = {"schema": {}, "example": {"rows": 240}}


@router.get(
    "/jobs/{job_id}/result", name="jobs.result", operation_id="jobs_result", response_class=Response,
    summary="Return the result of a job, and nothing else of it.", description="Takes the role `reader`.",
    responses={200: {"description": "The result.", "content": {_JSON: _LIKE}}, **refusals()},
)  # fmt: skip
async def result(request: Request, who: Who, job_id: Annotated[Id, Path(description="The job's id.")]) -> Response:
    """Answer with a result: a conflict while there is none."""
    require(who, Access.READER)
    state: State = request.app.state.weft
    client = state.client_of(who)
    row = await client.database.read(lambda conn: conn.fetchrow(SQL.show, who.org_id, [job_id]))
    if row is None:
        raise NotFound("job", job_id)
    if row["state"] != JobState.COMPLETED:
        raise StateConflict("read the result of", job_id, row["state"], [JobState.COMPLETED], "job")
    text: str = "null" if row["result"] is None else row["result"]
    digest = referenced_blob(text)
    # As it is kept: what is large is not taken apart and put together again.
    if digest is None:
        return Response(text.encode(), media_type=_JSON)
    return FileAnswer(await state.blobs.open(digest), _JSON)
