"""Live jobs whose senders, operators and keepers do what few have in mind."""

from __future__ import annotations

import asyncio
import os
import secrets
import subprocess
from datetime import timedelta
from pathlib import Path
from typing import TypeAlias

import asyncpg
import pytest
from engine_scene import MakeClient

import weft
from engine.test_deploys import Scene as Deployed
from engine.test_deploys import market
from engine.test_live_routing import Scene, dataset_id
from live_scene import make_dag, make_job, make_output, until
from weft.data.collecting import DatasetCollector
from weft.live.collecting import DagCollector
from weft.live.router import Router
from weft.worker.live import LiveContext, operator
from weft.worker.operators.file_places import place_at
from weft.worker.registry import Registry

Conn: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


async def _turn(conn: Conn, job: int, *, thorough: bool = False) -> int:
    return int(await conn.fetchval("select begun from weft.turn_live_job($1, 100, $2)", job, thorough))


async def test_a_unit_that_is_tried_again_is_not_passed_over_before_it_ends(
    client: weft.Client, conn: Conn, registry: Registry
) -> None:
    scene = Scene(client, conn, registry)
    begun, goes_on = asyncio.Event(), asyncio.Event()

    @operator("note", registry=registry)
    async def note(live: LiveContext) -> None:
        rows = (await live.changes()).to_pylist()
        if not scene.seen:
            scene.seen.append(("failed", []))
            raise weft.NonRetryable("not now")
        await live.write(rows, partition="a")
        await live.set_state(len(rows))
        begun.set()
        if len(scene.seen) == 1:
            scene.seen.append(("again", rows))
            await goes_on.wait()
        scene.seen.append(("done", rows))

    dag = await make_dag(conn)
    output = await make_output(conn, "noted", "market", "note")
    async with weft.Worker(client=client, registry=registry):
        await scene.put("a", 1)
        job = await make_job(
            conn, dag, "note", "note", inputs=[(await dataset_id(conn, "ticks"), None)], outputs=[output],
            strategy="partition", max_concurrency=10,
        )  # fmt: skip
        await _turn(conn, job)
        await until(lambda: conn.fetchval("select count(*) from weft.task_done where state = 'failed'"))
        await _turn(conn, job, thorough=True)
        (held,) = await client.live.units("market", "note", state="held")
        assert await client.live.retry("market", "note") == 1
        await begun.wait()
        # Meanwhile the partition is written anew, and somebody would leave out what goes on again.
        await scene.put("a", 2)
        assert [await _turn(conn, job) for _ in range(3)] == [0, 0, 0]
        with pytest.raises(weft.StateConflict, match="running"):
            await client.live.skip("market", "note", held.id)
        with pytest.raises(weft.StateConflict, match="running"):
            await client.live.retry("market", "note", unit_id=held.id)
        assert await client.live.retry("market", "note") == 0
        goes_on.set()
        await until(lambda: conn.fetchval("select count(*) from weft.live_unit where state = 'done'"))
        assert await _turn(conn, job) == 1
        await until(lambda: len(scene.seen) == 4)
        await until(lambda: conn.fetchval("select count(*) from weft.live_unit where state = 'done'"))
    assert sorted(row["id"] for row in await client.datasets.sample("noted")) == [1, 2]
    assert await conn.fetchval("select state::text from weft.operator_state") == "2"


async def test_an_event_may_say_a_lane_of_any_length(client: weft.Client, conn: Conn) -> None:
    await client.live.deploy(market())
    await client.live.pause("market")
    long, short = secrets.token_hex(20_000), "a" * 400

    async def send() -> list[str]:
        await conn.execute("delete from weft.live_unit")
        for day in (long, long, short, ""):
            await client.jobs.send_event("tick", {"id": 1, "day": day})
        await client.live.rollback("market", version=1)
        return [row["lane"] for row in await conn.fetch("select lane from weft.live_unit order by id")]

    lanes = await send()
    assert lanes[0] == lanes[1] != short
    assert lanes[2:] == [short, ""]
    # The same for what is made up for.
    await client.live.drain("market")
    assert await send() == lanes


