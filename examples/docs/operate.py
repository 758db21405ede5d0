"""Asks why a task does not run."""

import asyncio

import weft


# docs: begin why
async def complain_of(client: weft.Client, task_id: int) -> None:
    found = await client.why(task_id)
    if found.advice is not None:
        print(f"task {task_id}: {found.text}; {found.advice}")


# docs: end why


@weft.task(name="known")
async def known() -> None: ...


async def main() -> None:
    async with weft.Client() as client:
        later = await client.enqueue(known, delay=60)
        print((await client.why(later.id)).text)
        now = await client.enqueue(known)
        await complain_of(client, now.id)
        await client.pause_queue("default")
        await complain_of(client, now.id)
        await client.resume_queue("default")
        async with weft.Worker(client=client):
            await client.wait(now.id, timeout=30)
        print((await client.why(now.id)).text)


if __name__ == "__main__":
    asyncio.run(main())
