"""Sources of tables: what is inserted comes as units, with the transaction that inserts it, which that never fails."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import asyncpg
import pytest

import weft
from live_scene import make_dag, make_job, until
from weft.worker.live import LiveContext, operator
from weft.worker.registry import Registry

Conn: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
TRIGGERS = "select tgname from pg_trigger where tgrelid = 'public.orders'::regclass order by 1"


@pytest.fixture(autouse=True)
async def _orders(conn: Conn) -> None:
    await conn.execute("create table public.orders (id int primary key, symbol text, price numeric, at timestamptz)")


async def _follow(conn: Conn, table: str = "public.orders", name: str = "rows", **more: Any) -> int:
    columns = {key: more.pop(key) for key in ("max_concurrency",) if key in more}
    source = {"kind": "table", "table_name": table, **more}
    return await make_job(conn, await make_dag(conn, name), name, "note", source=source, **columns)


async def _units(conn: Conn, job: int) -> list[tuple[str, list[Any]]]:
    rows = await conn.fetch("select lane, said from weft.live_unit where live_job_id = $1 order by id", job)
    return [(row["lane"], json.loads(row["said"])["rows"]) for row in rows]


async def _add(conn: Conn, *rows: tuple[int, str | None]) -> None:
    await conn.executemany("insert into public.orders values ($1, $2, 1.50, '2026-11-18Z')", rows)


async def test_rows_that_are_inserted_are_units_with_their_transaction(conn: Conn) -> None:
    job = await _follow(conn)
    undone = conn.transaction()
    await undone.start()
    await _add(conn, (1, "a"))
    assert len(await _units(conn, job)) == 1
    await undone.rollback()
    assert await _units(conn, job) == []
    await _add(conn, (1, "a"))
    ((_, rows),) = await _units(conn, job)
    assert rows == [{"id": 1, "symbol": "a", "price": 1.5, "at": "2026-11-18T00:00:00+00:00"}]
    # Of what is changed or removed nothing is told, nor of what was there already.
    await conn.execute("update public.orders set symbol = 'b'")
    await conn.execute(
        "insert into public.orders (id, symbol) values (1, 'c') on conflict (id) do update set symbol = 'c'"
    )
    await conn.execute("insert into public.orders select 9, 'none' where false")
    await conn.execute("delete from public.orders")
    assert len(await _units(conn, job)) == 1


async def test_many_rows_are_a_hundred_in_a_unit_and_in_order_within_their_lane(conn: Conn) -> None:
    whole = await _follow(conn, name="whole")
    laned = await _follow(conn, name="laned", lane=["symbol"], columns=["id"])
    await conn.execute(
        "insert into public.orders "
        "select n, case n % 3 when 0 then 'a' when 1 then 'b' end from generate_series(1, 750) n"
    )
    units = await _units(conn, whole)
    assert [len(rows) for _, rows in units] == [100] * 7 + [50]
    assert [row["id"] for _, rows in units for row in rows] == list(range(1, 751))
    assert len({lane for lane, _ in units}) == 8
    by_lane: dict[str, list[int]] = {}
    for lane, rows in await _units(conn, laned):
        assert set(rows[0]) == {"id", "symbol"}
        by_lane.setdefault(lane if lane in "ab" else "none", []).extend(row["id"] for row in rows)
    assert by_lane["a"] == list(range(3, 751, 3))
    assert by_lane["b"] == list(range(1, 751, 3))
    assert sorted(by_lane["none"]) == list(range(2, 751, 3))


async def test_rows_are_worked_on_in_the_order_of_their_lane(
    client: weft.Client, conn: Conn, registry: Registry
) -> None:
    seen: dict[str, list[int]] = {"a": [], "b": []}

    @operator("note", registry=registry)
    async def note(live: LiveContext) -> None:
        for row in live.unit.payload:
            seen[row["symbol"]].append(row["id"])

    await _follow(conn, lane=["symbol"], max_concurrency=5)
    async with weft.Worker(client=client, registry=registry), weft.Orchestrator(client=client):
        for first in range(0, 100, 10):
            await conn.execute(
                "insert into public.orders "
                "select n, case n % 2 when 0 then 'a' else 'b' end from generate_series($1::int, $2::int) n",
                first, first + 9,
            )  # fmt: skip
        await until(lambda: sum(map(len, seen.values())) == 100)
    assert seen == {"a": list(range(0, 100, 2)), "b": list(range(1, 100, 2))}


async def test_the_trigger_is_there_while_the_source_listens_and_no_longer(conn: Conn) -> None:
    job = await _follow(conn)
    assert [row["tgname"] for row in await conn.fetch(TRIGGERS)] == [f"weft_live_{job}"]
    await conn.execute("update weft.live_source set is_listening = false")
    assert await conn.fetch(TRIGGERS) == []
    await _add(conn, (1, "a"))
    await conn.execute("update weft.live_source set is_listening = true")
    await _add(conn, (2, "a"))
    assert [rows[0]["id"] for _, rows in await _units(conn, job)] == [2]
    await conn.execute("delete from weft.live_dag")
    assert await conn.fetch(TRIGGERS) == []
    await _add(conn, (3, "a"))


async def test_who_inserts_does_not_fail_when_the_source_is_gone_and_the_trigger_is_not(url: str, conn: Conn) -> None:
    """It could not be taken away, because the table was in use for long."""
    job = await _follow(conn)
    other = await asyncpg.connect(url)
    try:
        async with other.transaction():
            await other.execute("insert into public.orders values (1, 'a')")
            await conn.execute("update weft.live_source set is_listening = false")
        assert [row["tgname"] for row in await conn.fetch(TRIGGERS)] == [f"weft_live_{job}"]
        await _add(conn, (2, "a"))
        assert len(await _units(conn, job)) == 1
        await conn.execute("update weft.live_source set followed = null")
        await conn.execute("delete from weft.live_dag")
        await _add(conn, (3, "a"))
    finally:
        await other.close()
    assert await conn.fetchval("select count(*) from public.orders") == 3


async def test_a_source_that_is_being_removed_lets_those_finish_who_insert(url: str, conn: Conn) -> None:
    await _follow(conn)
    other = await asyncpg.connect(url)
    try:
        async with other.transaction():
            await other.execute("insert into public.orders values (1, 'a')")
            removing = asyncio.create_task(conn.execute("delete from weft.live_dag"))
            async with asyncio.timeout(30):
                while not await other.fetchval("select exists (select 1 from pg_locks where not granted)"):
                    pass
        await removing
        await other.execute("insert into public.orders values (2, 'a')")
    finally:
        await other.close()


async def test_who_inserts_while_the_source_is_removed_and_the_trigger_is_not_waits_and_does_not_fail(
    url: str, conn: Conn
) -> None:
    job = await _follow(conn)
    busy, writer = await asyncpg.connect(url), await asyncpg.connect(url)
    try:
        async with busy.transaction():
            await busy.execute("lock table public.orders in row exclusive mode")
            async with conn.transaction():
                await conn.execute("delete from weft.live_dag")
                assert [row["tgname"] for row in await conn.fetch(TRIGGERS)] == [f"weft_live_{job}"]
                inserting = asyncio.create_task(writer.execute("insert into public.orders values (1, 'a')"))
                async with asyncio.timeout(30):
                    while not await busy.fetchval("select exists (select 1 from pg_locks where not granted)"):
                        pass
            await inserting
    finally:
        await busy.close()
        await writer.close()
    assert await conn.fetchval("select count(*) from public.orders") == 1


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ({"table_name": "public.nothing"}, "is no table of this"),
        ({"table_name": "weft.token"}, "Weft itself"),
        ({"table_name": "pg_catalog.pg_class"}, "of PostgreSQL"),
        ({"table_name": "public.seen"}, "is no table"),
        ({"columns": ["nope"]}, "no column nope"),
        ({"lane": ["nope"]}, "no column nope"),
        ({"columns": ["ctid"]}, "no column ctid"),
        ({"org_id": 7}, "operates the installation"),
    ],
)
async def test_what_cannot_be_followed_is_refused(source: dict[str, Any], problem: str, conn: Conn) -> None:
    await conn.execute("create view public.seen as select 1 as one")
    await conn.execute("insert into weft.org (id, name, slug) values (7, 'Other', 'other')")
    org_id = source.get("org_id", 1)
    dag = await conn.fetchval(
        "insert into weft.live_dag (org_id, name, actor) values ($1, 'd', 'x') returning id", org_id
    )
    said = {"kind": "table", "table_name": "public.orders", "org_id": org_id, **source}
    with pytest.raises(asyncpg.PostgresError, match=problem) as caught:
        await make_job(conn, dag, "rows", "note", source=said, org_id=org_id)
    assert caught.value.sqlstate == "WF002"
    assert await conn.fetch(TRIGGERS) == []


@pytest.fixture
async def as_clerk(url: str, conn: Conn) -> AsyncIterator[Conn]:
    """A session of a role that has no rights in the schema but those of a deployer."""
    await conn.execute("drop role if exists clerk")
    await conn.execute("create role clerk login")
    await conn.execute("grant usage on schema weft to clerk")
    await conn.execute("grant select, insert, update, delete on all tables in schema weft to clerk")
    await conn.execute("grant usage on all sequences in schema weft to clerk")
    session = await asyncpg.connect(urlsplit(url)._replace(netloc="clerk@").geturl())
    yield session
    await session.close()
    await conn.execute("drop owned by clerk")
    await conn.execute("drop role clerk")


async def test_whoever_deploys_must_be_allowed_to_read_the_table_and_put_triggers_on_it(
    conn: Conn, as_clerk: Conn
) -> None:
    for number, right in enumerate(("select", "trigger")):
        with pytest.raises(asyncpg.PostgresError, match="grant select, trigger on it to clerk"):
            await _follow(as_clerk, name=f"d{number}")
        await conn.execute(f"grant {right} on public.orders to clerk")
    await _follow(as_clerk, name="good")
    assert len(await conn.fetch(TRIGGERS)) == 1
    await conn.execute("revoke select on public.orders from clerk")
    with pytest.raises(asyncpg.PostgresError, match="grant select, trigger on it to clerk"):
        await _follow(as_clerk, name="blind")


async def test_nobody_else_puts_the_trigger_on_a_table(conn: Conn, as_clerk: Conn) -> None:
    """By it somebody could make units of jobs that are not his."""
    job = await _follow(conn)
    await conn.execute("grant usage, create on schema public to clerk")
    await as_clerk.execute("create table public.own (id int, symbol text, price numeric, at timestamptz)")
    with pytest.raises(asyncpg.InsufficientPrivilegeError, match=r"function weft\.note_rows"):
        await as_clerk.execute(
            "create trigger t after insert on public.own referencing new table as added for each statement "
            f"execute function weft.note_rows('{job}')"
        )
    for call in (f"weft.follow_table({job})", f"weft.leave_table({job}, 'public.orders'::regclass)"):
        with pytest.raises(asyncpg.InsufficientPrivilegeError, match="permission denied for function"):
            await as_clerk.execute(f"select {call}")
    # Nor is it of use on a table that the source does not follow.
    await conn.execute(
        "create trigger t after insert on public.own referencing new table as added for each statement "
        f"execute function weft.note_rows('{job}')"
    )
    await conn.execute("insert into public.own values (1)")
    assert await _units(conn, job) == []


async def test_nothing_that_the_owner_of_a_table_has_defined_is_called_with_the_rights_of_weft(conn: Conn) -> None:
    await conn.execute("create type public.mood as enum ('good', 'bad')")
    await conn.execute("create table public.called (by text)")
    for kind in ("json", "text"):
        await conn.execute(
            f"create function public.as_{kind}(public.mood) returns {kind} language plpgsql as $$ begin "
            f"insert into public.called values (current_user); return '\"x\"'::{kind}; end $$"
        )
        cast = "as assignment" if kind == "text" else ""
        await conn.execute(f"create cast (public.mood as {kind}) with function public.as_{kind} (public.mood) {cast}")
    await conn.execute("create table public.moods (id int, mood public.mood, moods public.mood[], pair public.called)")
    job = await _follow(conn, "public.moods", lane=["mood"])
    await conn.execute("insert into public.moods values (1, 'good', '{good,bad}', row('x')), (2, null, null, null)")
    (first, second) = await _units(conn, job)
    assert first == ("good", [{"id": 1, "mood": "good", "moods": "{good,bad}", "pair": "(x)"}])
    assert second[1] == [{"id": 2, "mood": None, "moods": None, "pair": None}]
    assert await conn.fetch("select * from public.called") == []


async def test_strange_names_and_values_are_told_as_they_are(conn: Conn) -> None:
    await conn.execute('create schema "Odd "" one"')
    await conn.execute('create table "Odd "" one"."ta;ble" ("a ""b" text, "select" float8, "%s" bytea)')
    job = await _follow(conn, '"Odd "" one"."ta;ble"', lane=['a "b'], columns=["select", "%s"])
    long = "x" * 5000
    await conn.execute(
        'insert into "Odd "" one"."ta;ble" '
        "values ($1, 'NaN', '\\x00ff'), ($2, '-Infinity', null), ('', 1, null)",
        "it's {}", long,
    )  # fmt: skip
    units = dict(await _units(conn, job))
    assert units["it's {}"] == [{'a "b': "it's {}", "select": "NaN", "%s": "\\x00ff"}]
    assert units[""] == [{'a "b': "", "select": 1, "%s": None}]
    (hashed,) = [lane for lane in units if lane.startswith("md5:")]
    assert units[hashed][0]['a "b'] == long


async def test_a_column_that_comes_later_is_told_and_one_that_goes_keeps_nobody(conn: Conn) -> None:
    job = await _follow(conn, columns=["id", "price"], lane=["symbol"])
    whole = await _follow(conn, name="whole")
    await conn.execute("alter table public.orders drop column price, drop column symbol, add column note text")
    await conn.execute("insert into public.orders values (1, '2026-11-18Z', 'new')")
    assert [rows for _, rows in await _units(conn, job)] == [[{"id": 1}]]
    assert [list(rows[0]) for _, rows in await _units(conn, whole)] == [["id", "at", "note"]]


async def test_a_table_of_partitions_is_followed_as_one(conn: Conn) -> None:
    await conn.execute("create table public.parts (id int, day int) partition by list (day)")
    await conn.execute("create table public.parts_1 partition of public.parts for values in (1)")
    await conn.execute("create table public.parts_2 partition of public.parts for values in (2)")
    job = await _follow(conn, "public.parts")
    await conn.execute("insert into public.parts values (1, 1), (2, 2)")
    assert [[row["id"] for row in rows] for _, rows in await _units(conn, job)] == [[1, 2]]


async def test_large_rows_are_few_in_a_unit(conn: Conn) -> None:
    """What a worker is given at once stays small, whatever is inserted at once."""
    job = await _follow(conn, lane=["symbol"])
    large = "insert into public.orders (id, symbol) select n, 'a' from generate_series(1, 30) n"
    await conn.execute("alter table public.orders add column text text default repeat('x', 400000)")
    await conn.execute(large)
    units = await _units(conn, job)
    assert [row["id"] for _, rows in units for row in rows] == list(range(1, 31))
    assert all(len(rows) <= 3 for _, rows in units)
    await conn.execute("alter table public.orders alter text set default repeat('x', 3000000)")
    await conn.execute(large.replace("1, 30", "31, 33"))
    assert [[row["id"] for row in rows] for _, rows in (await _units(conn, job))[len(units) :]] == [[31], [32], [33]]


async def test_copy_is_followed_too(conn: Conn) -> None:
    job = await _follow(conn)
    await conn.copy_records_to_table("orders", records=[(n, "a", 1, None) for n in range(250)], schema_name="public")
    assert [len(rows) for _, rows in await _units(conn, job)] == [100, 100, 50]
