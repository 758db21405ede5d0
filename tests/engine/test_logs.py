"""What a task prints and logs goes to its own file."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import asyncpg
import process_handlers
import pytest
from engine_scene import Clock, MakeClient, until

import weft
from weft.queue.services import Pruner
from weft.worker.logs import part_of
from weft.worker.registry import Registry


def _log(home: Path, id: int) -> str:
    return (home / "logs" / f"{id}.log").read_text(encoding="utf-8")


async def test_concurrent_async_tasks_each_write_their_own_file(
    client: weft.Client, registry: Registry, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    turn = asyncio.Barrier(3)

    @registry.task(name="say")
    async def say(name: str, ctx: weft.Context) -> None:
        for n in range(3):
            await turn.wait()
            print(f"{name} {n}")
            await turn.wait()
            print(f"{name} err {n}", file=sys.stderr)
            await turn.wait()
            logging.getLogger("app").warning("%s log %s", name, n)
            ctx.logger.info("%s info %s", name, n)

    handles = {name: await client.enqueue("say", {"name": name}) for name in ("ann", "bob", "cid")}
    print("before")
    await weft.Worker(client=client, registry=registry).run_until_idle()
    print("after")
    for name, handle in handles.items():
        lines = _log(home, handle.id).splitlines()
        assert len(lines) == 12
        assert all(name in line for line in lines)
        assert [line for line in lines if line.startswith(name)] == [
            text for n in range(3) for text in (f"{name} {n}", f"{name} err {n}")
        ]
        assert [line.endswith(f"WARNING app: {name} log 0") for line in lines].count(True) == 1
        assert [line.endswith(f"INFO weft.task.say: {name} info 2") for line in lines].count(True) == 1
        assert (await client.read_log(str(handle.id)) or b"").decode() == _log(home, handle.id)  # type: ignore[arg-type]
    out = capsys.readouterr().out
    assert "before" in out
    assert "after" in out
    assert "ann" not in out


async def test_concurrent_threads_each_write_their_own_file(
    client: weft.Client, registry: Registry, home: Path
) -> None:
    turn = threading.Barrier(3)

    @registry.task(name="say")
    def say(name: str) -> None:
        for n in range(3):
            turn.wait(20)
            print(f"{name} {n}")
            turn.wait(20)
            logging.getLogger("app").error("%s log %s", name, n)

    handles = {name: await client.enqueue("say", {"name": name}) for name in ("ann", "bob", "cid")}
    await weft.Worker(client=client, registry=registry).run_until_idle()
    for name, handle in handles.items():
        lines = _log(home, handle.id).splitlines()
        assert [line[-5:] for line in lines] == [text for n in range(3) for text in (f"{name} {n}", f"log {n}")]


def _speak(text: str) -> None:
    print(text)
    logging.getLogger("app").warning("%s logged", text)


async def test_what_threads_of_a_handler_print_and_log_goes_to_the_file_of_its_task(
    client: weft.Client, registry: Registry, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Threads of its own, of threads, and of a pool that all tasks share, from async and sync handlers."""
    start, submit = threading.Thread.start, ThreadPoolExecutor.submit
    turn = threading.Barrier(2)

    def speak_everywhere(name: str, pool: ThreadPoolExecutor) -> None:
        def nested() -> None:
            inner = threading.Timer(0, _speak, [f"{name} inner"])
            inner.start()
            inner.join()
            _speak(f"{name} outer")

        outer = threading.Thread(target=nested)
        outer.start()
        outer.join()
        for n in range(3):
            turn.wait(20)
            pool.submit(_speak, f"{name} pool {n}").result()
        with ThreadPoolExecutor() as own:
            list(own.map(_speak, [f"{name} map"]))

    with ThreadPoolExecutor(1) as shared:

        @registry.task(name="sync")
        def sync(name: str) -> None:
            speak_everywhere(name, shared)

        @registry.task(name="async")
        async def awaited(name: str) -> None:
            await asyncio.get_running_loop().run_in_executor(None, speak_everywhere, name, shared)

        handles = {
            name: await client.enqueue(kind, {"name": name}) for name, kind in [("ann", "sync"), ("bob", "async")]
        }
        async with weft.Worker(client=client, registry=registry):
            for handle in handles.values():
                await client.wait(handle.id, timeout=60)
            shared.submit(_speak, "nobody").result()
    for name, handle in handles.items():
        lines = _log(home, handle.id).splitlines()
        said = [f"{name} {what}" for what in ("inner", "outer", "pool 0", "pool 1", "pool 2", "map")]
        assert [line for line in lines if line.startswith(name)] == said
        assert [line.rpartition("app: ")[2] for line in lines if "WARNING" in line] == [f"{s} logged" for s in said]
        assert len(lines) == 12
    out = capsys.readouterr().out
    assert out.splitlines() == ["nobody"]
    assert (threading.Thread.start, ThreadPoolExecutor.submit) == (start, submit)


