"""Spec 4's API: its names, its words, its examples."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import asyncpg
import orchestrated
import pytest

import weft
import weft.orchestration as orchestration
from weft.jobs.adding import Call
from weft.orchestration import (
    Group,
    Job,
    JobStatus,
    OrchContext,
    Task,
    TaskStatus,
    WorkerStatus,
    add_task_to_job,
    cancel_job,
    create_job,
    create_task,
    deregister_worker,
    get_current_context,
    get_job,
    get_logs_dir,
    get_task,
    health_check,
    list_jobs,
    list_workers,
    register_worker,
    retry_failed_tasks,
    run_job_test,
    worker_heartbeat,
)
from weft.queue.steps import Fence


@pytest.fixture(autouse=True)
def _surroundings(url: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The database of the test is the one that the environment names."""
    monkeypatch.setenv("WEFT_DATABASE_URL", url)
    monkeypatch.setenv("WEFT_HOME", str(home))
    orchestrated.SAID.clear()
    orchestrated.ADDED.clear()


async def own(name: str) -> str:
    return f"own {name}"


async def test_a_job_of_one_function_is_created_and_run() -> None:
    job = await create_job("my_job", "orchestrated.extract")
    assert (job.name, job.status) == ("my_job", JobStatus.PENDING)
    run_job_test(job)
    assert (job.status, job.result, orchestrated.SAID) == (JobStatus.COMPLETED, "extract", ["extract"])
    assert job.completed_at is not None
    again = await get_job(job.id)
    assert (again.status, again.started_at) == (JobStatus.COMPLETED, job.started_at)


def test_a_job_is_run_where_no_loop_runs() -> None:
    job = asyncio.run(create_job("my_job", create_task(own, {"name": "x"})))
    assert run_job_test(job).result == "own x"


async def test_a_job_that_fails_says_why() -> None:
    job = run_job_test(await create_job("my job!", create_task(orchestrated.fail, max_attempts=1)))
    assert job.status == JobStatus.FAILED
    assert job.error is not None
    assert "as drawn" in job.error
    assert [each.id for each in await list_jobs(status=JobStatus.FAILED)] == [job.id]
    assert await list_jobs(status="COMPLETED") == []


async def test_only_the_modules_of_the_caller_are_searched() -> None:
    names = ["os.getcwd", "orchestrated._hidden", "orchestrated.asyncio.sleep", "orchestrated.create_task", "no.where"]
    tasks = [create_task(name, allow_failure=True) for name in names]
    assert run_job_test(await create_job("bad", tasks)).status == JobStatus.COMPLETED
    for name, task in zip(names, tasks, strict=True):
        found = await get_task(task.id or 0)
        assert found.status == TaskStatus.FAILED
        assert f"{name!r} is no function of test_orchestration" in str(found.error)
    assert orchestrated.SAID == []


async def test_a_graph_is_applied_to_a_job_that_runs() -> None:
    async with OrchContext() as ctx:
        gate = create_task("orchestrated.extract", {"name": "gate"})
        job = await create_job("etl", gate)
        source, final = create_task(own, {"name": "source"}), create_task("orchestrated.transform", {"name": "final"})
        one, two = (create_task("orchestrated.extract", kwargs={"name": name}) for name in ("one", "two"))
        group1 = Group(name="processing")
        inside = Task(entrypoint="orchestrated.transform", kwargs={"name": "inside"}, group=group1)
        gate >> source >> group1 >> [one, two]  # type: ignore[operator]
        [one, two] >> final
        assert await ctx.apply(source, job_id=job.id) is source
        items = await ctx.apply([source, group1, one, two, final], job_id=job.id)
        assert all(item.id is not None and item.job_id == job.id for item in (*items, inside))
        assert inside.group_id == group1.id
        run_job_test(job)
        assert job.status == JobStatus.COMPLETED
        assert orchestrated.SAID[:2] == ["gate", "inside"]
        assert set(orchestrated.SAID[2:4]) == {"one", "two"}
        assert orchestrated.SAID[4] == "final"
        found = await get_task(inside.id or 0)
        assert (found.status, found.result, found.entrypoint) == ("COMPLETED", "inside", "orchestrated.transform")
        assert (found.kwargs, found.group_id, found.job_id) == ({"name": "inside"}, group1.id, job.id)
        assert found.log_path is not None
        assert "transforming" in Path(found.log_path).read_text(encoding="utf-8")
        assert found.log_path.startswith(get_logs_dir())


async def test_a_task_adds_tasks_to_its_own_job() -> None:
    job = run_job_test(await create_job("growing", create_task(orchestrated.grow, {"count": 3})))
    assert job.status == JobStatus.COMPLETED
    assert sorted(orchestrated.SAID) == ["after", "grown 0", "grown 1", "grown 2"]
    assert orchestrated.SAID[-1] == "after"


