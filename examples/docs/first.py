import asyncio

import weft


@weft.task(name="greet")
async def greet(name: str) -> str:
    return f"Hello, {name}!"


async def main() -> None:
    async with weft.Client() as client, weft.Worker(client=client):
        task = await client.enqueue(greet, {"name": "Ada"})
        print(await client.wait(task.id, timeout=30))


if __name__ == "__main__":
    asyncio.run(main())
