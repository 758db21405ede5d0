"""What tasks of remote workers print: there while they run, and whole when they have ended."""

from __future__ import annotations

import asyncio
import resource
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import weft
from weft.server.serving import Server
from weft.worker.log_parts import LogParts
from weft.worker.registry import Registry


def _settings(tmp_path: Path, name: str = "elsewhere", **more: Any) -> weft.Settings:
    """Settings of a machine that shares nothing with the server."""
    return weft.Settings.load(environ={}, home=tmp_path / name, **more)


async def test_the_log_of_a_task_is_followed_while_a_remote_worker_runs_it(
    client: weft.Client, server: Server, remote: weft.RemoteClient, tmp_path: Path
) -> None:
    registry, go = Registry(), asyncio.Event()

    @registry.task(name="talk")
    async def talk() -> None:
        print("began")
        await go.wait()
        print("grüße " + "x" * 300_000)

    token = (await client.tokens.create("w", role="worker")).secret
    made, seen = await client.enqueue("talk"), b""
    async with (
        weft.RemoteClient(server.url, token, settings=_settings(tmp_path)) as far,
        weft.Worker(client=far, registry=registry),
    ):
        async for data in remote.follow_log(made.id):
            assert seen or not go.is_set()
            seen += data
            go.set()
        # Whoever knows of the end has all that was printed before it.
        assert seen == await client.read_log(made.id) == ("began\ngrüße " + "x" * 300_000 + "\n").encode()


@pytest.mark.parametrize("by", ["a client", "a server"])
async def test_a_log_on_another_machine_is_followed_while_its_task_runs(
    settings: weft.Settings, client: weft.Client, tmp_path: Path, by: str
) -> None:
    """Machines that have the database and a storage in common, and no folder: as pods have."""
    registry, go = Registry(), asyncio.Event()

    @registry.task(name="talk")
    async def talk() -> None:
        print("began")
        await go.wait()
        print("ended")

    here, there = (replace(settings, log_upload=True, log_dir=tmp_path / name) for name in ("here", "there"))
    token = (await client.tokens.create("r", role="reader")).secret
    made, seen = await client.enqueue("talk"), b""
    async with (
        weft.Client(settings=there) as other, weft.Worker(client=other, registry=registry),
        Server(here, port=0) as server, weft.Client(settings=here) as near,
        weft.RemoteClient(server.url, token, settings=_settings(tmp_path)) as remote,
    ):  # fmt: skip
        async for data in (near if by == "a client" else remote).follow_log(made.id):
            assert seen or data == b"began\n", "it runs until somebody has seen that it began"
            seen += data
            go.set()
    assert seen == b"began\nended\n"


async def test_a_log_that_is_printed_while_the_server_is_away_is_there_when_the_task_has_ended(
    settings: weft.Settings, client: weft.Client, tmp_path: Path
) -> None:
    registry, began, go = Registry(), asyncio.Event(), asyncio.Event()

    @registry.task(name="talk")
    async def talk() -> None:
        began.set()
        await go.wait()
        print("while nobody listened")

    token = (await client.tokens.create("w", role="worker")).secret
    server = await Server(settings, port=0).__aenter__()
    port = int(server.url.rpartition(":")[2])
    made = await client.enqueue("talk")
    async with (
        weft.RemoteClient(server.url, token, settings=_settings(tmp_path)) as far,
        weft.Worker(client=far, registry=registry),
    ):
        await began.wait()
        await server.__aexit__(None, None, None)
        go.set()
        async with Server(settings, port=port):
            await client.wait(made.id, 60)
            assert await client.read_log(made.id) == b"while nobody listened\n"


