"""The three shapes of workflow that every workflow system runs in the same way."""

import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import ClassVar, NoReturn

SHAPES = ("chain", "fan", "fib")
WARM_UP_TASKS = 2
FIB = 10


class Flows(ABC):
    """One workflow system with one setting. The database named by ``url`` and the folder ``home`` are new and empty.

    Each shape returns when the peer has told its caller that the whole workflow has ended.
    """

    distribution: ClassVar[str]
    setting: ClassVar[str]
    keeps: ClassVar[str]
    """Where the state of a running workflow is."""

    def __init__(self, url: str, home: Path, count: int) -> None:
        self.url = url
        self.home = home
        self.count = count
        """The tasks of the shape that is measured, for peers that must know a workflow before they start."""

    @abstractmethod
    def running(self) -> AbstractContextManager[None]:
        """Start what the peer needs, servers and one worker; and end it."""

    @abstractmethod
    def chain(self, tasks: int) -> None:
        """Run so many no-op tasks, each of which starts after the one before."""

    @abstractmethod
    def fan(self, width: int) -> None:
        """Run one no-op task, then so many at once, then one."""

    @abstractmethod
    def fib(self, tasks: int) -> None:
        """Run a chain of tasks, each of which returns `clocked_fib`."""

    @abstractmethod
    def clocked(self) -> float:
        """The sum of what the tasks of the last `fib` returned."""


def clocked_fib() -> float:
    """Compute inside a task; return the seconds that it took."""
    began = time.perf_counter()
    fib(FIB)
    return time.perf_counter() - began


def fib(n: int) -> int:
    return n if n < 2 else fib(n - 1) + fib(n - 2)


def measure(flows: Flows, shape: str, timeout: float) -> dict[str, float]:
    """Time one shape from just before it is submitted to its end, on a peer that has run a small one before."""
    act = {"chain": flows.chain, "fan": flows.fan, "fib": flows.fib}[shape]
    with flows.running():
        act(WARM_UP_TASKS)
        with deadline(timeout):
            began = time.perf_counter()
            act(flows.count)
            seconds = time.perf_counter() - began
        match shape:
            case "chain":
                return {"hop_ms": 1000 * seconds / flows.count}
            case "fan":
                return {"fan_s": seconds}
            case _:
                return {"fib_overhead_s": seconds - flows.clocked()}


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Raise `TimeoutError` in the block when it takes too long."""

    def late(_number: int, _frame: object) -> NoReturn:
        raise TimeoutError(f"no end after {seconds:.0f} s")

    signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
