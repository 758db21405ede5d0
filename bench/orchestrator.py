"""One orchestrator process of the benchmarks: ``python -m bench.orchestrator URL``."""

import asyncio
import os
import signal
import sys

import uvloop

import weft


async def main(url: str) -> None:
    """Advance jobs until SIGTERM."""
    done = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, done.set)
    async with weft.Client(url) as client, weft.Orchestrator(client=client):
        print("ready", flush=True)
        await done.wait()


if __name__ == "__main__":
    os.environ.setdefault("WEFT_HOME", "/tmp/weft-bench-home")
    uvloop.run(main(sys.argv[1]))
