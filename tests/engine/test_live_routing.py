"""Live jobs: what is written into their inputs becomes tasks, each once, in order, as many at once as they may be."""

from __future__ import annotations

from typing import Any, TypeAlias

import asyncpg

import weft
from live_scene import make_dag, make_job, until
from weft.worker.live import LiveContext, operator
from weft.worker.registry import Registry

Conn: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


class Scene:
    """An input that a task writes, from outside of the DAG, and an operator that notes what it is given."""

    def __init__(self, client: weft.Client, conn: Conn, registry: Registry) -> None:
        self.client, self.conn, self.registry = client, conn, registry
        self.seen: list[tuple[str, Any]] = []
        self.dag_id = 0

        @registry.task(name="put")
        async def put(partition: str, rows: list[dict[str, Any]], mode: str, ctx: weft.Context) -> None:
            key = ["id"] if mode == "append" else None
            await ctx.dataset("ticks").write(rows, partition=partition or None, mode=mode, unique_key=key)

    async def put(self, partition: str, *ids: int, mode: str = "append") -> None:
        rows = [{"id": id} for id in ids]
        handle = await self.client.enqueue("put", {"partition": partition, "rows": rows, "mode": mode})
        await self.client.wait(handle.id, timeout=30)

    async def settled(self, job_id: int) -> None:
        async def is_quiet() -> bool:
            return not await self.conn.fetchval(
                "select count(*) from weft.live_unit where live_job_id = $1 and state <> 'held'", job_id
            )

        await until(is_quiet)


async def dataset_id(conn: Conn, name: str) -> int:
    return int(await conn.fetchval("select id from weft.dataset where name = $1", name))


async def test_each_write_is_one_unit_in_order(client: weft.Client, conn: Conn, registry: Registry) -> None:
    scene = Scene(client, conn, registry)

    @operator("note", registry=registry)
    async def note(live: LiveContext) -> None:
        table = await live.changes()
        scene.seen.append((live.unit.kind, table["id"].to_pylist()))

    async with weft.Worker(client=client, registry=registry), weft.Orchestrator(client=client):
        await scene.put("a", 1, 2)
        await scene.put("b", 3)
        dag = await make_dag(conn)
        job = await make_job(conn, dag, "note", "note", inputs=[(await dataset_id(conn, "ticks"), None)])
        await until(lambda: len(scene.seen) == 2)
        for number in range(10, 20):
            await scene.put("a", number)
        await until(lambda: len(scene.seen) == 12)
        await scene.settled(job)
    assert scene.seen == [("bootstrap", [1, 2]), ("bootstrap", [3])] + [("update", [n]) for n in range(10, 20)]
    assert await conn.fetchval("select completed from weft.live_job") == 12
