"""Makes a route of each act of the worker protocol: for workers' tokens alone, quick to read and to answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar

import orjson
from fastapi import APIRouter, Depends, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, RootModel, ValidationError
from pydantic.json_schema import models_json_schema

from weft.catalog.model import Principal, TokenRole
from weft.contract.protocol import Held, Lease
from weft.core.errors import LeaseLost
from weft.core.log_lines import add_to_lines
from weft.core.server_errors import Forbidden
from weft.queue import remote_workers
from weft.queue.steps import Fence
from weft.queue.work import Claim
from weft.server.bodies import JsonRoute
from weft.server.credentials import Who, identify
from weft.server.problems import refusals

if TYPE_CHECKING:
    from weft.db.database import Database
    from weft.server.seats import Seat
    from weft.server.state import State
    from weft.worker.answers import Answers

Asked = TypeVar("Asked", bound=BaseModel)
_JSON = "application/json"
_SCHEMA = "#/components/schemas/Worker{model}"
# So many tasks of a request are named in the log.
_NAMED = 10
# What requests may have in them, for the document.
_requests: list[type[BaseModel]] = []


class Act(NamedTuple):
    """One act of the protocol, for the documentation."""

    method: str
    path: str
    said: str


ACTS: list[Act] = []


class Caller(NamedTuple):
    """Who acts, and by which request."""

    request: Request
    who: Principal

    @property
    def state(self) -> State:
        """What the server holds."""
        found: State = self.request.app.state.weft
        return found

    async def check_again(self) -> None:
        """Raise `Unauthenticated` when the caller would not be let in any more: after a wait that may be so."""
        await identify(self.request)

    @property
    def database(self) -> Database:
        """The database as the caller's org may see it."""
        return self.state.client_of(self.who).database

    @property
    def answers(self) -> Answers:
        """What does what the handlers of the caller's org ask for."""
        return self.state.answers_of(self.who)

    async def seat(self, worker_id: int) -> Seat:
        """Return a worker of the caller's; raises `WorkerLost` for anybody else's."""
        add_to_lines(worker_id=str(worker_id))
        return await self.state.seats.of(self.who, worker_id)

    async def fence(self, held: Held) -> Fence:
        """Return in whose name something is to be written; the statement itself tells whether it is still so."""
        lease: Lease = held.lease_token
        await self.seat(lease.worker_id)
        return Fence(lease.worker_id, held.task_id, lease.attempt)

    async def holds(self, held: Held) -> Claim:
        """Return a task that the caller's worker holds; raises `LeaseLost`."""
        fence = await self.fence(held)
        found = await self.database.read(
            lambda conn: remote_workers.held_among(conn, fence.worker_id, [(fence.task_id, fence.attempt)])
        )
        if fence.task_id not in found:
            raise LeaseLost(fence.task_id)
        claim = found[fence.task_id]
        if claim.job_id is not None:
            add_to_lines(job_id=str(claim.job_id))
        return claim


async def _a_worker(who: Who) -> Principal:
    """Refuse whoever has no token of a worker, before anything of what he sent is looked at."""
    if who.role is not TokenRole.WORKER:
        raise Forbidden(who.actor, who.role, TokenRole.WORKER)
    return who


AWorker = Annotated[Principal, Depends(_a_worker)]


def act(
    router: APIRouter, path: str, asked: type[Asked], answer: type[BaseModel], example: dict[str, Any]
) -> Callable[[Callable[[Caller, Asked], Awaitable[Any]]], Callable[[Caller, Asked], Awaitable[Any]]]:
    """Add the route of an act; what it returns is the answer, as JSON."""

    def add(function: Callable[[Caller, Asked], Awaitable[Any]]) -> Callable[[Caller, Asked], Awaitable[Any]]:
        async def endpoint(request: Request, who: AWorker) -> Response:
            told = await function(Caller(request, who), read(asked, await sent(request)))
            return Response(orjson.dumps(told), media_type=_JSON)

        summary = (function.__doc__ or "").split("\n", maxsplit=1)[0]
        schema = {"schema": {"$ref": _SCHEMA.format(model=asked.__name__)}, "example": example}
        router.add_api_route(
            path, endpoint, methods=["POST"], name=path, operation_id=path.strip("/").replace("/", "_"),
            route_class_override=JsonRoute, summary=summary,
            description="Takes a token with the role `worker`.", tags=["workers"], response_class=Response,
            responses={200: {"description": summary, "model": answer}, **refusals()},
            openapi_extra={"requestBody": {"required": True, "content": {_JSON: schema}}},
        )  # fmt: skip
        _requests.append(asked)
        ACTS.append(Act("POST", path, summary))
        return function

    return add


async def sent(request: Request) -> Any:
    """Return what the body of a request says, or nothing where there is none."""
    return await request.json() if await request.body() else None


def read(asked: type[Asked], found: Any) -> Asked:
    """Return what a request has in it; raises what tells all that is wrong with it."""
    try:
        told = asked.model_validate(found)
    except ValidationError as problem:
        # Of what has several forms the first word is which of them it was read as.
        first = 1 if issubclass(asked, RootModel) else 0
        errors = [{**each, "loc": ("body", *each["loc"][first:])} for each in problem.errors(include_url=False)]
        raise RequestValidationError(errors) from None
    several = told if isinstance(told, Held) else getattr(told, "tasks", None) or getattr(told, "completed", None)
    tasks = several if isinstance(several, list) else [several]
    lines_name(each.task_id for each in tasks if isinstance(each, Held))
    return told


def lines_name(tasks: Iterable[int]) -> None:
    """Put the tasks that a request is about into the lines of the log: the one, or the first of several."""
    ids = [str(task_id) for task_id in islice(tasks, _NAMED + 1)]
    if len(ids) == 1:
        add_to_lines(task_id=ids[0])
    elif ids:
        add_to_lines(task_ids=ids[:_NAMED])


def schemas() -> dict[str, Any]:
    """Return the schemas of all requests, by the names under which routes refer to them."""
    kinds = [(kind, "validation") for kind in dict.fromkeys(_requests)]
    _, made = models_json_schema(kinds, ref_template=_SCHEMA)  # type: ignore[arg-type]
    return {f"Worker{name}": schema for name, schema in made.get("$defs", {}).items()}
