"""All routes of the HTTP interface that are calls of the client, each with who may make it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft.contract.operations import Access, Operation

_READ, _WRITE, _ADMIN, _OPERATE = Access.READER, Access.WRITER, Access.ADMIN, Access.OPERATOR
_WORKFLOW = {
    "workflow_id": "etl",
    "nodes": {
        "START": {"type": "start", "next": "fetch"},
        "fetch": {"type": "task", "handler": "etl:fetch", "next": "END"},
        "END": {"type": "end"},
    },
}

_DAG = {
    "dag": "market",
    "jobs": {
        "quotes": {
            "activation": "source", "operator": "python", "source": {"kind": "cron", "schedule": "*/5 * * * *"},
            "config": {"handler": "market:quotes"}, "outputs": ["quotes"],
        },
    },
}  # fmt: skip


def _get(path: str, call: str, access: Access = _READ, **more: Any) -> Operation:
    return Operation(call, "GET", path, access, **more)


def _post(path: str, call: str, access: Access = _WRITE, **more: Any) -> Operation:
    return Operation(call, "POST", path, access, **more)


def _delete(path: str, call: str, access: Access = _WRITE, **more: Any) -> Operation:
    return Operation(call, "DELETE", path, access, **more)


_JOBS = (
    _post(
        "/jobs",
        "jobs.submit",
        status=201,
        body={"workflow": "etl", "inputs": {"day": "2026-11-14"}},
        said="Execute a workflow: by its tag, a version's id or hash, or a whole definition.",
    ),
    _get("/jobs", "jobs.page"),
    _post("/jobs/rerun", "jobs.rerun_all", answer="count", body={"state": ["failed"], "workflow_id": "etl"}),
    _get("/jobs/{job_id}", "jobs.show"),
    _get("/jobs/{job_id}/nodes", "jobs.nodes", key="id"),
    _get("/jobs/{job_id}/graph", "jobs.graph"),
    _get("/jobs/{job_id}/attempts", "jobs.attempts", key="cursor"),
    _get("/jobs/{job_id}/why", "jobs.why", key="task_id"),
    _get("/jobs/{job_id}/events", "jobs.events", said="Return what happened in a job, oldest first; `cursor` goes on."),
    _get("/jobs/{job_id}/queues", "jobs.queues"),
    _get("/jobs/{job_id}/wait", "jobs.wait"),
    _post("/jobs/{job_id}/cancel", "jobs.cancel", status=204),
    _post("/jobs/{job_id}/pause", "jobs.pause", status=204),
    _post("/jobs/{job_id}/resume", "jobs.resume", status=204),
    _post("/jobs/{job_id}/rerun", "jobs.rerun", status=201, body={"failed": True}),
    _post("/jobs/{job_id}/rerun/plan", "jobs.plan_rerun", _READ, body={"failed": True}),
    _post("/jobs/{job_id}/approve", "jobs.approve", status=204, body={"node": "review", "values": {"limit": 100}}),
    _get("/approvals", "jobs.approvals", key="task_id"),
    _post(
        "/events",
        "jobs.send_event",
        status=201,
        body={"name": "file.arrived", "payload": {"path": "a.csv"}},
        said="Accept an event: it is kept, and told to all nodes that wait for one like it, now or later in their job.",
    ),
    _post(
        "/events/batch",
        "jobs.send_events",
        status=201,
        body={"events": [{"name": "order.created", "payload": {"order": 7}, "idempotency_key": "order-7"}]},
        said="Accept up to 1,000 events, all or none; each is kept and told as a single one is.",
    ),
)

_SCHEDULES = (
    _post(
        "/schedules",
        "schedules.add",
        status=201,
        body={"tag": "etl", "cron": "0 3 * * *", "timezone": "Europe/Berlin"},
    ),
    _get("/schedules", "schedules.list", key="name"),
    _get("/ticks", "schedules.preview"),
    _get("/schedules/{name:name}/ticks", "schedules.ticks"),
    _post("/schedules/{name:name}/change", "schedules.change", body={"cron": "30 4 * * *"}),
    _post("/schedules/{name:name}/pause", "schedules.pause", status=204),
    _post("/schedules/{name:name}/resume", "schedules.resume", status=204),
    _post("/schedules/{name:name}/trigger", "schedules.trigger", status=201),
    _post(
        "/schedules/{name:name}/backfill",
        "schedules.backfill",
        status=201,
        body={"since": "2025-11-01T00:00:00Z", "until": "2025-11-14T00:00:00Z", "at_once": 2, "dry_run": True},
    ),
    _get("/schedules/{name:name}/backfills", "schedules.backfills", key="id"),
    _get("/schedules/{name:name}", "schedules.show"),
    _delete("/schedules/{name:name}", "schedules.delete", status=204),
    _post("/backfills/{backfill_id}/cancel", "schedules.cancel_backfill", status=204),
)

_WORKFLOWS = (
    _post("/workflows", "workflows.push", status=201, body={"definition": _WORKFLOW, "message": "first"}),
    _get("/workflows", "workflows.list", key="name"),
    _get("/workflows/diff", "workflows.diff"),
    _get("/workflows/{which:name}/log", "workflows.log", key="id"),
    _get("/workflows/{which:name}/blame", "workflows.blame"),
    _post("/workflows/{which:name}/snapshot", "workflows.snapshot", status=201, body={"message": "for the audit"}),
    _get("/workflows/{which:name}", "workflows.show"),
    _get("/artifacts", "workflows.artifacts", key="id"),
    _get("/artifacts/{artifact_id}", "workflows.artifact"),
    _get("/tags/{tag:name}/moves", "workflows.moves", key="version"),
    _get("/tags/{tag:name}", "workflows.tag"),
    _delete("/tags/{tag:name}", "workflows.delete"),
    _post("/tags/{tag:name}/undelete", "workflows.undelete", body={"message": "needed after all"}),
    _post("/tags/{tag:name}/patch", "workflows.patch", body={"set": {"nodes.fetch.params.size": 3}}),
    _post("/tags/{tag:name}/move", "workflows.move", body={"to": "etl/next"}),
    _post("/tags/{tag:name}/undo", "workflows.undo", body={"steps": 1}),
    _post("/tags/{tag:name}/redo", "workflows.redo", body={"steps": 1}),
    _post("/tags/{new:name}/branch", "workflows.branch", status=201, body={"source": "etl"}),
    _post("/tags/{into:name}/merge", "workflows.merge", body={"source": "etl/next"}),
    _post("/tags/{tag:name}/revert", "workflows.revert", body={"change": "etl~2"}),
    _post("/tags/{tag:name}/protect", "workflows.protect", _ADMIN, answer="name", body={"is_protected": True}),
    _post("/tags/{tag:name}/compact", "workflows.compact", body={"expect": 2}),
    _post("/history/fsck", "workflows.fsck", _ADMIN, body={"quick": True}),
    _post("/history/gc", "workflows.gc", _ADMIN, body={"dry_run": True}),
)

_TASKS = (
    _post("/tasks", "enqueue", status=201, body={"handler": "email:send", "params": {"to": "ada@example.com"}}),
    _post("/tasks/batch", "enqueue_many", status=201, body={"tasks": [{"handler": "resize", "params": {"path": "a"}}]}),
    _get("/tasks", "list_tasks"),
    _post("/tasks/cancel", "cancel_all", answer="count", body={"queue": "mail", "dry_run": True}),
    _post("/tasks/replay", "replay_all", answer="count", body={"queue": "mail", "dry_run": True}),
    _get("/tasks/{task_id}", "get_task"),
    _get("/tasks/{task_id}/why", "why"),
    _get("/tasks/{task_id}/explain", "explain"),
    _get("/tasks/{task_id}/wait", "wait", answer="output"),
    _get(
        "/tasks/{task_id}/log",
        "read_log",
        said="Return what a task has printed from `offset` on; the answer is 204 when there is no log.",
    ),
    _post("/tasks/{task_id}/cancel", "cancel", status=204, body={"reason": "ordered twice"}),
    _post("/tasks/{task_id}/replay", "replay", status=204, body={"state": ["failed"]}),
    _get("/dead-letters", "dead_letters"),
    _get("/dead-letters/count", "count_dead", answer="count"),
    _post("/dead-letters/replay", "replay_dead", answer="count", body={"handler": "email:send"}),
    _post("/dead-letters/purge", "purge", _ADMIN, answer="count", body={"older_than": 7776000}),
    _get("/queues", "queues", key="name"),
    _post("/queues", "create_queue", _ADMIN, answer="created", body={"name": "mail"}),
    _post("/queues/{name:name}/pause", "pause_queue", status=204),
    _post("/queues/{name:name}/resume", "resume_queue", status=204),
    _post("/queues/{name:name}/limit", "limit_queue", _ADMIN, status=204, body={"max_running": 10}),
    _get("/workers", "workers", key="id"),
    _get("/outbox", "outbox", key="id"),
    _post("/outbox", "add_effect", status=201, answer="id", body={"kind": "enqueue_task", "payload": {"handler": "a"}}),
    _post("/outbox/replay", "replay_outbox", answer="count", body={"ids": ["381002207845156620"]}),
    _post("/outbox/purge", "purge_outbox", _ADMIN, answer="count", body={"ids": ["381002207845156620"]}),
    _get("/cache", "cached_outputs", key="handler"),
    _delete("/cache", "clear_cache", answer="count"),
)

_DATASETS = (
    _get("/datasets", "datasets.list", key="name"),
    _post("/datasets", "datasets.create", answer="created", body={"name": "orders"}),
    _post(
        "/datasets/register",
        "datasets.register",
        _ADMIN,
        body={"name": "weather", "address": "s3://weather-archive/2026/", "partition_by": "hive"},
    ),
    _post("/datasets/gc", "datasets.gc", _ADMIN, body={"dry_run": True}),
    _get("/datasets/{name:name}/versions", "datasets.versions", key="number"),
    _get("/datasets/{name:name}/writes", "datasets.writes", key="number"),
    _get("/datasets/{name:name}/partitions", "datasets.partitions", key="key"),
    _get("/datasets/{name:name}/state", "datasets.state"),
    _get("/datasets/{name:name}/lineage", "datasets.lineage"),
    _get("/datasets/{name:name}/diff", "datasets.diff"),
    _post("/datasets/{name:name}/describe", "datasets.describe", body={"description": "What was ordered, by day."}),
    _post("/datasets/{name:name}/grant", "datasets.grant", _ADMIN, body={"roles": ["finance"]}),
    _post("/datasets/{name:name}/rollback", "datasets.rollback"),
    _post("/datasets/{name:name}/hand-over", "datasets.hand_over", _ADMIN, body={"workflow": "etl", "node": "fetch"}),
    _post("/datasets/{name:name}/undelete", "datasets.undelete", _ADMIN),
    _delete("/datasets/{name:name}", "datasets.delete", _ADMIN),
    _get("/datasets/{name:name}", "datasets.show"),
)

_LIVE = (
    _post("/live/deploys", "live.deploy", status=201, body={"definition": _DAG, "message": "first"}),
    _post("/live/deploys/plan", "live.plan", _READ, body={"definition": _DAG}),
    _get("/live", "live.list", key="name"),
    _get("/live/{dag:name}/jobs", "live.jobs", key="cursor"),
    _get("/live/{dag:name}/versions", "live.history", key="number"),
    _post("/live/{dag:name}/rollback", "live.rollback", body={"version": 1}),
    _post("/live/{dag:name}/rollback/plan", "live.plan_rollback", _READ, body={"version": 1}),
    _post("/live/{dag:name}/abandon", "live.abandon", answer="version"),
    _post("/live/{dag:name}/drain", "live.drain", status=204),
    _post("/live/{dag:name}/pause", "live.pause", status=204, body={"job": "candles"}),
    _post("/live/{dag:name}/resume", "live.resume", status=204, body={"job": "candles"}),
    _get("/live/{dag:name}/jobs/{job:name}/units", "live.units", key="id"),
    _get("/live/{dag:name}/jobs/{job:name}/state", "live.state", key="key"),
    _post(
        "/live/{dag:name}/jobs/{job:name}/retry", "live.retry", answer="count", body={"unit_id": "381002207845156620"}
    ),
    _post("/live/{dag:name}/jobs/{job:name}/units/{unit_id}/skip", "live.skip", status=204),
    _post(
        "/live/{dag:name}/jobs/{job:name}/rematerialize",
        "live.rematerialize",
        answer="count",
        body={"partitions": ["2026-11-14"]},
    ),
    _post("/live/{dag:name}/jobs/{job:name}/rebuild", "live.rebuild", status=201, body={"dry_run": True}),
    _post(
        "/live/{dag:name}/jobs/{job:name}/backfill", "live.backfill", status=201, body={"at_once": 2, "dry_run": True}
    ),
    _get("/live/{dag:name}/backfills", "live.backfills", key="id"),
    _post("/live-backfills/{backfill_id}/cancel", "live.cancel_backfill", status=204),
    _get("/live/{dag:name}", "live.show"),
)

_PEOPLE = (
    _get("/orgs", "orgs.list", _OPERATE, key="slug"),
    _post("/orgs", "orgs.create", _OPERATE, answer="created", body={"slug": "acme", "admin": "ada@example.com"}),
    _get("/orgs/{slug:name}", "orgs.show", _OPERATE),
    _post("/orgs/{slug:name}/tokens", "orgs.create_token", _OPERATE, status=201, body={"name": "first"}),
    _post("/orgs/{slug:name}/rename", "orgs.rename", _OPERATE, status=204, body={"name": "Acme Ltd"}),
    _get("/users", "users.list", _ADMIN, key="external_id"),
    _post("/users", "users.add", _ADMIN, status=201, body={"external_id": "ada@example.com", "role": "writer"}),
    _post("/users/{user:name}/change", "users.change", _ADMIN, body={"role": "admin"}),
    _post("/users/{user:name}/deactivate", "users.deactivate", _ADMIN, status=204),
    _post("/users/{user:name}/activate", "users.activate", _ADMIN, status=204),
    _get("/users/{user:name}", "users.show", _ADMIN),
    _get("/roles", "roles.list", _ADMIN, key="slug"),
    _post("/roles", "roles.create", _ADMIN, answer="created", body={"slug": "finance"}),
    _post("/roles/{slug:name}/grant", "roles.grant", _ADMIN, answer="granted", body={"user": "ada@example.com"}),
    _post("/roles/{slug:name}/revoke", "roles.revoke", _ADMIN, answer="revoked", body={"user": "ada@example.com"}),
    _get("/roles/{slug:name}", "roles.show", _ADMIN),
    _delete("/roles/{slug:name}", "roles.delete", _ADMIN, answer="members"),
    _get("/tokens", "tokens.list", _ADMIN, key="id"),
    _post("/tokens", "tokens.create", _ADMIN, status=201, body={"name": "nightly", "role": "writer"}),
    _post("/tokens/sign-in", "tokens.create_sign_in", _ADMIN, status=201, body={"user": "ada@example.com"}),
    _post("/tokens/{token_id}/revoke", "tokens.revoke", _ADMIN, status=204),
    _get("/tokens/{token_id}", "tokens.show", _ADMIN),
    _get("/audit", "audit", _ADMIN, key="id"),
    _get("/audit/verify", "verify_audit", _ADMIN),
    _get("/health", "health"),
    _get("/metrics", "metrics"),
)

OPERATIONS: tuple[Operation, ...] = (
    *_JOBS, *_SCHEDULES, *_DATASETS, *_LIVE, *_WORKFLOWS, *_TASKS, *_PEOPLE,
)  # fmt: skip
BY_CALL: Mapping[str, Operation] = {operation.call: operation for operation in OPERATIONS}
# Calls that are made of others, of streams, or of routes that take graphs as they are put together.
COMPOSED = frozenset({
    "datasets.diff_rows", "datasets.query", "datasets.sample", "follow_log", "jobs.add", "jobs.bisect", "jobs.follow",
    "jobs.list", "jobs.submit_graph", "live.wait",
})  # fmt: skip
