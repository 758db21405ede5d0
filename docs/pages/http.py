"""The page of the HTTP interface, and its OpenAPI document."""

from __future__ import annotations

import json
import shlex
from functools import cache
from itertools import groupby
from typing import Any
from urllib.parse import quote

from docs.pages.markdown import code, from_docstring, table
from weft.contract.operations import Operation
from weft.contract.table import OPERATIONS
from weft.core.settings import Settings
from weft.server.app import PREFIX, make_app
from weft.server.samples import sample

_HEAD = """\
# HTTP

`weft server` answers at `/api/v1`. Each route is a call of [the client](python.md) and takes its arguments by the same
names: those in the path, and the others in the query of a GET or DELETE, else as fields of a JSON body. The whole
interface, with the types of all fields, is the OpenAPI document at `/openapi.json`, shown at `/docs`, and kept as
[openapi.json](openapi.json). [Use the HTTP API](../how-to/use-the-http-api.md) shows how to go about it.

- A request has a token: `Authorization: Bearer weft_…`. What it may do is what its role may do, in its org.
- Ids are texts. Moments are ISO 8601, spans are seconds.
- A list is a page: `items`, and `next`, which is sent as `before` or `after` for the page that follows; it is null on
  the last.
- What goes wrong is told as `application/problem+json` with the stable `code` of [the error](errors.md), the `field`
  where it is one, and `about`, what programs may want to know.
- A tag with a slash stands in a path as it is, or with `%2F`; the latter is never taken for two parts. A path that is
  also that of something more special is only that: `/tags/etl/moves` are the moves of `etl`, the tag is
  `/tags/etl%2Fmoves`.
- A POST that creates takes an `Idempotency-Key`: with the same key it is carried out once, however often it is sent.
- A body is JSON in UTF-8 that can be read in one way only: no field twice, no `NaN`, and not compressed.

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
    return "".join(parts)


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
