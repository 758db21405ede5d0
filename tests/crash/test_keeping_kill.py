"""Whoever is killed while he keeps datasets in order: it is done whole or not at all, and another can do it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

import weft
from crash.dataset_acts import NAME
from crash.harness import Process
from crash.job_acts import settings_for
from crash.moments import Moments
from crash.test_dataset_kill import _on_disk, _rows, each_statement, fill, gone, listed
from crash.test_deploy_kill import WRONG, _swapped, feed
from weft.live import backfilling
from weft.live.past import NOTHING
from weft.live.router import Router
from weft.worker.registry import Registry

if TYPE_CHECKING:
    Conn = asyncpg.Connection[asyncpg.Record]

KEYS = ("a", "b", "c", "d", "e")
# Of a dataset: who sees it, who writes it, whether it is there.
KEPT = "select name, read_roles, producer_node, producer_output, deleted_at is not null as is_deleted from weft.dataset"
ACTS = "select count(*) from weft.audit where verb = $1"


@pytest.fixture
async def copies(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Process]:
    """A program of which copies are made, one for each round."""
    process = await Process.start(f"crash.apps.{request.param}", {}, tmp_path / "crew")
    yield process
    await process.finish()


def _is_from_there_on(outcomes: list[bool]) -> bool:
    """Whether something was not done up to some statement, and was from there on."""
    return outcomes == sorted(outcomes) and outcomes[-1] and not outcomes[0]


@pytest.mark.parametrize("copies", ["dataset_act"], indirect=True)
async def test_who_is_killed_while_deleting_a_role_has_taken_it_from_all_or_from_nobody(
    url: str, home: Path, conn: Conn, copies: Process, campaign: str
) -> None:
    outcomes: list[bool] = []
    async with weft.Client(settings=settings_for(url, home)) as client:
        await client.users.add("ann")
        for name in ("orders", "rates"):
            await client.datasets.create(name)

        async def order() -> dict[str, Any]:
            await client.roles.create("finance")
            await client.roles.grant("finance", "ann")
            for name in ("orders", "rates"):
                await client.datasets.grant(name, ["finance"])
            return {"act": "delete role", "slug": "finance"}

        async def look(said: dict[str, Any], number: int) -> None:
            there = bool(await conn.fetchval("select count(*) from weft.org_role"))
            outcomes.append(not there)
            assert await conn.fetchval("select count(*) from weft.org_role_membership") == there, number
            assert [row["read_roles"] for row in await conn.fetch(KEPT)] == [["finance"] if there else []] * 2, number
            assert await conn.fetchval(ACTS + " and subject_kind = 'role'", "delete") == sum(outcomes), number

        assert await each_statement(url, home, conn, copies, order, look, Moments(campaign)) > 5
    assert _is_from_there_on(outcomes)


@pytest.mark.parametrize("copies", ["dataset_act"], indirect=True)
async def test_who_is_killed_while_bringing_a_dataset_back_has_done_so_whole_or_not(
    url: str, home: Path, conn: Conn, copies: Process, campaign: str
) -> None:
    outcomes: list[bool] = []
    async with weft.Client(settings=settings_for(url, home)) as client:
        await client.datasets.create(NAME, storage="postgres")
        await fill(client, [1, 2])

        async def order() -> dict[str, Any]:
            if not await conn.fetchval("select deleted_at is not null from weft.dataset"):
                await client.datasets.delete(NAME)
            return {"act": "undelete", "name": NAME}

        async def look(said: dict[str, Any], number: int) -> None:
            (kept,) = await conn.fetch(KEPT)
            outcomes.append(not kept["is_deleted"])
            views = await conn.fetchval("select count(*) from pg_views where schemaname = 'weft_data'")
            assert (kept["name"] == NAME, views) == (outcomes[-1], outcomes[-1]), number
            assert await conn.fetchval(ACTS, "undelete") == sum(outcomes), number

        assert await each_statement(url, home, conn, copies, order, look, Moments(campaign)) > 5
        assert _is_from_there_on(outcomes)
        assert [row["id"] for row in await client.datasets.sample(NAME)] == [1, 2]


@pytest.mark.parametrize("copies", ["dataset_act"], indirect=True)
async def test_who_is_killed_while_handing_a_dataset_over_leaves_it_one_producer(
    url: str, home: Path, conn: Conn, copies: Process, campaign: str
) -> None:
    outcomes: list[bool] = []
    before = "fill"
    async with weft.Client(settings=settings_for(url, home)) as client:
        await fill(client, [1])

        async def order() -> dict[str, Any]:
            nonlocal before
            before = await conn.fetchval("select producer_node from weft.dataset")
            return {"act": "hand over", "name": NAME, "node": f"{before}2"}

        async def look(said: dict[str, Any], number: int) -> None:
            (kept,) = await conn.fetch(KEPT)
            outcomes.append(kept["producer_node"] != before)
            assert kept["producer_node"] in (before, said["node"]), number
            assert kept["producer_output"] == 0, number
            assert await conn.fetchval(ACTS, "hand-over") == sum(outcomes), number

        assert await each_statement(url, home, conn, copies, order, look, Moments(campaign)) > 5
        assert _is_from_there_on(outcomes)
        # Back to who can write.
        await client.datasets.hand_over(NAME, "@task", "fill")
        await fill(client, [2])
        assert await _rows(client, conn, home) == {"": [2]}


@pytest.mark.parametrize("copies", ["dataset_act"], indirect=True)
@pytest.mark.timeout(300)
async def test_who_is_killed_while_removing_what_is_past_takes_nothing_that_is_seen_and_another_removes_the_rest(
    url: str, home: Path, conn: Conn, copies: Process, campaign: str
) -> None:
    number, registry = 0, Registry()

    @registry.task(name="fill")
    async def write(ctx: weft.Context) -> None:
        await ctx.dataset(NAME).write([{"id": 5}], breaking=True)

    async with (
        weft.Client(settings=settings_for(url, home)) as client,
        weft.Worker(client=client, registry=registry),
    ):
        await client.live.deploy(feed(0))

        async def order() -> dict[str, Any]:
            nonlocal number
            number += 1
            for _ in range(2):
                await client.wait((await client.enqueue(write)).id, timeout=60)
            await client.datasets.create("spare")
            await client.datasets.delete("spare")
            await client.live.deploy(feed(number))
            await _swapped(client, conn)
            # What is not in effect any more stops.
            for _ in range(2):
                await Router(client.database).run_once()
            return {"act": "remove past"}

        async def look(said: dict[str, Any], round_: int) -> None:
            assert await _rows(client, conn, home) == {"": [5]}, round_
            assert await listed(conn) <= _on_disk(home) | await gone(conn), round_
            wrong = await conn.fetch(WRONG)
            assert not wrong, (round_, [row["what"] for row in wrong])
            for name in ("notes", "copies"):
                assert (await client.datasets.show(name)).version is not None, round_

        moments = Moments(campaign, every=7)
        assert await each_statement(url, home, conn, copies, order, look, moments) > 15
        assert await client.datasets.gc() == NOTHING
        assert _on_disk(home) == await listed(conn)
        kept = await conn.fetch("select name from weft.dataset order by name")
        assert [row["name"] for row in kept] == ["copies", "notes", NAME]
        assert await conn.fetchval("select count(*) from weft.dataset_version") == len(kept)


@pytest.mark.parametrize("copies", ["live_act"], indirect=True)
@pytest.mark.parametrize("act", ["backfill", "advance"])
async def test_who_is_killed_while_a_backfill_goes_on_has_made_each_unit_once(
    url: str, home: Path, conn: Conn, copies: Process, act: str, campaign: str
) -> None:
    registry = Registry()

    @registry.task(name="fill")
    async def write(ctx: weft.Context) -> None:
        for key in KEYS:
            await ctx.dataset(NAME).write([{"id": 1}], partition=key)

    async with weft.Client(settings=settings_for(url, home)) as client:
        async with weft.Worker(client=client, registry=registry):
            await client.wait((await client.enqueue(write)).id, timeout=60)
        await client.live.deploy(copying())
        await Router(client.database).run_once()
        made: list[int] = []

        async def order() -> dict[str, Any]:
            # Nothing that stood there is left to do.
            await conn.execute("delete from weft.live_unit")
            if act == "backfill":
                return {"act": act, "dag": "copying", "job": "copies"}
            await conn.execute("delete from weft.live_backfill")
            await client.live.backfill("copying", "copies", at_once=2)
            await conn.execute("update weft.live_unit set state = 'done'")
            return {"act": act}

        async def look(said: dict[str, Any], number: int) -> None:
            units = [row["lane"] for row in await conn.fetch("select lane from weft.live_unit where state = 'new'")]
            made.append(len(units))
            assert sorted(units) in ([], list(KEYS[:2]) if act == "backfill" else list(KEYS[2:4])), number
            for row in await conn.fetch("select made, next_key from weft.live_backfill where ended_at is null"):
                assert row["next_key"] == KEYS[row["made"] - 1], number
            # Another goes on with it, up to the end.
            for _ in KEYS:
                await conn.execute("update weft.live_unit set state = 'done'")
                await backfilling.run_once(client.database)
            assert not await conn.fetchval("select count(*) from weft.live_backfill where ended_at is null"), number
            assert not await conn.fetchval("select count(*) from weft.live_backfill where made <> 5"), number

        assert await each_statement(url, home, conn, copies, order, look, Moments(campaign)) > 3
    assert made[0] == 0
    assert made[-1] == 2


def copying() -> dict[str, Any]:
    """Return a DAG whose one job reads a dataset from outside."""
    copies = {
        "activation": "reactive", "operator": "copy", "execution_strategy": "PerPartition", "inputs": [NAME],
        "outputs": ["copies"],
    }  # fmt: skip
    return {"dag": "copying", "jobs": {"copies": copies}}
