"""What happens in a job, read once for all who follow it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Self

from weft.contract.wire import wire
from weft.jobs import events
from weft.jobs.events import JobEvent, JobEvents
from weft.server.live.feed import AT_ONCE, Feed, NothingMoreError, Page
from weft.server.live.frames import frame

if TYPE_CHECKING:
    from weft.sdk.client import Client
    from weft.server.live.guest import Guest
    from weft.server.live.round import Round

_PAGE = 1000
# Whoever catches up by himself holds so many: there may be many of them, and some do not read.
_FEW = 200
_EVENT = wire(JobEvent)


class JobFeed(Feed[JobEvents]):
    """The events of one job from the moment on at which somebody first looked."""

    name = "job feed"

    def __init__(self, round: Round, client: Client, job_id: int) -> None:
        super().__init__(round)
        self._client = client
        self._job_id = job_id
        self.topic = str(job_id)
        self._cursor: str | None = None
        # How often all that there was had been told.
        self._looks = 0
        self._door = asyncio.Lock()

    @property
    def id(self) -> str | None:
        """Where whoever has all pages goes on from."""
        return None if self._cursor is None else events.brief(self._cursor)

    @classmethod
    async def glance(cls, feeds: Sequence[Self]) -> Mapping[Self, JobEvents]:
        """Return the events that have come in all of the jobs."""
        client, asked = feeds[0]._client, [(feed._job_id, feed._cursor) for feed in feeds]
        org_id = await client.org_id()
        found = await client.database.read(lambda conn: events.pages(conn, org_id, asked, _PAGE))
        return dict(zip(feeds, found, strict=True))

    async def tell(self, found: JobEvents) -> None:
        """Put the events that have come."""
        await self._add(found)

    async def welcome(self, guest: Guest, after: str | None) -> AsyncGenerator[bytes]:
        """Yield what a guest has missed who comes with a cursor, or the whole job without one."""
        async with self._door:
            if after not in self.places:
                found = await self._found(after)
                if found.is_last and not found.events and after is not None:
                    raise NothingMoreError
                if after is None and not self.is_running and not _is_full(found):
                    await self._begin(after, found)
        if after in self.places:
            guest.place = self.places[after]
            yield b""
            return
        catching_up = self._caught_up(guest, after, found)
        del found
        async for data in catching_up:
            yield data

    async def _caught_up(self, guest: Guest, after: str | None, found: JobEvents) -> AsyncGenerator[bytes]:
        """Yield what there was before the pages that are kept, and then nothing of them twice."""
        came_with = after
        while True:
            told, after = [page.data for page in self._pages_of(after, found)], found.cursor
            is_full, is_last = _is_full(found), found.is_last
            # He may take long: only what is sent to him is held.
            del found
            for data in told:
                yield data
            if is_last:
                guest.dismiss(await self._last_words(after))
                return
            if is_full:
                found = await self._read(after)
                continue
            if came_with is None and not self.is_running:
                await self._begin(after, JobEvents((), after, False))
                guest.place = self.next
                return
            async with self._door:
                if not self.is_running:
                    await self._begin_at_end()
            await self._all_told(guest)
            guest.place = self.next
            found = await self._read(after)
            if not found.is_last and not _is_full(found):
                self._leave_out(guest, {event.id for event in found.events})
                told = [page.data for page in self._pages_of(after, found)]
                del found
                for data in told:
                    yield data
                return

    def _leave_out(self, guest: Guest, had: set[str]) -> None:
        """Let a guest not have those again that he has had by himself: each comes within two looks."""
        until = self._looks + 2

        def fit(page: Page) -> bytes:
            if page.look > until:
                guest.fit = None
            return b"".join(data for name, data in page.parts if name not in had) if page.parts else page.data

        guest.fit = fit if had else None

    async def _all_told(self, guest: Guest) -> None:
        """Return when all is in the pages that there was when it was called; the look that goes on then may miss it."""
        until = self._looks + 2
        while self._looks < until and not (self.is_over or guest.is_gone):
            self.kick()
            await asyncio.sleep(0.01)

    async def _begin_at_end(self) -> None:
        """Begin after all that there is, found by itself: what a guest says that he has had is not so for others."""
        found = await self._read(None, _PAGE)
        while len(found.events) >= _PAGE:
            found = await self._read(found.cursor, _PAGE)
        await self._begin(found.cursor, JobEvents((), found.cursor, False))

    async def _begin(self, after: str | None, found: JobEvents) -> None:
        if not self.is_running:
            self._cursor, self.places[after] = after, self.next
            await self._add(found)
            await self.start()

    async def _add(self, found: JobEvents) -> None:
        before, self._cursor = self._cursor, found.cursor
        for page in self._pages_of(before, found):
            self.put(page)
        if len(found.events) < _PAGE:
            self._looks += 1
        if found.is_last:
            self.end(Page(await self._last_words(found.cursor), None))

    async def _last_words(self, cursor: str) -> bytes:
        job = await self._client.jobs.show(self._job_id)
        told = {"state": job.state, "reason": job.reason, "error": job.error}
        return frame(told, name="end", id=events.brief(cursor))

    async def _found(self, after: str | None) -> JobEvents:
        """Read as `_read` does, and refuse a job that is not the caller's: it may be another's."""
        found = await self._read(after)
        if not found.events:
            await self._client.jobs.show(self._job_id)
        return found

    async def _read(self, after: str | None, most: int = _FEW) -> JobEvents:
        org_id = await self._client.org_id()
        return await self._client.database.read(lambda conn: events.page(conn, org_id, self._job_id, after, most))

    def _pages_of(self, after: str | None, found: JobEvents) -> Iterator[Page]:
        """Yield the events that were found as they are sent, in pages none of which is much to hold."""
        before: str | None = None
        parts: list[tuple[str, bytes]] = []
        size = 0
        for event, id in zip(found.events, events.places(after, found, self._job_id), strict=True):
            data = frame(_EVENT.encode(event), id=id)
            if parts and size + len(data) > AT_ONCE:
                yield self._page(parts, before)
                parts, size = [], 0
            parts.append((event.id, data))
            size, before = size + len(data), id
        if parts:
            yield self._page(parts, events.brief(found.cursor))

    def _page(self, parts: list[tuple[str, bytes]], id: str | None) -> Page:
        return Page(b"".join(data for _, data in parts), id, tuple(parts), self._looks)


def _is_full(found: JobEvents) -> bool:
    """Whether there may be more than was asked for by somebody who catches up."""
    return len(found.events) >= _FEW
