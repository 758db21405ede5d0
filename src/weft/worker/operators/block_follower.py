"""The operator `block_follower`: brings an ordered feed, item by item, and takes back what the feed takes back.

Where it is, and the hashes of the last numbers, change with what is written or not at all. Each slice looks first
whether the item that was taken last is still there. If another is in its place, it goes back to the last one that both
have, and writes the partitions after that anew: what readers see is at any time a beginning of what the feed had.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from weft.core.errors import InvalidInput
from weft.flow.durations import seconds_of
from weft.flow.live.configs import BlockFollower
from weft.worker.operators.configured import configured
from weft.worker.operators.feeds import Item, Page, feed_of
from weft.worker.operators.fetching import Unavailable
from weft.worker.operators.typed_rows import typed_table

if TYPE_CHECKING:
    from weft.worker.live import LiveContext

_LONGEST_REST = 60.0
# Wide enough that keys stand in the order of their numbers.
_KEY = "{:016d}"


class FeedFailed(Exception):
    """A feed has given nothing sound for longer than its follower waits."""


async def run(live: LiveContext) -> dict[str, Any]:
    """Take one slice of a feed."""
    config = configured(live, BlockFollower)
    follower = _Follower(live, config, await live.state() or {})
    try:
        return await follower.slice()
    except Unavailable as problem:
        return await follower.rest_after(problem)


class _Follower:
    def __init__(self, live: LiveContext, config: BlockFollower, state: dict[str, Any]) -> None:
        self.live = live
        self.config = config
        self.feed = feed_of(live, config)
        self.poll = seconds_of(live.source.get("poll", 1))
        self.state = state
        self.cursor: int | None = state.get("cursor")
        self.next: str | None = state.get("next")
        self.hashes: list[tuple[int, str]] = [(number, hash) for number, hash in state.get("hashes", [])]
        self.first: int | None = state.get("first")

    async def slice(self) -> dict[str, Any]:
        """Take what comes next, or take back what is not there any more."""
        begin = None if self.config.start is None else self.config.start - 1
        after = begin if self.cursor is None else self.cursor
        is_checked = bool(self.hashes) and self.cursor is not None
        if is_checked and after is not None:
            after -= 1
        page = await self.feed.page(after, self.config.max_batch + is_checked, self.next)
        items = page.items
        if is_checked:
            if not items or items[0].number != self.cursor or items[0].hash != self.hashes[-1][1]:
                return await self._go_back()
            items = items[1:]
            if not items and page.is_full:
                page = await self.feed.page(self.cursor, self.config.max_batch)
                items = page.items
        items, gap = await self._closed(items)
        taken = self._trusted(items, page)
        if taken and not self.feed.has_numbers and page.next is not None and page.next == self.next:
            raise Unavailable("the feed has items, and goes on where it was asked: they would come again and again")
        if gap is not None and not taken:
            raise Unavailable(f"the feed has no item {gap}")
        await self._write(taken)
        self._take(taken)
        is_all = len(taken) == len(items)
        if is_all and page.next is not None:
            self.next = page.next
        await self._remember()
        if gap is None and not (is_all and page.is_full) and (page.next is None or not taken):
            await self.live.caught_up()
            await self.live.rest(self.poll)
        return {"items": len(taken), "cursor": self.cursor}

    async def rest_after(self, problem: Unavailable) -> dict[str, Any]:
        """Rest, and try again with the next slice; raises `FeedFailed` when that was so often enough."""
        times = self.state.get("trouble", 0) + 1
        if times >= self.config.give_up_after:
            raise FeedFailed(f"nothing sound came {times} times in succession; the last time: {problem}") from problem
        rest = min(self.poll * 2 ** min(times - 1, 20), _LONGEST_REST)
        rest = rest if problem.retry_after is None else max(problem.retry_after, rest)
        self.live.task.logger.warning("the feed is asked again in %g s: %s", rest, problem)
        await self.live.set_state({**self.state, "trouble": times})
        await self.live.rest(rest)
        return {"items": 0, "cursor": self.cursor, "trouble": str(problem)}

    async def _closed(self, items: list[Item]) -> tuple[list[Item], int | None]:
        """Return items without a gap between them; one is asked for again, and cut off at if it stays."""
        if not (self.config.consecutive and self.feed.has_numbers):
            return items, None
        gap = self._gap(items)
        if gap is None:
            return items, None
        missing = await self.feed.page(gap - 1, self.config.max_batch)
        known = {item.number: item for item in (*missing.items, *items)}
        whole = [known[number] for number in sorted(number for number in known if number is not None)]
        gap = self._gap(whole)
        return [item for item in whole if gap is None or (item.number or 0) < gap], gap

    def _gap(self, items: Sequence[Item]) -> int | None:
        expected = self.config.start if self.cursor is None else self.cursor + 1
        for item in items:
            if expected is not None and item.number != expected:
                return expected
            expected = (item.number or 0) + 1
        return None

    def _trusted(self, items: list[Item], page: Page) -> list[Item]:
        """Return the items that follow on each other, and are as far behind the highest as it must be."""
        numbers = [item.number for item in items if item.number is not None]
        head = page.head if page.head is not None else max(numbers, default=None)
        before = self.hashes[-1][1] if self.hashes else None
        found: list[Item] = []
        for item in items[: self.config.max_batch]:
            if head is not None and item.number is not None and item.number > head - self.config.confirmations:
                break
            if before is not None and item.parent is not None and item.parent != before:
                if not found:
                    raise Unavailable(
                        f"item {item.number} does not follow on the one before: the feed changes just now"
                    )
                break
            found.append(item)
            before = item.hash
        return found

    def _take(self, taken: list[Item]) -> None:
        for item in taken:
            if item.number is not None:
                self.cursor = item.number
                self.first = item.number if self.first is None else self.first
                if item.hash is not None:
                    self.hashes.append((item.number, item.hash))
        del self.hashes[: -self.config.keep_hashes]

    async def _remember(self) -> None:
        hashes = [[number, hash] for number, hash in self.hashes]
        told = {"cursor": self.cursor, "next": self.next, "first": self.first, "hashes": hashes}
        state = {name: value for name, value in told.items() if value is not None}
        if state != self.state:
            await self.live.set_state(state)

    async def _go_back(self) -> dict[str, Any]:
        """Take back what the feed has others for; what it only does not show is waited for a while."""
        assert self.cursor is not None
        fork, is_replaced = await self._fork()
        behind = self.state.get("behind", 0) + 1
        if not is_replaced and behind < self.config.settle:
            await self.live.set_state({**self.state, "behind": behind})
            await self.live.rest(self.poll)
            return {"items": 0, "cursor": self.cursor}
        self.live.task.logger.warning("the feed goes back from %d to %d", self.cursor, fork)
        await self._truncate(fork)
        self.cursor = fork if self.hashes and fork >= self.hashes[0][0] else None
        self.hashes = [each for each in self.hashes if each[0] <= fork]
        if self.cursor is None:
            self.first = None
        await self._remember()
        # A feed that goes back again and again is no reason to write without a pause.
        await self.live.rest(self.poll)
        return {"items": 0, "cursor": self.cursor, "back_to": fork}

    async def _fork(self) -> tuple[int, bool]:
        """Return the last number that both have, and whether the feed has another item after it."""
        window, is_replaced = 8, False
        while True:
            known = self.hashes[-window:]
            found: dict[int | None, str | None] = {}
            after = known[0][0] - 1
            while after < known[-1][0]:
                page = await self.feed.page(after, min(self.config.max_batch, known[-1][0] - after))
                if not page.items:
                    break
                found |= {item.number: item.hash for item in page.items}
                after = max(after + 1, page.items[-1].number or after)
            is_replaced = is_replaced or any(number in found and found[number] != hash for number, hash in known)
            for number, hash in reversed(known):
                if found.get(number) == hash:
                    return number, is_replaced
            if len(known) == len(self.hashes):
                break
            window *= 4
        if not is_replaced:
            raise Unavailable("the feed has none of the items that are remembered, and no others")
        if self.hashes[0][0] == self.first:
            return self.hashes[0][0] - 1, True
        raise InvalidInput(
            "config.keep_hashes", f"the feed has others in place of all {len(self.hashes)} items that are remembered: "
            "keep more, and let the output be made anew",
        )  # fmt: skip

    async def _truncate(self, fork: int) -> None:
        """Write the partitions after a number anew, without what comes after it."""
        # Only those that have something: between two numbers there may be any number of others.
        for place in sorted({self._place(number) for number, _ in self.hashes if number > fork}):
            standing = await self._standing(place)
            await self._replace(place, standing.filter(pc.less_equal(standing.column("number"), fork)))

    async def _standing(self, place: int) -> pa.Table:
        """Return what stands in a partition of the output."""
        found: pa.Table = await self.live.output().read(partition=self._key(place))
        return found

    async def _write(self, items: list[Item]) -> None:
        """Add items to their partitions, or, where the job replaces, to what stands in them."""
        is_append = self.live.document.get("update_strategy") == "append"
        parts: dict[int | None, list[Item]] = {}
        for item in items:
            parts.setdefault(None if item.number is None else self._place(item.number), []).append(item)
        for place, part in parts.items():
            table = self._table(part)
            if place is None:
                await self.live.write(table)
            elif is_append:
                await self.live.write(table, partition=self._key(place))
            else:
                standing = None if self.cursor is None else await self._standing(place)
                await self._replace(place, table if standing is None else _together(standing, table))
            self.live.task.heartbeat()

    async def _replace(self, place: int, table: pa.Table) -> None:
        await self.live.task.dataset(self.live.outputs[0]).write(table, partition=self._key(place), mode="replace")

    def _table(self, items: Sequence[Item]) -> pa.Table:
        """Return items as rows: what each is known by, and what the feed says of it."""
        own: dict[str, pa.Array] = {}
        if self.feed.has_numbers:
            own["number"] = pa.array([item.number for item in items], pa.int64())
        if self.feed.has_hashes:
            own["hash"] = pa.array([item.hash for item in items], pa.string())
            own["parent_hash"] = pa.array([item.parent for item in items], pa.string())
        if self.config.columns:
            said = typed_table((item.row for item in items), self.config.columns, "config.columns")
        else:
            names = dict.fromkeys(name for item in items for name in item.row if name not in own)
            said = pa.table({name: _untyped(name, items) for name in names})
        others = {name: said.column(name) for name in said.column_names if name not in own}
        return pa.table(own | others)

    def _place(self, number: int) -> int:
        return number // self.config.partition_size

    def _key(self, place: int) -> str:
        return _KEY.format(place * self.config.partition_size)


def _together(standing: pa.Table, table: pa.Table) -> pa.Table:
    return pa.concat_tables([standing, table], promote_options="permissive")


def _untyped(name: str, items: Sequence[Item]) -> pa.Array:
    try:
        return pa.array([_plain(item.row.get(name)) for item in items])
    except (pa.ArrowException, OverflowError) as problem:
        raise InvalidInput(
            "config.columns", f"say of which type {name} is, its values are of several: {problem}"
        ) from None


def _plain(value: Any) -> Any:
    return orjson.dumps(value, default=str).decode() if isinstance(value, (dict, list)) else value
