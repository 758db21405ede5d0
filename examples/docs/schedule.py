"""Later, sooner, in bulk."""

import asyncio
from datetime import UTC, datetime, timedelta

import weft


@weft.task(name="note")
async def note(text: str) -> str:
    return text


async def main() -> None:
    async with weft.Client() as client:
        # docs: begin later
        await client.enqueue(note, {"text": "in a minute"}, delay=60)
        await client.enqueue(note, {"text": "tomorrow"}, run_at=datetime.now(UTC) + timedelta(days=1))
        # docs: end later

        # docs: begin priority
        low = await client.enqueue(note, {"text": "whenever"})
        high = await client.enqueue(note, {"text": "now"}, priority=10)  # higher first, then oldest first
        # docs: end priority

        # docs: begin many
        handles = await client.enqueue_many(weft.NewTask(note, {"text": f"line {n}"}, priority=-1) for n in range(1000))
        # docs: end many

        await weft.Worker(client=client, concurrency=1).run_until_idle()
        low_at, high_at = [(await client.get_task(handle.id)).claimed_at for handle in (low, high)]
        assert low_at is not None
        assert high_at is not None
        print(high_at < low_at, len(handles))
        print(sorted((await client.queues())[0].tasks.items()))  # [('scheduled', 2)]


if __name__ == "__main__":
    asyncio.run(main())
