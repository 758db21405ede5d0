"""All routes of the app, and a request for each: what the matrix of who may do what is made of."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import httpx
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute, Route

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
        return bool(self.call) and self.roles != {"operator"} and "{" in self.path


def including(access: Access) -> frozenset[str]:
    """Return the roles that are enough for a call."""
    order = [str(each) for each in Access]
    return frozenset(order[order.index(access) :])


# Who may ask for the routes that are not calls of the client. One that is missing here fails every test of the matrix.
OTHERS: Mapping[tuple[str, str], frozenset[str]] = {
    ("POST", "/sign-out"): EVERYBODY,
    ("GET", "/metrics"): including(Access.READER),
}


def routes(settings: weft.Settings) -> list[Asked]:
    """Return every route of the app, each with who may ask for it; raises for one of which nobody has said so."""
    by_route = {(each.method, PREFIX + each.path): each for each in OPERATIONS}
    found = []
    for route in _flat(make_app(settings).routes):
        assert isinstance(route, Route), f"{route} is not of a kind that the matrix knows"
        for method in sorted((route.methods or set()) - {"HEAD"}):
            operation = by_route.get((method, route.path))
            if operation is not None:
                found.append(Asked(method, route.path, including(operation.access), operation.call, operation.body))
            elif route.path in ANONYMOUS:
                found.append(Asked(method, route.path, frozenset()))
            elif route.path.startswith(("/v1/", "/internal/")):
                found.append(Asked(method, route.path, WORKERS))
            else:
                found.append(Asked(method, route.path, OTHERS[method, route.path]))
    assert {each.call for each in found if each.call} == {each.call for each in OPERATIONS}
    return found


def _flat(found: list[BaseRoute]) -> Iterator[BaseRoute]:
    for route in found:
        yield from _flat(list(getattr(route, "routes", None) or [])) if not isinstance(route, APIRoute) else [route]
        if isinstance(route, Route) and not isinstance(route, APIRoute):
            yield route


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
        }
    )  # fmt: skip


async def send(http: httpx.AsyncClient, asked: Asked, things: Things, headers: Mapping[str, str]) -> httpx.Response:
    """Send the request of a route."""
    body = things.body(asked) if asked.method not in ("GET", "DELETE") else None
    return await http.request(
        asked.method, things.path(asked), params=things.query(asked), json=body, headers=dict(headers)
    )
