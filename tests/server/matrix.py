"""All routes of the app, and a request for each: what the matrix of who may do what is made of."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any
from urllib.parse import quote

import asyncpg
import httpx
from acts import Holding, bodies, hold
from described import described
from fastapi.routing import iter_route_contexts
from starlette.routing import Route

import weft
from weft.contract.operations import Access
from weft.contract.table import OPERATIONS
from weft.sdk.session import seeing
from weft.server.app import make_app
from weft.server.credentials import ANONYMOUS
from weft.server.paths import PREFIX
from writing import written

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

    @property
    def is_safe(self) -> bool:
        """Whether it changes nothing."""
        return self.method == "GET"


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
    ("GET", "/api/v1/tasks/{task_id}/output"): including(Access.READER),
    ("GET", "/api/v1/workflows/{which:name}/graph"): including(Access.READER),
    ("POST", "/api/v1/workflows/validate"): including(Access.READER),
    ("POST", "/api/v1/query"): including(Access.READER),
    ("GET", "/api/v1/datasets/{name:name}/sample"): including(Access.READER),
    ("GET", "/api/v1/datasets/{name:name}/diff/rows"): including(Access.READER),
    ("POST", "/api/v1/jobs/graph"): including(Access.WRITER),
    ("POST", "/api/v1/jobs/{job_id}/add"): including(Access.WRITER),
}


_BODIES = {
    "/api/v1/workflows/validate": {"definition": FLOW},
    "/api/v1/query": {"sql": "select 1 as one"},
    "/api/v1/jobs/graph": {"name": "etl", "items": [{"handler": "echo"}]},
    "/api/v1/jobs/{job_id}/add": {"items": [{"handler": "echo"}]},
}


@cache
def routes() -> list[Asked]:
    """Return every route of the app, each with who may ask for it; raises for one of which nobody has said so."""
    by_route = {(each.method, PREFIX + each.path): each for each in OPERATIONS}
    app = make_app(weft.Settings.load(environ={}))
    acts = bodies(described())
    found = []
    for route in iter_route_contexts(app.routes):
        assert isinstance(route.original_route, Route), f"{route} is not of a kind that the matrix knows"
        path = str(route.path)
        for method in sorted(set(route.methods or ()) - {"HEAD"}):
            operation = by_route.get((method, path))
            if operation is not None:
                found.append(Asked(method, path, including(operation.access), operation.call, operation.body))
            elif path in ANONYMOUS:
                found.append(Asked(method, path, frozenset()))
            elif path.startswith(("/v1/", "/internal/")):
                found.append(Asked(method, path, WORKERS, body=acts.get(path, {}) if method == "POST" else {}))
            else:
                found.append(Asked(method, path, OTHERS[method, path], body=_BODIES.get(path, {})))
    assert {each.call for each in found if each.call} == {each.call for each in OPERATIONS}
    return found


@dataclass(frozen=True)
class Things:
    """What there is in an org, by the names that paths and bodies have for it, and the token of its worker."""

    names: Mapping[str, str]
    secret: str = ""

    @property
    def holding(self) -> Holding:
        """The worker of the org, and the task that it holds."""
        return Holding(self.names["worker_id"], self.names["held_id"], self.names["lease_token"])

    def path(self, asked: Asked) -> str:
        """Return the path of a request about these things."""
        kind = asked.path.removeprefix(PREFIX).split("/")[1]
        # Only what runs prints something.
        is_log = asked.path.endswith("/log/stream")

        def value(found: re.Match[str]) -> str:
            name = "held_id" if is_log and "held_id" in self.names else found[1]
            return quote(self.names.get(f"{kind}.{name}") or self.names.get(name, "1"), safe="")

        return _PARAMETER.sub(value, asked.path)

    def body(self, asked: Asked) -> dict[str, Any]:
        """Return the body of a request about these things: that of the documentation, with names that there are."""
        if asked.roles == WORKERS:
            named = {"dataset": "datasets.name", "version_id": "version_id", "id": "write_id"}
            filled = self.holding.fill(asked.body)
            if not asked.path.startswith("/v1/task/dataset/"):
                return dict(filled)
            # A dataset has one producer, which the task that is held is not.
            known = {name: self.names[place] for name, place in named.items() if name in filled}
            more = {"dataset": self.names["own_dataset"]} if asked.path.endswith("/begin") else {}
            if asked.path.startswith("/v1/task/dataset/rows"):
                in_table = {"id": "table_write_id", "version_id": "table_version_id"}
                known = {name: self.names[place] for name, place in in_table.items() if name in filled}
                more = {"paths": [f"{self.names['table_write_id']}-1.rows"]} if "paths" in filled else {}
            files = [{**file, "path": f"{self.names['write_id']}-1.parquet"} for file in filled.get("files", ())]
            return {**filled, **known, **more, **({"files": files} if files else {})}
        known = {
            "workflow": self.names["tag"], "source": self.names["tag"], "to": self.names["tag"],
            "change": self.names["change"], "user": self.names["user"], "queue": self.names["queues.name"],
            "tag": self.names["tag"],
        }  # fmt: skip
        return {name: known.get(name, value) for name, value in asked.body.items()}

    def query(self, asked: Asked) -> dict[str, Any]:
        """Return the query of a request about these things."""
        if asked.call == "schedules.preview":
            return {"cron": "@daily"}
        if asked.call == "workflows.diff":
            return {"old": self.names["tag"], "new": self.names["tag"]}
        if asked.roles == WORKERS and not asked.body and "{" not in asked.path:
            return {"task_id": self.names["held_id"], "lease_token": self.names["lease_token"]}
        return {"timeout": 0} if asked.path.endswith("/wait") else {}


async def make_things(client: weft.Client, prefix: str, url: str | None = None) -> Things:
    """Make one of each kind in an org, all with names that begin with ``prefix``; with a URL also a worker there."""
    tag = f"{prefix}/main"
    pushed = await client.workflows.push({**FLOW, "workflow_id": prefix}, tag=tag)
    job = await client.jobs.submit(tag, {})
    await client.create_queue(f"{prefix}-mail")
    task = await client.enqueue(f"{prefix}:send", {"to": prefix}, queue=f"{prefix}-mail")
    user = await client.users.add(f"{prefix}@example.com", role="writer")
    await client.roles.create(f"{prefix}-finance")
    # Nobody moves it on by itself while a test looks at what is changed.
    await client.schedules.add(tag, name=f"{prefix}/nightly", every=86400)
    moment = datetime.now(UTC)
    backfill = await client.schedules.backfill(f"{prefix}/nightly", since=moment - timedelta(days=3))
    await written(client, f"{prefix}/orders", 1)
    live = await _deployed(client, prefix)
    token = await client.tokens.create(f"{prefix}-nightly", role="writer")
    names = {
        "job_id": str(job.id), "task_id": str(task.id), "token_id": str(token.token.id), "tag": tag, "which": tag,
        "into": tag, "new": f"{prefix}/next", "user": user.external_id, "slug": f"{prefix}-finance",
        "tags.name": tag, "queues.name": f"{prefix}-mail", "orgs.slug": prefix, "change": str(pushed.artifact_id),
        "artifact_id": str(pushed.artifact_id), "user_id": str(user.id), "schedules.name": f"{prefix}/nightly",
        "backfill_id": str(backfill.id), "datasets.name": f"{prefix}/orders", **live,
    }  # fmt: skip
    return Things(names) if url is None else await _with_worker(client, prefix, url, names)


def dag(prefix: str, outside: str | None = None) -> dict[str, Any]:
    """Return a live DAG of a source of events, and a job that reads a dataset from outside of it."""
    return {
        "dag": f"{prefix}/market",
        "jobs": {
            "quotes": {
                "activation": "source", "operator": "take", "source": {"kind": "event", "event": f"{prefix}.quote"},
                "outputs": [f"{prefix}/quotes"],
            },
            "candles": {
                "activation": "reactive", "operator": "copy", "execution_strategy": "PerPartition",
                "inputs": [outside or f"{prefix}/orders"], "outputs": [f"{prefix}/copied"],
            },
        },
    }  # fmt: skip


async def _deployed(client: weft.Client, prefix: str) -> dict[str, str]:
    """Deploy a live DAG, with a unit of work for which nobody is there, and a backfill that goes on."""
    with seeing(None):
        await client.live.deploy(dag(prefix))
    await client.jobs.send_event(f"{prefix}.quote", {"price": 1})
    (unit,) = await client.live.units(f"{prefix}/market", "quotes")
    with seeing(None):
        await client.live.deploy(dag(prefix) | {"description": "again"})
    # As the first turn of the job would have it.
    await client.database.run(lambda conn: conn.execute(FIRST_TURN, f"{prefix}/copied"))
    with seeing(None):
        backfill = await client.live.backfill(f"{prefix}/market", "candles")
    return {
        "live.dag": f"{prefix}/market", "live.job": "quotes", "unit_id": str(unit.id),
        "live-backfills.backfill_id": str(backfill.id),
    }  # fmt: skip


FIRST_TURN = """
    update weft.live_input i set version_id = d.current_id, routed_write = 1, boot_write = 1
    from weft.dataset d, weft.live_output o, weft.dataset c
    where d.id = i.dataset_id and o.live_job_id = i.live_job_id and c.id = o.dataset_id and c.name = $1"""


async def _with_worker(client: weft.Client, prefix: str, url: str, names: Mapping[str, str]) -> Things:
    """Add a worker that holds a task of a job, has printed something and put a value aside."""
    queue = f"{prefix}-work"
    await client.create_queue(queue)
    worker = await client.tokens.create(f"{prefix}-worker", role="worker")
    nodes: Any = FLOW["nodes"]
    fetch = {**nodes["fetch"], "queue": queue}
    job = await client.jobs.submit({"workflow_id": prefix, "nodes": {**nodes, "fetch": fetch}})
    headers = {"authorization": f"Bearer {worker.secret}"}
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=60) as http:
        holding = await hold(http, queue, "echo")
        lease = {"task_id": holding.task_id, "lease_token": holding.lease_token}
        put = await http.put("/v1/task/blob", params=lease, content=f'"{prefix}"'.encode())
        await http.post("/v1/task/log", json={**lease, "text": f"{prefix} began\n"})
        begun = await http.post("/v1/task/dataset/begin", json={**lease, "dataset": f"{prefix}/daily"})
        await client.datasets.create(f"{prefix}/table", storage="postgres")
        in_table = await http.post("/v1/task/dataset/begin", json={**lease, "dataset": f"{prefix}/table"})
    more = {
        "worker_id": holding.worker_id, "held_id": holding.task_id, "lease_token": holding.lease_token,
        "digest": put.json()["digest"], "write_id": begun.json()["id"], "version_id": begun.json()["version_id"],
        "table_write_id": in_table.json()["id"], "table_version_id": in_table.json()["version_id"],
        "own_dataset": f"{prefix}/daily", "held_job_id": str(job.id), "worker_token_id": str(worker.token.id),
    }  # fmt: skip
    return Things({**names, **more}, worker.secret)


Headers = Mapping[str, str] | list[tuple[str, str]]


async def send(http: httpx.AsyncClient, asked: Asked, things: Things, headers: Headers) -> httpx.Response:
    """Send the request of a route."""
    body = things.body(asked) if asked.method not in ("GET", "DELETE") else None
    request = http.build_request(
        asked.method, things.path(asked), params=things.query(asked), json=body, headers=headers
    )
    answer = await http.send(request, stream=True)
    if not answer.headers.get("content-type", "").startswith("text/event-stream"):
        await answer.aread()
        return answer
    # It does not end by itself: what it says first, after how soon to come again, is enough.
    first = b""
    async for piece in answer.aiter_raw():
        first += piece
        if b"data: " in first:
            break
    await answer.aclose()
    return httpx.Response(answer.status_code, headers=answer.headers, content=first, request=request)


# What changes by itself, or by looking: signs of life, counts of what happened, seals, when a token was last used.
_MOVING = ("worker", "machine", "lease", "tally", "tally_mark", "audit_seal", "token")


async def all_rows(conn: asyncpg.Connection[asyncpg.Record], org_id: int | None = None) -> dict[str, str]:
    """Return what all tables hold that somebody could have changed, by their names; or what they hold of one org."""
    tables = await conn.fetch(
        "select relname from pg_class c where relnamespace = 'weft'::regnamespace and relkind in ('r', 'p')"
        " and not relispartition and ($1 or exists (select 1 from pg_attribute a where a.attrelid = c.oid"
        " and a.attname = 'org_id')) order by 1",
        org_id is None,
    )
    of_org = "" if org_id is None else f" where t.org_id = {org_id}"
    return {
        name: await conn.fetchval(
            f"select coalesce(string_agg(t::text, E'\\n' order by t::text), '') from weft.{name} t{of_org}"
        )
        for (name,) in tables
        if name not in _MOVING
    }


def nobodys(things: Things, slug: str, unlike: str) -> Things:
    """Return names of what nobody has, so like those of an org that they would be guessed."""
    return Things({name: _other(value, slug, unlike) for name, value in things.names.items()})


def _other(value: str, slug: str, unlike: str) -> str:
    head, dot, tail = value.partition(".")
    if head.isdigit():
        return f"{int(head) + 5}{dot}{tail}"
    return value.translate(_SHIFTED) if _HASH.fullmatch(value) else value.replace(slug, unlike)


_HASH = re.compile("[0-9a-f]{12,64}")
_SHIFTED = str.maketrans("0123456789abcdef", "123456789abcdef0")


def unnamed(answer: httpx.Response, things: Things) -> str:
    """Return what is told, without the names by which it was asked for."""
    text = answer.text
    for name in sorted(things.names.values(), key=len, reverse=True):
        text = text.replace(name, "…").replace(name.partition(".")[0], "…")
    return text
