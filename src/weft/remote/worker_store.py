"""The store of a worker that has no database: a server speaks for it."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import orjson

from weft.contract.bounds import MOST
from weft.core.errors import LeaseLost
from weft.core.server_errors import NeedsDatabase
from weft.core.settings import Settings
from weft.db.blob_address import data_address
from weft.queue.steps import Fence
from weft.queue.work import Claim, Completed, Ended, Postponed
from weft.remote.asking import Asking
from weft.remote.worker_answers import PatientBlobs, RemoteAnswers, RemoteCache
from weft.remote.worker_line import RemoteLine, RemotePulses, RemoteRelay, RemoteSlots, RemoteUpkeep, done, lease_of
from weft.remote.worker_logs import RemoteLogs

_AT_ONCE = 50
_NOT_TAKEN = "the server took nothing of what there was to say of this attempt: the worker's log says why"


class RemoteStore:
    """The tasks of one worker, kept by a server."""

    has_database = False

    def __init__(self, server: str, token: str | None, settings: Settings) -> None:
        self.settings = settings
        self._asking = Asking(server, token)
        self._id = 0
        self._body_limit = self._room = 0
        self._relay = RemoteRelay(self._asking, 0)

    async def enter(
        self, queue_names: Sequence[str], handlers: list[str], concurrency: int, version: str, codes: Mapping[str, str]
    ) -> tuple[int, list[int]]:
        """Register the worker; return its id and the ids of its queues. What the server says of leases holds here."""
        told = await self._asking.ask(
            "/v1/worker/register",
            {
                "queues": list(queue_names),
                "handlers": handlers,
                "concurrency": concurrency,
                "version": version,
                "codes": dict(codes),
                "hostname": socket.gethostname(),
                "pid": os.getpid(),
            },
        )
        self._id = int(told["worker_id"])
        # Characters may be four bytes each.
        self._body_limit = told["body_limit"]
        self._room = self._body_limit // 5
        self._relay = RemoteRelay(self._asking, self._id)
        self.settings = replace(
            self.settings,
            worker_heartbeat_interval=timedelta(seconds=told["heartbeat_seconds"]),
            worker_timeout=timedelta(seconds=told["lease_seconds"]),
            inline_limit=told["inline_limit"],
            value_limit=told["value_limit"],
        )
        return self._id, [int(told["queues"][name]) for name in queue_names]

    async def leave(self, completed: int, failed: int) -> set[int]:
        """Take the worker's name out; the server gives back what it holds, and tells others."""
        body = {"worker_id": str(self._id), "completed": completed, "failed": failed}
        await self._asking.ask("/v1/worker/deregister", body)
        return set()

    async def abandon(self) -> None:
        """Let the lease lapse: what the worker runs is lost."""
        await self._asking.ask("/v1/worker/deregister", {"worker_id": str(self._id), "is_lost": True})

    async def settle(self, outcomes: Sequence[Postponed | Ended], *, patience: str = "1s") -> set[int]:
        """Tell outcomes that are no successes; return the tasks for which that landed."""
        landed = set[int]()
        for place in range(0, len(outcomes), _AT_ONCE):
            body = {"tasks": [self._failed(each) for each in outcomes[place : place + _AT_ONCE]]}
            landed |= {int(id) for id in (await self._asking.ask("/v1/task/fail", body))["tasks"]}
        return landed

    def _failed(self, outcome: Postponed | Ended) -> dict[str, Any]:
        told: dict[str, Any] = lease_of(self._id, outcome.id, outcome.attempt)
        error = None if outcome.error is None else orjson.loads(outcome.error)
        if error is not None:
            error["type"] = error["type"][:200]
        if not isinstance(outcome, Postponed):
            told["state"] = outcome.state
        elif outcome.counted:
            told["retry_in"] = outcome.delay.total_seconds()
        else:
            told["snooze"] = outcome.delay.total_seconds()
            # One that asked for it has nothing more to say.
            return told if error is None else {**told, "error": error, "reason": outcome.reason}
        return {**told, "error": error, "outcome": outcome.outcome, "reason": outcome.reason}

    async def complete_one(self, outcome: Completed, *, patience: str) -> list[int]:
        """Complete one attempt apart from others; return it when it was lost."""
        told = await self._asking.ask("/v1/task/complete", {"tasks": [done(self._id, outcome)]})
        return [int(id) for id in told["refused"]]

    async def set_aside(self, outcome: Completed | Postponed | Ended) -> set[int]:
        """Tell that the attempt has failed, and nothing else of it; the server sets aside what cannot be written."""
        error = orjson.dumps({"type": "OutcomeRefused", "message": _NOT_TAKEN, "traceback": ""}).decode()
        return await self.settle([Ended(outcome.id, outcome.attempt, "failed", "failed", "output_refused", error)])

    async def make_partitions(self) -> None:
        """Leave it to the server."""

    async def hand_back(self, leases: Sequence[tuple[int, int]]) -> set[int]:
        """Give back what has not begun; the server tells others."""
        for place in range(0, len(leases), MOST):
            tasks = [lease_of(self._id, *each) for each in leases[place : place + MOST]]
            await self._asking.ask("/v1/task/release", {"tasks": tasks})
        return set()

    async def extend_expiry(self, claim: Claim) -> bool:
        """Say that an attempt goes on; False when the lease is lost."""
        try:
            await self._asking.ask("/v1/task/heartbeat", self._lease(claim))
        except LeaseLost:
            return False
        return True

    async def decline(self, claim: Claim, advice: str) -> timedelta | None:
        """Leave a task to workers that know its handler: the server sees when it comes back, or that it has failed."""
        with contextlib.suppress(LeaseLost):
            await self._asking.ask("/v1/task/decline", {**self._lease(claim), "advice": advice})
        return None

    def _lease(self, claim: Claim) -> dict[str, str]:
        return lease_of(self._id, claim.id, claim.attempt)

    def blobs_of(self, claim: Claim) -> PatientBlobs:
        """Return where large values of a task are kept."""
        return PatientBlobs(self._asking, Fence(self._id, claim.id, claim.attempt))

    def line(self, on_message: Callable[[str], None]) -> RemoteLine:
        """Return the way by which the worker claims and completes."""
        return RemoteLine(self._asking, self._id, self._relay, on_message, self._room)

    def pulses(self) -> RemotePulses:
        """Return the way by which the worker says that it lives."""
        return RemotePulses(self._asking.server, self._asking.token, self._id)

    def slots(self, on_change: Callable[[], None]) -> RemoteSlots:
        """Leave limits of queues to the server."""
        return RemoteSlots(self._asking, self._id)

    def relay(self) -> RemoteRelay:
        """Return what tells the server of hints for which there is no room."""
        return self._relay

    def upkeep(self, has_settled: Callable[[], bool]) -> RemoteUpkeep:
        """Leave the upkeep to the server."""
        return RemoteUpkeep()

    def logs(self) -> RemoteLogs:
        """Return what sends logs to the server."""
        return RemoteLogs(self._asking, self._id, self._body_limit)

    def answers(self) -> RemoteAnswers:
        """Return what does what handlers ask for."""
        own = None if self.settings.data_url is None else str(data_address(self.settings))
        return RemoteAnswers(self._asking, self._room, self.settings.value_limit, own, self.settings.data_outside)

    def cache(self) -> RemoteCache:
        """Return what finds outputs."""
        return RemoteCache(self._asking, self._id)

    def pool(self) -> NoPool:
        """Return what says that there are no connections for handlers."""
        return NoPool()

    def expire(self) -> None:
        """Keep the connections: a server is as good as another."""

    async def close(self) -> None:
        """Close the connections."""
        await self._asking.close()


class NoPool:
    """Stands where connections to the database would be."""

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Any]:
        """Refuse."""
        raise NeedsDatabase("ctx.pool", "connect to your own database by its address, as your program knows it")
        yield

    async def close(self) -> None:
        """There is nothing to close."""
