"""Hands a workflow in to workers that run elsewhere, watches it, and takes its result."""

import asyncio

from flows import sales, with_tax  # type: ignore[import-not-found]

import weft


async def main() -> None:
    # docs: begin submit
    job = await weft.submit(sales, shop="wien")
    async for node in job.watch():
        print(node.node, node.state, dict(node.items))
    try:
        print(await job.result(timeout=60))
    except weft.JobFailed as problem:
        print(problem.node, problem.error)
    # docs: end submit


async def with_a_worker() -> None:
    async with weft.Client() as client, weft.Worker(client=client), weft.Orchestrator(client=client):
        assert with_tax(100, 20) == 120  # a task is still the function that it decorates
        await main()


if __name__ == "__main__":
    asyncio.run(with_a_worker())
