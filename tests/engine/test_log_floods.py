"""Logs that no disk and no reader was made for: they are cut, or lost and reported, and their task completes."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import process_handlers
import pytest
from engine_scene import MakeClient

import weft
from weft.worker.registry import Registry

LIMIT = 64 * 1024
MARKER = f"\n[weft: log cut at {LIMIT} bytes]\n".encode()
# A hundred times the limit, and far more than a pipe holds.
FLOOD = 100 * LIMIT
KINDS = {
    "binary": bytes(range(256)),
    "zeros": b"\0",
    "half a character": "ö".encode()[:1],
    "characters of three bytes": "€".encode(),
    "no newline": b"x",
    "newlines": b"\n",
}


def _log(home: Path, id: int) -> bytes:
    return (home / "logs" / f"{id}.log").read_bytes()


async def test_floods_from_a_process_are_cut_and_their_tasks_complete(make_client: MakeClient, home: Path) -> None:
    client = await make_client(log_limit=LIMIT)
    async with weft.Worker(client=client, concurrency=1):
        for kind, pattern in KINDS.items():
            flood = await client.enqueue(process_handlers.flood, {"pattern": pattern.hex(), "size": FLOOD})
            written, pid = await client.wait(flood.id, timeout=60)
            after = await client.enqueue(process_handlers.say, {"words": ["after the flood"]})
            await client.wait(after.id, timeout=60)
            assert await client.wait((await client.enqueue(process_handlers.pid)).id, timeout=60) == pid
            assert written == FLOOD
            log = _log(home, flood.id)
            assert log.endswith(MARKER), kind
            assert log.count(MARKER.strip()) == 1
            assert LIMIT - 4 < len(log) - len(MARKER) <= LIMIT
            # What follows the flood in the same process is not taken for a part of it.
            assert _log(home, after.id).startswith(b"after the flood\nto stderr\n")


async def test_a_flood_from_threads_and_the_loop_is_cut_and_its_task_completes(
    make_client: MakeClient, registry: Registry, home: Path
) -> None:
    """A lone surrogate, a NUL, no newline; by print, by a logger, by the error stream."""
    text = "\ud800\0€" * 1000

    def speak() -> None:
        for _ in range(FLOOD // len(text) // 10):
            print(text, end="")
            sys.stderr.write(text)
            # Whoever else listens to this logger may not be able to pass on half a character.
            logging.getLogger("app").error("%s", text.replace("\ud800", "?"))

    @registry.task(name="thread")
    def in_thread() -> str:
        speak()
        return "done"

    @registry.task(name="loop")
    async def on_loop() -> str:
        speak()
        return "done"

    client = await make_client(log_limit=LIMIT)
    handles = [await client.enqueue(name) for name in ("thread", "loop")]
    await weft.Worker(client=client, registry=registry).run_until_idle()
    for handle in handles:
        assert await client.wait(handle.id) == "done"
        log = _log(home, handle.id)
        assert log.startswith("?\0€?\0€".encode())
        assert log.endswith(MARKER)
        assert LIMIT - 4 < len(log) - len(MARKER) <= LIMIT


@contextmanager
def full_disk(folder: Path) -> Iterator[None]:
    """Mount a disk of some pages, and fill it."""
    folder.mkdir(parents=True)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)], check=False)
    if mounted.returncode != 0:
        pytest.skip("mounting is not permitted here; /dev/full is tested instead")
    try:
        with open(folder / "ballast", "wb", buffering=0) as ballast, suppress(OSError):
            while True:
                ballast.write(bytes(4096))
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@contextmanager
def no_room_for(disk: str, folder: Path, task_id: int) -> Iterator[None]:
    """Let the log of a task find a device that is full, a disk that is full, or no folder at all."""
    if disk == "full disk":
        with full_disk(folder):
            yield
        return
    folder.parent.mkdir(exist_ok=True)
    if disk == "full device":
        folder.mkdir()
        (folder / f"{task_id}.log").symlink_to("/dev/full")
    else:
        folder.write_text("a file where the folder should be", encoding="ascii")
    yield


@pytest.fixture
def loud(registry: Registry) -> Registry:
    """Handlers of every kind that print what they return."""

    @registry.task(name="loop")
    async def on_loop(text: str) -> str:
        print(text, end="")
        return text

    @registry.task(name="thread")
    def in_thread(text: str) -> str:
        print(text, end="")
        return text

    registry.add(process_handlers.echo_aloud)
    return registry


@pytest.mark.parametrize("handler", ["loop", "thread", "process:echo aloud"])
@pytest.mark.parametrize("disk", ["full device", "full disk", "no folder"])
async def test_a_log_that_finds_no_room_holds_up_no_task(
    make_client: MakeClient, loud: Registry, home: Path, disk: str, handler: str
) -> None:
    """A short text waits in a buffer until it is flushed, and again until the file is closed; a long one does not."""
    client = await make_client()
    short = await client.enqueue(handler, {"text": "a line"})
    long = await client.enqueue(handler, {"text": "x" * 100_000})
    with no_room_for(disk, home / "logs", short.id):
        worker = await weft.Worker(client=client, registry=loud, concurrency=1).start()
        try:
            assert await client.wait(short.id, timeout=60) == "a line"
            assert await client.wait(long.id, timeout=60) == "x" * 100_000
        finally:
            await worker.stop(grace=0)


@pytest.mark.parametrize("disk", ["full device", "full disk", "no folder"])
async def test_a_log_that_finds_no_room_is_reported_once(
    make_client: MakeClient, loud: Registry, home: Path, caplog: pytest.LogCaptureFixture, disk: str
) -> None:
    client = await make_client()
    handle = await client.enqueue("thread", {"text": "x" * 100_000})
    with no_room_for(disk, home / "logs", handle.id):
        await weft.Worker(client=client, registry=loud).run_until_idle()
    assert len(await client.wait(handle.id)) == 100_000
    reports = [record.getMessage() for record in caplog.records if str(handle.id) in record.getMessage()]
    assert [("log" in report) for report in reports] == [True], "the operator hears which log is lost"
