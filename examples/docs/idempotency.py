"""The same request, many times: one task. The same call to the outside, many times: one effect."""

import asyncio

import weft


# docs: begin outside
@weft.task(name="card:charge")
async def charge(order: str, cents: int, ctx: weft.Context) -> str:
    # Sent as the `Idempotency-Key` of the payment service, it is the same in every attempt of this task.
    return ctx.idempotency_key


# docs: end outside


async def main() -> None:
    async with weft.Client() as client:
        # docs: begin one
        first = await client.enqueue(charge, {"order": "o-1", "cents": 500}, idempotency_key="o-1")
        second = await client.enqueue(charge, {"order": "o-1", "cents": 500}, idempotency_key="o-1")
        print(first.created, second.created, first.id == second.id)  # True False True
        # docs: end one

        # docs: begin many
        orders = ["o-1", "o-2", "o-2"]
        handles = await client.enqueue_many(
            weft.NewTask(charge, {"order": order, "cents": 500}, idempotency_key=order) for order in orders
        )
        print([handle.created for handle in handles])  # [False, True, False]
        # docs: end many

        async with weft.Worker(client=client):
            print(await client.wait(first.id, timeout=30))


if __name__ == "__main__":
    asyncio.run(main())
