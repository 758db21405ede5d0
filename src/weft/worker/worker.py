"""A worker: claims tasks, runs them and settles them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta

import asyncpg

from weft.core.errors import WeftError
from weft.core.server_errors import WorkerLost
from weft.core.settings import Settings
from weft.db.database import CONNECTION_ERRORS
from weft.queue.queues import CONTROL
from weft.queue.services import staging_times
from weft.queue.work import Claim, Completed, Ended, Lane, Postponed
from weft.queue.workers import Pulse
from weft.worker.attempt import Attempt, Outcome
from weft.worker.background import Background, begun_with, pause_after_error
from weft.worker.declines import Declines
from weft.worker.environment import Environment
from weft.worker.heart import Heart
from weft.worker.holdings import Holdings
from weft.worker.logs import Capture, LogSweeper, log_dir
from weft.worker.marks import Marks
from weft.worker.processes import Processes
from weft.worker.recovery import Recovery, is_refusal
from weft.worker.registry import Registry
from weft.worker.store import Store

logger = logging.getLogger("weft.worker")
BATCH = 500
_FIRST_PAUSE, _END_LIMIT = 0.02, 5.0


class Worker:
    """One worker process, or one of several in a process.

    It holds at most ``concurrency`` tasks. Outcomes and claims share one round trip: with no call under way one is sent
    at once, and what finishes during a call goes with the next, so a lone task is quick and a flood is batched.
    """

    def __init__(
        self, store: Store, registry: Registry, *, queue_names: Sequence[str], concurrency: int, version: str,
        app_modules: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self._store, self._registry = store, registry
        self._queue_names = list(dict.fromkeys(queue_names))
        self._concurrency, self._version = concurrency, version
        self._app_modules = list(app_modules)
        self.id = self.completed = self.failed = self.fenced = 0
        self.kicks: dict[str, Callable[[], None]] = {}  # by the message that says that there is something to do
        self._lanes: list[Lane] = []
        self._wake, self._changed = asyncio.Event(), asyncio.Event()
        self._held = Holdings(self._wake.set)
        self._stopping: asyncio.Task[None] | None = None
        self._deadline = math.inf
        self._grace: asyncio.Timeout | None = None
        self._is_stopping = self._is_lost = self._was_short = self._was_empty = False
        self._background = Background(self._changed.set)
        self._main: asyncio.Task[None] | None = None

    @property
    def _settings(self) -> Settings:
        return self._store.settings

    async def abandon(self) -> None:
        """Let the lease lapse: what it runs is lost, and goes to others."""
        await self._store.abandon()

    async def start(self) -> None:
        """Register, connect and begin to claim; returns when the first claim may come."""
        self._loop = asyncio.get_running_loop()
        self._processes = Processes.of(self._registry, self._app_modules)
        try:
            await self._register()
        except BaseException:
            await self._store.close()
            raise
        self._sweeper = LogSweeper(log_dir(self._settings), self._settings.retention)
        await self._sweeper.start()
        Capture.start()
        self._main = asyncio.create_task(self._work(), name="weft-worker")

    async def _register(self) -> None:
        store = self._store
        self.id, queue_ids = await store.enter(
            self._queue_names, self._registry.names(), self._concurrency, self._version, self._registry.code_versions()
        )
        settings = store.settings
        self._lanes = [Lane(queue_id) for queue_id in queue_ids]
        self._marks = Marks()
        self._slots = store.slots(self._wake.set)
        self._relay = store.relay()
        self._line = store.line(self._hear)
        self._declines = Declines(store, self._registry, self._declined)
        self._recovery = Recovery(
            store, self._line, self._held, self._background, self._settled, self._not_completed,
            on_lost=lambda attempt: self._drop(attempt, "lost"), on_room=self._wake.set,
        )  # fmt: skip
        self._logs = store.logs()
        self._env = Environment(
            store, self.id, self._processes, log_dir(settings), self._beat,
            self._logs.before(self._ended, self._background), self._held.resting,
            lambda claim, over: self._slots.go_on(claim, self._in_use, over),
        )  # fmt: skip
        self._env.queue_names.update(zip(queue_ids, [*self._queue_names, CONTROL], strict=False))
        self._heart = Heart(
            store.pulses(), interval=settings.heartbeat_interval, lease=settings.lease_time,
            on_pulse=self._feel, overdue=self._held.overdue, sent=(self.completed, self.failed),
            counters=lambda: (bool(self._held.running), self.completed, self.failed),
        )  # fmt: skip
        self._upkeep = store.upkeep(self._heart.has_settled)
        self.kicks["due"] = self._upkeep.look_at_due
        try:
            await self._slots.refresh(self._lanes)
            await self._line.open()
        except BaseException:
            self._line.drop()
            await self._sign_off()
            raise
        self._is_lost = False
        await self._logs.start(lambda: list(self._held.running.values()))
        self._heart.start()
        self._wake.set()

    @property
    def has_stopped(self) -> bool:
        """Whether it was started and does not work any more."""
        return self._main is not None and self._main.done()

    async def wait(self) -> None:
        """Return when the worker has stopped; raises what ended it."""
        if self._main is not None:
            await asyncio.wait([self._main])
            if self._stopping is not None:
                await asyncio.shield(self._stopping)
            if not self._main.cancelled():
                self._main.result()

    async def wait_until_idle(self) -> None:
        """Return when nothing runs and a claim after this moment, which looked everywhere, came up empty."""
        self._was_short = self._was_empty = False
        self._wake.set()
        while not self.has_stopped and (
            self._background.is_needed
            or not self._held.is_empty
            or not (self._was_empty and self._was_short and self._marks.has_looked_back)
        ):
            await self._change()

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    async def stop(self, grace: timedelta | None = None) -> None:
        """Stop claiming, hand back what has not begun, let the rest end within ``grace``, then release.

        A second call may only shorten the grace of the first; all return when it has stopped, whoever is cancelled.
        """
        if self._main is None:
            return
        limit = (self._settings.worker_shutdown_grace if grace is None else grace).total_seconds()
        if (deadline := self._loop.time() + limit) < self._deadline:
            self._deadline = deadline
            if self._grace is not None:
                self._grace.reschedule(deadline)
        if self._stopping is None:
            self._is_stopping = True
            self._stopping = self._loop.create_task(self._stop())
        await asyncio.shield(self._stopping)

    async def _stop(self) -> None:
        assert self._main is not None
        self._wake.set()
        self._env.request_shutdown()
        self._background.spawn(self._relay.pass_on([lane.queue_id for lane in self._lanes]))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(self._deadline) as self._grace:
                while not self._held.is_empty:
                    await self._change()
        self._grace = None
        for attempt in list(self._held.running.values()):
            attempt.end("stopped")
        self._main.cancel()
        await asyncio.gather(self._main, return_exceptions=True)
        self._changed.set()
        await self._leave()
        await self._sweeper.stop()
        await self._processes.close()
        Capture.stop()
        await self._store.close()

    async def _leave(self) -> None:
        """End the services and the heart, and give everything back that is still held."""
        await self._heart.stop()  # first: a pulse would start the services again
        ending = [attempt.task for attempt in self._held.running.values() if attempt.task is not None]
        await self._background.stop(ending, _END_LIMIT)
        await self._logs.stop()
        await self._upkeep.stop()
        await self._env.close()
        self._held.clear()
        await self._sign_off()
        await self._line.close()

    async def _sign_off(self) -> None:
        """Take the name out of the registry; when that cannot be, its lease lapses."""
        with contextlib.suppress(*CONNECTION_ERRORS, WeftError, asyncpg.PostgresError, TimeoutError):
            completed, failed = self.completed - self._heart.sent[0], self.failed - self._heart.sent[1]
            if woken := await self._store.leave(completed, failed):
                await self._relay.send(woken)

    def _hear(self, message: str) -> None:
        """A notification: there is work, something is due, a task was cancelled, or somebody follows what it prints."""
        verb, *rest = message.split(" ")
        match verb:
            case "cancel":
                self._held.forget_unbegun(int(rest[0]), int(rest[1]))
                if (attempt := self._held.running.get(int(rest[0]))) and attempt.claim.attempt == int(rest[1]):
                    self._drop(attempt, "cancelled")
            case "key":
                self._env.answers.lending.hear(int(rest[0]))
            case _ if (kick := self.kicks.get(verb)) is not None:
                kick()
            case "log":
                if (attempt := self._held.running.get(int(rest[0]))) and attempt.claim.attempt == int(rest[1]):
                    self._background.spawn(self._logs.show(attempt))
            case _:
                if self._is_stopping or self._held.busy >= self._concurrency:
                    self._background.spawn(self._relay.pass_on([lane.queue_id for lane in self._lanes]))
                self._wake.set()

    def _feel(self, pulse: Pulse | None) -> None:
        """A heartbeat came back: None says that the worker is lost."""
        if pulse is None:
            self._is_lost = True
            self._wake.set()
            return
        self._held.end_overdue(time.monotonic())
        if self._held.should_be_compared(pulse.held):
            self._recovery.is_due = True
            self._wake.set()
        self._background.spawn(self._upkeep.follow(pulse))
        if pulse.limited or self._slots.is_limited:
            self._background.spawn(self._slots.refresh(self._lanes))

    def _beat(self, claim: Claim) -> None:
        """A handler's own heartbeat; comes from any thread."""
        self._loop.call_soon_threadsafe(lambda: self._background.spawn(self._extend(claim)))

    async def _extend(self, claim: Claim) -> None:
        if not await self._store.extend_expiry(claim):
            self._recovery.is_due = True
            self._wake.set()

    def _begin_all(self) -> None:
        for claim in [] if self._is_stopping else self._held.take_unbegun():
            self._begin(claim)

    def _begin(self, claim: Claim) -> None:
        handler = self._registry.get(claim.handler)
        if handler is None or not handler.may_run(claim.queue_id):
            self._background.spawn(self._declines.decline(claim), must_end=True)
            return
        attempt = Attempt(self._env, claim, handler)
        self._held.running[claim.id] = attempt
        attempt.task = self._loop.create_task(attempt.run())
        if (timeout := attempt.timeout) is not None:
            attempt.timer = self._loop.call_later(timeout.total_seconds(), attempt.end, "timeout")

    def _ended(self, attempt: Attempt, outcome: Outcome | None) -> None:
        if attempt.timer is not None:
            attempt.timer.cancel()
        if self._held.running.get(attempt.claim.id) is not attempt:
            return
        if outcome is not None:
            self._held.note(outcome)
        elif not self._is_stopping:  # else it is kept, to be handed back
            del self._held.running[attempt.claim.id]
        self._wake.set()

    def _drop(self, attempt: Attempt, why: str) -> None:
        """End an attempt that is no longer ours; nothing is written."""
        self._held.drop(attempt)
        attempt.end(why)
        self.fenced += 1
        self._changed.set()
        self._wake.set()

    def _declined(self, is_known: bool, delay: timedelta | None) -> None:
        if not is_known:
            self._recovery.is_due = True
        if delay is not None:
            self._background.spawn(self._stage_in(delay))
        self._changed.set()
        self._wake.set()

    async def _work(self) -> None:
        pause = _FIRST_PAUSE
        refusal: Exception | None = None
        while True:
            try:
                if self._is_lost:
                    await self._start_anew()
                if refusal is not None:
                    cause, refusal = refusal, None
                    await self._recovery.recover(cause)
                if not self._line.is_open:
                    self._recovery.is_due = True
                    await self._line.open()
                if self._recovery.is_due:
                    await self._reconcile()
                await self._turn()
                pause = _FIRST_PAUSE
            except asyncio.CancelledError:
                raise
            except (*CONNECTION_ERRORS, TimeoutError, WeftError, asyncpg.PostgresError) as problem:
                if is_refusal(problem):
                    self._recovery.is_due, refusal = True, problem
                else:
                    logger.warning("connection lost, trying again: %s: %s", type(problem).__name__, problem)
                    self._is_lost = self._is_lost or isinstance(problem, WorkerLost)
                    self._line.drop()
                    self._was_short = False
                pause = await pause_after_error(pause)
            except Exception:
                logger.exception("the worker stumbled and goes on")
                self._recovery.is_due = True
                await asyncio.sleep(0.5)

    async def _reconcile(self) -> None:
        if again := await self._recovery.reconcile():
            await self._hand_back(again)
        self._was_short = False
        self._wake.set()

    async def _turn(self) -> None:
        """Wait for something to do, then do one round trip; what it claimed begins when the next call is under way."""
        held = self._held
        if self._is_stopping and held.unbegun:
            await self._hand_back(held.take_unbegun())
        taken = held.busy - len(held.completed) + self._declines.under_way
        wants = 0 if self._is_stopping else self._concurrency - taken
        if not held.has_news and (wants <= 0 or self._was_short):
            await self._rest()
            return
        self._wake.clear()
        if held.unsuccessful:
            await self._settle_unsuccessful()
        completed = held.take_completed(BATCH)
        if completed or wants > 0:
            self._was_short = self._was_empty = False
            try:
                await self._call(completed, max(0, min(wants, BATCH)))
            except BaseException:
                held.put_back(completed)
                raise
        self._changed.set()

    async def _rest(self) -> None:
        self._begin_all()
        if not self._wake.is_set():
            self._changed.set()
            # Nothing more to take, or no room to take it: others may use the slots.
            if self._slots.is_limited and (self._was_empty or not self._was_short):
                given = await self._slots.give_back(self._lanes, self._in_use)
                if given:
                    self._background.spawn(self._relay.send_if_ready(given))
        limit = self._settings.worker_poll_interval.total_seconds()
        if self._was_short:  # there is room, and something may be there that the last claim did not see
            limit = self._marks.look_back_in(self._relay.look_again_in(limit))
        # Not wait_for: before Python 3.12 it swallows a cancellation that comes in the same turn as the event.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit):
                await self._wake.wait()
        self._wake.clear()
        self._was_short = False

    def _in_use(self, settling: Sequence[Completed] = ()) -> Mapping[int, int]:
        return self._held.in_use(settling) + self._declines.queues

    async def _call(self, completed: list[Completed], wanted: int) -> None:
        if wanted and self._slots.is_limited:
            await self._slots.lease(self._lanes, lambda: self._in_use(completed), wanted)
        lanes, from_head, may_look_back = self._marks.choose(self._lanes)
        began = time.monotonic()
        trip = self._line.finish_and_claim(completed, lanes, wanted, from_head=may_look_back)
        # What was claimed before begins when the call is sent: it runs while PostgreSQL works.
        claims, lost = await (begun_with(trip, self._begin_all) if self._held.unbegun else trip)
        self._marks.note(self._lanes, claims, from_head, time.monotonic() - began)
        self._settled(completed, lost)
        if again := self._held.accept(claims):
            await self._hand_back(again)
        self._slots.claimed()
        self._was_short = len(claims) < wanted and not again  # what was handed back is there to be claimed
        self._was_empty = len(claims) < min(wanted, self._slots.room(lanes))
        if self._was_short and await self._relay.has_room_again():
            self._was_short = False
        elif claims and not self._was_short:
            # There was more than enough: one more worker may wake.
            self._background.spawn(self._relay.send_soon({claim.queue_id for claim in claims}))

    def _settled(self, completed: list[Completed], lost: list[int]) -> None:
        self._held.settle(completed)
        self._changed.set()
        if self._is_stopping and completed:
            # A key or a successor may be free now, and we claim nothing any more.
            self._background.spawn(self._relay.send_if_ready([lane.queue_id for lane in self._lanes]), must_end=True)
        self.completed += len(completed) - len(lost)
        if lost:
            self.fenced += len(lost)
            logger.warning("%d outcomes were refused: others hold these tasks now, first %s", len(lost), lost[0])

    async def _settle_unsuccessful(self) -> None:
        outcomes = self._held.unsuccessful[:BATCH]
        landed = await self._store.settle(outcomes)
        self._held.forget_unsuccessful(outcomes)
        self._not_completed(outcomes, landed)

    def _not_completed(self, outcomes: Sequence[Postponed | Ended], landed: set[int]) -> None:
        self._held.settle(outcomes)
        self._wake.set()
        self.failed += sum(1 for outcome in outcomes if outcome.id in landed and outcome.outcome != "snoozed")
        self.fenced += len(outcomes) - len(landed)
        for delay in staging_times(outcome.delay for outcome in outcomes if isinstance(outcome, Postponed)):
            self._background.spawn(self._stage_in(delay))

    async def _stage_in(self, delay: timedelta) -> None:
        if await self._upkeep.stage_in(delay):
            self._wake.set()

    async def _hand_back(self, claims: Sequence[Claim]) -> None:
        pairs = [(claim.id, claim.attempt) for claim in claims]
        await self._relay.send(await self._store.hand_back(pairs))

    async def _start_anew(self) -> None:
        """The worker was given up for lost: end what it runs, and register under a new id."""
        logger.warning("worker %s was given up for lost; its tasks are with others, starting anew", self.id)
        self._store.expire()
        for attempt in list(self._held.running.values()):
            self._drop(attempt, "lost")
        self._held.clear()
        await self._leave()
        await self._register()
