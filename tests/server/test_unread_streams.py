"""Streams that nobody reads: what is held for them is little, however many they are and however much there is."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import asyncpg
import httpx
import pytest
from server_scene import MakeHttp, peak

import weft
from engine.job_scene import flow
from streams import streamed
from weft.server.live import hub
from weft.server.live.feed import AT_ONCE
from weft.server.serving import Server
from weft.worker.logs import log_dir, log_path

_UNREAD = 40
# What one of them may hold: what was written last, what waits to be, and what is in between.
_EACH = 300 * 1024
_ROOM = 16 * 1024**2
_LINE = b"zw\xc3\xb6lf: %012d\n"


def _print(client: weft.Client, task_id: int, first: int, last: int) -> bytes:
    """Print some lines into the log of a task, as its worker does; return them."""
    text = b"".join(_LINE % n for n in range(first, last))
    path = log_path(log_dir(client.settings), task_id)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.write(text)
    return text


@asynccontextmanager
async def _unread(address: str, secret: str, path: str) -> AsyncIterator[None]:
    """Open a stream and read nothing of it."""
    at, loop = httpx.URL(address), asyncio.get_running_loop()
    with socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.setblocking(False)
        await loop.sock_connect(deaf, (at.host, at.port))
        asked = f"GET /api/v1{path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {secret}\r\n\r\n"
        await loop.sock_sendall(deaf, asked.encode())
        assert await loop.sock_recv(deaf, 12) == b"HTTP/1.1 200"
        yield


async def test_what_is_held_for_streams_that_nobody_reads_is_little(
    client: weft.Client, apart: tuple[str, int], conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    address, pid = apart
    secret = (await client.tokens.create("r", role="reader")).secret
    task = await client.enqueue("say")
    text = await asyncio.to_thread(_print, client, task.id, 0, 120_000)
    job = await client.jobs.submit(flow(first={"handler": "say"}))
    note = "select weft.note_event(org_id, id, 'job.noted', 'pending', $2) from weft.job, generate_series(1, $1::int)"
    await conn.execute(note, 2000, '{"note": "%s"}' % ("x" * 900))
    paths = f"/tasks/{task.id}/log/stream", f"/jobs/{job.id}/stream"
    headers = {"authorization": f"Bearer {secret}"}
    async with httpx.AsyncClient(base_url=address, headers=headers, timeout=60) as http, AsyncExitStack() as stack:
        assert (await http.get("/api/v1/jobs")).status_code == 200
        before = peak(pid)
        for path in paths:
            for _ in range(_UNREAD):
                await stack.enter_async_context(_unread(address, secret, path))
        # Whoever reads is told all, and by then those had their turns who do not.
        async with streamed(http, paths[0]) as stream:
            told = b""
            while len(told) < len(text):
                each = await stream.next()
                assert each is not None
                told += each.data["text"].encode()
        assert told == text
        async with streamed(http, paths[1]) as stream:
            count = 0
            while count < 2000:
                each = await stream.next()
                assert each is not None
                count += each.data["type"] == "job.noted"
        assert peak(pid) - before < 2 * _UNREAD * _EACH + _ROOM


async def test_all_feeds_share_what_is_kept_and_whoever_reads_misses_nothing(
    client: weft.Client, settings: weft.Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    count, room = 6, 20 * AT_ONCE
    monkeypatch.setattr(hub, "MOST_OF_ALL", room)
    headers = {"authorization": f"Bearer {(await client.tokens.create('r', role='reader')).secret}"}
    tasks = [(await client.enqueue("say")).id for _ in range(count)]
    async with (
        Server(settings, port=0) as server,
        httpx.AsyncClient(base_url=server.url, headers=headers, timeout=30) as http,
        AsyncExitStack() as stack,
    ):
        streams = [await stack.enter_async_context(streamed(http, f"/tasks/{id}/log/stream")) for id in tasks]
        for n in range(4):
            for id, stream in zip(tasks, streams, strict=True):
                text, told = _print(client, id, n * 1500, (n + 1) * 1500), b""
                while len(told) < len(text):
                    each = await stream.next()
                    assert each is not None
                    assert each.name == "message"
                    told += each.data["text"].encode()
                assert told == text
                assert _kept(server) <= room
        assert _kept(server) > 0
        await stack.aclose()
        async with asyncio.timeout(20):
            while _kept(server):  # noqa: ASYNC110  as soon as it is seen that they have gone
                await asyncio.sleep(0.01)


def _kept(server: Server) -> float:
    (kept,) = (metric for metric in server.state.live.metrics() if metric.name == "streams_kept_bytes")
    return kept.samples[0].value


async def test_a_log_is_told_by_its_copy_in_pieces_where_it_ran_elsewhere(
    make_http: MakeHttp, client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    task, http = await client.enqueue("say"), await make_http(role="reader")
    text = b"".join(_LINE % n for n in range(9000))
    digest = await client.blobs.put(text)
    await conn.execute(
        "insert into weft.task_log (org_id, task_id, attempt, digest, bytes) values (1, $1, 1, $2, $3)",
        task.id, digest, len(text),
    )  # fmt: skip
    await client.cancel(task.id)
    for after in (None, str(len(_LINE % 1))):
        async with streamed(http, f"/tasks/{task.id}/log/stream", after) as stream:
            found = await stream.until("end")
        assert "".join(each.data["text"] for each in found[:-1]).encode() == text[int(after or 0) :]
        assert len(found) > 5, "in pieces"
