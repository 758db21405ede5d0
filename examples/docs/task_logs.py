"""What a task prints and logs goes to a file of its own."""

import asyncio
import logging

import weft

logger = logging.getLogger("shop")


# docs: begin handler
@weft.task(name="stock:count")
async def count(shelf: str, ctx: weft.Context) -> int:
    print("counting", shelf)
    logger.warning("shelf %s is nearly empty", shelf)
    ctx.logger.info("attempt %s of task %s", ctx.attempt, ctx.task_id)
    return 3


# docs: end handler


async def main() -> None:
    async with weft.Client() as client:
        task = await client.enqueue(count, {"shelf": "B2"})
        async with weft.Worker(client=client):
            await client.wait(task.id, timeout=30)
        print(task.id)


if __name__ == "__main__":
    asyncio.run(main())
