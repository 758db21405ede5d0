"""A server that is to stop: it says so, goes on answering, answers what was asked, and ends."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from datetime import timedelta
from urllib.parse import urlsplit

import httpx
import pytest
from server_scene import FLOW

import weft
from weft.server.serving import Server


async def test_a_server_that_is_to_stop_says_so_and_answers_until_others_have_noticed(settings: weft.Settings) -> None:
    async with (
        Server(replace(settings, server_drain=timedelta(hours=1)), port=0) as server,
        httpx.AsyncClient(base_url=server.url) as http,
    ):
        assert (await http.get("/readyz")).status_code == 200
        at_once = asyncio.Event()
        leaving = asyncio.create_task(server.leave(at_once))
        await asyncio.sleep(0)
        told = await http.get("/readyz")
        assert (told.status_code, told.json()["checks"][-1]) == (503, {"name": "server", "ok": False})
        assert (await http.get("/healthz")).status_code == 200
        assert not leaving.done()
        at_once.set()
        await leaving


async def test_a_request_under_way_is_answered_before_a_server_ends(
    settings: weft.Settings, client: weft.Client
) -> None:
    secret = (await client.tokens.create("tester", role="writer")).secret
    server = Server(settings, port=0)
    await server.__aenter__()
    address = urlsplit(server.url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    body = b'{"handler": "h"}'
    writer.write(
        b"POST /api/v1/tasks HTTP/1.1\r\nhost: weft\r\ncontent-type: application/json\r\nauthorization: Bearer "
        + secret.encode() + b"\r\nexpect: 100-continue\r\ncontent-length: " + str(len(body)).encode() + b"\r\n\r\n"
    )  # fmt: skip
    # The server has read the head when it asks for the body.
    assert await reader.readline() == b"HTTP/1.1 100 Continue\r\n"
    ending = asyncio.create_task(server.__aexit__(None, None, None))
    await asyncio.sleep(0)
    writer.write(body)
    assert await reader.readline() == b"\r\n"
    assert (await reader.readline()).startswith(b"HTTP/1.1 201")
    await ending
    writer.close()
    assert [task.handler for task in (await client.list_tasks()).tasks] == ["h"]


async def test_streams_that_are_opened_again_while_a_server_stops_do_not_keep_it(
    settings: weft.Settings, client: weft.Client, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever is told that the server stops comes again at once, and may be let in by the last moment."""
    await client.workflows.push(FLOW)
    job = await client.jobs.submit("etl")
    secret = (await client.tokens.create("looker", role="reader")).secret
    server = await Server(settings, port=0).__aenter__()
    async with httpx.AsyncClient(base_url=server.url, timeout=30) as http:
        http.headers["authorization"] = f"Bearer {secret}"

        async def look() -> None:
            with contextlib.suppress(httpx.TransportError):
                while True:
                    async with http.stream("GET", f"/api/v1/jobs/{job.id}/stream") as answer:
                        async for _ in answer.aiter_raw():
                            began.release()

        began = asyncio.Semaphore(0)
        looking = [asyncio.create_task(look()) for _ in range(20)]
        for _ in looking:
            await began.acquire()
        await server.__aexit__(None, None, None)
        await asyncio.gather(*looking)
    assert "timeout graceful shutdown exceeded" not in caplog.text
