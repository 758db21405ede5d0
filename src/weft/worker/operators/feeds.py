"""Ordered feeds as a follower reads them: what comes after a number, page by page, by HTTP, JSON-RPC or SQL."""

from __future__ import annotations

import asyncio
import itertools
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, time
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import asyncpg
import orjson

from weft.core.errors import InvalidInput
from weft.core.json import text_problem
from weft.flow.live.configs import BlockFollower, HttpFeed, JsonRpcFeed, RpcCall, SqlFeed
from weft.worker.operators.fetching import Unavailable, fetch, filled, found_at
from weft.worker.operators.typed_rows import has_decimals, whole_number

if TYPE_CHECKING:
    from weft.worker.live import LiveContext

# A cursor is a part of an address, and hashes are remembered by the thousand.
_LONGEST_TEXT = 1000
_URL, _QUERY = "config.feed.url", "config.feed.query"


@dataclass(frozen=True, slots=True)
class Item:
    """One of a feed: its number, by which hash it is known and which one it follows, and all that is said of it."""

    number: int | None
    hash: str | None
    parent: str | None
    row: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Page:
    """What came: items in order, the highest number that there is, and where to go on, as far as either is told."""

    items: list[Item]
    head: int | None = None
    next: str | None = None
    is_full: bool = False


class Feed(ABC):
    """A feed of one config."""

    def __init__(self, live: LiveContext, number: str | None, hash: str | None, parent: str | None) -> None:
        self.live = live
        self._number, self._hash, self._parent = number, hash, parent

    @property
    def has_hashes(self) -> bool:
        """Whether items are known by a hash, so that it can be told when others take their place."""
        return self._hash is not None

    @property
    def has_numbers(self) -> bool:
        """Whether items have numbers; else only the feed itself knows where to go on."""
        return self._number is not None

    @abstractmethod
    async def page(self, after: int | None, limit: int, cursor: str | None = None) -> Page:
        """Return what comes after a number, or at a cursor that the feed gave before; raises `Unavailable`."""

    def _items(self, rows: Sequence[Any]) -> list[Item]:
        found = [self._item(row) for row in rows]
        if self.has_numbers:
            found.sort(key=lambda item: item.number or 0)
            for one, other in itertools.pairwise(found):
                if one.number == other.number:
                    raise Unavailable(f"the feed has two items of number {one.number}")
        return found

    def _item(self, row: Any) -> Item:
        if not isinstance(row, Mapping):
            raise InvalidInput("config.feed.items", f"an item is {type(row).__name__} and no object: name their list")
        number = None if self._number is None else whole_number(found_at(row, self._number))
        if self._number is not None and number is None:
            known = ", ".join(map(str, row))[:200]
            raise InvalidInput("config.feed.number", f"no whole number is at {self._number!r}; an item has {known}")
        _check_bits(number, "an item")
        found = Item(number, self._text(row, self._hash), self._text(row, self._parent), row)
        if self.has_hashes and found.hash is None:
            raise Unavailable(f"item {number} has no hash")
        return found

    @staticmethod
    def _text(row: Mapping[str, Any], path: str | None) -> str | None:
        value = None if path is None else found_at(row, path)
        return None if value is None else _short_text(value, "a hash")


class _Http(Feed):
    def __init__(self, live: LiveContext, config: BlockFollower, feed: HttpFeed) -> None:
        super().__init__(live, feed.number, feed.hash, feed.parent_hash)
        self._feed = feed
        self._seconds = config.timeout
        self._is_exact = has_decimals(config.columns)

    async def page(self, after: int | None, limit: int, cursor: str | None = None) -> Page:
        feed = self._feed
        limit = min(limit, feed.page_size)
        last = -1 if after is None else after
        values = {"limit": limit, "after": last, "from": last + 1, "to": last + limit, "cursor": cursor or ""}
        url = filled(feed.url, values, _URL)
        answer = await fetch(self.live, url, _URL, seconds=self._seconds, headers=feed.headers)
        said = answer.json(url.split("/")[2], exact=self._is_exact)
        rows = found_at(said, feed.items)
        if not isinstance(rows, list):
            raise InvalidInput("config.feed.items", f"no list is at {feed.items!r} of what {url[:200]} answers")
        head = _check_bits(
            None if feed.latest is None else whole_number(found_at(said, feed.latest)), "what is the highest"
        )
        then = None if feed.next is None else found_at(said, feed.next)
        items = [item for item in self._items(rows) if after is None or not self.has_numbers or _is_after(item, after)]
        return Page(
            items[:limit], head, None if then is None else _short_text(then, "the next cursor"), len(rows) >= limit
        )


