"""Datasets in a bucket of S3: what holds in a folder holds there, and what is wrong with a bucket is told."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import re
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from engine_scene import MakeClient

import weft
from buckets import SECRET, S3Bucket
from live_scene import until
from weft.core.data_errors import DataUnavailable
from weft.core.query_errors import QueryLimitReached
from weft.data.collecting import DatasetCollector
from weft.data.own_thread import in_own_thread
from weft.data.parquet import dataset_of
from weft.data.storage import Storage
from weft.worker.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Mapping

ORDERS = pa.table({"id": [1, 2, 3], "day": ["a", "a", "b"]})


class Bench:
    """Handlers that write and read one dataset, and a worker that runs them."""

    def __init__(self, client: weft.Client) -> None:
        self.client = client
        self.registry = registry = Registry()

        @registry.task(name="write", retry=0)
        async def write(rows: list[dict[str, Any]], how: dict[str, Any], ctx: weft.Context) -> int:
            return (await ctx.dataset("orders").write(rows, **how)).rows  # type: ignore[no-any-return]

        @registry.task(name="read", retry=0)
        async def read(name: str, ctx: weft.Context) -> list[dict[str, Any]]:
            table = await ctx.dataset(name).read()
            assert (await ctx.dataset(name).scan()).to_table().num_rows == table.num_rows
            return sorted(table.to_pylist(), key=lambda row: row["id"])

    async def _done(self, handler: str, params: Mapping[str, Any]) -> Any:
        async with weft.Worker(client=self.client, registry=self.registry):
            return await self.client.wait((await self.client.enqueue(handler, params)).id, timeout=60)

    async def write(self, rows: list[dict[str, Any]], **how: Any) -> int:
        return await self._done("write", {"rows": rows, "how": how})  # type: ignore[no-any-return]

    async def ids(self, name: str = "orders") -> list[int]:
        return [row["id"] for row in await self._done("read", {"name": name})]


@pytest.fixture
async def bench(make_client: MakeClient, s3_bucket: S3Bucket) -> Bench:
    return Bench(await make_client(data_url=s3_bucket.url, dataset_retention="1ms"))


async def asked(client: weft.Client, sql: str) -> list[dict[str, Any]]:
    async with client.datasets.query(sql) as answer:
        return [row async for row in answer.records()]


async def collect(client: weft.Client) -> None:
    collector = DatasetCollector(client.database, client.settings, timedelta(0))
    while await collector.run_once():
        pass


async def test_a_dataset_is_written_read_asked_and_gone_back_to(make_client: MakeClient, s3_bucket: S3Bucket) -> None:
    bench = Bench(await make_client(data_url=s3_bucket.url))
    client = bench.client
    await bench.write(ORDERS.to_pylist(), partition_by="day")
    assert await bench.write([{"id": 3, "day": "b"}, {"id": 4, "day": "b"}], mode="append", unique_key="id",
                             partition_by="day") == 1  # fmt: skip
    assert await bench.ids() == [1, 2, 3, 4]
    assert [(part.key, part.rows) for part in await client.datasets.partitions("orders")] == [("a", 2), ("b", 2)]
    assert await asked(client, "select day, count(*) as n from orders group by day order by day") == [
        {"day": "a", "n": 2}, {"day": "b", "n": 2}
    ]  # fmt: skip
    assert await client.datasets.sample("orders", limit=1) == [{"id": 1, "day": "a"}]
    await bench.write([{"id": 9, "day": "c"}])
    assert await bench.ids() == [9]
    assert await bench.ids("orders@1.2") == [1, 2, 3, 4]
    await client.datasets.rollback("orders@1.1")
    assert await bench.ids() == [1, 2, 3]
    assert len([name for name in s3_bucket.names() if name.endswith(".parquet")]) == 4
    assert not [name for name in s3_bucket.names() if not name.endswith(".parquet")], "no empty objects for folders"


async def test_what_nobody_sees_is_collected_and_nothing_else(bench: Bench, s3_bucket: S3Bucket) -> None:
    client = bench.client
    await bench.write([{"id": 1}])
    old = s3_bucket.names()
    await bench.write([{"id": 2}])
    await collect(client)
    assert not old & s3_bucket.names()
    await bench.write([{"other": 3}], breaking=True)
    await collect(client)
    assert len(s3_bucket.names()) == 1
    assert [each.number for each in await client.datasets.versions("orders")] == [2]


async def test_a_write_that_fails_amid_its_rows_leaves_nothing_that_stays(bench: Bench, s3_bucket: S3Bucket) -> None:
    await bench.write([{"id": 1}])
    with pytest.raises(weft.TaskFailed, match="id"):
        await bench.write([{"id": 2}] * 70_000 + [{"id": "no number"}])
    assert await bench.ids() == [1]
    await collect(bench.client)
    assert len(s3_bucket.names()) == 1


@pytest.mark.parametrize(
    ("status", "code", "words", "less"),
    [
        ("403 Forbidden", "AccessDenied", "access is denied: allow s3:GetObject", "access is denied"),
        ("404 Not Found", "NoSuchBucket", "there is no such bucket", "is missing"),
        ("403 Forbidden", "InvalidAccessKeyId", "it does not know the credentials", "access is denied"),
        ("400 Bad Request", "ExpiredToken", "the credentials have expired: renew AWS_SESSION_TOKEN", "it answers 400"),
        ("500 Internal Server Error", "InternalError", "too busy, and answers 500 Internal", "answers 500"),
        ("503 Slow Down", "SlowDown", "it is out of order or too busy, and answers 503 SlowDown", "answers 503"),
    ],
)
async def test_what_is_wrong_with_a_bucket_is_told_and_no_secret(
    bench: Bench, s3_bucket: S3Bucket, status: str, code: str, words: str, less: str
) -> None:
    """Whoever reads asks first how large an object is, and such an answer has no words: ``less`` is told."""
    await bench.write([{"id": 1}])
    with s3_bucket.server.answering(status, code):
        with pytest.raises(weft.TaskFailed) as written:
            await bench.write([{"id": 2}])
        with pytest.raises(weft.TaskFailed) as read:
            await bench.ids()
        with pytest.raises(DataUnavailable) as queried:
            await asked(bench.client, "select * from orders")
        await bench.client.database.run(lambda conn: conn.execute("update weft.dataset_file set removed_by = 0"))
        with pytest.raises(DataUnavailable) as collected:
            await collect(bench.client)
    for problem, expected in ((written, words), (read, less), (queried, less), (collected, words)):
        told = str(problem.value)
        assert expected in told
        assert s3_bucket.address.name in told
        assert problem is collected or ".parquet: " in told, "which object it is about"
        assert SECRET not in told
        assert "AKIA" not in told


@pytest.mark.parametrize("rows", [1, 12], ids=["at once", "in parts"])
async def test_a_task_is_tried_again_when_its_bucket_lost_what_it_said_it_took(
    make_client: MakeClient, s3_bucket: S3Bucket, rows: int
) -> None:
    client, registry = await make_client(data_url=s3_bucket.url), Registry()
    attempts: list[int] = []
    lost = r"^(PUT \S*parquet\?$|POST \S*uploadId)"

    @registry.task(name="write", retry=weft.Retry(2, initial_delay=0))
    async def write(ctx: weft.Context) -> None:
        attempts.append(ctx.attempt)
        table = pa.table({"id": range(rows), "noise": [random.Random(id).randbytes(1 << 20) for id in range(rows)]})
        with s3_bucket.server.forgetting(lost) if len(attempts) == 1 else contextlib.nullcontext():
            await ctx.dataset("orders").write(table)

    async with weft.Worker(client=client, registry=registry):
        await client.wait((await client.enqueue("write")).id, timeout=60)
    assert attempts == [1, 2]
    assert await asked(client, "select count(*) as n from orders") == [{"n": rows}]
    ours = [request for request, _ in s3_bucket.server.requests if s3_bucket.address.name in request]
    assert any("uploadId" in request for request in ours) == (rows > 1)


async def test_a_bucket_that_cannot_be_reached_is_told_as_such(
    make_client: MakeClient, s3_bucket: S3Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    bench = Bench(await make_client(data_url=f"{s3_bucket.url}/elsewhere"))
    with pytest.raises(weft.TaskFailed, match="cannot be reached"):
        await bench.write([{"id": 1}])


async def test_a_query_copies_no_more_than_it_may(make_client: MakeClient, s3_bucket: S3Bucket) -> None:
    bench = Bench(await make_client(data_url=s3_bucket.url, query_fetch="1KiB"))
    await bench.write([{"id": id} for id in range(10_000)])
    with pytest.raises(QueryLimitReached, match="WEFT_QUERY_FETCH"):
        await asked(bench.client, "select count(*) as n from orders")


async def test_all_datasets_of_a_query_together_are_no_more_than_it_may_copy(
    make_client: MakeClient, s3_bucket: S3Bucket
) -> None:
    bench = Bench(await make_client(data_url=s3_bucket.url, query_fetch="900"))
    for _ in range(2):
        await bench.write([{"id": 1}])
    sizes = [len(data) for data in s3_bucket.objects().values()]
    assert max(sizes) <= 900 < sum(sizes)
    both = """select (select count(*) from "orders@1.1") + (select count(*) from "orders@1.2") as n"""
    assert await asked(bench.client, """select count(*) as n from "orders@1.1\"""") == [{"n": 1}]
    with pytest.raises(QueryLimitReached, match="WEFT_QUERY_FETCH"):
        await asked(bench.client, both)


