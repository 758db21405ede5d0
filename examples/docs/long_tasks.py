"""Timeouts, heartbeats, cancellation, and work that must be killable."""

import asyncio
import time

import weft


# docs: begin timeout
@weft.task(name="page:fetch", timeout=0.2, retry=0)
async def fetch(url: str) -> str:
    await asyncio.sleep(60)  # cancelled where it waits, after 0.2 s
    return url


# docs: end timeout


# docs: begin process
@weft.task(name="video:encode", executor="process", timeout=0.5, retry=0)
def encode(path: str) -> None:
    while True:  # no thread could be ended here; the process is killed
        pass


# docs: end process


# docs: begin heartbeat
@weft.task(name="backup:copy", heartbeat_timeout=60)
def copy(blocks: int, ctx: weft.Context) -> int:
    for block in range(blocks):
        if ctx.is_cancelled:
            return block
        time.sleep(0.01)  # stands for copying one block
        ctx.heartbeat()
    return blocks


# docs: end heartbeat


async def main() -> None:
    async with weft.Client() as client, weft.Worker(client=client):
        for handler, params in ((fetch, {"url": "https://example.com"}), (encode, {"path": "film.mkv"})):
            task = await client.enqueue(handler, params)
            try:
                await client.wait(task.id, timeout=30)
            except weft.TaskFailed as problem:
                print(problem.state, (await client.get_task(task.id)).reason)
        print(await client.wait((await client.enqueue(copy, {"blocks": 3})).id, timeout=30))

        # docs: begin cancel
        task = await client.enqueue(copy, {"blocks": 1_000_000})
        await client.cancel(task.id, reason="the customer changed her mind")
        # docs: end cancel
        print((await client.get_task(task.id)).state)


if __name__ == "__main__":
    asyncio.run(main())
