"""Whoever is killed while he writes into a bucket or a table, registers or deletes: one whole state is seen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asyncpg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import weft
from buckets import S3Bucket
from crash.dataset_acts import NAME, collect, write
from crash.harness import Performance, Process, until
from crash.job_acts import settings_for
from crash.moments import Moments
from crash.test_dataset_kill import claimed, copies, each_statement, fill, listed

if TYPE_CHECKING:
    Conn = asyncpg.Connection[asyncpg.Record]

__all__ = ["copies"]


class Kept:
    """Where a dataset is kept, looked into behind the back of whoever uses it."""

    def __init__(self, storage: str, conn: Conn, bucket: S3Bucket) -> None:
        self.storage = storage
        self.settings = {"data_url": bucket.url} if storage == "bucket" else {}
        self._conn = conn
        self._bucket = bucket

    async def names(self) -> set[str]:
        """Return the names of all files that there are, seen or not."""
        if self.storage == "bucket":
            return {name.rpartition("/")[2] for name in self._bucket.names()}
        tables = await self._conn.fetch(
            "select c.relname from pg_class c where c.relnamespace = 'weft_data'::regnamespace and c.relkind = 'r'"
        )
        found: set[str] = set()
        for (table,) in tables:
            rows = await self._conn.fetch(f"select distinct _write, _file from weft_data.{table}")
            found |= {f"{write}-{file}.rows" for write, file in rows}
        return found


@pytest.fixture(params=["bucket", "table"])
def kept(request: pytest.FixtureRequest, conn: Conn, s3_bucket: S3Bucket) -> Kept:
    return Kept(request.param, conn, s3_bucket)


async def _rows(client: weft.Client) -> dict[str, list[int]]:
    """Return what a reader sees, by partition."""
    sql = f"select id from {NAME} order by id"
    async with client.datasets.query(sql) as answer:
        ids = [row["id"] async for row in answer.records()]
    parts = await client.datasets.partitions(NAME, latest=True, limit=1000)
    return {"ids": ids, "counts": [part.rows for part in parts]}


async def test_a_task_that_is_killed_has_completed_with_all_it_wrote_or_with_nothing(
    url: str, home: Path, conn: Conn, kept: Kept, copies: Process, campaign: str
) -> None:
    done: list[int] = []
    outcomes: list[bool] = []
    async with weft.Client(settings=settings_for(url, home, **kept.settings)) as client:
        await client.datasets.create(NAME, storage="parquet" if kept.storage == "bucket" else "postgres")
        # There is something already: each that follows has as much to ask for.
        worker, first = await claimed(conn, client)
        await write(client, worker, first)
        done.append(first)

        async def order() -> dict[str, Any]:
            worker, task = await claimed(conn, client)
            return {"act": "write", "worker_id": worker, "task_id": task, "settings": kept.settings}

        async def look(said: dict[str, Any], number: int) -> None:
            task = said["task_id"]
            state = await conn.fetchval("select state from weft.tasks where id = $1", task)
            outcomes.append(state == "completed")
            if state == "completed":
                done.append(task)
            seen = await _rows(client)
            assert seen["ids"] == sorted(2 * done), number
            assert sum(seen["counts"]) == 2 * len(done)
            await conn.execute("delete from weft.task where id = $1", task)

        assert await each_statement(url, home, conn, copies, order, look, Moments(campaign)) > 10
        assert outcomes == sorted(outcomes), "not up to some statement, and from there on"
        assert outcomes[-1]
        assert not outcomes[0]
        assert await kept.names() > await listed(conn)
        await collect(client)
        assert await kept.names() == await listed(conn)
        assert (await _rows(client))["ids"] == sorted(2 * done)


@pytest.mark.long
@pytest.mark.timeout(300)
async def test_who_is_killed_while_collecting_takes_nothing_from_readers(
    url: str, home: Path, conn: Conn, kept: Kept, copies: Process, campaign: str
) -> None:
    settings = settings_for(url, home, **kept.settings, dataset_retention="1ms")
    async with weft.Client(settings=settings) as client:
        await client.datasets.create(NAME, storage="parquet" if kept.storage == "bucket" else "postgres")

        async def order() -> dict[str, Any]:
            # What was left before is gone: else there would be more to do in each round.
            await collect(client)
            await fill(client, [1], [2, 3], [4], [5], breaking=2)
            return {"act": "collect", "retention": "1ms", "settings": kept.settings}

        async def look(said: dict[str, Any], number: int) -> None:
            assert (await _rows(client))["ids"] == [5], number

        assert await each_statement(url, home, conn, copies, order, look, Moments(campaign, every=5)) > 5
        assert await kept.names() == await listed(conn)
        assert len(await kept.names()) == 1
        assert [each.is_current for each in await client.datasets.versions(NAME)] == [True]


async def test_a_writer_that_is_killed_amid_an_upload_leaves_nothing_to_see(
    url: str, home: Path, conn: Conn, s3_bucket: S3Bucket, copies: Process
) -> None:
    settings = {"data_url": s3_bucket.url}
    async with weft.Client(settings=settings_for(url, home, **settings)) as client:
        await fill(client, [1])
        before = s3_bucket.names()
        await client.datasets.hand_over(NAME, "@task", "write")
        worker, task = await claimed(conn, client)
        said = {"act": "write", "worker_id": worker, "task_id": task, "settings": settings}
        with s3_bucket.server.holding("PUT", r"-1\.parquet") as held:
            copies.say(json.dumps({**said, "url": url, "home": str(home)}))
            victim = Performance(copies, int(await copies.hear()))
            await until(lambda: _has_come(held), "the upload is at the door")
            await victim.kill()
        assert (await _rows(client))["ids"] == [1]
        await conn.execute("delete from weft.task where id = $1", task)
        await collect(client)
        assert s3_bucket.names() == before


async def _has_come(held: Any) -> bool:
    return bool(held.has_come)


async def test_who_is_killed_while_registering_has_registered_all_or_nothing(
    url: str, home: Path, conn: Conn, tmp_path: Path, copies: Process, campaign: str
) -> None:
    place = tmp_path / "theirs"
    place.mkdir()
    settings = {"data_outside": str(place)}
    files = 0
    async with weft.Client(settings=settings_for(url, home, **settings)) as client:

        async def order() -> dict[str, Any]:
            nonlocal files
            files += 1
            pq.write_table(pa.table({"id": [files]}), place / f"{files}.parquet")
            return {"act": "register", "address": str(place), "settings": settings}

        async def look(said: dict[str, Any], number: int) -> None:
            if not await client.datasets.list() or (await client.datasets.show(NAME)).version is None:
                return
            seen = (await _rows(client))["ids"]
            assert seen == list(range(1, len(seen) + 1)), number
            assert len(seen) == (await client.datasets.show(NAME)).rows

        assert await each_statement(url, home, conn, copies, order, look, Moments(campaign)) > 5
        assert (await _rows(client))["ids"] == list(range(1, files + 1))


async def test_who_is_killed_while_deleting_and_bringing_back_has_done_each_whole(
    url: str, home: Path, conn: Conn, copies: Process, campaign: str
) -> None:
    async with weft.Client(settings=settings_for(url, home)) as client:
        await client.datasets.create(NAME, storage="postgres")
        await fill(client, [1])

        async def order() -> dict[str, Any]:
            return {"act": "delete"}

        async def look(said: dict[str, Any], number: int) -> None:
            if not await client.datasets.list():
                assert await conn.fetchval("select to_regclass('weft_data.\"default.orders\"')") is None
                await client.datasets.undelete(NAME)
            assert (await _rows(client))["ids"] == [1], number
            assert await conn.fetchval('select id from weft_data."default.orders"') == 1

        assert await each_statement(url, home, conn, copies, order, look, Moments(campaign)) > 5
