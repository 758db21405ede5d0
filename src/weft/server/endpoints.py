"""Makes a route of each operation: what it takes, whom it lets in, and how it answers."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Container, Mapping
from functools import partial
from hashlib import sha256
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Body, Header, Path, Query, Request, Response
from pydantic import Field

from weft.catalog.model import Principal
from weft.contract.answers import answer_of
from weft.contract.operations import NDJSON, Access, Operation
from weft.contract.parameters import Parameter
from weft.contract.wire import new_model
from weft.core.checks import LONGEST_PAGE
from weft.core.errors import InvalidInput
from weft.core.log_lines import add_to_lines
from weft.queue.asking import Asking, asking
from weft.queue.audit import acting_because, acting_from
from weft.sdk.client import Client
from weft.sdk.session import acting_as, seeing
from weft.sdk.values import as_kept
from weft.server import progress
from weft.server.bodies import BESIDE, DAG_FILE, FILE, YAML, DefinitionRoute, JsonRoute
from weft.server.credentials import admitted, identify, origin_of, require
from weft.server.idempotency import Answered, Kept, once
from weft.server.paths import PREFIX
from weft.server.problems import refusals
from weft.server.reasons import Reason, reason_in
from weft.server.spans import made_job
from weft.server.state import State
from weft.server.versions import etag_of, expectation, is_known

IfMatch = Annotated[str | None, Header(description="ETags at which the tag is expected, or *; else nothing is done.")]
IfNoneMatch = Annotated[str | None, Header(description="ETags of what the caller has, or *; if it is that, 304.")]
_TAGGED = frozenset({"workflows.tag", "workflows.show"})
_JSON = "application/json"
# Calls that take a definition as its file has it, and what such a file looks like.
FILES: Mapping[str, Mapping[str, Any]] = {"workflows.push": FILE, "live.deploy": DAG_FILE, "live.plan": DAG_FILE}
# Calls that answer when something has ended, or say after a while that it has not.
_WAITS = frozenset({"wait", "jobs.wait"})
_LONGEST_WAIT = 60.0
# Calls that count all that waits.
_COUNTS = frozenset({"queues", "metrics"})
_MAKES_JOBS = frozenset({"jobs.submit", "jobs.rerun", "schedules.trigger"})
# What they answer is shown once, and kept nowhere.
_SECRET = frozenset({"tokens.create", "tokens.create_sign_in", "orgs.create_token"})
REPEATED = "idempotency-replayed"
_LINES = '{"progress": 120}\n{"answer": {"count": 240}}\n'
_KEY = (
    "A key of the caller's choice: the same request with the same key is carried out once, and answered as the first "
    "was; another request with it is refused."
)
_OF_TASK = " Keys of tasks are those of their handler: the same key with another handler makes another task."
_GOES_ON = (
    "With the same key the call goes on where it was broken off, and takes no job that was submitted after the first "
    "such call; the answer counts those of this request."
)
_FORM: Mapping[str, Any] = {"max_length": 500, "pattern": r"^[!-~]([ -~]*[!-~])?$"}
# Headers are read as Latin-1, and not by all alike: another text stands in the body, where the call takes one.
IdempotencyKey = Annotated[str | None, Header(description=_KEY, **_FORM)]
_TaskKey = Annotated[str | None, Header(description=_KEY + _OF_TASK, **_FORM)]
_KeyToGoOn = Annotated[str | None, Header(description=_GOES_ON, **_FORM)]


def add_operation(router: APIRouter, operation: Operation) -> None:
    """Add the route of an operation."""
    answer = answer_of(operation)
    status = operation.status
    told: dict[int | str, dict[str, Any]] = {status: {"description": operation.summary}}
    if answer.model is not None:
        told[status]["model"] = answer.model
        if operation.tells_progress:
            told[status]["content"] = {NDJSON: {"schema": {"type": "string"}, "example": _LINES}}
    elif status != 204:
        told[status]["content"] = {"text/plain": {"schema": {"type": "string"}, "example": "240 rows\n"}}
        told[204] = {"description": "There is none."}
    router.add_api_route(
        PREFIX + operation.path,
        _endpoint(operation),
        methods=[operation.method],
        name=operation.call,
        operation_id=operation.call.replace(".", "_"),
        summary=operation.summary,
        description=operation.description,
        status_code=status,
        responses=told | refusals(),
        response_class=Response,
        openapi_extra=_extra(operation),
        route_class_override=DefinitionRoute if operation.call in FILES else JsonRoute,
        tags=[operation.path.split("/")[1]],
    )


def _extra(operation: Operation) -> dict[str, Any] | None:
    """Return what FastAPI does not know of an operation: a definition may be sent as its file has it."""
    if operation.call not in FILES:
        return None
    said = {each.name: each.said for each in operation.parameters}
    beside = [
        {"name": name, "in": "query", "description": said[name], "schema": schema}
        for name, schema in BESIDE.items()
        if name in said
    ]
    return {"requestBody": {"content": {YAML: FILES[operation.call]}}, "parameters": beside}


def _endpoint(operation: Operation) -> Callable[..., Any]:
    parameters = {each.name: each for each in operation.parameters}
    media_type = "text/plain" if answer_of(operation).model is None else _JSON
    takes_body = operation.method == "GET" or any(each.place == "body" for each in operation.parameters)

    async def endpoint(request: Request, who: Principal, **given: Any) -> Response:
        state: State = request.app.state.weft
        check_once(request, given.get("query"))
        if not takes_body:
            await _check_nothing(request)
        asked = _arguments(operation, parameters, given)
        if operation.pages_by is not None:
            asked.setdefault("limit", LONGEST_PAGE)
        if operation.call in _WAITS:
            asked["timeout"] = min(asked.get("timeout", _LONGEST_WAIT), _LONGEST_WAIT)

        reason, if_match = reason_in(given.get("weft_reason")), given.get("if_match")
        if if_match is not None and "expect" in asked:
            raise InvalidInput("if-match", "give either it or expect, not both")

        async def act(client: Client, **more: Any) -> Answered:
            if if_match is not None:
                # Not before: what has been carried out by its key is answered, wherever the tag stands by now.
                more |= await expectation(client, if_match, asked)
            try:
                with as_kept():
                    call = partial(operation.of(client), **asked, **more)
                    if operation.call in _COUNTS:
                        found = await state.counts.get((who.org_id, operation.call, *sorted(asked.items())), call)
                    else:
                        found = await call()
            finally:
                if operation.call in _WAITS:
                    # Whoever has lost his credential meanwhile is told nothing, not even how it ended.
                    require(await identify(request), operation.access)
            if operation.call in _MAKES_JOBS:
                made_job(request.scope, found)
            elif operation.call == "enqueue":
                add_to_lines(task_id=str(found.id))
            return Answered(*_encoded(operation, found, asked), etag_of(found))

        # What an operator does is about orgs, not in one.
        client = state.client if operation.access is Access.OPERATOR else state.client_of(who)
        if operation.tells_progress and progress.is_wanted(request):

            async def work(note: Callable[[int], None]) -> bytes:
                with acting_as(who.actor), seeing(who.sees), acting_from(origin_of(request)), acting_because(reason):
                    return (await act(client, on_progress=note)).body

            return progress.answer(work)
        with acting_as(who.actor), seeing(who.sees), acting_from(origin_of(request)), acting_because(reason):
            key = given.get("idempotency_key")
            if key is None or operation.goes_on_by_key:
                kept = Kept(await act(client), False)
            else:
                request_bytes = b"%s\n%s" % (_address(request), await request.body())
                if operation.makes_by_key:
                    kept = await _made_once(key, request_bytes, asked, lambda: act(client))
                else:
                    kept = await once(client, key, request_bytes, act, is_secret=operation.call in _SECRET)
        status, body, etag = kept.answered
        headers = {} if etag is None else {"etag": etag}
        if is_known(given.get("if_none_match"), etag):
            return Response(status_code=304, headers=headers)
        return Response(body, status, headers | ({REPEATED: "true"} if kept.is_repeated else {}), media_type)

    endpoint.__signature__ = _signature(operation)  # type: ignore[attr-defined]
    endpoint.__name__ = operation.call.replace(".", "_")
    return endpoint


async def _made_once(key: str, request: bytes, asked: dict[str, Any], act: Callable[[], Awaitable[Answered]]) -> Kept:
    """Carry out what makes one thing by a key, which is kept with it: then no answer needs to be.

    A key that the call itself is given says what there may be one of, by whatever request it was made; then that of the
    request only tells whether it was this one.
    """
    own = asked.setdefault("idempotency_key", key)
    is_own = own is not key
    by = Asking(sha256(key.encode() + b"\n" + request if is_own else request).digest(), is_strict=not is_own)
    with asking(by):
        answered = await act()
    return Kept(answered, by.is_repeated)


async def _check_nothing(request: Request) -> None:
    """Refuse a body that says something to a call that takes none: what was meant by it would not be so."""
    said = await request.json() if await request.body() else None
    if said:
        name = str(next(iter(said)))[:80] if isinstance(said, dict) else "body"
        raise InvalidInput(name, "there is no such field here, so nothing was done: the call takes no body")


def check_once(request: Request, query: Any = None, *, several: Container[str] = ()) -> None:
    """Refuse a parameter of the address that is there several times and stands for one value."""
    sent = request.query_params
    if len(sent) == len(sent.multi_items()):
        return
    for name in sent:
        is_list = name in several or isinstance(getattr(query, name, None), (list, dict))
        if len(sent.getlist(name)) > 1 and not is_list:
            raise InvalidInput(name, "is there twice: give it once")


def _address(request: Request) -> bytes:
    query: bytes = request.scope["query_string"]
    return request.url.path.encode() + (b"?" + query if query else b"")


def _encoded(operation: Operation, found: Any, asked: Mapping[str, Any]) -> tuple[int, bytes]:
    """Return the status and the body of an answer."""
    answer = answer_of(operation)
    if answer.model is None:
        return (204, b"") if found is None else (operation.status, found)
    return operation.status, orjson.dumps(answer.encode(found, asked), option=orjson.OPT_NON_STR_KEYS)


def _arguments(operation: Operation, parameters: dict[str, Parameter], given: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of the call; what was not sent is left to its default."""
    sent = {name: value for name, value in given.items() if name in parameters and parameters[name].place == "path"}
    for part in ("query", "body"):
        if (model := given.get(part)) is not None:
            sent |= {name: getattr(model, name) for name in model.model_fields_set}
    if operation.goes_on_by_key and (key := given.get("idempotency_key")) is not None:
        if sent.get("idempotency_key") not in (None, key):
            raise InvalidInput("idempotency-key", "is another than idempotency_key of the body: give one")
        sent["idempotency_key"] = key
    sent = {name: value for name, value in sent.items() if value is not None or name in _nullable(parameters)}
    return {name: parameters[name].decode(value) for name, value in sent.items()}


