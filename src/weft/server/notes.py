"""What the document says that FastAPI does not know: tags, headers, how requests are refused, and examples."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from weft.contract.table import OPERATIONS
from weft.contract.words import for_http
from weft.server.problems import MEDIA_TYPE, title_of
from weft.server.samples import sample

ABOUT = """\
Weft is a workflow engine in PostgreSQL. Each route is a call of the Python client and takes its arguments by the same
names. Whoever asks has a token: `Authorization: Bearer weft_…`; what it may do is what its role may do, in its org.

Ids are texts, moments are ISO 8601, spans are seconds. A list is a page: `items`, and `next`, which is sent as `before`
or `after` for the page that follows and is null on the last. What goes wrong is told as `application/problem+json` with
a stable `code`. What changes something takes an `Idempotency-Key`; what changes a tag takes `If-Match`.
"""
TAGS = {
    "approvals": "What waits for a person.",
    "artifacts": "All that is kept of definitions: versions, patches and snapshots.",
    "audit": "Who did what, when, and why.",
    "backfills": "What is made up for of ticks that are over.",
    "cache": "Outputs that are kept to serve again.",
    "dead-letters": "Tasks that were given up: to look at, run again, or remove.",
    "events": "What jobs are told of by others.",
    "graphs": "Graphs of tasks and groups, as they are put together in a program.",
    "health": "Whether all parts of the installation do their work.",
    "history": "The upkeep of all definitions that are kept.",
    "installation": "This server itself: alive, ready, and in numbers.",
    "jobs": "Workflows that are executed.",
    "me": "Whoever asks: who that is, and signing in and out.",
    "metrics": "The numbers of the org.",
    "orgs": "The orgs of the installation, for its operators.",
    "outbox": "Effects that are carried out after the commit that asked for them.",
    "queues": "Where tasks wait: made, paused, limited.",
    "roles": "The roles that the org defines, and who has them.",
    "datasets": "Named tables of data: their versions, partitions and what was written into them.",
    "schedules": "Workflows that begin by themselves.",
    "live": "Live DAGs: deployed, looked at, and kept going.",
    "live-backfills": "Partitions that live jobs compute anew.",
    "tags": "Names of definitions, which move; each move is kept.",
    "tasks": "Single pieces of work: enqueued, looked at, cancelled, run again.",
    "ticks": "When something would begin by itself.",
    "tokens": "Credentials of programs.",
    "users": "The people of the org.",
    "workers": "The processes that do the work.",
    "workflows": "Definitions of workflows, with their history.",
}
_REFUSALS = {
    400: ("The request cannot be read.", "malformed_request", "the body is not JSON at line 1, column 9"),
    401: ("Nobody is known by the credential.", "unauthenticated", "there is no credential: send a token"),
    403: ("The role is not enough.", "forbidden", "token:nightly is reader, and this takes writer"),
    404: ("There is no such thing in the org.", "not_found", "there is no job 381002207845156620"),
    408: ("The body came too slowly.", "request_timeout", "the body came slower than 1024 bytes a second"),
    409: ("Its state does not allow it.", "state_conflict", "job 12 is completed, and cannot be paused"),
    412: ("The tag is not where `If-Match` says.", "tag_conflict", "etl/main was moved: it is at 13, not at 12"),
    413: ("It is too large.", "too_large", "the request is larger than 16777216 bytes"),
    415: ("The body is not of a type that is taken.", "unsupported_media_type", "send the body as application/json"),
    422: ("A field is refused.", "invalid_input", "priority: must be a whole number between -32767 and 32767"),
    429: ("There is no room for it now.", "too_many_streams", "your org has 2000 streams open at this server"),
    503: ("The installation needs attention.", "database_unavailable", "its operator finds the reason in the log"),
    504: ("It has not ended in the time that was given.", "wait_timeout", "task 12 has not ended after 30 s"),
}  # fmt: skip
# What may find that nobody has room for it.
_SENT = ("jobs_send_event", "jobs_send_events")
_ALWAYS = (401, 403, 404, 409, 413, 422, 503)
_OF_BODIES = (400, 408, 415)
_HEADERS = {
    "RequestId": ("The id of the request: the one it came with, or a new one.", "a1b2c3d4"),
    "ETag": ("Where the tag stands; sent back as `If-Match` or `If-None-Match`.", '"12"'),
    "Replayed": ("`true` when the answer is that to an earlier request with the same key.", "true"),
    "RetryAfter": ("After how many seconds to ask again.", "1"),
    "Authenticate": ("How to say who asks.", "Bearer"),
}
_TELLS_TAG = frozenset({"Tag", "Materialized", "Pushed"})
_SAID = {
    "digest": "The SHA-256 of the value, in hex.",
    "lease_token": "What came with the claim: it proves that the task is still the worker's.",
    "task_id": "The task's id.",
}
# What they answer is of this request, and of none before it.
_GO_ON = frozenset(each.call.replace(".", "_") for each in OPERATIONS if each.goes_on_by_key)
_NO_MORE = ("HTTPValidationError", "ValidationError")


def complete(made: dict[str, Any]) -> None:
    """Add to a document what it does not say yet, for every operation alike."""
    schemas = made["components"]["schemas"]
    made["info"]["description"] = ABOUT
    made["components"]["headers"] = {
        name: {"description": said, "schema": {"type": "string"}, "example": like}
        for name, (said, like) in _HEADERS.items()
    }
    made["components"]["responses"] = {f"Refused{status}": _refusal(status) for status in _REFUSALS}
    used = set()
    for name, operation in operations(made):
        used |= set(operation.get("tags", ()))
        if operation.get("security") and not name.split()[1].startswith(("/v1/", "/internal/")):
            # A worker has a token, and no browser is one.
            operation["security"] = [*operation["security"], {"session": []}]
        _complete_words(operation)
        for parameter in operation.get("parameters", ()):
            parameter["schema"] = _never_null(parameter["schema"])
            parameter.setdefault("description", _SAID.get(parameter["name"], ""))
        _complete_answers(operation, schemas)
    made["tags"] = [{"name": name, "description": TAGS.get(name, "")} for name in sorted(used)]
    for name in _NO_MORE:
        schemas.pop(name, None)
    for schema in schemas.values():
        if "description" in schema:
            schema["description"] = for_http(schema["description"])


def operations(made: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the operations of a document, each with its method and path."""
    for path, methods in made["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation


def _refusal(status: int) -> dict[str, Any]:
    said, code, detail = _REFUSALS[status]
    told = {
        "type": f"urn:weft:problem:{code}",
        "title": title_of(code),
        "status": status,
        "code": code,
        "detail": detail,
    }
    schema = {"$ref": "#/components/schemas/Problem"}
    headers = _headers("RequestId")
    if status == 401:
        headers |= _headers("Authenticate", "WWW-Authenticate")
    if status in (429, 503):
        headers |= _headers("RetryAfter", "Retry-After")
    return {
        "description": said,
        "headers": headers,
        "content": {MEDIA_TYPE: {"schema": schema, "example": told | {"detail": detail}}},
    }


def _headers(name: str, called: str = "X-Request-Id") -> dict[str, Any]:
    return {called: {"$ref": f"#/components/headers/{name}"}}


def _never_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of what stands in an address or a header, where there is no null."""
    present = [each for each in schema.get("anyOf", ()) if each.get("type") != "null"]
    if not present or len(present) == len(schema["anyOf"]):
        return schema
    rest = {name: value for name, value in schema.items() if name != "anyOf"}
    return {**rest, **present[0]} if len(present) == 1 else {**rest, "anyOf": present}


def _complete_words(operation: dict[str, Any]) -> None:
    """Let the summary be what the first sentence says, where it is only the name of a function."""
    if not operation["summary"].endswith("."):
        told = " ".join(operation.get("description", "").split("\n\n", maxsplit=1)[0].split())
        operation["summary"] = told if told.endswith(".") else f"{operation['summary']}."


def _complete_answers(operation: dict[str, Any], schemas: dict[str, Any]) -> None:
    answers = operation["responses"]
    named = {parameter["name"].lower() for parameter in operation.get("parameters", ())}
    if operation.get("security"):
        statuses = {*_ALWAYS, *(_OF_BODIES if "requestBody" in operation else ())}
        statuses |= {412} if "if-match" in named else set()
        statuses |= {504} if operation["operationId"].endswith("wait") else set()
        statuses |= {429} if operation["operationId"].endswith(("stream", *_SENT)) else set()
        for status in statuses:
            answers[str(status)] = {"$ref": f"#/components/responses/Refused{status}"}
        if not statuses & set(_OF_BODIES):
            answers.pop("400", None)
        if "if-none-match" in named:
            answers["304"] = {"description": "It is what the caller has.", "headers": _headers("ETag", "ETag")}
    for content in operation.get("requestBody", {}).get("content", {}).values():
        if not content.keys() & {"example", "examples"}:
            content["example"] = sample(content["schema"], schemas)
    for status in [status for status in answers if status[0] == "2" or "$ref" not in answers[status]]:
        _complete_answer(answers[status], named, schemas, goes_on=operation["operationId"] in _GO_ON)
    operation["responses"] = dict(sorted(answers.items()))


def _complete_answer(answer: dict[str, Any], named: set[str], schemas: dict[str, Any], *, goes_on: bool) -> None:
    headers = answer.setdefault("headers", {})
    headers |= _headers("RequestId")
    if "idempotency-key" in named and not goes_on:
        headers |= _headers("Replayed", "Idempotency-Replayed")
    for media_type, content in answer.get("content", {}).items():
        schema = content.get("schema", {})
        if schema.get("$ref", "").rpartition("/")[2] in _TELLS_TAG:
            headers |= _headers("ETag", "ETag")
        if media_type == "application/json" and not content.keys() & {"example", "examples"}:
            content["example"] = sample(schema, schemas)
