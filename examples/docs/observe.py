"""A handler that tells the services it calls which trace it belongs to."""

import asyncio

import weft


# docs: begin traceparent
@weft.task(name="fetch")
async def fetch(path: str, ctx: weft.Context) -> str:
    headers = {"traceparent": ctx.traceparent}  # for whatever it calls
    ctx.logger.info("fetching %s with %s", path, headers)
    return ctx.traceparent


# docs: end traceparent


async def main() -> None:
    async with weft.Client() as client:
        task = await client.enqueue(fetch, {"path": "a.csv"})
        await weft.Worker(client=client).run_until_idle()
        print(await client.wait(task.id))


if __name__ == "__main__":
    asyncio.run(main())
