"""The routes of a job's result alone, or of a task's output, sent as it is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Path, Request, Response

from weft.contract.operations import Access
from weft.contract.wire import Id
from weft.core.errors import NotFound, StateConflict
from weft.core.job_states import JobState
from weft.core.json import referenced_blob
from weft.core.states import TaskState
from weft.jobs.submit import SQL
from weft.queue import look
from weft.server.bodies import KnownRoute
from weft.server.credentials import Who, require
from weft.server.files import FileAnswer
from weft.server.paths import PREFIX
from weft.server.problems import refusals

if TYPE_CHECKING:
    from weft.server.state import State

router = APIRouter(prefix=PREFIX, route_class=KnownRoute)
_JSON = "application/json"
_LIKE = {"schema": {}, "example": {"rows": 240}}


@router.get(
    "/jobs/{job_id}/result", name="jobs.result", operation_id="jobs_result", tags=["jobs"], response_class=Response,
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
    return await _as_kept(state, row["result"])


@router.get(
    "/tasks/{task_id}/output", name="tasks.output", operation_id="tasks_output", tags=["tasks"],
    response_class=Response, summary="Return the output of a task, and nothing else of it.",
    description="Takes the role `reader`.",
    responses={200: {"description": "The output.", "content": {_JSON: _LIKE}}, **refusals()},
)  # fmt: skip
async def output(request: Request, who: Who, task_id: Annotated[Id, Path(description="The task's id.")]) -> Response:
    """Answer with an output: a conflict while there is none."""
    require(who, Access.READER)
    state: State = request.app.state.weft
    database = state.client_of(who).database
    task, _, kept = await database.read(lambda conn: look.show(conn, who.org_id, task_id))
    if task.state is not TaskState.COMPLETED:
        raise StateConflict("read the output of", task_id, task.state, [TaskState.COMPLETED])
    return await _as_kept(state, kept)


async def _as_kept(state: State, text: str | None) -> Response:
    """Answer with a value: what is large is not taken apart and put together again."""
    digest = None if text is None else referenced_blob(text)
    if digest is None:
        return Response((text or "null").encode(), media_type=_JSON)
    return FileAnswer(await state.blobs.open(digest), _JSON)
