"""The queue as plain Python: what every verb must do to every task, one after the other."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

RETRY_DELAY = 250
BEAT = 350
LEASE = 1050
ENDED = ("completed", "failed", "dead", "cancelled")
ADMITTED = ("ready", "running")

Fence = tuple[int, int, int]  # worker, task, attempt


@dataclass
class ModelTask:
    id: int
    queue: int
    priority: int
    key: str | None
    max_attempts: int
    beats: bool
    state: str = "ready"
    reason: str | None = None
    attempt: int = 0
    failures: int = 0
    crashes: int = 0
    generation: int = 0
    worker: int | None = None
    due: int | None = None
    expires: int | None = None
    waiting_on: int = 0

    @property
    def place(self) -> tuple[int, int]:
        return (-self.priority, self.id)

    def observed(self) -> tuple[object, ...]:
        """What the database must tell of it."""
        return (
            self.state, self.reason, self.attempt, self.failures, self.crashes, self.generation, self.worker,
            self.waiting_on,
        )  # fmt: skip


@dataclass
class ModelQueue:
    id: int
    name: str
    paused: bool = False
    limit: int | None = None
    per_key: int | None = None


@dataclass
class ModelWorker:
    id: int
    until: int
    state: Literal["active", "lost", "stopped"] = "active"
    rescued: bool = False


@dataclass
class Model:
    """All there is, and the verbs; nothing happens at the same time here."""

    now: int = 0
    tasks: dict[int, ModelTask] = field(default_factory=dict)
    queues: dict[int, ModelQueue] = field(default_factory=dict)
    workers: dict[int, ModelWorker] = field(default_factory=dict)
    key_limits: dict[tuple[int, str], int] = field(default_factory=dict)
    slots: dict[tuple[int, int], int] = field(default_factory=dict)
    edges: set[tuple[int, int]] = field(default_factory=set)
    granted: list[Fence] = field(default_factory=list)
    completed_by: dict[int, tuple[int, int]] = field(default_factory=dict)
    idempotent: dict[str, int] = field(default_factory=dict)

    # --- looks ---

    def is_live(self, id: int) -> bool:
        return self.tasks[id].state not in ENDED

    def held(self, queue: int, key: str) -> int:
        """How many of a key are admitted."""
        return sum(
            1 for task in self.tasks.values() if (task.queue, task.key) == (queue, key) and task.state in ADMITTED
        )

    def key_limit(self, queue: int, key: str) -> int | None:
        own = self.key_limits.get((queue, key))
        return own if own is not None else self.queues[queue].per_key

    def running(self, worker: int, queue: int) -> int:
        wanted = (worker, queue, "running")
        return sum(1 for task in self.tasks.values() if (task.worker, task.queue, task.state) == wanted)

    def holds(self, fence: Fence, states: tuple[str, ...] = ("running",)) -> bool:
        worker, id, attempt = fence
        task = self.tasks[id]
        return task.worker == worker and task.attempt == attempt and task.state in states

    # --- slots of keys ---

    def ask_for_slot(self, *tasks: ModelTask) -> None:
        """Make ready, in their order, those for which there is a slot; the rest wait for one."""
        for task in sorted(tasks, key=lambda task: task.place):
            task.due = None
            if task.key is None:
                task.state, task.reason = "ready", None
                continue
            most = self.key_limit(task.queue, task.key)
            if most is None or self.held(task.queue, task.key) < most:
                task.state, task.reason = "ready", None
            else:
                task.state, task.reason = "pending", "concurrency_key"

    def park_surplus(self, queue: int, key: str) -> None:
        """Let those wait again that are ready and beyond the limit, the last in line first."""
        most = self.key_limit(queue, key)
        surplus = 0 if most is None else max(0, self.held(queue, key) - most)
        ready = [task for task in self.tasks.values() if (task.queue, task.key, task.state) == (queue, key, "ready")]
        for task in sorted(ready, key=lambda task: task.place, reverse=True)[:surplus]:
            task.state, task.reason = "pending", "concurrency_key"

    def admit(self, queue: int, key: str) -> None:
        """Give free slots to those that wait for them."""
        waiting = [
            task
            for task in self.tasks.values()
            if (task.queue, task.key, task.state, task.reason) == (queue, key, "pending", "concurrency_key")
        ]
        most = self.key_limit(queue, key)
        room = len(waiting) if most is None else max(0, most - self.held(queue, key))
        for task in sorted(waiting, key=lambda task: task.place)[:room]:
            task.state, task.reason = "ready", None

    def freed(self, *tasks: ModelTask) -> None:
        for queue, key in sorted({(task.queue, task.key) for task in tasks if task.key is not None}):
            self.admit(queue, key)

    # --- verbs ---

    def enqueue(self, *tasks: ModelTask) -> None:
        for task in tasks:
            self.tasks[task.id] = task
            if task.due is not None:
                task.state = "scheduled"
            else:
                # Not yet counted as admitted while its slot is asked for.
                task.state = "pending"
        self.ask_for_slot(*(task for task in tasks if task.due is None))

    def lease(self, queue: int, worker: int, wanted: int, running: int) -> int | None:
        """Lease slots of a limited queue and return how many the worker has now."""
        limit = self.queues[queue].limit
        if self.workers[worker].state != "active":
            return 0
        if limit is None:
            return None
        others = [other for other in self.workers if other != worker]
        used = sum(max(self.slots.get((queue, other), 0), self.running(other, queue)) for other in others)
        self.slots[queue, worker] = max(running, min(wanted, limit - used))
        return self.slots[queue, worker]

    def claim(
        self, worker: int, lanes: list[tuple[int, int]], wanted: int, mark: tuple[int, int] | None = None,
        from_head: bool = True,
    ) -> set[int]:  # fmt: skip
        """Claim the best; a room of -1 is one that knows of no limit. A mark is for one lane only."""
        if self.workers[worker].state != "active":
            return set()
        chosen: list[ModelTask] = []
        for queue, room in lanes:
            info = self.queues[queue]
            if info.paused or (info.limit is not None and room < 0):
                continue
            ready = sorted(
                (task for task in self.tasks.values() if task.queue == queue and task.state == "ready"),
                key=lambda task: task.place,
            )
            if mark is not None:
                above = [task for task in ready if task.place > mark]
                ready = above + ([task for task in ready if task.place <= mark] if from_head else [])
            chosen += ready[: wanted if room < 0 else room]
        if mark is None:
            chosen.sort(key=lambda task: task.place)
        for task in chosen[:wanted]:
            task.state, task.reason, task.worker = "running", None, worker
            task.attempt += 1
            task.expires = self.now + BEAT if task.beats else None
            self.granted.append((worker, task.id, task.attempt))
        return {task.id for task in chosen[:wanted]}

    def complete(self, fences: list[Fence]) -> set[int]:
        """Complete and return what did not land."""
        lost, ended = set(), []
        for fence in fences:
            worker, id, attempt = fence
            if self.holds(fence):
                ended.append(self.tasks[id])
            elif not (self.tasks[id].state == "completed" and self.completed_by.get(id) == (worker, attempt)):
                lost.add(id)
        released = []
        for task in ended:
            for prev, next in sorted(self.edges):
                if prev == task.id and self.is_live(next):
                    waiting = self.tasks[next]
                    waiting.waiting_on -= 1
                    if waiting.waiting_on == 0 and waiting.state == "pending":
                        released.append(waiting)
        # What is let go stands in line for the slots that are given back with it: those who wait may come before it.
        self.ask_for_slot(*released)
        for task in ended:
            assert task.worker is not None
            self.completed_by[task.id] = (task.worker, task.attempt)
            task.state = "completed"
        self.freed(*ended)
        return lost

    def postpone(self, fence: Fence, delay: int, counted: bool, reason: str) -> bool:
        if not self.holds(fence):
            return False
        task = self.tasks[fence[1]]
        task.state, task.reason, task.due = "scheduled", reason, self.now + delay
        task.worker = task.expires = None
        task.failures += counted
        self.freed(task)
        return True

    def end(self, fence: Fence, state: str, reason: str = "error") -> bool:
        if not self.holds(fence):
            return False
        task = self.tasks[fence[1]]
        task.state, task.reason = state, reason
        task.failures += 1
        self.freed(task)
        return True

    def hand_back(self, fence: Fence) -> bool:
        if not self.holds(fence):
            return False
        task = self.tasks[fence[1]]
        task.state, task.worker, task.expires = "ready", None, None
        return True

    def cancel(self, id: int) -> bool:
        task = self.tasks[id]
        if not self.is_live(id):
            return False
        had_slot = task.state in ADMITTED
        task.state, task.reason, task.due = "cancelled", "cancelled", None
        task.waiting_on = 0
        if had_slot:
            self.freed(task)
        return True

    def replay(self, id: int) -> bool:
        task = self.tasks[id]
        if task.state not in ("failed", "dead", "cancelled"):
            return False
        task.generation += 1
        task.failures = task.crashes = 0
        task.worker = task.expires = task.reason = None
        task.waiting_on = sum(1 for prev, next in self.edges if next == id and self.tasks[prev].state != "completed")
        if task.waiting_on:
            task.state, task.reason = "pending", "dependencies"
        else:
            task.state = "pending"
            self.ask_for_slot(task)
        return True

    def stage(self) -> int:
        due = [task for task in self.tasks.values() if task.state == "scheduled" and (task.due or 0) <= self.now]
        for task in due:
            task.state = "pending"
        self.ask_for_slot(*due)
        return len(due)

    def mark_lost(self) -> set[int]:
        lapsed = {worker.id for worker in self.workers.values() if worker.state == "active" and worker.until < self.now}
        for id in lapsed:
            self.workers[id].state = "lost"
        return lapsed

    def rescue(self, loss_limit: int) -> int:
        """Take everything from workers that are gone."""
        count = 0
        for worker in sorted(self.workers.values(), key=lambda worker: worker.id):
            held = [task for task in self.tasks.values() if task.worker == worker.id and task.state == "running"]
            if worker.state == "active" or (worker.rescued and not held):
                continue
            if worker.state == "stopped" and not held:
                continue
            count += len(held)
            buried = []
            for task in sorted(held, key=lambda task: task.id):
                task.crashes += 1
                if task.crashes >= loss_limit:
                    task.state, task.reason = "dead", "crashed"
                    buried.append(task)
                else:
                    task.state, task.worker, task.expires = "ready", None, None
            self.freed(*buried)
            worker.rescued = worker.state == "lost"
            self.slots = {place: n for place, n in self.slots.items() if place[1] != worker.id}
        return count

    def expire(self) -> int:
        late = sorted(
            (
                task
                for task in self.tasks.values()
                if task.state == "running" and task.expires is not None and task.expires < self.now
            ),
            key=lambda task: task.expires or 0,
        )
        for task in late:
            fence = (task.worker or 0, task.id, task.attempt)
            if task.failures + 1 >= task.max_attempts:
                self.end(fence, "dead", "heartbeat_timeout")
            else:
                self.postpone(fence, RETRY_DELAY, True, "heartbeat_timeout")
        return len(late)

    def hold(self, id: int) -> bool:
        task = self.tasks[id]
        if task.state == "ready" or (task.state, task.reason) == ("pending", "concurrency_key"):
            had_slot = task.state == "ready"
            task.state, task.reason = "pending", "dependencies"
            if had_slot:
                self.freed(task)
            return True
        return False

    def add_edge(self, prev: int, next: int) -> bool | None:
        """Return whether there is an edge now; None when the task takes none."""
        if not self.is_live(prev):
            return False
        if (prev, next) in self.edges:
            return True
        task = self.tasks[next]
        if (task.state, task.reason) != ("pending", "dependencies"):
            return None
        self.edges.add((prev, next))
        task.waiting_on += 1
        return True

    def release(self, id: int) -> bool:
        task = self.tasks[id]
        if (task.state, task.reason, task.waiting_on) != ("pending", "dependencies", 0):
            return False
        self.ask_for_slot(task)
        return True
