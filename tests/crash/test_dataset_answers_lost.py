"""What a task asks of datasets has landed, and the answer is lost: it is asked again, and nothing is done twice."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

import weft
from crash.job_acts import settings_for
from crash.proxy import Exchange, Fault, proxy_to
from weft.worker.registry import Registry

if TYPE_CHECKING:
    Conn = asyncpg.Connection[asyncpg.Record]

ASKED = ("weft.staged_write", "weft.task_input", "weft.add_rows")
# More than are sent at once.
ROWS = [{"id": number, "day": "ab"[number % 2]} for number in range(2100)]


def asked(number: int) -> Any:
    """Return what is true for one transaction only, by its place among those of what a task asks."""
    counted = itertools.count(1)

    def is_it(exchange: Exchange) -> bool:
        return any(each in text for text in exchange.before for each in ASKED) and next(counted) == number

    return is_it


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("storage", ["postgres", "parquet"])
async def test_an_answer_that_is_lost_is_asked_for_again_and_nothing_is_done_twice(
    url: str, home: Path, conn: Conn, storage: str, campaign: str
) -> None:
    registry = Registry()

    @registry.task(name="write", retry=0)
    async def write(name: str, ctx: weft.Context) -> int:
        before = await ctx.dataset("before").read()
        await ctx.dataset(name).write(ROWS, partition_by="day")
        await ctx.dataset(name).write([{"id": -1, "day": "c"}], mode="append", unique_key="id", partition="c")
        return int(before.num_rows)

    @registry.task(name="begin", retry=0)
    async def begin(ctx: weft.Context) -> None:
        await ctx.dataset("before").write([{"id": 1}])

    async with weft.Client(settings=settings_for(url, home)) as client:
        async with weft.Worker(client=client, registry=registry):
            await client.wait((await client.enqueue("begin")).id, timeout=60)
        # Every day every other, of each storage the others.
        start, step = (1, 1) if campaign == "long" else (1 + (storage == "parquet"), 2)
        for number in itertools.count(start, step):
            name = f"orders-{number}"
            await client.datasets.create(name, storage=storage)
            async with proxy_to(url) as proxy, weft.Client(settings=settings_for(proxy.url, home)) as own:
                rule = proxy.rule("COMMIT", Fault.CUT, asked(number))
                async with weft.Worker(client=own, registry=registry):
                    task = await client.enqueue("write", {"name": name})
                    assert await client.wait(task.id, timeout=60) == 1
            assert await conn.fetchval("select attempt from weft.tasks where id = $1", task.id) == 1
            async with client.datasets.query(f'select id, day from "{name}"') as answer:
                found = [row async for row in answer.records()]
            assert sorted(row["id"] for row in found) == [-1, *range(len(ROWS))], number
            if not rule.fired.is_set():
                assert number > 5
                return
