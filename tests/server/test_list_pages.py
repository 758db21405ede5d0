"""Lists come in pages, the same by every way to ask for them, and no list is without."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple

import asyncpg
import httpx
import pytest
from described import described

import weft
from weft.remote import calls as remote_calls

# What has a list in its answer and no pages, with what holds it.
BOUNDED = {
    "/api/v1/artifacts/{artifact_id}": "a record: the tags that are at it",
    "/api/v1/audit/verify": "it ends at the first findings",
    "/api/v1/datasets/{name}": "a record: its columns, and the roles that see it",
    "/api/v1/datasets/{name}/diff": "as many partitions as were asked for, a thousand at most",
    "/api/v1/datasets/{name}/diff/rows": "as many rows as were asked for, a thousand at most",
    "/api/v1/datasets/{name}/lineage": "as many places as were asked for, a thousand at most, and 5,000 edges",
    "/api/v1/datasets/{name}/sample": "as many rows as were asked for, a thousand at most",
    "/api/v1/datasets/{name}/state": "a record: its columns",
    "/api/v1/health": "one line for each part of the installation",
    "/api/v1/jobs/{job_id}": "a record: a patch is no larger than a request",
    "/api/v1/jobs/{job_id}/queues": "the queues that a definition names",
    "/api/v1/jobs/{job_id}/wait": "a record, as the job itself",
    "/api/v1/me": "a record: queues that a token was made for, in one request",
    "/api/v1/metrics": "one entry for each metric that there is",
    "/api/v1/schedules/{name}/ticks": "as many as were asked for, a thousand at most",
    "/api/v1/ticks": "as many as were asked for, a thousand at most",
    "/api/v1/tasks/{task_id}": "a record: attempts, which max_attempts holds, and the last 1,000 acts",
    "/api/v1/tasks/{task_id}/why": "names at most a few tasks that it waits for",
    "/api/v1/tasks/{task_id}/explain": "names at most a hundred states that it has read",
    "/api/v1/tokens/{token_id}": "a record: queues that it was made for, in one request",
    "/api/v1/users/{user}": "a record: the roles that the org has given",
    "/api/v1/workflows/{which}/blame": "a line for each field of a document, which has a greatest size",
    "/readyz": "one line for each check",
}


@cache
def _lists() -> dict[str, dict[str, Any]]:
    """Return the operations that answer with a list, by their paths."""
    document = described()
    schemas = document["components"]["schemas"]

    def has_list(schema: Mapping[str, Any]) -> bool:
        known = schemas[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
        parts = [known, *known.get("properties", {}).values()]
        return any(each.get("type") == "array" for part in parts for each in (part, *part.get("anyOf", ())))

    return {
        path: methods["get"]
        for path, methods in document["paths"].items()
        if "get" in methods
        for content in methods["get"]["responses"].get("200", {}).get("content", {}).values()
        if has_list(content.get("schema", {}))
    }


def test_every_list_has_pages_or_says_what_holds_it() -> None:
    paged = {
        path
        for path, operation in _lists().items()
        if {"limit"} < {each["name"] for each in operation.get("parameters", ())} & {"limit", "before", "after"}
    }
    assert set(_lists()) - paged == set(BOUNDED)
    assert len(paged) >= 18


class Listed(NamedTuple):
    """A list: how it is asked for, and by which field it goes on."""

    call: Callable[..., Any]
    path: str
    key: str
    by: str


LISTS = {
    "queues": Listed(lambda client, _, **page: client.queues(**page), "/queues", "name", "after"),
    "workers": Listed(lambda client, _, **page: client.workers(**page), "/workers", "id", "before"),
    "cache": Listed(lambda client, _, **page: client.cached_outputs(**page), "/cache", "handler", "after"),
    "approvals": Listed(lambda client, _, **page: client.jobs.approvals(**page), "/approvals", "task_id", "after"),
    "approvals of a job": Listed(
        lambda client, job, **page: client.jobs.approvals(job, **page), "/approvals?job_id={job}", "task_id", "after"
    ),
    "nodes": Listed(lambda client, job, **page: client.jobs.nodes(job, **page), "/jobs/{job}/nodes", "id", "after"),
    "why": Listed(lambda client, job, **page: client.jobs.why(job, **page), "/jobs/{job}/why", "task_id", "after"),
    "attempts": Listed(
        lambda client, job, **page: client.jobs.attempts(job, **page), "/jobs/{job}/attempts", "cursor", "after"
    ),
}
# Of the attempts some began at one moment, one earlier, and one has not begun.
FILL = """
  create temp table base as select weft.first_id_at(weft.now()) as id;
  insert into weft.queue (org_id, name) select 1, 'q' || n from generate_series(1, 4) n;
  insert into weft.worker (id, org_id, until, concurrency, pid, hostname, version, queues, handlers)
    select n, 1, weft.now(), 1, 1, 'here', '0', '{1}', '{}' from generate_series(1, 5) n;
  insert into weft.output_cache (org_id, key, handler, task_id, made_at, output)
    select 1, sha256(n::text::bytea), 'h' || n / 2, n, weft.now(), '{}' from generate_series(2, 11) n;
  insert into weft.job (id, org_id, end_id, state, workflow_id, base_kind, inputs)
    select b.id, 1, b.id + 9, 'running', 'w', 'tag', '{}' from base b;
  insert into weft.task (id, org_id, queue_id, order_id, job_id, state, rank, handler, params, node, attempt,
      claimed_at)
    select b.id + n, 1, 1, b.id, b.id, 'waiting', 0, 'h', '{}', 'n' || n, 1,
      case when n <= 3 then now() when n = 4 then now() - interval '1 hour' end
    from base b, generate_series(1, 5) n;
  insert into weft.attempt (task_id, attempt, org_id, job_id, outcome, started_at, ended_at)
    select b.id + 2, 0, 1, b.id, 'failed', now(), now() from base b;
  insert into weft.awaited (task_id, org_id, job_id, kind, form)
    select b.id + n, 1, b.id, 'approval', '{}' from base b, generate_series(1, 5) n;
