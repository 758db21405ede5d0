"""What is asked about jobs and tasks by their ids, and done with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from weft.core.checks import check_id
from weft.core.error_lines import error_line
from weft.jobs.adding import SQL
from weft.jobs.items import Known
from weft.orchestration.context import borrowed_client
from weft.orchestration.factories import create_task
from weft.orchestration.models import JOB_STATUS, TASK_STATUS, Group, Job, JobStatus, Task, word_of
from weft.sdk.graph_calls import own_call
from weft.worker.logs import log_dir, log_path


async def get_job(job_id: int) -> Job:
    """Return a job as it is now; raises `NotFound`.

    Example::

        print((await get_job(job.id)).status)
    """
    async with borrowed_client() as client:
        return Job.of(await client.jobs.show(job_id), client.settings)


async def list_jobs(
    status: JobStatus | str | None = None, *, name: str | None = None, before: int | None = None, limit: int = 100
) -> list[Job]:
    """Return jobs, newest first, of one status or of all; pass the last id as ``before`` for the next page.

    Example::

        failed = await list_jobs(status=JobStatus.FAILED)
    """
    wanted = None if status is None else word_of(status, JobStatus)
    states = None if wanted is None else [state for state, word in JOB_STATUS.items() if word == wanted]
    async with borrowed_client() as client:
        found = await client.jobs.list(workflow_id=name, state=states, before=before, limit=limit)
        return [Job.of(each, client.settings) for each in found]


async def cancel_job(job_id: int) -> None:
    """Cancel a job: nothing of it begins any more, and what runs is told to stop. Raises `StateConflict`.

    Example::

        await cancel_job(job.id)
    """
    async with borrowed_client() as client:
        await client.jobs.cancel(job_id)


async def add_task_to_job(
    job_id: int, entrypoint: str | Callable[..., Any], kwargs: Mapping[str, Any] | None = None, *,
    depends_on: Sequence[int] = (), **options: Any,
) -> Task:  # fmt: skip
    """Add a task to a job that goes on, after those that ``depends_on`` names, and return it with its id.

    ``options`` are those of `Task`. Example::

        await add_task_to_job(job_id=job.id, entrypoint="myapp.process", kwargs={"data": "orders"})
    """
    task = create_task(entrypoint, kwargs, **options).depends_on(
        [Known(check_id(id, "depends_on")) for id in depends_on]
    )
    call = own_call(job_id)
    async with borrowed_client() as client:
        await client.jobs._add(job_id, task, call)
    return task


async def get_task(task_id: int) -> Task:
    """Return a task as it is now; raises `NotFound`.

    Example::

        task = await get_task(task_id)
        print(task.status, task.result)
    """
    async with borrowed_client() as client:
        found = await client.get_task(task_id)
        group = await client.database.read(lambda conn: conn.fetchrow(SQL.group_of, task_id))
        params = found.params if isinstance(found.params, dict) else {}
        task = Task(found.handler, params, queue=found.queue, priority=found.priority, max_attempts=found.max_attempts)
        if group is not None:
            task.join(Group(id=group["id"]))
        task.id, task.job_id = found.id, found.job_id
        task.status, task.result = TASK_STATUS[found.state], found.output
        task.error = found.reason if found.error is None else error_line(found.error)
        path = log_path(log_dir(client.settings), task_id)
        task.log_path = str(path) if path.exists() else None
        task.worker_id, task.created_at = found.worker_id, found.created_at
        task.claimed_at = task.started_at = found.claimed_at
        task.completed_at = found.ended_at
        return task


async def retry_failed_tasks(job_id: int) -> Job:
    """Run what failed in a job, and what comes after it, again, as a new job; what has completed is kept.

    Example::

        again = await retry_failed_tasks(job.id)
    """
    async with borrowed_client() as client:
        again = await client.jobs.rerun(job_id, failed=True)
        return Job.of(await client.jobs.show(again.id), client.settings)