def _nullable(parameters: dict[str, Parameter]) -> set[str]:
    """Return what may be null on purpose."""
    return {each.name for each in parameters.values() if each.is_required or each.name in ("params", "payload")}


def _signature(operation: Operation) -> inspect.Signature:
    found = [_keyword("request", Request), _keyword("who", admitted(operation.access))]
    rest = [each for each in operation.parameters if each.place != "path"]
    for each in operation.parameters:
        if each.place == "path":
            found.append(_keyword(each.name, Annotated[each.type, Path(description=each.said)]))
    if rest and rest[0].place == "query":
        found.append(_keyword("query", Annotated[_model(operation, rest, is_strict=False), Query()]))
    elif rest:
        body = Body(openapi_examples={"usual": {"value": dict(operation.body)}} if operation.body else None)
        default: Any = inspect.Parameter.empty if any(each.is_required for each in rest) else None
        model = _model(operation, rest, is_strict=True)
        found.append(_keyword("body", Annotated[model if default is not None else model | None, body], default))
    if any(each.name == "expect" for each in operation.parameters):
        found.append(_keyword("if_match", IfMatch, None))
    if operation.call in _TAGGED:
        found.append(_keyword("if_none_match", IfNoneMatch, None))
    if operation.changes:
        found.append(_keyword("weft_reason", Reason, None))
    if operation.takes_key:
        kinds = {"enqueue": _TaskKey, "jobs.rerun_all": _KeyToGoOn}
        found.append(_keyword("idempotency_key", kinds.get(operation.call, IdempotencyKey), None))
    return inspect.Signature(found)


def _keyword(name: str, kind: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)


def _model(operation: Operation, parameters: list[Parameter], *, is_strict: bool) -> Any:
    title = "".join(word.title() for word in operation.call.replace(".", "_").split("_"))
    parts = {
        each.name: (each.type, Field(... if each.is_required else each.default, description=each.said))
        for each in parameters
    }
    return new_model(f"{title}Request", parts, extra="forbid", strict=is_strict)
