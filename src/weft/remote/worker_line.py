"""How a worker claims, completes and hears by a server."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any

import orjson

from weft.core.errors import OperatorError, WeftError
from weft.core.json import BLOB_MARK
from weft.core.server_errors import TooLarge, WorkerLost
from weft.queue.services import Stager, Upkeep
from weft.queue.work import Claim, Completed, Lane
from weft.queue.workers import Pulse
from weft.remote.asking import Asking
from weft.worker.background import pause_after_error
from weft.worker.relay import Relay
from weft.worker.slots import InUse, Slots

logger = logging.getLogger("weft.worker")
_WAIT = 30.0
_FIRST_WAIT, _LONGEST_WAIT = 0.05, 1.0
# An outcome takes at most so much beside its output.
_AROUND = 150


def lease_of(worker_id: int, task_id: int, attempt: int) -> dict[str, str]:
    """Return by what a worker acts on a task."""
    return {"task_id": str(task_id), "lease_token": f"{worker_id}.{attempt}"}


def done(worker_id: int, outcome: Completed) -> dict[str, Any]:
    """Return a completed attempt as it is told."""
    told: dict[str, Any] = lease_of(worker_id, outcome.id, outcome.attempt)
    if outcome.output.startswith(BLOB_MARK):
        found = orjson.loads(outcome.output)
        told["blob"] = {"digest": found["$blob"], "size": found["size"]}
    else:
        told["output"] = orjson.Fragment(outcome.output)
    if (reuse := outcome.reuse) is not None:
        told["reuse"] = {
            "key": None if reuse.key is None else reuse.key.hex(),
            "lasts": None if reuse.lasts is None else reuse.lasts.total_seconds(),
            "root": None if reuse.root is None else str(reuse.root),
            "entry": None if reuse.entry is None else str(reuse.entry),
        }
    return told


def size_over(completed: Sequence[Completed], room: int) -> bool:
    """Whether outcomes are too large for one request."""
    return len(completed) > 1 and _size(completed) > room


def _size(completed: Sequence[Completed]) -> int:
    return sum(len(outcome.output) + _AROUND for outcome in completed)


def first_within(completed: Sequence[Completed], room: int) -> int:
    """Return how many of the outcomes, at least one, fit into one request."""
    size = 0
    for place, outcome in enumerate(completed):
        size += len(outcome.output) + _AROUND
        if size > room:
            return max(1, place)
    return len(completed)


def claims_in(told: dict[str, Any]) -> list[Claim]:
    """Return the claims of an answer."""
    return [_claim(int(each["task_id"]), *each["claim"]) for each in told["tasks"]]


def _claim(task_id: int, *kept: Any) -> Claim:
    timeout, heartbeat_timeout = (None if span is None else timedelta(seconds=span) for span in kept[9:11])
    return Claim._make((task_id, *kept[:9], timeout, heartbeat_timeout, *kept[11:]))


class RemoteRelay(Relay):
    """Hints are the server's business; it is told when one came for which there is no room."""

    def __init__(self, asking: Asking, worker_id: int) -> None:
        self._asking = asking
        self._id = str(worker_id)
        self.again_in: float | None = None

    async def send(self, queue_ids: Iterable[int]) -> None:
        """Leave it to the server."""

    async def send_if_ready(self, queue_ids: Iterable[int]) -> None:
        """Leave it to the server."""

    async def send_soon(self, queue_ids: Iterable[int]) -> None:
        """Leave it to the server."""

    async def pass_on(self, queue_ids: Iterable[int]) -> None:
        """Let another worker hear of what came although there is no room."""
        with contextlib.suppress(WeftError):  # only a hint: others find the work at their next look
            await self._asking.ask("/v1/worker/pass-on", {"worker_id": self._id})

    async def has_room_again(self) -> bool:
        """Leave it to the server, which knows by the claim."""
        return False

    def look_again_in(self, longest: float) -> float:
        """Return after how many seconds, at most ``longest``, the server should be asked again."""
        return longest if self.again_in is None else min(longest, self.again_in)


class RemoteSlots(Slots):
    """Limits of queues are the server's business; it is asked when a task that has rested would go on."""

    def __init__(self, asking: Asking, worker_id: int) -> None:
        self._asking = asking
        self._id = worker_id
        self._limits = {}
        self._promised = {}

    async def refresh(self, lanes: Sequence[Lane]) -> None:
        """Leave it to the server."""

    async def go_on(self, claim: Claim, in_use: InUse, is_over: Callable[[], bool]) -> None:
        """Return when an attempt that has rested may go on, or is over."""
        pause = _FIRST_WAIT
        while not is_over():
            try:
                if (await self._asking.ask("/v1/task/go-on", lease_of(self._id, claim.id, claim.attempt), wait=_WAIT))[
                    "may"
                ]:
                    return
            except OperatorError as problem:
                logger.info("task %s waits for the server: %s", claim.id, problem)
                pause = await pause_after_error(pause)


