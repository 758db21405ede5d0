"""Calls over HTTP: the same arguments, values and errors as those of the client that has the database."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import httpx
import pytest
from server_scene import FLOW

import weft
from weft.contract.operations import Operation
from weft.contract.table import BY_CALL, COMPOSED, OPERATIONS
from weft.sdk.client import Client
from weft.server.serving import Server
from weft.worker.registry import Registry

_GROUPS = ("jobs", "schedules", "datasets", "live", "workflows", "orgs", "users", "roles", "tokens")
# What is about the process itself.
_OWN = {"blobs", "database", "org_id", "actor", "of_org", "in_one_transaction", "because", *_GROUPS}


async def _open(client: weft.RemoteClient) -> None:
    async with client.in_one_transaction():
        pass


async def _get(client: weft.RemoteClient, name: str) -> None:
    getattr(client, name)


# All that a client of a server refuses, because it is about the database itself.
REFUSED: dict[str, Callable[[weft.RemoteClient], Awaitable[Any]]] = {
    "database": lambda client: _get(client, "database"),
    "blobs": lambda client: _get(client, "blobs"),
    "of_org": lambda client: asyncio.to_thread(client.of_org, 1, "acme"),
    "in_one_transaction": _open,
    "enqueue connection": lambda client: client.enqueue("h", connection=object()),
    "add_effect connection": lambda client: client.add_effect("enqueue_task", {"handler": "h"}, connection=object()),
    "Orchestrator": lambda client: asyncio.to_thread(lambda: weft.Orchestrator(client=client)),
}


def _calls() -> set[str]:
    own = {name for name, each in inspect.getmembers(Client, callable) if not name.startswith("_")} - _OWN
    parts = {kind: Operation(f"{kind}.list", "GET", "/", OPERATIONS[0].access) for kind in _GROUPS[1:]}
    found = {kind: inspect.getmodule(each.function) for kind, each in parts.items()}
    classes = {kind: getattr(module, kind.title()) for kind, module in found.items()}
    classes["jobs"] = weft.Jobs
    more = {
        f"{kind}.{name}"
        for kind, part in classes.items()
        for name, each in inspect.getmembers(part, callable)
        if not name.startswith("_")
    }
    return own | more


def test_every_call_of_the_client_has_a_route_or_is_told_to_have_none() -> None:
    assert _calls() == {*BY_CALL, *COMPOSED}


async def test_what_a_client_of_a_server_refuses_is_this_and_says_what_to_do(remote: weft.RemoteClient) -> None:
    for name, use in REFUSED.items():
        with pytest.raises(weft.InvalidInput, match="needs the database") as refused:
            await use(remote)
        assert refused.value.code == "needs_database", name
    assert await remote.org_id() == 1
    assert (await remote.list_tasks()).tasks == ()


def test_no_two_operations_share_a_route_and_each_parameter_is_told() -> None:
    routes = [(each.method, each.path) for each in OPERATIONS]
    assert len(set(routes)) == len(routes)
    assert all(parameter.said for each in OPERATIONS for parameter in each.parameters)
    assert all(set(each.body) <= {parameter.name for parameter in each.parameters} for each in OPERATIONS)


async def test_a_definition_goes_through_all_its_life(remote: weft.RemoteClient, client: weft.Client) -> None:
    pushed = await remote.workflows.push(FLOW, message="first")
    assert (pushed.tag, pushed.created) == ("etl/main", True)
    assert await remote.workflows.list() == await client.workflows.list()
    assert await remote.workflows.show("etl") == await client.workflows.show("etl")
    dry = await remote.workflows.patch("etl/main", set={"nodes.fetch.params.size": 2}, dry_run=True)
    assert dry == await client.workflows.patch("etl/main", set={"nodes.fetch.params.size": 2}, dry_run=True)
    await remote.workflows.patch("etl/main", set={"nodes.fetch.params.size": 2}, expect=1)
    assert await remote.workflows.diff("etl~1", "etl") == await client.workflows.diff("etl~1", "etl")
    assert await remote.workflows.blame("etl/main") == await client.workflows.blame("etl/main")
    assert (await remote.workflows.undo("etl")).target_id == pushed.artifact_id
    assert [move.verb for move in await remote.workflows.moves("etl/main")] == ["undo", "patch", "push"]
    assert [move.moved_by for move in await client.workflows.moves("etl", limit=1)] == ["token:tester"]
    with pytest.raises(weft.TagConflict) as caught:
        await remote.workflows.redo("etl", expect=1)
    assert (caught.value.why, caught.value.tag) == ("moved", "etl/main")
    with pytest.raises(weft.TagConflict):
        await remote.workflows.delete("etl", expect=1)
    assert (await remote.workflows.delete("etl", expect=3)).deleted_at is not None


async def test_a_job_is_submitted_looked_at_and_cancelled(remote: weft.RemoteClient, client: weft.Client) -> None:
    await remote.workflows.push(FLOW)
    handle = await remote.jobs.submit("etl", labels={"day": "1"}, idempotency_key="once")
    assert handle.created
    assert await remote.jobs.submit("etl", labels={"day": "1"}, idempotency_key="once") == (handle.id, False)
    other = await remote.jobs.submit("etl", idempotency_key="größer")  # what no header can hold
    assert await client.jobs.submit("etl", idempotency_key="größer") == (other.id, False)
    assert await remote.jobs.show(handle.id) == await client.jobs.show(handle.id)
    assert await remote.jobs.nodes(handle.id) == await client.jobs.nodes(handle.id)
    assert [job.id for job in await remote.jobs.list(labels={"day": "1"})] == [handle.id]
    assert await remote.jobs.list(labels={"day": "2"}) == []
    with pytest.raises(weft.WaitTimeout):
        await remote.jobs.wait(handle.id, timeout=timedelta(milliseconds=1))
    await remote.jobs.cancel(handle.id)
    told = (await remote.jobs.events(handle.id)).events
    assert [event.data["by"] for event in told if event.type == "job.cancelling"] == ["token:tester"]


async def test_errors_are_raised_as_they_are_where_the_database_is(
    remote: weft.RemoteClient, client: weft.Client
) -> None:
    await client.workflows.push(FLOW.replace("workflow_id: etl", "workflow_id: other"))
    job = await client.jobs.submit("other")
    await client.jobs.pause(job.id)
    calls: list[Any] = [
        lambda each: each.get_task(12),
        lambda each: each.jobs.show(12),
        lambda each: each.workflows.show("etl"),
        lambda each: each.workflows.push("nodes: 1"),
        lambda each: each.enqueue("h", queue="mial"),
        lambda each: each.enqueue("h", priority=10**6),
        lambda each: each.list_tasks(state="redy"),
        lambda each: each.users.show("nobody"),
        lambda each: each.workflows.show("123"),
        lambda each: each.jobs.pause(job.id),
    ]
    for call in calls:
        with pytest.raises(weft.WeftError) as there:
            await call(client)
        with pytest.raises(weft.WeftError) as here:
            await call(remote)
        assert (type(here.value), str(here.value)) == (type(there.value), str(there.value))
        assert vars(here.value) == vars(there.value)


async def test_a_task_is_enqueued_with_all_that_it_can_have(remote: weft.RemoteClient, client: weft.Client) -> None:
    retry = weft.Retry(max_attempts=5, backoff="linear")
    handle = await remote.enqueue(
        "h", {"n": 1}, priority=3, delay=timedelta(hours=1), retry=retry, timeout=60, concurrency_key="k"
    )
    assert await remote.get_task(handle.id) == await client.get_task(handle.id)
    many = await remote.enqueue_many([weft.NewTask("h", {"n": n}, priority=n, retry=retry) for n in range(3)])
    page = await remote.list_tasks(limit=2)
    assert page == await client.list_tasks(limit=2)
    assert page.next is not None
    await remote.cancel(many[0].id, reason="ordered twice")
    assert (await remote.get_task(many[0].id)).audit == (await client.get_task(many[0].id)).audit
    assert await remote.cancel_all(handler="h", dry_run=True) == 3


async def test_a_field_that_is_not_there_and_one_of_the_wrong_type_are_told_together(http: httpx.AsyncClient) -> None:
    answer = await http.post("/api/v1/tasks", json={"handler": 7, "prio": 1})
    assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json")
    told = answer.json()
    assert told["code"] == "invalid_input"
    assert {each["field"] for each in told["problems"]} == {"handler", "prio"}
    assert await _count(http) == 0


async def _count(http: httpx.AsyncClient) -> int:
    return len((await http.get("/api/v1/tasks")).json()["items"])


async def test_a_name_of_dots_leads_a_client_nowhere_else(remote: weft.RemoteClient, client: weft.Client) -> None:
    """As if the name were a step up: the tokens of an org would be those of one's own."""
    before = [token.id for token in await client.tokens.list()]
    with pytest.raises(weft.InvalidInput, match=r"^org: "):
        await remote.orgs.create_token("..", "first")
    assert [token.id for token in await client.tokens.list()] == before
    made = await client.users.add("..", role="reader")
    assert await remote.users.show("..") == made


