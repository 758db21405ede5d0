"""Puts jobs together from tasks and groups, lets them grow, and lets tasks make further tasks."""

import asyncio

import weft
from weft.orchestration import (
    Group,
    JobStatus,
    OrchContext,
    create_job,
    create_task,
    get_current_context,
    run_job_test,
)


# docs: begin functions
async def extract(table: str) -> str:
    print(f"extract {table}")
    return table


async def report() -> str:
    return "all is loaded"


# docs: end functions


# docs: begin grow
async def split(parts: int) -> None:
    """Add tasks to the job that this one is part of."""
    tasks = [create_task(extract, {"table": f"part-{number}"}) for number in range(parts)]
    await get_current_context().apply(tasks)


# docs: end grow


# docs: begin spawn
@weft.task(name="sizes.measure")
async def measure(path: str) -> int:
    return len(path)


@weft.task(name="sizes.total")
async def total(paths: list[str], ctx: weft.Context) -> int:
    parts = [await ctx.spawn("sizes.measure", {"path": path}, key=path) for path in paths]
    return sum(await ctx.gather(*parts))


# docs: end spawn


async def main() -> None:
    # docs: begin graph
    async with OrchContext() as ctx:
        orders, customers = (create_task(extract, {"table": name}) for name in ("orders", "customers"))
        sources, done = Group(name="sources"), create_task(report)
        sources.add(orders, customers)
        sources >> done

        job = await create_job("nightly", done)
        await ctx.apply(create_task(extract, {"table": "prices"}, group=sources), job_id=job.id)
        run_job_test(job)
        print(job.status, job.result)
    # docs: end graph
    assert job.status == JobStatus.COMPLETED

    job = run_job_test(await create_job("growing", create_task(split, {"parts": 2})))
    print(job.status)

    async with weft.Client() as client, weft.Worker(client=client), weft.Orchestrator(client=client):
        spawned = await create_job("sizes", create_task(total, {"paths": ["a.tif", "lake.tif"]}))
        print((await client.jobs.wait(spawned.id, timeout=30)).result)


if __name__ == "__main__":
    asyncio.run(main())
