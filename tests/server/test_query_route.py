"""Queries by HTTP: the answer is streamed, what is wrong is told before it, and each sees what he may see."""

from __future__ import annotations

import asyncio

import httpx
import pyarrow as pa
import pytest
from server_scene import MakeHttp

import weft
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


async def test_a_query_whose_asker_has_left_before_the_first_row_is_ended(http: httpx.AsyncClient) -> None:
    endless = {"sql": "select count(*) from range(100000000000) a, range(100000) b"}
    gone = await asyncio.gather(*(http.post(PATH, json=endless, timeout=3) for _ in range(6)), return_exceptions=True)
    assert {type(each) for each in gone} == {httpx.ReadTimeout}
    # As many as run at once were asked for, and more: whoever comes now has his turn all the same.
    assert (await http.post(PATH, json={"sql": "select 1 as one"}, timeout=20)).text == '{"one":1}\n'
