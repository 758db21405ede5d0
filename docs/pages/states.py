"""The page of the states."""

from __future__ import annotations

from docs.pages.markdown import code, sentence, table
from weft.core.states import DESCRIPTIONS, FINAL, TRANSITIONS, OutboxState, TaskState, WorkerState

_HEAD = """\
# States

A task is in one of these states, and only the verbs below move it. The table stands once in the code
(`weft.core.states`); the guards in SQL, this page and the tests follow it. A reason is never a state: it has a column
of its own.

"""

_WORKERS = {
    WorkerState.ACTIVE: "its last heartbeat came in time, and it runs something",
    WorkerState.IDLE: "its last heartbeat came in time, and it runs nothing",
    WorkerState.STOPPED: "it said goodbye",
    WorkerState.LOST: "its lease lapsed: its tasks go to others, and its later writes are refused",
}

_OUTBOX = {
    OutboxState.PENDING: "waits for its time and for what comes before it in its ordering key",
    OutboxState.PROCESSING: "a worker carries it out",
    OutboxState.DONE: "carried out",
    OutboxState.FAILED: "given up after 20 tries, or at once if it can never work; `weft outbox replay` sends it again,"
    " `weft outbox purge` removes it",
}

_LIVE_JOBS = {
    "pending": "it has had nothing to do yet; or it is a source, and no worker of its queue is there",
    "running": "it is a source, or has had work within its `idle_timeout`",
    "idle": "it reacts, and has had no work for its `idle_timeout`: it takes up nothing of anybody",
    "lost": "it is a source, and the worker of its task gives no sign of life; another takes the task",
    "draining": "no version in effect has it: what it has begun may end",
    "stopped": "no version in effect has it, and nothing of it runs; a rollback lets it go on where it was",
}

_UNITS = {
    "new": "it has come, and nobody has looked at it yet",
    "waiting": "another of its lane comes before it",
    "ready": "it is the first of its lane, and begins when there is room",
    "running": "it has a task",
    "held": "its task has failed for good: it holds up its lane until `weft live retry` or `weft live skip`",
}

_REASONS = """
## Reasons

| reason | stands with | meaning |
| --- | --- | --- |
| `error` | scheduled, dead, attempt | The handler raised. |
| `timeout` | scheduled, dead, attempt | The attempt ran longer than its timeout. |
| `heartbeat_timeout` | scheduled, dead, attempt | The handler did not call `ctx.heartbeat()` in time. |
| `crashed` | scheduled, dead, attempt | The process of the attempt died, or its worker died too often. |
| `lease_expired` | attempt | The worker was lost; the task was rescued. |
| `non_retryable` | failed, attempt | The handler raised what no retry can mend, or its params do not fit. |
| `write_conflict` | scheduled, attempt | Others have written into the same dataset meanwhile: tried again, uncounted. |
| `output_refused` | failed, attempt | PostgreSQL refused the output, for example a NUL inside a text. |
| `no_handler` | scheduled, failed, attempt | No worker that claimed it knows the handler. |
| `snooze` | scheduled, attempt | The handler raised `weft.Snooze`. |
| `concurrency_key` | pending | All slots of its key are taken. |
| `cached` | completed | Its output was in the cache: `kept_id` is the task that made it. |
| `dependencies` | pending | It waits for other tasks. |
| any text | cancelled | The reason given to `cancel`. |

## What comes later

`dispatched`, `claimed` and their verbs belong to outside runtimes, `waiting` and `answer` to jobs that wait for events
or people, `skip` to jobs with branches. The states are in the schema from the first migration, so that these parts need
no rewrite of the table; no statement does a verb that is marked as later.
"""


def _diagram() -> str:
    lines = ["```mermaid", "stateDiagram-v2", "    [*] --> ready: enqueue", "    [*] --> scheduled: enqueue, for later"]
    lines.append("    [*] --> pending: enqueue, key full")
    for step in TRANSITIONS:
        if step.verb == "cancel":
            lines.append("    note right of cancelled: cancel leads here from every state that is not final")
            continue
        lines += [f"    {source} --> {step.target}: {step.verb}" for source in sorted(step.sources)]
    lines += [f"    {state} --> [*]" for state in TaskState if state in FINAL]
    return "\n".join([*lines, "```"]) + "\n"


def page() -> str:
    """Return the page."""
    states = [(code(s), "yes" if s in FINAL else "", sentence(DESCRIPTIONS[s])) for s in TaskState]
    verbs = [
        (
            code(step.verb) if step.is_built else f"{code(step.verb)} (later)",
            "any that is not final" if step.verb == "cancel" else ", ".join(code(s) for s in sorted(step.sources)),
            code(step.target),
            sentence(step.meaning),
        )
        for step in TRANSITIONS
    ]
    return "".join(
        (
            _HEAD,
            _diagram(),
            "\n## States of a task\n\n",
            table(("state", "final", "meaning"), states),
            "\nIn filters `failed` covers `failed` and `dead`: both are dead letters.\n",
            "\n## Verbs\n\n",
            table(("verb", "from", "to", "when"), verbs),
            "\nEach verb but those marked as later is one conditional statement: the from-state stands in its WHERE, "
            "and for a task that a worker holds also the fence (worker and attempt). The caller is told when it did "
            "not land. `fail` and `bury` share one statement, `retry_later` and `snooze` another.\n",
            _REASONS,
            "\n## States of a worker\n\n",
            table(("state", "meaning"), [(code(s), sentence(text)) for s, text in _WORKERS.items()]),
            "\n## States of a live job\n\n",
            table(("state", "meaning"), [(code(s), sentence(text)) for s, text in _LIVE_JOBS.items()]),
            "\nThe units of work of a live job that are not done:\n\n",
            table(("state", "meaning"), [(code(s), sentence(text)) for s, text in _UNITS.items()]),
            "\n## States of an outbox row\n\n",
            table(("state", "meaning"), [(code(s), sentence(text)) for s, text in _OUTBOX.items()]),
        )
    )