class RemoteUpkeep(Upkeep):
    """The upkeep is done by the server, also while the worker leads."""

    def __init__(self) -> None:
        self.leads = False
        self.stager: Stager

    def look_at_due(self) -> None:
        """Leave it to the server."""

    async def follow(self, pulse: Pulse) -> None:
        """Leave it to the server."""

    async def stage_in(self, delay: timedelta) -> bool:
        """Leave it to the server."""
        return False

    async def stop(self) -> None:
        """Nothing runs here."""


class RemoteLine:
    """One request for completing and claiming, and another that waits for news."""

    def __init__(
        self, asking: Asking, worker_id: int, relay: RemoteRelay, on_message: Callable[[str], None], room: int
    ) -> None:
        self._asking = asking
        self._room = room
        self._id = worker_id
        self._relay = relay
        self._on_message = on_message
        self._listening: asyncio.Task[None] | None = None

    @property
    def is_open(self) -> bool:
        """Whether the server answers, and has forgotten nothing of what it had to tell."""
        return self._listening is not None and not self._listening.done()

    async def open(self) -> None:
        """Reach the server, trying again with growing pauses until it works."""
        wait, told = _FIRST_WAIT, ""
        while True:
            self.drop()
            try:
                await self._listen(0.0)
                break
            except OperatorError as problem:
                # Told once, and again when there is another cause: an outage may take hours.
                logger.log(logging.DEBUG if str(problem) == told else logging.WARNING, "offline: %s", problem)
                told = str(problem)
                await asyncio.sleep(wait * random.uniform(0.5, 1.0))
                wait = min(_LONGEST_WAIT, wait * 2)
        if told:
            logger.warning("online again")
        self._listening = asyncio.create_task(self._hear())

    async def _listen(self, wait: float) -> dict[str, Any]:
        return await self._asking.ask("/v1/worker/listen", {"worker_id": str(self._id), "wait": wait}, wait=wait)

    async def _hear(self) -> None:
        """Pass news on until some may be missing: then the worker opens the line again, and asks what it holds."""
        try:
            while not (told := await self._listen(_WAIT))["is_new"]:
                for message in told["messages"]:
                    self._on_message(message)
        except WeftError as problem:
            logger.debug("hears nothing: %s", problem)
        asyncio.get_running_loop().call_soon(self._on_message, "work")

    async def finish_and_claim(
        self, completed: Sequence[Completed], lanes: Sequence[Lane], wanted: int, *, from_head: bool
    ) -> tuple[list[Claim], list[int]]:
        """Complete attempts and claim up to ``wanted`` tasks; return the claims and what was lost.

        That is one request, unless the outputs are larger than the server takes at once.
        """
        try:
            return await self._finish_and_claim(completed, wanted)
        except TooLarge:
            if len(completed) > 1:
                # What stands before the server takes less than it says itself.
                self._room = min(self._room, _size(completed)) // 2
            raise

    async def _finish_and_claim(self, completed: Sequence[Completed], wanted: int) -> tuple[list[Claim], list[int]]:
        lost: list[int] = []
        while size_over(completed, self._room):
            count = first_within(completed, self._room)
            part, completed = completed[:count], completed[count:]
            body = {"tasks": [done(self._id, outcome) for outcome in part]}
            lost += [int(id) for id in (await self._asking.ask("/v1/task/complete", body))["refused"]]
        told = await self._asking.ask(
            "/v1/task/claim",
            {
                "worker_id": str(self._id),
                "limit": wanted,
                "stored": True,
                "completed": [done(self._id, outcome) for outcome in completed],
            },
        )
        self._relay.again_in = told["again_in"]
        return claims_in(told), lost + [int(id) for id in told["refused"]]

    async def held(self) -> list[Claim]:
        """Return what the worker holds by the server's account."""
        return claims_in(await self._asking.ask("/v1/worker/holdings", {"worker_id": str(self._id), "stored": True}))

    async def finished(self, claims: Sequence[Claim]) -> set[int]:
        """Return nothing: without a database no handler completes its task in a transaction of its own."""
        return set()

    def drop(self) -> None:
        """Hear nothing more."""
        if self._listening is not None:
            self._listening.cancel()
            self._listening = None

    async def close(self) -> None:
        """Hear nothing more."""
        self.drop()


class RemotePulses:
    """The heartbeats of one worker, by a client of their own: they are sent in another thread."""

    def __init__(self, server: str, token: str | None, worker_id: int) -> None:
        self._server = server
        self._token = token
        self._id = str(worker_id)
        self._asking: Asking | None = None

    async def beat(self, *, busy: bool, completed: int, failed: int, is_blocked: bool) -> Pulse | None:
        """Extend the lease of the worker; None when it is lost."""
        if self._asking is None:
            self._asking = Asking(self._server, self._token)
        said = {"busy": busy, "completed": completed, "failed": failed, "is_blocked": is_blocked}
        try:
            told = await self._asking.ask("/v1/worker/heartbeat", {"worker_id": self._id, **said})
        except WorkerLost:
            return None
        return Pulse(told["held"], False, None, None, None, None, False)

    def drop(self) -> None:
        """Keep the client: it takes another connection by itself."""

    async def close(self) -> None:
        """Close the client."""
        if self._asking is not None:
            await self._asking.close()
