"""Files that others write, registered as versions of a dataset: where Weft may read, once, and never removed."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import asyncpg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from engine_scene import MakeClient

import weft
from buckets import S3Bucket
from far import far_client
from operator_scene import OperatorScene
from weft.data.collecting import DatasetCollector
from weft.worker.registry import Registry


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder in which others write."""
    made = tmp_path / "theirs"
    made.mkdir()
    return made


@pytest.fixture
async def client(make_client: MakeClient, place: Path) -> weft.Client:
    """A client that may register what is in that folder."""
    return await make_client(data_outside=str(place), dataset_retention="1ms")


def put(path: Path, **columns: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)
    return path


async def read(client: weft.Client, name: str, partition: str | None = None) -> list[dict[str, Any]]:
    """Return what a task reads of a dataset."""
    registry = Registry()

    @registry.task(name="read", retry=0)
    async def read(ctx: weft.Context) -> list[dict[str, Any]]:
        return (await ctx.dataset(name).read(partition=partition)).to_pylist()  # type: ignore[no-any-return]

    async with weft.Worker(client=client, registry=registry):
        return await client.wait((await client.enqueue(read)).id, timeout=60)  # type: ignore[no-any-return]


async def asked(client: weft.Client, sql: str) -> list[dict[str, Any]]:
    async with client.datasets.query(sql) as answer:
        return [row async for row in answer.records()]


async def test_what_is_registered_is_read_and_what_comes_later_is_not(client: weft.Client, place: Path) -> None:
    put(place / "a/1.parquet", id=[1, 2])
    put(place / "b/2.parquet", id=[3])
    put(place / "_temporary/3.parquet", id=[99])
    (place / "_SUCCESS").touch()
    state = await client.datasets.register("theirs", str(place))
    assert (str(state), state.is_outside, state.location) == ("theirs@1.1", True, f"{place}/")
    put(place / "c/4.parquet", id=[4])
    assert sorted(row["id"] for row in await read(client, "theirs")) == [1, 2, 3]
    assert await asked(client, "select sum(id) as ids from theirs") == [{"ids": 6}]
    assert await client.datasets.sample("theirs", limit=2) == [{"id": 1}, {"id": 2}]
    shown = await client.datasets.show("theirs")
    assert (shown.rows, shown.files, str(shown.producer)) == (3, 2, "others, whose files are registered")
    assert str(await client.datasets.register("theirs", f"{place}/")) == "theirs@1.1", "the same registration"
    assert str(await client.datasets.register("theirs", str(place), replace=True)) == "theirs@1.2"
    assert (await client.datasets.show("theirs")).rows == 4
    assert await asked(client, 'select sum(id) as ids from "theirs@1.1"') == [{"ids": 6}]
    assert [write.mode for write in await client.datasets.writes("theirs")] == ["register", "register"]
    [event] = await client.database.read(
        lambda conn: conn.fetch(
            "select payload from weft.event where name = 'dataset.written' order by id desc limit 1"
        )
    )
    assert '"mode": "register"' in event["payload"]


