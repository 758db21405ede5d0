"""Groups that lead to groups: one step stands between many and many, and a job goes as if each led to each."""

from __future__ import annotations

import random
from typing import Any

import asyncpg
import pytest

import weft
from weft.flow.document import Document
from weft.flow.validation import check_document
from weft.jobs import plan
from weft.jobs.plan import Plan
from weft.worker.registry import Registry


class Players:
    """A handler that notes who acted, and fails as drawn until it is mended."""

    def __init__(self) -> None:
        self.registry = Registry()
        self.acted: list[str] = []
        self.is_mended = False
        self.registry.task(name="act", retry=0)(self.act)

    async def act(self, name: str, ok: bool = True) -> str:
        self.acted.append(name)
        if not ok and not self.is_mended:
            raise ValueError("as drawn")
        return name


def act(name: str, **said: Any) -> dict[str, Any]:
    return {"handler": "act", "params": {"name": name}, **said}


def crowds(size: int) -> dict[str, Any]:
    """Two groups, of which one comes after the other."""
    nodes = {f"{group}{n}": act(f"{group}{n}", group=group) for group in "ab" for n in range(size)}
    return {
        "workflow_id": "crowds",
        "groups": {"a": {"next": "b"}, "b": {"next": "END"}},
        "nodes": {"START": {"type": "start", "next": "a"}, **nodes, "END": {"type": "end"}},
    }


def planned(definition: dict[str, Any]) -> Plan:
    found = check_document(Document(definition)).definition
    assert found is not None
    return Plan.of(found)


def test_a_thousand_that_lead_to_a_thousand_are_two_thousand_ways() -> None:
    assert len(planned(crowds(1000)).edges) == 3 * 1000
    assert len(planned(crowds(10)).edges) == 10 * 10 + 10


async def test_all_of_a_group_come_after_all_of_another_and_nobody_sees_what_is_between(
    client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    players, size = Players(), 35
    async with weft.Worker(client=client, registry=players.registry), weft.Orchestrator(client=client):
        job = await client.jobs.wait((await client.jobs.submit(crowds(size))).id, timeout=30)
        assert job.state == "completed"
        assert {name[0] for name in players.acted[:size]} == {"a"}
        assert len(await client.jobs.nodes(job.id)) == 2 * size + 1
        assert await conn.fetchval("select count(*) from weft.edge") == 3 * size
        assert {each.node for each in (await client.jobs.events(job.id, limit=1000)).events} >= {None, "a0", "END"}
        again = await client.jobs.plan_rerun(job.id, from_node="a3")
    told = {step.node: (step.action, step.why) for step in again.steps}
    assert told["a2"] == ("keep", "nothing about it has changed")
    assert told["b0"] == ("run", "it comes after a3, which runs")


def drawn(seed: int) -> dict[str, Any]:
    """Draw groups in a row, each after some of those before it, and conditionals that lead to them."""
    chance = random.Random(seed)
    nodes: dict[str, Any] = {}
    groups: dict[str, Any] = {}
    count = chance.randint(2, 5)
    for place in range(count):
        name, after = f"g{place}", [f"g{n}" for n in range(place + 1, count) if chance.random() < 0.5]
        groups[name] = {"next": after or "END"}
        for n in range(chance.randint(1, 4)):
            node = f"{name}n{n}"
            nodes[node] = act(node, group=name)
            nodes[node]["params"]["ok"] = chance.random() > 0.08
            if chance.random() < 0.15:
                nodes[node]["allow_failure"] = True
        if chance.random() < 0.25:
            nodes[f"{name}last"] = act(f"{name}last", group=name)
            nodes[f"{name}n0"]["next"] = f"{name}last"
    firsts = [f"g{n}" for n in range(count) if not any(f"g{n}" in groups[f"g{m}"]["next"] for m in range(n))]
    one, other = firsts[0], chance.choice(firsts)
    nodes["choose"] = {
        "type": "conditional",
        "condition_field": chance.randint(0, 1),
        "branches": [{"condition": "< 1", "next": one}, {"default": True, "next": other if other != one else "END"}],
    }
    left = [name for name in firsts if name not in (one, other)]
    return {
        "workflow_id": f"drawn{seed}",
        "on_failure": "finish_independent",
        "groups": groups,
        "nodes": {"START": {"type": "start", "next": ["choose", *left]}, **nodes, "END": {"type": "end"}},
    }


async def test_a_step_in_between_changes_nothing_about_what_becomes_of_nodes(
    client: weft.Client, conn: asyncpg.Connection[asyncpg.Record], campaign: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeds = range(300 if campaign == "long" else 12)
    found: list[list[Any]] = []
    for most in (1, 1_000_000):
        monkeypatch.setattr(plan, "MOST_WAYS", most)
        players = Players()
        # Under another name each time: plans are remembered.
        definitions = [{**drawn(seed), "description": str(most), "version": most} for seed in seeds]
        definitions = [{**each, "workflow_id": f"{each['workflow_id']}-{most}"} for each in definitions]
        async with weft.Worker(client=client, registry=players.registry), weft.Orchestrator(client=client):
            handles = [await client.jobs.submit(each) for each in definitions]
            first = [await client.jobs.wait(handle.id, timeout=60) for handle in handles]
            players.is_mended = True
            reruns = [await client.jobs.rerun(job.id, failed=True) for job in first]
            second = [await client.jobs.wait(rerun.id, timeout=60) for rerun in reruns]
        told = [
            (job.state, {node.node: (node.state, node.reason) for node in await client.jobs.nodes(job.id)})
            for job in (*first, *second)
        ]
        plans = [{step.node: step.action for step in rerun.plan.steps} for rerun in reruns]
        found.append([told, plans, sorted(players.acted)])
    assert found[0] == found[1]
    assert await conn.fetchval("select count(*) from weft.task_done where handler = '@open'") > 0
    assert await conn.fetchval("select count(*) from weft.task") == 0
