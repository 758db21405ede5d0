"""Dask: the scheduler and its worker keep tasks and results in memory."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from distributed import Client, LocalCluster
from flows import Flows, clocked_fib

THREADS = os.cpu_count() or 1


def noop(*_before: object) -> None:
    pass


def compute(*_before: object) -> float:
    return clocked_fib()


class Driver(Flows):
    distribution = "distributed"
    setting = f"one worker process, {THREADS} threads"
    keeps = "in memory"

    @contextmanager
    def running(self) -> Iterator[None]:
        cluster = LocalCluster(
            n_workers=1, threads_per_worker=THREADS, dashboard_address=None, local_directory=str(self.home)
        )
        with cluster, Client(cluster) as self._client:
            yield

    def chain(self, tasks: int) -> None:
        last = self._client.submit(noop, pure=False)
        for _ in range(tasks - 1):
            last = self._client.submit(noop, last, pure=False)
        last.result()

    def fan(self, width: int) -> None:
        first = self._client.submit(noop, pure=False)
        many = self._client.map(noop, [first] * width, pure=False)
        self._client.submit(noop, many, pure=False).result()

    def fib(self, tasks: int) -> None:
        self._tasks = [self._client.submit(compute, pure=False)]
        for _ in range(tasks - 1):
            self._tasks.append(self._client.submit(compute, self._tasks[-1], pure=False))
        self._tasks[-1].result()

    def clocked(self) -> float:
        return float(sum(self._client.gather(self._tasks)))
