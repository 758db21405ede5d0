"""The newest jobs of a list, and what changes among them, read once for all who look at the same list."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from weft.contract.wire import wire
from weft.jobs import events
from weft.jobs.model import JobPage, JobSummary
from weft.server.live.feed import Feed, Page
from weft.server.live.frames import frame

if TYPE_CHECKING:
    from weft.sdk.client import Client
    from weft.server.live.guest import Guest
    from weft.server.live.round import Round

MOST = 100
# So many pages are read at a look for jobs that the first does not reach; it goes on there at the next look.
PAGES = 10
_OLDER_EVERY, _OLDER_SHARE = 30.0, 20.0
_PAGE_OF_LIST = "job list page"
_JOB = wire(JobSummary)


class JobListFeed(Feed[str]):
    """The first page of a list of jobs, which is told whole at first, and then what changes in it."""

    name = "job list feed"

    def __init__(self, round: Round, client: Client, wish: Mapping[str, Any]) -> None:
        super().__init__(round)
        self._client = client
        self._wish = wish
        self._jobs: dict[int, JobSummary] = {}
        # Places are known to this feed alone: whoever comes from elsewhere gets the whole list again.
        self._mark = secrets.token_hex(6)
        self._count = 0
        self._older_again_at = 0.0
        # What a walk through the older ones has found, where it began, where it goes on, and how long it has taken.
        self._walked: dict[int, JobSummary] = {}
        self._from = 0
        self._below: int | None = None
        self._spent = 0.0
        # What the jobs of the org were like when all of the list was told.
        self._mark_of_jobs = ""
        self._looked_at = 0.0
        self._told: tuple[str, bytes] | None = None
        self._door = asyncio.Lock()

    @property
    def id(self) -> str:
        """Where whoever has all pages goes on from."""
        return f"{self._mark}.{self._count}"

    @classmethod
    async def glance(cls, feeds: Sequence[Self]) -> Mapping[Self, str]:
        """Return those whose jobs may have changed: when any job of the org has, and now and then."""
        client, long_ago = feeds[0]._client, time.monotonic() - _OLDER_EVERY
        org_id = await client.org_id()
        mark = await client.database.read(lambda conn: events.mark_of_jobs(conn, org_id))
        return {
            feed: mark
            for feed in feeds
            if feed._mark_of_jobs != mark or feed._looked_at < long_ago or feed._below is not None
        }

    async def tell(self, found: str) -> None:
        """Put what has changed since all was told."""
        await self._look()
        self._mark_of_jobs, self._looked_at = found, time.monotonic()

    async def _look(self) -> None:
        """Put the jobs that are new or changed, and those that are not in the list any more."""
        page = await self._read(None)
        found = {job.id: job for job in page.jobs}
        if page.next is not None and len(found) < MOST:
            found = dict(sorted((found | await self._older(page.next)).items(), reverse=True)[:MOST])
        before, self._jobs = self._jobs, found
        # What is only pushed out by newer ones has not changed.
        lowest = min(found) if len(found) == MOST else 0
        changed = [found[id] for id in sorted(found) if before.get(id) != found[id]]
        gone = [id for id in before if id not in found and id >= lowest]
        if changed or gone:
            self._count += 1
            frames = [frame({"id": str(id)}, name="gone") for id in gone]
            frames += [frame(_JOB.encode(job)) for job in changed]
            self.put(Page(b"".join(frames) + b"id: %s\n\n" % self.id.encode(), self.id))

    async def _older(self, below: int) -> dict[int, JobSummary]:
        """Return the jobs of the list that a page does not reach: nearly all have ended, and change no more.

        They are looked for again now and then, some pages at a time: where few pass of very many, there are many. What
        was known stays until it is passed.
        """
        began = time.monotonic()
        known = {id: job for id, job in self._jobs.items() if id < below}
        if self._below is None:
            if began < self._older_again_at:
                return known
            self._walked, self._from, self._below, self._spent = {}, below, below, 0.0
        for _ in range(PAGES):
            page = await self._read(self._below)
            self._walked |= {job.id: job for job in page.jobs}
            self._below = page.next if len(self._walked) < MOST else None
            if self._below is None:
                break
        self._spent += time.monotonic() - began
        if self._below is None:
            self._older_again_at = time.monotonic() + max(_OLDER_EVERY, _OLDER_SHARE * self._spent)
        passed = range(self._below or 0, self._from)
        return {id: job for id, job in known.items() if id not in passed} | self._walked

    async def _read(self, before: int | None) -> JobPage:
        self.round.asked[_PAGE_OF_LIST] += 1
        return await self._client.jobs.page(limit=MOST, before=before, **self._wish)

    async def welcome(self, guest: Guest, after: str | None) -> AsyncGenerator[bytes]:
        """Yield the whole list, unless a guest comes again to where he was."""
        async with self._door:
            if not self.is_running:
                async with self.round.turns:
                    await self._look()
                await self.start()
        if after is not None and after in self.places:
            guest.place = self.places[after]
            yield b""
            return
        guest.place = self.next
        yield self._whole()

    def _whole(self) -> bytes:
        """Return the whole list as it is sent, the same for all who come before it changes."""
        if self._told is None or self._told[0] != self.id:
            jobs = [_JOB.encode(self._jobs[id]) for id in sorted(self._jobs, reverse=True)]
            self._told = self.id, frame({"items": jobs}, name="list", id=self.id)
        return self._told[1]
