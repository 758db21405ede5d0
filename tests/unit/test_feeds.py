"""Feeds: pages that are kept for a while, guests who are slow, pieces of logs, places that stay short."""

from __future__ import annotations

import asyncio
import base64
import math
import time
from collections import Counter
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Self

import hypothesis
import orjson
import pytest
from fastapi import Request
from hypothesis import strategies as st

from weft.catalog.model import Principal, TokenRole
from weft.jobs import events
from weft.jobs.events import JobEvents
from weft.server.live import feed as feeds
from weft.server.live.feed import LAGGING, MOST_BYTES, Feed, Page
from weft.server.live.guest import Guest
from weft.server.live.round import Round
from weft.server.live.shelf import Shelf
from weft.worker.log_parts import pieces


class Numbers(Feed[int]):
    """A feed of what a test puts, of which a look finds its number when it has one."""

    name = "numbers"
    number: int | None = None

    def __init__(self, round: Round | None = None) -> None:
        super().__init__(round or Round(Numbers, asyncio.Semaphore(), Counter(), Shelf(MOST_BYTES)))

    @property
    def id(self) -> str:
        return str(self.next)

    @classmethod
    async def glance(cls, feeds: Sequence[Self]) -> Mapping[Self, int]:
        return {feed: feed.number for feed in feeds if feed.number is not None}

    async def tell(self, found: int) -> None:
        self.number = None
        self.put(Page(b"%d" % found, None))

    async def welcome(self, guest: Guest, after: str | None) -> AsyncGenerator[bytes]:
        guest.place = self.places.get(after, self.next)
        yield b""


def _guest() -> Guest:
    return Guest(Principal(1, "default", "ada", TokenRole.READER), Request({"type": "http", "headers": []}))


async def test_whoever_is_too_slow_is_sent_away_and_what_is_kept_is_limited() -> None:
    feed, slow, quick = Numbers(), _guest(), _guest()
    page = Page(b"x" * (MOST_BYTES // 4), None)
    feed.put(page)
    assert feed.next == 0, "nobody looks, and whoever comes is told what he has missed"
    feed.guests |= {slow, quick}
    feed.put(page)
    assert feed.take(slow) == feed.take(quick) == page.data
    for _ in range(10):
        feed.put(page)
        assert feed.take(quick) == page.data
    assert feed.next - feed.first == 4
    assert (feed.take(slow), slow.parting) == (b"", LAGGING)
    assert quick.parting is None


async def test_whoever_has_all_of_what_is_over_leaves() -> None:
    feed, guest = Numbers(), _guest()
    feed.guests.add(guest)
    feed.end(Page(b"last", None))
    assert (feed.take(guest), guest.is_gone) == (b"last", False)
    assert (feed.take(guest), guest.is_gone) == (b"", True)


async def test_where_nothing_happens_a_heartbeat_tells_where_to_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "HEARTBEAT", 0.0)
    feed, guest = Numbers(), _guest()
    feed.guests.add(guest)
    feed.rest(time.monotonic(), 0.0, has_news=False)
    assert feed.take(guest) == b": still here\nid: 0\n\n"


async def test_a_round_looks_once_for_all_that_are_due_and_for_no_others() -> None:
    asked: Counter[str] = Counter()
    round = Round(Numbers, asyncio.Semaphore(), asked, Shelf(MOST_BYTES))
    busy, quiet, resting = (Numbers(round) for _ in range(3))
    for feed in (busy, quiet, resting):
        round.feeds.add(feed)
        feed.guests.add(_guest())
    busy.number = resting.number = 7
    resting.due_at = math.inf
    assert (await round.run_once(), asked) == (2, Counter(numbers=1))
    assert [feed.next for feed in (busy, quiet, resting)] == [1, 0, 0]
    # Where something happens is looked again sooner; who is kicked is due at once, and only then.
    assert busy.due_at < quiet.due_at
    resting.kick()
    busy.due_at = quiet.due_at = math.inf
    assert (await round.run_once(), resting.next) == (1, 1)


@hypothesis.given(st.text(max_size=50), st.integers(0, 200))
def test_a_log_comes_in_pieces_of_whole_characters(text: str, cut: int) -> None:
    data = text.encode(errors="replace")
    first = b"".join(pieces(data[:cut], 1 << 16, is_all=False))
    first.decode()
    assert len(data[:cut]) - len(first) < 4
    assert first + b"".join(pieces(data[len(first) :], 1 << 16, is_all=True)) == data


def test_a_place_is_short_however_much_happens_at_once() -> None:
    parts = ["7", "2026-11-17T08:00:00+00:00", [f"{n}.completed" for n in range(1000)], None, 5]
    long = base64.urlsafe_b64encode(orjson.dumps(parts)).decode()
    assert len(events.brief(long)) < 200
    assert events.places(long, JobEvents((), long, False), 7) == []