async def test_what_a_live_dag_is_made_of_is_neither_deleted_nor_handed_over(
    make_client: MakeClient, conn: Conn, registry: Registry
) -> None:
    client = await make_client(dataset_retention="1ms")
    scene = Deployed(client, conn, registry)
    await client.datasets.create("rates")
    dag = market()
    dag["jobs"]["again"]["inputs"] = ["scaled", "rates"]
    collector = DatasetCollector(client.database, client.settings, timedelta(0))
    async with scene.running():
        await client.live.deploy(dag)
        await scene.tick(1)
        await until(
            lambda: conn.fetchval("select count(*) from weft.dataset_write where number = 1 having count(*) = 3")
        )
        for name in ("ticks", "scaled", "again", "rates"):
            with pytest.raises(weft.DatasetBusy, match="the live DAG market"):
                await client.datasets.delete(name)
        for name in ("ticks", "scaled", "again"):
            with pytest.raises(weft.InvalidInput, match="the live DAG market"):
                await client.datasets.hand_over(name, "etl", "load")
    await client.live.drain("market")
    await client.datasets.delete("scaled")
    await client.datasets.delete("rates")
    # Nothing of it goes while a version of the DAG has it, and none of these comes back without it.
    await collector.run_once()
    await collector.run_once()
    with pytest.raises(weft.InvalidInput, match="rates has been deleted: `weft datasets undelete rates`"):
        await client.live.rollback("market", version=1)
    with pytest.raises(weft.InvalidInput):
        await client.live.deploy(dag | {"description": "again"})
    for name in ("scaled", "rates"):
        await client.datasets.undelete(name)
    await client.live.rollback("market", version=1)
    assert await client.datasets.sample("scaled") == [{"id": 2, "day": "mon"}]
    # When the DAG is past, it is as with any other.
    await client.live.drain("market")
    for name in ("ticks", "scaled", "again", "rates"):
        await client.datasets.delete(name)
    await Router(client.database).run_once()
    past = DagCollector(client.database, client.settings.dataset_retention)
    while await past.run_once() + await collector.run_once():
        pass
    assert await conn.fetchval("select count(*) from weft.dataset") == 0


def test_folders_that_go_very_deep_are_looked_through_as_far_as_paths_can_be_kept(tmp_path: Path) -> None:
    (tmp_path / "found.csv").touch()
    opened = os.open(tmp_path, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("d", dir_fd=opened)
        deeper = os.open("d", os.O_RDONLY, dir_fd=opened)
        os.close(opened)
        opened = deeper
    os.close(opened)
    try:
        (looked,) = place_at(str(tmp_path), "**/*.csv", [str(tmp_path)]).look("", 100, 100)
        assert [file.path for file in looked.files] == ["found.csv"]
    finally:
        subprocess.run(["rm", "-rf", str(tmp_path / "d")], check=True)


async def test_a_version_that_is_built_and_has_no_room_keeps_nobody_from_sending(
    client: weft.Client, conn: Conn, registry: Registry
) -> None:
    scene = Deployed(client, conn, registry)
    await client.live.deploy(market())
    changed = market()
    changed["jobs"]["ticks"]["config"] = {"new": True}
    changed["jobs"]["ticks"]["scaling"] = {"max_backlog": 2}
    assert not (await client.live.deploy(changed)).at_once
    await scene.tick(*range(5))
    units = await conn.fetch("select count(*) as units from weft.live_unit group by live_job_id order by 1")
    assert [row["units"] for row in units] == [2, 5]
    async with scene.running():
        await until(lambda: conn.fetchval("select building_id is null from weft.live_dag"))
        await scene.settled()
    assert await scene.values("ticks") == [0, 1, 2, 3, 4]
