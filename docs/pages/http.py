"""The page of the HTTP interface, and its OpenAPI document."""

from __future__ import annotations

import json
import re
import shlex
from functools import cache
from itertools import groupby
from typing import Any
from urllib.parse import quote

from docs.pages.markdown import code, from_docstring, table
from weft.contract.operations import Operation
from weft.contract.table import OPERATIONS
from weft.core.settings import Settings
from weft.server.acting import ACTS
from weft.server.app import make_app
from weft.server.notes import operations
from weft.server.paths import PREFIX
from weft.server.samples import sample

_ROLE = re.compile(r"Takes the role `(\w+)`\.")
_HEAD = """\
# HTTP

`weft server` answers at `/api/v1`. Each route is a call of [the client](python.md) and takes its arguments by the same
names: those in the path, and the others in the query of a GET or DELETE, else as fields of a JSON body. The whole
interface, with the types of all fields, is the OpenAPI document at `/openapi.json`, shown at `/docs`, and kept as
[openapi.json](openapi.json). [Use the HTTP API](../how-to/use-the-http-api.md) shows how to go about it.

- A request has a token: `Authorization: Bearer weft_…`. What it may do is what its role may do, in its org.
- Ids are texts. Moments are ISO 8601, spans are seconds.
- A list is a page: `items`, and `next`, which is sent as `before` or `after` for the page that follows; it is null on
  the last, and on no other, however few items a page has.
- What goes wrong is told as `application/problem+json` with the stable `code` of [the error](errors.md), the `field`
  where it is one, and `about`, what programs may want to know.
- A tag with a slash stands in a path as it is, or with `%2F`; the latter is never taken for two parts. A path that is
  also that of something more special is only that: `/tags/etl/moves` are the moves of `etl`, the tag is
  `/tags/etl%2Fmoves`.
- What changes something takes an `Idempotency-Key`: with the same key it is carried out once, however often it is sent.
- A body is JSON in UTF-8 that can be read in one way only: no field twice, no `NaN`, and not compressed. Nor is a
  parameter of the address there twice that is one value; it has 500 at most.

Beside the codes of [errors](errors.md) a server answers with these:

"""
_CODES = (
    (400, "malformed_request", "The request is not HTTP, or its body is not JSON."),
    (404, "no_such_route", "There is no such route."),
    (405, "method_not_allowed", "The route is there for the methods that `Allow` names."),
    (408, "request_timeout", "The body came too slowly."),
    (415, "unsupported_media_type", "The body is not `application/json` in UTF-8, or it is compressed."),
    (431, "headers_too_large", "The address and the headers are longer than 64 KiB."),
    (500, "internal_error", "The server met with a surprise, which is in its log."),
)
_WORKERS = """
## workers

The worker protocol, for workers without a database: [how to write one](../how-to/write-a-worker-in-any-language.md).
Its routes are not under `/api/v1`, and take a token with the role `worker`, which is good for nothing else.

- `task_id` and `lease_token` come with a claim. What is sent with a lease that is lost is refused with `lease_lost`,
  and nothing is written; in a request about several tasks, those are listed as `refused`, and the others are done.
- A worker is its token's own: with another token it is not found.

"""

_MORE = """
## streams, drawings, results

These are no calls of the client. A stream is Server-Sent Events (`text/event-stream`), and goes on until what it tells
of has ended. An event has an `id`: sent as `Last-Event-ID`, or as `after` in the query, the stream goes on behind it;
some of what came last may be told again then, and each event of a job has an `id` of its own in its data to tell by.
When nothing came after it and nothing will, the answer is 204, at which browsers stop to come again. `closed` is the
last event of a stream that ends early, with a `code`: `unauthenticated` when its token was revoked or its user
deactivated, `lagging` when it was read too slowly, `server_stopping`. [How to use them](../how-to/use-a-server.md).

A server keeps `WEFT_SERVER_STREAMS` open at once, of them `WEFT_SERVER_ORG_STREAMS` of one org; beyond that the answer
is 503 `server_full`, or 429 `too_many_streams`, with `Retry-After`.

"""
_INSTALLATION = """
## the server itself

These are not under `/api/v1`.

"""


@cache
def _document() -> dict[str, Any]:
    return make_app(Settings.load(environ={})).openapi()


