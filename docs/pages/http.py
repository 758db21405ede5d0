"""The page of the HTTP interface."""

from __future__ import annotations

from itertools import groupby

from fastapi.routing import APIRoute

from docs.pages.markdown import code, from_docstring, table
from weft.contract.operations import Access, Operation
from weft.contract.table import OPERATIONS
from weft.server.acting import ACTS
from weft.server.routes import attempt, blob, definitions, results, streams, task, worker

# Routes that are no calls of the client, and who may ask for them.
_OTHERS = (streams, definitions, results)
_HEAD = """\
# HTTP

`weft server` answers at `/api/v1`. Each route is a call of [the client](python.md) and takes its arguments by the same
names: those in the path, and the others in the query of a GET or DELETE, else as fields of a JSON body. The whole
interface, with the types of all fields, is the OpenAPI document at `/openapi.json`, shown at `/docs`.

- A request has a token: `Authorization: Bearer weft_…`. What it may do is what its role may do, in its org.
- Ids are texts. Moments are ISO 8601, spans are seconds.
- A list is a page: `items`, and `next`, which is sent as `before` or `after` for the page that follows; it is null on
  the last.
- What goes wrong is told as `application/problem+json` with the stable `code` of [the error](errors.md), the `field`
  where it is one, and `about`, what programs may want to know.
- A tag with a slash stands in a path as it is, or with `%2F`; the latter is never taken for two parts.
- A POST that creates takes an `Idempotency-Key`: with the same key it is carried out once, however often it is sent.

"""
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

"""


def page() -> str:
    """Return the page."""
    parts = [_HEAD]
    for name, found in groupby(OPERATIONS, key=lambda each: each.path.split("/")[1]):
        parts.append(f"\n## {name}\n\n")
        parts.append(table(("route", "role", "what it does"), [_row(each) for each in found]))
    parts.append(_MORE)
    routes = [route for each in _OTHERS for route in each.router.routes if isinstance(route, APIRoute)]
    parts.append(table(("route", "role", "what it does"), [_other(route) for route in routes]))
    assert all((attempt, blob, task, worker))  # what they import is what they add
    parts.append(_WORKERS)
    acts = sorted(ACTS, key=lambda act: (act.path.split("/")[2], act.path))
    parts.append(table(("route", "what it does"), [(code(f"{act.method} {act.path}"), act.said) for act in acts]))
    return "".join(parts)


def _other(route: APIRoute) -> tuple[str, str, str]:
    (method,) = sorted(route.methods or ())
    path = route.path.replace(":name}", "}")
    answer = f" {route.responses[200]['description']}" if route in streams.router.routes else ""
    return code(f"{method} {path}"), str(Access.READER), f"{route.summary}{answer}"


def _row(operation: Operation) -> tuple[str, str, str]:
    path = operation.path.replace(":name}", "}")
    return code(f"{operation.method} {path}"), str(operation.access), from_docstring(operation.summary).strip()
