"""A first script: a durable task and the worker that runs it, on the embedded PostgreSQL, in one file."""

import asyncio

import weft


@weft.task
async def greet(name: str) -> str:
    return f"Hello, {name}!"


async def main() -> None:
    async with weft.Client() as client:
        task = await client.enqueue(greet, {"name": "Ada"})
        await weft.Worker(client=client).run_until_idle()
        print(await client.wait(task.id))


if __name__ == "__main__":
    asyncio.run(main())
