"""The public SQL functions as a role calls them that has no other right."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import asyncpg
import pytest

import weft
from weft.core.settings import Settings

if TYPE_CHECKING:
    from weft.db.database import type_Connection


@pytest.fixture
async def role(conn: type_Connection) -> AsyncIterator[str]:
    """A role that may call the functions and nothing else; it has a schema of its own."""
    name = f"r_{uuid.uuid4().hex[:12]}"
    await conn.execute(
        f"""create role {name} login; create schema {name} authorization {name};
            grant usage on schema weft to {name}; grant execute on function weft.enqueue, weft.add_effect to {name}"""
    )
    yield name
    await conn.execute(f"drop owned by {name} cascade; drop role {name}")


@pytest.fixture
async def theirs(url: str, role: str) -> AsyncIterator[type_Connection]:
    opened = await asyncpg.connect(urlsplit(url)._replace(netloc=f"{role}@").geturl())
    yield opened
    await opened.close()


async def test_usage_and_execute_are_enough_to_enqueue_and_the_actor_is_who_logged_in(
    conn: type_Connection, theirs: type_Connection, role: str
) -> None:
    id = await theirs.fetchval(
        """select id from weft.enqueue('h', json_build_object('text', repeat('x', 300)), idempotency_key => 'i',
                                       concurrency_key => 'c', delay => interval '0')"""
    )
    effect = await theirs.fetchval("select weft.add_effect('enqueue_task', '{\"handler\":\"h\"}')")
    assert await conn.fetchval("select actor from weft.task where id = $1", id) == role
    assert await conn.fetchval("select actor from weft.outbox where id = $1", effect) == role


async def test_a_trigger_of_such_a_role_enqueues(conn: type_Connection, theirs: type_Connection, role: str) -> None:
    await theirs.execute(
        f"""create table {role}.purchase (id int);
            create function {role}.made() returns trigger language plpgsql as $$
              begin perform weft.enqueue('mail', json_build_object('n', new.id)); return new; end $$;
            create trigger made after insert on {role}.purchase for each row execute function {role}.made();
            insert into {role}.purchase values (1), (2)"""
    )
    assert await conn.fetchval("select count(*) from weft.task where actor = $1", role) == 2


@pytest.mark.parametrize(
    "statement",
    ["select * from weft.task", "select * from weft.tasks", "delete from weft.task", "select weft.next_id()",
     "insert into weft.outbox (org_id, kind, payload) values (1, 'callback', '{}')",
     "select * from weft.put_task('h', '{}', 'default', 0, null, null, null, 3, null, null, null, null, 'default', 'x',"
     " true)"],
)  # fmt: skip
async def test_nothing_else_is_allowed(theirs: type_Connection, statement: str) -> None:
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await theirs.execute(statement)


async def test_nobody_may_enqueue_without_the_grant(conn: type_Connection, theirs: type_Connection, role: str) -> None:
    await conn.execute(f"revoke execute on function weft.enqueue, weft.add_effect from {role}")
    for call in ("weft.enqueue('h')", "weft.add_effect('enqueue_task', '{}')"):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await theirs.execute(f"select * from {call}")


async def test_no_name_of_the_callers_is_looked_up_with_the_owners_rights(
    conn: type_Connection, theirs: type_Connection, role: str
) -> None:
    """Functions, operators, types and tables of the caller's, first in its path and in its temporary schema."""
    for schema in (role, "pg_temp"):
        await theirs.execute(
            f"""create function {schema}.trap(text) returns int language plpgsql as $$
                  begin raise exception 'caught as %', current_user; end $$;
                create function {schema}.length(text) returns int language sql as 'select {schema}.trap($1)';
                create function {schema}.octet_length(text) returns int language sql as 'select {schema}.trap($1)';
                create function {schema}.json_typeof(json) returns text language sql
                  as 'select {schema}.trap($1::text)::text';
                create function {schema}.starts(text, text) returns boolean language sql
                  as 'select {schema}.trap($1) = 1';
                create operator {schema}.~ (leftarg = text, rightarg = text, function = {schema}.starts);
                create table {schema}.task (id int); create table {schema}.queue (id int)"""
        )
    await theirs.execute(f"set search_path = {role}, pg_temp, pg_catalog; set standard_conforming_strings = off")
    with pytest.raises(asyncpg.PostgresError, match=f"caught as {role}"):
        await theirs.execute("select length('trapped'::text)")
    await theirs.execute("select * from weft.enqueue('h', '{\"a\":\"x\"}', retry => '{\"jitter\":1}')")
    await theirs.execute("select weft.add_effect('enqueue_task', '{\"handler\":\"h\"}')")
    assert await conn.fetchval("select count(*) from weft.task") == 1


