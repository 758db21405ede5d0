"""Jobs put together from tasks and groups in Python, in the style of aaiclick's orchestration backend."""

from __future__ import annotations

from weft.orchestration.calls import add_task_to_job, cancel_job, get_job, get_task, list_jobs, retry_failed_tasks
from weft.orchestration.context import Context, OrchContext, get_current_context
from weft.orchestration.factories import create_job, create_task
from weft.orchestration.health import get_logs_dir, health_check
from weft.orchestration.models import Dependency, Group, Job, JobStatus, Task, TaskStatus, Worker, WorkerStatus
from weft.orchestration.trying import run_job_test
from weft.orchestration.workers import deregister_worker, list_workers, register_worker, worker_heartbeat
from weft.sdk.mapping import map

__all__ = [
    "Context",
    "Dependency",
    "Group",
    "Job",
    "JobStatus",
    "OrchContext",
    "Task",
    "TaskStatus",
    "Worker",
    "WorkerStatus",
    "add_task_to_job",
    "cancel_job",
    "create_job",
    "create_task",
    "deregister_worker",
    "get_current_context",
    "get_job",
    "get_logs_dir",
    "get_task",
    "health_check",
    "list_jobs",
    "list_workers",
    "map",
    "register_worker",
    "retry_failed_tasks",
    "run_job_test",
    "worker_heartbeat",
]