async def test_tasks_are_added_to_a_job_by_name() -> None:
    job = await create_job("adding", "orchestrated.extract")
    first = await add_task_to_job(job_id=job.id, entrypoint="orchestrated.transform", kwargs={"name": "first"})
    assert (await get_task(first.id or 0)).status == TaskStatus.PENDING
    assert first.id is not None
    second = await add_task_to_job(job.id, own, {"name": "second"}, depends_on=[first.id])
    assert run_job_test(job).status == JobStatus.COMPLETED
    assert (await get_task(second.id or 0)).result == "own second"


AT_ONCE = weft.Retry(max_attempts=3, initial_delay=0)


async def test_a_later_attempt_gets_the_tasks_that_an_earlier_one_has_added() -> None:
    job = run_job_test(await create_job("growing", create_task(orchestrated.grow_again, retry=AT_ONCE)))
    assert (job.status, sorted(orchestrated.SAID)) == (JobStatus.COMPLETED, ["a", "b", "last"])
    assert len(orchestrated.ADDED) == 3
    assert len(set(orchestrated.ADDED)) == 1


async def test_a_later_attempt_that_adds_others_is_told() -> None:
    task = create_task(orchestrated.grow_again, {"same": False}, retry=AT_ONCE)
    job = run_job_test(await create_job("growing", task))
    assert job.status == JobStatus.FAILED
    assert "an earlier attempt of this task added others by its call 1" in str(job.error)
    assert orchestrated.SAID.count("a") <= 1


async def test_an_attempt_that_is_no_longer_the_one_adds_nothing(client: weft.Client) -> None:
    job = await create_job("held", task := create_task("orchestrated.extract"))
    stale = Call(Fence(1, task.id or 0, 1), 1)
    with pytest.raises(weft.LeaseLost):
        await client.jobs._add(job.id, create_task(own, {"name": "late"}), stale)
    assert {node.node for node in await client.jobs.nodes(job.id)} == {"extract"}


async def test_a_job_is_cancelled() -> None:
    job = await create_job("going", "orchestrated.extract")
    await cancel_job(job.id)
    assert run_job_test(job).status == JobStatus.CANCELLED
    with pytest.raises(weft.StateConflict):
        await cancel_job(job.id)
    with pytest.raises(weft.NotFound):
        await get_job(1)


async def test_failed_tasks_are_retried_in_a_job_that_keeps_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = create_task("orchestrated.extract", {"name": "first"}), create_task("orchestrated.fragile")
    second.depends_on(first)
    job = run_job_test(await create_job("fragile", second))
    assert (job.status, orchestrated.SAID) == (JobStatus.FAILED, ["first"])
    monkeypatch.setattr(orchestrated, "IS_BROKEN", False)
    again = run_job_test(await retry_failed_tasks(job.id))
    assert (again.status, again.result, orchestrated.SAID) == (JobStatus.COMPLETED, "whole", ["first"])


