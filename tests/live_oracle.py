"""Draws live DAGs, says what data a plain program would give, and has the operators by which they are run."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import weft
from weft.worker.live import LiveContext, operator
from weft.worker.registry import Registry

LANES = ("a", "b", "c")
# What a dataset holds: by partition, values by id.
Data = dict[str, dict[str, int]]
# A row that was sent: its partition, its id, its value.
Event = tuple[str, str, int]
# However often one stumbles, or is killed, it gets there.
_PATIENT = weft.Retry(1000, initial_delay=0)


@dataclass
class Node:
    """A job of a drawn DAG: ``map`` turns each row that is added, ``sum`` adds up a partition of all its inputs.

    ``factor`` is what its values are multiplied by, and ``scaling`` how it is executed.
    """

    name: str
    kind: str
    inputs: list[Node] = field(default_factory=list)
    factor: int = 1
    scaling: dict[str, int] = field(default_factory=dict)

    @property
    def grows_only(self) -> bool:
        return self.kind != "sum"

    def job(self, event: str) -> dict[str, Any]:
        """Return it as a job of a document."""
        said: dict[str, Any] = {
            "operator": f"drawn.{self.kind}", "outputs": [self.name], "max_attempts": 1000,
            "config": {"factor": self.factor}, "scaling": self.scaling,
        }  # fmt: skip
        if self.grows_only:
            said |= {"update_strategy": "append", "unique_key": ["id"]}
        if self.kind == "source":
            return said | {"activation": "source", "source": {"kind": "event", "event": event, "lane": "lane"}}
        strategy = "PerUpdate" if self.kind == "map" else "PerPartition"
        return said | {
            "activation": "reactive", "execution_strategy": strategy, "inputs": [each.name for each in self.inputs]
        }  # fmt: skip


def draw_nodes(seed: int, chance: random.Random) -> list[Node]:
    """Return a source and some jobs that read what comes of it."""
    nodes = [Node(f"s{seed}", "source")]
    for number in range(1, chance.randint(2, 6)):
        growing = [node for node in nodes if node.grows_only]
        if chance.random() < 0.5:
            nodes.append(Node(f"m{seed}_{number}", "map", [chance.choice(growing)]))
        else:
            nodes.append(Node(f"t{seed}_{number}", "sum", chance.sample(nodes, min(len(nodes), chance.randint(1, 2)))))
    for node in nodes:
        backlog = 10_000 if node.kind == "source" else chance.choice((3, 10_000))
        node.scaling = {"max_concurrency": chance.choice((1, 2, 8)), "max_backlog": backlog}
    return nodes


def draw_events(chance: random.Random, most: int) -> list[Event]:
    """Return rows to be sent, each with an id of its own."""
    return [(chance.choice(LANES), f"r{number}", chance.randint(0, 99)) for number in range(chance.randint(5, most))]


def document(dag: str, nodes: Sequence[Node]) -> dict[str, Any]:
    """Return a document to deploy."""
    return {"dag": dag, "jobs": {node.name: node.job(dag) for node in nodes}}


def expected(nodes: Sequence[Node], events: Sequence[Event]) -> dict[str, Data]:
    """Return what each dataset holds when all is done."""
    found: dict[str, Data] = {}
    for node in nodes:
        data: Data = defaultdict(dict)
        if node.kind == "source":
            for lane, id, value in events:
                data[lane].setdefault(id, value)
        elif node.kind == "map":
            for lane, rows in found[node.inputs[0].name].items():
                data[lane] = {id: mapped(value, node.factor) for id, value in rows.items()}
        else:
            for lane in {lane for each in node.inputs for lane in found[each.name]}:
                total = sum(sum(found[each.name].get(lane, {}).values()) for each in node.inputs)
                data[lane] = {lane: total * node.factor}
        found[node.name] = dict(data)
    return found


def mapped(value: int, factor: int) -> int:
    """Return what a ``map`` makes of a value."""
    return value * factor + 1


def add_operators(registry: Registry, stumble: Callable[[], None]) -> None:
    """Add the operators of drawn DAGs to a registry; they stumble before and after what they do."""

    @operator("drawn.source", registry=registry, retry=_PATIENT)
    async def source(live: LiveContext) -> None:
        said = live.unit.payload
        stumble()
        count = (await live.state(said["lane"]) or 0) + 1
        await live.set_state(count, said["lane"])
        await live.write([{"id": said["id"], "v": said["v"]}], partition=said["lane"])
        stumble()

    @operator("drawn.map", registry=registry, retry=_PATIENT)
    async def map_rows(live: LiveContext) -> None:
        stumble()
        rows = (await live.changes()).to_pylist()
        assert live.unit.lane is not None
        made = [{"id": row["id"], "v": mapped(row["v"], live.config["factor"])} for row in rows]
        await live.write(made, partition=live.unit.lane)
        stumble()

    @operator("drawn.sum", registry=registry, retry=_PATIENT)
    async def add_up(live: LiveContext) -> None:
        stumble()
        lane, total = live.unit.lane, 0
        assert lane is not None
        for name in live.inputs:
            try:
                table = await live.input(name).read(partition=lane)
            except (weft.NotFound, weft.InvalidInput):
                continue  # nothing was written into it yet
            total += sum(table["v"].to_pylist())
        await live.write([{"id": lane, "v": total * live.config["factor"]}], partition=lane)
        stumble()


async def read_all(client: weft.Client, nodes: Sequence[Node]) -> dict[str, Data]:
    """Return what each dataset holds, read by a task."""
    found: dict[str, Data] = {}
    registry = Registry()

    @registry.task(name="read all")
    async def read_one(name: str, ctx: weft.Context) -> dict[str, dict[str, int]]:
        dataset, data = ctx.dataset(name), Data()
        for part in await dataset.partitions():
            rows = (await dataset.read(partition=part.key)).to_pylist()
            data[part.key] = {row["id"]: row["v"] for row in rows}
            assert len(rows) == len(data[part.key]), f"{name} has a row twice"
        return data

    # Workers that know nothing of it leave each other such a task, and take their time.
    await client.create_queue("reading")
    async with weft.Worker(client=client, registry=registry, queues=["reading"]):
        for node in nodes:
            handle = await client.enqueue("read all", {"name": node.name}, queue="reading")
            found[node.name] = await client.wait(handle.id, timeout=60)
    return found


# Of what is in effect nothing is left to do, and all that was written has come to those who read it.
QUIET = """
  select not exists (select 1 from weft.live_dag where building_id is not null)
    and not exists (
      select 1 from weft.live_unit u join weft.live_job j on j.id = u.live_job_id
      where j.state not in ('draining', 'stopped'))
    and not exists (
      select 1 from weft.live_input i join weft.dataset_version v on v.id = i.version_id
        join weft.live_job j on j.id = i.live_job_id
      where j.state not in ('draining', 'stopped') and (i.routed_write is null or i.routed_write < v.last_write))"""
# How often the source of a DAG has remembered something, by lane.
COUNTED = """
  select s.state_key, s.state::text::int from weft.operator_state s
    join weft.live_job j on j.id = s.live_job_id where j.name = $1"""


def counts(events: Sequence[Event]) -> dict[str, int]:
    """Return how often a source has something to remember, by lane."""
    return dict(Counter(lane for lane, _, _ in events))
