"""What would be computed anew, as it is told to those who only ask: it is done so then, and nothing is changed."""

from __future__ import annotations

from typing import TypeAlias

import asyncpg
import pytest

import weft
from engine.test_deploys import Scene, market
from engine.test_turn_guards import job_of
from live_scene import all_rows, make_dag, make_output
from weft.sdk.session import seeing
from weft.worker.registry import Registry

Conn: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


@pytest.fixture
def scene(client: weft.Client, conn: Conn, registry: Registry) -> Scene:
    return Scene(client, conn, registry)


async def partitions(conn: Conn, dataset: str, *keys: str) -> tuple[int, int]:
    """Make a dataset that has partitions, though nothing is in them; return its id and its version's."""
    dataset_id, version_id = await make_output(conn, dataset, "elsewhere", dataset)
    await conn.executemany(
        """insert into weft.dataset_partition
             (version_id, partition_key, org_id, last_write, rows, bytes, files, written_at)
           values ($1, $2, 1, 1, 1, 1, 1, now())""", [(version_id, key) for key in keys],
    )  # fmt: skip
    return dataset_id, version_id


@pytest.mark.parametrize(("strategy", "counts"), [("partition", [3, 0, 0]), ("update", [3, 2, 0])])
async def test_partitions_are_counted_as_they_would_be_computed(
    client: weft.Client, conn: Conn, strategy: str, counts: list[int]
) -> None:
    live, dag = client.live, await make_dag(conn)
    ticks, rates = await partitions(conn, "ticks", "a", "b", "c", "d"), await partitions(conn, "rates", "a", "b")
    for name in ("mine", "other"):
        await job_of(conn, name, dag, inputs=[ticks, rates], strategy=strategy)
    # Asked for already: of this job, of another, and of another input.
    await live.rematerialize("market", "mine", partitions=["a", "b"])
    await live.rematerialize("market", "other", partitions=["c"])
    for done, state in (("a", "running"), ("d", "held")):
        await live.rematerialize("market", "mine", partitions=[done])
        await conn.execute("update weft.live_unit set state = $2 where lane = $1 and live_job_id in "
                           "(select id from weft.live_job where name = 'mine')", done, state)  # fmt: skip
    asked = ((["a", "b", "c", "d", "d"], None), (["a", "b"], "rates"), (["b"], None))
    for (keys, dataset), count in zip(asked, counts, strict=True):
        rows = await all_rows(conn)
        told = await live.rematerialize("market", "mine", partitions=keys, dataset=dataset, dry_run=True)
        assert (told, await all_rows(conn)) == (count, rows)
        assert await live.rematerialize("market", "mine", partitions=keys, dataset=dataset) == count
        assert await live.rematerialize("market", "mine", partitions=keys, dataset=dataset, dry_run=True) == 0


async def test_what_cannot_be_computed_anew_is_not_counted_either(scene: Scene) -> None:
    live = scene.client.live
    async with scene.running():
        await live.deploy(market())
        await scene.tick(1)
        await scene.settled()
    rows = await all_rows(scene.conn)
    for job, keys, match in (
        ("scaled", ["sun"], "no partition 'sun'"), ("ticks", ["mon"], "ticks is a source"),
        ("scaled", [], "partitions"), ("nothing", ["mon"], "nothing"),
    ):  # fmt: skip
        for dry_run in (True, False):
            with pytest.raises(weft.WeftError, match=match):
                await live.rematerialize("market", job, partitions=keys, dry_run=dry_run)
    for job in ("nothing", "scaled@7"):
        for dry_run in (True, False):
            with pytest.raises(weft.WeftError, match=job):
                await live.rebuild("market", job, dry_run=dry_run)
    with seeing(frozenset()), pytest.raises(weft.NotFound, match="those who see what it reads"):
        await live.rematerialize("market", "scaled", partitions=["mon"], dry_run=True)
    assert await all_rows(scene.conn) == rows


async def test_what_a_rebuild_would_deploy_is_what_it_deploys(scene: Scene) -> None:
    live = scene.client.live
    async with scene.running():
        await live.deploy(market())
        await scene.tick(1)
        await scene.settled()
    rows = await all_rows(scene.conn)
    source, plan = (
        await live.rebuild("market", "ticks", dry_run=True),
        await live.rebuild("market", "scaled", dry_run=True),
    )
    assert await all_rows(scene.conn) == rows
    assert any("ticks begins empty" in each for each in source.warnings)
    assert {job.name: (job.action, job.fields) for job in plan.jobs} == {
        "ticks": ("unchanged", ()), "scaled": ("changed", ("anew",)), "again": ("changed", ()),
    }  # fmt: skip
    assert (plan.version, plan.base, plan.at_once) == (2, 1, False)
    with seeing(frozenset()):
        assert (await live.rebuild("market", "scaled", dry_run=True)).datasets == ()
    assert await live.rebuild("market", "scaled") == plan