async def test_a_server_without_the_beginning_of_a_log_gets_it_again(
    settings: weft.Settings, client: weft.Client, tmp_path: Path
) -> None:
    """Two servers do not share a disk: the first has the beginning, the second is asked for the end."""
    registry, go = Registry(), asyncio.Event()

    @registry.task(name="talk")
    async def talk() -> None:
        print("first")
        await go.wait()
        print("last")

    token = (await client.tokens.create("w", role="worker")).secret
    one = replace(settings, log_dir=tmp_path / "one", log_upload=True)
    other = replace(settings, log_dir=tmp_path / "other", log_upload=True)
    server = await Server(one, port=0).__aenter__()
    port = int(server.url.rpartition(":")[2])
    made = await client.enqueue("talk")
    async with (
        weft.RemoteClient(server.url, token, settings=_settings(tmp_path)) as far,
        weft.Worker(client=far, registry=registry),
    ):
        async with asyncio.timeout(20):
            while not (tmp_path / "one" / f"{made.id}.log").exists():  # noqa: ASYNC110  (only the disk knows)
                await asyncio.sleep(0.02)
        await server.__aexit__(None, None, None)
        async with Server(other, port=port):
            go.set()
            await client.wait(made.id, 60)
    assert (tmp_path / "other" / f"{made.id}.log").read_bytes() == b"first\nlast\n"
    assert (tmp_path / "one" / f"{made.id}.log").read_bytes() == b"first\n"
    for reader in (settings, one, other):
        async with weft.Client(settings=reader) as looking:
            assert await looking.read_log(made.id) == b"first\nlast\n", "by the copy: it is whole on one disk only"


async def test_copies_of_several_attempts_are_told_apart(
    settings: weft.Settings, client: weft.Client, tmp_path: Path
) -> None:
    registry = Registry()

    @registry.task(name="talk", retry=weft.Retry(max_attempts=2, backoff="fixed", initial_delay=0))
    async def talk(ctx: weft.Context) -> None:
        print(f"attempt {ctx.attempt}", end="")
        if ctx.attempt == 1:
            raise RuntimeError("once more")

    token = (await client.tokens.create("w", role="worker")).secret
    made = await client.enqueue("talk")
    async with (
        Server(replace(settings, log_dir=tmp_path / "one", log_upload=True), port=0) as server,
        weft.RemoteClient(server.url, token, settings=_settings(tmp_path)) as far,
        weft.Worker(client=far, registry=registry),
    ):
        await client.wait(made.id, 60)
    assert await client.read_log(made.id, attempt=2) == b"attempt 2"
    assert await client.read_log(made.id, attempt=1) == b"attempt 1"


@pytest.mark.parametrize("others", [b"", b"\n[weft: attempt 3]\nlater\n"], ids=["alone", "with a later attempt"])
def test_pieces_of_a_log_land_once_and_in_order(tmp_path: Path, others: bytes) -> None:
    """Also when somebody else has written to the file since the last piece."""
    path, logs = tmp_path / "7.log", LogParts(tmp_path, 1000)
    path.write_bytes(b"first\n")
    assert logs.append(7, 2, 0, b"ab") == 2
    assert logs.append(7, 2, 0, b"abcd") == 4
    assert logs.append(7, 2, 9, b"z") == 4, "something before it is missing"
    with path.open("ab") as file:
        file.write(others)
    assert logs.append(7, 2, 4, b"e") == (4 if others else 5)
    assert path.read_bytes() == b"first\n\n[weft: attempt 2]\nabcd" + (others or b"e")
    path.unlink()
    assert logs.append(7, 2, 0, b"x") == 1
    assert path.read_bytes() == b"[weft: attempt 2]\nx"


@pytest.mark.parametrize("room", [15, 25, 30], ids=["for half a heading", "for the heading", "for some of the text"])
def test_of_a_log_on_a_full_disk_only_that_is_told_which_is_there(tmp_path: Path, room: int) -> None:
    path, logs = tmp_path / "7.log", LogParts(tmp_path, 1000)
    path.write_bytes(b"first\n")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    # As on a disk with so much room: what is written ends there.
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, before[1]))
    try:
        size = logs.append(7, 2, 0, b"grows and grows")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert size == max(0, room - 25)
    assert path.read_bytes() == (b"first\n" if room < 25 else b"first\n\n[weft: attempt 2]\ngrows and grows"[:room])
    # There is room again: the rest comes, and nothing is missing or there twice.
    assert logs.append(7, 2, 0, b"grows and grows") == 15
    assert path.read_bytes() == b"first\n\n[weft: attempt 2]\ngrows and grows"
