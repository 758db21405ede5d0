"""What happens in a job, read once for all who follow it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import TYPE_CHECKING, Self

from weft.contract.wire import wire
from weft.jobs import events
from weft.jobs.events import JobEvent, JobEvents
from weft.server.live.feed import Feed, NothingMoreError, Page
from weft.server.live.frames import frame

if TYPE_CHECKING:
    from weft.sdk.client import Client
    from weft.server.live.guest import Guest
    from weft.server.live.round import Round

_PAGE = 1000
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
                if not self.is_running and len(found.events) < _PAGE:
                    await self._begin(after, found)
        if after in self.places:
            guest.place = self.places[after]
            yield b""
            return
        async for data in self._caught_up(guest, after, found):
            yield data

    async def _caught_up(self, guest: Guest, after: str | None, found: JobEvents) -> AsyncGenerator[bytes]:
        """Yield what there was before the pages that are kept, and then nothing of them twice."""
        while True:
            yield self._page(after, found).data
            after = found.cursor
            if found.is_last:
                guest.dismiss(await self._last_words(found.cursor))
                return
            if len(found.events) >= _PAGE:
                found = await self._read(after)
                continue
            if not self.is_running:
                await self._begin(found.cursor, JobEvents((), found.cursor, False))
                guest.place = self.next
                return
            await self._all_told(guest)
            guest.place = self.next
            found = await self._read(after)
            if not found.is_last and len(found.events) < _PAGE:
                yield self._page(after, found).data
                self._leave_out(guest, found)
                return

    def _leave_out(self, guest: Guest, found: JobEvents) -> None:
        """Let a guest not have those again that he has had by himself: each comes within two looks."""
        had, until = {event.id for event in found.events}, self._looks + 2

        def fit(page: Page) -> bytes:
            if self._looks > until:
                guest.fit = None
            return b"".join(data for name, data in page.parts if name not in had) if page.parts else page.data

        guest.fit = fit if had else None

    async def _all_told(self, guest: Guest) -> None:
        """Return when all is in the pages that there was when it was called; the look that goes on then may miss it."""
        until = self._looks + 2
        while self._looks < until and not (self.is_over or guest.is_gone):
            self.kick()
            await asyncio.sleep(0.01)

    async def _begin(self, after: str | None, found: JobEvents) -> None:
        if not self.is_running:
            self._cursor, self.places[after] = after, self.next
            await self._add(found)
            await self.start()

    async def _add(self, found: JobEvents) -> None:
        before, self._cursor = self._cursor, found.cursor
        if found.events:
            self.put(self._page(before, found))
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

    async def _read(self, after: str | None) -> JobEvents:
        org_id = await self._client.org_id()
        return await self._client.database.read(lambda conn: events.page(conn, org_id, self._job_id, after, _PAGE))

    def _page(self, after: str | None, found: JobEvents) -> Page:
        """Return a page as it is sent."""
        places = events.places(after, found, self._job_id)
        parts = tuple(
            (event.id, frame(_EVENT.encode(event), id=id)) for event, id in zip(found.events, places, strict=True)
        )
        return Page(b"".join(data for _, data in parts), events.brief(found.cursor), parts)
