"""The states of a task and the verbs that move between them: the one table that SQL, docs and tests follow."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class TaskState(StrEnum):
    """Where a task is in its life."""

    PENDING = "pending"
    SCHEDULED = "scheduled"
    READY = "ready"
    DISPATCHED = "dispatched"
    CLAIMED = "claimed"
    RUNNING = "running"
    WAITING = "waiting"
    COMPLETED = "completed"
    FAILED = "failed"
    DEAD = "dead"
    SKIPPED = "skipped"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        """Whether no verb but ``replay`` leads out of this state."""
        return self in FINAL


class WorkerState(StrEnum):
    """What is known of a worker process."""

    ACTIVE = "active"
    IDLE = "idle"
    STOPPED = "stopped"
    LOST = "lost"


class OutboxKind(StrEnum):
    """What an outbox row asks for."""

    ENQUEUE_TASK = "enqueue_task"
    ROUTE_EVENT = "route_event"
    CALLBACK = "callback"
    OPENLINEAGE = "openlineage"


class OutboxState(StrEnum):
    """Where an outbox row is on its way out."""

    PENDING = "pending"
    PROCESSING = "processing"
    DONE = "done"
    FAILED = "failed"


# How the specs and other systems spell a state; asked for in this way it is found too.
SPELLINGS = {"dead_letter": "dead", "queued": "ready", "canceled": "cancelled", "succeeded": "completed"}

FINAL = frozenset({TaskState.COMPLETED, TaskState.FAILED, TaskState.DEAD, TaskState.SKIPPED, TaskState.CANCELLED})
LIVE = frozenset(TaskState) - FINAL
HELD = frozenset({TaskState.DISPATCHED, TaskState.CLAIMED, TaskState.RUNNING})

DESCRIPTIONS = {
    TaskState.PENDING: "waits for other tasks, for a slot of its concurrency key, or for its job",
    TaskState.SCHEDULED: "waits for a time: a delay, a retry or a snooze",
    TaskState.READY: "can be claimed as soon as its queue is not paused and below its limit",
    TaskState.DISPATCHED: "on its way through a runtime outside Weft",
    TaskState.CLAIMED: "taken up by such a runtime, but not begun",
    TaskState.RUNNING: "a worker runs an attempt",
    TaskState.WAITING: "waits for an event or a person",
    TaskState.COMPLETED: "ended with an output",
    TaskState.FAILED: "ended at once by an error that no retry can mend",
    TaskState.DEAD: "ended after its last attempt: in the dead letter",
    TaskState.SKIPPED: "ended without running, because its branch was not taken or what it needs failed",
    TaskState.CANCELLED: "ended by a person or a program",
}


@dataclass(frozen=True)
class Transition:
    """One verb: the states it leads from, the state it leads to, what it means, and whether a statement does it yet."""

    verb: str
    sources: frozenset[TaskState]
    target: TaskState
    meaning: str
    is_built: bool = True


def _verb(verb: str, sources: str, target: str, meaning: str, *, is_built: bool = True) -> Transition:
    return Transition(verb, frozenset(map(TaskState, sources.split())), TaskState(target), meaning, is_built)


_ANY_LIVE = " ".join(sorted(LIVE))

TRANSITIONS: tuple[Transition, ...] = (
    _verb("release", "pending", "ready", "the last thing it waited for has ended"),
    _verb("admit", "pending", "ready", "a slot of its concurrency key is free"),
    _verb("hold", "ready", "pending", "it is about to wait for other tasks"),
    _verb("stage", "scheduled", "ready", "its time has come"),
    _verb("park", "scheduled ready", "pending", "its concurrency key is full, or has a lower limit now"),
    _verb("claim", "ready", "running", "a worker with a free slot took it"),
    _verb("dispatch", "ready", "dispatched", "handed to an outside runtime", is_built=False),
    _verb("take", "dispatched", "claimed", "an outside runtime took it", is_built=False),
    _verb("start", "claimed", "running", "the outside runtime began", is_built=False),
    _verb("hand_back", "claimed running", "ready", "not begun, and the worker stops"),
    _verb("complete", "running", "completed", "the handler returned"),
    _verb("fail", "running", "failed", "the handler raised what no retry can mend"),
    _verb("retry_later", "running dispatched", "scheduled", "the attempt failed, another is due later"),
    _verb("snooze", "running dispatched", "scheduled", "the handler asked for a later time"),
    _verb("decline", "running", "scheduled", "this worker does not know the handler"),
    _verb("bury", "running dispatched", "dead", "the last attempt failed, timed out or crashed"),
    _verb("bury_crashed", "claimed running", "dead", "its worker was lost while it ran, once too often"),
    _verb("set_aside", "running dispatched", "pending", "PostgreSQL refuses every outcome of its attempt"),
    _verb("rescue", "claimed running", "ready", "the lease of its worker lapsed"),
    _verb("skip", "pending ready scheduled waiting", "skipped", "its branch was not taken, or what it needs failed"),
    _verb("wait", "running", "waiting", "it goes on when a person, an event or another job answers"),
    _verb("hold_back", "ready", "pending", "its job is paused"),
    _verb("resume", "pending", "ready", "its job goes on"),
    _verb("cancel", _ANY_LIVE, "cancelled", "a person or a program ended it"),
    _verb("answer", "waiting", "completed", "the event, the person or the other job answered"),
    _verb("refuse", "waiting", "failed", "it was rejected, nobody answered in time, or the other job failed"),
    _verb("replay", "failed dead cancelled", "ready", "an operator sends it round again, in a new generation"),
)

BY_VERB = {transition.verb: transition for transition in TRANSITIONS}


def sources_of(verb: str) -> frozenset[TaskState]:
    """Return the states from which ``verb`` may be applied."""
    return BY_VERB[verb].sources


class Sort(StrEnum):
    """Which come first in a list."""

    NEWEST = "newest"
    OLDEST = "oldest"
