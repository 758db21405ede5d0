"""What a request says is heeded or refused, never passed over; HEAD is answered as GET is."""

from __future__ import annotations

import re

import httpx
import pytest
from described import described
from fastapi.routing import iter_route_contexts
from matrix import routes
from server_scene import FLOW

import weft
from weft.contract.table import OPERATIONS
from weft.server.app import make_app
from weft.server.bodies import KnownRoute
from weft.server.credentials import ANONYMOUS
from weft.server.notes import operations
from writing import written

_TAG = "/api/v1/tags/etl/main"


def test_every_route_that_takes_a_credential_refuses_what_it_does_not_know() -> None:
    app = make_app(weft.Settings.load(environ={}))
    lenient = [
        str(route.path) for route in iter_route_contexts(app.routes) if not isinstance(route.original_route, KnownRoute)
    ]
    assert set(lenient) <= ANONYMOUS


@pytest.mark.parametrize(
    "path", ["/api/v1/jobs/stream", "/api/v1/me", "/metrics", "/api/v1/workflows/etl/graph", "/api/v1/jobs"]
)
async def test_a_parameter_that_a_route_does_not_know_is_refused_by_its_name(
    path: str, http: httpx.AsyncClient, client: weft.Client
) -> None:
    await client.workflows.push(FLOW)
    refused = await http.get(path, params={"stat": "failed"})
    assert (refused.status_code, refused.json()["code"], refused.json()["field"]) == (422, "invalid_input", "stat")


async def test_a_change_with_a_parameter_in_the_address_that_is_not_known_is_not_made(
    http: httpx.AsyncClient, client: weft.Client
) -> None:
    refused = await http.post("/api/v1/queues", params={"dry_run": "true"}, json={"name": "mail"})
    assert (refused.status_code, refused.json()["field"]) == (422, "dry_run")
    assert "mail" not in {queue.name for queue in await client.queues()}
    assert (await http.get("/healthz?at=1")).status_code == 200, "probes may add what they like"


async def test_a_call_that_takes_no_body_is_not_made_with_one_that_says_something(
    http: httpx.AsyncClient, client: weft.Client
) -> None:
    """Whoever would clear what one handler has made must not clear all."""
    await client.workflows.push(FLOW)
    job = await client.jobs.submit("etl")
    tried = 0
    for operation in OPERATIONS:
        if operation.method != "GET" and not any(each.place == "body" for each in operation.parameters):
            path = "/api/v1" + re.sub(r"{\w+(:name)?}", str(job.id), operation.path)
            for said, field in (({"handler": "a"}, "handler"), ([1], "body")):
                answer = await http.request(operation.method, path, json=said)
                assert (answer.status_code, answer.json()["field"]) == (422, field), operation.call
            tried += 1
    assert tried > 10
    assert (await client.jobs.show(job.id)).state == "pending"
    assert (await http.post(f"/api/v1/jobs/{job.id}/cancel", json={})).status_code == 204


async def test_an_expectation_that_a_route_does_not_know_is_refused_and_nothing_is_done(
    http: httpx.AsyncClient, client: weft.Client
) -> None:
    headers = {"if-match": '"1"'}
    await client.workflows.push(FLOW)
    for path, body in (
        ("/api/v1/queues", {"name": "mail"}),
        ("/api/v1/tags/etl%2Fnext/branch", {"source": "etl"}),
        ("/api/v1/jobs/graph", {"name": "a", "items": [{"handler": "a"}]}),
    ):
        refused = await http.post(path, json=body, headers=headers)
        assert (refused.status_code, refused.json()["field"]) == (422, "if-match"), path
    assert "mail" not in {queue.name for queue in await client.queues()}
    assert await client.jobs.list() == []


async def test_whatever_changes_a_tag_does_so_only_where_it_was_seen(
    http: httpx.AsyncClient, client: weft.Client
) -> None:
    await client.workflows.push(FLOW)
    await client.workflows.patch("etl", set={"nodes.fetch.params.size": 9})
    old, now = {"if-match": '"1"'}, {"if-match": '"2"'}
    for path, body in (("compact", {}), ("protect", {"is_protected": True})):
        late = await http.post(f"{_TAG}/{path}", json=body, headers=old)
        assert (late.status_code, late.json()["code"]) == (412, "tag_conflict"), path
    assert not (await client.workflows.tag("etl")).is_protected
    assert (await http.post(f"{_TAG}/compact", headers=now)).headers["etag"] == '"3"'
    deleted = await http.delete(_TAG)
    late = await http.post(f"{_TAG}/undelete", headers=now)
    assert (late.status_code, late.json()["code"]) == (412, "tag_conflict")
    back = await http.post(f"{_TAG}/undelete", headers={"if-match": deleted.headers["etag"]})
    assert (back.status_code, back.headers["etag"]) == (200, '"5"')
    with pytest.raises(weft.TagConflict):
        await client.workflows.protect("etl", expect=4)