"""


async def test_pages_give_all_of_a_list_once_and_in_order_by_every_way(
    client: weft.Client, remote: weft.RemoteClient, http: httpx.AsyncClient,
    conn: asyncpg.Connection[asyncpg.Record], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    await conn.execute(FILL)
    job = await conn.fetchval("select id from base")
    # Whoever does not say how many gets all, however many pages that takes.
    monkeypatch.setattr(remote_calls, "PAGE", 2)
    for name, listed in LISTS.items():
        whole = await listed.call(client, job)
        assert len(whole) >= 5, name
        assert await listed.call(remote, job) == whole
        for asked in (client, remote):
            found: list[Any] = []
            while page := await listed.call(asked, job, limit=2, **_place(listed, found)):
                assert len(page) <= 2
                found += page
            assert found == whole, name
        field = "task_id" if listed.key == "cursor" else listed.key
        assert await _by_http(http, listed, job, field) == [str(getattr(each, field)) for each in whole]


def _place(listed: Listed, found: list[Any]) -> dict[str, Any]:
    return {listed.by: getattr(found[-1], listed.key)} if found else {}


async def _by_http(http: httpx.AsyncClient, listed: Listed, job: int, field: str) -> list[str]:
    """Return a field of a list whose pages are asked for one after the other, as each says."""
    found: list[str] = []
    more: dict[str, str] = {}
    while True:
        path = httpx.URL(f"/api/v1{listed.path.format(job=job)}")
        answer = await http.get(path.copy_merge_params({"limit": "2", **more}))
        assert answer.status_code == 200, answer.text
        found += [each[field] for each in answer.json()["items"]]
        if answer.json()["next"] is None:
            return found
        more = {listed.by: answer.json()["next"]}


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/queues?limit=1001", "limit"), ("/workers?limit=0", "limit"), ("/workers?before=x", "before"),
        ("/cache?limit=-1", "limit"), ("/approvals?after=x", "after"), ("/approvals?limit=1001", "limit"),
        ("/jobs/1000/nodes?after=x", "after"), ("/jobs/1000/attempts?after=x", "after"),
        ("/jobs/1000/attempts?after=2026-11-17T10:00:00Z/1/99999999999", "after"),
        ("/jobs/1000/attempts?after=2026-11-17T10:00:00/1/1", "after"),
    ],
)  # fmt: skip
async def test_a_page_that_cannot_be_asked_for_is_refused_with_the_field(
    path: str, field: str, http: httpx.AsyncClient
) -> None:
    answer = await http.get(f"/api/v1{path}")
    assert answer.status_code == 422
    assert field in answer.text