def document_text() -> str:
    """Return the OpenAPI document as it is kept: in an order that does not change by itself."""
    return json.dumps(_document(), indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def page() -> str:
    """Return the page."""
    codes = [(str(status), code(name), said) for status, name, said in _CODES]
    parts = [_HEAD, table(("status", "code", "when"), codes)]
    for name, found in groupby(OPERATIONS, key=lambda each: each.path.split("/")[1]):
        routes = list(found)
        parts.append(f"\n## {name}\n\n")
        parts.append(table(("route", "role", "what it does"), [_row(each) for each in routes]))
        parts += [_route(each) for each in routes]
    others = _others()
    parts.append(_MORE)
    parts.append(table(("route", "role", "what it does"), [row for is_call, row in others if is_call]))
    parts.append(_INSTALLATION)
    parts.append(table(("route", "role", "what it does"), [row for is_call, row in others if not is_call]))
    parts.append(_WORKERS)
    acts = sorted(ACTS, key=lambda act: (act.path.split("/")[2], act.path))
    parts.append(table(("route", "what it does"), [(code(f"{act.method} {act.path}"), act.said) for act in acts]))
    return "".join(parts)


def _others() -> list[tuple[bool, tuple[str, str, str]]]:
    """Return a row for each route that is neither a call nor an act of a worker, and whether it is of the API."""
    known = {f"{each.method} {PREFIX}{_path(each)}" for each in OPERATIONS} | {f"{a.method} {a.path}" for a in ACTS}
    found = []
    for route, told in operations(_document()):
        if route in known:
            continue
        role = _ROLE.search(told.get("description", ""))
        who = role[1] if role is not None else "any" if told.get("security") else "no token"
        streamed = told["responses"].get("200", {})
        more = f" {streamed['description']}" if "text/event-stream" in streamed.get("content", {}) else ""
        is_of_api = f" {PREFIX}/" in route
        row = code(route.replace(f" {PREFIX}/", " /")), who, f"{told['summary']}{more}"
        found.append((is_of_api, row))
    return found


def _path(operation: Operation) -> str:
    return operation.path.replace(":name}", "}")


def _row(operation: Operation) -> tuple[str, str, str]:
    return (
        code(f"{operation.method} {_path(operation)}"),
        str(operation.access),
        from_docstring(operation.summary).strip(),
    )


def _route(operation: Operation) -> str:
    """Return what a route takes, and how it is called."""
    told = _document()["paths"][PREFIX + _path(operation)][operation.method.lower()]
    found = [(each["name"], each["in"], each) for each in told.get("parameters", ())]
    content = told.get("requestBody", {}).get("content", {}).get("application/json")
    if content is not None:
        body = _resolved(content["schema"])
        required = body.get("required", ())
        found += [
            (name, "body", {"schema": schema, "required": name in required, **schema})
            for name, schema in body["properties"].items()
        ]
    rows = [_parameter(name, place, each) for name, place, each in found]
    parts = [f"\n### {operation.method} {_path(operation)}\n\n{operation.description}\n"]
    if rows:
        parts += ["\n", table(("name", "where", "type", "default", "meaning"), rows)]
    parts.append(f"\n<!-- not run: names and ids are examples -->\n```sh\n{_curl(operation, told)}\n```\n")
    return "".join(parts)


def _parameter(name: str, place: str, told: dict[str, Any]) -> tuple[str, str, str, str, str]:
    schema = told["schema"]
    default = schema.get("default")
    shown = "*required*" if told.get("required") else "" if default in (None, "") else code(json.dumps(default))
    return code(name), place, _type(schema), shown, told.get("description", schema.get("description", ""))


def _type(schema: dict[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_type(each) for each in schema["anyOf"] if each.get("type") != "null"))
    if "$ref" in schema:
        found = _resolved(schema)
        return " or ".join(code(each) for each in found["enum"]) if "enum" in found else "object"
    if schema.get("format") == "date-time":
        return "moment"
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    if schema.get("pattern", "").startswith("^[0-9]"):
        return "id"
    return str(schema.get("type", "anything"))


def _resolved(schema: dict[str, Any]) -> dict[str, Any]:
    if "anyOf" in schema:
        return _resolved(next(each for each in schema["anyOf"] if each.get("type") != "null"))
    if "$ref" not in schema:
        return schema
    found: dict[str, Any] = _document()["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return found


def _curl(operation: Operation, told: dict[str, Any]) -> str:
    path = _path(operation)
    query = []
    for each in told.get("parameters", ()):
        like = str(sample(each["schema"], {}, each["name"]))
        if each["in"] == "path":
            path = path.replace(f"{{{each['name']}}}", quote(like, safe=""))
        elif each["in"] == "query" and each.get("required"):
            query.append(f"{each['name']}={quote(like, safe='')}")
    address = f"$WEFT_SERVER{PREFIX}{path}" + (f"?{'&'.join(query)}" if query else "")
    words = ["curl"]
    if operation.method == "DELETE" or (operation.method == "POST" and not operation.body):
        words.append(f"-X {operation.method}")
    words.append('-H "Authorization: Bearer $WEFT_TOKEN"')
    if operation.body:
        words.append(f"--json {shlex.quote(json.dumps(dict(operation.body)))}")
    return " ".join([*words, f'"{address}"'])
