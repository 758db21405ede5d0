"""Asks what a job waits for, and follows what happens in it."""

import asyncio

import weft


@weft.task(name="greet")
async def greet(name: str) -> str:
    return f"Hello, {name}!"


DEFINITION = {
    "workflow_id": "greetings",
    "nodes": {
        "START": {"type": "start", "next": "greet"},
        "greet": {"handler": "greet", "params": {"name": "Ada"}, "next": "END"},
        "END": {"type": "end", "output": "{{ nodes.greet.output }}"},
    },
}


async def main() -> None:
    async with weft.Client() as client:
        job = await client.jobs.submit(DEFINITION)
        # docs: begin why
        for each in await client.jobs.why(job.id):
            print(each.node, each.cause, each.text, each.advice)
        # docs: end why
        async with weft.Worker(client=client), weft.Orchestrator(client=client):
            # docs: begin events
            async for event in client.jobs.follow(job.id):
                print(event.at, event.node, event.type, dict(event.data))
            page = await client.jobs.events(job.id, limit=100)
            page = await client.jobs.events(job.id, after=page.cursor)
            print(page.is_last)
            # docs: end events


asyncio.run(main())
