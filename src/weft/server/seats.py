"""What a server remembers of the workers it speaks for; all of it can be had anew from the database."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections import deque
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any

import asyncpg

from weft.core.errors import WeftError
from weft.core.server_errors import WorkerLost
from weft.data.collecting import DatasetCollector
from weft.db.database import CONNECTION_ERRORS
from weft.live.collecting import DagCollector
from weft.queue import remote_workers, work, workers
from weft.queue.remote_workers import Registered
from weft.queue.services import Upkeep, staging_times
from weft.queue.steps import Fence
from weft.queue.work import Claim, Completed, Ended, Lane, Postponed
from weft.queue.workers import Pulse
from weft.sdk.worker import sinks_of
from weft.server import settling
from weft.server.ears import ANEW, Ears
from weft.server.shares import Shares
from weft.worker.marks import Marks
from weft.worker.relay import Relay

if TYPE_CHECKING:
    from datetime import timedelta

    from weft.catalog.model import Principal
    from weft.db.database import type_Connection
    from weft.sdk.client import Client

logger = logging.getLogger("weft.server")
_NEWS = 1000
_SHORTEST, _LONGEST = 0.005, 0.25


class Seat:
    """One worker: its queues and how far it has claimed in them, what it was told, and the upkeep while it leads.

    What it does for the worker it does in sessions that are held to its org; the upkeep is for all.
    """

    def __init__(self, client: Client, ears: Ears, found: Registered) -> None:
        self._database = client.database.of_org(found.org_id)
        self._settings = client.settings
        self._ears = ears
        self.found = found
        self.id = found.worker_id
        self._lanes = [Lane(queue_id) for queue_id in found.queues]
        self._marks = Marks()
        self._shares = Shares(self._database, self.id, self._lanes, self.wake)
        self._limits_at = -math.inf
        self.relay = Relay(self._database, self.id)
        retention = self._settings.dataset_retention
        more = [DatasetCollector(client.database, self._settings), DagCollector(client.database, retention)]
        self._upkeep = Upkeep(client.database, self._settings, self.id, sinks_of(client), lambda: True, more)
        self._turn = asyncio.Lock()
        # What this turn has claimed.
        self._background: set[asyncio.Task[None]] = set()
        self._waiting = 0
        self.moment = asyncio.Event()
        self._news: deque[str] = deque(maxlen=_NEWS)
        self.is_new = True
        self.is_closed = False
        self.last_used = asyncio.get_running_loop().time()
        self._beaten_at = -math.inf

    async def open(self) -> None:
        """Hear what the worker is told, and know the limits of its queues."""
        try:
            await self._ears.follow(self.id, self._hear)
            await self._know_limits()
        except BaseException:
            self._ears.leave(self.id)
            raise

    def wake(self) -> None:
        """Let whoever waits look again."""
        moment, self.moment = self.moment, asyncio.Event()
        moment.set()

    def _hear(self, message: str) -> None:
        if message == ANEW:
            self.is_new = True
        elif message == "due":
            self._upkeep.stager.kick()
            return
        elif message.startswith("log "):
            # What it prints is sent here by itself.
            return
        elif message.startswith(("cancel ", "key ")):
            self._note(message)
        elif self._waiting:
            self._note("work")
        else:
            # Nobody is there to take it: another may.
            self.spawn(self.relay.pass_on(self.found.queues))
        self.wake()

    def _note(self, message: str) -> None:
        # Of more than are kept the first are forgotten: the worker is told to look by itself.
        self.is_new = self.is_new or len(self._news) == _NEWS
        self._news.append(message)

    def spawn(self, doing: Coroutine[Any, Any, object]) -> None:
        """Do something beside the requests; what goes wrong with it is told in the log."""

        async def done() -> None:
            try:
                await doing
            except (*CONNECTION_ERRORS, WeftError, asyncpg.PostgresError) as problem:
                logger.info("for worker %s: %s: %s", self.id, type(problem).__name__, problem)

        task = asyncio.get_running_loop().create_task(done())
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def pass_of(self, moment: asyncio.Event, longest: float) -> None:
        """Wait until there may be something new since a ``moment``, or for so many seconds."""
        self._waiting += 1
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, longest)):
                    await moment.wait()
        finally:
            self._waiting -= 1

    def take_news(self) -> tuple[list[str], bool]:
        """Return what the worker was told since the last time, and whether earlier news may be missing."""
        told, is_new = list(dict.fromkeys(self._news)), self.is_new
        self._news.clear()
        self.is_new = False
        return told, is_new

    async def finish_and_claim(self, completed: Sequence[Completed], wanted: int) -> tuple[list[Claim], list[int]]:
        """Complete attempts and claim up to ``wanted`` tasks in one statement; return the claims and what was lost."""
        async with self._turn:
            try:
                await self._know_limits()
                if wanted and self._shares.is_limited:
                    claims, lost = await self._claim_within_limits(completed, wanted)
                else:
                    async with self._database.acquire() as conn:
                        claims, lost = await self._claim(conn, completed, wanted)
            except asyncpg.PostgresError as problem:
                if not completed:
                    raise
                logger.info("outcomes of worker %s are settled apart: %s", self.id, problem)
                claims, lost = [], await settling.complete_apart(self._database, self.id, completed)
        if wanted:
            await self._after_claim(claims, wanted)
        return claims, lost

    async def _know_limits(self) -> None:
        """Look whether queues are limited where the heartbeats, which tell of it, go to another server."""
        now = asyncio.get_running_loop().time()
        if now - self._limits_at >= 2 * self._settings.heartbeat_interval.total_seconds():
            await self._shares.refresh()
            self._limits_at = now

    async def _claim_within_limits(self, completed: Sequence[Completed], wanted: int) -> tuple[list[Claim], list[int]]:
        async with self._database.transaction() as conn:
            if not await self._shares.measure(conn, wanted, completed):
                return await self._claim(conn, completed, wanted)
        # By itself: while others wait for the queue, nobody waits for what the claim has locked.
        await self._shares.ask(wanted)
        async with self._database.transaction() as conn:
            await self._shares.measure(conn, wanted, completed)
            return await self._claim(conn, completed, wanted)

    async def _claim(
        self, conn: type_Connection, completed: Sequence[Completed], wanted: int
    ) -> tuple[list[Claim], list[int]]:
        lanes, from_head, may_look_back = self._marks.choose(self._lanes)
        loop = asyncio.get_running_loop()
        began = loop.time()
        claims, lost = await work.finish_and_claim(conn, self.id, completed, lanes, wanted, from_head=may_look_back)
        try:
            claims = await work.with_params(conn, claims)
        except asyncpg.PostgresError:
            if not conn.is_in_transaction():
                # They have landed, and the worker does not hear that it holds these.
                await self.hand_back([(claim.id, claim.attempt) for claim in claims])
            raise
        self._shares.claimed(claims)
        self._marks.note(self._lanes, claims, from_head, loop.time() - began)
        return claims, lost

    async def _after_claim(self, claims: list[Claim], wanted: int) -> None:
        if len(claims) < wanted:
            if await self.relay.has_room_again():
                self.wake()
        else:
            # There was more than enough: one more worker may wake.
            self.spawn(self.relay.send_soon({claim.queue_id for claim in claims}))
        if self._shares.is_limited:
            # Also by one that is full now, of other queues' tasks: these may take hours.
            async with self._turn:
                given = await self._shares.give_back()
            if given:
                self.spawn(self.relay.send_if_ready(given))

    async def require_live(self) -> None:
        """Raise `WorkerLost` when nothing comes any more: without a word of that it would wait for ever."""
        if not await self._database.read(lambda conn: remote_workers.is_live(conn, self.id)):
            raise WorkerLost(self.id)

    async def rest(self, claim: Claim) -> None:
        """Let a task take no slot of its queue until it goes on, whichever server it asks then."""
        fence = Fence(self.id, claim.id, claim.attempt)
        async with self._database.acquire() as conn:
            await remote_workers.rest(conn, fence)
        self.wake()

    async def go_on(self, claim: Claim) -> None:
        """Return when a task that has rested goes on, within the limit of its queue; from then on it rests no more."""
        fence, pause = Fence(self.id, claim.id, claim.attempt), _SHORTEST
        with self._shares.returning(claim.queue_id):
            while not await self._may_go_on(fence, claim.queue_id):
                await asyncio.sleep(pause)
                pause = min(_LONGEST, 2 * pause)

    async def _may_go_on(self, fence: Fence, queue_id: int) -> bool:
        async with self._turn:
            return await self._database.run(lambda conn: self._shares.may_go_on(conn, fence, queue_id))

    @property
    def again_in(self) -> float:
        """After how many seconds a worker with room, which got less than it asked for, should look again."""
        longest = self._settings.worker_poll_interval.total_seconds()
        return self._marks.look_back_in(self.relay.look_again_in(longest))

    async def settle(self, outcomes: Sequence[Postponed | Ended]) -> set[int]:
        """Write outcomes that are no successes; return the tasks for which they landed. Raises `OutcomeWaits`."""
        landed = await settling.settle(self._database, self.id, outcomes)
        self.stage(outcome.delay for outcome in outcomes if isinstance(outcome, Postponed))
        return landed

    def stage(self, delays: Any) -> None:
        """See to it that what was postponed comes back when it is due."""
        for delay in staging_times(delays):
            self.spawn(self._stage_in(delay))

    async def _stage_in(self, delay: timedelta) -> None:
        if await self._upkeep.stage_in(delay):
            self.wake()

    async def beat(self, *, busy: bool, completed: int, failed: int, is_blocked: bool) -> Pulse:
        """Extend the worker's lease; whoever leads has its upkeep done here. Raises `WorkerLost`."""
        lease = self._settings.lease_time
        async with self._database.acquire() as conn:
            pulse = await workers.heartbeat(
                conn, self.id, lease=lease, busy=busy, completed=completed, failed=failed, is_blocked=is_blocked
            )
        if pulse is None:
            raise WorkerLost(self.id)
        self._beaten_at = self._limits_at = asyncio.get_running_loop().time()
        self.spawn(self._upkeep.follow(pulse))
        if pulse.limited or self._shares.is_limited:
            self.spawn(self._shares.refresh())
        return pulse

    async def is_beat_due(self) -> bool:
        """Whether no heartbeat of the worker came for as long as there may be between two, here or elsewhere."""
        interval, loop = self._settings.heartbeat_interval, asyncio.get_running_loop()
        if loop.time() - self._beaten_at < interval.total_seconds():
            return False
        if await self._database.read(lambda conn: remote_workers.is_beat_due(conn, self.id, interval)):
            return True
        self._beaten_at = loop.time()
        return False

    async def hand_back(self, leases: Sequence[tuple[int, int]]) -> set[int]:
        """Give tasks back as if they had not begun; return those for which that landed."""
        landed = await self._database.run(lambda conn: work.hand_back(conn, self.id, leases))
        self.spawn(self.relay.send(set(landed.values())))
        return set(landed)

    async def extend_expiry(self, leases: Sequence[tuple[int, int]]) -> set[int]:
        """Say that attempts go on; return the tasks that the worker holds."""
        return await self._database.run(lambda conn: work.extend_expiry(conn, self.id, leases))

    async def close(self) -> None:
        """End the upkeep, and hear nothing more; what waits is let go."""
        self.is_closed = True
        self.wake()
        self._ears.leave(self.id)
        await self._upkeep.stop()
        for task in list(self._background):
            task.cancel()


