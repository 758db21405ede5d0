"""Rows of datasets by HTTP: a few of them, and those that differ; exact, and to each what he may see."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import httpx
import pyarrow as pa
import pytest
from server_scene import MakeHttp

import weft
from weft.worker.registry import Registry
from writing import written

LARGE = 2**64 + 1


async def _decimals(client: weft.Client, *prices: str) -> None:
    """Write a dataset with a row of an exact price and of a large number, once for each price."""
    registry = Registry()

    @registry.task(name="price")
    async def price(value: str, ctx: weft.Context) -> None:
        table = pa.table({
            "id": pa.array([1, 2]),
            "price": pa.array([Decimal(value), Decimal("0.10")], pa.decimal128(38, 18)),
            "large": pa.array([Decimal(LARGE)] * 2, pa.decimal128(38, 0)),
            "parts": pa.array([[0.5], []], pa.list_(pa.float64())),
        })  # fmt: skip
        await ctx.dataset("team/prices").write(table)

    async with weft.Worker(client=client, registry=registry):
        for value in prices:
            await client.wait((await client.enqueue(price, {"value": value})).id, timeout=60)


def _read(answer: httpx.Response) -> Any:
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/json"
    return json.loads(answer.text, parse_float=Decimal)


async def test_rows_are_told_with_numbers_as_exact_as_they_were(http: httpx.AsyncClient, client: weft.Client) -> None:
    await _decimals(client, "1234567890123456789.012345678901234567", "0.1")
    path = "/api/v1/datasets/team%2Fprices"
    row = {"id": 1, "price": Decimal("0.1"), "large": LARGE, "parts": [Decimal("0.5")]}
    other = {"id": 2, "price": Decimal("0.1"), "large": LARGE, "parts": []}
    assert _read(await http.get(f"{path}/sample")) == {"dataset": "team/prices", "rows": [row, other]}
    assert _read(await http.get("/api/v1/datasets/team/prices/sample?limit=1"))["rows"] == [row]
    was = row | {"price": Decimal("1234567890123456789.012345678901234567")}
    assert _read(await http.get("/api/v1/datasets/team%2Fprices@1.1/sample"))["rows"] == [was, other]
    found = _read(await http.get(f"{path}/diff/rows?key=id&key=large"))
    assert found == {
        "old": "team/prices@1.1", "new": "team/prices@1.2", "key": ["id", "large"],
        "columns": ["id", "price", "large", "parts"], "added": 0, "removed": 0, "changed": 1,
        "rows": [{"change": "changed", "before": was, "after": row}],
    }  # fmt: skip
    told = _read(await http.get(f"{path}@1.2/diff/rows", params={"other": "team/prices@1.1", "limit": 1}))
    assert (told["added"], told["removed"], len(told["rows"])) == (1, 1, 1)
    same = _read(await http.get(f"{path}@1.2/diff/rows?other=team/prices@1.2"))
    assert (same["rows"], same["added"], same["new"]) == ([], 0, "team/prices@1.2")


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("orders/sample?limit=0", 422, "invalid_input"),
        ("orders/sample?limit=1001", 422, "invalid_input"),
        ("orders/sample?limit=1&limit=2", 422, "invalid_input"),
        ("orders/sample?more=1", 422, "invalid_input"),
        ("nothing/sample", 404, "not_found"),
        ("orders@9/sample", 404, "not_found"),
        ("orders/diff/rows?key=nothing", 422, "invalid_input"),
        ("orders/diff/rows?other=nothing", 404, "not_found"),
        ("orders/diff/rows?limit=1&limit=2", 422, "invalid_input"),
    ],
)
async def test_what_is_wrong_is_told(
    http: httpx.AsyncClient, client: weft.Client, path: str, status: int, code: str
) -> None:
    await written(client, "orders", 1)
    answer = await http.get(f"/api/v1/datasets/{path}")
    assert (answer.status_code, answer.json().get("code")) == (status, code), answer.text


async def test_rows_are_told_to_those_who_see_the_dataset(client: weft.Client, make_http: MakeHttp) -> None:
    await written(client, "orders", 1, 2)
    await client.roles.create("finance")
    await client.users.add("ada", role="reader")
    await client.roles.grant("finance", "ada")
    ada, stranger = await make_http("reader", user="ada"), await make_http("writer")
    for path in ("/api/v1/datasets/orders/sample", "/api/v1/datasets/orders/diff/rows"):
        await client.datasets.grant("orders", [])
        assert (await ada.get(path)).status_code == 404
        await client.datasets.grant("orders", ["finance"])
        assert len(_read(await ada.get(path))["rows"]) > 0
        assert (await stranger.get(path)).status_code == 404
        assert (await (await make_http("worker")).get(path)).status_code == 403
        assert (await (await make_http(None)).get(path)).status_code == 401
