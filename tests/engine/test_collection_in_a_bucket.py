"""Blobs are collected from a bucket, where a removal may come late and nothing can be renamed."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest
from engine_scene import END_CONNECTIONS, WAITING, Clock, MakeClient, until

import weft
from buckets import S3Bucket
from weft.db.blob_bucket import BucketBlobs
from weft.queue.blobs import Collector
from weft.worker.registry import Registry

LIMITS = {"inline_limit": 1000, "retention": "30d"}
TEXT = "x" * 2000
# As it is kept: as JSON.
DATA = f'"{TEXT}"'.encode()
DELETING = "POST", r"\?delete"


@pytest.fixture
async def client(make_client: MakeClient, s3_bucket: S3Bucket) -> weft.Client:
    return await make_client(**LIMITS, blob_url=s3_bucket.url)


@pytest.fixture
async def digest(client: weft.Client, s3_bucket: S3Bucket, conn: asyncpg.Connection[asyncpg.Record]) -> str:
    """A blob that was put long ago, and to which nothing refers."""
    digest = await client.blobs.put(DATA)
    await Clock(conn, client).advance(days=3)
    s3_bucket.age(3)
    return digest


@pytest.fixture
def collector(client: weft.Client, s3_bucket: S3Bucket) -> Collector:
    return Collector(client.database, BucketBlobs(s3_bucket.address))


async def test_a_collector_that_has_lost_its_lock_removes_nothing_that_was_put_since(
    client: weft.Client, collector: Collector, s3_bucket: S3Bucket, digest: str,
    conn: asyncpg.Connection[asyncpg.Record],
) -> None:  # fmt: skip
    with s3_bucket.server.holding(*DELETING) as deleting:
        collecting = asyncio.create_task(collector.run_once())
        await asyncio.to_thread(deleting.wait)
        putting = asyncio.create_task(client.blobs.put(DATA))
        await until(lambda: conn.fetchval(WAITING, "%into weft.blob%"))
        await conn.execute(END_CONNECTIONS)
        # Whoever waited for the row has it now, unless its own connection was ended too.
        await asyncio.wait([putting])
        assert await client.blobs.put(DATA) == digest
        task = await client.enqueue("h", {"text": TEXT})
        deleting.let_in()
        await asyncio.wait([collecting])
    assert await client.blobs.get(digest) == DATA
    assert (await client.get_task(task.id)).params == {"text": TEXT}
    assert await conn.fetchval("select count(*) from weft.blob where digest = $1", digest) == 1


async def test_an_output_that_is_put_while_its_blob_is_removed_stays(
    client: weft.Client, registry: Registry, collector: Collector, s3_bucket: S3Bucket, digest: str,
    conn: asyncpg.Connection[asyncpg.Record], url: str,
) -> None:  # fmt: skip
    """It is put before the database hears of it: nothing there keeps the collector away."""

    @registry.task(name="own")
    async def own(ctx: weft.Context) -> None:
        mine = await asyncpg.connect(url)
        async with mine.transaction():
            done = ctx.complete_in(mine, TEXT)
            assert done is not None
            await done
        await mine.close()

    task = await client.enqueue("own")
    with s3_bucket.server.holding(*DELETING) as deleting:
        collecting = asyncio.create_task(collector.run_once())
        await asyncio.to_thread(deleting.wait)
        working = asyncio.create_task(weft.Worker(client=client, registry=registry).run_until_idle())
        # The output is there, and its reference waits for the row.
        await until(lambda: conn.fetchval(WAITING, "%weft.complete%"))
        deleting.let_in()
        assert await collecting == 0
        await working
    assert await client.wait(task.id) == TEXT
    assert await conn.fetchval("select digest from weft.task_blob where task_id = $1", task.id) == digest


async def test_a_storage_that_is_out_of_order_keeps_its_blobs_and_their_account(
    collector: Collector, s3_bucket: S3Bucket, digest: str, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    with s3_bucket.server.answering("403 Forbidden", "AccessDenied"), pytest.raises(weft.BlobUnavailable):
        await collector.run_once()
    assert await conn.fetchval("select count(*) from weft.blob") == 1
    assert await collector.run_once() == 1
    assert s3_bucket.objects() == {}
    assert await conn.fetchval("select count(*) from weft.blob") == 0