async def test_a_name_with_a_slash_is_one_part_when_it_is_written_so(http: httpx.AsyncClient) -> None:
    await http.post("/api/v1/workflows", json={"definition": FLOW, "tag": "etl/moves"})
    plain = await http.get("/api/v1/tags/etl/moves/moves")
    assert [move["verb"] for move in plain.json()["items"]] == ["push"]
    assert (await http.get("/api/v1/tags/etl%2Fmoves")).json()["name"] == "etl/moves"
    assert (await http.get("/api/v1/tags/etl/moves")).status_code == 404  # the moves of a tag that is not there
    assert (await http.get("/api/v1/tags/etl%00moves")).status_code == 404


async def test_a_definition_is_pushed_as_its_file_and_shown_with_or_without_its_document(
    http: httpx.AsyncClient, client: weft.Client
) -> None:
    file = {"content": FLOW.encode(), "headers": {"content-type": "application/yaml; charset=utf-8"}}
    pushed = await http.post("/api/v1/workflows?message=as%20a%20file&tag=next", **file)
    assert (pushed.status_code, pushed.json()["tag"]) == (201, "etl/next")
    assert [move.message for move in await client.workflows.moves("etl/next")] == ["as a file"]
    broken = await http.post("/api/v1/workflows", content=b"nodes: [", headers=file["headers"])
    assert (broken.status_code, broken.json()["code"]) == (422, "invalid_definition")
    whole = (await http.get("/api/v1/workflows/etl%2Fnext?materialize=true")).json()
    bare = (await http.get("/api/v1/workflows/etl%2Fnext?materialize=false")).json()
    assert whole["data"]["workflow_id"] == "etl"
    assert bare == whole | {"data": {}}
    assert await client.workflows.show("etl/next", materialize=False) == replace(
        await client.workflows.show("etl/next"), data={}
    )


