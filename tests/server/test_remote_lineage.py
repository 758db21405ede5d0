"""Lineage and diffs through a server: a worker without a database tells what columns are made of, and a client asks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

import weft
from weft.server.serving import Server
from weft.worker.registry import Registry

MakeRemote = Callable[..., Awaitable[weft.RemoteClient]]


@pytest.fixture
def server(walled_server: Server) -> Server:
    """The one that is held to the org that it acts for."""
    return walled_server


async def test_a_far_worker_tells_what_columns_are_made_of_and_a_far_client_is_told_the_same(
    client: weft.Client, make_remote: MakeRemote
) -> None:
    registry = Registry()

    @registry.task(name="write")
    async def write(price: int, ctx: weft.Context) -> None:
        await ctx.dataset("orders").write([{"id": 1, "price": price}])

    @registry.task(name="sum")
    async def sum_up(ctx: weft.Context) -> None:
        await ctx.dataset("orders").read()
        told = weft.columns_of_query("select sum(price) as total from orders", {"orders": ["id", "price"]})
        assert isinstance(told, dict)
        await ctx.dataset("daily").write([{"total": 2, "id": 1}], columns_from={**told, "id": ["orders.id"]})

    @registry.task(name="lie")
    async def lie(ctx: weft.Context) -> None:
        await ctx.dataset("lies").write([{"total": 2}], columns_from={"total": ["orders.price"]})

    async with weft.Worker(client=await make_remote(role="worker"), registry=registry):
        for handler, params in (("write", {"price": 1}), ("write", {"price": 2}), ("sum", {})):
            await client.wait((await client.enqueue(handler, params)).id, timeout=60)
        lying = await client.enqueue("lie", max_attempts=1)
        with pytest.raises(weft.TaskFailed, match="has not read orders; it has read nothing so far"):
            await client.wait(lying.id, timeout=60)
    far = await make_remote(role="admin")
    for root in ("orders.price", "daily.total", "daily", "daily@1.1", "orders@1.2"):
        assert await far.datasets.lineage(root) == await client.datasets.lineage(root)
    found = await far.datasets.lineage("orders.price", direction="down")
    assert [place.name for place in found.places] == ["orders.price", "daily.total"]
    assert await far.datasets.diff("orders") == await client.datasets.diff("orders")
    for key in (None, ["id"]):
        rows = await far.datasets.diff_rows("orders", key=key)
        assert rows == await client.datasets.diff_rows("orders", key=key)
    assert rows.rows == (weft.RowChange("changed", {"id": 1, "price": 1}, {"id": 1, "price": 2}),)
