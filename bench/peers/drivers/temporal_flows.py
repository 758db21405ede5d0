"""Temporal: a development server with a file of SQLite, and a worker process; each task is an activity."""

import asyncio
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

from flows import Flows, clocked_fib
from processes import LEAST_USER, free_port, is_root, running
from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

ADDRESS = "PEER_TEMPORAL"
QUEUE = "bench"
PATIENCE = timedelta(seconds=60)
START_S = 60.0


@activity.defn
async def noop() -> None:
    pass


@activity.defn
async def compute() -> float:
    return clocked_fib()


@workflow.defn
class Chain:
    @workflow.run
    async def run(self, tasks: int) -> None:
        for _ in range(tasks):
            await workflow.execute_activity(noop, start_to_close_timeout=PATIENCE)


@workflow.defn
class Fan:
    @workflow.run
    async def run(self, width: int) -> None:
        await workflow.execute_activity(noop, start_to_close_timeout=PATIENCE)
        many = [workflow.execute_activity(noop, start_to_close_timeout=PATIENCE) for _ in range(width)]
        await asyncio.gather(*many)
        await workflow.execute_activity(noop, start_to_close_timeout=PATIENCE)


@workflow.defn
class Fibs:
    @workflow.run
    async def run(self, tasks: int) -> float:
        total = 0.0
        for _ in range(tasks):
            total += await workflow.execute_activity(compute, start_to_close_timeout=PATIENCE)
        return total


async def work() -> None:
    """The worker process."""
    client = await Client.connect(os.environ[ADDRESS])
    # Its sandbox loads each workflow's module anew; without it Temporal is faster.
    runner = UnsandboxedWorkflowRunner()
    flows, activities = [Chain, Fan, Fibs], [noop, compute]
    await Worker(client, task_queue=QUEUE, workflows=flows, activities=activities, workflow_runner=runner).run()


class Driver(Flows):
    distribution = "temporalio"
    setting = "development server, worker defaults, no sandbox"
    keeps = "SQLite file"

    @contextmanager
    def running(self) -> Iterator[None]:
        port = free_port()
        os.environ[ADDRESS] = f"127.0.0.1:{port}"
        server = [str(Path(sys.executable).with_name("temporal")), "server", "start-dev", "--headless"]
        server += ["--ip", "127.0.0.1", "--port", str(port), "--log-level", "error"]
        server += ["--db-filename", str(self.home / "temporal.db")]
        if is_root():
            shutil.chown(self.home, LEAST_USER)
        worker = [sys.executable, "-c", "import asyncio, temporal_flows; asyncio.run(temporal_flows.work())"]
        # The server's program is packaged by a third party.
        with asyncio.Runner() as self._loop, running(server, {"HOME": str(self.home)}, least_user=True):
            self._client = self._loop.run(connected())
            with running(worker):
                yield

    def chain(self, tasks: int) -> None:
        self._execute(Chain.run, tasks)

    def fan(self, width: int) -> None:
        self._execute(Fan.run, width)

    def fib(self, tasks: int) -> None:
        self._clocked = self._execute(Fibs.run, tasks)

    def clocked(self) -> float:
        return float(self._clocked)

    def _execute(self, flow: object, size: int) -> object:
        return self._loop.run(self._client.execute_workflow(flow, size, id=uuid4().hex, task_queue=QUEUE))


async def connected() -> Client:
    """Return a client, once the server listens."""
    async with asyncio.timeout(START_S):
        while True:
            try:
                return await Client.connect(os.environ[ADDRESS])
            except RuntimeError:
                await asyncio.sleep(0.05)