class Seats:
    """The workers that a server process has heard of of late."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._ears = Ears(client.database)
        self._by_worker: dict[int, Seat] = {}
        self._opening = asyncio.Lock()
        self._lapsing: asyncio.TimerHandle | None = None
        self._closing: set[asyncio.Task[None]] = set()

    async def of(self, who: Principal, worker_id: int) -> Seat:
        """Return the seat of a worker that has registered by the very token; raises `WorkerLost`.

        Others' workers and those that nobody knows any more are alike: whoever says to be one must register anew.
        """
        seat = self._by_worker.get(worker_id)
        if seat is None:
            async with self._opening:
                seat = self._by_worker.get(worker_id) or await self._open(who, worker_id)
        if (seat.found.org_id, seat.found.token_id) != (who.org_id, who.token_id):
            raise WorkerLost(worker_id)
        seat.last_used = asyncio.get_running_loop().time()
        return seat

    async def _open(self, who: Principal, worker_id: int) -> Seat:
        found = await self._client.database.of_org(who.org_id).read(
            lambda conn: remote_workers.registered(conn, worker_id, who.org_id, who.token_id or 0)
        )
        if found is None or not found.is_live:
            raise WorkerLost(worker_id)
        seat = Seat(self._client, self._ears, found)
        await seat.open()
        self._by_worker[worker_id] = seat
        if self._lapsing is None:
            self._lapsing = asyncio.get_running_loop().call_later(self._patience, self._look)
        return seat

    async def beat(self, seat: Seat, *, busy: bool, completed: int, failed: int, is_blocked: bool) -> Pulse:
        """Extend a worker's lease; one that is lost is let go, and `WorkerLost` raised."""
        try:
            return await seat.beat(busy=busy, completed=completed, failed=failed, is_blocked=is_blocked)
        except WorkerLost:
            self.forget(seat.id)
            raise

    async def hear_from(self, seat: Seat) -> None:
        """Extend the lease of a worker of which something else came than its heartbeat, as often as those are due."""
        if await seat.is_beat_due():
            await self.beat(seat, busy=True, completed=0, failed=0, is_blocked=False)

    @property
    def _patience(self) -> float:
        return self._client.settings.lease_time.total_seconds()

    def _look(self) -> None:
        """Let go of workers of which nothing was heard for as long as a lease lasts."""
        loop = asyncio.get_running_loop()
        for worker_id, seat in list(self._by_worker.items()):
            if seat.last_used < loop.time() - self._patience - 60:
                self.forget(worker_id)
        self._lapsing = loop.call_later(self._patience, self._look) if self._by_worker else None

    def forget(self, worker_id: int) -> None:
        """Let go of a worker."""
        seat = self._by_worker.pop(worker_id, None)
        if seat is not None:
            task = asyncio.get_running_loop().create_task(seat.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    def let_go(self) -> None:
        """End all waits: the server is about to stop."""
        for seat in self._by_worker.values():
            seat.is_closed = True
            seat.wake()

    async def close(self) -> None:
        """Let go of all workers."""
        if self._lapsing is not None:
            self._lapsing.cancel()
        for worker_id in list(self._by_worker):
            self.forget(worker_id)
        if self._closing:
            await asyncio.wait(self._closing)
        await self._ears.close()
