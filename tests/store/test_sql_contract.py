"""The public SQL: weft.enqueue with its refusals, and the views."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest
from store_scene import Store

from moments import first_id_at, time_of

WRITTEN = """
  select (select count(*) from weft.task) + (select count(*) from weft.task_params)
    + (select count(*) from weft.idempotency_key) + (select count(*) from weft.key_slot)
"""

REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("handler", {"handler": ""}),
    ("handler", {"handler": None}),
    ("handler", {"handler": "h" * 201}),
    ("handler", {"handler": "a\nb"}),
    ("handler", {"handler": "\x1b[31m"}),
    ("params", {"params": None}),
    ("params", {"params": "[1]"}),
    ("params", {"params": "null"}),
    ("params", {"params": '"text"'}),
    ("params", {"params": "5"}),
    ("params", {"params": '{"a":"\\u0000"}'}),
    ("params", {"params": '{"a\\u0000":1}'}),
    ("params", {"params": '{"a":"\\\\\\u0000"}'}),
    ("params", {"params": '{"$blob":"x"}'}),
    ("params", {"params": '{"$blob":' + json.dumps("x" * 300) + "}"}),
    ("params", {"params": '{"$blob":"' + "a" * 64 + '","size":5,"more":1}'}),
    ("params", {"params": '{"a":"\\ud800"}'}),
    ("params", {"params": '{"a":"\\ud800\\\\\\udc00"}'}),
    ("params", {"params": '{"a":"\\uDC00\\uD800"}'}),
    ("params", {"params": '{"a":"\\\\\\ud83d\\ud83d\\ude00"}'}),
    ("params", {"params": '{"\\udfff":1}'}),
    ("params", {"params": '{"a":' + "[" * 200 + "]" * 200 + "}"}),
    ("params", {"params": '{"a":' * 3000 + "1" + "}" * 3000}),
    ("params", {"params": '{"a":18446744073709551616}'}),
    ("params", {"params": '{"a":[-9223372036854775809]}'}),
    ("params", {"params": '{"a":' + "9" * 5000 + "}"}),
    ("params", {"params": '{"a":1e400}'}),
    ("params", {"params": '{"a":"' + "x" * 262_144 + '"}'}),
    ("retry", {"retry": '"nonsense"'}),
    ("retry", {"retry": "null"}),
    ("retry", {"retry": "[]"}),
    ("retry", {"retry": '{"max_attempts":3}'}),
    ("retry", {"retry": '{"\\u0000":3}'}),
    ("retry.backoff", {"retry": '{"backoff":"sometimes"}'}),
    ("retry.backoff", {"retry": '{"backoff":null}'}),
    ("retry.initial_delay", {"retry": '{"initial_delay":-1}'}),
    ("retry.initial_delay", {"retry": '{"initial_delay":"1"}'}),
    ("retry.max_delay", {"retry": '{"max_delay":31622401}'}),
    ("retry.max_delay", {"retry": '{"max_delay":1e999999999}'}),
    ("retry.jitter", {"retry": '{"jitter":1.01}'}),
    ("priority", {"priority": None}),
    ("priority", {"priority": 32768}),
    ("priority", {"priority": -32768}),
    ("priority", {"priority": 2**31 - 1}),
    ("max_attempts", {"max_attempts": 0}),
    ("max_attempts", {"max_attempts": 32768}),
    ("delay", {"delay": timedelta(seconds=-1)}),
    ("delay", {"delay": timedelta(days=20_001)}),
    ("delay", {"delay": timedelta(1), "run_at": datetime(2030, 1, 1, tzinfo=UTC)}),
    ("run_at", {"run_at": datetime(2300, 1, 1, tzinfo=UTC)}),
    ("timeout", {"timeout": timedelta(0)}),
    ("timeout", {"timeout": timedelta(seconds=-1)}),
    ("timeout", {"timeout": timedelta(days=30_000)}),
    ("heartbeat_timeout", {"heartbeat_timeout": timedelta(0)}),
    ("heartbeat_timeout", {"heartbeat_timeout": timedelta(days=30_000)}),
    ("idempotency_key", {"idempotency_key": ""}),
    ("idempotency_key", {"idempotency_key": "k" * 501}),
    ("concurrency_key", {"concurrency_key": ""}),
    ("concurrency_key", {"concurrency_key": "k" * 501}),
]


async def _enqueue(store: Store, **fields: Any) -> int:
    return await store.enqueue(fields.pop("handler", "h"), **fields)


async def test_each_wrong_field_is_refused_by_name_with_a_code_of_its_own_and_nothing_is_written(store: Store) -> None:
    wrong = []
    for field, fields in REFUSED:
        try:
            await _enqueue(store, **{"concurrency_key": "c", "idempotency_key": "i", **fields})
        except asyncpg.PostgresError as problem:
            if problem.sqlstate != "WF002" or not str(problem).startswith(f"{field}: "):
                wrong.append(f"{field} {str(fields)[:60]}: {problem.sqlstate} {problem}")
        else:
            wrong.append(f"{field} {str(fields)[:60]}: accepted")
    assert not wrong, "\n".join(wrong)
    assert await store.conn.fetchval(WRITTEN) == 0


async def test_intervals_that_no_client_could_read_are_refused(store: Store) -> None:
    for field in ("timeout", "heartbeat_timeout", "delay"):
        for interval in ("10000000 years", "999999999 days", "178000000 years"):
            with pytest.raises(asyncpg.PostgresError) as caught:
                await store.conn.execute(f"select weft.enqueue('h', {field} => interval '{interval}')")
            assert (caught.value.sqlstate, str(caught.value).partition(":")[0]) == ("WF002", field)
    for moment in ("infinity", "290000-01-01"):
        with pytest.raises(asyncpg.PostgresError) as caught:
            await store.conn.execute(f"select weft.enqueue('h', run_at => '{moment}')")
        assert (caught.value.sqlstate, str(caught.value).partition(":")[0]) == ("WF002", "run_at")
    assert await store.conn.fetchval(WRITTEN) == 0


@pytest.mark.parametrize("fields", [{"queue": "nowhere"}, {"queue": None}, {"queue": ""}])
async def test_an_unknown_queue_is_refused_with_a_code_of_its_own(store: Store, fields: dict[str, Any]) -> None:
    with pytest.raises(asyncpg.PostgresError) as caught:
        await _enqueue(store, **fields, idempotency_key="i")
    assert caught.value.sqlstate == "WF001"
    assert str(caught.value).startswith("queue: there is no queue")
    assert "weft queues create" in str(caught.value.hint)
    assert await store.conn.fetchval(WRITTEN) == 0


@pytest.mark.parametrize("org", ["nobody", "", None])
async def test_an_unknown_org_is_told_and_not_its_queue(store: Store, org: str | None) -> None:
    with pytest.raises(asyncpg.PostgresError, match="org: there is no org") as caught:
        await _enqueue(store, org=org, idempotency_key="i")
    assert caught.value.sqlstate == "WF002"
    assert await store.conn.fetchval(WRITTEN) == 0


async def test_the_engines_own_queues_are_not_for_everybody(store: Store) -> None:
    with pytest.raises(asyncpg.PostgresError, match="queue: "):
        await _enqueue(store, queue="@control")


async def test_what_is_at_the_edge_of_what_is_allowed_is_allowed(store: Store) -> None:
    for fields in (
        {"handler": "h" * 200, "priority": 32767, "max_attempts": 32767, "idempotency_key": "k" * 500},
        {"priority": -32767, "max_attempts": 1, "concurrency_key": "ä" * 500, "timeout": timedelta(days=20_000)},
        {"params": '{"a":"\\\\u0000"}'},
        {"params": ' { "a" : [1, 2.50, null] } '},
        {"params": '{"a":{"$blob":"x"}}'},
        {"params": '{"$blob":"' + "a" * 64 + '","size":5}'},
        {"params": '{"a":"\\ud83d\\ude00 \\\\ud800","\\uD83D\\uDE00":1}'},
        {"params": '{"a":[18446744073709551615,-9223372036854775808,1.5e308,"' + "9" * 40 + '"]}'},
        {"params": '{"a":' + "[" * 199 + "]" * 199 + ',"b":"' + "[{" * 300 + '"}'},
        {"params": '{"a":"' + "x" * (262_144 - 8) + '"}'},
        {"retry": '{"backoff":"linear","initial_delay":0,"max_delay":31622400,"jitter":1}'},
        {"delay": timedelta(0)},
        {"run_at": datetime(2024, 1, 1, tzinfo=UTC)},
    ):
        id = await _enqueue(store, **fields)
        row = await store.task(id)
        assert row["state"] == "ready"
        assert json.loads(row["params"]) == json.loads(fields.get("params", "{}"))


async def test_a_nul_in_a_name_never_reaches_the_function(store: Store) -> None:
    for field in ("handler", "queue", "idempotency_key", "concurrency_key"):
        with pytest.raises((asyncpg.PostgresError, asyncpg.exceptions.DataError)):
            await _enqueue(store, **{field: "a\x00b"})
    assert await store.conn.fetchval(WRITTEN) == 0


async def test_a_trigger_can_enqueue(store: Store) -> None:
    await store.conn.execute(
        """create table purchase (id int, total numeric);
           create function purchase_made() returns trigger language plpgsql as $$
             begin
               perform weft.enqueue('mail:thanks', json_build_object('purchase', new.id),
                                    idempotency_key => new.id::text);
               return new;
             end $$;
           create trigger purchase_made after insert on purchase for each row execute function purchase_made();
           insert into purchase values (1, 9.99), (2, 5), (1, 9.99)"""
    )
    try:
        rows = await store.conn.fetch("select handler, params::text from weft.tasks order by id")
        assert [json.loads(row["params"]) for row in rows] == [{"purchase": 1}, {"purchase": 2}]
    finally:
        await store.conn.execute("drop table purchase; drop function purchase_made")


async def test_the_views_tell_a_task_wherever_it_is(store: Store) -> None:
    worker = await store.worker()
    long = json.dumps({"text": "x" * 1000})
    live, done = await store.enqueue(params=long), await store.enqueue(priority=5, params=long)
    await store.complete(worker, await store.claim_one(worker), output='{"n": 1}')
    rows = {row["id"]: row for row in await store.conn.fetch("select * from weft.tasks")}
    assert (rows[live]["state"], rows[done]["state"], rows[done]["output"]) == ("ready", "completed", '{"n": 1}')
    assert {row["params"] for row in rows.values()} == {long}
    assert rows[done]["ended_at"] >= rows[done]["claimed_at"] >= rows[done]["created_at"]
    assert (rows[done]["queue"], rows[done]["priority"], rows[live]["ended_at"]) == ("default", 5, None)


async def test_the_views_cannot_be_written_to(store: Store) -> None:
    await store.enqueue()
    for view in ("tasks", "attempts", "queues", "workers", "orgs", "audits"):
        for statement in (f"delete from weft.{view}", f"update weft.{view} set org_id = 1"):
            with pytest.raises(asyncpg.PostgresError):
                await store.conn.execute(statement)
    assert await store.conn.fetchval("select count(*) from weft.task") == 1


async def test_ids_made_in_sql_grow_and_tell_the_time(store: Store) -> None:
    ids = [row[0] for row in await store.conn.fetch("select weft.next_id() from generate_series(1, 20000)")]
    assert len(set(ids)) == 20_000
    assert ids == sorted(ids)
    assert {id >> 12 & 1023 for id in ids} == {0}
    now = await store.conn.fetchval("select weft.now()")
    assert timedelta(0) <= now - time_of(ids[0]) < timedelta(seconds=30)


async def test_ids_made_at_one_moment_on_many_connections_are_unique(store: Store, url: str) -> None:
    async def make() -> list[int]:
        conn = await asyncpg.connect(url)
        rows = await conn.fetch("select id from (select (weft.enqueue('h')).id from generate_series(1, 500)) s")
        await conn.close()
        return [row[0] for row in rows]

    made = [id for ids in await asyncio.gather(*(make() for _ in range(4))) for id in ids]
    assert len(set(made)) == 2000


async def test_ids_that_sessions_make_in_a_flood_are_all_different_and_those_of_each_grow(url: str) -> None:
    async def make() -> list[int]:
        conn = await asyncpg.connect(url)
        rows = await conn.fetch("select weft.next_id() from generate_series(1, 100000)")
        await conn.close()
        return [row[0] for row in rows]

    made = await asyncio.gather(*(make() for _ in range(4)))
    assert all(ids == sorted(ids) for ids in made)
    assert len({id for ids in made for id in ids}) == 400_000


@pytest.mark.own_database
async def test_who_is_held_up_between_the_clock_and_the_number_takes_both_anew(store: Store) -> None:
    await store.conn.execute("create sequence looks")
    await store.conn.execute(
        "create or replace function weft.now() returns timestamptz language sql volatile return clock_timestamp() "
        "+ case when nextval('looks') = 2 then interval '1 second' else interval '0' end"
    )
    first = await store.conn.fetchval("select weft.next_id()")
    looks, number = (
        await store.conn.fetchrow("select l.last_value, i.last_value from looks l, weft.id_sequence i") or ()
    )
    assert (looks, first & 4095) == (4, number)


async def test_a_session_makes_ids_on_when_the_clock_is_put_back(store: Store) -> None:
    ahead = await store.conn.fetchval("select weft.next_id() from weft.now()")
    await store.conn.execute("select set_config('weft.last_id', $1, false)", str(ahead + (3600_000 << 22)))
    assert 0 < await store.conn.fetchval("select weft.next_id()") - ahead < 60_000 << 22


async def test_sql_and_python_agree_on_the_first_id_of_a_moment(store: Store) -> None:
    moments = [
        datetime(2024, 1, 1, tzinfo=UTC) + timedelta(microseconds=step * 7_919_173_331)
        for step in range(0, 260_000, 131)
    ] + [datetime(2020, 1, 1, tzinfo=UTC), datetime(2024, 1, 1, 0, 0, 0, 999, tzinfo=UTC)]
    rows = await store.conn.fetch(
        "select weft.first_id_at(m) from unnest($1::timestamptz[]) with ordinality as u (m, n) order by n", moments
    )
    assert [row[0] for row in rows] == [first_id_at(moment) for moment in moments]
