"""One server process of the benchmarks: ``python -m bench.serve URL PORT``."""

import asyncio
import os
import signal
import sys

import uvloop

import weft
from weft.server.serving import Server


async def main(url: str, port: int) -> None:
    """Answer over HTTP until SIGTERM."""
    done = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, done.set)
    async with Server(weft.Settings.load(database_url=url), port=port):
        print("ready", flush=True)
        await done.wait()


if __name__ == "__main__":
    os.environ.setdefault("WEFT_HOME", "/tmp/weft-bench-home")
    uvloop.run(main(sys.argv[1], int(sys.argv[2])))
