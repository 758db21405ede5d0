"""Pays orders, and asks a person before it pays much.

Shows: `weft.when`, a wait for a person with a form and a time limit, answering it from a program.
Run it: `python approval.py`. From a terminal: `weft jobs approvals`, `weft jobs approve JOB -i reason=…`
"""

import asyncio

import weft


@weft.task
async def add_up(orders: list[int]) -> int:
    return sum(orders)


@weft.task
async def pay(amount: int) -> str:
    return f"paid {amount}"


@weft.workflow
async def pay_orders(orders: list[int], limit: int = 100) -> str:
    amount = await add_up(orders)
    paid = await pay(amount)
    with weft.when(amount > limit):
        asked = weft.wait_for_approval("review", form={"reason": {"type": "string", "required": True}}, timeout=86400)
    asked >> paid
    return paid


async def main() -> None:
    async with weft.Client() as client, weft.Worker(client=client), weft.Orchestrator(client=client):
        small = await client.jobs.submit(pay_orders, {"orders": [10, 20]})
        print((await client.jobs.wait(small.id)).result)

        large = await client.jobs.submit(pay_orders, {"orders": [400, 20]})
        while not (asked := await client.jobs.approvals(large.id)):  # noqa: ASYNC110  a person would see it on a page
            await asyncio.sleep(0.05)
        print(f"{asked[0].node} asks for {', '.join(asked[0].form)}")
        await client.jobs.approve(large.id, "review", {"reason": "known customer"})
        print((await client.jobs.wait(large.id)).result)


if __name__ == "__main__":
    asyncio.run(main())
