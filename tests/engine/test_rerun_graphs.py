"""Random workflows that are run again end as if they had been run afresh, and what was said to be kept did not run."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import asyncpg
import pytest

import weft
from job_oracle import Scene, draw, with_outputs
from weft.worker.registry import Registry


class Players:
    """A handler whose output tells of all that came before it, and which fails as drawn until it is mended."""

    def __init__(self) -> None:
        self.registry = Registry()
        self.acted: list[tuple[int | None, str, int | None]] = []
        self.is_mended = False
        self.registry.task(name="act")(self.act)

    async def act(
        self, ok: bool, name: str, seen: list[Any], ctx: weft.Context, place: int | None = None
    ) -> str:  # fmt: skip
        self.acted.append((ctx.job_id, name, place))
        if not ok and not self.is_mended:
            raise ValueError("as drawn")
        return hashlib.sha256(json.dumps([name, seen, place], sort_keys=True).encode()).hexdigest()[:8]


async def _ended(client: weft.Client, ids: list[int]) -> list[weft.Job]:
    return [await client.jobs.wait(job_id, timeout=60) for job_id in ids]


def _check_ledger(scene: Scene, plan: weft.RerunPlan, acted: list[tuple[str, int | None]]) -> None:
    """What the plan said is kept did not run, and of the items of a fan_out only those that had not completed."""
    kept = plan.nodes("keep") + plan.nodes("skip")
    assert not {name for name, _ in acted} & set(kept), f"seed {scene.seed}"
    for step in plan.steps:
        if step.action == "run" and step.items_kept is not None:
            items = [place for name, place in acted if name == step.node]
            missed = [place for place, ok in enumerate(scene.nodes[step.node].outcome) if not ok]
            assert set(missed) <= set(items), f"seed {scene.seed}"
            assert len(items) == len(scene.nodes[step.node].outcome) - step.items_kept, f"seed {scene.seed}"


@pytest.mark.parametrize("on_failure", ["finish_independent", "fail_fast"])
async def test_what_is_run_again_ends_as_if_it_had_been_run_afresh(
    client: weft.Client, conn: asyncpg.Connection[asyncpg.Record], campaign: str, on_failure: str
) -> None:
    scenes = [draw(seed, on_failure) for seed in range(2000 if campaign == "long" else 30)]
    definitions = [with_outputs(scene) | {"workflow_id": f"drawn{scene.seed}"} for scene in scenes]
    players = Players()
    async with (
        weft.Worker(client=client, registry=players.registry, concurrency=20),
        weft.Orchestrator(client=client),
    ):
        first = await _ended(client, [(await client.jobs.submit(each)).id for each in definitions])
        players.is_mended = True
        players.acted.clear()
        again = [await client.jobs.rerun(job.id, failed=job.id % 2 == 0) for job in first]
        rerun = await _ended(client, [each.id for each in again])
        acted, players.acted = players.acted, []
        fresh = await _ended(client, [(await client.jobs.submit(each)).id for each in definitions])
    assert any(plan.nodes("keep") for _, _, plan in again)
    for scene, (_, _, plan), one, other in zip(scenes, again, rerun, fresh, strict=True):
        assert (one.state, one.result) == (other.state, other.result), f"seed {scene.seed}"
        states = [{node.node: node.state for node in await client.jobs.nodes(job.id)} for job in (one, other)]
        # What else ran when the first of several failed is chance, and cancelled.
        assert states[0] == states[1] or (one.state, on_failure) == ("failed", "fail_fast"), f"seed {scene.seed}"
        _check_ledger(scene, plan, [(name, place) for job, name, place in acted if job == one.id])
    assert await conn.fetchval("select count(*) from weft.task") == 0
    assert await conn.fetchval("select count(*) from weft.job") == 0