async def test_a_live_dag_is_planned_and_deployed_as_its_file(http: httpx.AsyncClient, client: weft.Client) -> None:
    job = b"{activation: source, operator: o, source: {kind: interval, every: 1h}, outputs: [q]}"
    dag = b"dag: market\njobs:\n  q: " + job
    file = {"content": dag, "headers": {"content-type": "application/yaml"}}
    planned = await http.post("/api/v1/live/deploys/plan", **file)
    assert (planned.status_code, planned.json()["dag"]) == (200, "market")
    assert (await http.post("/api/v1/live/deploys/plan?message=no", **file)).json()["code"] == "invalid_input"
    assert (await http.post("/api/v1/live/deploys?tag=no", **file)).json()["code"] == "invalid_input"
    assert await client.live.list() == []
    done = await http.post("/api/v1/live/deploys?message=as%20a%20file", **file)
    assert (done.status_code, done.json()["version"]) == (201, 1)
    assert [each.message for each in await client.live.history("market")] == ["as a file"]
    other = {**file, "content": dag.replace(b"1h", b"2h")}
    for seen in ("one", "-1", "1.0", "9999999999", ""):
        refused = (await http.post(f"/api/v1/live/deploys?seen={seen}", **other)).json()
        assert (refused["code"], refused["field"]) == ("invalid_input", "seen"), refused
    assert (await http.post("/api/v1/live/deploys?seen=0", **other)).json()["code"] == "deploy_conflict"
    assert (await http.post("/api/v1/live/deploys?seen=1", **other)).json()["version"] == 2


async def test_what_would_be_done_to_a_live_dag_is_told_the_same(
    http: httpx.AsyncClient, remote: weft.Client, client: weft.Client
) -> None:
    job = {"activation": "source", "operator": "o", "source": {"kind": "event", "event": "e"}, "outputs": ["q"]}
    for attempts in (1, 2):
        await client.live.deploy({"dag": "acme/market", "jobs": {"q": job | {"max_attempts": attempts}}})
    plan = await client.live.plan_rollback("acme/market")
    assert [(each.name, each.action, each.fields) for each in plan.jobs] == [("q", "adjusted", ("max_attempts",))]
    assert await remote.live.plan_rollback("acme/market") == plan
    assert await remote.live.plan_rollback("acme/market", version=1) == plan
    anew = await client.live.rebuild("acme/market", "q", dry_run=True)
    assert (anew.version, await remote.live.rebuild("acme/market", "q", dry_run=True)) == (3, anew)
    assert len(await client.live.history("acme/market")) == 2
    path = "/api/v1/live/acme/market/rollback/plan"
    answers = [await http.post(path, **sent) for sent in ({}, {"json": {}}, {"json": {"version": 1}})]
    assert [(each.status_code, each.json()["version"]) for each in answers] == [(200, 1)] * 3
    for wrong, status in ((0, 422), ("1", 422), (1.5, 422), (9, 404)):
        assert (await http.post(path, json={"version": wrong})).status_code == status, wrong


