"""Sends what the tasks of a worker print to its server, while they run."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from weft.contract.bounds import MOST
from weft.core.errors import BlobUnavailable, LeaseLost, OperatorError, WeftError
from weft.queue.service import Service
from weft.remote.asking import Asking
from weft.remote.worker_line import lease_of
from weft.worker.background import pause_after_error
from weft.worker.log_keeping import LogKeeping
from weft.worker.log_parts import pieces

if TYPE_CHECKING:
    from weft.worker.attempt import Attempt

logger = logging.getLogger("weft.worker")
_FIRST_PAUSE = 0.1
_AT_ONCE = 8
_PIECE = 1 << 18
# What stands around a text in a request.
_AROUND = 128


class _News(NamedTuple):
    attempt: Attempt
    offset: int
    piece: bytes


class RemoteLogs(LogKeeping, Service):
    """The logs of one worker: what is new of each is sent every second, and all of it before its task ends."""

    name = "log courier"
    interval = 1.0

    def __init__(self, asking: Asking, worker_id: int, body_limit: int) -> None:
        LogKeeping.__init__(self, self._finish)
        Service.__init__(self)
        self._asking = asking
        self._id = worker_id
        # A byte may take six in JSON.
        self._most = min(_PIECE, body_limit // 8)
        self._running: Callable[[], Iterable[Attempt]] = lambda: ()
        # By task and attempt, how many bytes the server has.
        self._sent: dict[tuple[int, int], int] = {}
        self._turns = asyncio.Semaphore(_AT_ONCE)

    async def start(self, running: Callable[[], Iterable[Attempt]] | None = None) -> None:
        """Begin to follow the logs of what is ``running``."""
        self._running = running or self._running
        await Service.start(self)

    async def stop(self) -> None:
        """End the loop."""
        await Service.stop(self)

    async def run_once(self) -> int:
        """Send what is new; what cannot be sent now is sent later."""
        attempts = [each for each in self._running() if each.has_log and not each.is_over]
        later: list[Attempt] = []
        while attempts:
            batch, attempts, much = await self._gathered(attempts)
            later += much
            try:
                later += await self._send_together(batch)
            except WeftError as problem:
                logger.debug("the logs of %s tasks are sent later: %s", len(batch), problem)
        sent = await asyncio.gather(*(self._send(each, is_last=False) for each in later), return_exceptions=True)
        for each, found in zip(later, sent, strict=True):
            if isinstance(found, BaseException):
                if not isinstance(found, WeftError):
                    raise found
                logger.debug("the log of task %s is sent later: %s", each.claim.id, found)
        return 0

    async def _gathered(self, attempts: list[Attempt]) -> tuple[list[_News], list[Attempt], list[Attempt]]:
        """Return what is new of as many logs as fit into a request, the attempts after them, those with too much."""
        news: list[_News] = []
        much: list[Attempt] = []
        size = 0
        for place, attempt in enumerate(attempts):
            offset = self._sent.get((attempt.claim.id, attempt.claim.attempt), 0)
            data = await asyncio.to_thread(attempt.log.printed, offset, self._most)
            piece = next(pieces(data, self._most, is_all=False), b"")
            if len(data) >= self._most:
                much.append(attempt)
            elif piece and news and (size + len(piece) > self._most or len(news) == MOST):
                return news, attempts[place:], much
            elif piece:
                news.append(_News(attempt, offset, piece))
                size += len(piece) + _AROUND
        return news, [], much

    async def _send_together(self, news: list[_News]) -> list[Attempt]:
        """Send what is new of several logs at once; return those with which there is more to do."""
        if not news:
            return []
        said = [
            {**lease_of(self._id, each.attempt.claim.id, each.attempt.claim.attempt), "offset": each.offset,
             "text": each.piece.decode("utf-8", "replace")}
            for each in news
        ]  # fmt: skip
        async with self._turns:
            sizes = (await self._asking.ask("/v1/task/logs", {"tasks": said}))["sizes"]
        behind = []
        for attempt, offset, piece in news:
            size = sizes.get(str(attempt.claim.id))
            if size is not None and size < offset:
                # Another server has answered, which has missed what came before.
                behind.append(attempt)
            elif size is not None and size >= offset + len(piece) and not attempt.is_over:
                self._sent[attempt.claim.id, attempt.claim.attempt] = offset + len(piece)
        return behind

    async def _finish(self, attempt: Attempt) -> None:
        """Send the rest of a log; a server that is away is waited for: the outcome waits for it as well."""
        pause = _FIRST_PAUSE
        try:
            while True:
                try:
                    return await self._send(attempt, is_last=True)
                except OperatorError as problem:
                    if isinstance(problem, BlobUnavailable):
                        # It is in the server's folder, and only its copy is missing.
                        raise
                    logger.info("the log of task %s waits for the server: %s", attempt.claim.id, problem)
                    pause = await pause_after_error(pause)
                except LeaseLost:
                    return None
        finally:
            self._sent.pop((attempt.claim.id, attempt.claim.attempt), None)

    async def _send(self, attempt: Attempt, *, is_last: bool) -> None:
        """Send what the server does not have yet, piece by piece."""
        claim, log = attempt.claim, attempt.log
        key = claim.id, claim.attempt
        lease = lease_of(self._id, *key)
        async with self._turns:
            offset, has_gone_back = self._sent.get(key, 0), False
            while True:
                data = await asyncio.to_thread(log.printed, offset, self._most)
                is_all = is_last and len(data) < self._most
                piece = next(pieces(data, self._most, is_all=is_all), b"")
                if not piece and not is_last:
                    return
                said = {"offset": offset, "text": piece.decode("utf-8", "replace"), "is_last": is_all}
                size = (await self._asking.ask("/v1/task/log", {**lease, **said}))["size"]
                if size < offset and not has_gone_back:
                    # Another server has answered, which has missed what came before: it gets that from us.
                    offset, has_gone_back = size, True
                    continue
                if size < offset + len(piece):
                    # The log of a later attempt has begun.
                    return
                offset += len(piece)
                if is_last or not attempt.is_over:
                    self._sent[key] = offset
                if is_all:
                    return
