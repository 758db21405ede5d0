"""Prefect: a flow runs in the caller's process and sends the states of its tasks to a server with a file of SQLite."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from flows import Flows, clocked_fib
from processes import free_port, running, wait_until

START_S = 90.0


class Driver(Flows):
    distribution = "prefect"
    setting = "flow in the caller's process; the fan by map on threads"
    keeps = "SQLite file, after the task"

    @contextmanager
    def running(self) -> Iterator[None]:
        port = free_port()
        api = f"http://127.0.0.1:{port}/api"
        os.environ.update(
            PREFECT_HOME=str(self.home),
            PREFECT_API_URL=api,
            PREFECT_SERVER_ANALYTICS_ENABLED="false",
            PREFECT_LOGGING_LEVEL="WARNING",
            DO_NOT_TRACK="1",
        )
        prefect = str(Path(sys.executable).with_name("prefect"))
        with running([prefect, "server", "start", "--host", "127.0.0.1", "--port", str(port)]) as server:
            wait_until(lambda: answers(f"{api}/health"), server, START_S, 0.1)
            self._define()
            yield

    def _define(self) -> None:
        """Define the flows: only now, for on import Prefect reads its settings."""
        from prefect import flow, task

        @task
        def noop(_before: object = None) -> None:
            pass

        @task
        def compute() -> float:
            return clocked_fib()

        @flow
        def chain(tasks: int) -> None:
            for _ in range(tasks):
                noop()

        @flow
        def fan(width: int) -> None:
            noop()
            noop([many.result() for many in noop.map(range(width))])

        @flow
        def fibs(tasks: int) -> float:
            return sum([compute() for _ in range(tasks)])

        self._chain, self._fan, self._fibs = chain, fan, fibs

    def chain(self, tasks: int) -> None:
        self._chain(tasks)

    def fan(self, width: int) -> None:
        self._fan(width)

    def fib(self, tasks: int) -> None:
        self._clocked = self._fibs(tasks)

    def clocked(self) -> float:
        return float(self._clocked)


def answers(address: str) -> bool:
    try:
        with urlopen(address, timeout=1) as answer:
            return bool(answer.status == 200)
    except (URLError, OSError):
        return False
