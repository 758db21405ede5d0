"""All open streams of a server process: their feeds, who looks at them, and until when they may."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Hashable
from typing import TYPE_CHECKING, Any

from weft.catalog.telling import CHANNEL as CREDENTIALS
from weft.core.errors import OperatorError
from weft.core.server_errors import Forbidden, ServerFull, ServerStopping, TooManyStreams, Unauthenticated
from weft.jobs.events import CHANNEL as JOB_EVENTS
from weft.jobs.metrics import Metric, Sample
from weft.queue.service import Service
from weft.server.live.frames import farewell
from weft.server.live.listener import Listener
from weft.server.live.round import Round
from weft.server.live.shelf import MOST_OF_ALL, Shelf
from weft.server.live.visit import Visit

if TYPE_CHECKING:
    from weft.db.database import Database
    from weft.server.live.feed import Feed
    from weft.server.live.guest import Guest

logger = logging.getLogger("weft.server")
# Of the connections to the database, so many serve streams: requests have the others.
_TURNS = 2
# Whoever takes nothing for so long is not there any more.
_PATIENCE = 60.0
_REFUSED = "the token was revoked or its user deactivated"
_UNWELCOME = farewell(Unauthenticated.code, _REFUSED)
_STOPPING = farewell(ServerStopping.code, "the server stops: connect again with Last-Event-ID")


class Hub(Service):
    """The feeds of a process by what they tell of, and all guests.

    Whoever loses his credential is sent away at once when that is heard of, and else by the look that is taken at all
    credentials now and then.

    One connection listens for all orgs. What it hears has ids in it and nothing else: it lets feeds look, each of which
    is of one org and reads what it tells in sessions that are held to that org, by statements that name it as well.
    """

    name = "doorkeeper"
    interval = 30.0

    def __init__(self, database: Database, admit: Callable[[Guest], Awaitable[None]]) -> None:
        super().__init__()
        self._turns = asyncio.Semaphore(_TURNS)
        self._admit = admit
        self._feeds: dict[Hashable, Feed[Any]] = {}
        self._by_topic: defaultdict[str, set[Feed[Any]]] = defaultdict(set)
        self._rounds: dict[tuple[int, type[Feed[Any]]], Round] = {}
        self._asked: Counter[str] = Counter()
        self._shelf = Shelf(MOST_OF_ALL)
        self._guests: set[Guest] = set()
        self._limit, self._org_limit = database.settings.server_streams, database.settings.server_org_streams
        self._of_org: Counter[int] = Counter()
        self._refused: Counter[str] = Counter()
        self._ending: set[asyncio.Task[None]] = set()
        self._is_closed = False
        channels = {JOB_EVENTS: self._hear_job, CREDENTIALS: self._hear_refusal}
        self._ears = Listener(database, channels, lambda _: self.look_again())

    def round_of(self, org_id: int, kind: type[Feed[Any]]) -> Round:
        """Return what looks for the feeds of an org of this kind."""
        if (org_id, kind) not in self._rounds:
            self._rounds[org_id, kind] = Round(kind, self._turns, self._asked, self._shelf)
        return self._rounds[org_id, kind]

    async def open(self, key: Hashable, make: Callable[[], Feed[Any]], guest: Guest, after: str | None) -> Visit:
        """Let a guest in; what is wrong with his wish is raised now, not amid the stream."""
        if self._is_closed:
            raise ServerStopping
        self._require_room(guest.who.org_id)
        if not self.is_running:
            await self.start()
            await self._ears.start()
            self._require_room(guest.who.org_id)
        feed = self._feeds.get(key)
        if feed is None:
            feed = self._feeds[key] = make()
            self._by_topic[feed.topic].add(feed)
        self._guests.add(guest)
        self._of_org[guest.who.org_id] += 1
        feed.guests.add(guest)
        welcome = feed.welcome(guest, after)
        visit = Visit(feed, guest, welcome, lambda: self._leave(key, feed, guest))
        try:
            visit.first = await anext(welcome, b"")
        except BaseException:
            await visit.close()
            raise
        return visit

    def _leave(self, key: Hashable, feed: Feed[Any], guest: Guest) -> None:
        self._guests.discard(guest)
        self._of_org[guest.who.org_id] -= 1
        self._of_org += Counter()
        if not self._of_org[guest.who.org_id]:
            self._rounds = {of: each for of, each in self._rounds.items() if of[0] != guest.who.org_id}
        feed.guests.discard(guest)
        if not feed.guests and self._feeds.get(key) is feed:
            del self._feeds[key]
            self._by_topic[feed.topic].discard(feed)
            if not self._by_topic[feed.topic]:
                del self._by_topic[feed.topic]
            ending = asyncio.create_task(feed.stop())
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)

    def _require_room(self, org_id: int) -> None:
        if self._of_org[org_id] >= self._org_limit:
            self._refused["org"] += 1
            raise TooManyStreams(self._org_limit)
        if len(self._guests) >= self._limit:
            self._refused["server"] += 1
            raise ServerFull(self._limit)

    @property
    def count(self) -> int:
        """How many streams are open."""
        return len(self._guests)

    def metrics(self) -> list[Metric]:
        """Return what streams there are, what is kept for them, how often was asked for them and how many refused."""
        looks = tuple(Sample(self._asked[kind], {"kind": kind}) for kind in sorted(self._asked))
        refused = tuple(Sample(self._refused[limit], {"limit": limit}) for limit in ("org", "server"))
        return [
            Metric("streams_open", "gauge", "Streams that are open.", (Sample(self.count),)),
            Metric(
                "streams_kept_bytes", "gauge", "What is kept for those who are slower.", (Sample(self._shelf.bytes),)
            ),
            Metric("streams_looks_total", "counter", "How often the database was asked what is new.", looks),
            Metric("streams_refused_total", "counter", "Streams that were refused, as there were too many.", refused),
        ]

    def look_again(self) -> None:
        """Look at all credentials and all feeds: something may have been said that was not heard."""
        self.kick()
        for feed in self._feeds.values():
            feed.kick()

    def _hear_job(self, payload: str) -> None:
        for feed in self._by_topic.get(payload, ()):
            feed.kick()

    def _hear_refusal(self, payload: str) -> None:
        kind, _, id = payload.partition(" ")
        for guest in list(self._guests):
            if str(guest.who.token_id if kind == "token" else guest.who.user_id) == id:
                guest.dismiss(_UNWELCOME)

    async def run_once(self) -> int:
        """Send away all whose credential is not good any more."""
        by_credential: dict[Hashable, list[Guest]] = {}
        for guest in self._guests:
            by_credential.setdefault(guest.credential, []).append(guest)
        sent_away, now = 0, time.monotonic()
        for guest in self._guests:
            if guest.waits_since is not None and now - guest.waits_since > _PATIENCE:
                guest.give_up()
        for guests in by_credential.values():
            try:
                await self._admit(guests[0])
            except (Unauthenticated, Forbidden):
                for guest in guests:
                    guest.dismiss(_UNWELCOME)
                sent_away += len(guests)
            except OperatorError as problem:
                # That nobody can say does not keep others from being looked at.
                logger.info("a credential is looked at later: %s", problem)
        return sent_away

    def pause_before_next(self, done: int) -> float:
        """Rest for as long, whether somebody was sent away or not."""
        return super().pause_before_next(0)

    async def close(self) -> None:
        """End all streams, each with a word why; no other is opened."""
        self._is_closed = True
        for guest in list(self._guests):
            guest.dismiss(_STOPPING)

    async def stop(self) -> None:
        """End all that goes on in the background."""
        await self.close()
        await super().stop()
        await self._ears.stop()
        for feed in list(self._feeds.values()):
            await feed.stop()
        await asyncio.gather(*self._ending, return_exceptions=True)
