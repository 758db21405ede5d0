"""Random workflows, and what a plain program says becomes of each of their nodes."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import asyncpg

import weft

COMPLETED, FAILED, MISSED, POISONED = "completed", "dead", "branch_not_taken", "upstream_failed"

AT_ONCE = 0.01


@dataclass
class Drawn:
    """A node as it was drawn: what it does, and what leads to it, by which branches if that is a conditional."""

    name: str
    kind: str
    outcome: Any
    lenient: bool = False
    # How often it fails before it does not, if it does not fail in the end.
    failures: int = 0
    before: dict[str, set[int] | None] = field(default_factory=dict)


@dataclass
class Scene:
    """A workflow, and how its jobs end when independent nodes are finished."""

    definition: dict[str, Any]
    nodes: dict[str, Drawn]
    seed: int

    def expected(self) -> dict[str, str]:
        """Return what becomes of each node: its state, or why it is skipped."""
        found: dict[str, str] = {"START": COMPLETED}
        for name, node in self.nodes.items():
            states = {before: found[before] for before in node.before}
            if any(
                state == POISONED or (state == FAILED and not self.nodes[before].lenient)
                for before, state in states.items()
            ):
                found[name] = POISONED
            elif any(self._reaches(before, node) for before, state in states.items() if state in (COMPLETED, FAILED)):
                found[name] = self._outcome(node)
            else:
                found[name] = MISSED
        return found

    def _reaches(self, before: str, node: Drawn) -> bool:
        branches = node.before[before]
        return branches is None or self.nodes[before].outcome in branches

    def _outcome(self, node: Drawn) -> str:
        if node.kind == "fan_out":
            return FAILED if not all(node.outcome) else COMPLETED
        return COMPLETED if node.kind in ("conditional", "fan_in") or node.outcome else FAILED

    @property
    def fails(self) -> bool:
        """Whether a job of it fails."""
        expected = self.expected()
        return any(expected[name] == FAILED and not node.lenient for name, node in self.nodes.items())


def draw(seed: int, on_failure: str = "finish_independent") -> Scene:
    """Draw a workflow of up to a dozen nodes."""
    chance = random.Random(seed)
    nodes: dict[str, Drawn] = {}
    for number in range(chance.randint(1, 12)):
        kind = chance.choices(("task", "conditional", "fan_out", "fan_in"), (6, 2, 1, 1))[0]
        node = Drawn(f"n{number}", kind, None)
        if kind == "conditional":
            node.outcome = chance.randrange(3)
        elif kind == "fan_out":
            node.outcome = [chance.random() < 0.95 for _ in range(chance.choice((0, 1, 5)))]
        else:
            node.outcome = chance.random() < 0.85
            node.lenient = chance.random() < 0.3
            node.failures = chance.choice((0, 0, 0, 1, 2))
        if kind == "fan_out":
            node.lenient = chance.random() < 0.3
        earlier = list(nodes)
        for before in chance.sample(earlier, min(len(earlier), chance.choice((1, 1, 2, 3)))) or ["START"]:
            is_choice = before != "START" and nodes[before].kind == "conditional"
            node.before[before] = set(chance.sample(range(3), chance.choice((1, 1, 2)))) if is_choice else None
        nodes[node.name] = node
    return Scene(_definition(nodes, on_failure), nodes, seed)


def _definition(nodes: dict[str, Drawn], on_failure: str) -> dict[str, Any]:
    after: dict[str, dict[str, set[int] | None]] = {name: {} for name in ("START", *nodes)}
    for node in nodes.values():
        for before, branches in node.before.items():
            after[before][node.name] = branches
    written: dict[str, Any] = {"START": {"type": "start", "next": list(after["START"])}}
    for name, node in nodes.items():
        written[name] = _written(node, after[name])
    return {"workflow_id": "drawn", "on_failure": on_failure, "nodes": {**written, "END": {"type": "end"}}}


def _written(node: Drawn, after: dict[str, set[int] | None]) -> dict[str, Any]:
    following = list(after) or ["END"]
    match node.kind:
        case "conditional":
            branches = []
            for place in range(3):
                targets = [name for name, taken in after.items() if taken is not None and place in taken] or ["END"]
                how = {"default": True} if place == 2 else {"condition": f"== {place}"}
                branches.append({**how, "next": targets})
            return {"type": "conditional", "condition_field": node.outcome, "branches": branches}
        case "fan_out":
            task = {
                "handler": "act",
                "params": {"ok": "{{ item }}"},
                "retry": {"max_attempts": 1},
                "allow_failure": node.lenient,
            }
            return {"type": "fan_out", "items": node.outcome, "task": task, "next": following}
        case "fan_in":
            return {"type": "fan_in", "next": following}
        case _:
            tries = {"max_attempts": 1 + node.failures, "initial_delay_seconds": AT_ONCE}
            return {
                "handler": "act",
                "params": {"ok": node.outcome, "failures": node.failures},
                "retry": tries,
                "allow_failure": node.lenient,
                "next": following,
            }


async def misjudged(
    conn: asyncpg.Connection[asyncpg.Record], scene: Scene, job: weft.Job, *, is_cancelled: bool = False
) -> list[str]:
    """Return which nodes of a job have not become what was expected; what was not reached yet may be cancelled."""
    rows = await conn.fetch(
        "select node, parent_id, state::text as state, reason from weft.task_done"
        " where job_id = $1 and node is not null",
        job.id,
    )
    own = {row["node"]: row for row in rows if row["parent_id"] is None}
    state = "cancelled" if is_cancelled else "failed" if scene.fails else "completed"
    wrong = [] if job.state == state else [f"seed {scene.seed}: job {job.state}"]
    for name, wanted in scene.expected().items():
        if name == "START":
            continue
        found = own[name]["state"], own[name]["reason"]
        if is_cancelled and found == ("cancelled", "job_cancelled"):
            continue
        if scene.nodes[name].kind == "fan_out" and wanted in (COMPLETED, FAILED):
            items = Counter(row["state"] for row in rows if row["node"] == name and row["parent_id"] is not None)
            drawn = Counter(COMPLETED if ok else FAILED for ok in scene.nodes[name].outcome)
            # The node itself is completed once its items exist; each of these may be cancelled with the job.
            unended = items.pop("cancelled", 0) if is_cancelled else 0
            is_right = found[0] == COMPLETED and items <= drawn and items.total() + unended == drawn.total()
        else:
            is_right = found == ("skipped", wanted) if wanted in (MISSED, POISONED) else found[0] == wanted
        if not is_right:
            wrong.append(f"seed {scene.seed}, {name}: {found}, should be {wanted}")
    return wrong


def with_outputs(scene: Scene) -> dict[str, Any]:
    """Return the workflow of a scene whose tasks are given what comes before them, and whose result is all outputs."""
    nodes: dict[str, Any] = {}
    for name, written in scene.definition["nodes"].items():
        nodes[name] = written
        if name in scene.nodes and scene.nodes[name].kind in ("task", "fan_out"):
            seen = [f"{{{{ nodes.{before}.output }}}}" for before in scene.nodes[name].before if before != "START"]
            task = written.get("task", written)
            params = {**task["params"], "name": name, "seen": seen}
            if "task" in written:
                params["place"] = "{{ index }}"
                nodes[name] = {**written, "task": {**task, "params": params}}
            else:
                nodes[name] = {**written, "params": params}
    outputs = {name: f"{{{{ nodes.{name}.output }}}}" for name in scene.nodes}
    return {**scene.definition, "nodes": {**nodes, "END": {"type": "end", "output": outputs}}}
