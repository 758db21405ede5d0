"""Finish a task in the transaction that does its work, so that the work is done exactly once in this database."""

import asyncio
import os

import asyncpg

import weft

URL = os.environ["WEFT_DATABASE_URL"]


# docs: begin handler
@weft.task(name="account:credit")
async def credit(account: int, amount: int, ctx: weft.Context) -> None:
    conn = await asyncpg.connect(URL)
    try:
        async with conn.transaction():
            balance = await conn.fetchval(
                "update account set balance = balance + $2 where id = $1 returning balance", account, amount
            )
            await ctx.complete_in(conn, {"balance": balance})  # raises weft.LeaseLost: everything is rolled back
    finally:
        await conn.close()


# docs: end handler


async def main() -> None:
    conn = await asyncpg.connect(URL)
    await conn.execute("create table account (id int primary key, balance int not null)")
    await conn.execute("insert into account values (1, 0)")
    await conn.close()
    async with weft.Client() as client:
        tasks = [await client.enqueue(credit, {"account": 1, "amount": 5}) for _ in range(3)]
        async with weft.Worker(client=client):
            outputs = [await client.wait(task.id, timeout=30) for task in tasks]
        print(max(output["balance"] for output in outputs))  # 15


if __name__ == "__main__":
    asyncio.run(main())
