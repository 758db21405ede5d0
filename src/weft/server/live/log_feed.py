"""What a task prints, read once for all who follow it; a place is how many bytes somebody has had."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Self

from weft.core.errors import InvalidInput
from weft.core.states import TaskState
from weft.queue import look
from weft.sdk.log_reading import ASK_EVERY
from weft.server.live.feed import AT_ONCE, Feed, NothingMoreError, Page
from weft.server.live.frames import frame
from weft.server.live.log_text import LogText
from weft.worker.log_parts import pieces
from weft.worker.logs import local_size

if TYPE_CHECKING:
    from weft.sdk.client import Client
    from weft.server.live.guest import Guest
    from weft.server.live.round import Round

# So much is put at a look: those who read are to keep up.
_MOST_AT_ONCE = 1 << 20
_LONGEST_OFFSET = 18


class _Mark(NamedTuple):
    """What a log is like: it has changed when this has."""

    state: TaskState | None
    copied: int
    here: int | None


class LogFeed(Feed["_Mark"]):
    """The log of one task from its beginning, or from where it ended when somebody first looked."""

    name = "log feed"
    longest = 0.5

    def __init__(self, round: Round, client: Client, task_id: int) -> None:
        super().__init__(round)
        self._client = client
        self._task_id = task_id
        self._offset = 0
        # What the log was like when all of it was told.
        self._mark: _Mark | None = None
        self._text = LogText(client, task_id)
        self._door = asyncio.Lock()
        self._asked_at = -math.inf

    @property
    def id(self) -> str:
        """Where whoever has all pages goes on from."""
        return str(self._offset)

    @classmethod
    async def glance(cls, feeds: Sequence[Self]) -> Mapping[Self, _Mark]:
        """Return those whose tasks have printed something, or have ended."""
        client, ids = feeds[0]._client, [feed._task_id for feed in feeds]
        org_id = await client.org_id()
        # First the states: what is printed before a task has ended is in its log then.
        states = await client.database.read(lambda conn: look.log_marks(conn, org_id, ids))
        found, away = {}, list[Self]()
        for feed in feeds:
            state, copied = states.get(feed._task_id, (None, 0))
            mark = _Mark(state, copied, await local_size(client.settings, feed._task_id))
            if mark != feed._mark:
                found[feed] = mark
            if mark.here is None and not (mark.state is None or mark.state.is_final):
                away.append(feed)
        await cls._ask_for(away)
        return found

    @classmethod
    async def _ask_for(cls, feeds: Sequence[Self]) -> None:
        """Let workers copy what is followed here and written elsewhere, now and then."""
        now = time.monotonic()
        due = [feed for feed in feeds if now - feed._asked_at >= ASK_EVERY]
        if not due or not (client := due[0]._client).settings.log_upload:
            return
        org_id, ids = await client.org_id(), [feed._task_id for feed in due]
        await client.database.run(lambda conn: look.ask_for_logs(conn, org_id, ids))
        for feed in due:
            feed._asked_at = now

    async def tell(self, found: _Mark) -> None:
        """Put what was printed, and the end when the task has ended; of very much a part, and the rest next time."""
        # One that is there no more is told so by whoever reads it.
        state = found.state or await self._state()
        self._text.copied = found.copied
        data = await self._text.read(self._offset, _MOST_AT_ONCE)
        is_all = len(data) < _MOST_AT_ONCE
        for chunk in pieces(data, AT_ONCE, is_all=state.is_final and is_all):
            start, self._offset = self._offset, self._offset + len(chunk)
            self.put(Page(_frame(start, chunk), self.id, ((start, chunk),)))
        if not is_all:
            return
        if state.is_final:
            self.end(Page(frame({"state": state}, name="end", id=self.id), None))
        self._mark = found

    async def welcome(self, guest: Guest, after: str | None) -> AsyncGenerator[bytes]:
        """Yield what was printed between the place of a guest and the pages that are kept."""
        offset = _offset(after)
        async with self._door:
            if not self.is_running:
                await self._begin(offset, is_first=after is None)
        if str(offset) in self.places:
            guest.place = self.places[str(offset)]
            yield b""
            return
        while True:
            guest.place, end = self.next, self._offset
            # In pieces: whoever reads slowly, or not at all, does not hold the rest.
            while offset < end:
                data = await self._text.read(offset, min(AT_ONCE, end - offset))
                if not data:
                    # It is there no more.
                    offset = end
                for chunk in pieces(data, AT_ONCE, is_all=offset + len(data) >= end):
                    yield _frame(offset, chunk)
                    offset += len(chunk)
            if guest.place >= self.first:
                break
        had = offset

        def fit(page: Page) -> bytes:
            if not page.parts:
                return page.data
            ((start, chunk),) = page.parts
            return page.data if start >= had else _frame(had, rest) if (rest := chunk[had - start :]) else b""

        guest.fit = fit if had > end else None

    async def stop(self) -> None:
        """Be looked for no more."""
        await super().stop()
        self._text.close()

    async def _begin(self, offset: int, *, is_first: bool) -> None:
        """Tell all, or what is printed from now on where much was, or he has had some: that each reads for himself."""
        org_id = await self._client.org_id()
        state = await self._state()
        marks = await self._client.database.read(lambda conn: look.log_marks(conn, org_id, [self._task_id]))
        self._text.copied = marks[self._task_id][1] if self._task_id in marks else 0
        some = await self._text.read(offset, AT_ONCE)
        if not is_first and state.is_final and not some:
            raise NothingMoreError
        # Others come as well: what the first says that he has had moves nothing for them.
        self._offset = 0 if offset == 0 and len(some) < AT_ONCE else await self._text.end()
        self.places[self.id] = self.next
        await self.start()

    async def _state(self) -> TaskState:
        org_id = await self._client.org_id()
        task, _, _ = await self._client.database.read(lambda conn: look.show(conn, org_id, self._task_id))
        return task.state


def _offset(after: str | None) -> int:
    if after is None:
        return 0
    if not after.isascii() or not after.isdigit() or len(after) > _LONGEST_OFFSET:
        raise InvalidInput("after", f"{after[:40]!r} is no number of bytes: give the id of the last event")
    return int(after)


def _frame(start: int, chunk: bytes) -> bytes:
    text = chunk.decode(errors="replace")
    return frame({"offset": start, "text": text}, id=str(start + len(chunk)))
