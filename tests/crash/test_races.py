"""Races, each run in every order: sessions are stepped statement by statement, and wait for each other's locks."""

from __future__ import annotations

import asyncio
import itertools
from datetime import timedelta
from pathlib import Path

import pytest

import weft
from crash.checker import check
from crash.harness import opened
from crash.sessions import DEFAULT, Session, sessions, until_done_or_waiting
from weft.core.settings import Settings
from weft.queue import graph, queues, upkeep, work, workers
from weft.queue.services import Rescuer
from weft.queue.work import Lane

ORDERS = list(itertools.permutations(("cancel", "complete", "rescue")))


async def claimed(worker: Session, **arguments: object) -> work.Claim:
    """Return a task that the worker holds."""
    task_id = await worker.enqueue(**arguments)
    (claim,) = await worker.claim()
    assert claim.id == task_id
    return claim


async def test_a_late_worker_cannot_complete_a_rescued_task(url: str) -> None:
    async with sessions(url, 3) as (late, rescuer, other):
        await late.register()
        await other.register()
        first = await claimed(late)
        await late.lapse()
        assert await rescuer.rescue(late.worker_id) == 1
        assert not await late.complete(first)
        (second,) = await other.claim()
        assert (second.id, second.attempt, second.crashes) == (first.id, 2, 1)
        assert not await late.complete(first)
        assert await other.complete(second)
        assert not await late.complete(first)
        await check(rescuer.conn)


async def test_a_late_worker_cannot_complete_a_task_that_it_holds_again_by_a_later_attempt(url: str) -> None:
    async with sessions(url, 1) as (worker,):
        await worker.register()
        first = await claimed(worker)
        await work.hand_back(worker.conn, worker.worker_id, [(first.id, first.attempt)])
        (second,) = await worker.claim()
        assert not await worker.complete(first)
        assert await worker.complete(second)
        assert await worker.complete(second), "a repeated finish by the same worker and attempt answers that it landed"
        await check(worker.conn)


async def test_a_heartbeat_after_the_worker_was_given_up_does_not_land(url: str) -> None:
    async with sessions(url, 2) as (late, rescuer):
        await late.register()
        await late.lapse()
        await upkeep.mark_lost(rescuer.conn)
        pulse = await workers.heartbeat(
            late.conn, late.worker_id, lease=timedelta(seconds=60), busy=False, completed=0, failed=0
        )
        assert pulse is None


async def test_a_finish_that_waits_for_a_lock_does_not_hold_up_the_heartbeat(url: str) -> None:
    """Else a worker would lose its lease because somebody else keeps a task locked."""
    async with sessions(url, 4) as (worker, heart, blocker, watcher):
        await worker.register()
        claim = await claimed(worker)
        async with blocker.conn.transaction():
            await blocker.conn.execute("select 1 from weft.task for update")
            done = [work.Completed(claim.id, claim.attempt, "null")]
            call = await worker.blocked(
                work.finish_and_claim(worker.conn, worker.worker_id, done, [Lane(DEFAULT)], 5), watcher
            )
            heart.worker_id = worker.worker_id
            pulse = asyncio.create_task(beat(heart))
            await until_done_or_waiting(pulse, heart, watcher)
            is_held_up = not pulse.done()
        await asyncio.gather(call, pulse)
        assert not is_held_up


async def test_a_heartbeat_does_not_wait_for_the_lead(url: str) -> None:
    """Who leads matters to load only: a leader that stands still inside a transaction must not stop all hearts."""
    async with sessions(url, 3) as (leader, worker, watcher):
        await leader.register()
        await worker.register()
        assert (await beat(leader)).leader
        async with leader.conn.transaction():
            await leader.conn.execute("update weft.lease set until = weft.now() - interval '1 ms'")
            call = asyncio.create_task(beat(worker))
            await until_done_or_waiting(call, worker, watcher)
            is_held_up = not call.done()
        await call
        assert not is_held_up