async def test_what_a_thread_of_a_handler_dies_of_goes_to_the_file_of_its_task(
    client: weft.Client, registry: Registry, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threading, "excepthook", threading.__excepthook__)

    @registry.task(name="die")
    def die() -> None:
        thread = threading.Thread(target=lambda: 1 // 0)
        thread.start()
        thread.join()

    handle = await client.enqueue("die")
    await weft.Worker(client=client, registry=registry).run_until_idle()
    assert "ZeroDivisionError" in _log(home, handle.id)


async def test_what_a_thread_prints_when_its_task_is_over_goes_to_the_worker(
    client: weft.Client, registry: Registry, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a thread of a library does that the first task to use it starts for all."""
    go = threading.Event()
    threads: list[threading.Thread] = []

    def speak() -> None:
        print("during")
        threads_ready.set()
        go.wait(20)
        print("afterwards")

    threads_ready = threading.Event()

    @registry.task(name="leave")
    def leave() -> None:
        threads.append(threading.Thread(target=speak))
        threads[0].start()
        threads_ready.wait(20)

    handle = await client.enqueue("leave")
    async with weft.Worker(client=client, registry=registry):
        await client.wait(handle.id, timeout=60)
        go.set()
        await asyncio.to_thread(threads[0].join)
    assert _log(home, handle.id) == "during\n"
    assert capsys.readouterr().out == "afterwards\n"


async def test_bytes_that_a_task_writes_to_its_streams_go_to_its_file(
    client: weft.Client, registry: Registry, home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    @registry.task(name="bytes")
    async def write() -> int:
        print("text")
        sys.stderr.buffer.write(b"more\n")
        sys.stdout.buffer.flush()
        return sys.stdout.buffer.write("wörd\n".encode())

    handle = await client.enqueue("bytes")
    async with weft.Worker(client=client, registry=registry):
        assert await client.wait(handle.id, timeout=60) == 6
        sys.stdout.buffer.write(b"of the worker itself\n")
    assert _log(home, handle.id) == "text\nmore\nwörd\n"
    assert capfd.readouterr() == ("of the worker itself\n", "")


async def test_what_a_process_prints_goes_to_the_file_of_its_task(client: weft.Client, home: Path) -> None:
    handles = [
        await client.enqueue(process_handlers.say, {"words": [f"task {n} wörd {m}" for m in range(200)]})
        for n in range(3)
    ]
    await weft.Worker(client=client, concurrency=2).run_until_idle()
    for n, handle in enumerate(handles):
        log = _log(home, handle.id)
        assert [line for line in log.splitlines() if line.startswith("task")] == [
            f"task {n} wörd {m}" for m in range(200)
        ]
        for line in ("to stderr", "to a logger", "from a program"):
            assert log.count(line) == 1
        assert "\x00" not in log


async def test_a_logging_call_with_wrong_arguments_fails_no_task(
    client: weft.Client, registry: Registry, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Those of pytest raise what every other handler only tells.
    others = [handler for handler in logging.root.handlers if not type(handler).__module__.startswith("_pytest")]
    monkeypatch.setattr(logging.root, "handlers", others)

    @registry.task(name="log")
    async def log(ctx: weft.Context) -> int:
        ctx.logger.info("%d rows", "many")
        return 1

    handle = await client.enqueue("log")
    await weft.Worker(client=client, registry=registry).run_until_idle()
    assert (await client.get_task(handle.id)).output == 1


@pytest.mark.parametrize("kind", ["link", "pipe"])
async def test_a_log_that_somebody_has_replaced_is_not_written(
    client: weft.Client, registry: Registry, home: Path, tmp_path: Path, kind: str
) -> None:
    @registry.task(name="say")
    async def say() -> int:
        print("hello")
        return 1

    handle = await client.enqueue("say")
    place, target = home / "logs" / f"{handle.id}.log", tmp_path / "target"
    place.parent.mkdir(parents=True)
    target.touch()
    if kind == "link":
        place.symlink_to(target)
    else:
        os.mkfifo(place)
    async with asyncio.timeout(60):
        await weft.Worker(client=client, registry=registry).run_until_idle()
    assert (await client.get_task(handle.id)).output == 1
    assert target.read_bytes() == b""


async def test_what_a_process_prints_last_is_seen_at_once_and_kept_when_it_is_killed(
    client: weft.Client, home: Path
) -> None:
    handle = await client.enqueue(process_handlers.last_words)
    async with weft.Worker(client=client):
        await until(lambda: client.read_log(handle.id), lambda log: log == b"the last line before it hangs\n")
        await client.cancel(handle.id)
    assert _log(home, handle.id) == "the last line before it hangs\n"


async def test_there_is_no_file_before_the_first_byte(client: weft.Client, registry: Registry, home: Path) -> None:
    seen: list[tuple[bool, bool]] = []

    @registry.task(name="speak")
    async def speak(ctx: weft.Context) -> None:
        path = home / "logs" / f"{ctx.task_id}.log"
        before = path.exists()
        print("", end="")
        print("now", flush=True)
        seen.append((before, path.exists()))

    @registry.task(name="silent")
    async def silent() -> None: ...

    await client.enqueue("speak")
    handle = await client.enqueue("silent")
    await weft.Worker(client=client, registry=registry).run_until_idle()
    assert seen == [(False, True)]
    assert not (home / "logs" / f"{handle.id}.log").exists()
    assert await client.read_log(handle.id) is None


async def test_a_log_is_cut_with_a_marker_at_its_limit(make_client: MakeClient, registry: Registry, home: Path) -> None:
    @registry.task(name="flood")
    async def flood() -> str:
        for n in range(100):
            print(f"line {n:03}")
        return "done"

    client = await make_client(log_limit=90)
    handle = await client.enqueue("flood")
    await weft.Worker(client=client, registry=registry).run_until_idle()
    log = _log(home, handle.id)
    assert log.startswith("line 000\n")
    assert log.count("[weft: log cut at 90 bytes]") == 1
    assert len(log) < 90 + 40
    assert await client.wait(handle.id) == "done"


async def test_attempts_append_to_the_log_of_their_task(client: weft.Client, registry: Registry, home: Path) -> None:
    @registry.task(name="say", retry=weft.Retry(2, initial_delay=0))
    async def say(ctx: weft.Context) -> None:
        print(f"attempt {ctx.attempt}")
        if ctx.attempt == 1:
            raise ValueError

    handle = await client.enqueue(say)
    async with weft.Worker(client=client, registry=registry):
        await client.wait(handle.id, timeout=60)
    assert _log(home, handle.id) == "attempt 1\n\n[weft: attempt 2]\nattempt 2\n"
    assert await client.read_log(handle.id, offset=29) == b"attempt 2\n"
    assert await client.read_log(handle.id, attempt=1) == b"attempt 1\n"
    assert await client.read_log(handle.id, attempt=2) == b"attempt 2\n"
    assert await client.read_log(handle.id, 8, attempt=2) == b"2\n"
    assert await client.read_log(handle.id, attempt=3) is None


def test_a_line_that_looks_like_a_heading_counts_only_with_a_higher_number() -> None:
    log = (
        b"one\n[weft: attempt 1]\nmore\n\n[weft: attempt 3]\nthree\n[weft: attempt 2]\nfake\n[weft: attempt "
        + b"9" * 5000
    )
    assert part_of(log, 1) == b"one\n[weft: attempt 1]\nmore\n"
    assert part_of(log, 2) is None
    assert (part_of(log, 3) or b"").startswith(b"three\n[weft: attempt 2]\nfake\n[weft: attempt 999")


async def test_an_attempt_after_the_limit_is_told_from_those_before(
    make_client: MakeClient, registry: Registry
) -> None:
    @registry.task(name="flood", retry=weft.Retry(2, initial_delay=0))
    async def flood(ctx: weft.Context) -> None:
        print("x" * 100)
        if ctx.attempt == 1:
            raise ValueError

    client = await make_client(log_limit=90)
    handle = await client.enqueue(flood)
    async with weft.Worker(client=client, registry=registry):
        await client.wait(handle.id, timeout=60)
    marker = b"\n[weft: log cut at 90 bytes]\n"
    assert await client.read_log(handle.id, attempt=1) == b"x" * 90 + marker
    assert await client.read_log(handle.id, attempt=2) == marker


async def test_a_silent_first_attempt_leaves_the_log_to_the_second(client: weft.Client, registry: Registry) -> None:
    @registry.task(name="say", retry=weft.Retry(2, initial_delay=0))
    async def say(ctx: weft.Context) -> None:
        if ctx.attempt == 1:
            raise ValueError
        print("at last")

    handle = await client.enqueue(say)
    async with weft.Worker(client=client, registry=registry):
        await client.wait(handle.id, timeout=60)
    assert await client.read_log(handle.id) == b"[weft: attempt 2]\nat last\n"
    assert await client.read_log(handle.id, attempt=1) is None
    assert await client.read_log(handle.id, attempt=2) == b"at last\n"


async def test_a_log_that_cannot_be_written_fails_no_task(
    make_client: MakeClient, registry: Registry, tmp_path: Path
) -> None:
    @registry.task(name="say")
    async def say() -> str:
        print("into the void")
        return "done"

    (tmp_path / "file").write_text("not a folder", encoding="ascii")
    client = await make_client(log_dir=tmp_path / "file")
    handle = await client.enqueue("say")
    await weft.Worker(client=client, registry=registry).run_until_idle()
    assert await client.wait(handle.id) == "done"


async def test_a_log_is_copied_to_the_blob_storage_when_that_is_asked_for(
    make_client: MakeClient, registry: Registry, home: Path
) -> None:
    @registry.task(name="say")
    async def say() -> None:
        print("far away")

    client = await make_client(log_upload=True)
    handle = await client.enqueue("say")
    await weft.Worker(client=client, registry=registry).run_until_idle()
    (home / "logs" / f"{handle.id}.log").unlink()
    assert await client.read_log(handle.id) == b"far away\n"


async def test_copied_logs_of_all_attempts_are_read_together_or_one_by_one(
    make_client: MakeClient, registry: Registry, home: Path, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    @registry.task(name="say", retry=weft.Retry(3, initial_delay=3600))
    async def say(ctx: weft.Context) -> None:
        print(f"attempt {ctx.attempt}")
        if ctx.attempt < 3:
            raise ValueError

    # Two machines that share the blob storage, but no folder of logs, and a third that only looks.
    here, there = [await make_client(log_upload=True, log_dir=home / name) for name in ("here", "there")]
    client = await make_client(log_dir=home / "nowhere")
    handle = await client.enqueue("say", retry=weft.Retry(3, initial_delay=3600))
    clock = Clock(conn, client)
    for machine in (here, there, here):
        await weft.Worker(client=machine, registry=registry).run_until_idle()
        await clock.advance(hours=3)
    second, third = "\n[weft: attempt 2]\nattempt 2\n", "\n[weft: attempt 3]\nattempt 3\n"
    for reader in (client, here, there):
        assert (await reader.read_log(handle.id) or b"").decode() == f"attempt 1\n{second}{third}"
        assert (await reader.read_log(handle.id, 10) or b"").decode() == f"{second}{third}"
    for attempt in (1, 2, 3):
        for reader in (client, here):
            assert await reader.read_log(handle.id, attempt=attempt) == f"attempt {attempt}\n".encode()
    assert await client.read_log(handle.id, attempt=4) is None


async def test_the_copy_of_a_log_ends_with_its_attempt_when_the_next_one_writes_before_it_is_made(
    make_client: MakeClient, registry: Registry, home: Path
) -> None:
    """The first attempt keeps the only thread in which a log is read until the second has printed."""
    has_printed = threading.Event()

    @registry.task(name="say", retry=weft.Retry(2, initial_delay=0))
    async def say(ctx: weft.Context) -> None:
        print(f"attempt {ctx.attempt}", flush=True)
        if ctx.attempt == 1:
            asyncio.get_running_loop().run_in_executor(None, has_printed.wait, 20)
            raise ValueError
        has_printed.set()

    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    client = await make_client(log_upload=True)
    handle = await client.enqueue(say)
    async with weft.Worker(client=client, registry=registry):
        await client.wait(handle.id, timeout=60)
    assert _log(home, handle.id) == "attempt 1\n\n[weft: attempt 2]\nattempt 2\n"
    for attempt in (1, 2):
        assert await client.read_log(handle.id, attempt=attempt) == f"attempt {attempt}\n".encode()


async def test_copied_logs_expire_with_the_retention_from_the_end_of_their_attempt(
    make_client: MakeClient, registry: Registry, home: Path, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    @registry.task(name="say")
    async def say() -> None:
        print("something")

    client = await make_client(log_upload=True, retention="30d")
    clock = Clock(conn, client)
    handle = await client.enqueue("say", delay=40 * 86400)
    await clock.advance(days=41)
    await weft.Worker(client=client, registry=registry).run_until_idle()
    for days, left in ((29, 1), (2, 0)):
        await clock.advance(days=days)
        await Pruner(client.database, client.settings).run_once()
        assert await conn.fetchval("select count(*) from weft.task_log where task_id = $1", handle.id) == left


@pytest.mark.parametrize("what", ["link", "pipe"])
async def test_a_log_is_read_only_where_it_is_a_plain_file(client: weft.Client, home: Path, what: str) -> None:
    task = await client.enqueue("h")
    path = home / "logs" / f"{task.id}.log"
    path.parent.mkdir(parents=True)
    if what == "link":
        (home / "secret").write_text("secret", encoding="utf-8")
        path.symlink_to(home / "secret")
    else:
        os.mkfifo(path)
    with pytest.raises(OSError, match=r"symbolic|plain file"):
        await client.read_log(task.id)
