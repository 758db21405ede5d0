"""Sources of files: each file that has arrived is one unit, once it has settled, and another when it is another."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import asyncpg
import pytest

import weft
from buckets import S3Bucket, S3Server
from far import far_client
from live_scene import make_dag, make_job, until
from weft.worker.live import LiveContext, operator
from weft.worker.operators import bucket_listing, scan_files
from weft.worker.registry import Registry

Conn: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


class Scene:
    """A folder, a job that notes the files that it is given, and how often the folder was looked through."""

    def __init__(self, conn: Conn, folder: Path, registry: Registry) -> None:
        self.conn, self.folder, self.registry = conn, folder, registry
        self.seen: list[str] = []
        self.contents: list[tuple[str, int]] = []
        folder.mkdir(exist_ok=True)

        @operator("note", registry=registry)
        async def note(live: LiveContext) -> None:
            assert live.unit.kind == "file"
            self.seen.append(live.unit.said["path"].rpartition("/")[2])
            self.contents.append((live.unit.said["path"], live.unit.said["size"]))

    async def listen(self, path: str | None = None, **more: Any) -> int:
        said = {"kind": "files", "path": path or f"{self.folder}/*.csv", "poll": 0.02, "settle": 0.02, **more}
        columns = {key: said.pop(key) for key in ("max_concurrency", "max_backlog", "max_attempts") if key in said}
        dag = await make_dag(self.conn)
        return await make_job(
            self.conn, dag, "files", "note", source={"kind": "files"}, document={"source": said}, **columns
        )

    def put(self, name: str, text: str = "x") -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = path.parent / f"{path.name}.tmp"
        aside.write_text(text)
        aside.rename(path)
        return path

    async def passes(self, count: int = 2) -> None:
        """Return when the folder was looked through so many times more."""
        before = await self.conn.fetchval("select completed from weft.live_job")
        await until(lambda: self.conn.fetchval("select completed >= $1 from weft.live_job", before + count))

    async def noted(self) -> dict[str, bool]:
        rows = await self.conn.fetch("select path, is_emitted from weft.live_file order by path")
        return {row["path"]: row["is_emitted"] for row in rows}


@pytest.fixture
def scene(conn: Conn, tmp_path: Path, registry: Registry) -> Scene:
    return Scene(conn, tmp_path / "in", registry)


@asynccontextmanager
async def at_work(client: weft.Client, scene: Scene, *roots: str) -> AsyncIterator[None]:
    settings = replace(client.settings, files_roots=roots or (str(scene.folder.parent),))
    async with (
        weft.Client(settings=settings) as other,
        weft.Worker(client=other, registry=scene.registry),
        weft.Orchestrator(client=client),
    ):
        yield


async def test_each_file_is_one_unit_and_another_when_it_changes(client: weft.Client, scene: Scene) -> None:
    for name in ("a.csv", "b.csv", "c.txt", ".hidden.csv", "d.csv.part"):
        scene.put(name)
    await scene.listen()
    async with at_work(client, scene):
        await until(lambda: len(scene.seen) == 2)
        scene.put("e.csv")
        await until(lambda: len(scene.seen) == 3)
        scene.put("a.csv", "another")
        await until(lambda: len(scene.seen) == 4)
        await scene.passes()
    assert sorted(scene.seen) == ["a.csv", "a.csv", "b.csv", "e.csv"]
    assert [size for path, size in scene.contents if path.endswith("a.csv")] == [1, 7]
    assert await scene.noted() == {"a.csv": True, "b.csv": True, "e.csv": True}


async def test_a_file_that_is_still_written_is_waited_for(client: weft.Client, scene: Scene) -> None:
    await scene.listen(settle=3600, poll=0.02)
    path = scene.put("a.csv")
    async with at_work(client, scene):
        await until(lambda: scene.conn.fetchval("select exists (select 1 from weft.live_file)"))
        await scene.passes()
        assert scene.seen == []
        caught_up = "select caught_up_at is not null from weft.live_source"
        assert not await scene.conn.fetchval(caught_up)
        # It has been so for an hour, and then it changes: an hour from then on.
        await scene.conn.execute("update weft.live_file set seen_at = seen_at - interval '2 hours'")
        path.write_text("longer")
        await until(lambda: scene.conn.fetchval("select seen_at > weft.now() - interval '1 hour' from weft.live_file"))
        await scene.passes()
        assert scene.seen == []
        await scene.conn.execute("update weft.live_file set seen_at = seen_at - interval '2 hours'")
        await until(lambda: scene.seen == ["a.csv"])
        await until(lambda: scene.conn.fetchval(caught_up))
    assert scene.contents == [(str(path), 6)]


async def test_files_that_are_gone_are_forgotten_and_come_anew(client: weft.Client, scene: Scene) -> None:
    paths = [scene.put(f"{name}.csv") for name in "abc"]
    await scene.listen(settle=0)
    async with at_work(client, scene):
        await until(lambda: len(scene.seen) == 3)
        kept = paths[1].rename(scene.folder.parent / "away")
        await until(lambda: scene.conn.fetchval("select count(*) = 2 from weft.live_file"))
        kept.rename(paths[1])
        await until(lambda: len(scene.seen) == 4)
    assert sorted(scene.seen) == ["a.csv", "b.csv", "b.csv", "c.csv"]


@pytest.mark.parametrize("order", ["name", "mtime"])
async def test_files_are_taken_in_order_when_that_is_said(order: str, client: weft.Client, scene: Scene) -> None:
    for number, name in enumerate(["c.csv", "a.csv", "b.csv"]):
        os.utime(scene.put(name), (1000 + number, 1000 + number))
    await scene.listen(order=order, max_concurrency=5, settle=0)
    async with at_work(client, scene):
        await until(lambda: len(scene.seen) == 3)
    assert scene.seen == (["a.csv", "b.csv", "c.csv"] if order == "name" else ["c.csv", "a.csv", "b.csv"])


async def test_folders_within_are_looked_through_where_the_pattern_says_so(client: weft.Client, scene: Scene) -> None:
    for name in ("top.csv", "2026/a.csv", "2026/11/b.csv", "2026/11/b.txt"):
        scene.put(name)
    await scene.listen(f"{scene.folder}/**/*.csv", settle=0)
    async with at_work(client, scene):
        await until(lambda: len(scene.seen) == 3)
        await scene.passes()
    assert sorted(await scene.noted()) == ["2026/11/b.csv", "2026/a.csv", "top.csv"]


async def test_more_files_than_a_slice_takes_are_all_found_once(
    client: weft.Client, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan_files, "_LOOKED", 70)
    monkeypatch.setattr(scan_files, "_COMPARED", 16)
    monkeypatch.setattr(scan_files, "_CHANGES", 40)
    names = [f"{number:03}.csv" for number in range(300)]
    for name in names:
        (scene.folder / name).write_text(name)
    await scene.listen(max_concurrency=50)
    async with at_work(client, scene):
        await until(lambda: len(scene.seen) == 300, 120)
        for name in names[50:250]:
            (scene.folder / name).unlink()
        await until(lambda: scene.conn.fetchval("select count(*) = 100 from weft.live_file"), 60)
        await scene.passes(6)
    assert sorted(scene.seen) == names
    assert list(await scene.noted()) == names[:50] + names[250:]


async def test_no_more_is_looked_for_while_there_is_no_room(client: weft.Client, scene: Scene) -> None:
    goes_on = asyncio.Event()
    done: list[str] = []

    @operator("slow", registry=scene.registry)
    async def slow(live: LiveContext) -> None:
        await goes_on.wait()
        done.append(live.unit.said["path"])

    for name in "abcdef":
        scene.put(f"{name}.csv")
    await scene.listen(settle=0, max_backlog=4, max_concurrency=2)
    await scene.conn.execute("update weft.live_job set handler = 'slow'")
    async with at_work(client, scene):
        await until(lambda: scene.conn.fetchval("select count(*) = 6 from weft.live_unit where kind = 'file'"))
        for name in "xyz":
            scene.put(f"{name}.csv")
        await until(lambda: scene.conn.fetchval("select count(*) = 0 from weft.live_unit where kind = 'slice'"))
        assert await scene.conn.fetchval("select count(*) from weft.live_unit") == 6
        goes_on.set()
        await until(lambda: len(done) == 9)


async def _refusal(client: weft.Client, scene: Scene, *roots: str) -> str:
    async with at_work(client, scene, *roots):
        await until(lambda: scene.conn.fetchval("select last_error is not null from weft.live_job"))
    error: str = await scene.conn.fetchval("select last_error from weft.live_job")
    return error


@pytest.mark.parametrize("roots", [("/nowhere",), ("s3://bucket",), ()])
async def test_a_folder_outside_of_the_roots_is_not_read(
    roots: tuple[str, ...], client: weft.Client, scene: Scene
) -> None:
    scene.put("a.csv")
    await scene.listen(max_attempts=1)
    settings = replace(client.settings, files_roots=roots)
    async with (
        weft.Client(settings=settings) as other,
        weft.Worker(client=other, registry=scene.registry),
        weft.Orchestrator(client=client),
    ):
        await until(lambda: scene.conn.fetchval("select last_error is not null from weft.live_job"))
    assert "WEFT_FILES_ROOTS" in await scene.conn.fetchval("select last_error from weft.live_job")
    assert scene.seen == []


async def test_no_way_leads_out_of_the_roots(client: weft.Client, scene: Scene, tmp_path: Path) -> None:
    """By `..`, a link in the place of the folder, one of a folder within it, or one of a file."""
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "s.csv").write_text("secret")
    allowed = scene.folder
    for path in (f"{allowed}/../secret/*.csv", "in/*.csv"):
        job = await scene.listen(path, max_attempts=1)
        assert "`..`" in await _refusal(client, scene, str(allowed))
        await scene.conn.execute(
            "delete from weft.live_dag where id = (select dag_id from weft.live_job where id = $1)", job
        )
    (allowed / "link").symlink_to(secret)
    job = await scene.listen(f"{allowed}/link/*.csv", max_attempts=1)
    assert "WEFT_FILES_ROOTS" in await _refusal(client, scene, str(allowed))
    await scene.conn.execute(
        "delete from weft.live_dag where id = (select dag_id from weft.live_job where id = $1)", job
    )
    (allowed / "l.csv").symlink_to(secret / "s.csv")
    os.mkfifo(allowed / "pipe.csv")
    scene.put("good.csv")
    await scene.listen(f"{allowed}/**/*.csv", settle=0)
    async with at_work(client, scene, str(allowed)):
        await until(lambda: scene.seen == ["good.csv"])
        await scene.passes()
    assert await scene.noted() == {"good.csv": True}


async def test_a_name_that_is_no_text_keeps_no_other(client: weft.Client, scene: Scene) -> None:
    Path(os.fsdecode(os.fsencode(str(scene.folder)) + b"/\xff.csv")).write_text("x")
    scene.put("a\nb.csv")
    scene.put("ä%2F.csv")
    scene.put("x" * 200 + ".csv")
    await scene.listen(settle=0)
    async with at_work(client, scene):
        await until(lambda: len(scene.seen) == 3)
    assert sorted(scene.seen) == ["a\nb.csv", "x" * 200 + ".csv", "ä%2F.csv"]


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Bucket]:
    server = S3Server()
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    made = server.make_bucket()
    yield made
    made.remove()
    server.close()


async def test_objects_of_a_bucket_are_units_as_soon_as_they_are_there(
    client: weft.Client, scene: Scene, bucket: S3Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan_files, "_LOOKED", 5)
    monkeypatch.setattr(scan_files, "_COMPARED", 2)
    for number in range(12):
        bucket.write(f"in/{number:02}.csv", b"1")
    bucket.write("in/deeper/13.csv", b"1")
    bucket.write("in/x.csv.tmp", b"1")
    bucket.write("inn/14.csv", b"1")
    await scene.listen(f"{bucket.url}/in/*.csv", settle=3600)
    async with at_work(client, scene, bucket.url):
        await until(lambda: len(scene.seen) == 12)
        bucket.write("in/03.csv", b"12")
        await until(lambda: len(scene.seen) == 13)
        bucket.delete("in/04.csv")
        await until(lambda: scene.conn.fetchval("select count(*) = 11 from weft.live_file"))
    assert (f"{bucket.url}/in/03.csv", 2) in scene.contents
    assert sorted(scene.seen) == sorted([*(f"{number:02}.csv" for number in range(12)), "03.csv"])


async def test_what_stands_for_a_folder_of_a_bucket_is_no_file(
    client: weft.Client, scene: Scene, bucket: S3Bucket
) -> None:
    for name in ("in/", "in/empty/", "in/full/", "in/full/a.csv", "in/really-empty"):
        bucket.write(name, b"1" if name.endswith(".csv") else b"")
    await scene.listen(f"{bucket.url}/in/**/*")
    async with at_work(client, scene, bucket.url):
        await until(lambda: len(scene.seen) == 2)
        await scene.passes()
    assert sorted(path for path, _ in scene.contents) == [
        f"{bucket.url}/in/full/a.csv",
        f"{bucket.url}/in/really-empty",
    ]


ODD = ("in/a//b.csv", "in//c.csv", "in/a///", "in/a//", "in/tab\x01.csv", "in/a//empty.csv", "in/d//folder.csv/")


@pytest.mark.parametrize("looked", [200_000, 3])
async def test_an_object_that_no_store_can_be_asked_for_keeps_no_other(
    looked: int, client: weft.Client, scene: Scene, bucket: S3Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan_files, "_LOOKED", looked)
    monkeypatch.setattr(bucket_listing, "_PAGE", 2)

    @operator("read", registry=scene.registry)
    async def read(live: LiveContext) -> None:
        scene.seen.append(live.unit.said["path"].removeprefix(f"{bucket.url}/"))
        if "//" in scene.seen[-1]:
            raise weft.NonRetryable(f"cannot read {scene.seen[-1]}")

    sound = ["in/a.csv", "in/a/x.csv", "in/ä{1}%.csv", "in/z/z.csv", "in/zz.csv"]
    for name in sound:
        bucket.write(name, b"1")
    await scene.listen(f"{bucket.url}/in/**/*.csv")
    await scene.conn.execute("update weft.live_job set handler = 'read'")
    async with at_work(client, scene, bucket.url):
        await until(lambda: len(scene.seen) == 5)
        for name in ODD:
            bucket.write(name, b"" if name.endswith("/") or "empty" in name else b"1")
        bucket.write("in/zzz.csv", b"1")
        await until(lambda: len(scene.seen) == 10)
        await scene.passes(20)
        # What lies beside them is asked for once, not in each look.
        asked = [place for place, _ in bucket.server.requests if place.startswith("HEAD")]
        await scene.passes(20)
        assert [place for place, _ in bucket.server.requests if place.startswith("HEAD")] == asked
        bucket.write("in/z/z.csv", b"12")
        await until(lambda: len(scene.seen) == 11)
        bucket.delete("in//c.csv")
        await until(lambda: scene.conn.fetchval("select count(*) = 9 from weft.live_file"))
    odd = ["in/a//b.csv", "in/a//empty.csv", "in//c.csv", "in/tab\x01.csv"]
    assert sorted(scene.seen) == sorted([*sound, "in/zzz.csv", "in/z/z.csv", *odd])
    held = await scene.conn.fetch("select said ->> 'path' as path from weft.live_unit where state = 'held'")
    assert {row["path"] for row in held} == {f"{bucket.url}/{name}" for name in odd[:3]}


async def test_an_object_whose_name_leads_elsewhere_is_passed_over_and_told_of_once(
    client: weft.Client, scene: Scene, bucket: S3Bucket, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("in/../secret.csv", "in/a/./b.csv", "in/a.csv"):
        bucket.write(name, b"1")
    await scene.listen(f"{bucket.url}/in/**/*.csv")
    async with at_work(client, scene, bucket.url):
        await until(lambda: scene.seen == ["a.csv"])
        await scene.passes(5)
    assert scene.seen == ["a.csv"]
    told = [record.getMessage() for record in caplog.records if "passed over" in record.getMessage()]
    names = ("../secret.csv", "a/./b.csv")
    assert told == [f"passed over: '{bucket.url}/in/{name}' has a part of dots" for name in names]


@pytest.mark.parametrize("folder", ["in//x", "in/../x"])
async def test_a_prefix_by_which_no_store_can_be_asked_says_so(
    folder: str, client: weft.Client, scene: Scene, bucket: S3Bucket
) -> None:
    await scene.listen(f"{bucket.url}/{folder}/*.csv", max_attempts=1)
    assert "must have no empty part" in await _refusal(client, scene, bucket.url)


async def test_a_bucket_outside_of_the_roots_is_not_asked(client: weft.Client, scene: Scene, bucket: S3Bucket) -> None:
    bucket.write("inner/a.csv", b"1")
    await scene.listen(f"{bucket.url}/inner/*.csv", max_attempts=1)
    assert "WEFT_FILES_ROOTS" in await _refusal(client, scene, f"{bucket.url}/in", "/")
    assert bucket.server.requests == []


async def test_a_bucket_that_is_not_there_says_so(client: weft.Client, scene: Scene, bucket: S3Bucket) -> None:
    await scene.listen("s3://no-such-bucket/in/*.csv", max_attempts=1)
    error = await _refusal(client, scene, "s3://no-such-bucket")
    assert "cannot be listed" in error


async def test_sources_of_a_bucket_that_does_not_answer_hold_up_no_other(
    client: weft.Client, scene: Scene, bucket: S3Bucket
) -> None:
    """They are more than the threads that all of a process share."""
    count = min(32, (os.cpu_count() or 1) + 4) + 1
    told = asyncio.Event()

    @operator("tell", registry=scene.registry)
    async def tell(live: LiveContext) -> None:
        told.set()

    dag = await make_dag(scene.conn)
    await make_job(scene.conn, dag, "told", "tell", source={"kind": "event", "event": "told"})
    settings = replace(client.settings, files_roots=(bucket.url,))
    with contextlib.ExitStack() as doors:
        held = [doors.enter_context(bucket.server.holding("GET", f"in{number}%2F")) for number in range(count)]
        for number in range(count):
            said = {"source": {"kind": "files", "path": f"{bucket.url}/in{number}/*.csv", "poll": 60}}
            await make_job(scene.conn, dag, f"files{number}", "note", source={"kind": "files"}, document=said)
        async with (
            weft.Client(settings=settings) as other,
            weft.Worker(client=other, registry=scene.registry, concurrency=count + 1),
            weft.Orchestrator(client=client),
        ):
            await until(lambda: sum(each.has_come for each in held) >= count - 1)
            await client.jobs.send_event("told", {})
            async with asyncio.timeout(20):
                await told.wait()
            # Only now may they go on, so that whoever stops the worker need not wait for them.
            doors.close()


async def test_a_worker_without_a_database_looks_for_files_in_its_own_roots(
    settings: weft.Settings, scene: Scene
) -> None:
    for name in ("a.csv", "b.csv"):
        scene.put(name)
    await scene.listen()
    roots = (str(scene.folder),)
    async with (
        far_client(replace(settings, files_roots=roots)) as far,
        weft.Worker(client=far, registry=scene.registry),
        weft.Orchestrator(client=far),
    ):
        await until(lambda: len(scene.seen) == 2)
        scene.put("a.csv", "another")
        (scene.folder / "b.csv").unlink()
        await until(lambda: len(scene.seen) == 3)
        await until(lambda: scene.conn.fetchval("select count(*) = 1 from weft.live_file"))
    assert sorted(scene.seen) == ["a.csv", "a.csv", "b.csv"]
