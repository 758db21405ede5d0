"""Whoever follows, aggregates and routes is killed at any moment: the data are in the end those of the feed."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asyncpg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import weft
from chains import Chain
from crash.harness import Crew, until
from operator_scene import OperatorScene
from weft.core.settings import Settings
from weft.worker.registry import Registry

if TYPE_CHECKING:
    Conn = asyncpg.Connection[asyncpg.Record]


async def table_of(conn: Conn, home: Path, name: str) -> list[dict[str, Any]]:
    """Return what a reader sees of a dataset: each file that is listed must be there, whole."""
    files = await conn.fetch(
        "select v.location, f.path, f.rows from weft.dataset d join weft.dataset_version v on v.id = d.current_id "
        "join weft.dataset_file f on f.version_id = v.id and f.removed_by is null where d.name = $1", name,
    )  # fmt: skip
    tables = [pq.read_table(home / "data" / file["location"] / file["path"]) for file in files]
    assert [table.num_rows for table in tables] == [file["rows"] for file in files]
    return pa.concat_tables(tables).to_pylist() if tables else []


def candles_of(chain: Chain, size: int) -> list[dict[str, Any]]:
    found: dict[int, list[int]] = {}
    for block in chain.blocks:
        found.setdefault(block["number"] // size, []).append(block["price"])
    last = chain.blocks[-1]["number"]
    return [
        {"range_start": range_ * size, "open": prices[0], "close": prices[-1], "n": len(prices)}
        for range_, prices in sorted(found.items())
        if (range_ + 1) * size <= last
    ]


@pytest.mark.parametrize("seed", range(10))
async def test_what_is_killed_at_any_moment_ends_with_the_chain(
    conn: Conn, crew: Crew, seed: int, campaign: str
) -> None:
    if campaign == "short" and seed:
        pytest.skip("one chain is enough for every day")
    chosen = random.Random(seed)
    home = crew.folder / "home"
    settings = Settings.load(environ={}, database_url=crew.url, home=home, profile="fast")
    async with Chain(seed=seed).serve() as chain, weft.Client(settings=settings) as client:
        chain.grow(20)
        scene = OperatorScene(client, conn, Registry())
        feed = {
            "kind": "http", "url": chain.url + "/?from={from}&limit={limit}", "items": "items", "hash": "hash",
            "parent_hash": "parentHash",
        }  # fmt: skip
        config = {"feed": feed, "start": 0, "max_batch": 5, "partition_size": 8, "columns": {"price": "bigint"}}
        await scene.job(
            "blocks", "block_follower", config, output="blocks", append=["number"], source={"kind": "continuous"},
            document={"source": {"kind": "continuous", "poll": 0.05}}, max_attempts=50,
        )  # fmt: skip
        aggregates = {"open": "first(price)", "close": "last(price)", "n": "count(*)"}
        await scene.job(
            "candles", "range_aggregator", {"column": "number", "size": 10, "aggregates": aggregates}, ["blocks"],
            "candles", max_concurrency=3, max_attempts=50,
        )  # fmt: skip

        starts = [
            crew.orchestrator,
            lambda: crew.worker(fetch_allowed="127.0.0.1", worker_crash_limit=1000, worker_loss_limit=1000),
        ]
        running = [await start() for start in starts]
        for round_ in range(3 if campaign == "short" else 6):
            asked = len(chain.requests)
            if chosen.random() < 0.7 and len(chain.blocks) > 12:
                depth = chosen.randrange(1, 12)
                chain.reorganize(depth, depth + chosen.randrange(1, 8))
            else:
                chain.grow(chosen.randrange(1, 20))

            async def has_asked(asked: int = asked) -> bool:
                return len(chain.requests) > asked

            await until(has_asked, "the feed is asked")
            # Anywhere in a slice, or in what follows it.
            await asyncio.sleep(chosen.random() * 0.3)
            place = chosen.choice([0, 1, 1]) if campaign == "long" else (round_ + 1) % 2
            await running[place].kill()
            running[place] = await starts[place]()
        expected = sorted(chain.rows(), key=lambda row: row["number"])

        async def is_alike() -> bool:
            blocks = await table_of(conn, home, "blocks")
            candles = await table_of(conn, home, "candles")
            shown = [{name: row[name] for name in ("range_start", "open", "close", "n")} for row in candles]
            return sorted(blocks, key=lambda row: row["number"]) == expected and sorted(
                shown, key=lambda row: row["range_start"]
            ) == candles_of(chain, 10)

        await until(is_alike, "the data are those of the chain", 120)
    assert await conn.fetchval("select count(*) from weft.live_unit where state = 'held'") == 0
