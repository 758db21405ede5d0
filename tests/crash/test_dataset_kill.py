"""Whoever is killed while he writes, goes back or collects: readers see one whole state, and no file is left behind."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asyncpg
import pyarrow.parquet as pq
import pytest

import weft
from crash.dataset_acts import NAME, SEVENS, collect
from crash.harness import VICTIM, Performance, Process, until_forgotten
from crash.job_acts import settings_for
from crash.moments import Moments
from crash.proxy import proxy_to
from weft.worker.registry import Registry

if TYPE_CHECKING:
    Conn = asyncpg.Connection[asyncpg.Record]


@pytest.fixture
async def copies(tmp_path: Path) -> AsyncIterator[Process]:
    """A program of which copies are made, one for each round."""
    process = await Process.start("crash.apps.dataset_act", {}, tmp_path / "crew")
    yield process
    await process.finish()


async def each_statement(
    url: str, home: Path, conn: Conn, copies: Process, order: Callable[[], Awaitable[dict[str, Any]]],
    look: Callable[[dict[str, Any], int], Awaitable[None]], moments: Moments,
) -> int:  # fmt: skip
    """Kill somebody at each of the moments in turn, until nobody is; return how many statements there were."""
    for number in moments:
        said = await order()
        async with proxy_to(url) as proxy:
            held = proxy.hold("", moments.at(number))
            copies.say(json.dumps({**said, "url": f"{proxy.url}&application_name={VICTIM}", "home": str(home)}))
            victim = Performance(copies, int(await copies.hear()))
            is_killed = await victim.is_reached(held.fired)
            if is_killed:
                await victim.kill()
        await until_forgotten(conn)
        await look(said, number)
        if not is_killed:
            assert int(await victim.end) == 0
            moments.over()
    return moments.statements


def _on_disk(home: Path) -> set[str]:
    return {path.name for path in (home / "data").rglob("*.parquet")}


async def listed(conn: Conn) -> set[str]:
    return {row["path"] for row in await conn.fetch("select path from weft.dataset_file")}


async def _rows(client: weft.Client, conn: Conn, home: Path, name: str = NAME) -> dict[str, list[int]]:
    """Return what a reader sees, by partition: each file that is listed must be there, whole."""
    state = await client.datasets.state(name)
    rows = await conn.fetch(
        """select partition_key, path, rows from weft.dataset_file where version_id = $1 and added_by <= $2
             and (removed_by is null or removed_by > $2)""",
        state.version_id, state.write,
    )  # fmt: skip
    found: dict[str, list[int]] = {}
    for key, path, count in rows:
        table = pq.read_table(home / "data" / state.location / path)
        assert table.num_rows == count
        found.setdefault(key, []).extend(table.column("id").to_pylist())
    return {key: sorted(ids) for key, ids in sorted(found.items())}


async def claimed(conn: Conn, client: weft.Client) -> tuple[int, int]:
    """Return a worker of which there is only the row, and the task that it holds."""
    handle = await client.enqueue("write")
    worker = await conn.fetchval(
        """insert into weft.worker (org_id, until, concurrency, pid, hostname, version, queues, handlers)
           values (1, weft.now() + interval '1 hour', 1, 1, 'gone', '0', '{1}', '{}') returning id"""
    )
    await conn.execute(
        "update weft.task set state = 'running', attempt = 1, worker_id = $1, claimed_at = weft.now() where id = $2",
        worker, handle.id,
    )  # fmt: skip
    return worker, handle.id


async def test_a_task_that_is_killed_has_completed_with_all_it_wrote_or_with_nothing(
    url: str, home: Path, conn: Conn, copies: Process, campaign: str
) -> None:
    done: list[int] = []
    outcomes: list[bool] = []
    async with weft.Client(settings=settings_for(url, home)) as client:
        await client.datasets.create(NAME)

        async def order() -> dict[str, Any]:
            worker, task = await claimed(conn, client)
            return {"act": "write", "worker_id": worker, "task_id": task}

        async def look(said: dict[str, Any], number: int) -> None:
            task = said["task_id"]
            state = await conn.fetchval("select state from weft.tasks where id = $1", task)
            outcomes.append(state == "completed")
            if state == "completed":
                done.append(task)
            if done:
                expected = {"": sorted(done), **{str(each): [each] for each in done}}
                assert await _rows(client, conn, home) == dict(sorted(expected.items())), number
            events = await conn.fetchval("select count(*) from weft.event where name = 'dataset.written'")
            assert events == len(done)
            # The worker is lost, and whoever comes next finds nothing in the way.
            await conn.execute("delete from weft.task where id = $1", task)

        rounds = await each_statement(url, home, conn, copies, order, look, Moments(campaign))
        assert rounds > 10
        assert outcomes == sorted(outcomes), "not up to some statement, and from there on"
        assert outcomes[-1]
        assert not outcomes[0]
        assert _on_disk(home) > await listed(conn)
        await collect(client)
        assert _on_disk(home) == await listed(conn)
        assert await _rows(client, conn, home)


async def test_a_task_that_is_killed_with_an_output_of_the_cache_has_completed_with_its_inputs_or_not_at_all(
    url: str, home: Path, conn: Conn, copies: Process, campaign: str
) -> None:
    outcomes: list[bool] = []
    registry = Registry()

    @registry.task(name="read", cache=True)
    async def read(ctx: weft.Context) -> list[int]:
        return list((await ctx.dataset(NAME).read()).column("id").to_pylist())

    async with weft.Client(settings=settings_for(url, home)) as client:
        await fill(client, [1])
        async with weft.Worker(client=client, registry=registry):
            await client.wait((await client.enqueue(read)).id, timeout=60)
        await conn.execute("update weft.output_cache set key = $1", SEVENS)

        async def order() -> dict[str, Any]:
            worker, task = await claimed(conn, client)
            return {"act": "serve", "worker_id": worker, "task_id": task}

        async def look(said: dict[str, Any], number: int) -> None:
            task = said["task_id"]
            row = await conn.fetchrow("select state, reason, output from weft.tasks where id = $1", task)
            assert row is not None
            outcomes.append(row["state"] == "completed")
            inputs = await conn.fetchval("select count(*) from weft.task_input where task_id = $1", task)
            if row["state"] == "completed":
                assert (row["reason"], json.loads(row["output"]), inputs) == ("cached", [1], 1), number
            else:
                assert (row["state"], inputs) == ("running", 0), number
            assert await conn.fetchval("select count(*) from weft.output_cache") == 1
            await conn.execute("delete from weft.task where id = $1", task)

        assert await each_statement(url, home, conn, copies, order, look, Moments(campaign)) > 5
        assert outcomes == sorted(outcomes), "not up to some statement, and from there on"
        assert outcomes[-1]
        assert not outcomes[0]


async def test_who_is_killed_while_going_back_has_gone_back_whole_or_not(
    url: str, home: Path, conn: Conn, copies: Process, campaign: str
) -> None:
    async with weft.Client(settings=settings_for(url, home)) as client:
        await fill(client, [1], [2, 3], [4])

        async def order() -> dict[str, Any]:
            return {
                "act": "rollback",
                "name": f"{NAME}@1.2" if await _rows(client, conn, home) == {"": [4]} else f"{NAME}@1.3",
            }

        async def look(said: dict[str, Any], number: int) -> None:
            assert await _rows(client, conn, home) in ({"": [2, 3]}, {"": [4]}), number
            shown = await client.datasets.show(NAME)
            assert shown.rows == sum(map(len, (await _rows(client, conn, home)).values()))

        assert await each_statement(url, home, conn, copies, order, look, Moments(campaign)) > 5


async def test_who_is_killed_while_collecting_takes_nothing_from_readers(
    url: str, home: Path, conn: Conn, copies: Process, campaign: str
) -> None:
    async with weft.Client(settings=settings_for(url, home)) as client:
        await client.datasets.create(NAME)

        async def order() -> dict[str, Any]:
            await fill(client, [1], [2, 3], [4], [5], breaking=2)
            return {"act": "collect", "retention": "1ms"}

        async def look(said: dict[str, Any], number: int) -> None:
            assert await _rows(client, conn, home) == {"": [5]}, number
            assert await listed(conn) <= _on_disk(home) | await gone(conn)

        assert await each_statement(url, home, conn, copies, order, look, Moments(campaign, every=4)) > 5
        assert _on_disk(home) == await listed(conn)
        assert len(_on_disk(home)) == 1
        assert [each.is_current for each in await client.datasets.versions(NAME)] == [True]


async def gone(conn: Conn) -> set[str]:
    """Return files that nobody may see any more, though something still tells of them."""
    rows = await conn.fetch(
        """select f.path from weft.dataset_file f join weft.dataset_version v on v.id = f.version_id
           where v.collected_at is not null or f.removed_by <= v.oldest_write"""
    )
    return {row["path"] for row in rows}


async def fill(client: weft.Client, *writes: list[int], breaking: int | None = None) -> None:
    """Replace the dataset by rows with these ids, one write after the other; one of them may begin a version."""
    registry = Registry()

    @registry.task(name="fill")
    async def fill(ids: list[int], breaking: bool, ctx: weft.Context) -> None:
        await ctx.dataset(NAME).write([{"id": id} for id in ids], breaking=breaking)

    async with weft.Worker(client=client, registry=registry):
        for place, ids in enumerate(writes):
            said = {"ids": ids, "breaking": place == breaking}
            await client.wait((await client.enqueue(fill, said)).id, timeout=60)
