"""Workers without a database: each is its token's own, and only what it holds by its lease is its own."""

from __future__ import annotations

from datetime import timedelta

import asyncpg
import pytest
from store_scene import Store

from weft.queue import queues, remote_workers
from weft.queue.remote_workers import Share
from weft.queue.steps import Fence
from weft.queue.work import Claim

DIGEST, CHILDS = "a" * 64, "b" * 64


async def _had(conn: asyncpg.Connection[asyncpg.Record], fence: Fence) -> bool:
    lease = (fence.task_id, fence.attempt)
    found = await remote_workers.had_among(conn, fence.worker_id, [lease, (fence.task_id, 99)])
    assert found <= {lease}
    return found == {lease}


class Bound:
    """A worker of a token, and the one task that it holds."""

    def __init__(self, store: Store, worker: int, claim: Claim) -> None:
        self.store = store
        self.worker = worker
        self.claim = claim
        self.lease = [(claim.id, claim.attempt)]


@pytest.fixture
async def bound(store: Store) -> Bound:
    worker = await store.worker()
    await remote_workers.bind(store.conn, worker, 7)
    await store.enqueue()
    return Bound(store, worker, await store.claim_one(worker))


async def test_a_worker_is_found_by_its_own_org_and_token_alone(bound: Bound) -> None:
    conn = bound.store.conn
    found = await remote_workers.registered(conn, bound.worker, 1, 7)
    assert found is not None
    assert (found.is_live, found.queues) == (True, {1: "default"})
    assert await remote_workers.registered(conn, bound.worker, 2, 7) is None
    assert await remote_workers.registered(conn, bound.worker, 1, 8) is None
    another = await bound.store.worker()
    assert await remote_workers.registered(conn, another, 1, 7) is None, "that has a database"
    await conn.execute("update weft.worker set state = 'lost' where id = $1", bound.worker)
    await remote_workers.bind(conn, bound.worker, 9)
    found = await remote_workers.registered(conn, bound.worker, 1, 7)
    assert found is not None
    assert not found.is_live


async def test_a_heartbeat_is_due_when_none_came_for_long_or_the_worker_is_lost(bound: Bound) -> None:
    conn = bound.store.conn
    assert not await remote_workers.is_beat_due(conn, bound.worker, timedelta(hours=1))
    await conn.execute("update weft.worker set heartbeat_at = weft.now() - interval '2 hours'")
    assert await remote_workers.is_beat_due(conn, bound.worker, timedelta(hours=1))
    await conn.execute("update weft.worker set heartbeat_at = weft.now(), state = 'lost'")
    assert await remote_workers.is_beat_due(conn, bound.worker, timedelta(hours=1))


async def test_what_is_held_is_running_by_this_worker_and_attempt(bound: Bound) -> None:
    conn, claim = bound.store.conn, bound.claim
    assert await remote_workers.held_among(conn, bound.worker, bound.lease) == {claim.id: claim}
    assert await remote_workers.held_among(conn, bound.worker + 1, bound.lease) == {}
    assert await remote_workers.held_among(conn, bound.worker, [(claim.id, claim.attempt + 1)]) == {}
    await conn.execute("update weft.task set state = 'claimed' where id = $1", claim.id)
    assert await remote_workers.held_among(conn, bound.worker, bound.lease) == {}


async def test_what_runs_and_does_not_rest_takes_a_slot(bound: Bound) -> None:
    conn, claim = bound.store.conn, bound.claim

    async def share(worker: int = bound.worker) -> Share | None:
        return (await remote_workers.shares(conn, worker, [1])).get(1)

    assert await share() is None, "it has no limit"
    await conn.execute("update weft.queue set max_running = 5 where id = 1")
    assert await share() == Share(5, held=0, used=1)
    assert await bound.store.run(queues.lease_slots, 1, bound.worker, 3, 1) == 3
    assert await share() == Share(5, held=3, used=1)
    assert await share(bound.worker + 1) == Share(5, held=0, used=0)
    assert await remote_workers.shares(conn, bound.worker, [2]) == {}
    for attempt, used in ((claim.attempt, 0), (claim.attempt + 1, 1)):
        found = await remote_workers.shares(conn, bound.worker, [1], [(claim.id, attempt)])
        assert found == {1: Share(5, held=3, used=used)}, "what ends leaves its slot"
    own = Fence(bound.worker, claim.id, claim.attempt)
    await remote_workers.rest(conn, own)
    assert await share() == Share(5, held=3, used=0)
    await conn.execute("update weft.task set attempt = attempt + 1 where id = $1", claim.id)
    assert await share() == Share(5, held=3, used=1), "the next attempt does not rest"
    await conn.execute("update weft.task set state = 'claimed' where id = $1", claim.id)
    assert await share() == Share(5, held=3, used=0)


async def test_an_attempt_rests_and_goes_on_by_its_own_worker_alone(bound: Bound) -> None:
    conn, claim = bound.store.conn, bound.claim
    own = Fence(bound.worker, claim.id, claim.attempt)
    others = (own._replace(worker_id=own.worker_id + 1), own._replace(attempt=own.attempt + 1))

    async def looks(state: str) -> None:
        await conn.execute("update weft.task set state = $2::weft.task_state where id = $1", claim.id, state)

    for other in others:
        await remote_workers.rest(conn, other)
    await looks("claimed")
    await remote_workers.rest(conn, own)
    await looks("running")
    assert not await remote_workers.rests(conn, own)
    await remote_workers.rest(conn, own)
    assert [await remote_workers.rests(conn, each) for each in (own, *others)] == [True, False, False]
    for other in others:
        await remote_workers.end_rest(conn, other)
    await looks("claimed")
    assert not await remote_workers.rests(conn, own)
    await remote_workers.end_rest(conn, own)
    await looks("running")
    assert await remote_workers.rests(conn, own)
    await remote_workers.end_rest(conn, own)
    assert not await remote_workers.rests(conn, own)


