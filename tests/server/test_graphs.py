"""A job as it is drawn: one call gives its nodes, how it goes with them, and by which ways it went."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
import yaml

import weft
from engine.engine_scene import until
from engine.job_scene import Handlers, at_work, flow
from weft.jobs.items import Group, Task

CHOICE = flow(
    choose={
        "type": "conditional",
        "condition_field": "{{ 3 }}",
        "branches": [
            {"condition": "> 2", "next": "much"},
            {"condition": "== 2", "next": "two"},
            {"default": True, "next": "much"},
        ],
    },
    much={"handler": "say", "group": "outer/inner", "next": "join"},
    two={"handler": "say", "group": "outer", "next": "join"},
    join={"type": "fan_in", "next": "each"},
    each={"type": "fan_out", "items": list(range(7)), "task": {"handler": "say"}, "next": "sub"},
    sub={"type": "workflow", "workflow": "inner", "next": "END"},
    END={"type": "end"},
)
INNER = {**flow(only={"handler": "say"}), "workflow_id": "inner"}


@pytest.fixture
def handlers() -> Handlers:
    return Handlers()


async def _ended(client: weft.Client, handlers: Handlers, definition: dict[str, Any]) -> int:
    async with at_work(client, handlers):
        job = await client.jobs.submit(definition)
        await client.jobs.wait(job.id, timeout=30)
    return job.id


def _states(graph: weft.JobGraph) -> dict[str, str | None]:
    return {node.node: node.state for node in graph.nodes}


def _ways(graph: weft.JobGraph) -> dict[tuple[str, str], tuple[str, str]]:
    return {(edge.source, edge.target): (edge.kind, edge.state) for edge in graph.edges}


async def test_a_job_is_drawn_with_branches_groups_items_and_sub_workflows(
    client: weft.Client, remote: weft.RemoteClient, http: httpx.AsyncClient, handlers: Handlers
) -> None:
    await client.workflows.push(INNER)
    before = await client.jobs.submit(CHOICE)
    fresh = await client.jobs.graph(before.id)
    assert {edge.state for edge in fresh.edges} == {"open"}
    job_id = await _ended(client, handlers, CHOICE)
    graph = await client.jobs.graph(job_id)
    assert graph == await remote.jobs.graph(job_id)
    assert _states(graph) == {
        "START": None, "choose": "completed", "much": "completed", "two": "skipped", "join": "completed",
        "each": "completed", "sub": "completed", "END": "completed",
    }  # fmt: skip
    ways = _ways(graph)
    assert ways["START", "choose"] == ("next", "taken")
    assert ways["choose", "much"] == ("branch", "taken")
    assert ways["choose", "two"] == ("branch", "skipped")
    assert ways["two", "join"] == ("next", "skipped")
    nodes = {node.node: node for node in graph.nodes}
    assert (nodes["much"].group, [group.name for group in graph.groups]) == ("outer/inner", ["outer", "outer/inner"])
    assert nodes["each"].items == {"completed": 7}
    (begun,) = nodes["sub"].job_ids
    assert (await client.jobs.show(begun)).workflow_id == "inner"
    assert (graph.state, dict(graph.progress)) == ("completed", {"completed": 6, "skipped": 1})
    assert all(node.x is not None for node in graph.nodes)
    assert all(edge.path is not None for edge in graph.edges)
    told = (await http.get(f"/api/v1/jobs/{job_id}/graph")).json()
    assert [each["id"] for each in told["nodes"] if each["node"] == "each"] == [str(nodes["each"].id)]
    # Another job goes the other way, and both are drawn as they went.
    choose = {**CHOICE["nodes"]["choose"], "condition_field": "{{ 2 }}"}
    other_id = await _ended(client, handlers, {**CHOICE, "nodes": {**CHOICE["nodes"], "choose": choose}})
    assert _ways(await client.jobs.graph(other_id))["choose", "two"] == ("branch", "taken")
    assert _ways(await client.jobs.graph(job_id)) == ways


async def test_the_items_of_a_node_come_in_pages(
    client: weft.Client, remote: weft.RemoteClient, handlers: Handlers
) -> None:
    each = {"type": "fan_out", "items": list(range(7)), "task": {"handler": "hold"}, "next": "both"}
    more = {**each, "items": list(range(20))}
    definition = flow(each=each, more=more, both={"type": "fan_in", "next": "END"}, END={"type": "end"})
    definition["nodes"]["START"]["next"] = ["each", "more"]
    async with at_work(client, handlers):
        job = await client.jobs.submit(definition)
        for node, count in (("each", 7), ("more", 20)):
            await until(
                lambda node=node: client.jobs.graph(job.id, expand=node),  # type: ignore[misc]
                lambda found, count=count: len(found.items) == count,  # type: ignore[misc]
            )
        first = await remote.jobs.graph(job.id, expand="each", limit=5)
        assert [item.item for item in first.items] == [0, 1, 2, 3, 4]
        open_ = await remote.jobs.graph(job.id, expand="each", after=first.next_item, limit=5)
        assert [(item.item, item.state.is_final) for item in open_.items] == [(5, False), (6, False)]
        handlers.leave.set()
        await client.jobs.wait(job.id, timeout=60)
    rest = await remote.jobs.graph(job.id, expand="each", after=first.next_item, limit=5)
    assert [(item.item, item.state) for item in rest.items] == [(5, "completed"), (6, "completed")]
    assert rest.next_item is None
    with pytest.raises(weft.NotFound):
        await remote.jobs.graph(job.id, expand="eech")


async def test_a_node_that_failed_and_may_leads_on_and_one_that_may_not_does_not(
    client: weft.Client, handlers: Handlers
) -> None:
    once = {"max_attempts": 1}
    job_id = await _ended(
        client,
        handlers,
        flow(
            may={"handler": "fail", "retry": once, "allow_failure": True, "next": "must"},
            must={"handler": "fail", "retry": once, "next": "then"},
            then={"handler": "say"},
        ),
    )
    graph = await client.jobs.graph(job_id)
    assert _ways(graph)["may", "must"][1] == "taken"
    assert _ways(graph)["must", "then"][1] == "skipped"
    (failed,) = [node for node in graph.nodes if node.node == "must"]
    assert failed.error is not None
    assert failed.error["message"] == "never"


async def test_what_no_definition_has_is_drawn_too(client: weft.Client, handlers: Handlers) -> None:
    first, extra = Task("say", name="first"), Task("say", name="extra")
    group = Group("both")
    one, two = Task("say", name="one", group=group), Task("say", name="two", group=group)
    first >> group
    # A name that a definition cannot have beside its own: so there is none of this graph.
    late = Task("say", name="START")
    group >> late
    job = await client.jobs.submit_graph("adhoc", late)
    assert (await client.jobs.show(job.id)).snapshot_id is None
    await client.jobs.add(job.id, extra.depends_on(one))
    graph = await client.jobs.graph(job.id)
    assert set(_ways(graph)) == {
        ("first", "one"), ("first", "two"), ("one", "START"), ("two", "START"), ("one", "extra"),
    }  # fmt: skip
    assert {node.node: node.group for node in graph.nodes} == {
        "first": None, "one": "both", "two": "both", "START": None, "extra": None,
    }  # fmt: skip
    assert two.id is not None
    kept = await client.jobs.submit(flow(only={"handler": "hold"}))
    await client.jobs.add(kept.id, Task("say", name="more"))
    assert "more" in _states(await client.jobs.graph(kept.id))


async def test_a_definition_is_drawn_in_each_form_and_looked_at_without_being_kept(
    client: weft.Client, http: httpx.AsyncClient
) -> None:
    await client.workflows.push(INNER, tag="inner/graph")
    drawn = {
        form: await http.get("/api/v1/workflows/inner%2Fgraph/graph", params={"format": form})
        for form in ("json", "svg", "text", "mermaid")
    }
    assert [node["name"] for node in drawn["json"].json()["nodes"]] == ["START", "only", "END"]
    assert drawn["svg"].headers["content-type"].startswith("image/svg+xml")
    assert drawn["svg"].text.startswith("<svg")
    assert "○ only" in drawn["text"].text
    assert drawn["mermaid"].text.startswith("flowchart TD")
    sound = await http.post("/api/v1/workflows/validate", json={"definition": CHOICE})
    assert sound.json()["is_valid"]
    for wrong in ("nodes: 1", {"workflow_id": "x", "nodes": {}}):
        answer = await http.post("/api/v1/workflows/validate", json={"definition": wrong})
        assert (answer.status_code, answer.json()["is_valid"]) == (200, False)
        assert answer.json()["problems"][0]["severity"] == "error"
    assert [tag.name for tag in await client.workflows.list()] == ["inner/graph"]


async def test_a_definition_is_looked_at_as_its_file_has_it_and_read_as_strictly_as_one_that_is_kept(
    http: httpx.AsyncClient,
) -> None:
    async def looked_at(body: str, kind: str, address: str = "") -> tuple[int, Any]:
        sent = await http.post(
            f"/api/v1/workflows/validate{address}", content=body.encode(), headers={"content-type": kind}
        )
        return sent.status_code, sent.json()

    file = yaml.safe_dump(CHOICE)
    for kind in ("application/yaml", "text/yaml; charset=utf-8"):
        assert await looked_at(file, kind) == (200, {"is_valid": True, "problems": []})
    status, told = await looked_at(file.replace("type: end", "type: ende"), "application/yaml")
    assert (status, told["is_valid"], told["problems"][0]["line"] > 1) == (200, False, True)
    for body, kind, refused in [
        ('{"definition": "a", "definition": "b"}', "application/json", (400, "there twice")),
        ('{"definition": {"a": NaN}}', "application/json", (400, "NaN is not a number")),
        ("xx", "application/json", (400, "is not JSON at line 1, column 1")),
        ('{"definition": "a"}', "text/plain", (415, "send the body as application/json or application/yaml")),
    ]:
        status, told = await looked_at(body, kind)
        assert (status, refused[1] in told["detail"]) == (refused[0], True), told
    assert (await looked_at(file, "application/yaml", "?tag=other"))[0] == 422


async def test_a_live_dag_is_looked_at_as_a_workflow_is(http: httpx.AsyncClient) -> None:
    job = {"activation": "source", "operator": "python", "source": {"kind": "interval", "every": "1h"}}
    job |= {"config": {"handler": "h"}, "outputs": ["ticks"]}
    for more, sound, problem in (({}, True, None), ({"update_strategy": "append"}, False, "missing")):
        dag = {"dag": "market", "jobs": {"ticks": job | more}}
        as_file = {"content": yaml.safe_dump(dag).encode(), "headers": {"content-type": "application/yaml"}}
        for sent in ({"json": {"definition": dag}}, as_file):
            told = (await http.post("/api/v1/workflows/validate", **sent)).json()
            assert (told["is_valid"], [each["code"] for each in told["problems"]]) == (
                sound,
                [problem] if problem else [],
            )


async def test_a_result_is_returned_as_it_is_kept_and_nothing_while_there_is_none(
    client: weft.Client, http: httpx.AsyncClient, handlers: Handlers
) -> None:
    large = "x" * 400_000
    end = {"type": "end", "output": "{{ nodes.first.output }}"}
    running = await client.jobs.submit(flow(first={"handler": "hold"}))
    refused = await http.get(f"/api/v1/jobs/{running.id}/result")
    assert (refused.status_code, refused.json()["code"]) == (409, "state_conflict")
    handlers.leave.set()
    for value in ({"n": 1}, large):
        first = {"handler": "say", "params": {"value": "{{ inputs.value }}"}, "next": "END"}
        job_id = await _ended_with(client, handlers, flow({"value": {"type": "any"}}, first=first, END=end), value)
        answer = await http.get(f"/api/v1/jobs/{job_id}/result")
        assert answer.json() == value == (await client.jobs.show(job_id)).result
        (first_task,) = [node for node in await client.jobs.nodes(job_id) if node.node == "first"]
        assert (await http.get(f"/api/v1/tasks/{first_task.id}/output")).json() == value
    for path in ("jobs/12/result", "tasks/12/output"):
        assert (await http.get(f"/api/v1/{path}")).status_code == 404
    waiting = await client.enqueue("nobody")
    refused = await http.get(f"/api/v1/tasks/{waiting.id}/output")
    assert (refused.status_code, refused.json()["code"]) == (409, "state_conflict")


async def _ended_with(client: weft.Client, handlers: Handlers, definition: dict[str, Any], value: Any) -> int:
    async with at_work(client, handlers):
        job = await client.jobs.submit(definition, {"value": value})
        await client.jobs.wait(job.id, timeout=30)
    return job.id