async def test_what_a_registration_changed_is_kept_with_what_it_took_away(
    client: weft.Client, place: Path, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    for day in ("a", "b"):
        put(place / f"day={day}/1.parquet", id=[1])
    await client.datasets.register("theirs", str(place), partition_by="hive")
    (place / "day=a/1.parquet").unlink()
    put(place / "day=c/1.parquet", id=[2])
    await client.datasets.register("theirs", str(place), partition_by="hive", replace=True)
    kept = await conn.fetch("select keys from weft.dataset_write order by number")
    assert [row["keys"] for row in kept] == [["a", "b"], ["a", "b", "c"]]
    assert [part.key for part in await client.datasets.partitions("theirs")] == ["b", "c"]


@pytest.mark.parametrize("where", ["folder", "bucket"])
@pytest.mark.parametrize("worker", ["direct", "far"])
async def test_parts_of_paths_are_columns_and_partitions(
    make_client: MakeClient, place: Path, where: str, worker: str, s3_bucket: S3Bucket
) -> None:
    address = str(place) if where == "folder" else f"{s3_bucket.url}/theirs"
    client = await make_client(data_outside=f"{place}, {s3_bucket.url}")
    for day, hour, ids in (("2026-11-14", 1, [1, 2]), ("2026-11-14", 2, [3]), ("2026-11-15 x", 1, [4])):
        name = f"day={day.replace(' ', '%20')}/hour={hour}/part.parquet"
        put(place / name, id=ids)
        if where == "bucket":
            s3_bucket.write(f"theirs/{name}", (place / name).read_bytes())
    await client.datasets.register("theirs", address, partition_by="hive")
    assert [part.key for part in await client.datasets.partitions("theirs")] == [
        "day=2026-11-14/hour=1", "day=2026-11-14/hour=2", "day=2026-11-15 x/hour=1"
    ]  # fmt: skip
    assert [(each.name, each.type) for each in (await client.datasets.show("theirs")).columns] == [
        ("id", "int64"), ("day", "string"), ("hour", "int64")
    ]  # fmt: skip
    expected = [
        {"id": 1, "day": "2026-11-14", "hour": 1}, {"id": 2, "day": "2026-11-14", "hour": 1},
        {"id": 3, "day": "2026-11-14", "hour": 2}, {"id": 4, "day": "2026-11-15 x", "hour": 1},
    ]  # fmt: skip
    if worker == "direct":
        found = await read(client, "theirs")
    else:
        async with far_client(client.settings) as far:
            found = await read(far, "theirs")
    assert sorted(found, key=lambda row: row["id"]) == expected
    assert await asked(client, "select id, day, hour from theirs order by id") == expected
    assert await read(client, "theirs", "day=2026-11-14/hour=2") == [expected[2]]


async def test_an_object_whose_name_has_an_empty_part_is_refused_by_name_and_keeps_no_others_out(
    make_client: MakeClient, place: Path, s3_bucket: S3Bucket
) -> None:
    client, file = await make_client(data_outside=s3_bucket.url), put(place / "1.parquet", id=[1])
    for name in ("a/1.parquet", "a//2.parquet"):
        s3_bucket.write(f"theirs/{name}", file.read_bytes())
    with pytest.raises(weft.InvalidInput, match=r"'a//2\.parquet' has a part in its name that is empty"):
        await client.datasets.register("theirs", f"{s3_bucket.url}/theirs", glob="*/*/*.parquet")
    await client.datasets.register("theirs", f"{s3_bucket.url}/theirs")
    assert await asked(client, "select id from theirs") == [{"id": 1}]


async def test_columns_by_which_readers_would_stumble_need_to_be_meant(client: weft.Client, place: Path) -> None:
    put(place / "one/1.parquet", id=[1], name=["a"])
    put(place / "two/1.parquet", id=[1.5])
    await client.datasets.register("theirs", str(place / "one"))
    with pytest.raises(weft.InvalidInput) as refused:
        await client.datasets.register("theirs", str(place / "two"))
    assert "id is double and was int64; name (string) is missing" in str(refused.value)
    assert (await client.datasets.show("theirs")).version == 1
    await client.datasets.register("theirs", str(place / "two"), breaking=True)
    assert await read(client, "theirs") == [{"id": 1.5}]
    assert await read(client, "theirs@1") == [{"id": 1, "name": "a"}]
    assert str(await client.datasets.register("theirs", str(place / "one"))) == "theirs@1.1", "it is there already"
    assert await read(client, "theirs") == [{"id": 1.5}], "and who wants it goes back to it"


async def test_ranges_and_globs_are_versions_of_their_own(client: weft.Client, place: Path) -> None:
    put(place / "1.parquet", id=[1])
    put(place / "more/2.parquet", id=[2])
    seen = []
    for more in (
        {},
        {"range_start": 0, "range_end": 9},
        {"range_start": 10, "range_end": 19},
        {"glob": "*.parquet"},
        {},
    ):
        seen.append(str(await client.datasets.register("theirs", str(place), **more)))  # type: ignore[arg-type]
    assert seen == ["theirs@1.1", "theirs@2.1", "theirs@3.1", "theirs@4.1", "theirs@1.1"]
    versions = await client.datasets.versions("theirs")
    assert [(each.range_start, each.range_end, each.rows) for each in versions] == [
        (None, None, 1), (10, 19, 2), (0, 9, 2), (None, None, 2)
    ]  # fmt: skip
    with pytest.raises(weft.InvalidInput, match="range"):
        await client.datasets.register("theirs", str(place), range_start=9, range_end=0)


@pytest.mark.parametrize(
    "address",
    ["/etc", "{place}/../secret", "{place}/link", "relative", "s3://bucket/x", "{place}-more", "file:///etc", "s3:x"],
)
async def test_what_is_elsewhere_is_not_read(client: weft.Client, place: Path, address: str) -> None:
    for name in ("secret", "theirs-more"):
        put(place.parent / name / "1.parquet", id=[1])
    (place / "link").symlink_to(place.parent / "secret")
    with pytest.raises(weft.InvalidInput, match="address"):
        await client.datasets.register("theirs", address.format(place=place))
    assert await client.datasets.list() == []


@pytest.mark.parametrize("glob", ["../secret/*.parquet", "/etc/*", "a/../../secret/*.parquet"])
async def test_a_glob_leads_nowhere_else(client: weft.Client, place: Path, glob: str) -> None:
    put(place / "1.parquet", id=[1])
    with pytest.raises(weft.InvalidInput, match="glob"):
        await client.datasets.register("theirs", str(place), glob=glob)


async def test_a_link_out_of_the_folder_is_refused_when_it_is_registered_and_when_it_is_read(
    client: weft.Client, place: Path
) -> None:
    secret = put(place.parent / "secret.parquet", id=[99])
    put(place / "good/1.parquet", id=[1])
    (place / "bad").mkdir()
    (place / "bad/1.parquet").symlink_to(secret)
    with pytest.raises(weft.InvalidInput, match=r"1.parquet is a link"):
        await client.datasets.register("bad", str(place / "bad"))
    await client.datasets.register("good", str(place / "good"))
    os.replace(place / "bad/1.parquet", place / "good/1.parquet")
    with pytest.raises(weft.DataUnavailable, match="WEFT_DATA_OUTSIDE"):
        await asked(client, "select * from good")
    async with far_client(client.settings) as far:
        for one, verb in itertools.product((client, far), ("read", "scan", "files")):
            with pytest.raises(weft.TaskFailed, match="WEFT_DATA_OUTSIDE"):
                await tried(one, "good", verb)


async def tried(client: weft.Client, name: str, verb: str, between: Callable[[], object] = lambda: None) -> int:
    """Return how many rows a task finds that asks for a dataset, and reads what it was given after something else."""
    registry = Registry()

    @registry.task(name="try", retry=0)
    async def try_it(ctx: weft.Context) -> int:
        found = await getattr(ctx.dataset(name), verb)()
        between()
        return found.num_rows if verb == "read" else len(found.names) if verb == "files" else found.count_rows()  # type: ignore[no-any-return]

    async with weft.Worker(client=client, registry=registry):
        return await client.wait((await client.enqueue(try_it)).id, timeout=60)  # type: ignore[no-any-return]


async def test_a_link_that_is_made_between_a_look_and_the_reading_is_refused_too(
    client: weft.Client, place: Path
) -> None:
    secret = put(place.parent / "secret.parquet", id=[99])
    file = put(place / "1.parquet", id=[1])

    def swap() -> None:
        file.unlink()
        file.symlink_to(secret)

    await client.datasets.register("theirs", str(place))
    with pytest.raises(weft.TaskFailed, match="WEFT_DATA_OUTSIDE"):
        await tried(client, "theirs", "scan", swap)
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(weft.TaskFailed, match="WEFT_DATA_OUTSIDE"):
        await tried(client, "theirs", "read")


async def test_each_process_that_reads_goes_by_its_own_setting(
    client: weft.Client, make_client: MakeClient, place: Path
) -> None:
    put(place / "1.parquet", id=[1])
    await client.datasets.register("theirs", str(place))
    assert await tried(client, "theirs", "read") == 1
    other = await make_client()
    with pytest.raises(weft.TaskFailed, match="WEFT_DATA_OUTSIDE of this process"):
        await tried(other, "theirs", "read")


CODE = "def transform(table):\n    return table.select(['id', 'day'])\n"
OPERATORS: dict[str, tuple[dict[str, Any], list[dict[str, Any]]]] = {
    "sql_transform": (
        {"sql": "select id, day from changes", "partition_by": "day"}, [{"id": 1, "day": 14}, {"id": 2, "day": 15}]
    ),
    "udf": ({"code": CODE, "partition_by": "day"}, [{"id": 1, "day": 14}, {"id": 2, "day": 15}]),
    "range_aggregator": (
        {"column": "day", "size": 1, "lateness": 0, "aggregates": {"n": "count(*)"}},
        [{"range_start": 14, "range_end": 15, "n": 1}],
    ),
}  # fmt: skip


@pytest.mark.parametrize("operator", OPERATORS)
async def test_operators_read_what_is_registered_with_the_columns_of_its_paths_and_follow_no_link_out_of_it(
    client: weft.Client, place: Path, operator: str, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    registry = Registry()
    scene = OperatorScene(client, conn, registry)
    config, expected = OPERATORS[operator]
    for day in (14, 15):
        put(place / f"day={day}/1.parquet", id=[day - 13])
    await client.datasets.register("theirs", str(place), partition_by="hive")
    job = await scene.job("made", operator, config, ["theirs"], "made", max_attempts=1)
    async with weft.Worker(client=client, registry=registry), weft.Orchestrator(client=client):
        await scene.settled()
        assert await conn.fetchval("select last_error from weft.live_job where id = $1", job) is None
        assert sorted(await scene.rows("made"), key=lambda row: list(row.values())) == expected
        secret = put(place.parent / "secret.parquet", id=[99])
        put(place / "day=16/1.parquet", id=[3])
        await client.datasets.register("theirs", str(place), partition_by="hive", replace=True)
        (place / "day=16/1.parquet").unlink()
        (place / "day=16/1.parquet").symlink_to(secret)
        assert "WEFT_DATA_OUTSIDE" in await scene.error(job)
        assert sorted(await scene.rows("made"), key=lambda row: list(row.values())) == expected


async def test_nothing_is_allowed_unless_said(make_client: MakeClient, place: Path) -> None:
    client = await make_client()
    put(place / "1.parquet", id=[1])
    with pytest.raises(weft.InvalidInput, match="nowhere"):
        await client.datasets.register("theirs", str(place))


async def test_what_is_not_whole_is_refused_by_name_and_nothing_is_registered(client: weft.Client, place: Path) -> None:
    with pytest.raises(weft.InvalidInput, match="no files that match"):
        await client.datasets.register("theirs", str(place))
    whole = put(place / "1.parquet", id=list(range(1000)))
    (place / "2.parquet").write_bytes(whole.read_bytes()[:-100])
    with pytest.raises(weft.InvalidInput, match=r"2\.parquet is no Parquet file that is whole"):
        await client.datasets.register("theirs", str(place))
    put(place / "2.parquet", id=["text"])
    with pytest.raises(weft.InvalidInput, match=r"2\.parquet has other columns"):
        await client.datasets.register("theirs", str(place))
    assert await client.datasets.list() == []


async def test_a_dataset_is_written_by_tasks_or_by_others_and_not_by_both(client: weft.Client, place: Path) -> None:
    registry = Registry()

    @registry.task(name="write", retry=0)
    async def write(name: str, ctx: weft.Context) -> None:
        await ctx.dataset(name).write([{"id": 1}])

    put(place / "1.parquet", id=[1])
    await client.datasets.register("theirs", str(place))
    async with weft.Worker(client=client, registry=registry):
        with pytest.raises(weft.TaskFailed, match="is written by others, whose files are registered"):
            await client.wait((await client.enqueue(write, {"name": "theirs"})).id, timeout=60)
        await client.wait((await client.enqueue(write, {"name": "ours"})).id, timeout=60)
    with pytest.raises(weft.InvalidInput, match="is written by the handler write"):
        await client.datasets.register("ours", str(place))
    await client.datasets.create("rows", storage="postgres")
    with pytest.raises(weft.InvalidInput, match="kept in the database"):
        await client.datasets.register("rows", str(place))


async def test_what_others_wrote_is_never_removed(
    client: weft.Client, place: Path, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    files = [put(place / f"{name}/1.parquet", id=[1]) for name in ("one", "two")]
    await client.datasets.register("theirs", str(place / "one"))
    put(place / "one/2.parquet", id=[2])
    await client.datasets.register("theirs", str(place / "one"), replace=True)
    await client.datasets.register("theirs", str(place / "two"))
    collector = DatasetCollector(client.database, client.settings, timedelta(0))
    while await collector.run_once():
        pass
    assert [each.number for each in await client.datasets.versions("theirs")] == [2]
    assert all(path.exists() for path in files)
    # What was collected may be registered again.
    assert str(await client.datasets.register("theirs", str(place / "one"))) == "theirs@3.1"
