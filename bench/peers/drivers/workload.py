"""The two workloads that every peer runs in the same way."""

import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import ClassVar, NamedTuple

from inbox import Inbox

WARM_UP_TASKS = 5
IDLE_GAP_S = (0.03, 0.13)
PICKUP_TIMEOUT_S = 30.0  # of one task, start of the worker included
STOP_GRACE_S = 10.0
LOG_TAIL_BYTES = 3_000


class Drained(NamedTuple):
    """What a peer's store says of a backlog that was worked off."""

    completed: int
    seconds: float


class Peer(ABC):
    """One queue system with one setting. The database named by ``url`` is new and empty."""

    distribution: ClassVar[str]
    setting: ClassVar[str]
    poll_s: ClassVar[float] = 0.5
    """How often the store is asked whether the backlog is gone."""

    def __init__(self, url: str) -> None:
        self.url = url

    @abstractmethod
    def install(self) -> None:
        """Create the peer's schema."""

    @abstractmethod
    def worker_command(self) -> list[str]:
        """The command that runs one worker process."""

    @abstractmethod
    def enqueue(self, count: int) -> None:
        """Enqueue ``count`` no-op tasks in the fastest documented way."""

    @abstractmethod
    def enqueue_stamp(self, sent_ns: int) -> None:
        """Enqueue one task that calls ``tell(sent_ns)``."""

    @abstractmethod
    def analyze(self) -> None:
        """Run ``ANALYZE`` on the database."""

    @abstractmethod
    def is_drained(self, count: int) -> bool:
        """Whether all ``count`` tasks are finished. Must be cheap: it runs beside the worker."""

    @abstractmethod
    def drained(self, inbox: Inbox) -> Drained:
        """Completed tasks, and seconds from the first start to the last completion."""


def drain(peer: Peer, tasks: int, timeout: float) -> dict[str, float]:
    """Enqueue with no worker running, then time one worker process on the backlog."""
    started = time.perf_counter()
    peer.enqueue(tasks)
    enqueue_s = time.perf_counter() - started
    peer.analyze()
    with Inbox() as inbox, running(peer.worker_command()) as worker:
        wait_until(lambda: peer.is_drained(tasks), worker, timeout, peer.poll_s)
        outcome = peer.drained(inbox)
    if outcome.completed != tasks:
        raise RuntimeError(f"{outcome.completed} of {tasks} tasks completed")
    return {"enqueue_per_s": tasks / enqueue_s, "tasks_per_s": tasks / outcome.seconds}


def pickup(peer: Peer, samples: int, timeout: float) -> dict[str, float]:
    """Send one task at a time to an idle worker; time it from just before enqueue to the start of its handler."""
    with Inbox() as inbox, running(peer.worker_command()):
        deadline = time.monotonic() + timeout
        for _ in range(WARM_UP_TASKS):
            send_stamp(peer, inbox, deadline)
        waits = []
        for _ in range(samples):
            time.sleep(random.uniform(*IDLE_GAP_S))
            waits.append(send_stamp(peer, inbox, deadline))
    percentiles = statistics.quantiles(waits, n=100, method="inclusive")
    return {f"pickup_p{percent}_ms": percentiles[percent - 1] for percent in (50, 95, 99)}


def send_stamp(peer: Peer, inbox: Inbox, deadline: float) -> float:
    """Return the milliseconds one task waited. A second report of an earlier task is skipped."""
    sent_ns = time.time_ns()
    peer.enqueue_stamp(sent_ns)
    while True:
        told_ns, started_ns = inbox.receive(min(PICKUP_TIMEOUT_S, max(0.001, deadline - time.monotonic())))
        if told_ns == sent_ns:
            return (started_ns - sent_ns) / 1e6


@contextmanager
def running(command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """Run a worker in a session of its own, and end it. When the block fails, the tail of its log goes to stderr."""
    here = Path(__file__).parent
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=here,
            env={**os.environ, "PYTHONPATH": str(here)},
            start_new_session=True,
        )
        try:
            yield process
        except Exception:
            log.seek(max(0, log.seek(0, os.SEEK_END) - LOG_TAIL_BYTES))
            sys.stderr.write(f"--- log of {command[0]}, worker {process.pid}\n{log.read().decode(errors='replace')}\n")
            raise
        finally:
            stop(process)


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a process and whatever it left in its session: politely first, then for good."""
    with suppress(ProcessLookupError, subprocess.TimeoutExpired):
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(STOP_GRACE_S)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def wait_until(check: Callable[[], bool], worker: subprocess.Popen[bytes], timeout: float, every: float) -> None:
    """Return once ``check`` holds. Raises when the worker ends before that, or the time is up."""
    deadline = time.monotonic() + timeout
    while not check():
        if worker.poll() is not None:
            raise RuntimeError(f"the worker ended early with status {worker.returncode}")
        if time.monotonic() > deadline:
            raise TimeoutError(f"the backlog was not drained in {timeout:.0f} s")
        time.sleep(every)
