"""A test of a handler through the queue: work until nothing is ready, then look."""

import asyncio

import weft


@weft.task(name="sum")
async def add(a: int, b: int) -> int:
    return a + b


# docs: begin test
async def test_it_adds() -> None:
    assert await add(1, 2) == 3  # a handler is still the function that it decorates
    async with weft.Client() as client:
        handle = await client.enqueue(add, {"a": 1, "b": 2})
        await weft.Worker(client=client).run_until_idle()
        assert (await client.get_task(handle.id)).output == 3


# docs: end test

if __name__ == "__main__":
    asyncio.run(test_it_adds())
    print("ok")
