"""Graphs that are put together in Python travel through a server as they are."""

from __future__ import annotations

import httpx
import pytest

import weft
from weft.jobs.items import Group, Item, Task


def _graph() -> tuple[Task, Group, list[Item]]:
    """Return a graph: the last of it, its group, and all of it."""
    first, group = Task("say", {"value": "ä" * 70_000}, name="first", retry=weft.Retry(max_attempts=2)), Group("both")
    one = Task("say", name="one", group=group, timeout=30, concurrency_key="k")
    two = Task("say", name="two", group=group, priority=3, queue="mail", allow_failure=True)
    last = Task("say", name="last")
    first >> group >> last
    return last, group, [first, group, one, two, last]


def _ways(graph: weft.JobGraph) -> set[tuple[str, str]]:
    return {(edge.source, edge.target) for edge in graph.edges}


async def test_a_graph_is_the_same_job_through_a_server_and_is_added_to(
    client: weft.Client, remote: weft.RemoteClient
) -> None:
    made = []
    await client.create_queue("mail")
    for each in (client, remote):
        last, group, items = _graph()
        job = await each.jobs.submit_graph(
            "w", last, labels={"by": "test"}, priority=4, on_failure="finish_independent"
        )
        assert job.created
        extra = Task("say", name="extra").depends_on(items[0])
        await each.jobs.add(job.id, [extra, Task("say", name="late", group=group)])
        assert {item.job_id for item in (*items, extra)} == {job.id}
        shown = await client.jobs.show(job.id)
        found = [await client.get_task(item.id or 0) for item in (*items, extra) if isinstance(item, Task)]
        made.append(
            (
                shown.version_hash, dict(shown.labels), shown.priority, _ways(await client.jobs.graph(job.id)),
                [(task.handler, task.queue, task.params, task.priority, task.max_attempts) for task in found],
            )
        )  # fmt: skip
    assert made[0] == made[1]
    assert ("first", "extra") in made[1][3]


async def test_a_graph_with_a_key_is_made_once_and_what_is_part_of_a_job_stays_there(
    client: weft.Client, remote: weft.RemoteClient
) -> None:
    job = await remote.jobs.submit_graph("w", part := Task("say"), idempotency_key="k")
    again = await remote.jobs.submit_graph("w", other := Task("say"), idempotency_key="k")
    assert (again.id, again.created, other.id) == (job.id, False, None)
    elsewhere = await remote.jobs.submit_graph("w", Task("say"))
    for each in (client, remote):
        for bad in (part, Task("say").depends_on(part), Task("say", group=Group(id=job.id))):
            with pytest.raises(weft.InvalidInput, match="is part of job"):
                await each.jobs.submit_graph("w", bad)
        with pytest.raises(weft.InvalidInput, match="another job"):
            await each.jobs.add(elsewhere.id, Task("say").depends_on(part))
        with pytest.raises(weft.NotFound):
            await each.jobs.add(12, Task("say"))
        with pytest.raises(weft.InvalidInput, match="on_failure"):
            await each.jobs.submit_graph("w", Task("say"), on_failure="never")
    assert len(await client.jobs.list()) == 2


async def test_what_is_added_by_a_request_that_is_sent_again_is_added_once(
    client: weft.Client, http: httpx.AsyncClient
) -> None:
    body = {
        "name": "w",
        "items": [{"handler": "say"}, {"name": "g"}, {"handler": "say", "group": 1}],
        "pairs": [[0, 1]],
    }
    begun = [await http.post("/api/v1/jobs/graph", json=body, headers={"idempotency-key": "k"}) for _ in range(2)]
    assert begun[0].json() == begun[1].json(), begun[1].text
    assert (begun[0].status_code, len(begun[0].json()["ids"])) == (201, 3)
    path, more = (
        f"/api/v1/jobs/{begun[0].json()['id']}/add",
        {"items": [{"handler": "say"}], "known": begun[0].json()["ids"][:1], "pairs": [[1, 0]]},
    )
    added = [await http.post(path, json=more, headers={"idempotency-key": "l"}) for _ in range(2)]
    assert added[0].json() == added[1].json(), added[1].text
    assert added[1].headers["idempotency-replayed"] == "true"
    assert len(await client.jobs.list()) == 1
    assert len((await client.list_tasks(handler="say")).tasks) == 3
    wrong = await http.post(path, json={"items": [{"handler": "say"}], "pairs": [[0, 9]]})
    assert (wrong.status_code, wrong.json()["field"]) == (422, "pairs[0]")