async def beat(session: Session) -> workers.Pulse:
    """Send a heartbeat of the session's worker, which is not lost."""
    pulse = await workers.heartbeat(
        session.conn, session.worker_id, lease=timedelta(seconds=60), busy=True, completed=0, failed=0
    )
    assert pulse is not None
    return pulse


async def test_a_worker_that_was_given_up_claims_nothing(url: str) -> None:
    """Whatever it would claim after its rescue, nobody would ever take from it again."""
    async with sessions(url, 2) as (late, rescuer):
        await late.register()
        await late.enqueue()
        await late.lapse()
        await rescuer.rescue(late.worker_id)
        assert await late.claim() == []
        await check(rescuer.conn)


async def test_what_a_worker_claims_while_it_is_given_up_is_rescued(url: str) -> None:
    """The claim is under way, not yet committed, while the worker is marked lost and rescued."""
    async with sessions(url, 3) as (late, rescuer, other):
        await late.register()
        await other.register()
        task_id = await late.enqueue()
        await late.lapse()
        claim = late.conn.transaction()
        await claim.start()
        mine = await late.claim()
        rescue = asyncio.create_task(rescuer.rescue(late.worker_id))
        # Either the rescue waits for the claim, or it passes it over and must find it later.
        await until_done_or_waiting(rescue, rescuer, other)
        await claim.commit()
        await rescue
        await keep_rescuing(rescuer)
        (again,) = await other.claim()
        assert again.id == task_id
        assert not mine or not await late.complete(mine[0])
        await check(rescuer.conn)


async def keep_rescuing(rescuer: Session) -> None:
    """Do as the rescuer of a leader does, which looks for lost workers again and again."""
    await upkeep.mark_lost(rescuer.conn)
    for lost in await upkeep.lost_workers(rescuer.conn):
        await upkeep.rescue(rescuer.conn, lost, 3)


@pytest.mark.parametrize("order", ORDERS, ids="-".join)
async def test_cancel_complete_and_rescue_one_after_the_other(url: str, order: tuple[str, ...]) -> None:
    async with sessions(url, 3) as (worker, rescuer, operator):
        await worker.register()
        claim = await claimed(worker)
        await worker.lapse()
        landed = [name for name in order if await act(name, worker, rescuer, operator, claim)]
        await expect(operator, claim, order, landed)


@pytest.mark.parametrize("order", ORDERS, ids="-".join)
@pytest.mark.parametrize("is_kept", [True, False], ids=["committed", "rolled_back"])
async def test_cancel_complete_and_rescue_at_once(url: str, order: tuple[str, ...], is_kept: bool) -> None:
    """The first has not committed when the others come; it commits or rolls back while they wait, in their order."""
    async with sessions(url, 4) as (worker, rescuer, operator, watcher):
        await worker.register()
        claim = await claimed(worker)
        await worker.lapse()
        by_name = {"cancel": operator, "complete": worker, "rescue": rescuer}
        first = by_name[order[0]].conn.transaction()
        await first.start()
        assert await act(order[0], worker, rescuer, operator, claim)
        waiting = {}
        for name in order[1:]:
            call = transacted(by_name[name], name, worker, rescuer, operator, claim)
            if name == "rescue":
                assert not await call, "a rescue waits for nobody, and comes again"
            else:
                waiting[name] = await by_name[name].blocked(call, watcher)
        await (first.commit() if is_kept else first.rollback())
        done = dict(zip(waiting, await asyncio.gather(*waiting.values()), strict=True))
        begun = ([order[0]] if is_kept else []) + list(waiting)
        landed = [name for name in begun if done.get(name, True)]
        await expect(operator, claim, tuple(begun), landed)


async def act(name: str, worker: Session, rescuer: Session, operator: Session, claim: work.Claim) -> bool:
    """Do one of the three; return whether it landed."""
    if name == "cancel":
        return await operator.cancel(claim.id)
    if name == "complete":
        return await worker.complete(claim)
    return await rescuer.rescue(worker.worker_id) == 1


