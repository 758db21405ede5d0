"""Looks that are made as a few: whoever asks is answered, at whatever moment he asks."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from weft.sdk.together import Together


class _Database:
    """Answers when it is told to."""

    def __init__(self) -> None:
        self.asked: list[list[int]] = []
        self._began = asyncio.Semaphore(0)
        self._open: list[asyncio.Future[None]] = []

    async def ask(self, ids: Sequence[int]) -> dict[int, str]:
        self.asked.append(list(ids))
        self._began.release()
        self._open.append(asyncio.get_running_loop().create_future())
        await self._open[-1]
        return {id: f"row {id}" for id in ids}

    async def begun(self) -> None:
        async with asyncio.timeout(10):
            await self._began.acquire()

    def answer(self) -> None:
        for each in self._open:
            each.set_result(None)
        self._open.clear()


async def test_who_asks_just_as_the_others_are_answered_is_answered_too() -> None:
    database = _Database()
    rows = Together(database.ask)
    early = [asyncio.create_task(rows.get(id)) for id in (1, 2)]
    await database.begun()
    early.append(asyncio.create_task(rows.get(3)))
    await database.begun()

    database.answer()
    # It runs after both looks have ended, and before anybody could be told that they have.
    late = asyncio.create_task(rows.get(4))
    await database.begun()
    database.answer()

    assert await asyncio.gather(*early, late) == ["row 1", "row 2", "row 3", "row 4"]
    assert database.asked == [[1, 2], [3], [4]]


async def test_many_who_ask_while_others_are_answered_are_asked_for_together() -> None:
    database = _Database()
    rows = Together(database.ask)
    early = [asyncio.create_task(rows.get(1))]
    await database.begun()
    early.append(asyncio.create_task(rows.get(2)))
    await database.begun()
    late = [asyncio.create_task(rows.get(id)) for id in (3, 4, 3)]
    await asyncio.sleep(0)
    assert database.asked == [[1], [2]]

    database.answer()
    await database.begun()
    database.answer()
    assert await asyncio.gather(*early, *late) == ["row 1", "row 2", "row 3", "row 4", "row 3"]
    assert database.asked == [[1], [2], [3, 4]]


async def test_what_a_look_raises_is_told_to_all_who_asked_and_the_next_look_is_made_anew() -> None:
    outcomes = [ConnectionError("gone"), None]

    async def ask(ids: Sequence[int]) -> dict[int, int]:
        await asyncio.sleep(0)
        if (problem := outcomes.pop(0)) is not None:
            raise problem
        return {id: id for id in ids}

    rows = Together(ask)
    first = await asyncio.gather(rows.get(1), rows.get(2), return_exceptions=True)
    assert [str(each) for each in first] == ["gone", "gone"]
    assert await rows.get(1) == 1


async def test_who_goes_before_he_is_answered_takes_nothing_from_the_others() -> None:
    database = _Database()
    rows = Together(database.ask)
    gone, stays = asyncio.create_task(rows.get(1)), asyncio.create_task(rows.get(1))
    await database.begun()
    gone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gone
    database.answer()
    assert await stays == "row 1"
