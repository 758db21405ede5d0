"""A worker: claims tasks, runs them, settles them, and keeps the whole queue going while it leads."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import asyncpg

from weft.core.errors import WeftError
from weft.core.settings import Settings
from weft.db.blobs import open_blobs
from weft.db.database import CONNECTION_ERRORS, Database
from weft.queue import outbox, queues, upkeep, work, workers
from weft.queue.service import Service
from weft.queue.services import Drainer, Pruner, Rescuer, Stager
from weft.queue.work import HEAD, Claim, Completed, Ended, Lane, Postponed
from weft.queue.workers import Pulse
from weft.worker.attempt import Attempt, Environment, Outcome
from weft.worker.heart import Heart
from weft.worker.line import Line
from weft.worker.logs import Capture, log_dir
from weft.worker.processes import Processes
from weft.worker.registry import Registry
from weft.worker.slots import Slots

logger = logging.getLogger("weft.worker")
BATCH = 500
DECLINE_DELAY = timedelta(seconds=2)


class Worker:
    """One worker process, or one of several in a process.

    It holds at most ``concurrency`` tasks. Outcomes and claims share one round trip: with no call under way one is sent
    at once, and what finishes during a call goes with the next, so a lone task is quick and a flood is batched.
    """

    def __init__(
        self, database: Database, settings: Settings, registry: Registry, *, org_id: int, queue_names: Sequence[str],
        concurrency: int, version: str, app_modules: Sequence[str] = (), sinks: Mapping[str, outbox.Sink] | None = None,
    ) -> None:  # fmt: skip
        self._database = database
        self._settings = settings
        self._registry = registry
        self._org_id = org_id
        self._queue_names = list(dict.fromkeys(queue_names))
        self._concurrency = concurrency
        self._version = version
        self._app_modules = list(app_modules)
        self._sinks = dict(sinks or {})
        self.id = 0
        self.completed = 0
        self.failed = 0
        self.fenced = 0
        self._running: dict[int, Attempt] = {}
        self._unbegun: list[Claim] = []
        self._completed: list[Completed] = []
        self._unsuccessful: list[Postponed | Ended] = []
        self._lanes: list[Lane] = []
        self._wake = asyncio.Event()
        self._changed = asyncio.Event()
        self._is_stopping = False
        self._is_lost = False
        self._is_saturated = False
        self._was_short = False
        self._mismatches = 0
        self._head_cost = 0.0
        self._headed_at = 0.0
        self._mark_cost = 0.0
        self._services: list[Service] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        self._main: asyncio.Task[None] | None = None

    # --- life ---

    async def start(self) -> None:
        """Register, connect and begin to claim; returns when the first claim may come."""
        self._loop = asyncio.get_running_loop()
        main_file = getattr(sys.modules.get("__main__"), "__file__", None)
        modules = {handler.function.__module__ for handler in self._registry}
        uses_main = "__main__" in modules
        self._processes = Processes(
            [*self._app_modules, *sorted(modules - {"__main__"} - set(self._app_modules))],
            os.path.abspath(main_file) if uses_main and main_file else None,
        )
        await self._register()
        Capture.start()
        self._main = asyncio.create_task(self._work(), name="weft-worker")

    async def _register(self) -> None:
        settings = self._settings
        async with self._database.transaction() as conn:
            known = await queues.ids(conn, self._org_id)
            for name in self._queue_names:
                if name not in known:
                    await queues.create(conn, self._org_id, name, "worker")
            known = await queues.ids(conn, self._org_id)
            self._lanes = [Lane(known[name]) for name in self._queue_names]
            self.id = await workers.register(
                conn, self._org_id, lease=settings.lease_time, concurrency=self._concurrency, pid=os.getpid(),
                hostname=socket.gethostname(), version=self._version, queues=[lane.queue_id for lane in self._lanes],
                handlers=self._registry.names(),
            )  # fmt: skip
        self._is_lost = False
        self._slots = Slots(self._database, self.id)
        self._line = Line(self._database, f"weft_worker_{self.id}", self._hear)
        self._env = Environment(
            settings, self.id, open_blobs(settings), self._processes, log_dir(settings), self._beat, self._ended
        )
        self._heart = Heart(
            self._database, self.id, interval=settings.heartbeat_interval, lease=settings.lease_time,
            patience=settings.worker_task_timeout, on_pulse=self._feel, counters=self._counters,
        )  # fmt: skip
        await self._slots.refresh(self._lanes)
        await self._line.open()
        self._heart.start()
        await self._start_services()
        self._wake.set()

    async def _start_services(self) -> None:
        database, settings = self._database, self._settings
        self._stager = Stager(database)
        self._rescuer = Rescuer(database, settings, self._has_settled)
        self._drainer = Drainer(database, self.id, self._sinks)
        self._pruner = Pruner(database, settings)
        self._services = []

    def _has_settled(self) -> bool:
        """Whether other workers have had time to come back after an outage that this one saw."""
        failed_at = self._heart.failed_at
        return failed_at is None or time.monotonic() - failed_at > 2 * self._settings.heartbeat_interval.total_seconds()

    async def wait(self) -> None:
        """Return when the worker has stopped; raises what ended it."""
        if self._main is not None:
            await asyncio.shield(self._main)

    async def wait_until_idle(self) -> None:
        """Return when nothing runs and the last claim came up empty."""
        while not (self._was_short and not self._running and not self._completed and not self._unsuccessful):
            self._changed.clear()
            await self._changed.wait()

    async def stop(self, grace: timedelta | None = None) -> None:
        """Stop claiming, hand back what has not begun, let the rest end within ``grace``, then release."""
        if self._main is None or self._main.done():
            return
        self._is_stopping = True
        self._wake.set()
        limit = (self._settings.worker_shutdown_grace if grace is None else grace).total_seconds()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._drained(), limit)
        for attempt in list(self._running.values()):
            attempt.end("stopped")
        await self._finish()

    async def _drained(self) -> None:
        while self._running or self._completed or self._unsuccessful or self._unbegun:
            self._changed.clear()
            await self._changed.wait()

    async def _finish(self) -> None:
        if self._main is not None:
            self._main.cancel()
            await asyncio.gather(self._main, return_exceptions=True)
        await self._leave()
        await self._processes.close()
        Capture.stop()

    async def _leave(self) -> None:
        """End the services and the heart, and give everything back that is still held."""
        await asyncio.gather(*(service.stop() for service in self._services))
        await self._heart.stop()
        ending = [attempt.task for attempt in self._running.values() if attempt.task is not None]
        if ending:
            await asyncio.wait(ending, timeout=5)
        held = [(claim.id, claim.attempt) for claim in self._unbegun]
        held += [(attempt.claim.id, attempt.claim.attempt) for attempt in self._running.values()]
        self._unbegun, self._running = [], {}
        with contextlib.suppress(*CONNECTION_ERRORS, WeftError, asyncpg.PostgresError, TimeoutError):
            async with self._database.transaction() as conn:
                woken = await work.hand_back(conn, self.id, held) if held else set()
                await workers.deregister(conn, self.id)
            if woken:
                async with self._database.acquire() as conn:
                    await queues.hint(conn, sorted(woken))
        await self._line.close()

    # --- what comes from outside ---

    def _hear(self, message: str) -> None:
        """A notification: a hint that there is work, or that a task was cancelled."""
        verb, _, rest = message.partition(" ")
        if verb == "cancel":
            attempt = self._running.get(int(rest))
            if attempt is not None:
                self._drop(attempt, "cancelled")
        elif verb == "due":
            self._stager.kick()
            return
        elif verb == "offline":
            logger.warning("%s", rest)
        elif len(self._running) + len(self._unbegun) >= self._concurrency:
            self._spawn(self._pass_on())
        self._wake.set()

    async def _pass_on(self) -> None:
        """A hint came to a worker without a free slot: let hints go elsewhere, and this one first."""
        if not self._is_saturated:
            self._is_saturated = True
            async with self._database.transaction() as conn:
                await workers.set_saturated(conn, self.id, True)
        async with self._database.acquire() as conn:
            await queues.hint(conn, [lane.queue_id for lane in self._lanes])

    def _feel(self, pulse: Pulse | None) -> None:
        """A heartbeat came back: None says that the worker is lost."""
        if pulse is None:
            self._is_lost = True
            self._wake.set()
            return
        self._end_overdue()
        ours = len(self._running) + len(self._unbegun)
        self._mismatches = self._mismatches + 1 if pulse.held < ours or pulse.held > ours else 0
        if self._mismatches >= 3:
            self._mismatches = 0
            self._spawn(self._reconcile())
        if pulse.leader != bool(self._services):
            self._spawn(self._lead(pulse.leader))
        if pulse.leader:
            if pulse.lapsed:
                self._rescuer.kick()
            if pulse.next_due_at is not None:
                self._stager.kick()
            if pulse.has_outbox:
                self._drainer.kick()
        if pulse.limited or self._slots.is_limited:
            self._spawn(self._refresh_limits())

    async def _refresh_limits(self) -> None:
        await self._slots.refresh(self._lanes)
        self._wake.set()

    async def _lead(self, leads: bool) -> None:
        if leads and not self._services:
            self._services = [self._stager, self._rescuer, self._drainer, self._pruner]
            await asyncio.gather(*(service.start() for service in self._services))
        elif not leads and self._services:
            services, self._services = self._services, []
            await asyncio.gather(*(service.stop() for service in services))

    def _in_use(self) -> Counter[int]:
        """How many tasks of each queue this worker holds, those about to be settled not counted."""
        count = Counter(attempt.claim.queue_id for attempt in self._running.values())
        count.subtract(self._running[outcome.id].claim.queue_id for outcome in self._completed)
        count.update(claim.queue_id for claim in self._unbegun)
        return count

    def _counters(self) -> tuple[bool, int, int]:
        return bool(self._running), self.completed, self.failed

    def _beat(self, claim: Claim) -> None:
        """A handler's own heartbeat; comes from any thread."""
        if claim.heartbeat_timeout is not None:
            self._loop.call_soon_threadsafe(lambda: self._spawn(self._extend(claim)))

    async def _extend(self, claim: Claim) -> None:
        async with self._database.transaction() as conn:
            landed = await work.extend_expiry(conn, self.id, claim)
        attempt = self._running.get(claim.id)
        if not landed and attempt is not None and attempt.claim.attempt == claim.attempt:
            self._drop(attempt, "lost")

    def _spawn(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._spawned)

    def _spawned(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (problem := task.exception()) is not None:
            logger.warning("%s: %s", type(problem).__name__, problem)

    # --- attempts ---

    def _begin(self, claim: Claim) -> None:
        handler = self._registry.get(claim.handler)
        if handler is None:
            self._spawn(self._decline(claim))
            return
        attempt = Attempt(self._env, claim, handler)
        self._running[claim.id] = attempt
        attempt.task = self._loop.create_task(attempt.run())
        if claim.timeout is not None:
            attempt.timer = self._loop.call_later(claim.timeout.total_seconds(), attempt.end, "timeout")

    def _ended(self, attempt: Attempt, outcome: Outcome | None) -> None:
        if attempt.timer is not None:
            attempt.timer.cancel()
        if self._running.get(attempt.claim.id) is not attempt:
            return
        if outcome is None:
            if not self._is_stopping:
                del self._running[attempt.claim.id]
        elif isinstance(outcome, Completed):
            self._completed.append(outcome)
        else:
            self._unsuccessful.append(outcome)
        self._wake.set()

    def _drop(self, attempt: Attempt, why: str) -> None:
        """End an attempt that is no longer ours; nothing is written."""
        self._running.pop(attempt.claim.id, None)
        attempt.end(why)
        self.fenced += 1
        self._changed.set()
        self._wake.set()

    def _end_overdue(self) -> None:
        now = time.monotonic()
        for attempt in list(self._running.values()):
            if attempt.is_overdue(now):
                attempt.end("timeout")

    async def _decline(self, claim: Claim) -> None:
        """This worker does not know the handler: leave the task to another, or fail it when nobody knows it."""
        self._running.pop(claim.id, None)
        hint = self._registry.suggest(claim.handler)
        patience = self._settings.no_handler_timeout
        async with self._database.transaction() as conn:
            if await workers.handler_is_missing(conn, self._org_id, claim.handler, patience):
                message = f"no live worker has known the handler {claim.handler!r} for {patience}.{hint}"
                error = f'{{"type":"NoHandler","message":{_quoted(message)},"traceback":""}}'
                await work.end_unsuccessfully(
                    conn, self.id, [Ended(claim.id, claim.attempt, "failed", "failed", "no_handler", error)]
                )
            else:
                await work.postpone(
                    conn, self.id,
                    [Postponed(claim.id, claim.attempt, DECLINE_DELAY, "declined", "no_handler", None, False)],
                )  # fmt: skip
        self._stager.kick()
        self._spawn(self._stage_later(DECLINE_DELAY))

    # --- the hot path ---

    async def _work(self) -> None:
        while True:
            try:
                if self._is_lost:
                    await self._start_anew()
                if not self._line.is_open:
                    await self._line.open()
                    await self._reconcile()
                await self._turn()
            except asyncio.CancelledError:
                raise
            except (*CONNECTION_ERRORS, TimeoutError, WeftError) as problem:
                logger.warning("connection lost, trying again: %s: %s", type(problem).__name__, problem)
                self._line.drop()
                self._was_short = False
            except asyncpg.CheckViolationError:
                # No partition for a row: this worker woke before whoever should have made it.
                async with self._database.transaction() as conn:
                    await upkeep.ensure_partitions(conn)
            except asyncpg.PostgresError as problem:
                logger.warning("%s: %s", type(problem).__name__, problem)
                await asyncio.sleep(0.05)

    async def _turn(self) -> None:
        """Wait for something to do, then do one round trip; what it claimed begins when the next call is under way."""
        free = self._concurrency - len(self._running) - len(self._unbegun) + len(self._completed)
        wants = free if not self._is_stopping else 0
        has_news = bool(self._completed or self._unsuccessful)
        if not has_news and (wants <= 0 or self._was_short):
            self._begin_all()
            if not self._wake.is_set():
                self._changed.set()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), self._settings.worker_poll_interval.total_seconds())
            self._wake.clear()
            self._was_short = False
            return
        self._wake.clear()
        if self._is_stopping and self._unbegun:
            await self._hand_back_unbegun()
        if self._unsuccessful:
            await self._settle_unsuccessful()
        completed = self._completed[:BATCH]
        if completed or wants > 0:
            await self._call(completed, max(0, min(wants, BATCH)))
        self._changed.set()

    async def _call(self, completed: list[Completed], wanted: int) -> None:
        if wanted and self._slots.is_limited:
            await self._slots.lease(self._lanes, self._in_use(), wanted, was_short=self._was_short)
        from_head = self._is_head_due()
        lanes = [Lane(lane.queue_id, lane.room, HEAD) for lane in self._lanes] if from_head else self._lanes
        call = asyncio.ensure_future(self._round_trip(completed, lanes, wanted, from_head))
        try:
            # One turn of the loop sends the call; then what was claimed before runs while PostgreSQL works.
            await asyncio.sleep(0)
            self._begin_all()
            began = time.monotonic()
            claims, lost = await call
        except asyncio.CancelledError:
            call.cancel()
            raise
        self._note_cost(from_head, time.monotonic() - began, len(completed) + len(claims))
        self._settled(completed, lost)
        if any(claim.params is None for claim in claims):
            claims = await self._with_params(claims)
        self._unbegun = claims
        self._was_short = wanted > 0 and len(claims) < wanted
        if self._was_short and self._is_saturated:
            self._is_saturated = self._was_short = False
            async with self._database.transaction() as conn:
                await workers.set_saturated(conn, self.id, False)
        for claim in claims:
            lane = next(lane for lane in self._lanes if lane.queue_id == claim.queue_id)
            place = (claim.rank, claim.order_id, claim.id)
            if from_head or place > lane.mark:
                lane.mark = place if not from_head else max(lane.mark, place)

    async def _round_trip(
        self, completed: list[Completed], lanes: Sequence[Lane], wanted: int, from_head: bool
    ) -> tuple[list[Claim], list[int]]:
        async with self._line.statement() as conn:
            return await work.finish_and_claim(
                conn, self.id, completed, lanes, wanted, from_head=from_head or self._head_cost < 0.005,
                timeout=max(5.0, self._settings.lease_time.total_seconds()),
            )  # fmt: skip

    def _begin_all(self) -> None:
        claims, self._unbegun = self._unbegun, []
        for claim in claims:
            self._begin(claim)

    def _settled(self, completed: list[Completed], lost: list[int]) -> None:
        del self._completed[: len(completed)]
        for outcome in completed:
            self._running.pop(outcome.id, None)
        self.completed += len(completed) - len(lost)
        if lost:
            self.fenced += len(lost)
            logger.warning("%d outcomes were refused: others hold these tasks now, first %s", len(lost), lost[0])

    def _is_head_due(self) -> bool:
        """Claim above the mark, but look from the head of the queue as long as that costs a tenth of the time at most.

        With the vacuum horizon held back, dead entries pile up at the head of the index, and each look walks them all.
        """
        extra = max(0.0, self._head_cost - self._mark_cost)
        return time.monotonic() - self._headed_at >= 9 * extra

    def _note_cost(self, from_head: bool, seconds: float, tasks: int) -> None:
        if from_head:
            self._headed_at = time.monotonic()
            self._head_cost += (seconds - self._head_cost) / 2
        else:
            self._mark_cost += (seconds - self._mark_cost) / 4

    async def _with_params(self, claims: list[Claim]) -> list[Claim]:
        async with self._line.statement() as conn:
            found = await work.params_of(conn, [claim.id for claim in claims if claim.params is None])
        return [claim if claim.params is not None else claim._replace(params=found[claim.id]) for claim in claims]

    async def _settle_unsuccessful(self) -> None:
        outcomes = self._unsuccessful[:BATCH]
        postponed = [outcome for outcome in outcomes if isinstance(outcome, Postponed)]
        ended = [outcome for outcome in outcomes if isinstance(outcome, Ended)]

        async def settle(conn: Any) -> set[int]:
            landed = await work.postpone(conn, self.id, postponed) if postponed else set()
            return landed | (await work.end_unsuccessfully(conn, self.id, ended) if ended else set())

        landed = await self._database.run(settle)
        del self._unsuccessful[: len(outcomes)]
        for outcome in outcomes:
            self._running.pop(outcome.id, None)
        self.failed += sum(1 for outcome in outcomes if outcome.id in landed and outcome.outcome != "snoozed")
        self.fenced += len(outcomes) - len(landed)
        if postponed:
            self._spawn(self._stage_later(min(outcome.delay for outcome in postponed)))

    async def _stage_later(self, delay: timedelta) -> None:
        """Stage what this worker postponed itself when it is due; the leader does so too, whoever is first."""
        seconds = delay.total_seconds()
        if seconds > 5 or self._services:
            self._stager.kick()
            return
        await asyncio.sleep(seconds)
        if not self._is_stopping:
            await self._stager.run_once()
            self._wake.set()

    async def _hand_back_unbegun(self) -> None:
        unbegun, self._unbegun = self._unbegun, []
        woken = await self._database.run(
            lambda conn: work.hand_back(conn, self.id, [(claim.id, claim.attempt) for claim in unbegun])
        )
        async with self._database.acquire() as conn:
            await queues.hint(conn, sorted(woken))

    # --- after trouble ---

    async def _reconcile(self) -> None:
        """Ask what we hold by the database's account: adopt what a lost answer gave us, drop what was taken away."""
        async with self._line.statement() as conn:
            held = {claim.id: claim for claim in await work.held_by(conn, self.id)}
        known = {claim.id for claim in self._unbegun}
        for attempt in list(self._running.values()):
            claim = held.get(attempt.claim.id)
            if claim is None or claim.attempt != attempt.claim.attempt:
                is_settling = any(o.id == attempt.claim.id for o in (*self._completed, *self._unsuccessful))
                if not is_settling:
                    self._drop(attempt, "lost")
        adopted = [claim for claim in held.values() if claim.id not in self._running and claim.id not in known]
        if adopted:
            logger.info("adopting %d tasks whose claim was not heard of", len(adopted))
            if any(claim.params is None for claim in adopted):
                adopted = await self._with_params(adopted)
            self._unbegun.extend(adopted)
        self._was_short = False
        self._wake.set()

    async def _start_anew(self) -> None:
        """The worker was given up for lost: end what it runs, and register under a new id."""
        logger.warning("worker %s was given up for lost; its tasks are with others, starting anew", self.id)
        for attempt in list(self._running.values()):
            self._drop(attempt, "lost")
        self._completed.clear()
        self._unsuccessful.clear()
        self._unbegun.clear()
        await self._leave()
        await self._register()


def _quoted(text: str) -> str:
    import orjson

    return orjson.dumps(text).decode()
