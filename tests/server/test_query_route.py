"""Queries by HTTP: the answer is streamed, what is wrong is told before it, and each sees what he may see."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import httpx
import orjson
import pyarrow as pa
import pytest
from server_scene import MakeHttp

import weft
from live_scene import until
from weft.server.serving import Server
from writing import written

PATH = "/api/v1/query"


async def test_an_answer_comes_in_the_form_that_was_asked_for(http: httpx.AsyncClient, client: weft.Client) -> None:
    await written(client, "orders", 1, 2)
    answer = await http.post(PATH, json={"sql": "select value from orders"})
    assert (answer.status_code, answer.text) == (200, '{"value":2}\n')
    assert answer.headers["content-type"] == "application/x-ndjson"
    arrow = await http.post(PATH, json={"sql": 'select * from "orders@1.1"', "format": "arrow"})
    assert pa.ipc.open_stream(arrow.content).read_all().to_pylist() == [{"value": 1}]
    first = (await client.datasets.writes("orders"))[1].written_at.isoformat()
    assert (await http.post(PATH, json={"sql": "select value from orders", "as_of": first})).text == '{"value":1}\n'


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"sql": "select"}, 422, "invalid_query"),
        ({"sql": "select * from nothing"}, 404, "not_found"),
        ({"sql": "copy (select 1) to '/tmp/x'"}, 422, "invalid_query"),
        ({"sql": ""}, 422, "invalid_input"),
        ({"sql": "select 1", "format": "xml"}, 422, "invalid_input"),
        ({"sql": "select 1", "more": 1}, 422, "invalid_input"),
        ({"sql": "select \0"}, 422, "invalid_input"),
        ({}, 422, "invalid_input"),
    ],
)
async def test_what_is_wrong_is_told_before_the_answer(
    http: httpx.AsyncClient, body: dict[str, object], status: int, code: str
) -> None:
    answer = await http.post(PATH, json=body)
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text


async def test_who_does_not_see_a_dataset_asks_it_nothing(client: weft.Client, make_http: MakeHttp) -> None:
    await written(client, "orders", 1)
    await client.roles.create("finance")
    await client.users.add("ada", role="reader")
    await client.roles.grant("finance", "ada")
    ada, stranger = await make_http("reader", user="ada"), await make_http("writer")
    sql = {"sql": "select count(*) as n from orders"}
    assert (await ada.post(PATH, json=sql)).status_code == 404
    await client.datasets.grant("orders", ["finance"])
    assert (await ada.post(PATH, json=sql)).text == '{"n":1}\n'
    assert (await stranger.post(PATH, json=sql)).status_code == 404
    assert (await (await make_http("worker")).post(PATH, json=sql)).status_code == 403
    assert (await (await make_http(None)).post(PATH, json=sql)).status_code == 401


async def test_a_client_of_a_server_asks_as_one_of_the_database(client: weft.Client, server: Server) -> None:
    await written(client, "orders", 1, 2)
    token = (await client.tokens.create("far", role="admin")).secret
    async with weft.RemoteClient(server.url, token) as far:
        async with far.datasets.query("select value from orders") as answer:
            assert [row async for row in answer.records()] == [{"value": 2}]
        assert await far.datasets.sample("orders@1.1") == [{"value": 1}]
        with pytest.raises(weft.InvalidQuery):
            async with far.datasets.query("drop table orders"):
                pass
        # Whoever stops reading ends it, and the next is answered.
        async with far.datasets.query("select * from range(5000000)") as answer:
            async for _ in answer:
                break
        assert await far.datasets.sample("orders") == [{"value": 2}]


async def _asked(server: Server, token: str, sql: str) -> asyncio.StreamWriter:
    """Ask, and read nothing."""
    host, _, port = server.url.removeprefix("http://").partition(":")
    _, writer = await asyncio.open_connection(host, int(port))
    body = orjson.dumps({"sql": sql})
    head = f"POST {PATH} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\ncontent-type: application/json\r\n"
    writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
    await writer.drain()
    return writer


async def test_a_query_ends_when_nobody_waits_for_its_answer_any_more(
    settings: weft.Settings, client: weft.Client
) -> None:
    await written(client, "orders", 1)
    token = (await client.tokens.create("far", role="admin")).secret
    long = "select count(*) as n from range(1000000000000) t (a) where a % 7 = 1"
    limits = replace(settings, query_timeout=timedelta(hours=1), query_concurrency=2)
    headers = {"authorization": f"Bearer {token}"}
    async with (
        Server(limits, port=0) as server,
        httpx.AsyncClient(base_url=server.url, timeout=60, headers=headers) as http,
    ):

        async def open_requests() -> int:
            lines = (await http.get("/metrics")).text.splitlines()
            return int(float(next(line for line in lines if line.startswith("weft_http_requests_open")).split()[1]))

        async def are_taken() -> bool:
            return await open_requests() > 6

        async def are_gone() -> bool:
            return await open_requests() == 1

        for _ in range(3):
            several = [await _asked(server, token, long) for _ in range(6)]
            # Two of them compute, the others wait for their turn.
            await until(are_taken)
            for each in several:
                each.transport.abort()
            await until(are_gone)
        answer = await http.post(PATH, json={"sql": "select value from orders"})
        assert answer.text == '{"value":1}\n'