async def test_what_was_added_to_a_job_is_retried_with_it(client: weft.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    first, last = create_task("orchestrated.extract", {"name": "first"}), create_task(own, {"name": "last"})
    group = Group("middle")
    first >> group >> last  # type: ignore[operator]
    job = await create_job("my job", [first, group, last])
    done = create_task("orchestrated.extract", {"name": "done"}, name="done")
    broken = create_task("orchestrated.fragile", name="broken", group_id=group.id, priority=3, retry=AT_ONCE)
    after = create_task("orchestrated.transform", {"name": "x" * 300}, name="after").depends_on(broken)
    async with OrchContext(job_id=job.id) as ctx:
        await ctx.apply([done, broken, after])
    assert run_job_test(job).status == JobStatus.FAILED
    plan = await client.jobs.plan_rerun(job.id, failed=True)
    assert (set(plan.nodes("keep")), set(plan.nodes("run"))) == (
        {"extract", "done"}, {"own", "END", "broken", "after"}
    )  # fmt: skip
    for _ in range(2):
        job = run_job_test(await retry_failed_tasks(job.id))
        assert (job.name, job.status) == ("my job", JobStatus.FAILED)
    monkeypatch.setattr(orchestrated, "IS_BROKEN", False)
    orchestrated.SAID.clear()
    again = run_job_test(await retry_failed_tasks(job.id))
    assert (again.status, again.result, orchestrated.SAID) == (JobStatus.COMPLETED, "own last", ["x" * 300])
    nodes = {node.node: node for node in await client.jobs.nodes(again.id)}
    claimed = [nodes[name].claimed_at for name in ("broken", "own")]
    assert claimed == sorted(claimed, key=str), "what waited for the group waits for it again"
    task = await client.get_task(nodes["broken"].id)
    assert (task.priority, task.max_attempts) == (3, 3)
    plan = await client.jobs.plan_rerun(again.id, from_node="broken", failed=True)
    assert set(plan.nodes("run")) == {"broken", "after", "own", "END"}


async def test_a_task_runs_again_of_which_something_that_it_added_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    job = run_job_test(await create_job("growing", create_task(orchestrated.grow_fragile)))
    assert (job.status, orchestrated.SAID) == (JobStatus.FAILED, ["grow"])
    monkeypatch.setattr(orchestrated, "IS_BROKEN", False)
    again = run_job_test(await retry_failed_tasks(job.id))
    assert (again.status, orchestrated.SAID) == (JobStatus.COMPLETED, ["grow", "grow"])
    assert run_job_test(await retry_failed_tasks(again.id)).status == JobStatus.COMPLETED
    assert orchestrated.SAID == ["grow", "grow"], "what it added has completed, and so it is kept"


async def test_what_belongs_to_others_is_left_to_them_and_every_queue_of_the_job_is_worked(client: weft.Client) -> None:
    await client.create_queue("container-tasks")
    foreign = await client.enqueue("another.program")
    job = await create_job("mine", create_task(own, {"name": "x"}, queue="container-tasks"))
    slow = create_task("orchestrated.wait_until_seen", {"task_id": foreign.id})
    await OrchContext(job_id=job.id).apply(slow)
    assert run_job_test(job).status == JobStatus.COMPLETED
    assert (await client.get_task(foreign.id)).state in ("ready", "scheduled")


async def test_circles_and_wrong_things_are_refused() -> None:
    a, b = create_task(own), create_task(own)
    a >> b >> a  # type: ignore[operator]
    with pytest.raises(weft.InvalidInput, match="circle"):
        await create_job("round", a)
    wrong: list[Any] = [
        lambda: create_task(lambda: None), lambda: create_task(1), lambda: Task("x", group=a),
        lambda: create_task(own, ["x"]),
    ]  # fmt: skip
    for call in wrong:
        with pytest.raises((weft.InvalidInput, AttributeError)):
            call()
    job = await create_job("taken", task := create_task(own, {"name": "x"}))
    with pytest.raises(weft.InvalidInput, match=f"own is part of job {job.id} already"):
        await create_job("again", task)
    with pytest.raises(weft.InvalidInput, match="labels"):
        await create_job("labelled", own, labels={"team": 1})  # type: ignore[dict-item]
    assert [each.id for each in await list_jobs(status="pending")] == [job.id]
    with pytest.raises(weft.InvalidInput, match="status: must be one of PENDING, RUNNING"):
        await list_jobs(status="bogus")
    with pytest.raises(weft.InvalidInput, match="say which job"):
        await OrchContext().apply(create_task(own))
    with pytest.raises(weft.InvalidInput, match="there is none"):
        get_current_context()


async def test_workers_are_registered_and_listed() -> None:
    assert not await health_check()
    worker = await register_worker(hostname="worker-01", pid=12345)
    assert (worker.hostname, worker.pid, worker.status) == ("worker-01", 12345, WorkerStatus.ACTIVE)
    assert await health_check()
    assert (await worker_heartbeat(worker.id)).last_heartbeat >= worker.last_heartbeat
    assert [each.id for each in await list_workers(status=WorkerStatus.ACTIVE)] == [worker.id]
    await deregister_worker(worker.id)
    assert [each.status for each in await list_workers()] == [WorkerStatus.STOPPED]
    with pytest.raises(weft.NotFound):
        await worker_heartbeat(worker.id)


async def test_health_is_bad_while_a_task_is_held_by_a_worker_that_is_gone(
    conn: asyncpg.Connection[asyncpg.Record],
) -> None:
    worker = await register_worker()
    await conn.execute("insert into weft.org (id, slug, name) values (7, 'other', 'Other')")
    gone = """insert into weft.worker (org_id, until, concurrency, pid, hostname, version, queues, handlers)
              values ($1, weft.now() + $2, 1, 1, 'gone', '0', '{}', '{}') returning id"""
    stale = await conn.fetchval(gone, 7, timedelta(minutes=-5))
    await conn.execute(
        """insert into weft.task (id, org_id, queue_id, order_id, state, handler, worker_id)
           values (1, 7, 1, 1, 'running', 'h', $1)""",
        stale,
    )
    assert await health_check()
    await conn.execute("update weft.worker set org_id = 1 where id = $1", stale)
    assert not await health_check()
    await conn.execute("update weft.worker set org_id = 7, until = weft.now() + interval '1 hour' where id = $1", stale)
    await deregister_worker(worker.id)
    assert not await health_check()


async def test_health_is_bad_without_a_database(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_DATABASE_URL", "postgresql://localhost:1/none")
    assert not await health_check()


def test_every_state_has_a_word() -> None:
    from weft.core.job_states import JobState
    from weft.core.states import TaskState
    from weft.orchestration.models import JOB_STATUS, TASK_STATUS

    assert set(JOB_STATUS) == set(JobState)
    assert set(TASK_STATUS) == set(TaskState)


def test_the_names_of_the_module_are_these() -> None:
    assert orchestration.__all__ == sorted(orchestration.__all__)
    assert Job.__doc__
