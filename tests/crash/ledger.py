"""A record of what happened that PostgreSQL has no part in: lines appended to files, each by one write.

A handler notes the start and the end of each attempt, a submitter notes what was acknowledged, and a test notes whom it
killed, the server included. Times are those of the machine's monotonic clock, which all its processes share.
"""

from __future__ import annotations

import itertools
import os
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

ACKNOWLEDGED = "acknowledged"
ATTEMPTS = "attempts"
# A worker's children find here whose children they are.
WORKER_VARIABLE = "CRASH_TEST_WORKER"


def append(path: Path, line: str, *, sync: bool = False) -> None:
    """Append one line; what is appended by others at the same time stays whole."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, f"{line}\n".encode())
        if sync:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def note(folder: Path, event: str, task_id: int, attempt: int, tag: str = "-") -> None:
    """Note that an attempt started or ended in this process, or in this child of a worker."""
    pid = os.getpid()
    worker = os.environ.get(WORKER_VARIABLE, pid)
    append(folder / ATTEMPTS, f"{event} {task_id} {attempt} {pid} {worker} {time.monotonic_ns()} {tag}")


def note_death(folder: Path, pid: int) -> None:
    """Note that a worker is gone, and with it whatever ran there."""
    append(folder / ATTEMPTS, f"died 0 0 {pid} {pid} {time.monotonic_ns()} -")


def note_server_loss(folder: Path, at: int) -> None:
    """Note that the server was gone at a time, and with it whatever it had not flushed."""
    append(folder / ATTEMPTS, f"unflushed 0 0 0 0 {at} -")


def acknowledge(folder: Path, task_ids: Iterable[int]) -> None:
    """Note that tasks were acknowledged, on the disk before this returns."""
    append(folder / ACKNOWLEDGED, " ".join(map(str, task_ids)), sync=True)


@dataclass(slots=True)
class Span:
    """One attempt as the ledger saw it; without an end it was cut off."""

    task_id: int
    attempt: int
    pid: int
    worker: int
    tag: str
    began: int
    ended: int | None = None
    cut: int | None = None


@dataclass
class Ledger:
    """What the files of a folder tell."""

    acknowledged: set[int] = field(default_factory=set)
    spans: list[Span] = field(default_factory=list)
    deaths: dict[int, int] = field(default_factory=dict)
    server_losses: list[int] = field(default_factory=list)

    @classmethod
    def read(cls, folder: Path) -> Ledger:
        """Read what was written so far."""
        ledger = cls()
        if (folder / ACKNOWLEDGED).exists():
            ledger.acknowledged = {int(word) for word in (folder / ACKNOWLEDGED).read_text().split()}
        opened: dict[tuple[int, int, int], Span] = {}
        lines = (folder / ATTEMPTS).read_text().splitlines() if (folder / ATTEMPTS).exists() else []
        for line in lines:
            event, *numbers, tag = line.split()
            task_id, attempt, pid, worker, at = map(int, numbers)
            if event == "start":
                span = opened[task_id, attempt, pid] = Span(task_id, attempt, pid, worker, tag, at)
                ledger.spans.append(span)
            elif event == "end":
                opened[task_id, attempt, pid].ended = at
            elif event == "unflushed":
                ledger.server_losses.append(at)
            else:
                ledger.deaths[pid] = at
        for span in ledger.spans:
            death = ledger.deaths.get(span.worker, 0)
            if span.ended is None and death >= span.began:
                span.cut = death
        return ledger

    def attempts_of(self, task_id: int) -> list[Span]:
        """Return the attempts of one task in the order of their start."""
        return sorted((span for span in self.spans if span.task_id == task_id), key=lambda span: span.began)

    def granted_twice(self) -> list[tuple[int, int]]:
        """Return each task and attempt that was begun more than once: a fence that two hold.

        A server that is lost may forget a claim (decision 0015) and grant its number again, but to another worker.
        """
        begun: dict[tuple[int, int], list[Span]] = defaultdict(list)
        for span in sorted(self.spans, key=lambda span: span.began):
            begun[span.task_id, span.attempt].append(span)
        return [fence for fence, spans in begun.items() if not self._were_forgotten(spans)]

    def _were_forgotten(self, spans: list[Span]) -> bool:
        """Whether each of these attempts but the last was another worker's, and the server was lost after it began."""
        return len({span.worker for span in spans}) == len(spans) and all(
            any(earlier.began < at < later.began for at in self.server_losses)
            for earlier, later in itertools.pairwise(spans)
        )

    def most_at_once(self) -> dict[str, int]:
        """Return for each tag how many attempts ran at the same time at most."""
        changes: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for span in self.spans:
            changes[span.tag].append((span.began, 1))
            over = span.ended if span.ended is not None else span.cut
            if over is not None:
                changes[span.tag].append((over, -1))
        most = {}
        for tag, steps in changes.items():
            running = peak = 0
            for _, step in sorted(steps):
                running += step
                peak = max(peak, running)
            most[tag] = peak
        return most

    def overlapping(self) -> list[tuple[Span, Span]]:
        """Return pairs of attempts of one task that ran at the same time, those of processes that died not counted."""
        by_task: dict[int, list[Span]] = defaultdict(list)
        for span in self.spans:
            by_task[span.task_id].append(span)
        pairs = []
        for spans in by_task.values():
            spans.sort(key=lambda span: span.began)
            for index, earlier in enumerate(spans):
                over = earlier.ended if earlier.ended is not None else earlier.cut
                for later in spans[index + 1 :]:
                    if over is None or later.began < over:
                        pairs.append((earlier, later))
        return pairs
