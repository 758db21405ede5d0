"""The checker has teeth: a breach of each law, planted by hand, is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from crash import ledger
from crash.checker import QUEUE_LAWS, breaches, check, check_outcomes
from crash.sessions import Session, sessions

DONE = """insert into weft.task_done (id, org_id, queue_id, order_id, created_at, ended_at, state, attempt, rank,
  max_attempts, failures, crashes, generation, handler, worker_id)
  select id, org_id, queue_id, order_id, created_at, weft.now(), {state}, attempt, rank, max_attempts, failures,
  crashes, generation, handler, worker_id from weft.task where id = {id}"""
ATTEMPT = """insert into weft.attempt (task_id, attempt, org_id, outcome, ended_at)
  values ({id}, {attempt}, 1, '{outcome}', weft.now())"""
EFFECT = """insert into weft.outbox (org_id, kind, state, payload)
  values (1, 'enqueue_task', 'done', '{{{{"handler":"work"{key}}}}}')"""
GONE = "delete from weft.task where id = {id}"

# For each law what to do to a running task {id} of attempt 1, held by worker {worker}.
BREACHES = {
    "S2: a task is either": [DONE.format(state="'completed'", id="{id}")],
    "S2: what is live": ["update weft.task set state = 'completed' where id = {id}"],
    "S2: an attempt that was accepted": [
        DONE.format(state="'completed'", id="{id}"),
        GONE,
        ATTEMPT.format(id="{id}", attempt=1, outcome="snoozed"),
    ],
    "S3: no attempt is recorded": [ATTEMPT.format(id="{id}", attempt=2, outcome="snoozed")],
    "S3: an attempt that is under way": [ATTEMPT.format(id="{id}", attempt=1, outcome="snoozed")],
    "S4: what runs": ["update weft.task set worker_id = null where id = {id}"],
    "S4: whoever holds": ["update weft.worker set state = 'stopped' where id = {worker}"],
    "S5: a task that ended": [DONE.format(state="'dead'", id="{id}"), GONE],
    "S8: failures and crashes": ["update weft.task set crashes = 1 where id = {id}"],
    "S8: nothing fails": [
        DONE.format(state="'dead'", id="{id}"),
        "update weft.task_done set failures = 4, max_attempts = 3 where id = {id}",
    ],
    "S8: a key's slots": ["update weft.key_slot set held = held + 1"],
    "S8: no key has more": ["update weft.queue set max_running_per_key = 1", "update weft.key_slot set held = 2"],
    "S8: no more slots": [
        "update weft.queue set max_running = 1",
        "insert into weft.queue_slot (queue_id, worker_id, org_id, slots) values (1, {worker}, 1, 2)",
    ],
    "S8: slots of a queue": ["insert into weft.queue_slot (queue_id, worker_id, org_id, slots) values (1, 7, 1, 1)"],
    "S8: no more tasks": ["update weft.queue set max_running = 0"],
    "S8: waiting_on": ["update weft.task set waiting_on = 1 where id = {id}"],
    "S6: nothing is ready": ["update weft.task set waiting_on = 1 where id = {id}"],
    "S9: a task belongs": ["update weft.task set org_id = 2 where id = {id}"],
    "S9: an attempt belongs": [
        ATTEMPT.format(id="{id}", attempt=1, outcome="snoozed"),
        "update weft.attempt set org_id = 2",
    ],
    "S9: what is told of a task": [
        "insert into weft.step (task_id, name, org_id, job_id, attempt, bytes, data)"
        " values ({id}, 's', 1, 7, 1, 1, '1')"
    ],
    "S9: params kept beside": ["insert into weft.task_params (id, org_id, params) values ({id}, 2, '{{}}')"],
    "S9: an edge joins": ["insert into weft.edge (prev, next, org_id) values (7, {id}, 2)"],
    "S9: an idempotency key": ["update weft.idempotency_key set org_id = 2"],
    "S9: blobs and logs": [
        "insert into weft.blob (digest, bytes) values ('d', 1)",
        "insert into weft.task_blob (task_id, digest, org_id) values ({id}, 'd', 2)",
    ],
    "S9: slots belong": ["update weft.key_slot set org_id = 2"],
    "S9: a worker serves": [
        "insert into weft.org (id, slug, name) values (2, 'two', 'Two')",
        "insert into weft.queue (id, org_id, name) values (3, 2, 'default')",
        "update weft.worker set queues = '{{1,3}}' where id = {worker}",
    ],
    "S7: an effect": [EFFECT.format(key="")],
    "L2: nothing is pending": ["update weft.task set state = 'pending', worker_id = null where id = {id}"],
    "L2: nothing waits": [
        "update weft.task set state = 'pending', reason = 'concurrency_key', worker_id = null where id = {id}"
    ],
    "L2: what is scheduled": ["update weft.task set state = 'scheduled', worker_id = null where id = {id}"],
    "S1: the task of": [GONE],
}


async def running_task(worker: Session) -> int:
    """Return a task that the worker holds, with every kind of key."""
    await worker.register()
    task_id = await worker.enqueue(concurrency_key="k", idempotency_key="i")
    assert len(await worker.claim()) == 1
    await check(worker.conn)
    return task_id


@pytest.mark.parametrize("law", QUEUE_LAWS)
async def test_a_breach_of_each_law_is_found(url: str, law: str) -> None:
    async with sessions(url, 1) as (worker,):
        task_id = await running_task(worker)
        for statement in next(steps for start, steps in BREACHES.items() if law.startswith(start)):
            await worker.conn.execute(statement.format(id=task_id, worker=worker.worker_id))
        assert law in await breaches(worker.conn)


@pytest.mark.parametrize(
    ("law", "statement"),
    [
        ("S9: slots", "insert into weft.queue_slot (queue_id, worker_id, org_id, slots) values (1, {worker}, 2, 1)"),
        (
            "S9: blobs",
            "insert into weft.task_log (task_id, org_id, attempt, digest, bytes) values ({id}, 2, 1, 'd', 1)",
        ),
        ("S9: an edge", "insert into weft.edge (prev, next, org_id) values ({id}, 7, 2)"),
        (
            "S9: an attempt",
            "insert into weft.attempt (task_id, attempt, org_id, worker_id, outcome, ended_at)"
            " select {id}, 0, 1, id, 'lost', weft.now() from weft.worker where org_id = 2",
        ),
        ("S7", "update weft.idempotency_key set task_id = 7"),
        ("S7", "update weft.idempotency_key set key = key || '.' where key = 'i'"),
        ("S7", "update weft.idempotency_key set key = key || '.' where key <> 'i'"),
        ("S7", "update weft.idempotency_key set org_id = 2"),
        ("S7", "update weft.idempotency_key set handler = 'other'"),
        ("S7", "update weft.task set org_id = 2"),
    ],
)
async def test_a_law_that_looks_at_several_tables_looks_at_each(url: str, law: str, statement: str) -> None:
    async with sessions(url, 1) as (worker,):
        task_id = await running_task(worker)
        conn = worker.conn
        await conn.execute(EFFECT.format(key=',"idempotency_key":"i"').format())
        await conn.execute(EFFECT.format(key="").format())
        await conn.execute("update weft.outbox set id = 9 where payload ->> 'idempotency_key' is null")
        await worker.enqueue(idempotency_key="outbox-9")
        await conn.execute("insert into weft.blob (digest, bytes) values ('d', 1)")
        await conn.execute("insert into weft.org (id, slug, name) values (2, 'two', 'Two')")
        await conn.execute(
            "insert into weft.worker (org_id, until, concurrency, pid, hostname, version, queues, handlers)"
            " values (2, weft.now(), 1, 1, '', '', '{}', '{}')"
        )
        await check(conn)
        await conn.execute(statement.format(id=task_id, worker=worker.worker_id))
        assert any(broken.startswith(law) for broken in await breaches(conn))


async def test_what_the_ledger_and_the_database_disagree_on_is_found(url: str, tmp_path: Path) -> None:
    async with sessions(url, 1) as (worker,):
        await worker.register()
        await worker.enqueue()
        (claim,) = await worker.claim()
        with pytest.raises(AssertionError, match="still open"):
            await check_outcomes(worker.conn, ledger.Ledger.read(tmp_path))
        assert await worker.complete(claim)
        ledger.acknowledge(tmp_path, [claim.id, 7])
        with pytest.raises(AssertionError, match="1 acknowledged tasks are lost, such as \\[7\\]"):
            await check_outcomes(worker.conn, ledger.Ledger.read(tmp_path))
        (tmp_path / ledger.ACKNOWLEDGED).unlink()
        with pytest.raises(AssertionError, match="never ran"):
            await check_outcomes(worker.conn, ledger.Ledger.read(tmp_path))
        ledger.note(tmp_path, "start", claim.id, 1)
        with pytest.raises(AssertionError, match="never ended"):
            await check_outcomes(worker.conn, ledger.Ledger.read(tmp_path))
        ledger.note(tmp_path, "start", claim.id, 2)
        with pytest.raises(AssertionError, match="after the accepted one"):
            await check_outcomes(worker.conn, ledger.Ledger.read(tmp_path))


def test_the_ledger_counts_what_runs_at_once_and_what_was_granted_twice(tmp_path: Path) -> None:
    for task_id in (1, 2, 3):
        ledger.note(tmp_path, "start", task_id, 1, "a")
    ledger.note(tmp_path, "end", 1, 1, "a")
    ledger.note(tmp_path, "start", 4, 1, "a")
    found = ledger.Ledger.read(tmp_path)
    assert found.most_at_once() == {"a": 3}
    assert found.granted_twice() == []
    ledger.note_death(tmp_path, found.spans[0].worker)
    ledger.note(tmp_path, "start", 2, 2, "a")
    ledger.note(tmp_path, "start", 2, 2, "a")
    found = ledger.Ledger.read(tmp_path)
    assert found.most_at_once() == {"a": 3}
    assert found.granted_twice() == [(2, 2)]
    assert [(one.attempt, two.attempt) for one, two in found.overlapping()] == [(2, 2)]


def test_a_claim_that_a_lost_server_forgot_may_be_granted_again_to_another_worker_alone(tmp_path: Path) -> None:
    def granted(*workers: str, loses: bool) -> list[tuple[int, int]]:
        folder = tmp_path / f"{'-'.join(workers)}-{loses}"
        folder.mkdir()
        for n, worker in enumerate(workers):
            ledger.append(folder / ledger.ATTEMPTS, f"start 1 1 {worker} {worker} {2 * n} -")
            if loses and n == 0:
                ledger.note_server_loss(folder, 1)
        return ledger.Ledger.read(folder).granted_twice()

    assert granted("7", "8", loses=True) == []
    assert granted("7", "8", loses=False) == [(1, 1)]
    assert granted("7", "7", loses=True) == [(1, 1)]
    assert granted("7", "8", "9", loses=True) == [(1, 1)]
