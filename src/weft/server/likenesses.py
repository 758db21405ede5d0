"""What the things are like that answers tell of, for the examples of the document: each could be so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ID = "381002207845156620"
DIGEST = "7f" * 32
EARLY, MOMENT, LATE = "2026-11-14T06:30:00Z", "2026-11-14T06:30:02Z", "2026-11-14T06:31:10Z"
_HASH = "7f4c1d9a5be0"
_DOCUMENT = {
    "workflow_id": "etl",
    "nodes": {
        "START": {"type": "start", "next": "fetch"},
        "fetch": {"type": "task", "handler": "etl:fetch", "next": "END"},
        "END": {"type": "end"},
    },
}
_ERROR = {"type": "TimeoutError", "message": "the server did not answer"}
_JOB = {
    "state": "completed", "reason": None, "priority": 0, "created_at": EARLY, "started_at": MOMENT, "ended_at": LATE,
    "failed_id": None, "base_ref": "etl/main",
}  # fmt: skip
_TASK = {
    "state": "completed", "reason": None, "priority": 0, "attempt": 2, "failures": 1, "max_attempts": 3,
    "created_at": EARLY, "due_at": None, "claimed_at": MOMENT, "ended_at": LATE, "error": None,
}  # fmt: skip
_ATTEMPT = {"attempt": 1, "started_at": MOMENT, "ended_at": LATE}
_NODE: Mapping[str, Any] = {
    "state": "completed", "reason": None, "attempt": 1, "claimed_at": MOMENT, "ended_at": LATE, "error": None,
    "items": {}, "due_at": None, "kept_id": None,
}  # fmt: skip
_CLAIM = {"params": {"day": "2026-11-14"}, "params_blob": None, "retry_count": 0, "crashes": 0, "max_attempts": 3}
_HAS = {"rows": 1200, "bytes": 20_480, "files": 1}
_PLACE = {"x": 0.0, "y": 120.0, "width": 160.0, "height": 48.0}

# By the name of the record; what is not here is made of the type and the name of the field.
LIKE: Mapping[str, Mapping[str, Any]] = {
    "Approval": {"node": "review", "form": {"limit": {"type": "integer"}}, "expires_at": None},
    "Artifact": {"kind": "patch", "merged_id": None, "depth": 3, "digest": DIGEST, "tags": ["etl/main"]},
    "Attempt": {**_ATTEMPT, "outcome": "failed", "reason": None, "error": _ERROR, "metrics": {}},
    "AuditEntry": {
        "verb": "cancel", "subject_kind": "task", "subject_name": None, "detail": {"count": 1},
        "origin": "10.0.0.7 a1b2c3d4",
    },
    "AuditFinding": {"code": "changed", "what": "act 381002207845156620 is not what was sealed"},
    "AuditSeals": {"sealed": 1204, "unsealed": 3, "unsealed_since": EARLY, "head": f"12:{DIGEST}", "findings": []},
    "Backfill": {
        "since": "2025-11-01T00:00:00Z", "until": "2025-11-14T00:00:00Z", "at_once": 2, "ticks": 13, "made": 5,
        "missed": 0, "running": 2, "last_error": None, "ended_at": None, "cancelled_at": None,
    },
    "Blamed": {"path": ["nodes", "fetch", "params", "size"]},
    "CachedOutputs": {
        "outputs": 120, "bytes": 48_200, "blobs": 2, "oldest_at": EARLY, "newest_at": LATE, "used_at": LATE,
    },
    "ClaimedTask": _CLAIM,
    "ChangedFile": {"place": 0, "is_new": False, "is_settled": True},
    "CollectedData": {
        "versions": ["orders@1", "orders@2"], "datasets": 1, "files": 310, "bytes": 48_200_000, "writes": 2, "dags": 1,
    },
    "Collected": {"snapshots": 4, "patches": 12, "blobs": 1, "bytes": 48_200},
    "StateTold": {
        "dataset_id": ID, "version_id": ID, "name": "orders", "version": 3, "write": 12,
        "location": "1/381002207845156620/3/", "is_outside": False, "storage": "parquet", "schema": None,
        "root": "s3://acme-data/weft", "pinned": None, "seen": 12,
    },
    "RowsTold": {"rows": [[1, ["1"]], [2, [None]]]},
    "WriteBegun": {
        "id": ID, "version_id": ID, "location": "1/381002207845156620/3/", "write": 12, "schema": None,
        "schema_hash": None, "storage": "parquet", "root": "s3://acme-data/weft",
    },
    "LiveJobTold": {
        "dag": "market", "name": "candles", "document": {"operator": "range_aggregator", "config": {"size": 100}},
        "inputs": [{"name": "ticks", "version": None, "by_now": 3, "stood": 12}], "outputs": ["candles"],
        "is_boot": False,
    },
    "StateRemembered": {"version": 3, "state": {"cursor": 120}},
    "Explanation": {
        "has_run": True, "cause": "changed", "advice": None, "inputs": ["orders@3.13"],
        "text": f"run: input orders is at 3.13, the output of task {ID} was made of 3.12",
    },
    "FilesCompared": {"gone": ["orders-0.csv"]},
    "FilesTold": {"files": [["2026-11-14", ID, f"{ID}-1.parquet", 1200, 20_480, 12]]},
    "PartitionsTold": {"partitions": [{"key": "2026-11-14", "write": 12, "rows": 1200, "bytes": 20_480, "files": 1}]},
    "Column": {"name": "id", "type": "int64", "nullable": True},
    "Dataset": {
        "name": "orders", "description": "What was ordered, by day.", "storage": {"kind": "parquet"},
        "read_roles": ["finance"], "unique_key": None, "version": 3, "write": 12, **_HAS, "written_at": LATE,
    },
    "ColumnChange": {"name": "discount", "old": None},
    "DatasetDiff": {
        "old": "orders@3.11", "new": "orders@3.12", "unique_key": ["id"], "common": ["id", "day", "price"],
        "rows_before": 1100, "rows_after": 1200, "partitions_added": 1, "partitions_removed": 0,
        "partitions_rewritten": 0,
    },
    "PartitionChange": {"key": "2026-11-14", "change": "added", "rows_before": 0, "rows_after": 100},
    "Lineage": {"root": "orders", "is_cut": False},
    "LineageEdge": {"source": "orders", "target": "daily", "at": EARLY, "partitions": None},
    "LineagePlace": {
        "name": "orders", "dataset": "orders", "column": None, "version": None, "write": None, "depth": 0,
        "job_id": None, "written_at": LATE, "made_of_unseen": False, "used_by_unseen": False,
    },
    "DatasetState": {
        "name": "orders", "version": 3, "write": 12, "location": "1/381002207845156620/3/", "storage": "parquet",
    },
    "DatasetVersion": {
        "number": 3, "is_current": True, "write": 12, **_HAS, "config_hash": DIGEST, "schema_hash": DIGEST,
        "location": "1/381002207845156620/3/", "range_start": None, "range_end": None, "written_at": LATE,
        "current_at": MOMENT, "retired_at": None,
    },
    "DatasetWrite": {
        "number": 12, "mode": "replace", "attempt": 1, "node": "summarise", "handler": "etl:summarise",
        "partitions": 1, "rows": 1200, "bytes": 20_480, "rows_removed": 0, "written_at": LATE,
    },
    "DefinitionProblem": {
        "code": "unknown_node", "severity": "error", "message": "next: there is no node 'lod'. Did you mean 'load'?",
        "hint": "Did you mean 'load'?", "path": "nodes.fetch.next", "file": None, "line": 4, "column": 9,
    },
    "DagVersion": {
        "number": 4, "state": "live", "version_hash": DIGEST, "live_at": LATE, "retired_at": None,
        "message": "five minutes, not one",
    },
    "DatasetPlan": {"name": "candles", "action": "rebuilt", "job": "candles", "version": 3},
    "DeployPlan": {
        "dag": "market", "version": 4, "base": 3, "replaces": None, "at_once": False, "warnings": [],
    },
    "Ended": {"id": ID, "state": "completed", "reason": None, "error": None, "output": {"rows": 240}},
    "Finding": {"code": "digest", "what": f"artifact {ID}", "problem": "its content is not what its digest says",
                "mended": None},
    "FoundOutput": {"output": '{"rows": 240}', "root": ID, "entry": None},
    "GraphEdge": {"source": "fetch", "target": "load", "kind": "next", "label": None, "state": "taken",
                  "path": "M160,144 L200,144"},
    "GraphGroup": {"name": "load", **_PLACE},
    "GraphItem": {**_TASK, "item": 0, "attempt": 1},
    "GraphNode": {**_NODE, "caption": "etl:fetch", "group": None, "job_ids": [], **_PLACE},
    "HealthCheck": {"name": "database", "text": "answers in 1 ms", "advice": None},
    "InputPlan": {"name": "rates", "job": "candles", "producer": "bank, node rates"},
    "JobPlan": {"name": "candles", "action": "changed", "fields": ["config.span"], "upstream": [], "resumed": False},
    "LiveBackfill": {
        "job": "candles", "first_key": "2026-11-01", "last_key": None, "at_once": 2, "partitions": 14, "made": 5,
        "running": 2, "held": 0, "ended_at": None, "cancelled_at": None,
    },
    "LiveDag": {
        "name": "market", "version": 4, "building": None, "paused_at": None, "live_at": LATE, "jobs": 3, "units": 2,
        "held": 0, "writes": 0, "oldest_at": LATE,
    },
    "LiveJob": {
        "name": "candles", "state": "running", "activation": "reactive", "operator": "range_aggregator",
        "runtime": "worker", "strategy": "partition", "is_live": True, "is_building": False, "paused_at": None,
        "units": 2, "held": 0, "writes": 0, "oldest_at": LATE, "is_behind": False, "completed": 1204, "failed": 0,
        "last_error": None, "last_active_at": LATE, "next_at": None, "inputs": ["ticks"], "outputs": ["candles@3"],
        "config_hash": DIGEST, "is_full": False,
    },
    "OpenUnit": {
        "kind": "partition", "lane": "2026-11-14", "state": "running", "since": MOMENT, "run_at": None,
        "said": {"dataset": "ticks", "version": 3, "write": 12, "partitions": ["2026-11-14"]}, "error": None,
    },
    "OperatorState": {"key": "default", "version": 7, "state": {"cursor": 1204}, "updated_at": LATE},
    "RolledBack": {"dag": "market", "version": 3, "was": 4},
    "Touched": {"kind": "live", "name": "alerts", "node": "watch", "dataset": "candles", "schedule": None},
    "Job": {
        **_JOB, "inputs": {"day": "2026-11-14"}, "result": {"rows": 240}, "error": None, "parent_id": None,
        "base_kind": "tag", "labels": {"team": "maps"}, "rerun_of": None, "patch": None, "tag_positions": {},
        "callback_url": None, "unavailable": {},
    },
    "JobAttempt": {**_ATTEMPT, "item": None},
    "JobEvent": {
        "id": f"{ID}.completed", "at": LATE, "type": "task.completed", "state": "completed", "item": None, "data": {},
        "checkpoint": None,
    },
    "JobGraph": {
        "state": "running", "reason": None, "created_at": EARLY, "started_at": MOMENT, "ended_at": None,
        "progress": {"completed": 1, "running": 1}, "groups": [], "width": 480.0, "height": 200.0, "items": [],
        "next_item": None, "is_cut": False,
    },
    "JobNode": {**_NODE, "allow_failure": False},
    "JobSummary": _JOB,
    "KeyLimit": {"key": "customer-7", "max_running": 2, "held": 1},
    "Materialized": {"kind": "version", "depth": 0, "data": _DOCUMENT, "tag_version": 12, "damage": None},
    "Me": {"queues": None, "expires_at": None, "version": "1.4.0"},
    "Metric": {"name": "queue_depth", "kind": "gauge", "help": "Tasks that are ready, by queue."},
    "News": {"messages": ["queue default"], "is_new": True},
    "NodeWhy": {
        "state": "ready", "count": 3, "cause": "no_worker", "text": "no worker of the queue default is alive",
        "advice": "start one: weft worker --queues default",
    },
    "Org": {"slug": "acme", "name": "Acme Ltd", "settings": {}},
    "OrgRole": {"slug": "finance", "name": "Finance", "users": 2},
    "OutboxRow": {
        "kind": "enqueue_task", "ordering_key": None, "payload": {"handler": "email:send"}, "state": "done",
        "available_at": EARLY, "last_error": None, "created_at": EARLY, "processed_at": MOMENT,
    },
    "Partition": {"key": "2026-11-14", "write": 12, "rows": 1200, "bytes": 20_480, "files": 1, "written_at": LATE},
    "Producer": {"workflow": "etl", "node": "summarise", "output": 0},
    "Part": {"name": "database", "problem": None},
    "Pushed": {"tag_version": 12, "compacted": False, "is_dry_run": False, "diff": None},
    "QueueInfo": {
        "name": "default", "paused": False, "max_running": None, "max_running_per_key": None,
        "tasks": {"ready": 3, "running": 2}, "depth": 3, "oldest_at": EARLY, "rate": 12.5, "key_limits": [],
    },
    "RerunStep": {"action": "keep", "why": "nothing about it has changed", "items_kept": 0},
    "Sample": {"value": 3.0, "labels": {"queue": "default"}, "part": ""},
    "Schedule": {
        "name": "etl", "inputs": {"day": "{{ tick.date }}"}, "cron": "0 3 * * *", "every": None,
        "timezone": "Europe/Berlin", "catch_up": "latest", "overlap": "allow", "priority": 0,
        "next_at": "2026-11-15T02:00:00Z", "paused_at": None, "last_at": "2026-11-14T02:00:00Z", "last_error": None,
        "missed": 0,
    },
    "SentEvent": {"answered": 2, "created": True, "sources": 1},
    "SignIn": {"code": "Zk3pXn0v…"},
    "StepTold": {"name": "downloaded", "saved_at": EARLY, "data": {"rows": 240}},
    "Tag": {"is_protected": False, "target_kind": "patch", "target_hash": _HASH, "deleted_at": None},
    "TagMove": {"verb": "patch", "position": 12},
    "Task": {
        **_TASK, "params": {"day": "2026-11-14"}, "output": {"rows": 240}, "crashes": 0, "generation": 0,
        "concurrency_key": None, "waiting_on": 0, "steps": [], "metrics": {}, "audit": [], "unavailable": {},
    },
    "TaskStep": {"name": "downloaded", "saved_at": MOMENT, "took": 1.5, "bytes": 120},
    "TaskSummary": _TASK,
    "Token": {"name": "nightly", "role": "writer", "user": None, "queues": None, "expires_at": None, "revoked_at": None,
              "last_used_at": LATE},
    "User": {"role": "writer", "roles": ["finance"], "deactivated_at": None},
    "Validated": {"is_valid": False},
    "WaitAnswer": {"output": {"rows": 240}},
    "Why": {
        "cause": "no_worker", "text": "no worker of the queue default is alive",
        "advice": "start one: weft worker --queues default", "task_ids": [],
    },
    "WorkerInfo": {
        "hostname": "worker-1", "pid": 4711, "version": "1.4.0", "state": "active", "concurrency": 8,
        "last_heartbeat": LATE, "tasks_completed": 240, "tasks_failed": 1, "is_leader": False,
    },
}  # fmt: skip
