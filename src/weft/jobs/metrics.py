"""Numbers about jobs, tasks and workers, for those who keep an eye on an installation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import orjson

from weft.db.statements import Statements
from weft.queue import queues

if TYPE_CHECKING:
    from datetime import datetime

    from asyncpg import Record

    from weft.db.database import type_Connection

SQL = Statements("weft.jobs", "sql/metrics.sql")
Kind = Literal["counter", "gauge", "histogram", "summary"]
_QUANTILES = ("0.5", "0.9", "0.99")


@dataclass(frozen=True, slots=True)
class Sample:
    """A value of a metric, with what it is about; ``part`` is ``sum`` or ``count`` of a summary."""

    value: float
    labels: Mapping[str, str] = field(default_factory=dict)
    part: str = ""


@dataclass(frozen=True, slots=True)
class Metric:
    """A number with its name, what it means, and its values; a ``counter`` never falls."""

    name: str
    kind: Kind
    help: str
    samples: tuple[Sample, ...]


async def measure(conn: type_Connection, org_id: int) -> list[Metric]:
    """Return all metrics of an org, at a cost that does not grow with its history."""
    totals = await conn.fetchrow(SQL.totals, org_id)
    assert totals is not None
    live = await conn.fetch(SQL.live_workers, org_id)
    return [
        *_totals(totals, await conn.fetchval(SQL.job_times, org_id)),
        *await _tasks(conn, org_id, {str(row["id"]) for row in live}),
        *_workers(live),
        *await _outbox(conn, org_id),
    ]


def _totals(row: Record, job_times: list[float] | None) -> Iterable[Metric]:
    tallies: dict[str, list[float]] = orjson.loads(row["tallies"])
    live: dict[str, int] = orjson.loads(row["live_jobs"])

    def total(name: str) -> int:
        return int(tallies.get(name, (0, 0))[0])

    endings = {word: total(f"jobs_{word}") for word in ("completed", "failed", "cancelled")}
    seconds = sum(tallies.get(f"jobs_{word}", (0, 0.0))[1] for word in endings)
    yield _counter("jobs_created_total", "Jobs that were submitted.", sum(live.values()) + sum(endings.values()))
    for word, count in endings.items():
        yield _counter(f"jobs_{word}_total", f"Jobs that ended {word}.", count)
    yield _gauges("jobs", "Jobs that have not ended, by state.", "state", live)
    yield Metric(
        "job_duration_seconds", "summary",
        "Time from the beginning to the end of a job; the quantiles are those of the last thousand.",
        (*_quantiles(job_times), Sample(seconds, part="sum"), Sample(sum(endings.values()), part="count")),
    )  # fmt: skip
    yield _counter("tasks_created_total", "Tasks that were enqueued.", total("tasks_created") + row["made"])
    completed = total("tasks_completed") + row["completed"]
    yield _counter("tasks_completed_total", "Tasks that completed, as workers told with their heartbeats.", completed)
    yield _counter("tasks_failed_total", "Tasks that ended failed or dead.", total("tasks_failed"))


async def _tasks(conn: type_Connection, org_id: int, live: Set[str]) -> list[Metric]:
    times = await conn.fetchrow(SQL.task_times, org_id)
    assert times is not None
    found = await queues.list_queues(conn, org_id)
    depths = tuple(
        Sample(count, {"queue": queue.name, "state": state})
        for queue in found
        for state, count in sorted(queue.tasks.items())
    )
    held = await conn.fetchrow(SQL.leases, org_id)
    assert held is not None
    waits = {queue.name: _age(held["now"], queue.oldest_at) for queue in found}
    by_worker: dict[str, Any] = orjson.loads(times["by_worker"] or "{}")
    return [
        Metric(
            "task_duration_seconds", "summary", "Time that the last thousand tasks took that completed.",
            _quantiles(times["quantiles"]),
        ),
        Metric("task_queue_depth", "gauge", "Tasks that have not ended, by queue and state, all counted.", depths),
        _gauges("task_queue_age_seconds", "For how long the oldest ready task has been waiting.", "queue", waits),
        _gauge(
            "task_lease_age_seconds", "For how long the one of the tasks that run has run that began first.",
            _age(held["now"], held["since"]),
        ),
        _gauges(
            "worker_task_execution_time",
            "Mean time in seconds that these tasks took, by worker that is alive.",
            "worker",
            {worker: seconds for worker, seconds in by_worker.items() if worker in live},
        ),
    ]  # fmt: skip


def _workers(rows: Sequence[Record]) -> list[Metric]:
    orchestrators = sum(row["orchestrates"] for row in rows)
    ages = {str(row["id"]): max(0.0, row["age"]) for row in rows}
    return [
        _gauge("workers_active", "Workers that are alive.", len(rows) - orchestrators),
        _gauge("orchestrators_active", "Orchestrators that are alive.", orchestrators),
        _gauges("worker_heartbeat_age", "Seconds since a worker or an orchestrator was last heard of.", "worker", ages),
    ]


async def _outbox(conn: type_Connection, org_id: int) -> list[Metric]:
    row = await conn.fetchrow(SQL.outbox, org_id)
    assert row is not None
    return [
        _gauge("outbox_pending", "Effects that are not yet carried out, up to a thousand.", row["pending"]),
        _gauge("outbox_lag_seconds", "For how long the oldest effect that is due has been waiting.", row["lag"]),
    ]


def _age(now: datetime, since: datetime | None) -> float:
    return 0.0 if since is None else max(0.0, (now - since).total_seconds())


def _counter(name: str, help: str, value: float) -> Metric:
    return Metric(name, "counter", help, (Sample(value),))


def _gauge(name: str, help: str, value: float) -> Metric:
    return Metric(name, "gauge", help, (Sample(value),))


def _gauges(name: str, help: str, label: str, values: Mapping[str, float]) -> Metric:
    return Metric(name, "gauge", help, tuple(Sample(value, {label: key}) for key, value in sorted(values.items())))


def _quantiles(values: list[float] | None) -> tuple[Sample, ...]:
    return tuple(Sample(value, {"quantile": key}) for key, value in zip(_QUANTILES, values or (), strict=False))


def exposition(metrics: Iterable[Metric]) -> str:
    """Return metrics in the text format that Prometheus reads."""
    lines = []
    for metric in metrics:
        name = f"weft_{metric.name}"
        lines += [f"# HELP {name} {metric.help}", f"# TYPE {name} {metric.kind}"]
        for sample in metric.samples:
            labels = ",".join(f'{key}="{_escaped(value)}"' for key, value in sample.labels.items())
            part = f"_{sample.part}" if sample.part else ""
            lines.append(f"{name}{part}{f'{{{labels}}}' if labels else ''} {sample.value}")
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
