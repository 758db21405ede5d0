"""DBOS: a workflow runs in the caller's process, and the result of each step is a row."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from dbos import DBOS
from dbos_driver import launch
from flows import Flows, clocked_fib


@DBOS.step()
def noop() -> None:
    pass


@DBOS.step()
async def noop_of_many() -> None:
    pass


@DBOS.step()
def compute() -> float:
    return clocked_fib()


@DBOS.workflow()
def chain(tasks: int) -> None:
    for _ in range(tasks):
        noop()


@DBOS.workflow()
async def fan(width: int) -> None:
    await noop_of_many()
    await asyncio.gather(*[noop_of_many() for _ in range(width)])
    await noop_of_many()


@DBOS.workflow()
def fibs(tasks: int) -> float:
    return sum([compute() for _ in range(tasks)])


class Driver(Flows):
    distribution = "dbos"
    setting = "steps in the caller's process; the fan by asyncio.gather"
    keeps = "PostgreSQL"

    @contextmanager
    def running(self) -> Iterator[None]:
        launch()
        # One loop for all: DBOS keeps the threads of the first it meets.
        with asyncio.Runner() as self._loop:
            try:
                yield
            finally:
                DBOS.destroy()

    def chain(self, tasks: int) -> None:
        chain(tasks)

    def fan(self, width: int) -> None:
        self._loop.run(fan(width))

    def fib(self, tasks: int) -> None:
        self._clocked = fibs(tasks)

    def clocked(self) -> float:
        return self._clocked