async def test_a_tag_that_was_protected_is_no_longer_what_a_caller_has(http: httpx.AsyncClient) -> None:
    await http.post("/api/v1/workflows", json={"definition": FLOW})
    before = (await http.get(_TAG)).headers["etag"]
    await http.post(f"{_TAG}/protect", json={"is_protected": True}, headers={"if-match": before})
    new = await http.get(_TAG, headers={"if-none-match": before})
    assert (new.status_code, new.json()["is_protected"]) == (200, True)
    protected = new.headers["etag"]
    assert (await http.get(_TAG, headers={"if-none-match": protected})).status_code == 304
    change = {"set": {"nodes.fetch.params.size": 2}, "force": True}
    landed = await http.post(f"{_TAG}/patch", json=change, headers={"if-match": protected})
    assert landed.status_code == 200, "it is where it was seen"
    assert (await http.get(_TAG, headers={"if-none-match": landed.headers["etag"]})).status_code == 200


async def test_head_says_what_get_would_before_the_body_and_streams_have_none(
    http: httpx.AsyncClient, client: weft.Client
) -> None:
    await client.workflows.push(FLOW)
    for path in ("/healthz", "/readyz", "/", "/docs", "/openapi.json", _TAG, "/api/v1/jobs", "/metrics"):
        whole, head = await http.get(path), await http.head(path)
        assert (head.status_code, head.content) == (whole.status_code, b""), path
        for name in ("content-type", "etag", "cache-control"):
            assert head.headers.get(name) == whole.headers.get(name), (path, name)
        assert "content-length" in head.headers
    for asked in routes():
        if asked.path.endswith("/stream"):
            refused = await http.head(asked.path.format(job_id=1, task_id=1))
            assert (refused.status_code, refused.headers["allow"]) == (405, "GET"), asked.path
    assert (await http.head("/api/v1/jobs/1")).status_code == 404
    assert (await http.head(_TAG, headers={"authorization": "Bearer weft_none"})).status_code == 401
    numbers = (await http.get("/metrics")).text
    assert 'method="HEAD",route="/api/v1/tags/{tag}"' in numbers, "it is counted as what it is"


async def test_a_look_at_what_is_behind_a_link_does_not_use_it_up(http: httpx.AsyncClient, client: weft.Client) -> None:
    await client.users.add("ada")
    link = f"/sign-in?code={(await client.tokens.create_sign_in(user='ada')).code}"
    assert (await http.head(link)).status_code == 405
    assert (await http.get(link)).status_code == 303


async def test_a_stream_of_jobs_has_the_filters_of_the_list(http: httpx.AsyncClient, client: weft.Client) -> None:
    await client.workflows.push(FLOW)
    made = await client.jobs.submit("etl")
    for query, expected in (
        ({"actor": client.actor}, 1), ({"actor": "nobody"}, 0), ({"rerun_of": str(made.id)}, 0),
        ({"since": "2000-01-01T00:00:00Z"}, 1), ({"until": "2000-01-01T00:00:00Z"}, 0),
    ):  # fmt: skip
        async with http.stream("GET", "/api/v1/jobs/stream", params=query) as stream:
            text = ""
            async for piece in stream.aiter_text():
                text += piece
                if "data: " in text:
                    break
        assert text.count(f'"id":"{made.id}"') == expected, query


async def test_words_and_bounds_are_those_that_the_document_tells(http: httpx.AsyncClient, client: weft.Client) -> None:
    await client.workflows.push(FLOW)
    things = {"which": "etl", "tag": "etl", "job_id": str((await client.jobs.submit("etl")).id), "task_id": "1"}
    await client.schedules.add("etl", every=3600)
    await written(client, "etl", 1)
    things["name"] = "etl"
    source = {"activation": "source", "operator": "take", "source": {"kind": "event", "event": "tick"}}
    await client.live.deploy({"dag": "market", "jobs": {"ticks": {**source, "outputs": ["ticks"]}}})
    things |= {"dag": "market", "job": "ticks"}
    tried = set()
    for name, operation in operations(described()):
        method, path = name.split()
        for each in operation.get("parameters", ()) if method == "GET" and not path.endswith("stream") else ():
            schema = each["schema"]
            words = schema.get("enum") or schema.get("items", {}).get("enum")
            if each["in"] != "query" or not (words or "maximum" in schema):
                continue
            good = words or [schema["minimum"], schema["maximum"]]
            bad = ["nonsense"] if words else [schema["minimum"] - 1, schema["maximum"] + 1]
            for value, is_good in [*((word, True) for word in good), *((word, False) for word in bad)]:
                more = {"cron": "@daily"} if path == "/api/v1/ticks" else {}
                answer = await http.get(path.format(**things), params={each["name"]: value, **more})
                assert (answer.status_code == 422) != is_good or each["name"] == "offset", (name, each["name"], value)
            tried.add(each["name"])
    assert tried >= {"sort", "state", "role", "verb", "kind", "limit"}
    for body in ({"priority": 32768}, {"priority": -32768}, {"max_attempts": 0}, {"retry": {"backoff": "no"}}):
        assert (await http.post("/api/v1/tasks", json={"handler": "a", **body})).status_code == 422
