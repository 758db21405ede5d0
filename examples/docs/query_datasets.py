"""Datasets that are asked by SQL."""

from __future__ import annotations

import asyncio

import weft


# docs: begin ask
async def totals(client: weft.Client) -> None:
    sql = "select day, sum(price) as total from orders group by day order by day"
    async with client.datasets.query(sql) as answer:
        async for row in answer.records():
            print(row["day"], row["total"])


# docs: end ask


@weft.task(name="shop.import_some")
async def import_some(day: str, ctx: weft.Context) -> None:
    await ctx.dataset("orders").write([{"id": 1, "day": day, "price": 15.0}], partition=day)


async def main() -> None:
    async with weft.Client() as client:
        async with weft.Worker(client=client):
            for day in ("2026-11-14", "2026-11-15"):
                await client.wait((await client.enqueue(import_some, {"day": day})).id, timeout=30)
        await totals(client)
        print(await client.datasets.sample("orders", limit=1))


if __name__ == "__main__":
    asyncio.run(main())
