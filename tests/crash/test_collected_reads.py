"""What is collected while somebody reads it: he gets all of it, or is told; never some of the rows and no word."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import TypeAlias

import asyncpg
import pytest

import weft
from crash.job_acts import settings_for
from crash.proxy import proxy_to
from weft.worker.registry import Registry

Conn: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
SOON = timedelta(milliseconds=1)
# More than one page of rows of a table.
MANY = 3000


@pytest.fixture
async def client(url: str, home: Path) -> AsyncIterator[weft.Client]:
    async with weft.Client(settings=settings_for(url, home)) as opened:
        yield opened


async def _written(client: weft.Client, storage: str) -> None:
    """Write a dataset with two versions, of which the second has two states."""
    registry = Registry()

    @registry.task(name="write")
    async def write(first: int, breaking: bool, ctx: weft.Context) -> None:
        rows = [{"id": first + number} for number in range(MANY)]
        await ctx.dataset("orders").write(rows, breaking=breaking)

    await client.datasets.create("orders", storage=storage)
    async with weft.Worker(client=client, registry=registry):
        for first, breaking in ((0, False), (1, True), (2, False)):
            said = {"first": first, "breaking": breaking}
            await client.wait((await client.enqueue(write, said)).id, timeout=60)


# What was read by then: which state it is, the list of its files, the first of its rows.
MOMENTS = {
    "parquet": ["v.oldest_write\nfrom weft.dataset d", "from weft.dataset_file f"],
    "postgres": ["v.oldest_write\nfrom weft.dataset d", "from weft.dataset_file f", "weft.rows_of("],
}


STATES = ["orders@2.1", "orders@1"]
WAYS = ["query", "task"]


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize(("storage", "moment"), [(kind, text) for kind, texts in MOMENTS.items() for text in texts])
@pytest.mark.parametrize("way", WAYS)
async def test_who_reads_what_is_collected_meanwhile_gets_all_or_is_told(
    url: str, home: Path, client: weft.Client, storage: str, moment: str, way: str, state: str,
    campaign: str,
) -> None:  # fmt: skip
    if campaign == "short" and (MOMENTS[storage].index(moment) + WAYS.index(way) + STATES.index(state)) % 2:
        pytest.skip("every day each moment in each way, and of each state, but not all of them with each other")
    await _written(client, storage)
    registry = Registry()

    @registry.task(name="read", retry=0)
    async def read(ctx: weft.Context) -> int:
        return (await ctx.dataset(state).read()).num_rows

    async def queried(reader: weft.Client) -> int:
        async with reader.datasets.query(f'select id from "{state}"') as answer:
            return len([row async for row in answer.records()])

    async def handled(reader: weft.Client) -> int:
        async with weft.Worker(client=reader, registry=registry):
            found: int = await client.wait((await client.enqueue(read)).id, timeout=60)
            return found

    async with proxy_to(url) as proxy, weft.Client(settings=settings_for(proxy.url, home)) as reader:
        seen = proxy.hold(moment)
        reading = asyncio.create_task(queried(reader) if way == "query" else handled(reader))
        await seen.fired.wait()
        assert (await client.datasets.gc(SOON)).files > 0
        assert seen.gate is not None
        seen.gate.set()
        (found,) = await asyncio.gather(reading, return_exceptions=True)
    told = ("have been collected while they were read", "is missing", "are missing", "no such version")
    assert found == MANY or any(each in str(found) for each in told), found
    if isinstance(found, BaseException):
        assert isinstance(found, (weft.NotFound, weft.DataUnavailable, weft.InvalidQuery, weft.TaskFailed)), found
    assert (await client.datasets.show("orders")).rows == MANY


@pytest.mark.parametrize("state", ["orders@2.1", "orders@1"])
@pytest.mark.parametrize(("storage", "moment"), [("parquet", MOMENTS["parquet"][0]), ("postgres", "weft.rows_of(")])
async def test_what_is_closed_is_not_read_on_though_nothing_of_it_has_gone(
    url: str, home: Path, client: weft.Client, conn: Conn, storage: str, moment: str, state: str
) -> None:
    await _written(client, storage)
    async with proxy_to(url) as proxy, weft.Client(settings=settings_for(proxy.url, home)) as reader:
        seen = proxy.hold(moment)
        reading = asyncio.create_task(reader.datasets.sample(state, limit=1000))
        await seen.fired.wait()
        closed = "collected_at = weft.now()" if state == "orders@1" else "oldest_write = 2"
        await conn.execute(f"update weft.dataset_version set {closed} where number = $1", int(state[7]))
        assert seen.gate is not None
        seen.gate.set()
        with pytest.raises(weft.NotFound, match="have been collected while they were read"):
            await reading


@pytest.mark.parametrize("storage", ["parquet", "postgres"])
async def test_who_goes_through_partitions_of_what_is_collected_meanwhile_is_told(
    url: str, home: Path, client: weft.Client, storage: str
) -> None:
    await _written(client, storage)
    async with proxy_to(url) as proxy, weft.Client(settings=settings_for(proxy.url, home)) as reader:
        seen = proxy.hold("v.oldest_write\nfrom weft.dataset d")
        looking = asyncio.create_task(reader.datasets.partitions("orders@1"))
        await seen.fired.wait()
        await client.datasets.gc(SOON)
        assert seen.gate is not None
        seen.gate.set()
        with pytest.raises(weft.NotFound, match="have been collected while they were read"):
            await looking


async def test_who_collects_a_version_that_another_has_removed_meanwhile_goes_on(
    url: str, home: Path, client: weft.Client
) -> None:
    await _written(client, "postgres")
    async with proxy_to(url) as proxy, weft.Client(settings=settings_for(proxy.url, home)) as late:
        # The states that are past of the version that is current by now.
        seen = proxy.hold("as is_last\nfrom weft.dataset_file")
        collecting = asyncio.create_task(late.datasets.gc(SOON))
        await seen.fired.wait()
        await _replaced(client)
        assert (await client.datasets.gc(SOON)).files > 0
        assert seen.gate is not None
        seen.gate.set()
        assert (await collecting).versions == ("orders@1",)
    assert [each.number for each in await client.datasets.versions("orders")] == [3]
    assert (await client.datasets.show("orders")).rows == 1


async def _replaced(client: weft.Client) -> None:
    """Begin another version."""
    registry = Registry()

    @registry.task(name="write")
    async def write(ctx: weft.Context) -> None:
        await ctx.dataset("orders").write([{"id": "one"}], breaking=True)

    async with weft.Worker(client=client, registry=registry):
        await client.wait((await client.enqueue(write)).id, timeout=60)
