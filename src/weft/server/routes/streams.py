"""The routes that tell what happens as it happens, as Server-Sent Events."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Header, Path, Query, Request, Response

from weft.contract.operations import Access
from weft.contract.parameters import SAID, labels_in
from weft.contract.vocabulary import one_of
from weft.contract.wire import Id, Moment
from weft.core.job_states import JobState
from weft.server.bodies import KnownRoute
from weft.server.credentials import Who, require
from weft.server.heads import refuse_head
from weft.server.likenesses import ID
from weft.server.live.feed import NothingMoreError
from weft.server.live.frames import MEDIA_TYPE, frame
from weft.server.live.guest import Guest
from weft.server.live.job_feed import JobFeed
from weft.server.live.job_list_feed import JobListFeed
from weft.server.live.log_feed import LogFeed
from weft.server.live.streaming import EventStream
from weft.server.paths import PREFIX
from weft.server.problems import refusals

if TYPE_CHECKING:
    from weft.catalog.model import Principal
    from weft.sdk.client import Client
    from weft.server.state import State

    _Kind = type[JobFeed] | type[JobListFeed] | type[LogFeed]

router = APIRouter(prefix=PREFIX, route_class=KnownRoute)
# More does not pass through what stands before a server; the ids that are given are a fraction of it.
_LONGEST = 8000
_AFTER = "The id of the last event that was had: what came after it is told. The header goes before the query."
_State = Annotated[str, one_of(JobState)]
LastId = Annotated[str | None, Header(alias="Last-Event-ID", description=_AFTER, max_length=_LONGEST)]
# As they are given: what can be printed.
After = Annotated[str | None, Query(description=_AFTER, max_length=_LONGEST, pattern="^[ -~]*$")]


def _told(what: str, *like: bytes) -> dict[int | str, dict[str, Any]]:
    """Return what the document says of the answers of a stream, and what one is like."""
    example = b"".join(like).decode()
    stream = {"description": what, "content": {MEDIA_TYPE: {"schema": {"type": "string"}, "example": example}}}
    nothing = {"description": "Nothing comes any more after that event: do not connect again."}
    return {200: stream, 204: nothing, **refusals()}


@router.get(
    "/jobs/{job_id}/stream", name="jobs.stream", operation_id="jobs_stream", tags=["jobs"], response_class=Response,
    summary="Tell what happens in a job until it has ended.", description="Takes the role `reader`.",
    responses=_told(
        "Each event as a message; then `end`, with the state of the job.",
        frame({"id": f"{ID}.completed", "job_id": ID, "type": "task.completed", "node": "fetch"}, id="12.0"),
        frame({"state": "completed"}, name="end", id="12.1"),
    ),
)  # fmt: skip
async def stream_job(
    request: Request, who: Who, job_id: Annotated[Id, Path(description="The job's id.")], last_id: LastId = None,
    after: After = None,
) -> Response:  # fmt: skip
    """Answer with what happens in a job."""
    return await _stream(request, who, ("job", job_id), JobFeed, job_id, last_id or after)


@router.get(
    "/jobs/stream", name="jobs.list.stream", operation_id="jobs_list_stream", tags=["jobs"], response_class=Response,
    summary="Tell what changes in a list of jobs: of the newest hundred that the filters let pass.",
    description="Takes the role `reader`.",
    responses=_told(
        "`list`, with all jobs; then each that is new or changed as a message, and `gone` with an id.",
        frame({"items": [{"id": ID, "workflow_id": "etl", "state": "running"}]}, name="list", id="9f2c.0"),
        frame({"id": ID, "workflow_id": "etl", "state": "completed"}, id="9f2c.1"),
    ),
)  # fmt: skip
async def stream_jobs(
    request: Request, who: Who, last_id: LastId = None,
    workflow_id: Annotated[str | None, Query(description="Of this workflow only.")] = None,
    state: Annotated[list[_State] | None, Query(description="In one of these states.")] = None,
    labels: Annotated[list[str] | None, Query(description="With all of these labels, as NAME=VALUE.")] = None,
    actor: Annotated[str | None, Query(description=SAID["actor"])] = None,
    rerun_of: Annotated[Id | None, Query(description=SAID["rerun_of"])] = None,
    since: Annotated[Moment | None, Query(description="Those submitted from this moment on.")] = None,
    until: Annotated[Moment | None, Query(description=SAID["until"])] = None,
    after: After = None,
) -> Response:  # fmt: skip
    """Answer with what changes in a list of jobs."""
    words = tuple(sorted(set(labels or ())))
    wish: dict[str, Any] = {
        "workflow_id": workflow_id,
        "state": sorted(set(state)) if state else None,
        "labels": labels_in(list(words)) or None,
        "actor": actor,
        "rerun_of": rerun_of,
        "since": since,
        "until": until,
    }
    key = ("jobs", workflow_id, tuple(sorted(set(state or ()))), words, actor, rerun_of, since, until)
    return await _stream(request, who, key, JobListFeed, wish, last_id or after)


@router.get(
    "/tasks/{task_id}/log/stream", name="tasks.log.stream", operation_id="tasks_log_stream", tags=["tasks"],
    response_class=Response, summary="Tell what a task prints until it has ended.",
    description="Takes the role `reader`. The id of an event is how many bytes of the log were told.",
    responses=_told(
        "Each piece as a message with `offset` and `text`; then `end`, with the state of the task.",
        frame({"offset": 0, "text": "240 rows\n"}, id="9"),
        frame({"state": "completed"}, name="end", id="9"),
    ),
)  # fmt: skip
async def stream_log(
    request: Request, who: Who, task_id: Annotated[Id, Path(description="The task's id.")], last_id: LastId = None,
    after: After = None,
) -> Response:  # fmt: skip
    """Answer with what a task prints."""
    return await _stream(request, who, ("log", task_id), LogFeed, task_id, last_id or after)


async def _stream(
    request: Request, who: Principal, key: tuple[Hashable, ...], kind: _Kind, what: Any, after: str | None
) -> Response:
    require(who, Access.READER)
    refuse_head(request)
    state: State = request.app.state.weft
    client: Client = state.client_of(who)
    guest = Guest(who, request)
    try:
        # Another org's is another feed, and so one that is not found.
        round = state.live.round_of(who.org_id, kind)
        visit = await state.live.open((who.org_id, *key), lambda: kind(round, client, what), guest, after)
    except NothingMoreError:
        return Response(status_code=204)
    return EventStream(visit)