async def transacted(session: Session, *arguments: object) -> bool:
    """Do one of the three in a transaction, as all of them are done."""
    async with session.conn.transaction():
        return await act(*arguments)  # type: ignore[arg-type]


async def expect(watcher: Session, claim: work.Claim, order: tuple[str, ...], landed: list[str]) -> None:
    """Compare what landed with what the table of states allows in this order."""
    moves = {
        "rescue": ({"running"}, "ready"),
        "complete": ({"running"}, "completed"),
        "cancel": ({"running", "ready"}, "cancelled"),
    }
    state, expected = "running", []
    for name in order:
        sources, target = moves[name]
        if state in sources:
            state = target
            expected.append(name)
    assert (landed, await watcher.state_of(claim.id)) == (expected, state)
    await check(watcher.conn)


async def test_claimers_at_once_never_get_more_than_they_ask_for(url: str) -> None:
    async with sessions(url, 16) as claimers:
        watcher = claimers[0]
        for session in claimers:
            await session.register()
        for _ in range(12):
            await watcher.conn.fetch("select weft.enqueue('work') from generate_series(1, 60)")
            found = await asyncio.gather(*(session.claim(5) for session in claimers))
            assert max(map(len, found)) == 5
            ids = [claim.id for claims in found for claim in claims]
            assert len(ids) == len(set(ids)) <= 60
            held = await watcher.conn.fetch(
                "select worker_id, count(*)::int from weft.task where state = 'running' group by 1"
            )
            assert dict(held) == {s.worker_id: len(c) for s, c in zip(claimers, found, strict=True) if c}
            await check(watcher.conn)
            results = await asyncio.gather(*(s.complete(*c) for s, c in zip(claimers, found, strict=True)))
            assert all(results)
            await watcher.conn.execute("delete from weft.task")


async def test_a_claimer_passes_over_what_another_is_about_to_claim(url: str) -> None:
    async with sessions(url, 2) as (first, second):
        await first.register()
        await second.register()
        ids = [await first.enqueue() for _ in range(10)]
        async with first.conn.transaction():
            assert [claim.id for claim in await first.claim(4)] == ids[:4]
            assert [claim.id for claim in await second.claim(4)] == ids[4:8]
        assert [claim.id for claim in await first.claim(4)] == ids[8:]
        await check(first.conn)


# --- edges ---


async def test_a_predecessor_that_finishes_while_an_edge_is_added_releases_the_task(url: str) -> None:
    async with sessions(url, 3) as (worker, adder, watcher):
        await worker.register()
        prev = await claimed(worker)
        next_id = await adder.enqueue()
        adding = adder.conn.transaction()
        await adding.start()
        assert await graph.hold(adder.conn, next_id)
        assert await graph.add_edge(adder.conn, prev.id, next_id)
        finish = await worker.blocked(worker.complete(prev), watcher)
        await adding.commit()
        assert await finish
        assert await watcher.state_of(next_id) == "ready"
        assert [claim.id for claim in await worker.claim(5)] == [next_id]
        await check(watcher.conn)


@pytest.mark.parametrize("is_kept", [True, False], ids=["committed", "rolled_back"])
async def test_an_edge_that_is_added_while_its_predecessor_finishes_is_not_waited_for(url: str, is_kept: bool) -> None:
    async with sessions(url, 3) as (worker, adder, watcher):
        await worker.register()
        prev = await claimed(worker)
        next_id = await adder.enqueue()
        finishing = worker.conn.transaction()
        await finishing.start()
        assert await worker.complete(prev)

        async def add() -> bool:
            async with adder.conn.transaction():
                assert await graph.hold(adder.conn, next_id)
                waits = await graph.add_edge(adder.conn, prev.id, next_id)
                return waits or not await graph.release(adder.conn, next_id)

        adding = await adder.blocked(add(), watcher)
        await (finishing.commit() if is_kept else finishing.rollback())
        waits = await adding
        assert waits is not is_kept
        assert await watcher.state_of(next_id) == ("ready" if is_kept else "pending")
        await check(watcher.conn)
        if not is_kept:
            assert await worker.complete(prev)
            assert await watcher.state_of(next_id) == "ready"
        await check(watcher.conn)


