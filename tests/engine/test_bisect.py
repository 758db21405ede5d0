"""The change that broke a workflow is found by halves, with the outputs of versions that were tried before."""

from __future__ import annotations

from typing import Any

import pytest

import weft
from weft.worker.registry import Registry

LAST = 9


class Ledger:
    """A handler that fails from a number on, and what it was given."""

    def __init__(self, broken_from: int) -> None:
        self.registry = Registry()
        self.given: list[Any] = []
        self._broken_from = broken_from
        self.registry.task(name="say", retry=0)(self.say)

    async def say(self, value: Any) -> Any:
        self.given.append(value)
        if isinstance(value, int) and value >= self._broken_from:
            raise ValueError(f"{value} is too much")
        return value


FLOW = {
    "workflow_id": "grown",
    "inputs": {"day": {"type": "string", "default": "today"}},
    "nodes": {
        "START": {"type": "start", "next": "long"},
        "long": {"handler": "say", "params": {"value": "{{ inputs.day }}"}, "next": "short"},
        "short": {"handler": "say", "params": {"value": 0}, "next": "END"},
        "END": {"type": "end", "output": "{{ nodes.short.output }}"},
    },
}


async def grown(client: weft.Client) -> list[int]:
    """Push a version, and patch it again and again; return the versions, oldest first."""
    versions = [(await client.workflows.push(FLOW)).artifact_id]
    for number in range(1, LAST + 1):
        pushed = await client.workflows.patch("grown", set={"nodes.short.params.value": number}, message=f"to {number}")
        versions.append(pushed.artifact_id)
    return versions


@pytest.mark.parametrize("broken_from", [1, 4, LAST])
async def test_the_change_that_broke_it_is_found_and_nothing_runs_twice(client: weft.Client, broken_from: int) -> None:
    versions, ledger = await grown(client), Ledger(broken_from)
    told: list[weft.BisectStep] = []
    async with weft.Worker(client=client, registry=ledger.registry), weft.Orchestrator(client=client):
        found = await client.jobs.bisect(
            "grown", good=versions[0], inputs={"day": "monday"}, timeout=30, on_step=told.append
        )
    assert (found.bad.message, found.bad.actor) == (f"to {broken_from}", client.actor)
    assert found.diff.to_json()["patch"] == [
        {"op": "replace", "path": "/nodes/short/params/value", "value": broken_from}
    ]
    assert told == list(found.steps)
    assert len(told) <= 6
    assert ledger.given.count("monday") == 1
    assert all(step.kept == ("long",) and "long" not in step.ran for step in told[1:])
    assert len(ledger.given) == 1 + len(told)


async def test_a_default_that_broke_it_is_found(client: weft.Client) -> None:
    ledger = Ledger(broken_from=3)
    definition = {
        **FLOW,
        "inputs": {"size": {"type": "integer", "default": 1}},
        "nodes": {
            "START": {"type": "start", "next": "only"},
            "only": {"handler": "say", "params": {"value": "{{ inputs.size }}"}, "next": "END"},
            "END": {"type": "end"},
        },
    }
    first = await client.workflows.push(definition)
    for size in (2, 3):
        await client.workflows.patch("grown", set={"inputs.size.default": size}, message=f"size {size}")
    async with weft.Worker(client=client, registry=ledger.registry), weft.Orchestrator(client=client):
        found = await client.jobs.bisect("grown", good=first.artifact_id, timeout=30)
    assert (found.bad.message, ledger.given) == ("size 3", [1, 3, 2])


async def test_ends_that_are_not_as_said_are_told(client: weft.Client) -> None:
    versions, ledger = await grown(client), Ledger(0)
    other = await client.workflows.push(FLOW | {"workflow_id": "other"})
    same = await client.workflows.push({**FLOW, "description": "for people"}, tag="grown/same")
    async with weft.Worker(client=client, registry=ledger.registry), weft.Orchestrator(client=client):
        with pytest.raises(weft.InvalidInput, match=r"good: version .* fails as well: job .* failed, 0 is too much"):
            await client.jobs.bisect("grown", good=versions[0], timeout=30)
        ledger = Ledger(100)
    async with weft.Worker(client=client, registry=ledger.registry), weft.Orchestrator(client=client):
        with pytest.raises(weft.InvalidInput, match=r"bad: version .* does not fail: job .* completed"):
            await client.jobs.bisect("grown", good=versions[0], bad=versions[3], timeout=30)
    count = len(await client.jobs.list())
    with pytest.raises(weft.InvalidInput, match=r"good: version .* does not lead to"):
        await client.jobs.bisect("grown", good=versions[3], bad=versions[1])
    with pytest.raises(weft.InvalidInput, match=r"bad: version .* is not in the history of grown"):
        await client.jobs.bisect("grown", good=versions[3], bad=other.artifact_id)
    with pytest.raises(weft.InvalidInput, match=r"there is no change between them"):
        await client.jobs.bisect("grown", good=versions[3], bad=versions[3])
    with pytest.raises(weft.InvalidInput, match=r"there is no input 'dey' in any of the versions. Did you mean 'day'"):
        await client.jobs.bisect("grown", good=versions[0], inputs={"dey": 1})
    assert same.artifact_id != versions[0]
    assert len(await client.jobs.list()) == count


async def test_a_version_that_cannot_be_submitted_fails(client: weft.Client) -> None:
    versions, ledger = await grown(client), Ledger(100)
    broken = await client.workflows.patch(
        "grown", set={"nodes.short.params.value": "{{ inputs.day.no.such }}"}, message="broken"
    )
    async with weft.Worker(client=client, registry=ledger.registry), weft.Orchestrator(client=client):
        found = await client.jobs.bisect("grown", good=versions[7], timeout=30)
    assert (found.bad.id, found.bad.message) == (broken.artifact_id, "broken")
    assert found.steps[1].job_id is None
