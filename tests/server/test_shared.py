"""What is shared: one look for all who ask meanwhile, and whoever goes takes nothing from the others."""

from __future__ import annotations

import asyncio

import pytest

from weft.jobs.metrics import Metric, Sample
from weft.queue.queues import QueueInfo
from weft.server.shared import Shared
from weft.server.state import lasts_counted


class Counting:
    """Something that is looked for, and how often it was."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.leave = asyncio.Event()
        self.count = 0

    async def __call__(self) -> int:
        self.count += 1
        self.begun.set()
        await self.leave.wait()
        return self.count


async def test_who_asks_meanwhile_is_told_the_same_also_when_the_first_has_gone() -> None:
    shared, find = Shared(3600.0), Counting()
    asked = [asyncio.create_task(shared.get("a", find)) for _ in range(3)]
    await find.begun.wait()
    asked[0].cancel()
    find.leave.set()
    assert await asyncio.gather(*asked[1:]) == [1, 1]
    assert (await shared.get("a", find), await shared.get("b", find)) == (1, 2)


async def test_what_lasts_for_no_time_is_looked_for_each_time_and_other_things_are_kept() -> None:
    find = Counting()
    find.leave.set()
    shared = Shared(lasts=lambda found: 0.0 if found < 3 else 3600.0)
    assert [await shared.get("a", find) for _ in range(5)] == [1, 2, 3, 3, 3]


def test_counts_of_few_are_not_kept_and_those_of_many_the_longer_the_more_they_are() -> None:
    def counted(count: int) -> tuple[float, float]:
        queue = QueueInfo("q", False, None, None, {"ready": count - 1, "running": 1}, count - 1, None, 0.0)
        depth = Metric("task_queue_depth", "gauge", "", (Sample(count - 1), Sample(1)))
        return lasts_counted([queue]), lasts_counted([Metric("jobs", "gauge", "", (Sample(1e9),)), depth])

    assert [counted(n) for n in (1, 49_999, 300_000, 10**9)] == [(0, 0), (0, 0), (10, 10), (60, 60)]


async def test_what_went_wrong_is_told_to_all_who_asked_and_is_not_kept() -> None:
    shared, count = Shared(3600.0), 0

    async def fail() -> int:
        nonlocal count
        count += 1
        await asyncio.sleep(0)
        raise ValueError(f"number {count}")

    found = await asyncio.gather(*(shared.get("a", fail) for _ in range(3)), return_exceptions=True)
    assert {str(each) for each in found} == {"number 1"}
    with pytest.raises(ValueError, match="number 2"):
        await shared.get("a", fail)
