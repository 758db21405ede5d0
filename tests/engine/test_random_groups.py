"""Random graphs with groups end as a plain program says, also when they grow while they run."""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import Any

import asyncpg
import pytest

import weft
from graph_oracle import Drawn, Graph, draw, join
from job_oracle import FAILED, POISONED
from weft.jobs.items import Group, Task
from weft.worker.registry import Registry

SHORT, LONG = 40, 2000


class Log:
    """What happened, in order, by job."""

    def __init__(self) -> None:
        self.registry = Registry()
        self.of: dict[int, list[tuple[str, str]]] = {}
        self.registry.task(name="act")(self.act)

    async def act(self, name: str, ok: bool, ctx: weft.Context) -> None:
        assert ctx.job_id is not None
        log = self.of.setdefault(ctx.job_id, [])
        log.append(("begun", name))
        await asyncio.sleep(0)
        log.append(("ended", name))
        if not ok:
            raise ValueError("as drawn")


async def _states(conn: asyncpg.Connection[asyncpg.Record], job_id: int) -> dict[str, tuple[str, str | None]]:
    rows = await conn.fetch(
        "select node, state::text, reason from weft.task_done where job_id = $1 and handler = 'act'", job_id
    )
    return {row["node"]: (row["state"], row["reason"]) for row in rows}


async def _require_as_drawn(
    conn: asyncpg.Connection[asyncpg.Record], graph: Graph, job: weft.Job, log: list[tuple[str, str]]
) -> None:
    assert job.state == ("failed" if graph.fails else "completed"), f"seed {graph.seed}: {job.state}"
    states, expected = await _states(conn, job.id), graph.expected()
    for task in graph.tasks:
        wanted: tuple[str, Any] = ("skipped", POISONED)
        if expected[task.name] != POISONED:
            wanted = (expected[task.name], "error" if expected[task.name] == FAILED else None)
        assert states[task.name] == wanted, f"seed {graph.seed}, {task.name}"
    assert graph.disorder(log) == []


async def _nothing_is_left(conn: asyncpg.Connection[asyncpg.Record]) -> bool:
    return bool(await conn.fetchval("select (select count(*) from weft.task) + (select count(*) from weft.job) = 0"))


async def test_graphs_with_groups_end_as_a_plain_program_says(
    client: weft.Client, conn: asyncpg.Connection[asyncpg.Record], campaign: str
) -> None:
    log = Log()
    graphs = [draw(seed) for seed in range(LONG if campaign == "long" else SHORT)]
    async with weft.Worker(client=client, registry=log.registry, concurrency=50), weft.Orchestrator(client=client):
        handles = [
            await client.jobs.submit_graph("drawn", list(graph.items.values()), on_failure="finish_independent")
            for graph in graphs
        ]
        for graph, handle in zip(graphs, handles, strict=True):
            job = await client.jobs.wait(handle.id, timeout=60)
            await _require_as_drawn(conn, graph, job, log.of.get(handle.id, []))
    assert await _nothing_is_left(conn)


async def test_the_definition_that_is_kept_of_a_graph_does_the_same(
    client: weft.Client, conn: asyncpg.Connection[asyncpg.Record], campaign: str
) -> None:
    log = Log()
    graphs = [draw(seed) for seed in range(LONG, LONG + (LONG if campaign == "long" else SHORT))]
    async with weft.Worker(client=client, registry=log.registry, concurrency=50), weft.Orchestrator(client=client):
        for graph in graphs:
            first = await client.jobs.submit_graph("drawn", list(graph.items.values()), on_failure="finish_independent")
            shown = await client.jobs.show(first.id)
            if shown.base_kind == "version":
                again = await client.jobs.submit(int(shown.base_ref or 0))
                job = await client.jobs.wait(again.id, timeout=60)
                await _require_as_drawn(conn, graph, job, log.of.get(again.id, []))


async def test_graphs_that_grow_before_anything_of_them_runs_end_as_a_plain_program_says(
    client: weft.Client, conn: asyncpg.Connection[asyncpg.Record], campaign: str
) -> None:
    log = Log()
    graphs = [draw(seed, late=0.4) for seed in range(LONG if campaign == "long" else SHORT)]
    handles = []
    for graph in graphs:
        chance = random.Random(graph.seed)
        first = [graph.items[each.name] for each in graph.drawn if not each.is_late]
        held = Task("none", name="held")
        for item in first:
            item.depends_on(held)
        handles.append(await client.jobs.submit_graph("drawn", [held, *first], on_failure="finish_independent"))
        late = [graph.items[each.name] for each in graph.drawn if each.is_late]
        for each in graph.drawn:
            if each.is_late:
                graph.items[each.name].depends_on(held)
                join(graph, each)
        while late:
            batch = [late.pop(0) for _ in range(min(len(late), chance.randint(1, 4)))]
            await client.jobs.add(handles[-1].id, batch)
            late = [item for item in late if item.id is None]

    async def nothing() -> None: ...

    log.registry.task(name="none")(nothing)
    async with weft.Worker(client=client, registry=log.registry, concurrency=50), weft.Orchestrator(client=client):
        for graph, handle in zip(graphs, handles, strict=True):
            job = await client.jobs.wait(handle.id, timeout=60)
            await _require_as_drawn(conn, graph, job, log.of.get(handle.id, []))
    assert await _nothing_is_left(conn)


async def test_graphs_that_grow_at_any_moment_lose_nothing_and_keep_the_order(
    client: weft.Client, conn: asyncpg.Connection[asyncpg.Record], campaign: str
) -> None:
    log = Log()
    graphs = [draw(seed, failing=0.0) for seed in range(LONG if campaign == "long" else SHORT)]
    added = 0
    async with weft.Worker(client=client, registry=log.registry, concurrency=50), weft.Orchestrator(client=client):
        for graph in graphs:
            handle = await client.jobs.submit_graph("drawn", list(graph.items.values()))
            chance = random.Random(graph.seed)
            for number in range(5):
                new, task = _grown(graph, number, chance)
                # Too late or in time, as it happens: what is refused must have left nothing behind.
                with contextlib.suppress(weft.StateConflict):
                    await client.jobs.add(handle.id, task)
                    added += 1
                    graph.drawn.append(new)
                    graph.items[new.name] = task
                    if new.above is not None:
                        new.above.members.append(new)
            job = await client.jobs.wait(handle.id, timeout=60)
            assert job.state == "completed"
            with pytest.raises(weft.StateConflict):
                await client.jobs.add(handle.id, _grown(graph, 5, chance)[1])
            assert (await _states(conn, job.id)).keys() == {task.name for task in graph.tasks}
            assert graph.disorder(log.of.get(handle.id, [])) == []
    assert await _nothing_is_left(conn)
    assert added > 0


def _grown(graph: Graph, number: int, chance: random.Random) -> tuple[Drawn, Task]:
    """Return a further task, in some group or none, after something that the group does not lead to."""
    above = chance.choice([None, *(each for each in graph.drawn if each.is_group)])
    new = Drawn(f"m{number}", 10**9, above=above)
    last = 10**9 if above is None else above.end
    earlier = [each for each in graph.drawn if each.end and each.end < last and each is not above]
    new.before = chance.sample(earlier, min(len(earlier), chance.choice((0, 1, 2))))
    group = graph.items[above.name] if above is not None else None
    # Not put into its group unless the job takes it: a group of the author's own stands for the one of the job.
    known = None if group is None else Group(group.name, id=group.id)
    task = Task("act", {"name": new.name, "ok": True}, name=new.name, group=known)
    for each in new.before:
        task.depends_on(graph.items[each.name])
    return new, task
