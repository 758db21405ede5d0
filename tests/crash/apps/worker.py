"""A worker as a process of its own; it tells on its standard output when it is ready, and ends with its parent."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import resource
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import uvloop

import weft
from crash import ledger
from weft.core.settings import Settings


async def main(config: dict[str, Any]) -> None:
    """Work until SIGTERM."""
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, _tell_what_is_awaited)
    async with weft.Client(settings=Settings.load(environ={}, **config["settings"])) as client:
        worker: weft.Worker = weft.Orchestrator(client=client)
        if not config.get("orchestrates"):
            worker = weft.Worker(
                client=client, queues=config["queues"], concurrency=config["concurrency"], app_modules=config["modules"]
            )
        await worker.start()
        os.write(1, b"ready\n")
        running = asyncio.create_task(worker.run())
        stop = asyncio.create_task(stopping.wait())
        await asyncio.wait([running, stop], return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            running.result()
        await worker.stop(grace=config["grace"])
        with contextlib.suppress(asyncio.CancelledError):
            await running
        process = worker.process
        ledger.append(
            Path(config["folder"]) / "stopped", f"{os.getpid()} {process.completed} {process.failed} {process.fenced}"
        )


def _tell_what_is_awaited() -> None:
    for task in asyncio.all_tasks():
        task.print_stack(file=sys.__stderr__)


def _end_with_parent() -> None:
    # Not by way of sys.stdin, whose lock would be held when the interpreter ends.
    while os.read(0, 1024):
        pass
    os._exit(1)


if __name__ == "__main__":
    config = json.loads(sys.argv[1])
    os.environ[ledger.WORKER_VARIABLE] = str(os.getpid())
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s")
    # Each try to reach PostgreSQL: tests count them.
    logging.getLogger("weft.worker").setLevel(logging.DEBUG)
    if config["memory"] is not None:
        resource.setrlimit(resource.RLIMIT_AS, (config["memory"], config["memory"]))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for module in config["modules"]:
        __import__(module)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(config))