async def test_what_was_settled_before_is_so_by_this_worker_and_attempt(bound: Bound) -> None:
    conn, claim = bound.store.conn, bound.claim

    async def recorded(outcome: str) -> None:
        await conn.execute("delete from weft.attempt")
        await conn.execute(
            "insert into weft.attempt (task_id, attempt, org_id, worker_id, outcome, ended_at)"
            " values ($1, $2, 1, $3, $4, weft.now())",
            claim.id, claim.attempt, bound.worker, outcome,
        )  # fmt: skip

    await recorded("lost")
    assert await remote_workers.settled_among(conn, bound.worker, bound.lease) == set()
    for outcome in ("failed", "snoozed", "crashed"):
        await recorded(outcome)
        assert await remote_workers.settled_among(conn, bound.worker, bound.lease) == {claim.id}
    assert await remote_workers.settled_among(conn, bound.worker + 1, bound.lease) == set()
    assert await remote_workers.settled_among(conn, bound.worker, [(claim.id, claim.attempt + 1)]) == set()
    await conn.execute("delete from weft.task")
    own = Fence(bound.worker, claim.id, claim.attempt)
    assert await _had(conn, own)
    assert not await _had(conn, own._replace(worker_id=bound.worker + 1))
    assert not await _had(conn, own._replace(attempt=claim.attempt + 1))


async def test_an_attempt_is_or_was_the_workers_own(bound: Bound) -> None:
    conn, claim = bound.store.conn, bound.claim
    own = Fence(bound.worker, claim.id, claim.attempt)
    strangers = own._replace(worker_id=bound.worker + 1), own._replace(attempt=claim.attempt + 1)
    assert await _had(conn, own)
    assert not any([await _had(conn, fence) for fence in strangers])
    await bound.store.complete(bound.worker, claim)
    assert await _had(conn, own)
    assert not any([await _had(conn, fence) for fence in strangers])


async def test_blobs_and_tasks_of_another_org_are_nobodys(bound: Bound) -> None:
    conn, claim = bound.store.conn, bound.claim
    await conn.execute("insert into weft.blob (digest, bytes) values ($1, 1)", DIGEST)
    await conn.execute("insert into weft.task_blob (task_id, digest, org_id) values ($1, $2, 1)", claim.id, DIGEST)
    assert await remote_workers.refers_to(conn, 1, DIGEST)
    assert not await remote_workers.refers_to(conn, 2, DIGEST)
    assert await remote_workers.task_refers_to(conn, 1, [(claim.id, DIGEST), (claim.id + 1, DIGEST)]) == {claim.id}
    assert await remote_workers.task_refers_to(conn, 1, [(claim.id, CHILDS)]) == set()
    assert await remote_workers.task_refers_to(conn, 2, [(claim.id, DIGEST)]) == set()
    assert await remote_workers.of_org(conn, 1, [claim.id], None, 0) == {claim.id}
    assert await remote_workers.of_org(conn, 2, [claim.id], None, 0) == set()
    assert await remote_workers.of_org(conn, 1, [claim.id], [99], 0) == set()
    assert await remote_workers.of_org(conn, 1, [claim.id], [99, claim.queue_id], 0) == {claim.id}
    await bound.store.complete(bound.worker, claim)
    assert await remote_workers.of_org(conn, 1, [claim.id], [99], 0) == set()
    assert await remote_workers.of_org(conn, 1, [claim.id], None, 0) == {claim.id}
    assert await remote_workers.of_org(conn, 2, [claim.id], None, 0) == set()


async def test_a_token_of_some_queues_gets_blobs_of_their_tasks_and_of_what_its_own_need(bound: Bound) -> None:
    store, conn, claim = bound.store, bound.store.conn, bound.claim
    other, child = await store.enqueue(), await store.enqueue()
    await conn.execute("insert into weft.blob (digest, bytes) values ($1, 1), ($2, 1)", DIGEST, CHILDS)
    await conn.execute("insert into weft.task_blob (task_id, digest, org_id) values ($1, $2, 1)", other, DIGEST)
    await conn.execute("insert into weft.task_blob (task_id, digest, org_id) values ($1, $2, 1)", child, CHILDS)

    async def gets(digest: str = DIGEST, queues: tuple[str, ...] = ("mail",), token_id: int = 7) -> bool:
        return await remote_workers.refers_to(conn, 1, digest, queues, token_id)

    assert await gets(queues=("mail", "default"))
    assert not await gets()
    await conn.execute("update weft.task set needs = array[$2::bigint] where id = $1", claim.id, other)
    assert await gets()
    assert not await gets(token_id=8), "the worker is another's"
    await conn.execute("update weft.task set state = 'claimed' where id = $1", claim.id)
    assert not await gets(), "it is not held"
    await conn.execute("update weft.task set state = 'running', needs = null where id = $1", claim.id)
    await conn.execute("update weft.task set parent_id = $2 where id = $1", child, claim.id)
    assert not await gets(CHILDS), "it has no output yet"
    for made in await store.claim(another := await store.worker(), 2):
        assert await store.complete(another, made) == []
    assert await gets(CHILDS)
    assert await gets(CHILDS, queues=("default",), token_id=8)
    assert not await gets(CHILDS, token_id=8)
    assert not await gets()
