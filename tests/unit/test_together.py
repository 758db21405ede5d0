"""Looks that are made together: who asks at the same time is answered by few of them, and each truly."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from weft.sdk.together import MOST, Together


class Things:
    """What is looked for: every even id is there."""

    def __init__(self) -> None:
        self.looks: list[list[int]] = []
        self.answers = asyncio.Event()
        self.begun = asyncio.Event()

    async def ask(self, ids: Sequence[int]) -> dict[int, str]:
        self.looks.append(list(ids))
        self.begun.set()
        await self.answers.wait()
        if 13 in ids:
            raise ValueError("unlucky")
        return {id: f"{id} at look {len(self.looks)}" for id in ids if id % 2 == 0}


async def test_many_who_ask_at_once_are_answered_by_few_looks() -> None:
    things = Things()
    things.answers.set()
    rows = Together(things.ask)
    found = await asyncio.gather(*(rows.get(id % 100 * 2) for id in range(300)), rows.get(7))
    assert [each is None for each in found] == [False] * 300 + [True]
    assert all(str(each).startswith(f"{id % 100 * 2} ") for id, each in enumerate(found[:300]))
    assert len(things.looks) <= 3 + 101 // MOST
    assert max(map(len, things.looks)) == MOST


async def test_who_asks_during_a_look_is_not_answered_by_it() -> None:
    things = Things()
    rows = Together(things.ask)
    first = asyncio.create_task(rows.get(2))
    await things.begun.wait()
    again = asyncio.create_task(rows.get(2))
    await asyncio.sleep(0)
    things.answers.set()
    await asyncio.gather(first, again)
    assert things.looks == [[2], [2]]


async def test_what_a_look_raises_is_raised_by_all_who_asked_for_it_and_by_no_other() -> None:
    things = Things()
    rows = Together(things.ask)
    asked = [asyncio.create_task(rows.get(id)) for id in (13, 2, 4)]
    gone = asyncio.create_task(rows.get(6))
    await things.begun.wait()
    gone.cancel()
    things.answers.set()
    problem, *found = await asyncio.gather(*asked, return_exceptions=True)
    assert isinstance(problem, ValueError)
    assert all(isinstance(each, (str, ValueError)) for each in found)
    with pytest.raises(ValueError, match="unlucky"):
        await rows.get(13)
    assert await rows.get(8) == f"8 at look {len(things.looks)}"