async def test_the_last_of_several_predecessors_releases_the_task_when_they_finish_at_once(url: str) -> None:
    async with sessions(url, 3) as (one, two, watcher):
        await one.register()
        await two.register()
        first, second = await claimed(one), await claimed(two)
        next_id = await watcher.enqueue()
        async with watcher.conn.transaction():
            await graph.hold(watcher.conn, next_id)
            await graph.add_edge(watcher.conn, first.id, next_id)
            await graph.add_edge(watcher.conn, second.id, next_id)
        finishing = one.conn.transaction()
        await finishing.start()
        assert await one.complete(first)
        other = await two.blocked(two.complete(second), watcher)
        await finishing.commit()
        assert await other
        assert await watcher.state_of(next_id) == "ready"
        await check(watcher.conn)


async def test_a_task_with_a_concurrency_key_that_waits_for_another_gives_its_slot_back(url: str) -> None:
    async with sessions(url, 1) as (worker,):
        await worker.register()
        prev = await claimed(worker)
        next_id = await worker.enqueue(concurrency_key="k")
        async with worker.conn.transaction():
            assert await graph.hold(worker.conn, next_id)
            assert await graph.add_edge(worker.conn, prev.id, next_id)
        await check(worker.conn)
        assert await worker.complete(prev)
        await check(worker.conn)
        (claim,) = await worker.claim()
        assert await worker.complete(claim)
        await check(worker.conn)


# --- idempotency keys ---


@pytest.mark.parametrize("is_kept", [True, False], ids=["committed", "rolled_back"])
async def test_of_64_callers_with_one_idempotency_key_one_creates_the_task(url: str, is_kept: bool) -> None:
    """One has inserted the key and not committed, and all the others wait for it."""
    call = "select id, created from weft.enqueue('work', idempotency_key => 'one')"
    async with sessions(url, 65) as (watcher, first, *others):
        inserting = first.conn.transaction()
        await inserting.start()
        answers = [await first.conn.fetchrow(call)]
        waiting = [await other.blocked(other.conn.fetchrow(call), watcher) for other in others]
        if is_kept:
            await inserting.commit()
        else:
            answers.clear()
            await inserting.rollback()
        answers += await asyncio.gather(*waiting)
        assert len({answer["id"] for answer in answers}) == 1
        assert sum(answer["created"] for answer in answers) == 1
        assert await first.conn.fetchval("select count(*) from weft.task") == 1
        await check(first.conn)


async def test_an_idempotency_key_that_expires_during_a_call_does_not_swallow_the_task(url: str) -> None:
    """The key is known when the caller inserts it, and pruned before the caller reads whose it is."""
    async with sessions(url, 3) as (caller, pruner, watcher):
        await caller.register()
        old = await claimed(caller, idempotency_key="k")
        assert await caller.complete(old)
        await gate(watcher, "idempotency_key")
        enqueue = await caller.blocked(
            caller.conn.fetchrow("select id, created from weft.enqueue('work', idempotency_key => 'k')"), watcher
        )
        prune = asyncio.create_task(pruner.conn.execute("delete from weft.idempotency_key where key = 'k'"))
        await until_done_or_waiting(prune, pruner, watcher)
        await open_gate(watcher)
        answer = await enqueue
        await prune
        assert answer["id"] is not None
        assert await watcher.state_of(answer["id"]) == ("ready" if answer["created"] else "completed")
        await check(watcher.conn)


