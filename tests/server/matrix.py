"""All routes of the app, and a request for each: what the matrix of who may do what is made of."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import httpx
from fastapi.routing import iter_route_contexts
from starlette.routing import Route

import weft
from weft.contract.operations import Access
from weft.contract.table import OPERATIONS
from weft.server.app import PREFIX, make_app
from weft.server.credentials import ANONYMOUS

FLOW = {
    "workflow_id": "etl",
    "nodes": {
        "START": {"type": "start", "next": "fetch"},
        "fetch": {"type": "task", "handler": "echo", "params": {"size": 1}, "next": "END"},
        "END": {"type": "end"},
    },
}
_PARAMETER = re.compile(r"{(\w+)(?::\w+)?}")
ROLES = ("reader", "writer", "admin", "operator", "worker")
WORKERS = frozenset({"worker"})
EVERYBODY = frozenset(ROLES)


@dataclass(frozen=True)
class Asked:
    """A route and the roles of those who may ask for it; none: whoever comes, without a credential."""

    method: str
    path: str
    roles: frozenset[str]
    call: str = ""
    body: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_of_org(self) -> bool:
        """Whether it is about something that an org has."""
        return "{" in self.path and self.roles not in ({"operator"}, WORKERS)


def including(access: Access) -> frozenset[str]:
    """Return the roles that are enough for a call."""
    order = [str(each) for each in Access]
    return frozenset(order[order.index(access) :])


# Who may ask for the routes that are not calls of the client. One that is missing here fails every test of the matrix.
OTHERS: Mapping[tuple[str, str], frozenset[str]] = {
    ("POST", "/sign-out"): EVERYBODY,
    ("GET", "/api/v1/me"): EVERYBODY,
    ("GET", "/metrics"): including(Access.READER),
    ("GET", "/api/v1/jobs/stream"): including(Access.READER),
    ("GET", "/api/v1/jobs/{job_id}/stream"): including(Access.READER),
    ("GET", "/api/v1/jobs/{job_id}/result"): including(Access.READER),
    ("GET", "/api/v1/tasks/{task_id}/log/stream"): including(Access.READER),
    ("GET", "/api/v1/workflows/{which:name}/graph"): including(Access.READER),
    ("POST", "/api/v1/workflows/validate"): including(Access.READER),
    ("POST", "/api/v1/jobs/graph"): including(Access.WRITER),
    ("POST", "/api/v1/jobs/{job_id}/add"): including(Access.WRITER),
}


_BODIES = {
    "/api/v1/workflows/validate": {"definition": FLOW},
    "/api/v1/jobs/graph": {"name": "etl", "items": [{"handler": "echo"}]},
    "/api/v1/jobs/{job_id}/add": {"items": [{"handler": "echo"}]},
}


def routes(settings: weft.Settings) -> list[Asked]:
    """Return every route of the app, each with who may ask for it; raises for one of which nobody has said so."""
    by_route = {(each.method, PREFIX + each.path): each for each in OPERATIONS}
    found = []
    for route in iter_route_contexts(make_app(settings).routes):
        assert isinstance(route.original_route, Route), f"{route} is not of a kind that the matrix knows"
        path = str(route.path)
        for method in sorted(set(route.methods or ()) - {"HEAD"}):
            operation = by_route.get((method, path))
            if operation is not None:
                found.append(Asked(method, path, including(operation.access), operation.call, operation.body))
            elif path in ANONYMOUS:
                found.append(Asked(method, path, frozenset()))
            elif path.startswith(("/v1/", "/internal/")):
                found.append(Asked(method, path, WORKERS))
            else:
                found.append(Asked(method, path, OTHERS[method, path], body=_BODIES.get(path, {})))
    assert {each.call for each in found if each.call} == {each.call for each in OPERATIONS}
    return found


@dataclass(frozen=True)
class Things:
    """What there is in an org, by the names that paths and bodies have for it."""

    names: Mapping[str, str]

    def path(self, asked: Asked) -> str:
        """Return the path of a request about these things."""
        kind = asked.path.removeprefix(PREFIX).split("/")[1]

        def value(found: re.Match[str]) -> str:
            name = found[1]
            return quote(self.names.get(f"{kind}.{name}") or self.names.get(name, "1"), safe="")

        return _PARAMETER.sub(value, asked.path)

    def body(self, asked: Asked) -> dict[str, Any]:
        """Return the body of a request about these things: that of the documentation, with names that there are."""
        known = {
            "workflow": self.names["tag"], "source": self.names["tag"], "to": self.names["tag"],
            "change": self.names["change"], "user": self.names["user"], "queue": self.names["queues.name"],
        }  # fmt: skip
        return {name: known.get(name, value) for name, value in asked.body.items()}

    def query(self, asked: Asked) -> dict[str, Any]:
        """Return the query of a request about these things."""
        if asked.call == "workflows.diff":
            return {"old": self.names["tag"], "new": self.names["tag"]}
        return {"timeout": 0} if asked.path.endswith("/wait") else {}


async def make_things(client: weft.Client, prefix: str) -> Things:
    """Make one of each kind in an org, all with names that begin with ``prefix``."""
    tag = f"{prefix}/main"
    pushed = await client.workflows.push({**FLOW, "workflow_id": prefix}, tag=tag)
    job = await client.jobs.submit(tag, {})
    await client.create_queue(f"{prefix}-mail")
    task = await client.enqueue(f"{prefix}:send", {"to": prefix}, queue=f"{prefix}-mail")
    user = await client.users.add(f"{prefix}@example.com", role="writer")
    await client.roles.create(f"{prefix}-finance")
    token = await client.tokens.create(f"{prefix}-nightly", role="writer")
    return Things(
        {
            "job_id": str(job.id), "task_id": str(task.id), "token_id": str(token.token.id), "tag": tag, "which": tag,
            "into": tag, "new": f"{prefix}/next", "user": user.external_id, "slug": f"{prefix}-finance",
            "tags.name": tag, "queues.name": f"{prefix}-mail", "orgs.slug": prefix, "change": str(pushed.artifact_id),
            "artifact_id": str(pushed.artifact_id),
        }
    )  # fmt: skip


async def send(http: httpx.AsyncClient, asked: Asked, things: Things, headers: Mapping[str, str]) -> httpx.Response:
    """Send the request of a route."""
    body = things.body(asked) if asked.method not in ("GET", "DELETE") else None
    request = http.build_request(
        asked.method, things.path(asked), params=things.query(asked), json=body, headers=dict(headers)
    )
    answer = await http.send(request, stream=True)
    if not answer.headers.get("content-type", "").startswith("text/event-stream"):
        await answer.aread()
        return answer
    # It does not end by itself: what it says first, after how soon to come again, is enough.
    first = b""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0.5):
            async for piece in answer.aiter_raw():
                first += piece
                if b"data: " in first:
                    break
    await answer.aclose()
    return httpx.Response(answer.status_code, headers=answer.headers, content=first, request=request)
