"""Which outputs serve again, by the rows that decide it: what was read and written must stand as it was."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, TypeAlias

import asyncpg
import orjson
import pytest

import weft
from engine.test_turn_guards import ended, task
from live_scene import make_output
from weft.queue import cache, upkeep

Conn: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
KEY = b"k" * 32


async def dataset(conn: Conn, name: str = "orders", **partitions: int) -> tuple[int, int]:
    """Make a dataset whose partitions were last written by the writes that are said; return it and its version."""
    made, version = await make_output(conn, name, "@task", "note", ord(name[1]))
    last = max(partitions.values(), default=0)
    for key, write in partitions.items():
        await conn.execute(
            """insert into weft.dataset_partition (version_id, partition_key, org_id, last_write, content, rows, bytes,
                 files, written_at) values ($1, $2, 1, $3, $3, 1, 1, 1, weft.now())""", version, key, write,
        )  # fmt: skip
    await conn.execute("update weft.dataset_version set last_write = $2, content = $2 where id = $1", version, last)
    return made, version


async def read(conn: Conn, number: int, made: tuple[int, int], write: int, attempt: int = 1, **more: Any) -> None:
    said = {"partitions": None, "pinned": None, "seen": None, **more}
    await conn.execute(
        """insert into weft.task_input
             (task_id, attempt, place, org_id, dataset_id, version_id, write, partitions, pinned, seen)
           select $1, $2, (select count(*) + 1 from weft.task_input), 1, $3, $4, $5, $6, $7, $8""",
        number, attempt, *made, write, said["partitions"], said["pinned"], said["seen"],
    )  # fmt: skip


async def wrote(conn: Conn, number: int, version: int, write: int, attempt: int = 1, **more: Any) -> None:
    said = {"mode": "replace", "keys": ["a"], "is_whole": False, "adds_again": False, **more}
    await conn.execute(
        """insert into weft.dataset_write (version_id, number, org_id, mode, task_id, attempt, partitions, keys,
             is_whole, adds_again, rows, bytes, rows_removed, written_at, actor)
           values ($1, $2, 1, $3, $4, $5, 1, $6, $7, $8, 1, 1, 0, weft.now(), 'ann')""",
        version, write, said["mode"], number, attempt, said["keys"], said["is_whole"], said["adds_again"],
    )  # fmt: skip


async def traced(conn: Conn, number: int, attempt: int = 1) -> tuple[str | None, list[tuple[str, int]]]:
    """Return why an output does not serve others, and else what it goes by: the role and the write of each."""
    row = await conn.fetchrow("select * from weft.trace_of($1, $2)", number, attempt)
    assert row is not None
    found = orjson.loads(row["trace"] or "[]")
    return row["unkept"], [(each["role"], each["write"]) for each in found]


async def stands(conn: Conn, made: tuple[int, int], **said: Any) -> bool:
    trace = [{"role": "read", "dataset": made[0], "version": made[1], "write": 1, "content": 1, **said}]
    return await conn.fetchval("select weft.trace_problems(1, $1)", orjson.dumps(trace).decode()) is None


@pytest.mark.parametrize("said", [{}, {"partitions": ["a"]}, {"pinned": "since"}, {"pinned": "version"}])
async def test_an_output_serves_while_nobody_has_written_into_what_was_read(conn: Conn, said: dict[str, Any]) -> None:
    made, others = await dataset(conn, a=1, b=1), await dataset(conn, "others", a=1)
    number = await ended(conn)
    await read(conn, number, made, 1, **said)
    assert await traced(conn, number) == (None, [("read", 1)])
    await conn.execute("update weft.dataset_partition set last_write = 5 where version_id = $1", others[1])
    await conn.execute("update weft.dataset_version set last_write = 5 where id = $1", others[1])
    assert await traced(conn, number) == (None, [("read", 1)])
    # Into another partition: that matters to who has read all.
    await conn.execute("update weft.dataset_partition set last_write = 2 where partition_key = 'b'")
    await conn.execute("update weft.dataset_version set last_write = 2 where id = $1", made[1])
    is_of_one = "partitions" in said
    assert (await traced(conn, number))[0] == (None if is_of_one else "moved")
    await conn.execute("update weft.dataset_partition set last_write = 3 where partition_key = 'a'")
    assert (await traced(conn, number))[0] == "moved"


@pytest.mark.parametrize("pinned", [None, "since", "version", "write"])
async def test_an_output_that_has_read_what_is_current_serves_while_it_is(conn: Conn, pinned: str | None) -> None:
    made = await dataset(conn, a=1)
    number = await ended(conn)
    await read(conn, number, made, 1, pinned=pinned)
    await conn.execute("update weft.dataset set current_id = null")
    assert (await traced(conn, number))[0] == ("moved" if pinned in (None, "since") else None)
    await conn.execute("update weft.dataset set current_id = $1", made[1])
    await conn.execute("update weft.dataset_version set last_write = 2")
    assert (await traced(conn, number))[0] == ("moved" if pinned != "write" else None)


@pytest.mark.parametrize("what", ["lost_by = 2", "columns_by = 2"])
async def test_an_output_does_not_serve_when_a_partition_or_the_columns_have_gone(conn: Conn, what: str) -> None:
    made = await dataset(conn, a=1)
    number = await ended(conn)
    await read(conn, number, made, 1, partitions=["a"])
    await conn.execute(f"update weft.dataset_version set {what}")
    assert (await traced(conn, number))[0] == "moved"


async def test_an_output_does_not_serve_when_what_was_read_is_gone(conn: Conn) -> None:
    made = await dataset(conn, a=1)
    number = await ended(conn)
    await read(conn, number, made, 1, pinned="write")
    await conn.execute("update weft.dataset set current_id = null")
    await conn.execute("delete from weft.dataset_version")
    assert (await traced(conn, number))[0] == "moved"


async def test_what_earlier_attempts_have_read_counts_where_there_are_steps(conn: Conn) -> None:
    made = await dataset(conn, a=1)
    number = await ended(conn, attempt=2)
    for attempt in (1, 2):
        await read(conn, number, made, 1, attempt)
    assert await traced(conn, number, 2) == (None, [("read", 1)])
    await conn.execute(
        "insert into weft.step (task_id, name, org_id, attempt, bytes, data) "
        "values ($1, 'a', 1, 1, 1, '1')", number,
    )  # fmt: skip
    assert await traced(conn, number, 2) == (None, [("read", 1), ("read", 1)])


@pytest.mark.parametrize("how", ["reads", "writes", "neither"])
async def test_an_output_does_not_serve_when_tasks_that_it_has_made_have_to_do_with_datasets(
    conn: Conn, how: str
) -> None:
    made = await dataset(conn, a=1)
    number, child, grandchild, other = [await ended(conn) for _ in range(4)]
    for parent, each in ((number, child), (child, grandchild)):
        await conn.execute("update weft.task_done set parent_id = $1 where id = $2", parent, each)
    touched = other if how == "neither" else grandchild
    if how == "writes":
        await wrote(conn, touched, made[1], 1)
    else:
        await read(conn, touched, made, 1)
    assert await traced(conn, number) == (None if how == "neither" else "made", [])


async def test_an_output_serves_while_what_was_written_is_as_it_was_left(conn: Conn) -> None:
    made = await dataset(conn, a=1, b=1)
    await dataset(conn, "others", a=1, b=1)
    number = await ended(conn)
    await wrote(conn, number, made[1], 1)
    # What another attempt and another task have written is not this one's.
    await wrote(conn, number, made[1], 7, attempt=9, adds_again=True)
    await wrote(conn, await ended(conn), made[1], 8, adds_again=True)
    assert await traced(conn, number) == (None, [("replaced", 1)])
    assert await traced(conn, number, 9) == (None, []), "an attempt that has not completed has written nothing"
    touch = "update weft.dataset_partition set last_write = 2 where version_id = $1 and partition_key = $2"
    await conn.execute(touch, made[1], "b")
    assert (await traced(conn, number))[0] is None
    for change in ("is_whole = true", "keys = null", "adds_again = true"):
        await conn.execute("update weft.dataset_version set last_write = 8")
        async with _undone(conn):
            await conn.execute(f"update weft.dataset_write set {change} where number = 1")
            assert (await traced(conn, number))[0] == ("adds" if "adds" in change else "moved")
    await conn.execute(touch, made[1], "a")
    assert (await traced(conn, number))[0] == "moved"
    # What was added to is another matter.
    await conn.execute("update weft.dataset_write set mode = 'append' where number = 1")
    assert await traced(conn, number) == (None, [("added", 1)])
    await conn.execute("update weft.dataset set current_id = null")
    assert (await traced(conn, number))[0] == "moved"


class _undone:
    """What is done inside is taken back."""

    def __init__(self, conn: Conn) -> None:
        self._transaction = conn.transaction()

    async def __aenter__(self) -> None:
        await self._transaction.start()

    async def __aexit__(self, *_: object) -> None:
        await self._transaction.rollback()


async def test_a_trace_stands_while_a_reader_sees_the_same(conn: Conn) -> None:
    made, others = await dataset(conn, a=1), await dataset(conn, "others", a=1)
    kinds: dict[str, dict[str, Any]] = {
        "all": {}, "some": {"partitions": ["a"]}, "version": {"pinned": "version"}, "since": {"pinned": "since"},
        "write": {"pinned": "write"}, "whole": {"role": "whole", "producer": "@task/note"},
        "replaced": {"role": "replaced", "partitions": ["a"], "producer": "@task/note"},
        "added": {"role": "added", "partitions": ["a"], "producer": "@task/note"},
    }  # fmt: skip

    async def fallen(change: str | None = None) -> set[str]:
        async with _undone(conn):
            if change is not None:
                await conn.execute(f"update weft.{change}")
            return {name for name, said in kinds.items() if not await stands(conn, made, **said)}

    everything = set(kinds)
    at_large = everything - {"version", "write"}
    assert await fallen() == set()
    assert await fallen("dataset set deleted_at = weft.now()") == everything
    assert await fallen("dataset_version set collected_at = weft.now()") == everything
    assert await fallen("dataset set current_id = null") == at_large
    assert await fallen("dataset_version set schema_hash = 'other'") == {"all", "some", "version", "since", "write"}
    assert await fallen("dataset set producer_node = 'other'") == {"whole", "replaced", "added"}
    assert await fallen("dataset_version set oldest_write = 2") == {"write"}
    assert await fallen("dataset_version set last_write = 2") == {"since"}
    assert await fallen("dataset_version set content = 2") == {"all", "version", "whole"}
    assert await fallen("dataset_partition set content = 2") == {"some", "replaced"}
    assert await fallen("dataset_partition set lost_by = 2") == {"added"}
    assert await fallen("dataset_partition set partition_key = 'b'") == {"some", "replaced", "added"}
    assert await fallen(f"dataset_partition set lost_by = 2, content = 2 where version_id = {others[1]}") == set()
    # A version of another dataset is none of this one.
    assert not await stands(conn, (made[0], others[1]), pinned="write")
    assert not await stands(conn, (7, made[1]))


async def test_a_task_that_has_the_output_of_another_has_read_what_that_has(client: weft.Client, conn: Conn) -> None:
    made = await dataset(conn, a=4)
    await client.orgs.create("rival")
    rival = (await client.orgs.show("rival")).id
    trace = orjson.dumps([
        {"role": "read", "version": made[1], "write": 1, "partitions": ["a"]},
        {"role": "read", "version": made[1], "write": 1, "pinned": "write"},
        {"role": "whole", "version": made[1], "write": 1},
    ]).decode()  # fmt: skip
    for _ in range(2):
        await conn.execute("select weft.note_inputs(1, 1, 1, $1)", trace)
    await conn.execute("select weft.note_inputs(2, 1, $2, $1)", trace, rival)
    found = await conn.fetch(
        "select task_id, version_id, write, partitions, pinned from weft.task_input order by place"
    )
    assert [(*row,) for row in found] == [(1, made[1], 4, ["a"], None), (1, made[1], 1, None, "write")]


async def noted(
    conn: Conn, *tasks: int, worker: int = 5, attempt: int = 1, key: bytes | None = KEY, **said: Any
) -> None:
    """Tell of outputs of tasks that have completed."""
    many = len(tasks)
    await conn.execute(
        "select weft.note_outputs($1, $2, $3, $4, $5, $6, $7, $8)", worker, list(tasks), [attempt] * many, [key] * many,
        [None] * many, [said.get("root")] * many, [said.get("entry")] * many, [said.get("most", 1000)] * many,
    )  # fmt: skip


async def completed(conn: Conn, **more: Any) -> int:
    number = await ended(conn)
    said = {"worker_id": 5, "output": "1", **more}
    places = ", ".join(f"{name} = ${place}" for place, name in enumerate(said, 2))
    await conn.execute(f"update weft.task_done set {places} where id = $1", number, *said.values())
    return number


async def kept(conn: Conn) -> list[int]:
    return [row[0] for row in await conn.fetch("select task_id from weft.output_cache order by id")]


@pytest.mark.parametrize("other", [{"worker_id": 6}, {"attempt": 2}, {"state": "failed"}])
async def test_outputs_are_kept_of_what_has_completed_by_worker_and_attempt(conn: Conn, other: dict[str, Any]) -> None:
    made = await dataset(conn, a=1)
    number, root = await completed(conn, **other), await completed(conn)
    await noted(conn, number, root=root)
    assert await kept(conn) == []
    assert await conn.fetchval("select reason from weft.task_done where id = $1", number) is None
    await read(conn, root, made, 1)
    await noted(conn, root)
    entry = await conn.fetchval("select id from weft.output_cache")
    await noted(conn, number, key=None, entry=entry)
    assert await conn.fetchval("select count(*) from weft.task_input where task_id = $1", number) == 0


async def test_an_output_takes_the_place_of_those_that_stand_in_its_own_org_and_of_its_own_key(
    client: weft.Client, conn: Conn
) -> None:
    await client.orgs.create("rival")
    rival = (await client.orgs.show("rival")).id
    made = await dataset(conn, a=1)
    plain, theirs = await completed(conn), await completed(conn, org_id=rival)
    for number in (plain, theirs):
        await noted(conn, number)
    other = await completed(conn)
    await noted(conn, other, key=b"o" * 32)
    traces = []
    for _ in range(2):
        traces.append(await completed(conn))
        await read(conn, traces[-1], made, 1)
    apart, foreign = await completed(conn), await completed(conn, org_id=rival)
    for number in (apart, foreign):
        await read(conn, number, made, 1)
    # Of another key, and of another org.
    await noted(conn, apart, key=b"o" * 32)
    assert await kept(conn) == [plain, theirs, apart]
    await noted(conn, traces[0])
    assert await kept(conn) == [theirs, apart, traces[0]]
    await noted(conn, foreign)
    assert await kept(conn) == [apart, traces[0], foreign]
    await noted(conn, traces[1])
    assert await kept(conn) == [apart, foreign, traces[1]]
    # One that does not stand any more stays: what it was made of may come back.
    await conn.execute("update weft.output_cache set trace = jsonb_set(trace, '{0,content}', '9')")
    again = await completed(conn)
    await read(conn, again, made, 1)
    await noted(conn, again)
    assert await kept(conn) == [apart, foreign, traces[1], again]


async def test_of_one_key_the_last_five_outputs_are_kept(client: weft.Client, conn: Conn) -> None:
    made = await dataset(conn, a=1)
    await client.orgs.create("rival")
    rival = (await client.orgs.show("rival")).id
    numbers = []
    for org, key in ((rival, KEY), (1, b"o" * 32), *[(1, KEY)] * 7):
        numbers.append(await completed(conn, org_id=org))
        await read(conn, numbers[-1], made, 1)
        await noted(conn, numbers[-1], key=key)
        await conn.execute("update weft.output_cache set trace = jsonb_set(trace, '{0,content}', '9')")
    assert await kept(conn) == numbers[:2] + numbers[-5:]


async def test_an_output_that_is_too_large_or_does_not_serve_is_not_kept(conn: Conn) -> None:
    made = await dataset(conn, a=1)
    large, moved = await completed(conn, output='"long"'), await completed(conn)
    await read(conn, moved, made, 0)
    await noted(conn, large, most=3)
    await noted(conn, moved)
    assert await kept(conn) == []


async def test_an_output_of_the_cache_is_not_had_when_it_is_gone_of_another_org_or_does_not_stand(
    client: weft.Client, conn: Conn
) -> None:
    made = await dataset(conn, a=1)
    await client.orgs.create("rival")
    rival = (await client.orgs.show("rival")).id
    root, mine, theirs = await completed(conn), await completed(conn), await completed(conn, org_id=rival)
    await read(conn, root, made, 1)
    await noted(conn, root)
    entry = await conn.fetchval("select id from weft.output_cache")
    await noted(conn, mine, key=None, entry=entry, root=root)
    assert await conn.fetchval("select kept_id from weft.task_done where id = $1", mine) == root
    for number, at in ((theirs, entry), (mine, 7)):
        with pytest.raises(asyncpg.PostgresError, match="has changed meanwhile"):
            await noted(conn, number, key=None, entry=at)
    await conn.execute("update weft.dataset_version set content = 5")
    with pytest.raises(asyncpg.PostgresError, match="has changed meanwhile"):
        await noted(conn, mine, key=None, entry=entry)


async def test_an_output_that_was_had_in_vain_is_dropped_by_its_own_org_while_it_is_the_same(
    client: weft.Client, conn: Conn
) -> None:
    from weft.queue.cache import SQL

    await client.orgs.create("rival")
    rival = (await client.orgs.show("rival")).id
    maker, other = await completed(conn), await completed(conn)
    await noted(conn, maker)
    await noted(conn, other, key=b"o" * 32)
    entry = await conn.fetchval("select id from weft.output_cache where task_id = $1", maker)
    asking, foreign = await task(conn, 1), await task(conn, 2)
    await conn.execute("update weft.task set org_id = $2 where id = $1", foreign, rival)
    assert await conn.fetch(SQL.drop, foreign, entry, maker) == []
    assert await conn.fetch(SQL.drop, asking, entry, other) == []
    assert [row[0] for row in await conn.fetch(SQL.drop, asking, entry, maker)] == [maker]
    assert await kept(conn) == [other]


@pytest.mark.parametrize(("handler", "node"), [("lote", "b"), ("note", "a")])
async def test_an_earlier_task_is_told_of_when_it_is_of_the_same_handler_and_node(
    conn: Conn, handler: str, node: str
) -> None:
    async def completed(handler: str, node: str) -> int:
        number = await ended(conn)
        await conn.execute(
            """insert into weft.task_reuse (task_id, org_id, attempt, handler, node, key, args, cause)
               values ($1, 1, 1, $2, $3, $4, $4, 'nothing')""", number, handler, node, b"a" * 32,
        )  # fmt: skip
        return number

    async def found() -> tuple[str, int | None]:
        number = await task(conn, await conn.fetchval("select weft.next_id()"))
        await conn.execute("update weft.task set node = 'b' where id = $1", number)
        await conn.execute("select weft.find_output($1, 1, $2, $2, null, true)", number, KEY)
        row = await conn.fetchrow("select cause, other_id from weft.task_reuse where task_id = $1", number)
        await conn.execute("delete from weft.task_reuse where task_id = $1", number)
        assert row is not None
        return row["cause"], row["other_id"]

    own = await completed("note", "b")
    assert await found() == ("params", own)
    await conn.execute("delete from weft.task_reuse")
    await completed(handler, node)
    assert await found() == ("nothing", None)


async def test_only_what_is_long_past_is_forgotten_of_tasks_that_are_gone(conn: Conn) -> None:
    """Of what was found for them in the cache, and of what they have read."""
    month, made = timedelta(days=30), await dataset(conn, a=1)
    long_ago = await conn.fetchval("select weft.first_id_at(weft.now() - interval '1 year')")
    gone, young = long_ago, await conn.fetchval("select weft.next_id()")
    there = await task(conn, long_ago + 1)
    for number in (gone, there, young):
        await read(conn, number, made, 1)
        await read(conn, number, made, 1, 2)
        await conn.execute("update weft.task_input set place = attempt where task_id = $1", number)
        await conn.execute(
            """insert into weft.task_reuse (task_id, org_id, attempt, handler, node, key, args, cause)
               values ($1, 1, 1, 'note', '', $2, $2, 'nothing')""", number, KEY,
        )  # fmt: skip
    assert await upkeep.prune_inputs(conn, month) == 2
    left = await conn.fetch("select distinct task_id from weft.task_input order by 1")
    assert [row["task_id"] for row in left] == [there, young]
    await cache.prune(conn, month)
    left = await conn.fetch("select task_id from weft.task_reuse order by 1")
    assert [row["task_id"] for row in left] == [there, young]