class _JsonRpc(Feed):
    def __init__(self, live: LiveContext, config: BlockFollower, feed: JsonRpcFeed) -> None:
        super().__init__(live, feed.number, feed.hash, feed.parent_hash)
        self._feed = feed
        self._seconds = config.timeout
        self._is_exact = has_decimals(config.columns)

    async def page(self, after: int | None, limit: int, cursor: str | None = None) -> Page:
        [head] = await self._call([(self._feed.latest, None)])
        if head is None:
            raise Unavailable(f"{self._feed.latest.method} answers null")
        last = _check_bits(whole_number(head), "what is the highest")
        if last is None:
            raise InvalidInput("config.feed.latest", f"{self._feed.latest.method} answers no number: {str(head)[:100]}")
        first = last if after is None else after + 1
        numbers = range(first, min(first + limit - 1, last) + 1)
        found: list[Any] = []
        for begin in range(0, len(numbers), self._feed.batch):
            part = numbers[begin : begin + self._feed.batch]
            found += await self._call([(self._feed.block, number) for number in part])
            self.live.task.heartbeat()
        items = []
        for number, each in zip(numbers, found, strict=True):
            # One that a node does not have yet is a gap.
            items += [] if each is None else self._items([each])
            if each is not None and items[-1].number != number:
                raise Unavailable(f"{self._feed.block.method} answers item {items[-1].number} in place of {number}")
        return Page(items, last, None, len(numbers) == limit)

    async def _call(self, calls: Sequence[tuple[RpcCall, int | None]]) -> list[Any]:
        """Make calls in one request, and return what each answers."""
        asked = [
            {"jsonrpc": "2.0", "id": place, "method": call.method, "params": _with_number(call.params, number)}
            for place, (call, number) in enumerate(calls)
        ]
        body = orjson.dumps(asked[0] if len(asked) == 1 else asked)
        answer = await fetch(
            self.live, self._feed.url, _URL, seconds=self._seconds, headers=self._feed.headers, body=body
        )
        said = answer.json(self._feed.url.split("/")[2], exact=self._is_exact)
        several = [each for each in (said if isinstance(said, list) else [said]) if isinstance(each, dict)]
        told = {each["id"]: each for each in several if isinstance(each.get("id"), int)}
        found = []
        for place, (call, _) in enumerate(calls):
            each = told.get(place)
            if each is None or each.get("error") is not None:
                why = "nothing" if each is None else str(each["error"])[:300]
                raise Unavailable(f"{call.method} answers {why}")
            found.append(each.get("result"))
        return found


class _Sql(Feed):
    def __init__(self, live: LiveContext, config: BlockFollower, feed: SqlFeed) -> None:
        super().__init__(live, feed.number, feed.hash, feed.parent_hash)
        self._feed = feed
        self._seconds = config.timeout
        self._address = live.workshop.secret(feed.dsn_env, "config.feed.dsn_env")

    async def page(self, after: int | None, limit: int, cursor: str | None = None) -> Page:
        try:
            async with asyncio.timeout(self._seconds):
                conn = await self._connected()
                try:
                    rows = await _rows(conn, self._feed.query, -1 if after is None else after, limit)
                finally:
                    await conn.close(timeout=5)
        except TimeoutError:
            raise Unavailable(f"the feed did not answer within {self._seconds:g} s") from None
        except (OSError, asyncpg.PostgresConnectionError, asyncpg.CannotConnectNowError) as problem:
            # Not the address: it may have a password.
            raise Unavailable(f"the feed cannot be reached: {type(problem).__name__}") from None
        except asyncpg.PostgresError as problem:
            raise InvalidInput(_QUERY, f"{type(problem).__name__}: {problem}") from None
        found = self._items([{name: _plain(value) for name, value in row.items()} for row in rows])
        items = [item for item in found if after is None or _is_after(item, after)]
        return Page(items[:limit], None, None, len(rows) >= limit)

    async def _connected(self) -> asyncpg.Connection[asyncpg.Record]:
        try:
            return await asyncpg.connect(self._address, server_settings={"default_transaction_read_only": "on"})
        except (ValueError, asyncpg.InterfaceError):
            # Not why: that repeats a part of it.
            raise InvalidInput(
                "config.feed.dsn_env", f"{self._feed.dsn_env} holds no address of a PostgreSQL that can be read: in it "
                "signs of a password such as / and # are percent-encoded",
            ) from None  # fmt: skip


async def _rows(
    conn: asyncpg.Connection[asyncpg.Record], query: str, after: int, limit: int
) -> list[asyncpg.Record]:  # fmt: skip
    """Return what a query answers; raises `InvalidInput` for more than it was asked for, of which no more is read."""
    async with conn.transaction(readonly=True):
        found = await (await conn.cursor(query, after, limit)).fetch(limit + 1)
    if len(found) > limit:
        raise InvalidInput(_QUERY, f"answers more than the {limit:,} rows that $2 asks for: end it with `limit $2`")
    return found


def feed_of(live: LiveContext, config: BlockFollower) -> Feed:
    """Return the feed that a follower follows."""
    match config.feed:
        case HttpFeed():
            return _Http(live, config, config.feed)
        case JsonRpcFeed():
            return _JsonRpc(live, config, config.feed)
        case SqlFeed():
            return _Sql(live, config, config.feed)


def _check_bits(number: int | None, what: str) -> int | None:
    """Return a number that can be written and remembered; any other is nothing sound."""
    if number is not None and not -(2**63) < number < 2**63 - 1:
        raise Unavailable(f"{what} has a number of more than 64 bits")
    return number


def _short_text(value: Any, what: str) -> str:
    """Return a text that can be remembered; any other is nothing sound."""
    text = str(value)
    if len(text) > _LONGEST_TEXT or text_problem(text) is not None:
        raise Unavailable(f"{what} is longer than {_LONGEST_TEXT:,} signs, or has some that no text has")
    return text


def _is_after(item: Item, after: int) -> bool:
    return item.number is not None and item.number > after


def _with_number(params: Sequence[Any], number: int | None) -> list[Any]:
    """Return the params of a call, the number in place of ``{number}``, or of ``{hex}`` in hexadecimal."""
    if number is None:
        return list(params)
    forms = {"{number}": number, "{hex}": hex(number)}
    return [forms.get(each, each) if isinstance(each, str) else each for each in params]


def _plain(value: Any) -> Any:
    """Return a value of PostgreSQL as Arrow takes it."""
    is_plain = value is None or isinstance(value, (str, int, float, bool, bytes, Decimal, date, time))
    return value if is_plain else str(value)
