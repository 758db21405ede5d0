"""A worker inside a program of one's own, stopped by a signal."""

import asyncio
import signal

import weft


@weft.task(name="tick")
async def tick(n: int) -> int:
    return n


# docs: begin main
async def main() -> None:
    async with weft.Client() as client:
        worker = weft.Worker(client=client, queues=["default", "mail"], concurrency=20)
        await worker.start()
        loop, stopped = asyncio.get_running_loop(), asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stopped.set)
        print("working", flush=True)
        await stopped.wait()
        await worker.stop(grace=30)  # claims stop at once, running tasks have 30 s
    print("stopped")


# docs: end main

if __name__ == "__main__":
    asyncio.run(main())
