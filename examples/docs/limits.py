"""At most so many tasks at once, in a queue or for a key, over all workers."""

import asyncio

import weft

RUNNING = {"render": 0, "acme": 0}
MOST = {"render": 0, "acme": 0}


async def busy(what: str) -> None:
    RUNNING[what] += 1
    MOST[what] = max(MOST[what], RUNNING[what])
    await asyncio.sleep(0.05)
    RUNNING[what] -= 1


@weft.task(name="render", queue="render")
async def render(page: int) -> None:
    await busy("render")


@weft.task(name="crawl")
async def crawl(page: int) -> None:
    await busy("acme")


async def main() -> None:
    async with weft.Client() as client:
        # docs: begin queue
        await client.create_queue("render")
        await client.limit_queue("render", 4)  # None lifts the limit
        # docs: end queue

        # docs: begin key
        await client.limit_queue("default", 3, per_key=True)  # each key of this queue
        await client.limit_queue("default", 2, key="acme")  # this one key
        await client.enqueue(crawl, {"page": 0}, concurrency_key="acme")
        # docs: end key

        await client.enqueue_many([weft.NewTask(render, {"page": n}) for n in range(20)])
        await client.enqueue_many([weft.NewTask(crawl, {"page": n}, concurrency_key="acme") for n in range(8)])

        # docs: begin look
        for queue in await client.queues():
            print(queue.name, queue.max_running, queue.max_running_per_key, queue.depth, queue.tasks)
            for limit in queue.key_limits:
                print(limit.key, limit.held, "of", limit.max_running)
        # docs: end look

        await weft.Worker(client=client, queues=["default", "render"], concurrency=50).run_until_idle()
        print(MOST, [queue.tasks for queue in await client.queues()])

        # docs: begin pause
        await client.pause_queue("render")  # claims stop, what runs goes on
        await client.resume_queue("render")
        # docs: end pause


if __name__ == "__main__":
    asyncio.run(main())
