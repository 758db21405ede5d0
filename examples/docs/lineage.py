"""Datasets that say what their columns are made of: by hand, and by the SQL that makes them."""

from __future__ import annotations

import asyncio

import weft


# docs: begin said
@weft.task(name="shop.take_orders")
async def take_orders(ctx: weft.Context) -> None:
    rows = [{"id": number, "price": 2.5 * number, "quantity": 2} for number in range(1, 4)]
    await ctx.dataset("orders").write(rows)


@weft.task(name="shop.total")
async def total(ctx: weft.Context) -> None:
    orders = (await ctx.dataset("orders").read()).to_pylist()
    rows = [{"total": sum(each["price"] * each["quantity"] for each in orders)}]
    await ctx.dataset("totals").write(rows, columns_from={"total": ["orders.price", "orders.quantity"]})


# docs: end said


# docs: begin sql
@weft.task(name="shop.largest")
def largest(ctx: weft.Context) -> None:
    import duckdb

    orders = ctx.dataset("orders").read()
    sql = "select id, price * quantity as worth from orders order by worth desc limit 1"
    told = weft.columns_of_query(sql, {"orders": orders.column_names})
    columns_from = None if isinstance(told, weft.Untold) else told
    ctx.dataset("largest").write(duckdb.sql(sql), columns_from=columns_from)


# docs: end sql


async def main() -> None:
    async with weft.Client() as client, weft.Worker(client=client):
        for handler in (take_orders, total, largest):
            await client.wait((await client.enqueue(handler)).id, timeout=60)
        # docs: begin look
        lineage = await client.datasets.lineage("orders.price", direction="down")
        print([place.name for place in lineage.places], lineage.is_cut)
        # docs: end look


if __name__ == "__main__":
    asyncio.run(main())
