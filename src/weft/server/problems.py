"""Errors as `application/problem+json`, with the stable code, and without what is nobody's business."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import orjson
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from weft.contract.errors import told_of
from weft.core.errors import BlobUnavailable, DatabaseUnavailable, InvalidInput, OperatorError, TagConflict, WeftError
from weft.core.server_errors import ServerStopping, SourceFull, TooManyStreams, Unauthenticated
from weft.db.database import PASSING
from weft.server.heads import method_of
from weft.server.paths import methods_at

logger = logging.getLogger("weft.server")
MEDIA_TYPE = "application/problem+json"
_NOT_ALLOWED = 405
_ATTENTION = "the installation needs attention; its operator finds the reason in the server's log"
_CODES = {
    400: "malformed_request", 404: "no_such_route", 405: "method_not_allowed", 415: "unsupported_media_type",
}  # fmt: skip


class Problem(BaseModel):
    """What went wrong (RFC 9457); ``code`` is stable, ``detail`` is for people."""

    type: str = Field(examples=["urn:weft:problem:invalid_input"])
    title: str = Field(examples=["Unprocessable Content"])
    status: int = Field(examples=[422])
    code: str = Field(examples=["invalid_input"])
    detail: str = Field(examples=["priority: must be a whole number between -32767 and 32767"])
    field: str | None = Field(None, description="What is wrong, where it is one thing.")
    about: dict[str, Any] | None = Field(None, description="What it is about, by name, for programs.")
    problems: list[dict[str, Any]] | None = Field(
        None,
        description="All that is wrong: with a request each `field` and its `problem`, with a definition each problem "
        "as `/workflows/validate` tells it.",
    )
    conflict: dict[str, Any] | None = Field(
        None, description="Of `tag_conflict`: the `tag`, `why`, and what it is now, with who moved it, when, to what."
    )
    conflicts: list[dict[str, Any]] | None = Field(
        None, description="Of `merge_conflict`: each `path` that both sides changed, with `base`, `ours` and `theirs`."
    )


def problem(status: int, code: str, title: str, detail: str, more: Mapping[str, Any] | None = None) -> Response:
    """Return an answer that says what is wrong."""
    told = {"type": f"urn:weft:problem:{code}", "title": title, "status": status, "code": code, "detail": detail}
    headers = {"www-authenticate": "Bearer"} if status == Unauthenticated.http_status else {}
    if status == OperatorError.http_status:
        headers["retry-after"] = "1"
    if status == TooManyStreams.http_status:
        headers["retry-after"] = "1" if code == SourceFull.code else "10"
    body = orjson.dumps(told | dict(more or {}), default=str)
    return Response(body, status, headers, MEDIA_TYPE)


def title_of(code: str) -> str:
    """Return the title of problems that are none of Weft's own errors."""
    return "".join(word.title() for word in code.split("_"))


def refusals() -> dict[int | str, dict[str, Any]]:
    """Return what the document says of the answers that refuse a request."""
    content = {"content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}}
    said = {
        400: "The request cannot be read.", 401: "Nobody is known by the credential.", 403: "The role is not enough.",
        404: "There is no such thing in the org.", 409: "Its state does not allow it.", 413: "It is too large.",
        422: "A field is refused.", 503: "The installation needs attention.",
    }  # fmt: skip
    return {status: {"description": text, **content} for status, text in said.items()}


def of_error(error: WeftError) -> Response:
    """Return the answer to a call that ended with an error of Weft's own."""
    title = type(error).__name__
    if isinstance(error, OperatorError) and not isinstance(error, (BlobUnavailable, ServerStopping)):
        # It may name machines, roles and settings: whoever runs the server reads it there.
        logger.error("%s: %s", error.code, error)
        return problem(error.http_status, error.code, title, _ATTENTION)
    return problem(error.http_status, error.code, title, str(error), told_of(error))


def of_outage(error: Exception) -> Response:
    """Return the answer to a call for which PostgreSQL had no time or no room: it may be sent again."""
    kind = DatabaseUnavailable
    logger.error("%s: %s: %s", kind.code, type(error).__name__, str(error) or "PostgreSQL did not answer in time")
    return problem(kind.http_status, kind.code, kind.__name__, _ATTENTION)


def of_surprise() -> Response:
    """Return the answer to a call that ended with an error that nobody has thought of; it is the connection's last."""
    answer = problem(500, "internal_error", "InternalError", "the server met with a surprise; its log has more")
    answer.headers["connection"] = "close"
    return answer


def of_wrong_fields(error: RequestValidationError) -> Response:
    """Return the answer to a request that does not have the form it should have: all that is wrong with it at once."""
    problems = [{"field": _place(each["loc"]), "problem": _said(each)} for each in error.errors()]
    first = problems[0]
    detail = "; ".join(f"{each['field']}: {each['problem']}" for each in problems[:10])
    more = {"field": first["field"], "problems": problems[:100]}
    return problem(InvalidInput.http_status, InvalidInput.code, "InvalidInput", detail, more)


def _place(loc: tuple[str | int, ...]) -> str:
    """Return where something is wrong, without the part of the request that it stands in and the types it is not."""
    inner = [part for part in loc[1:] if part not in ("body", "query")]
    return ".".join(str(part) for part in inner) or str(loc[0])


def _said(each: Mapping[str, Any]) -> str:
    if each["type"] == "extra_forbidden":
        return "there is no such field"
    if each["type"] == "missing":
        return "is required"
    return str(each["msg"]).removeprefix("Value error, ")


def install(app: FastAPI) -> None:
    """Let the app answer with problems whatever goes wrong."""

    async def on_weft_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, WeftError)
        answer = of_error(error)
        if "if-match" in request.headers and isinstance(error, TagConflict) and error.why == "moved":
            answer.status_code = 412
        return answer

    async def on_wrong_fields(_: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return of_wrong_fields(error)

    async def on_http_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        code = _CODES.get(error.status_code, "http_error")
        said = {
            404: f"there is no route {request.url.path}",
            405: f"{method_of(request)} is not for {request.url.path}",
        }
        answer = problem(error.status_code, code, title_of(code), said.get(error.status_code, str(error.detail)))
        answer.headers.update(error.headers or {})
        if error.status_code == _NOT_ALLOWED:
            answer.headers["allow"] = ", ".join(methods_at(request))
        return answer

    async def on_outage(_: Request, error: Exception) -> Response:
        return of_outage(error)

    async def on_surprise(request: Request, error: Exception) -> Response:
        logger.error("%s %s ended with a surprise", request.method, request.url.path, exc_info=error)
        return of_surprise()

    app.add_exception_handler(WeftError, on_weft_error)
    app.add_exception_handler(RequestValidationError, on_wrong_fields)
    app.add_exception_handler(HTTPException, on_http_error)
    for kind in PASSING:
        app.add_exception_handler(kind, on_outage)
    app.add_exception_handler(Exception, on_surprise)
