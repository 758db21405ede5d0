"""Whoever publishes what a task has written takes its locks in the order of all others: datasets, then versions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeAlias

import asyncpg
import pytest

import weft
from crash.job_acts import settings_for
from live_scene import until
from weft.catalog.datasets import SQL as DATASETS
from weft.worker.registry import Registry
from writing import written

Conn: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

WAITING = "select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
VERSIONS = """select 1 from weft.dataset_version v join weft.dataset d on d.id = v.dataset_id where d.name = $1
  for no key update of v nowait"""


@asynccontextmanager
async def about_to_publish(url: str, home: Path, *, reads: bool, breaks: bool) -> AsyncIterator[asyncio.Event]:
    """Let a task write a row, after it has read or in a way that breaks readers; it ends when it is let."""
    registry, is_begun, goes_on = Registry(), asyncio.Event(), asyncio.Event()

    @registry.task(name="write one row", queue="datasets")
    async def work(ctx: weft.Context) -> None:
        if reads:
            await ctx.dataset("rates").read()
        await ctx.dataset("orders").write([{"value": 2}], breaking=breaks)
        is_begun.set()
        await goes_on.wait()

    async with weft.Client(settings=settings_for(url, home)) as client:
        await written(client, "orders", 1)
        await written(client, "rates", 1)
        async with weft.Worker(client=client, registry=registry, queues=["datasets"]):
            handle = await client.enqueue(work)
            await is_begun.wait()
            yield goes_on
            await client.wait(handle.id, timeout=30)
        assert await client.datasets.sample("orders") == [{"value": 2}]


@pytest.mark.parametrize("how", ["breaking", "reading"])
async def test_who_publishes_waits_for_a_dataset_before_it_holds_a_version(
    url: str, home: Path, conn: Conn, how: str
) -> None:
    reads, breaks = how == "reading", how == "breaking"
    async with about_to_publish(url, home, reads=reads, breaks=breaks) as goes_on, conn.transaction():
        if how == "breaking":
            # As who goes back does.
            await conn.fetchrow(DATASETS.lock, 1, "orders")
        else:
            # As who brings a version of a DAG into effect does, of all that it has.
            await conn.execute("update weft.dataset set producer_output = producer_output + 100")
        goes_on.set()
        await until(lambda: conn.fetch(WAITING))
        await conn.fetch(VERSIONS, "orders")


async def test_who_publishes_what_breaks_its_readers_waits_for_a_dataset_before_it_holds_another(
    url: str, home: Path, conn: Conn
) -> None:
    async with about_to_publish(url, home, reads=True, breaks=True) as goes_on, conn.transaction():
        await conn.fetchrow(DATASETS.lock, 1, "orders")
        goes_on.set()
        await until(lambda: conn.fetch(WAITING))
        # As who brings a version of a DAG into effect that reads the one and writes the other.
        await conn.execute("select 1 from weft.dataset where name = 'rates' for update nowait")
