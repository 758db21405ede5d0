"""The two workloads that every queue runs in the same way."""

import random
import statistics
import time
from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple

from inbox import Inbox
from processes import running, wait_until

WARM_UP_TASKS = 5
IDLE_GAP_S = (0.03, 0.13)
PICKUP_TIMEOUT_S = 30.0  # of one task, start of the worker included


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
