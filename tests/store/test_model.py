"""The real database against a model in plain Python: any sequence of verbs must leave both the same."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, TypeVar

import asyncpg
import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from queue_model import BEAT, LEASE, RETRY_DELAY, Fence, Model, ModelQueue, ModelTask, ModelWorker
from store_scene import Store

from reset import RESET
from weft.core.errors import StateConflict
from weft.queue import graph, queues, upkeep, work, workers
from weft.queue.enqueue import Draft, Form, enqueue_many
from weft.queue.work import Claim, Completed, Lane

T = TypeVar("T")
RETRY = f'{{"backoff":"fixed","initial_delay":{RETRY_DELAY},"max_delay":3600,"jitter":0}}'
KEYS = ["red", "blue"]
picks = st.integers(0, 10**6)

# What must hold whatever happened, told by the rows alone; each query returns what is wrong.
INVARIANTS = {
    "no id is live and ended": "select id from weft.task intersect select id from weft.task_done",
    "held slots of keys are the admitted tasks": """
        select s.key, s.held from weft.key_slot s where s.held <> (
          select count(*) from weft.task t where t.queue_id = s.queue_id and t.concurrency_key = s.key
            and t.state in ('ready', 'dispatched', 'claimed', 'running'))""",
    "an admitted task has a row of slots": """
        select t.id from weft.task t where t.concurrency_key is not null and t.state in ('ready', 'running')
          and not exists (select 1 from weft.key_slot s where s.queue_id = t.queue_id and s.key = t.concurrency_key)""",
    "nothing waits for a key that has room": """
        select t.id from weft.task t join weft.queue q on q.id = t.queue_id
        left join weft.key_slot s on s.queue_id = t.queue_id and s.key = t.concurrency_key
        where t.state = 'pending' and t.reason = 'concurrency_key'
          and coalesce(s.held, 0) < coalesce(s.max_running, q.max_running_per_key, 2147483647)""",
    "waiting_on counts the predecessors that have not completed": """
        select t.id, t.waiting_on from weft.task t where t.waiting_on <> (
          select count(*) from weft.edge e where e.next = t.id
            and not exists (select 1 from weft.task_done d where d.id = e.prev and d.state = 'completed'))""",
    "what waits is not claimable": "select id from weft.task where waiting_on > 0 and state <> 'pending'",
    "what runs has a worker and what does not has none": """
        select id from weft.task where (state = 'running') <> (worker_id is not null)""",
    "what is scheduled has a time": "select id from weft.task where (state = 'scheduled') <> (due_at is not null)",
    "only what runs expires": "select id from weft.task where expires_at is not null and state <> 'running'",
    "a reason belongs to its state": """
        select id, state, reason from weft.task where reason is not null and state not in ('pending', 'scheduled')""",
    "attempts are those that were claimed": """
        select a.task_id from weft.attempt a left join weft.tasks t on t.id = a.task_id
        where t.id is null or a.attempt > t.attempt or a.attempt < 1""",
    "an unsuccessful end of an attempt is recorded": """
        select d.id from weft.task_done d where d.state in ('failed', 'dead') and not exists (
          select 1 from weft.attempt a where a.task_id = d.id and a.attempt = d.attempt)""",
    "slots are leased to live workers or to holders": """
        select s.worker_id from weft.queue_slot s join weft.worker w on w.id = s.worker_id
        where w.state = 'lost' and w.rescued_at is not null""",
    "no final state is live and no live state is final": """
        select id from weft.task where state in ('completed', 'failed', 'dead', 'skipped', 'cancelled')
        union
        select id from weft.task_done where state not in ('completed', 'failed', 'dead', 'skipped', 'cancelled')""",
}


BROKEN_LAWS = "\nunion all\n".join(
    f"select $law${law}$law$ as law, row_to_json(x)::text as found from ({query}) x"
    for law, query in INVARIANTS.items()
)


class Queue(RuleBasedStateMachine):
    """Verbs in any order, each checked for its answer and for what it left behind."""

    # Shared by all examples, so that statements are planned once.
    runner: asyncio.Runner
    conn: asyncpg.Connection[asyncpg.Record]

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.store = Store(self.conn)
        self.last_attempts: dict[int, int] = {}
        self.do(self.conn.execute(RESET))

    def do(self, call: Awaitable[T]) -> T:
        return self.runner.get_loop().run_until_complete(call)

    def verb(self, function: Callable[..., Awaitable[T]], *arguments: Any, **options: Any) -> T:
        return self.do(self.store.run(function, *arguments, **options))

    # --- choices ---

    def _task(self, pick: int) -> ModelTask:
        return list(self.model.tasks.values())[pick % len(self.model.tasks)]

    def _fence(self, pick: int) -> Fence:
        """One of all attempts ever granted, more often one that is held."""
        held = [fence for fence in self.model.granted if self.model.holds(fence)]
        chosen = held if held and pick % 4 else self.model.granted
        return chosen[(pick // 4) % len(chosen)]

    def _worker(self, pick: int) -> int:
        """One of all workers, more often one that lives."""
        live = [id for id, worker in self.model.workers.items() if worker.state == "active"]
        chosen = live if live and pick % 4 else list(self.model.workers)
        return chosen[(pick // 4) % len(chosen)]

    def _any(self, **wanted: object) -> bool:
        """Whether there is a task like that."""
        return any(
            all(getattr(task, name) == value for name, value in wanted.items()) for task in self.model.tasks.values()
        )

    def _workers(self) -> list[ModelWorker]:
        return list(self.model.workers.values())

    def _queue(self, pick: int) -> ModelQueue:
        return list(self.model.queues.values())[pick % len(self.model.queues)]

    def _claim(self, fence: Fence) -> Claim:
        _, id, attempt = fence
        return Claim(id, attempt, 0, 0, 0, "h", None, 0, 0, 0, None, None, None, None)

    # --- rules ---

    @initialize()
    def begin(self) -> None:
        self.model.queues[1] = ModelQueue(1, "default")
        other = self.do(self.store.create_queue("other"))
        self.model.queues[other] = ModelQueue(other, "other")
        for _ in range(2):
            self.register()
        for queue in range(2):
            self.enqueue_many(queue, [None, "red", "red", None, "blue", "red"], 0)

    @precondition(lambda self: sum(w.state == "active" for w in self._workers()) < 3)
    @rule()
    def register(self) -> None:
        id = self.do(self.store.worker(*self.model.queues, lease=timedelta(seconds=LEASE)))
        self.model.workers[id] = ModelWorker(id, self.model.now + LEASE)

    @rule(
        queue=picks,
        priority=st.integers(-1, 1),
        key=st.sampled_from([None, None, *KEYS]),
        delayed=st.booleans(),
        attempts=st.integers(1, 3),
        beats=st.booleans(),
        once=st.sampled_from([None, None, "one", "two"]),
    )
    def enqueue(
        self, queue: int, priority: int, key: str | None, delayed: bool, attempts: int, beats: bool, once: str | None
    ) -> None:
        lane = self._queue(queue)
        row = self.do(
            self.conn.fetchrow(
                """select id, created from weft.enqueue('h', queue => $1, priority => $2, concurrency_key => $3,
                     delay => $4, max_attempts => $5, heartbeat_timeout => $6, idempotency_key => $7, retry => $8)""",
                lane.name,
                priority,
                key,
                timedelta(seconds=RETRY_DELAY) if delayed else None,
                attempts,
                timedelta(seconds=BEAT) if beats else None,
                once,
                RETRY,
            )
        )
        assert row is not None
        if once in self.model.idempotent:
            assert tuple(row) == (self.model.idempotent[once], False)
            return
        assert row["created"]
        assert row["id"] not in self.model.tasks
        if once is not None:
            self.model.idempotent[once] = row["id"]
        due = self.model.now + RETRY_DELAY if delayed else None
        self.model.enqueue(ModelTask(row["id"], lane.id, priority, key, attempts, beats, due=due))

    @rule(
        queue=picks, keys=st.lists(st.sampled_from([None, *KEYS]), min_size=1, max_size=6), priority=st.integers(0, 1)
    )
    def enqueue_many(self, queue: int, keys: list[str | None], priority: int) -> None:
        lane = self._queue(queue)
        ids = [row[0] for row in self.do(self.conn.fetch("select weft.next_id() from unnest($1::text[])", keys))]
        form = Form("h", lane.name, priority, None, None, 3, RETRY, None, None)
        drafts = [Draft(form, "{}", concurrency_key=key) for key in keys]
        names = {info.name: info.id for info in self.model.queues.values()}
        self.verb(enqueue_many, drafts, ids, 1, names, None, has_keys=False, has_times=False)
        self.model.enqueue(
            *(ModelTask(id, lane.id, priority, key, 3, False) for id, key in zip(ids, keys, strict=True))
        )

    @precondition(lambda self: self._any(state="ready"))
    @rule(worker=picks, wanted=st.integers(1, 4))
    def claim(self, worker: int, wanted: int) -> None:
        self.finish_and_claim(worker, wanted, wanted > 1, [])

    @rule(worker=picks, wanted=st.integers(1, 4), both=st.booleans(), fences=st.lists(picks, min_size=1, max_size=3))
    def finish_and_claim(self, worker: int, wanted: int, both: bool, fences: list[int]) -> None:
        me = self._worker(worker)
        mine = [fence for fence in self.model.granted if fence[0] == me and self.model.holds(fence)]
        done = sorted({mine[pick % len(mine)] for pick in fences}) if mine else []
        chosen = list(self.model.queues) if both else [list(self.model.queues)[wanted % 2]]
        lanes = []
        for queue in chosen:
            finishing = sum(1 for fence in done if self.model.tasks[fence[1]].queue == queue)
            running = self.model.running(me, queue) - finishing
            limit = self.model.queues[queue].limit
            if limit is None:
                lanes.append((queue, -1))
                continue
            # As a worker does: it leases what it runs and wants, counting what is about to end as ended.
            granted = self.verb(queues.lease_slots, queue, me, min(running + wanted, limit), running)
            expected = self.model.lease(queue, me, min(running + wanted, limit), running)
            assert granted == expected
            lanes.append((queue, max(0, (granted or 0) - running)))
        outcomes = [Completed(id, attempt, "null") for _, id, attempt in done]
        claims, lost = self.do(
            work.finish_and_claim(self.conn, me, outcomes, [Lane(queue, room) for queue, room in lanes], wanted)
        )
        assert set(lost) == self.model.complete(done)
        self._same_claims(claims, me, self.model.claim(me, lanes, wanted))

    @precondition(lambda self: self._any(state="ready"))
    @rule(worker=picks, wanted=st.integers(1, 3), queue=picks, mark=st.none() | picks, from_head=st.booleans())
    def claim_as_if_unlimited(self, worker: int, wanted: int, queue: int, mark: int | None, from_head: bool) -> None:
        """A worker that knows of no limit, and may claim above a mark only."""
        me, lane = self._worker(worker), self._queue(queue)
        place = None
        if mark is not None and self.model.tasks:
            task = self._task(mark)
            place = (-task.priority, task.id)
        lanes = [Lane(lane.id) if place is None else Lane(lane.id, mark=(place[0], place[1], place[1]))]
        claims, _ = self.do(work.finish_and_claim(self.conn, me, [], lanes, wanted, from_head=from_head))
        self._same_claims(claims, me, self.model.claim(me, [(lane.id, -1)], wanted, place, from_head))

    def _same_claims(self, claims: list[Claim], worker: int, expected: set[int]) -> None:
        assert {claim.id for claim in claims} == expected
        assert len(claims) == len(expected)
        for claim in claims:
            assert (worker, claim.id, claim.attempt) in self.model.granted
            assert claim.attempt == self.model.tasks[claim.id].attempt

    @precondition(lambda self: self.model.granted)
    @rule(picked=st.lists(picks, min_size=1, max_size=3))
    def complete(self, picked: list[int]) -> None:
        first = self._fence(picked[0])
        others = [self._fence(pick) for pick in picked[1:]]
        by_task = {fence[1]: fence for fence in [*others, first] if fence[0] == first[0]}
        fences = sorted(by_task.values(), key=lambda fence: fence[1])
        outcomes = [Completed(id, attempt, "null") for _, id, attempt in fences]
        _, lost = self.do(work.finish_and_claim(self.conn, first[0], outcomes, [], 0))
        assert set(lost) == self.model.complete(fences)

    @precondition(lambda self: self.model.granted)
    @rule(pick=picks, counted=st.booleans())
    def postpone(self, pick: int, counted: bool) -> None:
        fence = self._fence(pick)
        landed = self.do(self.store.postpone(fence[0], self._claim(fence), delay=RETRY_DELAY, counted=counted))
        assert bool(landed) == self.model.postpone(fence, RETRY_DELAY, counted, "error")

    @precondition(lambda self: self.model.granted)
    @rule(pick=picks, state=st.sampled_from(["failed", "dead"]))
    def end(self, pick: int, state: str) -> None:
        fence = self._fence(pick)
        landed = self.do(self.store.end(fence[0], self._claim(fence), state))
        assert bool(landed) == self.model.end(fence, state)

    @precondition(lambda self: self.model.granted)
    @rule(pick=picks)
    def hand_back(self, pick: int) -> None:
        fence = self._fence(pick)
        landed = self.do(self.store.hand_back(fence[0], self._claim(fence)))
        assert bool(landed) == self.model.hand_back(fence)

    @precondition(lambda self: self.model.granted)
    @rule(pick=picks)
    def beat_for_task(self, pick: int) -> None:
        fence = self._fence(pick)
        landed = self.do(work.extend_expiry(self.conn, fence[0], [fence[1:]]))
        assert bool(landed) == self.model.holds(fence)
        task = self.model.tasks[fence[1]]
        if landed and task.beats:
            task.expires = self.model.now + BEAT

    @rule(pick=picks)
    def cancel(self, pick: int) -> None:
        task = self._task(pick)
        assert bool(self.do(self.store.cancel(task.id))) == self.model.cancel(task.id)

    @precondition(lambda self: any(not self.model.is_live(id) for id in self.model.tasks))
    @rule(pick=picks)
    def replay(self, pick: int) -> None:
        ended = [task for task in self.model.tasks.values() if not self.model.is_live(task.id)]
        task = ended[pick // 8 % len(ended)] if pick % 8 else self._task(pick // 8)
        assert bool(self.do(self.store.replay(task.id))) == self.model.replay(task.id)

    @precondition(lambda self: self._any(state="scheduled"))
    @rule()
    def stage(self) -> None:
        assert self.do(self.store.stage()) == self.model.stage()

    @precondition(lambda self: self._any(state="running", beats=True))
    @rule()
    def expire(self) -> None:
        assert self.verb(upkeep.expire) == self.model.expire()

    @precondition(lambda self: self._any(state="scheduled") or self._any(state="running", beats=True))
    @rule(seconds=st.sampled_from([100, 300, 500]))
    def advance(self, seconds: int) -> None:
        self.model.now += seconds
        self.do(self.store.advance(seconds=seconds))

    @rule(worker=picks)
    def beat(self, worker: int) -> None:
        me = self.model.workers[self._worker(worker)]
        pulse = self.do(self.store.beat(me.id, lease=timedelta(seconds=LEASE)))
        assert (pulse is not None) == (me.state == "active")
        if pulse is not None:
            me.until = self.model.now + LEASE
            held = [task for task in self.model.tasks.values() if (task.worker, task.state) == (me.id, "running")]
            assert pulse.held == len(held)

    @rule(worker=picks)
    def lapse(self, worker: int) -> None:
        """Nobody hears of a worker any more, most likely of one that holds something."""
        holders = sorted({task.worker for task in self.model.tasks.values() if task.worker and task.state == "running"})
        me = self.model.workers[holders[worker % len(holders)] if holders else self._worker(worker)]
        me.until = self.model.now - 50
        self.do(
            self.conn.execute("update weft.worker set until = weft.now() - interval '50 seconds' where id = $1", me.id)
        )

    @precondition(lambda self: any(w.until < self.model.now and w.state == "active" for w in self._workers()))
    @rule()
    def mark_lost(self) -> None:
        assert set(self.verb(upkeep.mark_lost)) == self.model.mark_lost()

    @precondition(lambda self: any(w.state != "active" and not w.rescued for w in self._workers()))
    @rule(loss_limit=st.integers(1, 3))
    def rescue(self, loss_limit: int) -> None:
        lost = self.do(upkeep.lost_workers(self.conn))
        count = sum(self.verb(upkeep.rescue, worker, loss_limit)[0] for worker in lost)
        assert count == self.model.rescue(loss_limit)

    @precondition(lambda self: sum(w.state == "active" for w in self._workers()) > 1)
    @rule(worker=picks)
    def stop(self, worker: int) -> None:
        """A worker leaves and gives everything back."""
        me = self.model.workers[self._worker(worker)]

        async def leave() -> bool:
            async with self.conn.transaction():
                await work.hand_back_all(self.conn, me.id)
                return await workers.deregister(self.conn, me.id)

        landed = self.do(leave())
        assert landed == (me.state == "active")
        for task in self.model.tasks.values():
            if task.worker == me.id and task.state == "running":
                task.state, task.worker, task.expires = "ready", None, None
        self.model.slots = {place: n for place, n in self.model.slots.items() if place[1] != me.id}
        if landed:
            me.state = "stopped"

    @rule(first=picks, second=picks)
    def add_edge(self, first: int, second: int) -> None:
        prev, next = sorted((self._task(first).id, self._task(second).id))
        if prev == next:
            return
        assert self.verb(graph.hold, next) == self.model.hold(next)
        expected = self.model.add_edge(prev, next)
        found: bool | None = None
        with contextlib.suppress(StateConflict):
            found = self.verb(graph.add_edge, prev, next)
        assert found == expected

    @precondition(lambda self: self._any(reason="dependencies"))
    @rule(pick=picks)
    def release(self, pick: int) -> None:
        held = [task for task in self.model.tasks.values() if task.reason == "dependencies"]
        task = held[pick // 8 % len(held)] if pick % 8 else self._task(pick // 8)
        assert self.verb(graph.release, task.id) == self.model.release(task.id)

    @rule(queue=picks, paused=st.booleans())
    def pause_or_resume(self, queue: int, paused: bool) -> None:
        lane = self._queue(queue)
        self.verb(queues.pause if paused else queues.resume, 1, lane.name)
        lane.paused = paused

    @rule(queue=picks, kind=st.sampled_from(["queue", "per key", *KEYS]), most=st.none() | st.integers(1, 4))
    def limit(self, queue: int, kind: str, most: int | None) -> None:
        lane = self._queue(queue)
        match kind:
            case "queue":
                self.verb(queues.limit, 1, lane.name, most)
                lane.limit = most
            case "per key":
                self.verb(queues.limit, 1, lane.name, most, per_key=True)
                lane.per_key = most
            case key:
                self.verb(queues.limit, 1, lane.name, most, key=key)
                self.model.key_limits.pop((lane.id, key), None)
                if most is not None:
                    self.model.key_limits[lane.id, key] = most
        for key in KEYS:
            self.model.park_surplus(lane.id, key)
            self.model.admit(lane.id, key)
        # What changes nothing that anybody could see.
        self.verb(upkeep.prune_idle_keys)
        assert self.verb(queues.admit) == set()

    # --- what must hold after each step ---

    @invariant()
    def the_database_is_as_the_model(self) -> None:
        rows = self.do(
            self.conn.fetch(
                """select id, state, reason, attempt, failures, crashes, generation, worker_id, waiting_on
                   from weft.tasks"""
            )
        )
        found = {row["id"]: tuple(row)[1:] for row in rows}
        wanted = {}
        for id, task in self.model.tasks.items():
            if task.state == "completed":
                task.reason = None
            wanted[id] = task.observed()
        assert found == wanted

    @invariant()
    def slots_are_as_the_model(self) -> None:
        rows = self.do(self.conn.fetch("select queue_id, worker_id, slots from weft.queue_slot where slots > 0"))
        found = {(row[0], row[1]): row[2] for row in rows}
        assert found == {place: n for place, n in self.model.slots.items() if n}

    @invariant()
    def the_rows_alone_make_sense(self) -> None:
        assert [tuple(row) for row in self.do(self.conn.fetch(BROKEN_LAWS))] == []

    @invariant()
    def no_fence_is_granted_twice_and_attempts_only_grow(self) -> None:
        pairs = [(id, attempt) for _, id, attempt in self.model.granted]
        assert len(set(pairs)) == len(pairs)
        attempts = {id: task.attempt for id, task in self.model.tasks.items()}
        assert all(attempts[id] >= before for id, before in self.last_attempts.items())
        self.last_attempts = attempts


@pytest.mark.long
def test_any_sequence_of_verbs_leaves_the_queue_as_the_model_says(shared_database: str, campaign: str) -> None:
    examples, steps = (1000, 100) if campaign == "long" else (30, 40)
    with asyncio.Runner() as runner:
        Queue.runner = runner
        Queue.conn = runner.run(asyncpg.connect(shared_database))
        try:
            run_state_machine_as_test(
                Queue,
                settings=settings(
                    max_examples=examples,
                    stateful_step_count=steps,
                    deadline=None,
                    database=None,
                    suppress_health_check=list(HealthCheck),
                    print_blob=True,
                    # One that fails is told as it was found: to make it smaller takes longer than a test may.
                    phases=[Phase.explicit, Phase.reuse, Phase.generate],
                ),
            )
        finally:
            runner.run(Queue.conn.close())
