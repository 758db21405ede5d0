"""Random live DAGs with random failures end in the same data as a plain program gives."""

from __future__ import annotations

import asyncio
import random
from typing import TypeAlias

import asyncpg
import pytest

import weft
from depth import daily
from live_oracle import COUNTED, QUIET, add_operators, counts, document, draw_events, draw_nodes, expected, read_all
from live_scene import until
from weft.worker.registry import Registry

Conn: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
SHORT, LONG = 6, 300


async def one_dag(client: weft.Client, conn: Conn, seed: int) -> None:
    chance, failing = random.Random(seed), random.Random(seed + 1)
    dag, nodes, registry = f"drawn{seed}", draw_nodes(seed, chance), Registry()
    rate = chance.choice((0.0, 0.1, 0.3))
    for node in nodes:
        node.factor = chance.randint(1, 9)

    def stumble() -> None:
        if failing.random() < rate:
            raise ValueError("as drawn")

    add_operators(registry, stumble)
    events = draw_events(chance, 40)
    async with (
        weft.Worker(client=client, registry=registry),
        weft.Worker(client=client, registry=registry),
        weft.Orchestrator(client=client),
        weft.Orchestrator(client=client),
    ):
        await client.live.deploy(document(dag, nodes))
        for lane, id, value in events:
            for _ in range(chance.choice((1, 1, 2))):
                await client.jobs.send_event(dag, {"lane": lane, "id": id, "v": value}, idempotency_key=f"{seed}{id}")
            if chance.random() < 0.3:
                await asyncio.sleep(chance.random() / 100)
        await until(lambda: conn.fetchval(QUIET), 120)
    assert await read_all(client, nodes) == expected(nodes, events), f"seed {seed}"
    assert dict(await conn.fetch(COUNTED, nodes[0].name)) == counts(events)


@pytest.mark.parametrize("seed", daily(range(SHORT), 2))
async def test_a_drawn_dag_ends_in_the_data_that_a_plain_program_gives(
    client: weft.Client, conn: Conn, seed: int, campaign: str
) -> None:
    for each in range(seed, LONG if campaign == "long" else SHORT, SHORT):
        await one_dag(client, conn, each)
