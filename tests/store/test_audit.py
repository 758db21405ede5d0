"""The audit: one row for each act of an operator, in the act's own transaction, and none for anything else."""

from __future__ import annotations

import json
from datetime import timedelta

import asyncpg
import pytest
from store_scene import Store

from weft.core.checks import WHOLE
from weft.queue import audit, look, operate, outbox, queues
from weft.queue.audit import AuditVerb

ACTS = "select verb, actor, subject_kind, subject_ids, subject_name, detail::text from weft.audits order by id"


async def _acts(store: Store) -> list[tuple[object, ...]]:
    return [(*row[:5], json.loads(row[5])) for row in await store.conn.fetch(ACTS)]


async def _dead(store: Store) -> int:
    worker, id = await store.worker(), await store.enqueue()
    await store.end(worker, await store.claim_one(worker))
    return id


async def test_every_verb_of_an_operator_leaves_who_did_it_and_to_what(store: Store) -> None:
    live, dead = await store.enqueue(), await _dead_beside(store)
    effect = await store.run(outbox.add, 1, "callback", {})
    await store.conn.execute("update weft.outbox set state = 'failed'")
    await store.run(operate.cancel, 1, [live], "why", "ann")
    await store.run(operate.replay, 1, [live], "bob")
    await store.run(operate.purge, 1, timedelta(0), None, None, 10, "cid")
    await store.run(queues.create, 1, "mail", "dan")
    await store.run(queues.pause, 1, "mail", "eve")
    await store.run(queues.resume, 1, "mail", "fay")
    await store.run(queues.limit, 1, "mail", 5, actor="gus")
    await store.run(queues.limit, 1, "mail", None, per_key=True, actor="hal")
    await store.run(queues.limit, 1, "mail", 2, key="k", actor="ida")
    await store.run(outbox.replay, 1, None, "joe")
    assert await _acts(store) == [
        ("cancel", "ann", "task", [live], None, {"reason": "why", "count": 1}),
        ("replay", "bob", "task", [live], None, {"count": 1}),
        ("purge", "cid", "task", [dead], None, {"count": 1}),
        ("create", "dan", "queue", [], "mail", {}),
        ("pause", "eve", "queue", [], "mail", {}),
        ("resume", "fay", "queue", [], "mail", {}),
        ("limit", "gus", "queue", [], "mail", {"max_running": 5}),
        ("limit", "hal", "queue", [], "mail", {"max_running_per_key": None}),
        ("limit", "ida", "queue", [], "mail", {"max_running": 2, "key": "k"}),
        ("replay", "joe", "effect", [effect], None, {"count": 1}),
    ]


async def _dead_beside(store: Store) -> int:
    """A dead letter, while what is live stays as it is."""
    worker, id = await store.worker(), await store.enqueue(priority=9)
    await store.end(worker, await store.claim_one(worker))
    return id


async def test_an_act_that_did_not_land_or_was_rolled_back_leaves_nothing(store: Store) -> None:
    id = await store.enqueue()
    await store.run(operate.replay, 1, [id], "ann")
    await store.run(operate.cancel, 2, [id], "no", "ann")
    await store.run(operate.purge, 1, timedelta(0), None, None, 10, "ann")
    await store.run(outbox.replay, 1, None, "ann")
    await store.run(queues.create, 1, "default", "ann")
    transaction = store.conn.transaction()
    await transaction.start()
    await operate.cancel(store.conn, 1, [id], "why", "ann")
    await transaction.rollback()
    assert await _acts(store) == []


async def test_what_is_enqueued_claimed_and_finished_leaves_nothing(store: Store) -> None:
    worker = await store.worker()
    await store.enqueue(idempotency_key="k", concurrency_key="c")
    await store.complete(worker, await store.claim_one(worker))
    await _dead(store)
    assert await _acts(store) == []


async def test_an_act_on_many_is_one_row_with_their_number_and_the_first_thousand(store: Store) -> None:
    await store.conn.execute("select weft.enqueue('h') from generate_series(1, 1200)")
    ids = [row[0] for row in await store.conn.fetch("select id from weft.task order by id")]
    await store.run(operate.cancel, 1, ids, "all", "ann")
    ((_, _, _, kept, _, detail),) = await _acts(store)
    assert (kept, detail) == (ids[:1000], {"reason": "all", "count": 1200})


async def test_whoever_does_not_say_who_he_is_is_the_user_of_the_session(store: Store) -> None:
    await store.run(queues.pause, 1, "default")
    ((_, actor, *_),) = await _acts(store)
    assert actor == await store.conn.fetchval("select session_user")


async def test_a_task_tells_who_cancelled_and_replayed_it_also_among_others(store: Store) -> None:
    one, other = await store.enqueue(actor="ann"), await store.enqueue()
    await store.run(operate.cancel, 1, [one], "why", "bob")
    await store.run(operate.replay, 1, [one], "cid")
    await store.run(operate.cancel, 1, [one, other], "both", "dan")
    task, _, _ = await look.show(store.conn, 1, one)
    assert task.actor == "ann"
    assert [(entry.verb, entry.actor) for entry in task.audit] == [
        ("cancel", "bob"), ("replay", "cid"), ("cancel", "dan"),
    ]  # fmt: skip


