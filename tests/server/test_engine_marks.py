"""What the engine writes for a value, and trusts: nobody outside writes it, and it leads into no other org."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import asyncpg
import httpx
import pytest
from acts import ENDS, bodies, hold, places, put
from described import described
from server_scene import MakeHttp

import weft
from weft.core.json import RESERVED_KEYS
from weft.server.serving import Server
from weft.worker.registry import Registry

if TYPE_CHECKING:
    Connection = asyncpg.Connection[asyncpg.Record]

_REFERENCE = {"$blob": "7f" * 32, "size": 5}
_MARKED: dict[str, dict[str, Any]] = {
    "$blob": _REFERENCE,
    "$gathered": {"$gathered": [_REFERENCE]},
    "$render": {"$render": {"a": "{{ inputs.a }}"}, "inputs": _REFERENCE, "nodes": [], "job": {}},
    "$cached": {"$cached": [None, True], "params": _REFERENCE},
}
_WRITTEN = (
    "select (select count(*) from weft.task), (select count(*) from weft.task_done), (select count(*) from weft.step),"
    " (select count(*) from weft.job), (select count(*) from weft.outbox), (select count(*) from weft.event),"
    " (select count(*) from weft.task_blob), (select count(*) from weft.artifact)"
)


def _flow(**task: Any) -> dict[str, Any]:
    nodes = {"START": {"type": "start", "next": "a"}, "a": {"type": "task", "handler": "h", "next": "END", **task}}
    return {"workflow_id": "w", "nodes": {**nodes, "END": {"type": "end"}}}


def _fan_out(params: Any) -> dict[str, Any]:
    made = {"type": "fan_out", "items": [1], "task": {"handler": "h", "params": params}, "next": "END"}
    return {"workflow_id": "w", "nodes": {**_flow()["nodes"], "a": made}}


# Where values come in by the API.
_ENTRANCES: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "task": ("tasks", lambda value: {"handler": "h", "params": value}),
    "batch": ("tasks/batch", lambda value: {"tasks": [{"handler": "h"}, {"handler": "h", "params": value}]}),
    "effect": ("outbox", lambda value: {"kind": "enqueue_task", "payload": {"handler": "h", "params": value}}),
    "event": ("events", lambda value: {"name": "e", "payload": value}),
    # As jsonb it is kept in another order.
    "event, later": ("events", lambda value: {"name": "e", "payload": {"longer than a mark": 1, **value}}),
    "graph": ("jobs/graph", lambda value: {"name": "g", "items": [{"handler": "h", "params": value}]}),
    "addition": ("jobs/{job}/add", lambda value: {"items": [{"handler": "h", "params": value}]}),
    "job": ("jobs", lambda value: {"workflow": _flow(params=value)}),
    "job of a fan_out": ("jobs", lambda value: {"workflow": _fan_out(value)}),
    "patched job": (
        "jobs",
        lambda value: {"workflow": "w/main", "patch": [{"op": "add", "path": "/nodes/a/params", "value": value}]},
    ),
    "push": ("workflows", lambda value: {"definition": _flow(params=value)}),
    "patch": (
        "tags/w%2Fmain/patch",
        lambda value: {"ops": [{"op": "add", "path": "/nodes/a/params", "value": value}]},
    ),
    "set": ("tags/w%2Fmain/patch", lambda value: {"set": {"nodes.a.params": value}}),
}


def test_every_mark_is_tried() -> None:
    assert _MARKED.keys() == RESERVED_KEYS.keys()


async def test_no_mark_comes_in_by_the_api(http: httpx.AsyncClient, client: weft.Client, conn: Connection) -> None:
    assert (await http.post("/api/v1/workflows", json={"definition": _flow(), "tag": "w/main"})).status_code == 201
    job = await client.jobs.submit(_flow())
    before = await conn.fetchrow(_WRITTEN)
    for name, (path, body) in _ENTRANCES.items():
        for key, value in _MARKED.items():
            answer = await http.post(f"/api/v1/{path.format(job=job.id)}", json=body(value))
            assert answer.status_code == 422, (name, key, answer.text)
            assert f"the key '{key}' is reserved" in answer.text, (name, answer.text)
    assert await conn.fetchrow(_WRITTEN) == before
    for name, (path, body) in _ENTRANCES.items():
        fine = await http.post(f"/api/v1/{path.format(job=job.id)}", json=body({"a": _REFERENCE}))
        assert fine.is_success, (name, fine.text)


async def test_no_mark_comes_in_by_a_worker(make_http: MakeHttp, client: weft.Client, conn: Connection) -> None:
    http = await make_http(role="worker")
    await client.jobs.submit(_flow())
    holding = await hold(http, "default", "h")
    seen, before = set(), await conn.fetchrow(_WRITTEN)
    routes = bodies(described())
    routes["/v1/task/add"]["items"][0]["params"] = {"a": 1}
    for path in sorted(routes, key=lambda path: path.endswith(ENDS)):
        body = holding.fill(routes[path])
        for place in places(body):
            if place[-1] not in ("output", "data", "params"):
                continue
            seen.add(path)
            for key, value in _MARKED.items():
                answer = await http.post(path, json=put(body, place, value))
                assert answer.status_code == 422, (path, key, answer.text)
                assert f"the key '{key}' is reserved" in answer.text, (path, answer.text)
    spoken = {"step", "checkpoint", "metrics", "spawn", "add", "complete", "claim"}
    assert {f"/v1/task/{verb}" for verb in spoken} <= seen
    assert await conn.fetchrow(_WRITTEN) == before


@pytest.mark.parametrize("key", [key for key in _MARKED if key != "$blob"])
async def test_no_mark_comes_in_by_sql(conn: Connection, key: str, client: weft.Client) -> None:
    await client.create_queue("default")
    text = json.dumps(_MARKED[key])
    for written in (text, text.replace("{", " { ", 1), json.dumps(_MARKED[key], separators=(",", ":"))):
        with pytest.raises(asyncpg.PostgresError, match=rf"params: the key '\{key}' is reserved"):
            await conn.fetch("select weft.enqueue('h', $1::json)", written)


@pytest.mark.parametrize("key", list(_MARKED))
async def test_no_mark_comes_in_by_an_effect_in_sql_however_it_is_written(
    conn: Connection, key: str, client: weft.Client
) -> None:
    await client.create_queue("default")
    text = json.dumps({"handler": "h", "params": _MARKED[key]})
    for written in (text, text.replace(f'"{key}"', f'  "\\u0024{key[1:]}"', 1)):
        with pytest.raises(asyncpg.PostgresError, match=rf"payload.params: the key '\{key}' is reserved"):
            await conn.fetch("select weft.add_effect('enqueue_task', $1::json)", written)


@pytest.mark.parametrize("key", list(_MARKED))
async def test_no_mark_is_the_output_of_a_handler(client: weft.Client, registry: Registry, key: str) -> None:
    @registry.task(name="odd", retry=0)
    async def odd() -> Any:
        return _MARKED[key]

    handle = await client.enqueue("odd")
    async with weft.Worker(client=client, registry=registry):
        with pytest.raises(weft.TaskFailed, match="is reserved for"):
            await client.wait(handle.id, timeout=30)


class Rivals:
    """An org with a large value, and another that knows its digest and has written it where it should not."""

    def __init__(self, http: httpx.AsyncClient, worker: httpx.AsyncClient, rival: weft.Client, digest: str) -> None:
        self.http = http
        self.worker = worker
        self.rival = rival
        self.reference = json.dumps({"$blob": digest, "size": 300_012}, separators=(",", ":"))


@pytest.fixture
async def rivals(server: Server, client: weft.Client, conn: Connection) -> Any:
    await client.enqueue("pay", {"card": "4111" * 75_000})
    digest = await conn.fetchval("select digest from weft.task_blob")
    await client.orgs.create("rival")
    rival = client.of_org((await client.orgs.show("rival")).id, "rival")
    await rival.create_queue("default")
    await rival.cancel((await rival.enqueue("own", {"a": "y" * 300_000})).id)
    secrets = [(await rival.tokens.create(role, role=role)).secret for role in ("admin", "worker")]
    first, second = (
        httpx.AsyncClient(base_url=server.url, headers={"authorization": f"Bearer {secret}"}, timeout=30)
        for secret in secrets
    )
    async with first, second:
        yield Rivals(first, second, rival, digest)


async def test_a_digest_of_another_org_opens_nothing_wherever_it_stands(rivals: Rivals, conn: Connection) -> None:
    task = await rivals.rival.enqueue("h")
    job = await rivals.rival.jobs.submit(_flow(params={"a": 1}))
    cached = f'{{"$cached":[null,true],"params":{rivals.reference}}}'
    await conn.execute("update weft.task set params = $2 where id = $1", task.id, rivals.reference)
    inside = await conn.fetchval(
        "update weft.task set params = $2 where job_id = $1 and node = 'a' returning id", job.id, cached
    )
    bare = await rivals.rival.enqueue("elsewhere")
    await conn.execute("update weft.task set params = $2 where id = $1", bare.id, cached)
    shown = await rivals.http.get(f"/api/v1/tasks/{bare.id}")
    assert shown.json()["params"] == json.loads(cached), "only tasks of jobs have such params"
    await rivals.rival.cancel(bare.id)
    for task_id in (task.id, inside):
        shown = await rivals.http.get(f"/api/v1/tasks/{task_id}")
        assert shown.json()["params"] is None, shown.text[:200]
        assert "is missing" in shown.json()["unavailable"]["params"]["problem"]
    entered = await rivals.worker.post("/v1/worker/register", json={"queues": ["default"], "handlers": ["h"]})
    worker_id = entered.json()["worker_id"]
    claimed = await rivals.worker.post("/v1/task/claim", json={"worker_id": worker_id, "limit": 10, "wait": 20})
    assert {each["task_id"] for each in claimed.json()["tasks"]} == {str(task.id), str(inside)}
    for each in claimed.json()["tasks"]:
        held = {"task_id": each["task_id"], "lease_token": each["lease_token"]}
        fetched = await rivals.worker.post("/internal/task-fetch", json=held)
        assert (fetched.status_code, fetched.json()["code"]) == (503, "blob_unavailable"), fetched.text[:200]
        done = await rivals.worker.post("/v1/task/complete", json={**held, "output": 1})
        assert done.status_code == 200
    await conn.execute("update weft.task_done set output = $2 where id = $1", task.id, rivals.reference)
    assert (await rivals.http.get(f"/api/v1/tasks/{task.id}")).json()["output"] is None
    assert (await rivals.http.get(f"/api/v1/tasks/{task.id}/output")).status_code == 503


async def test_an_output_that_names_a_digest_of_another_org_is_rendered_into_nothing(
    rivals: Rivals, conn: Connection
) -> None:
    flow = _flow(next="b")
    flow["nodes"]["b"] = {"type": "task", "handler": "h", "params": {"a": "{{ nodes.a.output }}"}, "next": "END"}
    for output in (rivals.reference, f'{{"$gathered":[{rivals.reference}]}}'):
        job = await rivals.rival.jobs.submit(flow)
        holding = await hold(rivals.worker, "default", "h")
        await rivals.worker.post("/v1/task/complete", json=holding.fill({"task_id": "", "lease_token": ""}))
        await conn.execute("update weft.task_done set output = $2 where id = $1", int(holding.task_id), output)
        claimed = await rivals.worker.post("/v1/task/claim", json={"worker_id": holding.worker_id, "wait": 0.1})
        assert claimed.json()["tasks"] == []
        (why,) = await conn.fetch(
            "select a.error from weft.attempt a join weft.task t on t.id = a.task_id where t.job_id = $1", job.id
        )
        assert json.loads(why["error"])["type"] == "BlobUnavailable"


async def test_where_values_are_kept_is_told_to_the_operator_alone(
    rivals: Rivals, conn: Connection, settings: weft.Settings, caplog: pytest.LogCaptureFixture
) -> None:
    home = str(settings.home)
    task = await rivals.rival.enqueue("h", {"a": "x" * 300_000})
    digest = await conn.fetchval("select digest from weft.task_blob where task_id = $1", task.id)
    (blob,) = (settings.home / "blobs").glob(f"??/{digest}") if settings.home else ()
    blob.unlink()
    with caplog.at_level(logging.INFO, "weft.blobs"):
        shown = await rivals.http.get(f"/api/v1/tasks/{task.id}")
    assert "is missing" in shown.json()["unavailable"]["params"]["problem"]
    assert home not in shown.text
    assert home in caplog.text


async def test_a_task_whose_params_cannot_be_read_costs_the_others_nothing(
    make_http: MakeHttp, client: weft.Client, conn: Connection
) -> None:
    worker = await make_http(role="worker")
    good = [(await client.enqueue("h", {"n": n})).id for n in range(3)]
    jobs = [await client.jobs.submit(_flow(params={"n": n}), priority=5) for n in range(3)]
    bad = []
    for job, params in zip(
        jobs, ('{"$cached":1}', '{"$cached":[1],"params":{}}', '{"$cached":[null,true]}'), strict=True
    ):
        bad.append(
            await conn.fetchval(
                "update weft.task set params = $2 where job_id = $1 and node = 'a' returning id", job.id, params
            )
        )
    entered = await worker.post(
        "/v1/worker/register", json={"queues": ["default"], "handlers": ["h"], "concurrency": 10}
    )
    worker_id = entered.json()["worker_id"]
    claimed = await worker.post("/v1/task/claim", json={"worker_id": worker_id, "limit": 10, "wait": 20})
    assert claimed.status_code == 200, claimed.text
    assert {each["task_id"] for each in claimed.json()["tasks"]} == {str(id) for id in good}
    rows = await conn.fetch("select task_id, outcome, error from weft.attempt where task_id = any ($1)", bad)
    assert sorted(row["task_id"] for row in rows) == sorted(bad)
    assert {row["outcome"] for row in rows} == {"failed"}
    # As if the answer had been lost before they were settled.
    await conn.execute(
        "update weft.task set state = 'running', worker_id = $2, due_at = null where id = any ($1)", bad, int(worker_id)
    )
    held = await worker.post("/v1/worker/holdings", json={"worker_id": worker_id})
    assert held.status_code == 200, held.text
    assert {each["task_id"] for each in held.json()["tasks"]} == {str(id) for id in good}


async def test_a_worker_with_a_database_fails_what_it_cannot_read_and_runs_the_others(
    client: weft.Client, registry: Registry, conn: Connection
) -> None:
    ran = asyncio.Event()

    @registry.task(name="h", retry=0)
    async def h(n: int = 0) -> None:
        ran.set()

    job = await client.jobs.submit(_flow(), priority=5)
    await conn.execute("update weft.task set params = '{\"$cached\":1}' where job_id = $1 and node = 'a'", job.id)
    good = await client.enqueue("h", {"n": 1})
    async with weft.Worker(client=client, registry=registry), weft.Orchestrator(client=client):
        await client.wait(good.id, timeout=30)
        assert (await client.jobs.wait(job.id, timeout=30)).state == "failed"
    assert ran.is_set()


async def test_workers_share_outputs_only_with_those_whose_tokens_are_of_the_same_queues(
    make_http: MakeHttp, client: weft.Client
) -> None:
    for queue in ("secure", "public"):
        await client.create_queue(queue)
    key = "0" * 64

    async def work(scope: list[str] | None, queue: str, output: Any) -> Any:
        """Let a worker look for an output, and complete with one; return what it found."""
        http = await make_http(role="worker", queues=scope)
        await client.enqueue("pay", queue=queue)
        holding = await hold(http, queue, "pay")
        held = {"task_id": holding.task_id, "lease_token": holding.lease_token}
        found = (await http.post("/v1/task/cached", json={**held, "key": key})).json()["output"]
        done = await http.post("/v1/task/complete", json={**held, "output": output, "reuse": {"key": key, "lasts": 60}})
        assert done.status_code == 200, done.text
        return None if found is None else json.loads(found)

    assert await work(["secure"], "secure", "of secure") is None
    assert await work(["public"], "public", "of public") is None
    assert await work(None, "secure", "of all") is None
    assert await work(["secure", "public"], "public", "of both") is None
    assert await work(["secure"], "secure", "of secure") == "of secure"
    assert await work(["public"], "public", "of public") == "of public"
    assert await work(["public", "secure"], "secure", "of both") == "of both"
    assert await work(None, "public", "of all") == "of all"