async def test_of_64_calls_of_one_client_with_one_key_one_creates_the_task(url: str, tmp_path: Path) -> None:
    settings = Settings.load(environ={}, database_url=url, home=tmp_path)
    async with weft.Client(settings=settings) as client, sessions(url, 1) as (watcher,):
        single = [client.enqueue("work", idempotency_key="one") for _ in range(32)]
        many = [
            client.enqueue_many(
                [weft.NewTask("work", idempotency_key="one"), weft.NewTask("work", idempotency_key="two")]
            )
            for _ in range(32)
        ]
        answers = await asyncio.gather(*single, *many)
        handles = [handle for answer in answers for handle in (answer if isinstance(answer, list) else [answer])]
        assert len({handle.id for handle in handles}) == 2
        assert sum(handle.created for handle in handles) == 2
        assert await watcher.conn.fetchval("select count(*) from weft.task") == 2
        await check(watcher.conn)


# --- heartbeats of a task's own ---


@pytest.mark.parametrize("is_late", [True, False], ids=["expired_first", "completed_first"])
async def test_a_task_that_missed_its_own_heartbeat_is_ended_once(url: str, is_late: bool) -> None:
    async with sessions(url, 3) as (worker, leader, watcher):
        await worker.register()
        claim = await claimed(worker, heartbeat_timeout=timedelta(seconds=60))
        await watcher.conn.execute("update weft.task set expires_at = weft.now() - interval '1 ms'")
        first, second = (leader, worker) if is_late else (worker, leader)
        calls = {leader: lambda: upkeep.expire(leader.conn), worker: lambda: worker.complete(claim)}
        transaction = first.conn.transaction()
        await transaction.start()
        assert await calls[first]()
        late = asyncio.ensure_future(calls[second]())
        await until_done_or_waiting(late, second, watcher)
        await transaction.commit()
        assert not await late
        assert not await work.extend_expiry(worker.conn, worker.worker_id, [(claim.id, claim.attempt)])
        assert await watcher.state_of(claim.id) == ("scheduled" if is_late else "completed")
        await check(watcher.conn)


# --- rescue in bulk ---


async def test_a_rescuer_comes_to_an_end_however_many_workers_and_tasks_are_lost(url: str, tmp_path: Path) -> None:
    """More workers than it looks at in a round, and one that holds more tasks than it takes in a round."""
    settings = Settings.load(environ={}, database_url=url, home=tmp_path)
    async with sessions(url, 1) as (watcher,), opened(settings) as database:
        await watcher.conn.fetch("select weft.enqueue('work') from generate_series(1, 2700)")
        await watcher.register()
        for wanted in (2500, *[1] * 150):
            await watcher.register()
            assert len(await watcher.claim(wanted)) == wanted
        await watcher.conn.execute("update weft.worker set until = weft.now() - interval '1 ms'")
        rescuer = Rescuer(database, settings, lambda: True)
        rounds = 0
        while await watcher.conn.fetchval("select exists (select 1 from weft.task where state = 'running')"):
            assert await rescuer.run_once() > 0
            rounds += 1
        assert rounds < 10
        await rescuer.run_once()
        assert await watcher.conn.fetchval("select count(*) from weft.worker where rescued_at is null") == 0
        assert await watcher.conn.fetchval("select count(*) from weft.task where state = 'ready'") == 2700
        await check(watcher.conn)


# --- concurrency keys ---


async def test_a_key_that_is_forgotten_while_a_task_asks_for_a_slot_does_not_strand_it(url: str) -> None:
    """The key is known when the task asks for it, and pruned as idle before its row is locked."""
    async with sessions(url, 3) as (caller, pruner, watcher):
        await caller.register()
        assert await caller.complete(await claimed(caller, concurrency_key="k"))
        await gate(watcher, "key_slot")
        enqueue = await caller.blocked(caller.enqueue(concurrency_key="k"), watcher)
        await upkeep.prune_idle_keys(pruner.conn)
        await open_gate(watcher)
        task_id = await enqueue
        assert await watcher.state_of(task_id) == "ready"
        await check(watcher.conn)


