"""Every act of the worker protocol with a body that would be taken, and a worker that holds a task to send it with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from weft.server.samples import sample

# What ends the attempt or the worker, after which the others are refused; whoever claims tells what he has completed.
ENDS = ("/claim", "/complete", "/fail", "/release", "/decline", "/deregister")


@dataclass(frozen=True)
class Holding:
    """A worker, and a task that it holds."""

    worker_id: str
    task_id: str
    lease_token: str

    def fill(self, value: Any) -> Any:
        """Return a body in which this worker acts on this task, and waits for nothing."""
        if isinstance(value, list):
            return [self.fill(each) for each in value]
        if not isinstance(value, Mapping):
            return value
        # With a blob nobody looks at the values that stand for it.
        inner = {name: self.fill(each) for name, each in value.items() if name != "blob"}
        inner |= {"worker_id": self.worker_id} if "worker_id" in value else {}
        inner |= {"task_id": self.task_id, "lease_token": self.lease_token} if "lease_token" in value else {}
        # Of other tasks it knows none.
        inner |= {name: [self.task_id] for name in ("ids", "known") if name in value}
        return inner | ({"wait": 0} if "wait" in value else {})


async def hold(http: httpx.AsyncClient, queue: str, handler: str) -> Holding:
    """Register a worker by the token of an HTTP client, and let it claim a task of its queue."""
    entered = await http.post("/v1/worker/register", json={"queues": [queue], "handlers": [handler]})
    worker_id = entered.json()["worker_id"]
    claimed = await http.post("/v1/task/claim", json={"worker_id": worker_id, "wait": 20})
    (task,) = claimed.json()["tasks"]
    return Holding(worker_id, task["task_id"], task["lease_token"])


def bodies(document: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return by path what may be posted to the routes of workers: each field that there is, as the document has it."""
    schemas, found = document["components"]["schemas"], {}
    for path, methods in document["paths"].items():
        if path.startswith(("/v1/", "/internal/")) and "post" in methods:
            told = methods["post"]["requestBody"]["content"]["application/json"]
            found[path] = {**sample(told["schema"], schemas), **told["example"]}
    return found


def places(body: Any, at: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield every place in a body."""
    parts = body.items() if isinstance(body, dict) else enumerate(body) if isinstance(body, list) else ()
    for part, inner in parts:
        yield (*at, part)
        yield from places(inner, (*at, part))


def put(body: Any, place: tuple[str | int, ...], value: Any) -> Any:
    """Return a body with another value at a place."""
    copy = dict(body) if isinstance(body, dict) else list(body)
    copy[place[0]] = value if len(place) == 1 else put(copy[place[0]], place[1:], value)
    return copy