async def test_a_path_is_only_that_of_what_is_most_special(http: httpx.AsyncClient) -> None:
    await http.post("/api/v1/workflows", json={"definition": FLOW, "tag": "etl/undo"})
    for method, path, allowed in (
        ("DELETE", "/api/v1/tags/etl/undo", "POST"),
        ("GET", "/api/v1/jobs/rerun", "POST"),
        ("PUT", "/api/v1/jobs", "GET, HEAD, POST"),
        ("OPTIONS", "/api/v1/tags/etl%2Fundo", "DELETE, GET, HEAD"),
        ("PUT", "/api/v1/jobs/stream", "GET"),
    ):
        refused = await http.request(method, path)
        assert (refused.status_code, refused.headers["allow"]) == (405, allowed)
        assert refused.json()["code"] == "method_not_allowed"
    assert (await http.delete("/api/v1/tags/etl%2Fundo")).status_code == 200


async def test_what_concerns_many_tasks_is_asked_for_a_page_at_a_time(
    remote: weft.RemoteClient, client: weft.Client
) -> None:
    await client.enqueue_many([weft.NewTask("h", {"n": n}) for n in range(1100)])
    told: list[int] = []
    assert await remote.cancel_all(handler="h", dry_run=True) == 1100
    assert await remote.cancel_all(handler="h", reason="enough", on_progress=told.append) == 1100
    assert told == [500, 1000, 1100]
    assert (await client.list_tasks(state="cancelled", limit=1)).tasks[0].reason == "enough"
    first = [task.id for task in (await client.list_tasks(limit=2)).tasks]
    assert await remote.replay_all(ids=first) == 2
    assert await remote.replay_all(state="cancelled", on_progress=told.append) == 1098
    assert await remote.cancel_all(ids=first) == await client.cancel_all(ids=first) + 2 == 2
    assert await remote.replay_dead() == await remote.purge() == 0
    for each in (client, remote):
        with pytest.raises(weft.InvalidInput, match="ids: says which tasks"):
            await each.cancel_all(ids=first, queue="default")
        with pytest.raises(weft.InvalidInput, match="ids: says which tasks"):
            await each.replay_all(ids=first, dry_run=True)
        with pytest.raises(weft.InvalidInput, match="state: 'completed' is an end"):
            await each.cancel_all(state="completed")


async def test_no_more_dead_letters_are_purged_than_were_asked_for(
    remote: weft.RemoteClient, client: weft.Client, registry: Registry
) -> None:
    @registry.task(name="fails", retry=0)
    async def fails() -> None:
        raise weft.NonRetryable("no")

    await client.enqueue_many([weft.NewTask("fails")] * 5)
    await weft.Worker(client=client, registry=registry).run_until_idle()
    assert await client.purge(limit=2) == 2
    assert await remote.purge(limit=1) == 1
    assert await remote.purge() == 2


async def test_a_job_is_run_again_on_a_python_workflow_with_those_that_it_calls(
    remote: weft.RemoteClient, client: weft.Client
) -> None:
    """They are called as they are here, though no tag is moved to them."""

    @weft.task(name="calls.one")
    def one(x: int) -> int:
        return x

    def outer_of(param: int) -> Any:
        @weft.workflow(name="calls-inner")
        def inner(x: int) -> Any:
            return one(x + param)

        @weft.workflow(name="calls-outer")
        def outer(x: int = 1) -> Any:
            return inner(x)

        return outer

    first = await remote.jobs.submit(outer_of(1))
    async with weft.Orchestrator(client=client):
        await remote.jobs.cancel(first.id)
        assert (await remote.jobs.wait(first.id, 30)).state == "cancelled"
    other = outer_of(2)
    direct = await client.jobs.plan_rerun(first.id, on=other)
    assert await remote.jobs.plan_rerun(first.id, on=other) == direct
    assert (await remote.jobs.rerun(first.id, on=other)).plan == direct
    assert await remote.jobs.rerun_all(state="cancelled", on=other, dry_run=True) == 0


async def test_whoever_is_no_operator_is_told_who_that_is(server: Server, client: weft.Client) -> None:
    await client.orgs.create("acme")
    secret = (await client.orgs.create_token("acme")).secret
    async with weft.RemoteClient(server.url, secret) as acme:
        with pytest.raises(weft.Forbidden, match="ask an admin of its org `default`"):
            await acme.orgs.create_token("default")
        assert [each.subject_name for each in await acme.audit(verb="create", limit=1)] == ["first"]


@pytest.mark.parametrize("since", [-1, 0, 1e18, -967090859746933.0])
async def test_a_span_that_there_cannot_be_is_told_of(http: httpx.AsyncClient, since: float) -> None:
    answer = await http.post("/api/v1/jobs/rerun", json={"since": since, "dry_run": True})
    assert (answer.status_code, answer.json()["about"]["field"]) == (422, "since"), answer.text
