"""The operator `block_follower`: what it has written is what the feed has, whatever the feed does."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, TypeAlias

import asyncpg
import pytest
from engine_scene import MakeClient

import weft
from chains import Block, Chain
from depth import daily
from live_scene import until
from operator_scene import OperatorScene
from weft.worker.registry import Registry

Conn: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


@pytest.fixture
async def chain() -> AsyncIterator[Chain]:
    async with Chain().serve() as served:
        yield served


@pytest.fixture
async def near(make_client: MakeClient) -> weft.Client:
    """A client whose workers may fetch from this machine."""
    return await make_client(fetch_allowed="127.0.0.1", dag_secrets="FEED_DSN")


def http_feed(chain: Chain, **more: Any) -> dict[str, Any]:
    return {
        "kind": "http", "url": chain.url + "/blocks?from={from}&limit={limit}", "items": "items", "hash": "hash",
        "parent_hash": "parentHash", **more,
    }  # fmt: skip


def config_of(feed: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"feed": feed, "start": 0, "max_batch": 7, "partition_size": 10, "columns": {"price": "bigint"}, **more}


async def follow(scene: OperatorScene, config: dict[str, Any], **more: Any) -> int:
    document = {"source": {"kind": "continuous", "poll": 0.02}}
    return await scene.job(
        "blocks", "block_follower", config, output="blocks", append=more.pop("append", ["number"]),
        source={"kind": "continuous"}, document=document, **more,
    )  # fmt: skip


async def until_like(scene: OperatorScene, chain: Chain) -> None:
    """Return when the output has just what the chain has."""

    async def is_alike() -> bool:
        if not await scene.conn.fetchval("select last_write from weft.dataset_version"):
            return not chain.blocks
        found = sorted(await scene.rows("blocks"), key=lambda row: row["number"])
        shown = [{name: row[name] for name in ("number", "hash", "parent_hash", "price")} for row in found]
        return shown == chain.rows()

    await until(is_alike, 60)


@pytest.mark.parametrize("strategy", ["append", "replace"])
async def test_a_feed_is_followed_and_taken_back_as_it_takes_back(
    near: weft.Client, conn: Conn, registry: Registry, chain: Chain, strategy: str
) -> None:
    scene = OperatorScene(near, conn, registry)
    chain.grow(25)
    await follow(scene, config_of(http_feed(chain)), append=["number"] if strategy == "append" else None)
    async with weft.Worker(client=near, registry=registry), weft.Orchestrator(client=near):
        await until_like(scene, chain)
        chain.grow(8)
        await until_like(scene, chain)
        # Into the middle of a partition, over several, and to the very first.
        for depth, count in ((3, 5), (17, 20), (38, 40), (1, 1)):
            chain.reorganize(depth, count)
            await until_like(scene, chain)
        assert await conn.fetchval("select caught_up_at is not null from weft.live_source")
        # Shorter than it was, for good.
        chain.reorganize(12, 2)
        await until_like(scene, chain)
        del chain.blocks[-4:]
        await until_like(scene, chain)
        keys = await conn.fetch("select partition_key, rows from weft.dataset_partition where rows > 0 order by 1")
    assert [row["partition_key"] for row in keys][:2] == ["0000000000000000", "0000000000000010"]


async def test_a_node_of_json_rpc_is_followed(near: weft.Client, conn: Conn, registry: Registry, chain: Chain) -> None:
    scene = OperatorScene(near, conn, registry)
    chain.grow(25)
    feed = {"kind": "json_rpc", "url": chain.url + "/rpc", "batch": 3}
    await follow(scene, config_of(feed))
    async with weft.Worker(client=near, registry=registry), weft.Orchestrator(client=near):
        await until_like(scene, chain)
        chain.reorganize(5, 9)
        await until_like(scene, chain)


async def test_a_feed_of_sql_is_followed(
    make_client: MakeClient, conn: Conn, registry: Registry, url: str, monkeypatch: pytest.MonkeyPatch, chain: Chain
) -> None:
    monkeypatch.setenv("FEED_DSN", url)
    client = await make_client(dag_secrets="FEED_DSN")
    scene = OperatorScene(client, conn, registry)
    await conn.execute("create table public.chain (number bigint, hash text, parent_hash text, price int)")

    async def show() -> None:
        async with conn.transaction():
            await conn.execute("delete from public.chain")
            await conn.copy_records_to_table(
                "chain", schema_name="public", records=[tuple(row.values()) for row in chain.rows()]
            )

    feed = {
        "kind": "sql", "dsn_env": "FEED_DSN", "hash": "hash", "parent_hash": "parent_hash",
        "query": "select * from public.chain where number > $1 order by number limit $2",
    }  # fmt: skip
    chain.grow(25)
    await show()
    await follow(scene, config_of(feed))
    async with weft.Worker(client=client, registry=registry), weft.Orchestrator(client=client):
        await until_like(scene, chain)
        chain.reorganize(9, 12)
        await show()
        await until_like(scene, chain)
        greedy = feed | {"query": "select * from public.chain where number > $1 and $2 > 0 order by number"}
        job = await scene.job(
            "greedy", "block_follower", config_of(greedy), output="all", append=["number"], max_attempts=1,
            source={"kind": "continuous"}, document={"source": {"kind": "continuous", "poll": 0.02}},
        )  # fmt: skip
        assert "answers more than the 7 rows that $2 asks for: end it with `limit $2`" in await scene.error(job)
    monkeypatch.delenv("FEED_DSN")


async def test_what_is_not_confirmed_is_not_taken(
    near: weft.Client, conn: Conn, registry: Registry, chain: Chain
) -> None:
    scene = OperatorScene(near, conn, registry)
    chain.grow(20)
    await follow(scene, config_of(http_feed(chain, latest="head"), confirmations=6))
    confirmed = Chain()
    async with weft.Worker(client=near, registry=registry), weft.Orchestrator(client=near):
        confirmed.blocks = chain.blocks[:14]
        await until_like(scene, confirmed)
        chain.reorganize(5, 9)
        confirmed.blocks = chain.blocks[:18]
        await until_like(scene, confirmed)
    # Nothing was ever taken back.
    assert await conn.fetchval("select coalesce(sum(rows_removed), 0) from weft.dataset_write") == 0


async def test_a_feed_that_is_behind_for_a_moment_takes_nothing_back(
    near: weft.Client, conn: Conn, registry: Registry, chain: Chain
) -> None:
    scene = OperatorScene(near, conn, registry)
    chain.grow(20)
    await follow(scene, config_of(http_feed(chain), settle=1000))
    async with weft.Worker(client=near, registry=registry), weft.Orchestrator(client=near):
        await until_like(scene, chain)
        whole, chain.blocks = chain.blocks, chain.blocks[:-3]
        await until(lambda: conn.fetchval("select (state ->> 'behind')::int >= 3 from weft.operator_state"))
        # Another node, which knows nothing at all.
        chain.blocks = []
        await until(lambda: conn.fetchval("select (state ->> 'trouble')::int >= 2 from weft.operator_state"))
        chain.blocks = whole
        chain.grow(1)
        await until_like(scene, chain)
    assert await conn.fetchval("select sum(rows_removed) from weft.dataset_write") == 0


def hidden(*numbers: int) -> Any:
    return lambda blocks: [block for block in blocks if block["number"] not in numbers]


async def test_gaps_are_asked_for_again_and_nothing_is_left_out(
    near: weft.Client, conn: Conn, registry: Registry, chain: Chain
) -> None:
    scene = OperatorScene(near, conn, registry)
    chain.grow(30)
    chain.faults += [hidden(3), hidden(3), hidden(3, 4), 503, hidden(12), hidden(), hidden(0), "half", "close", 429]
    await follow(scene, config_of(http_feed(chain)))
    async with weft.Worker(client=near, registry=registry), weft.Orchestrator(client=near):
        await until_like(scene, chain)
        assert not chain.faults
        state = await conn.fetchval("select state::text from weft.operator_state")
    assert '"trouble"' not in state
    assert await conn.fetchval("select count(*) from weft.task_done where state <> 'completed'") == 0


async def test_a_gap_that_stays_is_an_error_that_names_it(
    near: weft.Client, conn: Conn, registry: Registry, chain: Chain
) -> None:
    scene = OperatorScene(near, conn, registry)
    chain.grow(10)
    del chain.blocks[4]
    job = await follow(scene, config_of(http_feed(chain), give_up_after=3), max_attempts=1)
    async with weft.Worker(client=near, registry=registry), weft.Orchestrator(client=near):
        assert "nothing sound came 3 times in succession; the last time: the feed has no item 4" in await scene.error(
            job
        )
        assert [row["number"] for row in await scene.rows("blocks")] == [0, 1, 2, 3]


async def test_whoever_asks_to_be_left_alone_is(
    near: weft.Client, conn: Conn, registry: Registry, chain: Chain
) -> None:
    scene = OperatorScene(near, conn, registry)
    chain.grow(3)
    chain.faults += [429]
    chain.retry_after = "600"
    await follow(scene, config_of(http_feed(chain)))
    async with weft.Worker(client=near, registry=registry), weft.Orchestrator(client=near):
        # The next slice is there, and waits: what is changed of it now stays so.
        await until(lambda: conn.fetchval("select run_at > weft.now() + interval '590 s' from weft.live_unit"))
        assert len(chain.requests) == 1
        chain.retry_after = None
        await conn.execute(
            "update weft.live_unit set run_at = weft.now(); update weft.live_source set rest_until = null"
        )
        await until_like(scene, chain)


@pytest.mark.parametrize("seed", daily(range(3), 3))
async def test_whatever_a_feed_does_the_end_is_the_chain(
    near: weft.Client, conn: Conn, registry: Registry, chain: Chain, seed: int
) -> None:
    chosen = random.Random(seed)
    scene = OperatorScene(near, conn, registry)
    chain.grow(10)
    await follow(scene, config_of(http_feed(chain, page_size=chosen.randrange(1, 9)), timeout=0.5))

    def behind(blocks: list[Block]) -> list[Block]:
        return blocks[: -chosen.randrange(1, 4)]

    async with weft.Worker(client=near, registry=registry), weft.Orchestrator(client=near):
        for _ in range(12):
            asked = len(chain.requests)
            for _ in range(chosen.randrange(4)):
                chain.faults.append(
                    chosen.choice([500, 503, "half", "close", "hang", behind, hidden(len(chain.blocks) - 1), hidden(1)])
                )
            if chosen.random() < 0.6:
                depth = chosen.randrange(1, min(15, len(chain.blocks)))
                chain.reorganize(depth, depth + chosen.randrange(1, 6))
            else:
                chain.grow(chosen.randrange(1, 12))
            more = chosen.randrange(1, 6)
            await until(lambda asked=asked, more=more: len(chain.requests) >= asked + more)  # type: ignore[misc]
        chain.faults.clear()
        await until_like(scene, chain)
    assert await conn.fetchval("select count(*) from weft.task_done where state <> 'completed'") == 0


async def test_what_is_remembered_no_more_is_an_error(
    near: weft.Client, conn: Conn, registry: Registry, chain: Chain
) -> None:
    scene = OperatorScene(near, conn, registry)
    chain.grow(30)
    job = await follow(scene, config_of(http_feed(chain), keep_hashes=5))
    async with weft.Worker(client=near, registry=registry), weft.Orchestrator(client=near):
        await until_like(scene, chain)
        chain.reorganize(10, 12)
        assert "others in place of all 5 items that are remembered" in await scene.error(job)


async def test_a_feed_without_numbers_goes_on_where_it_says(
    make_client: MakeClient, conn: Conn, registry: Registry, tmp_path: Path
) -> None:
    client = await make_client(fetch_allowed="127.0.0.1")
    scene = OperatorScene(client, conn, registry)
    pages = {"": (["a", "b"], "p2"), "p2": (["c"], "p3"), "p3": ([], "p3")}

    class Pages(Chain):
        def _list(self, target: str, blocks: list[Block]) -> dict[str, Any]:
            names, then = pages[target.partition("cursor=")[2]]
            return {"items": [{"name": name} for name in names], "then": then}

    async with Pages().serve() as served:
        feed = {
            "kind": "http", "url": served.url + "/?cursor={cursor}", "items": "items", "number": None, "next": "then",
            "page_size": 2,
        }  # fmt: skip
        await follow(scene, {"feed": feed}, append=["name"])
        async with weft.Worker(client=client, registry=registry), weft.Orchestrator(client=client):
            await until(lambda: conn.fetchval("select caught_up_at is not null from weft.live_source"))
            pages["p3"] = (["d"], "p4")
            pages["p4"] = ([], "p4")
            await until(lambda: "/?cursor=p4" in served.requests)
            await until(lambda: conn.fetchval("select last_write = 3 from weft.dataset_version"))
            assert sorted(row["name"] for row in await scene.rows("blocks")) == ["a", "b", "c", "d"]


async def test_what_a_dag_must_not_reach_it_does_not(
    client: weft.Client, make_client: MakeClient, conn: Conn, registry: Registry, chain: Chain,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Neither addresses inside, nor variables of the worker that nobody has named for it."""
    monkeypatch.setenv("SECRET_OF_OTHERS", "postgresql://weft:hunter2@localhost/weft")
    scene = OperatorScene(client, conn, registry)
    feed = http_feed(chain)
    sql = {"kind": "sql", "dsn_env": "SECRET_OF_OTHERS", "query": "select 1"}
    tries = {
        "inside": (feed, "127.0.0.1 is not a public address; WEFT_FETCH_ALLOWED names exceptions"),
        "name": ({**feed, "url": feed["url"].replace("127.0.0.1", "localhost")}, "localhost is not a public address"),
        "mapped": ({**feed, "url": feed["url"].replace("127.0.0.1", "[::ffff:127.0.0.1]")}, "is not a public address"),
        "clouds": ({**feed, "url": "http://169.254.169.254/latest?from={from}"}, "is not a public address"),
        "file": ({**feed, "url": "file:///etc/passwd"}, "must begin with https:// or http://"),
        "variable": (sql, "SECRET_OF_OTHERS is not among the variables that DAGs may name"),
        "header": (
            {**feed, "headers": {"X": {"env": "SECRET_OF_OTHERS"}}},
            "SECRET_OF_OTHERS is not among the variables that DAGs may name",
        ),
    }  # fmt: skip
    document = {"source": {"kind": "continuous", "poll": 0.02}}
    jobs = {
        name: await scene.job(
            name, "block_follower", config_of(each), output=f"out_{name}", append=["number"],
            source={"kind": "continuous"}, document=document,
        )
        for name, (each, _) in tries.items()
    }  # fmt: skip
    async with weft.Worker(client=client, registry=registry), weft.Orchestrator(client=client):
        for name, job in jobs.items():
            error = await scene.error(job)
            assert tries[name][1] in error, name
            assert "hunter2" not in error
    assert chain.requests == []
