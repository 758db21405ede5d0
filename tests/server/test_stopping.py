"""A server that is to stop: it says so, goes on answering, answers what was asked, and ends."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import httpx
import uvicorn
from uvicorn.server import ServerState

import weft
from weft.server.connections import connections
from weft.server.serving import Server
from weft.server.sockets import take_address


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
        assert (told.status_code, told.json()["checks"][-1]) == (
            503,
            {"name": "server", "ok": False, "problem": "is about to stop"},
        )
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


async def test_whoever_is_let_in_at_the_last_moment_is_answered_once_and_kept_no_longer() -> None:
    """Else a client that comes again and again keeps a server that stops for as long as it waits at most."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    config = uvicorn.Config(app, log_config=None)
    config.load()
    kind, state = connections(30, lambda: True), ServerState()
    made = lambda: kind(config=config, server_state=state, app_state={})  # noqa: E731
    async with await asyncio.get_running_loop().create_server(made, "127.0.0.1", 0) as listening:
        port = listening.sockets[0].getsockname()[1]
        for sent in (b"", b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(sent)
            answer = await asyncio.wait_for(reader.read(), 20)
            assert answer.startswith(b"HTTP/1.1 204") == (b"connection: close" in answer) == bool(sent)
            writer.close()


async def test_a_server_that_is_given_up_while_it_starts_lets_go_of_its_address(settings: weft.Settings) -> None:
    asked = asyncio.Event()

    async def be_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await reader.read()  # all that comes, until whoever asked has gone
        writer.close()

    async with await asyncio.start_server(be_silent, "127.0.0.1", 0) as database:
        url = f"postgresql://weft@127.0.0.1:{database.sockets[0].getsockname()[1]}/weft?sslmode=disable"
        listening = take_address("127.0.0.1", 0)
        port = listening.getsockname()[1]
        opening = asyncio.create_task(Server(replace(settings, database_url=url), listening=listening).__aenter__())
        await asyncio.wait_for(asked.wait(), 10)
        opening.cancel()
        assert isinstance((await asyncio.gather(opening, return_exceptions=True))[0], asyncio.CancelledError)
    take_address("127.0.0.1", port).close()
