"""A dataset that one task writes by day, and another reads."""

from __future__ import annotations

import asyncio

import weft


# docs: begin write
@weft.task(name="shop.import_orders")
async def import_orders(day: str, ctx: weft.Context) -> int:
    rows = [{"id": number, "day": day, "price": 2.5 * number} for number in range(1, 4)]
    written: weft.WriteResult = await ctx.dataset("orders").write(rows, partition=day)
    return written.rows


# docs: end write


# docs: begin read
@weft.task(name="shop.summarise")
async def summarise(day: str, ctx: weft.Context) -> float:
    orders = await ctx.dataset("orders").read(partition=day, columns=["price"])
    total: float = sum(orders.column("price").to_pylist())
    await ctx.dataset("daily").write([{"day": day, "total": total}], mode="append", unique_key="day")
    return total


# docs: end read


async def main() -> None:
    async with weft.Client() as client, weft.Worker(client=client):
        for day in ("2026-11-14", "2026-11-15"):
            imported = await client.enqueue(import_orders, {"day": day})
            print("imported", await client.wait(imported.id, timeout=30))
            print("total", await client.wait((await client.enqueue(summarise, {"day": day})).id, timeout=30))
        for each in await client.datasets.list():
            print(each.name, each.rows, [column.name for column in each.columns])


if __name__ == "__main__":
    asyncio.run(main())