@pytest.mark.parametrize("is_freed_first", [True, False], ids=["freed_first", "parked_first"])
async def test_a_slot_that_is_freed_while_a_task_asks_for_it_is_given_to_it(url: str, is_freed_first: bool) -> None:
    async with sessions(url, 3) as (holder, caller, watcher):
        await watcher.conn.execute("update weft.queue set max_running_per_key = 1")
        await holder.register()
        claim = await claimed(holder, concurrency_key="k")
        first, second = (holder, caller) if is_freed_first else (caller, holder)
        calls = {holder: lambda: holder.complete(claim), caller: lambda: caller.enqueue(concurrency_key="k")}
        transaction = first.conn.transaction()
        await transaction.start()
        await calls[first]()
        waiting = await second.blocked(calls[second](), watcher)
        await transaction.commit()
        await waiting
        await check(watcher.conn)
        (again,) = await holder.claim()
        assert await holder.complete(again)
        await check(watcher.conn)


async def test_a_cancelled_task_that_waits_for_a_slot_lets_the_next_have_it(url: str) -> None:
    """The slot is freed while the first in line is being cancelled."""
    async with sessions(url, 3) as (holder, operator, watcher):
        await watcher.conn.execute("update weft.queue set max_running_per_key = 1")
        await holder.register()
        claim = await claimed(holder, concurrency_key="k")
        first, second = [await watcher.enqueue(concurrency_key="k") for _ in range(2)]
        cancelling = operator.conn.transaction()
        await cancelling.start()
        assert await operator.cancel(first)
        finish = await holder.blocked(holder.complete(claim), watcher)
        await cancelling.commit()
        assert await finish
        assert await watcher.state_of(second) == "ready"
        await check(watcher.conn)


# --- slots of a queue ---


async def test_workers_that_ask_at_once_never_get_more_slots_than_a_queue_has(url: str) -> None:
    async with sessions(url, 8) as workers_:
        watcher = workers_[0]
        await watcher.conn.execute("update weft.queue set max_running = 10")
        for session in workers_:
            await session.register()

        async def lease(session: Session) -> int | None:
            async with session.conn.transaction():
                return await queues.lease_slots(session.conn, DEFAULT, session.worker_id, 3, 0)

        granted = await asyncio.gather(*map(lease, workers_))
        assert sorted(granted) == [0, 0, 0, 0, 1, 3, 3, 3]
        await check(watcher.conn)
        await workers_[granted.index(3)].lapse()
        lost = workers_[granted.index(3)].worker_id
        assert await watcher.rescue(lost) == 0
        freed = await asyncio.gather(*(lease(session) for session in workers_ if session.worker_id != lost))
        assert sum(freed) == 10
        await check(watcher.conn)


async def test_a_worker_that_was_given_up_gets_no_slots_of_a_queue(url: str) -> None:
    """Nobody would ever give them back."""
    async with sessions(url, 2) as (late, rescuer):
        await rescuer.conn.execute("update weft.queue set max_running = 4")
        await late.register()
        await late.lapse()
        await rescuer.rescue(late.worker_id)
        async with late.conn.transaction():
            await queues.lease_slots(late.conn, DEFAULT, late.worker_id, 4, 0)
        await check(rescuer.conn)


async def test_a_worker_that_knows_of_no_limit_gets_nothing_from_a_limited_queue(url: str) -> None:
    async with sessions(url, 1) as (worker,):
        await worker.register()
        await worker.enqueue()
        await worker.conn.execute("update weft.queue set max_running = 4")
        assert await worker.claim(5) == []
        claims, _ = await work.finish_and_claim(worker.conn, worker.worker_id, [], [Lane(DEFAULT, room=1)], 5)
        assert len(claims) == 1


# --- sync points ---


async def gate(keeper: Session, table: str) -> None:
    """Let whoever has inserted into a table, or found that it need not, wait until the gate is opened."""
    await keeper.conn.execute(f"""
        create function gate() returns trigger language plpgsql as
          $$ begin perform pg_advisory_xact_lock_shared(1); return null; end $$;
        create trigger gate after insert on weft.{table} for each statement execute function gate();
        select pg_advisory_lock(1);
    """)


async def open_gate(keeper: Session) -> None:
    """Let everybody pass."""
    await keeper.conn.execute("select pg_advisory_unlock(1)")
