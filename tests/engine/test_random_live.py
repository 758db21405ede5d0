"""Random live DAGs with random failures end in the same data as a plain program gives."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TypeAlias

import asyncpg
import pytest

import weft
from live_scene import make_dag, make_job, make_output, until
from weft.worker.live import LiveContext, operator
from weft.worker.registry import Registry

Conn: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
SHORT, LONG = 6, 300
LANES = ("a", "b", "c")
# What a dataset holds: by partition, values by id.
Data = dict[str, dict[str, int]]


@dataclass
class Node:
    """A job of a drawn DAG: ``map`` turns each row that is added, ``sum`` adds up a partition of all its inputs."""

    name: str
    kind: str
    inputs: list[Node] = field(default_factory=list)

    @property
    def grows_only(self) -> bool:
        return self.kind != "sum"


def draw(seed: int, chance: random.Random) -> list[Node]:
    nodes = [Node(f"s{seed}", "source")]
    for number in range(1, chance.randint(2, 6)):
        growing = [node for node in nodes if node.grows_only]
        if chance.random() < 0.5:
            nodes.append(Node(f"m{seed}_{number}", "map", [chance.choice(growing)]))
        else:
            nodes.append(Node(f"t{seed}_{number}", "sum", chance.sample(nodes, min(len(nodes), chance.randint(1, 2)))))
    return nodes


def expected(nodes: list[Node], events: list[tuple[str, str, int]]) -> dict[str, Data]:
    found: dict[str, Data] = {}
    for node in nodes:
        data: Data = defaultdict(dict)
        if node.kind == "source":
            for lane, id, value in events:
                data[lane].setdefault(id, value)
        elif node.kind == "map":
            for lane, rows in found[node.inputs[0].name].items():
                data[lane] = {id: value * 2 + 1 for id, value in rows.items()}
        else:
            for lane in {lane for each in node.inputs for lane in found[each.name]}:
                data[lane] = {lane: sum(sum(found[each.name].get(lane, {}).values()) for each in node.inputs)}
        found[node.name] = dict(data)
    return found


def operators(registry: Registry, chance: random.Random, rate: float) -> None:
    def stumble() -> None:
        if chance.random() < rate:
            raise ValueError("as drawn")

    @operator("source", registry=registry, retry=weft.Retry(100, initial_delay=0))
    async def source(live: LiveContext) -> None:
        said = live.unit.payload
        stumble()
        count = (await live.state(said["lane"]) or 0) + 1
        await live.set_state(count, said["lane"])
        await live.write([{"id": said["id"], "v": said["v"]}], partition=said["lane"])
        stumble()

    @operator("map", registry=registry, retry=weft.Retry(100, initial_delay=0))
    async def map_rows(live: LiveContext) -> None:
        stumble()
        rows = (await live.changes()).to_pylist()
        assert live.unit.lane is not None
        await live.write([{"id": row["id"], "v": row["v"] * 2 + 1} for row in rows], partition=live.unit.lane)
        stumble()

    @operator("sum", registry=registry, retry=weft.Retry(100, initial_delay=0))
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
        await live.write([{"id": lane, "v": total}], partition=lane)
        stumble()


async def deploy(conn: Conn, dag_name: str, nodes: list[Node], chance: random.Random) -> None:
    dag = await make_dag(conn, dag_name)
    made: dict[str, tuple[int, int]] = {}
    for node in nodes:
        made[node.name] = await make_output(conn, node.name, dag_name, node.name)
        grows = {"update_strategy": "append", "unique_key": ["id"]} if node.grows_only else {}
        listens = {"kind": "event", "event": dag_name, "lane": ["lane"]} if node.kind == "source" else None
        await make_job(
            conn, dag, node.name, node.kind, inputs=[made[each.name] for each in node.inputs],
            outputs=[made[node.name]], strategy="update" if node.kind == "map" else "partition", source=listens,
            document=grows, max_attempts=1000, max_concurrency=chance.choice((1, 2, 8)),
            max_backlog=10_000 if node.kind == "source" else chance.choice((3, 10_000)),
        )  # fmt: skip


async def read_all(client: weft.Client, nodes: list[Node]) -> dict[str, Data]:
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

    async with weft.Worker(client=client, registry=registry):
        for node in nodes:
            handle = await client.enqueue("read all", {"name": node.name})
            found[node.name] = await client.wait(handle.id, timeout=60)
    return found


async def one_dag(client: weft.Client, conn: Conn, seed: int) -> None:
    chance = random.Random(seed)
    dag_name, nodes, registry = f"drawn{seed}", draw(seed, chance), Registry()
    operators(registry, random.Random(seed + 1), chance.choice((0.0, 0.1, 0.3)))
    await deploy(conn, dag_name, nodes, chance)
    events = [(chance.choice(LANES), f"r{number}", chance.randint(0, 99)) for number in range(chance.randint(5, 40))]
    async with (
        weft.Worker(client=client, registry=registry),
        weft.Worker(client=client, registry=registry),
        weft.Orchestrator(client=client),
        weft.Orchestrator(client=client),
    ):
        for lane, id, value in events:
            for _ in range(chance.choice((1, 1, 2))):
                await client.jobs.send_event(
                    dag_name, {"lane": lane, "id": id, "v": value}, idempotency_key=f"{seed}{id}"
                )
            if chance.random() < 0.3:
                await asyncio.sleep(chance.random() / 100)
        await until(lambda: conn.fetchval(QUIET), 120)
    assert await read_all(client, nodes) == expected(nodes, events), f"seed {seed}"
    rows = await conn.fetch(
        "select s.state_key, s.state::text::int from weft.operator_state s "
        "join weft.live_job j on j.id = s.live_job_id where j.name = $1",
        nodes[0].name,
    )
    counts = {row[0]: row[1] for row in rows}
    assert counts == {lane: sum(1 for each in events if each[0] == lane) for lane in {each[0] for each in events}}


# Nothing is left to do, and all that was written has come to those who read it.
QUIET = """
  select not exists (select 1 from weft.live_unit)
    and not exists (
      select 1 from weft.live_input i join weft.dataset_version v on v.id = i.version_id
      where i.routed_write is null or i.routed_write < v.last_write)"""


@pytest.mark.parametrize("seed", range(SHORT))
async def test_a_drawn_dag_ends_in_the_data_that_a_plain_program_gives(
    client: weft.Client, conn: Conn, seed: int, campaign: str
) -> None:
    for each in range(seed, LONG if campaign == "long" else SHORT, SHORT):
        await one_dag(client, conn, each)