async def test_an_endpoint_without_encryption_elsewhere_is_refused(
    make_client: MakeClient, s3_bucket: S3Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://storage.example.com")
    bench = Bench(await make_client(data_url=f"{s3_bucket.url}/third"))
    with pytest.raises(weft.TaskFailed, match="AWS_ALLOW_HTTP"):
        await bench.write([{"id": 1}])


async def test_a_query_of_a_bucket_that_does_not_answer_holds_up_nobody_else(bench: Bench, s3_bucket: S3Bucket) -> None:
    """Another user of the same process, such as a server: what he asks for takes a thread for a moment."""
    await bench.write([{"id": 100, "day": "before"}], partition_by="day")
    before = s3_bucket.names()
    await bench.write([{"id": number, "day": f"d{number}"} for number in range(8)], partition_by="day")
    files = [name.rpartition("/")[2] for name in s3_bucket.names() - before if name.endswith(".parquet")]
    assert len(files) == 8
    with contextlib.ExitStack() as doors:
        held = [doors.enter_context(s3_bucket.server.holding("GET", re.escape(name))) for name in files]
        asking = asyncio.create_task(asked(bench.client, "select count(*) as n from orders"))
        await until(lambda: sum(each.has_come for each in held) >= min(8, (os.cpu_count() or 1) + 4))
        flow = {"workflow_id": "other", "nodes": {"START": {"type": "start", "next": "END"}, "END": {"type": "end"}}}
        async with asyncio.timeout(20):
            await bench.client.workflows.push(flow, message="meanwhile")
            assert await asked(bench.client, 'select id from "orders@1.1"') == [{"id": 100}]
        assert not asking.done()
        doors.close()
        assert await asking == [{"n": 9}]


async def test_who_reads_a_bucket_that_does_not_answer_keeps_nobody_from_files_of_the_machine(
    s3_bucket: S3Bucket, tmp_path: Path
) -> None:
    names = [f"{number}.parquet" for number in range(12)]
    for storage in (away := Storage.at(s3_bucket.url), here := Storage.at(str(tmp_path))):
        for name in names:
            with storage.create("v/", name) as sink:
                pq.write_table(ORDERS, sink)

    def read(storage: Storage) -> int:
        return dataset_of(storage, [storage.path("v/", name) for name in names], ORDERS.schema).to_table().num_rows

    with contextlib.ExitStack() as doors:
        held = [doors.enter_context(s3_bucket.server.holding("HEAD", re.escape(f"/{name}"))) for name in names]
        reading = [asyncio.create_task(in_own_thread(read, away)) for _ in range(3)]
        await until(lambda: sum(each.has_come for each in held) >= 4)
        async with asyncio.timeout(20):
            assert await in_own_thread(read, here) == 36
        doors.close()
        assert await asyncio.gather(*reading) == [36] * 3
