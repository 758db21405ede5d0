"""The operator `block_follower` and feeds that lie: nothing is believed, and nothing that was taken is harmed."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeAlias

import asyncpg
import pytest
from engine_scene import MakeClient

import weft
from liars import Liar, answer_json
from live_scene import until
from operator_scene import OperatorScene
from weft.worker.registry import Registry

Conn: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
_POLL = {"source": {"kind": "continuous", "poll": 0.01}}


@pytest.fixture
async def near(make_client: MakeClient) -> weft.Client:
    """A client whose workers may fetch from this machine."""
    return await make_client(fetch_allowed="127.0.0.1", dag_secrets="FEED_DSN")


def http_feed(liar: Liar, **more: Any) -> dict[str, Any]:
    return {"kind": "http", "url": liar.url + "/?from={from}", "items": "items", "hash": "hash", **more}


def item(number: Any, hash: Any = None) -> dict[str, Any]:
    return {"number": number, "hash": f"h{number}" if hash is None else hash}


async def follow(scene: OperatorScene, feed: dict[str, Any], **config: Any) -> int:
    append = config.pop("append", ["number"])
    return await scene.job(
        "blocks", "block_follower", {"feed": feed, "start": 0, **config}, output="blocks", append=append,
        source={"kind": "continuous"}, document=_POLL, max_attempts=1,
    )  # fmt: skip


async def state_of(conn: Conn) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(await conn.fetchval("select state from weft.operator_state") or "{}")
    return found


def node(head: int, block: Callable[[int], Any]) -> Callable[[str, bytes], bytes]:
    """Answer as a node of JSON-RPC does, with what is told of each number."""

    def result(call: dict[str, Any]) -> Any:
        return hex(head) if call["method"] == "eth_blockNumber" else block(int(call["params"][0], 16))

    def answered(_: str, body: bytes) -> bytes:
        said = json.loads(body)
        calls = said if isinstance(said, list) else [said]
        told = [{"jsonrpc": "2.0", "id": call["id"], "result": result(call)} for call in calls]
        return answer_json(told if isinstance(said, list) else told[0])

    return answered


@pytest.mark.parametrize("consecutive", [True, False])
async def test_a_node_that_answers_with_another_number_is_not_believed(
    near: weft.Client, conn: Conn, registry: Registry, consecutive: bool
) -> None:
    scene = OperatorScene(near, conn, registry)
    sound = node(9, lambda number: item(hex(number), f"h{number}"))
    async with Liar(sound).serve() as liar:
        feed = {"kind": "json_rpc", "url": liar.url, "parent_hash": None, "hash": None}
        await follow(scene, feed, consecutive=consecutive, append=None)
        async with weft.Worker(client=near, registry=registry), weft.Orchestrator(client=near):
            await until(lambda: conn.fetchval("select caught_up_at is not null from weft.live_source"))
            assert (await state_of(conn))["cursor"] == 9
            # Behind a balancer there may be one that is far behind, and answers what it has.
            liar.answers[:] = [node(12, lambda number: item(hex(number - 7)))]

            async def is_in_trouble() -> bool:
                return bool((await state_of(conn)).get("trouble", 0) >= 2)

            await until(is_in_trouble)
            assert (await state_of(conn))["cursor"] == 9
            liar.answers[:] = [node(12, lambda number: item(hex(number)))]

            async def has_gone_on() -> bool:
                return bool((await state_of(conn))["cursor"] == 12)

            await until(has_gone_on)
            assert sorted(row["number"] for row in await scene.rows("blocks")) == list(range(13))


@pytest.mark.parametrize(
    ("said", "trouble"),
    [
        ({"items": [item(2**63, "a")]}, "an item has a number of more than 64 bits"),
        ({"items": [item(1e300, "a")]}, "an item has a number of more than 64 bits"),
        ({"items": [item("0x" + "f" * 5000, "a")]}, "an item has a number of more than 64 bits"),
        ({"items": [item(0, "x" * 1001)]}, "a hash is longer than 1,000 signs"),
        ({"items": [item(0, "a\0b")]}, "a hash is longer than 1,000 signs, or has some that no text has"),
        ({"items": [{"number": 0}]}, "item 0 has no hash"),
        ({"items": [item(0, "a"), item(0, "b")]}, "two items of number 0"),
        ({"items": [item(0)], "head": 2**70}, "what is the highest has a number of more than 64 bits"),
        ({"items": [item(7)]}, "the feed has no item 0"),
    ],
)  # fmt: skip
async def test_what_is_nothing_sound_is_asked_for_again(
    near: weft.Client, conn: Conn, registry: Registry, said: dict[str, Any], trouble: str
) -> None:
    scene = OperatorScene(near, conn, registry)
    async with Liar(answer_json(said), answer_json(said), answer_json({"items": [item(0)]})).serve() as liar:
        await follow(scene, http_feed(liar, latest="head"))
        async with weft.Worker(client=near, registry=registry), weft.Orchestrator(client=near):
            await until(lambda: conn.fetchval("select caught_up_at is not null from weft.live_source"))
        assert await state_of(conn) == {"cursor": 0, "first": 0, "hashes": [[0, "h0"]]}
        told = await conn.fetch("select o.output ->> 'trouble' as trouble from weft.task_done o")
        assert any(trouble in (row["trouble"] or "") for row in told)


async def test_answers_of_calls_that_nobody_made_are_passed_over(
    near: weft.Client, conn: Conn, registry: Registry
) -> None:
    def answered(_: str, body: bytes) -> bytes:
        said = json.loads(body)
        one = {"id": said["id"], "result": "0x0" if said["method"] == "eth_blockNumber" else item("0x0")}
        return answer_json([{"id": [1], "result": 7}, {"id": {}, "result": 8}, None, "x", {"result": 9}, one])

    scene = OperatorScene(near, conn, registry)
    async with Liar(answered).serve() as liar:
        await follow(scene, {"kind": "json_rpc", "url": liar.url, "parent_hash": None})
        async with weft.Worker(client=near, registry=registry), weft.Orchestrator(client=near):
            await until(lambda: conn.fetchval("select caught_up_at is not null from weft.live_source"))
    assert (await state_of(conn))["cursor"] == 0


async def test_what_lies_far_apart_is_taken_back_by_what_there_is(
    near: weft.Client, conn: Conn, registry: Registry
) -> None:
    """Between two numbers there may be a million million others, which nobody goes through."""
    scene = OperatorScene(near, conn, registry)
    async with Liar(answer_json({"items": [item(0), item(2**62)]})).serve() as liar:
        await follow(scene, http_feed(liar), consecutive=False, partition_size=1)
        async with weft.Worker(client=near, registry=registry), weft.Orchestrator(client=near):
            await until(lambda: conn.fetchval("select caught_up_at is not null from weft.live_source"))
            liar.answers[:] = [answer_json({"items": [item(0), item(1)]})]

            async def has_gone_back() -> bool:
                return bool((await state_of(conn))["cursor"] == 1)

            await until(has_gone_back)
            assert sorted(row["number"] for row in await scene.rows("blocks")) == [0, 1]


async def test_a_cursor_that_leads_nowhere_is_not_followed_in_a_circle(
    near: weft.Client, conn: Conn, registry: Registry
) -> None:
    scene = OperatorScene(near, conn, registry)
    pages = {"": (["a"], "p"), "p": (["b"], "p")}

    def answered(target: str, _: bytes) -> bytes:
        names, then = pages[target.partition("cursor=")[2]]
        return answer_json({"items": [{"name": name} for name in names], "then": then})

    async with Liar(answered).serve() as liar:
        feed = {"kind": "http", "url": liar.url + "/?cursor={cursor}", "items": "items", "number": None, "next": "then"}
        job = await scene.job(
            "blocks", "block_follower", {"feed": feed, "give_up_after": 3}, output="blocks", append=[],
            source={"kind": "continuous"}, document=_POLL, max_attempts=1,
        )  # fmt: skip
        async with weft.Worker(client=near, registry=registry), weft.Orchestrator(client=near):
            assert "goes on where it was asked: they would come again and again" in await scene.error(job)
            assert [row["name"] for row in await scene.rows("blocks")] == ["a"]


async def test_an_address_that_cannot_be_read_is_not_repeated(
    near: weft.Client, conn: Conn, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEED_DSN", "postgresql://reader:canary/4711@localhost/feed")
    scene = OperatorScene(near, conn, registry)
    job = await follow(scene, {"kind": "sql", "dsn_env": "FEED_DSN", "query": "select 1 as number"})
    async with weft.Worker(client=near, registry=registry), weft.Orchestrator(client=near):
        error = await scene.error(job)
    assert "config.feed.dsn_env: FEED_DSN holds no address of a PostgreSQL that can be read" in error
    assert "canary" not in error


async def test_a_query_that_tells_the_last_row_again_adds_it_once(
    near: weft.Client, conn: Conn, registry: Registry, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEED_DSN", url)
    scene = OperatorScene(near, conn, registry)
    query = "select number from generate_series(greatest($1::bigint, 0), 5) as number limit $2"
    await follow(scene, {"kind": "sql", "dsn_env": "FEED_DSN", "query": query}, append=None, max_batch=3)
    async with weft.Worker(client=near, registry=registry), weft.Orchestrator(client=near):
        await until(lambda: conn.fetchval("select caught_up_at is not null from weft.live_source"))
        assert [row["number"] for row in await scene.rows("blocks")] == [0, 1, 2, 3, 4, 5]


async def test_values_of_several_types_are_told_by_their_column(
    near: weft.Client, conn: Conn, registry: Registry
) -> None:
    scene = OperatorScene(near, conn, registry)
    items = [{**item(0), "price": 1}, {**item(1), "price": "much"}]
    async with Liar(answer_json({"items": items})).serve() as liar:
        job = await follow(scene, http_feed(liar))
        async with weft.Worker(client=near, registry=registry), weft.Orchestrator(client=near):
            assert "config.columns: say of which type price is" in await scene.error(job)
