"""Params and outputs above the inline limit are kept in the blob storage; nothing changes for the program."""

import asyncio

import weft


@weft.task(name="text:double")
async def double(text: str) -> str:
    return text + text


async def main() -> None:
    async with weft.Client(inline_limit="1KiB", value_limit="1MiB") as client:
        task = await client.enqueue(double, {"text": "x" * 10_000})
        async with weft.Worker(client=client):
            print(len(await client.wait(task.id, timeout=30)))  # 20000
        try:
            await client.enqueue(double, {"text": "x" * 2_000_000})
        except weft.InvalidInput as problem:
            print(problem)  # params: has 2000011 bytes, and may have 1048576


if __name__ == "__main__":
    asyncio.run(main())
