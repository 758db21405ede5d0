"""Many tasks in one call: what they are made of, and what becomes of them when something goes wrong on the way."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from engine_scene import WAITING, MakeClient, until

import weft
from weft.core.errors import DatabaseUnavailable

COPY = 'COPY "weft"%'


@weft.task(name="many:declared", queue="many-declared")
async def declared() -> None: ...


@weft.task(name="many:other", queue="many-other")
async def other() -> None: ...


@dataclass
class Odd:
    """A value whose code runs when it is encoded."""

    problem: BaseException

    def __getattribute__(self, name: str) -> Any:
        if name == "problem":
            raise super().__getattribute__(name)
        return super().__getattribute__(name)


async def _params(client: weft.Client, handles: list[weft.TaskHandle]) -> list[Any]:
    return [(await client.get_task(handle.id)).params for handle in handles]


async def test_an_iterator_may_use_one_object_for_all(client: weft.Client) -> None:
    def tasks() -> Iterator[weft.NewTask]:
        row = {}
        for n in range(3):
            row["n"] = n
            yield weft.NewTask("h", row)

    assert await _params(client, await client.enqueue_many(tasks())) == [{"n": 0}, {"n": 1}, {"n": 2}]


async def test_plain_and_other_values_come_in_any_order(client: weft.Client) -> None:
    @dataclass
    class Point:
        x: int

    given = [{"n": 1}, {"n": None}, {"p": Point(2)}, Point(3), None, {"t": (1, 2)}]
    stored = [{"n": 1}, {"n": None}, {"p": {"x": 2}}, {"x": 3}, {}, {"t": [1, 2]}]
    handles = await client.enqueue_many([weft.NewTask("h", params) for params in given])
    assert await _params(client, handles) == stored
    assert [handle.id for handle in handles] == sorted(handle.id for handle in handles)


async def test_an_error_of_the_authors_own_code_is_passed_on_as_it_is(
    client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    """It is not taken for one of PostgreSQL, nor tried again: the code does not run while rows are written."""
    for problem in (ConnectionError("mine"), asyncpg.DeadlockDetectedError("mine"), TimeoutError("mine")):
        tasks = [*(weft.NewTask("h", {"n": n}) for n in range(2000)), weft.NewTask("h", {"odd": Odd(problem)})]
        with pytest.raises(type(problem), match="mine"):
            await client.enqueue_many(tasks)
        assert await conn.fetchval("select count(*) from weft.task") == 0


async def test_a_server_that_goes_away_meanwhile_ends_the_call(
    client: weft.Client, conn: asyncpg.Connection[asyncpg.Record], url: str
) -> None:
    """The first key waits for somebody who has it too, until neither the server nor the socket takes any more."""
    tasks = [weft.NewTask("h", idempotency_key=f"{n:0200}") for n in range(20_000)]
    other = await asyncpg.connect(url)
    async with other.transaction():
        await other.execute(
            "insert into weft.idempotency_key (org_id, handler, key, task_id) values (1, 'h', $1, 1)",
            tasks[0].idempotency_key,
        )
        writing = asyncio.create_task(client.enqueue_many(tasks))
        await until(lambda: conn.fetchval(WAITING, COPY))
        await conn.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where wait_event_type = 'Lock' and query like $1 and datname = current_database()", COPY,
        )  # fmt: skip
        assert await asyncio.wait({writing}, timeout=30) == ({writing}, set()), "it goes on for ever"
        with pytest.raises(DatabaseUnavailable):
            writing.result()
        await other.execute("delete from weft.idempotency_key")
    await other.close()
    assert len(await client.enqueue_many(tasks)) == 20_000
    assert await conn.fetchval("select count(*) from weft.task") == 20_000


async def test_queues_that_handlers_declare_are_made_and_only_by_what_enqueues(
    client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    names = "select array_agg(name order by name) from weft.queue where name like 'many-%'"
    for look in (client.list_tasks(queue="many-other"), client.cancel_all(queue="many-other", dry_run=True)):
        with pytest.raises(weft.UnknownQueue):
            await look
    assert await conn.fetchval(names) is None
    mixed = [weft.NewTask("h"), weft.NewTask(declared), weft.NewTask(other)]
    await asyncio.gather(*(client.enqueue_many(mixed) for _ in range(20)))
    assert await conn.fetchval(names) == ["many-declared", "many-other"]
    assert await conn.fetchval("select count(*) from weft.task") == 60


async def test_a_task_that_is_refused_leaves_neither_a_queue_nor_a_blob_behind(
    make_client: MakeClient, conn: asyncpg.Connection[asyncpg.Record], home: Path
) -> None:
    client = await make_client(inline_limit=1000)
    for good in (weft.NewTask(declared), weft.NewTask("h", {"text": "x" * 5000})):
        with pytest.raises(weft.InvalidInput, match=r"tasks\[1\]\.priority"):
            await client.enqueue_many([good, weft.NewTask("h", priority="high")])  # type: ignore[arg-type]
    assert await conn.fetchval("select count(*) from weft.queue where name = 'many-declared'") == 0
    assert not [path for path in (home / "blobs").rglob("??/*") if path.is_file()]


async def test_an_interrupt_ends_the_call_and_leaves_the_client_usable(client: weft.Client) -> None:
    """As Ctrl-C does where nobody catches it before."""
    with pytest.raises(asyncio.CancelledError):
        await client.enqueue_many([weft.NewTask("h", {"odd": Odd(asyncio.CancelledError())})])
    (handle,) = await client.enqueue_many([weft.NewTask("h")])
    assert handle.created
