"""Partitions that are named on the command line: those of no name, and those whose names have commas."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeAlias

import asyncpg
import pytest
from apps.cli_scene import Cli

import weft
from live_scene import make_dag, make_job

Conn: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


@pytest.mark.parametrize(
    ("said", "lanes"),
    [("", [""]), ("a,", ["", "a"]), ("a", ["a"]), ('"b,c",a', ["a", "b,c"]), ("a,b", "no partition 'b'")],
)
async def test_partitions_are_computed_anew_by_any_name(url: str, home: Path, said: str, lanes: Any) -> None:
    cli = Cli(url, home)
    conn = await asyncpg.connect(url)
    try:
        async with weft.Client(url) as client:
            await client.datasets.create("ticks")
        dataset, version = await conn.fetchval("select id from weft.dataset"), 1
        await conn.execute(
            """insert into weft.dataset_version
                 (id, org_id, dataset_id, number, config_hash, location, last_write, actor)
               values ($1, 1, $2, 1, 'h', 'x/', 1, 'ann')""", version, dataset,
        )  # fmt: skip
        await conn.executemany(
            """insert into weft.dataset_partition
                 (version_id, partition_key, org_id, last_write, rows, bytes, files, written_at)
               values (1, $1, 1, 1, 1, 1, 1, now())""", [("",), ("a",), ("b,c",)],
        )  # fmt: skip
        await make_job(conn, await make_dag(conn), "copy", "copy", inputs=[(dataset, version)], strategy="partition")
        asked = ("live", "rematerialize", "market", "copy", "--partitions", said)
        if isinstance(lanes, str):
            assert lanes in cli(*asked, code=2) == cli(*asked, "--dry-run", code=2)
            return
        assert cli.json(*asked, "--dry-run")["count"] == len(lanes)
        assert await conn.fetchval("select count(*) from weft.live_unit") == 0
        assert cli.json(*asked)["count"] == len(lanes)
        assert [row["lane"] for row in await conn.fetch("select lane from weft.live_unit order by lane")] == lanes
    finally:
        await conn.close()