async def test_pages_go_from_the_newest_on_and_are_filtered(store: Store) -> None:
    id = await store.enqueue()
    await store.create_queue("mail")
    for name in ("mail", "default", "mail"):
        await store.run(queues.pause, 1, name, "ann")
    await store.run(operate.cancel, 1, [id], "why", "bob")

    async def listed(**filters: object) -> list[str]:
        found = await audit.list_entries(store.conn, 1, **filters)  # type: ignore[arg-type]
        return [f"{entry.verb} {entry.subject_name or entry.subject_ids[0]}" for entry in found]

    whole = await audit.list_entries(store.conn, 1)
    assert [entry.verb for entry in whole] == ["cancel", "pause", "pause", "pause", "create"]
    assert await listed(limit=2) == [f"cancel {id}", "pause mail"]
    assert await listed(limit=2, part=WHOLE._replace(below=whole[1].id)) == ["pause default", "pause mail"]
    assert await listed(verb="create") == ["create mail"]
    assert await listed(queue="default") == ["pause default"]
    assert await listed(actor="bob") == await listed(actor="bob", verb="cancel") == [f"cancel {id}"]
    assert await listed(actor="ann", queue="default") == ["pause default"]
    for nothing in (
        {"verb": "create", "actor": "bob"},
        {"queue": "mail", "actor": "bob"},
        {"task_id": id, "actor": "ann"},
    ):
        assert await listed(**nothing) == []
    assert await listed(task_id=id) == [f"cancel {id}"]
    assert await listed(task_id=id, verb="replay") == []
    assert await audit.list_entries(store.conn, 2) == []


async def test_acts_are_found_by_their_job_and_their_time(store: Store) -> None:
    await store.conn.execute("insert into weft.org (id, slug, name) values (2, 'acme', 'Acme')")
    for actor, verb, job in (("ann", "cancel", 7), ("bob", "pause", 7), ("ann", "pause", 8)):
        await store.run(audit.record_many, 1, actor, AuditVerb(verb), "job", [job])
        await store.run(audit.record_many, 2, actor, AuditVerb(verb), "job", [job])
        await store.run(audit.record_many, 1, actor, AuditVerb(verb), "task", [job])
        await store.advance(hours=1)

    async def listed(**filters: object) -> list[str]:
        found = await audit.list_entries(store.conn, 1, **filters)  # type: ignore[arg-type]
        return [f"{each.verb} {each.subject_kind} {each.subject_ids[0]}" for each in found]

    assert await listed(job_id=7) == ["pause job 7", "cancel job 7"]
    assert await listed(job_id=7, part=WHOLE._replace(is_newest=False)) == ["cancel job 7", "pause job 7"]
    assert await listed(job_id=7, actor="bob") == await listed(job_id=7, verb="pause") == ["pause job 7"]
    now = await store.conn.fetchval("select weft.now()")
    between = {"since": now - timedelta(minutes=150), "until": now - timedelta(minutes=90)}
    assert await listed(**between) == ["pause task 7", "pause job 7"]
    assert await listed(job_id=7, since=between["since"]) == ["pause job 7"]
    assert await listed(actor="ann", until=between["until"]) == ["cancel task 7", "cancel job 7"]


async def test_acts_are_never_changed_and_go_with_the_retention(store: Store) -> None:
    await store.run(queues.pause, 1, "default", "ann")
    with pytest.raises(asyncpg.PostgresError, match="never changed"):
        await store.conn.execute("update weft.audit set actor = 'bob'")
    await store.advance(days=2)
    await store.run(queues.resume, 1, "default", "bob")
    assert await store.run(audit.prune, timedelta(days=3)) == 0
    assert await store.run(audit.prune, timedelta(days=1)) == 1
    assert [act[1] for act in await _acts(store)] == ["bob"]


async def test_every_table_has_the_org_of_its_rows(store: Store) -> None:
    """But for those of the installation."""
    rows = await store.conn.fetch(
        """select c.relname from pg_class c
           where c.relnamespace = 'weft'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition
             and not exists (select 1 from pg_attribute a
                             where a.attrelid = c.oid and a.attname = 'org_id' and a.attnotnull)"""
    )
    assert {row[0] for row in rows} <= {"org", "machine", "lease", "schema_revision", "blob", "tally_mark"}


async def test_the_org_of_what_stands_beside_a_task_is_the_tasks(store: Store) -> None:
    await store.conn.execute("insert into weft.org (id, slug, name) values (2, 'two', 'Two')")
    await store.run(queues.create, 2, "default", None)
    queue = await store.conn.fetchval("select id from weft.queue where org_id = 2")
    long = json.dumps({"text": "x" * 300})
    first, second = [await store.enqueue(org="two", params=long, concurrency_key="k") for _ in range(2)]
    await store.edge(first, second)
    await store.run(queues.limit, 2, "default", 1)
    await store.run(queues.lease_slots, queue, await store.worker(queue), 1, 0)
    for table in ("task_params", "edge", "queue_slot", "key_slot"):
        orgs = [row[0] for row in await store.conn.fetch(f"select distinct org_id from weft.{table}")]
        assert orgs == [2], table
