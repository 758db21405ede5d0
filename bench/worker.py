"""One worker process of the benchmarks: ``python -m bench.worker URL CONCURRENCY [COUNT] [QUEUE]``.

The address is that of a database, or of a server, with its token in WEFT_TOKEN.
"""

import asyncio
import os
import signal
import sys

import uvloop

import bench.app
import weft


async def main(url: str, concurrency: int, count: int, queue: str) -> None:
    """Work until SIGTERM; with a count, as so many workers on one loop."""
    done = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, done.set)
    async with weft.RemoteClient(url) if url.startswith("http") else weft.Client(url) as client:
        workers = [weft.Worker(client=client, concurrency=concurrency, queues=[queue]) for _ in range(count)]
        for worker in workers:
            await worker.start()
        print("ready", flush=True)
        await done.wait()
        await asyncio.gather(*(worker.stop() for worker in workers))


if __name__ == "__main__":
    assert bench.app.noop is not None
    os.environ.setdefault("WEFT_HOME", "/tmp/weft-bench-home")
    uvloop.run(
        main(
            sys.argv[1],
            int(sys.argv[2]),
            int(sys.argv[3]) if len(sys.argv) > 3 else 1,
            sys.argv[4] if len(sys.argv) > 4 else "default",
        )
    )
