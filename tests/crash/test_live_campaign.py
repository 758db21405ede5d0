"""Live DAGs that are deployed again and again while their processes are ended end in the data of a plain program.

Whoever reads meanwhile sees one whole version.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from pathlib import Path
from typing import TypeAlias

import asyncpg
import pytest

import weft
from crash.campaign import SEED
from crash.harness import Crew, until
from crash.troupe import TROUBLES, Trouble, Troupe, in_trouble, insisted, mortal_server
from live_oracle import (
    COUNTED,
    QUIET,
    Node,
    counts,
    document,
    draw_events,
    draw_nodes,
    expected,
    mapped,
    read_all,
)  # fmt: skip

Conn: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
MODULES = ("crash.apps.flowing",)
_FACTORS = range(2, 1000)


# What to look at where something does not go on.
LEFT = {
    "dags": "select d.name, d.building_id, v.number, v.state from weft.live_dag d left join weft.dag_version v"
            " on v.id in (d.building_id, d.version_id)",
    "jobs": "select j.id, j.name, j.state, j.paused_at, j.last_error from weft.live_job j where j.state <> 'stopped'",
    "units": "select u.live_job_id, u.lane, u.kind, u.state, count(*), min(u.task_id) from weft.live_unit u"
             " group by 1, 2, 3, 4",
    "inputs": "select i.live_job_id, i.routed_write, v.last_write from weft.live_input i"
              " join weft.dataset_version v on v.id = i.version_id",
    "tasks": "select t.id, t.handler, t.state::text, t.reason, t.attempt, t.due_at - weft.now() as due, t.worker_id"
             " from weft.task t limit 20",
    "workers": "select w.id, w.state::text, w.until - weft.now() as until, w.handlers[1:3] from weft.worker w",
}  # fmt: skip


class Flow:
    """A drawn DAG, to which events come while it is deployed with other factors, gone back with, and read."""

    def __init__(self, seed: int, most: int) -> None:
        self._chance = random.Random(seed + SEED)
        self.name = f"flow{seed}"
        self.nodes = draw_nodes(seed, self._chance)
        # Somebody must be there whose rows tell by which version they were made.
        self.nodes.append(Node(f"m{seed}_last", "map", [self.nodes[0]], scaling={"max_concurrency": 4}))
        self.events = draw_events(self._chance, most)
        self._deployed: list[dict[str, int]] = []
        self.reads = 0

    @property
    def _mapped(self) -> list[Node]:
        return [node for node in self.nodes if node.kind == "map"]

    async def deploy(self, client: weft.Client) -> int:
        """Deploy it with other factors; return the number of the version."""
        for node in self._chance.sample(self.nodes[1:], self._chance.randint(1, len(self.nodes) - 1)):
            node.factor = self._chance.choice(_FACTORS)
        self._deployed.append({node.name: node.factor for node in self.nodes})
        return (await insisted(client.live.deploy, document(self.name, self.nodes))).version

    async def send(self, client: weft.Client) -> None:
        """Send all events, some of them twice."""
        for lane, id, value in self.events:
            for _ in range(self._chance.choice((1, 1, 2))):
                said = {"lane": lane, "id": id, "v": value}
                await insisted(client.jobs.send_event, self.name, said, idempotency_key=f"{self.name} {id}")
            await asyncio.sleep(self._chance.random() / 10)

    async def change(self, client: weft.Client, times: int) -> int:
        """Deploy again and again, over what is being built too, and go back; return the last version that is to be."""
        for _ in range(times):
            version = await self.deploy(client)
            if self._chance.random() < 0.5:
                with contextlib.suppress(*TROUBLES):
                    await client.live.wait(self.name, version, timeout=10)
                    await client.live.rollback(self.name, version=self._chance.randint(1, version))
            await asyncio.sleep(self._chance.random() / 2)
        return await self.deploy(client)

    async def read(self, client: weft.Client) -> None:
        """Read again and again until cancelled: all rows are as one and the same version has made them."""
        while True:
            for node in self._mapped:
                try:
                    async with client.datasets.query(f"select id, v from {node.name}") as answer:
                        rows = [row async for row in answer.records()]
                except TROUBLES:
                    continue
                found = {row["id"]: row["v"] for row in rows}
                assert len(found) == len(rows), f"{node.name} has a row twice"
                assert any(found.items() <= made.items() for made in self._made(node)), f"{node.name} is of two"
                self.reads += bool(found)
            await asyncio.sleep(0.1)

    def _made(self, node: Node) -> list[dict[str, int]]:
        """Return what a dataset has in the end by each version that was deployed."""
        found = []
        for factors in self._deployed:
            rows = {id: value for _, id, value in self.events}
            for each in self._way_to(node):
                rows = {id: mapped(value, factors[each.name]) for id, value in rows.items()}
            found.append(rows)
        return found

    def _way_to(self, node: Node) -> list[Node]:
        return [] if node.kind == "source" else [*self._way_to(node.inputs[0]), node]


async def _campaign(
    crew: Crew, seeds: range, trouble: Trouble, *, changes: int, at_least: int, at_most: int | None = None,
    events: int = 60,
) -> None:  # fmt: skip
    for seed in seeds:
        flow = Flow(seed, events)
        await crew.disband()
        async with in_trouble(Troupe(crew, seed, MODULES), trouble, at_least=at_least, at_most=at_most) as client:
            await flow.deploy(client)
            reading = asyncio.create_task(flow.read(client))
            _, version = await asyncio.gather(flow.send(client), flow.change(client, changes))
            await _until_read(flow, reading)
            reading.cancel()
            (ended,) = await asyncio.gather(reading, return_exceptions=True)
            assert isinstance(ended, asyncio.CancelledError), ended
        await _require_all_right(crew, flow, version)


async def _until_read(flow: Flow, reading: asyncio.Task[None]) -> None:
    async def has_read() -> bool:
        return reading.done() or flow.reads > 0

    await until(has_read, "somebody has read something", 300)


async def _require_all_right(crew: Crew, flow: Flow, version: int) -> None:
    conn = await asyncpg.connect(crew.url)
    try:
        try:
            await until(lambda: conn.fetchval(QUIET), "all is done")
        except AssertionError as problem:
            left = {name: [dict(row) for row in await conn.fetch(look)] for name, look in LEFT.items()}
            raise AssertionError(f"{flow.name}: {problem}; left are {left}") from None
        async with weft.Client(crew.url, home=crew.folder / "home") as client:
            assert (await client.live.show(flow.name)).version == version
            assert await read_all(client, flow.nodes) == expected(flow.nodes, flow.events), flow.name
        assert dict(await conn.fetch(COUNTED, flow.nodes[0].name)) == counts(flow.events)
    finally:
        await conn.close()


@pytest.mark.long
@pytest.mark.timeout(3600)
async def test_live_dags_survive_whoever_is_killed(crew: Crew, campaign: str) -> None:
    if campaign == "long":
        await _campaign(crew, range(40), Troupe.kill, changes=4, at_least=4)
    else:
        await _campaign(crew, range(1), Troupe.kill, changes=1, at_least=2, at_most=6, events=30)


@pytest.mark.long
@pytest.mark.timeout(3600)
async def test_live_dags_survive_those_who_are_paused_past_their_lease_while_sessions_are_ended(
    crew: Crew, conn: Conn, campaign: str
) -> None:
    async def trouble(troupe: Troupe) -> None:
        await troupe.pause_and_end_sessions(conn)

    if campaign == "long":
        await _campaign(crew, range(100, 120), trouble, changes=4, at_least=1)
    else:
        await _campaign(crew, range(100, 101), trouble, changes=1, at_least=1, at_most=2, events=30)


@pytest.mark.long
@pytest.mark.timeout(3600)
async def test_live_dags_survive_a_server_that_is_ended_at_once(tmp_path: Path, campaign: str) -> None:
    async with mortal_server(tmp_path / "crew") as (crew, settings):

        async def trouble(troupe: Troupe) -> None:
            await troupe.restart(settings)

        if campaign == "long":
            await _campaign(crew, range(200, 220), trouble, changes=4, at_least=2)
        else:
            await _campaign(crew, range(200, 201), trouble, changes=1, at_least=1, at_most=2, events=30)