async def test_whatever_acts_with_the_owners_rights_looks_for_names_where_only_the_owner_puts_them(
    conn: type_Connection,
) -> None:
    known = await conn.fetch(
        """select p.proname as name, p.proconfig as config from pg_proc p
           where p.pronamespace = 'weft'::regnamespace and p.prosecdef"""
    )
    paths = {
        row["name"]: [each.partition("=")[2] for each in row["config"] or () if each.startswith("search_path=")]
        for row in known
    }
    assert {name: path for name, path in paths.items() if path != ["pg_catalog, pg_temp"]} == {}


async def test_a_client_joins_the_transaction_of_such_a_role(
    conn: type_Connection, theirs: type_Connection, settings: Settings
) -> None:
    """Also with params between what SQL takes and what the settings keep inline, and with an effect."""
    large = {"text": "x" * 300_000}
    async with weft.Client(settings=replace(settings, inline_limit=10**6)) as client:
        transaction = theirs.transaction()
        await transaction.start()
        task = await client.enqueue("h", large, connection=theirs)
        effect = await client.add_effect("enqueue_task", {"handler": "h"}, ordering_key="k", connection=theirs)
        assert await client.outbox() == []
        await transaction.commit()
        assert (await client.get_task(task.id)).params == large
        assert [row.id for row in await client.outbox()] == [effect]


@pytest.mark.parametrize(
    ("field", "arguments"),
    [("kind", "'pigeon', '{}'"), ("kind", "null, '{}'"), ("kind", "'callback', '{}'"),
     ("payload", "'enqueue_task', null"), ("payload", "'enqueue_task', '[]'"), ("payload", "'enqueue_task', '{}'"),
     ("payload", "'enqueue_task', '{\"handler\":\"h\",\"colour\":1}'"),
     ("payload", "'enqueue_task', '{\"handler\":\"\\ud800\"}'"),
     ("payload", "'enqueue_task', '{\"handler\":\"\\u0000\"}'"),
     ("payload.handler", "'enqueue_task', '{\"handler\":\"\"}'"),
     ("payload.priority", "'enqueue_task', '{\"handler\":\"h\",\"priority\":\"1\"}'"),
     ("payload.priority", "'enqueue_task', '{\"handler\":\"h\",\"priority\":99999}'"),
     ("payload", "'enqueue_task', '{\"handler\":\"h\",\"priority\":1.5}'"),
     ("payload.params", "'enqueue_task', '{\"handler\":\"h\",\"params\":[1]}'"),
     ("payload.params", "'enqueue_task', '{\"handler\":\"h\",\"params\":{\"$blob\":\"x\",\"size\":5}}'"),
     ("payload", "'enqueue_task', '{\"handler\":\"h\",\"params\":{\"x\":\"\\ud800\\\\\\udc00\"}}'"),
     ("payload.delay", "'enqueue_task', '{\"handler\":\"h\",\"delay\":-5}'"),
     ("payload", "'enqueue_task', '{\"handler\":\"h\",\"delay\":1e300}'"),
     ("payload.timeout", "'enqueue_task', '{\"handler\":\"h\",\"timeout\":0}'"),
     ("payload.max_attempts", "'enqueue_task', '{\"handler\":\"h\",\"max_attempts\":0}'"),
     ("payload.queue", "'enqueue_task', '{\"handler\":\"h\",\"queue\":\"@x\"}'"),
     ("payload.idempotency_key", "'enqueue_task', '{\"handler\":\"h\",\"idempotency_key\":\"\"}'"),
     ("ordering_key", "'enqueue_task', '{\"handler\":\"h\"}', ''"),
     ("org", "'enqueue_task', '{\"handler\":\"h\"}', org => 'nobody'")],
)  # fmt: skip
async def test_a_wrong_effect_is_refused_by_name_and_nothing_is_written(
    conn: type_Connection, field: str, arguments: str
) -> None:
    with pytest.raises(asyncpg.PostgresError) as caught:
        await conn.execute(f"select weft.add_effect({arguments})")
    assert (caught.value.sqlstate, str(caught.value).partition(":")[0]) == ("WF002", field)
    assert await conn.fetchval("select count(*) from weft.outbox") == 0


async def test_an_effect_for_a_queue_that_does_not_exist_is_refused(client: weft.Client, conn: type_Connection) -> None:
    with pytest.raises(weft.UnknownQueue, match="nowhere"):
        await client.add_effect("enqueue_task", {"handler": "h", "queue": "nowhere"})
    assert await conn.fetchval("select count(*) from weft.outbox") == 0


async def test_error_types_that_only_one_task_names_are_refused(client: weft.Client) -> None:
    with pytest.raises(weft.InvalidInput, match=r"retry\.non_retryable: belongs to the handler"):
        await client.enqueue("h", retry=weft.Retry(5, non_retryable=KeyError))
