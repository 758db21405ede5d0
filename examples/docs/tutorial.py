"""The tutorial of the README: a task fails, lands in the dead letter, and is sent round again."""

# docs: begin handler
import asyncio
from pathlib import Path

import weft


@weft.task(name="report:total", retry=weft.Retry(max_attempts=2, initial_delay=0.2))
def total(path: str) -> float:
    print("reading", path)
    return sum(float(line) for line in Path(path).read_text().split())


# docs: end handler


async def main() -> None:
    async with weft.Client() as client:
        # docs: begin enqueue
        handle = await client.enqueue(total, {"path": "november.csv"}, idempotency_key="november")
        again = await client.enqueue(total, {"path": "november.csv"}, idempotency_key="november")
        print(handle.created, again.created, handle.id == again.id)  # True False True
        # docs: end enqueue

        # docs: begin worker
        async with weft.Worker(client=client, queues=["default"], concurrency=10):
            try:
                await client.wait(handle.id, timeout=30)
            except weft.TaskFailed as problem:
                print(problem)  # task 3816… is dead: FileNotFoundError: [Errno 2] No such file or directory: …
        # docs: end worker

        # docs: begin dead
        task = await client.get_task(handle.id)
        print(task.state, task.failures, [attempt.outcome for attempt in task.attempts])
        for letter in (await client.dead_letters(queue="default")).tasks:
            print(letter.id, letter.handler, letter.reason)
        # docs: end dead

        # docs: begin replay
        Path("november.csv").write_text("12.5\n30\n")
        await client.replay(handle.id)
        async with weft.Worker(client=client):
            print(await client.wait(handle.id, timeout=30))  # 42.5
        # docs: end replay


if __name__ == "__main__":
    asyncio.run(main())
