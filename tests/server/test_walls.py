"""The second wall: the server's sessions are held to the org that they act for, whatever a statement forgets."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta

import asyncpg
import pytest
from matrix import make_things

import weft
from granted import DROP_WALLS
from pooler import pooler_to
from weft.core.errors import InvalidInput
from weft.db import migrate
from weft.db.database import Database
from weft.history.collecting import SQL as UPKEEP
from weft.jobs.submit import SQL as JOBS
from weft.queue.blobs import SQL as BLOBS
from weft.queue.look import SQL as TASKS
from weft.queue.model import NewTask
from weft.queue.outbox import SQL as OUTBOX
from weft.server.serving import Server

# What belongs to no org.
_OF_NOBODY = {"blob", "lease", "machine", "schema_revision", "tally_mark"}
# What acts with the rights of the schema's owner and is told an org, called for one; what it answers one who is held to
# another is what it answers for an org that nobody has.
_TOLD_AN_ORG = {
    "acts_on_task": "select weft.acts_on_task({id}, {task})",
    "add_effect": """select weft.add_effect(
        'enqueue_task', '{{"handler": "h", "queue": "{queue}"}}', org => '{slug}')""",
    "enqueue": "select id from weft.enqueue('evil', org => '{slug}', queue => '{queue}', actor => 'ada')",
    "list_jobs": f"select id from weft.list_jobs({{id}}, {'null, ' * 5}0, {2**63 - 1}, true, 9, 99)",
    "list_newest_effects": f"select id from weft.list_newest_effects({{id}}, null, null, 0, {2**63 - 1}, 9)",
    "list_oldest_effects": f"select id from weft.list_oldest_effects({{id}}, null, null, 0, {2**63 - 1}, 9)",
    "uses_blob": "select nullif(bool_or(weft.uses_blob({id}, u.digest)), false) from weft.blob_use u",
    "list_tasks": f"select id from weft.list_tasks({{id}}, null, null, null, 0, {2**63 - 1}, true, 9, 99)",
}


@pytest.fixture
async def server_database(walled_settings: weft.Settings) -> AsyncIterator[Database]:
    """The database as the server's role reaches it."""
    opened = await Database.open(walled_settings)
    yield opened
    await opened.close()


async def test_every_table_has_an_org_and_a_wall(
    server_database: Database, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    tables = (
        "select relname from pg_class where relnamespace = 'weft'::regnamespace and relkind in ('r', 'p') "
        "and not relispartition"
    )
    walled = "select polrelid::regclass::text from pg_policy where not polpermissive and polname like 'wall_%'"
    found = {row[0].removeprefix("weft.").strip('"') for row in await conn.fetch(walled)}
    assert {row[0] for row in await conn.fetch(tables)} - found == _OF_NOBODY


async def test_a_statement_that_forgets_the_org_sees_no_other(
    server_database: Database, client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    ids = []
    for slug in ("acme", "rival"):
        await client.orgs.create(slug)
        ids.append((await client.orgs.show(slug)).id)
        await make_things(client.of_org(ids[-1], slug), slug)
    walled = "select distinct polrelid::regclass::text from pg_policy where not polpermissive"
    tables = [row[0] for row in await conn.fetch(walled) if row[0] != "weft.org"]
    views = [row[0] for row in await conn.fetch(
        "select c.oid::regclass::text from pg_class c join pg_attribute a on a.attrelid = c.oid "
        "where a.attname = 'org_id' and c.relnamespace = 'weft'::regnamespace and c.relkind = 'v'"
    )]  # fmt: skip
    acme, rival = map(server_database.of_org, ids)
    seen = 0
    for name in (*tables, *views):
        try:
            async with acme.acquire() as held:
                rows = await held.fetch(f"select distinct org_id from {name} t")
        except weft.PermissionDenied:
            continue
        seen += len(rows)
        assert {row[0] for row in rows} <= {ids[0], *_shared(name)}, name
    assert seen > 10
    async with rival.acquire() as held:
        assert await held.fetchval("select array_agg(slug) from weft.org") == ["rival"]
        assert await held.fetchval("delete from weft.edge where org_id = $1 returning 1", ids[0]) is None
        for statement in (
            "update weft.task set org_id = $1", "insert into weft.event (org_id, name) values ($1, 'x')",
            "insert into weft.queue (org_id, name) values ($1, 'theirs')",
        ):  # fmt: skip
            with pytest.raises(asyncpg.PostgresError, match=r"row-level security|null value"):
                await held.execute(statement, ids[0])


def _shared(name: str) -> set[int]:
    # The queue of all orchestrators is of the installation's org.
    return {1} if name == "weft.queue" else set()


async def test_a_session_that_is_held_to_no_org_yet_sees_nothing(
    server_database: Database, client: weft.Client
) -> None:
    await client.enqueue("a")
    conn = await server_database.connect_walled()
    assert await conn.fetchval("select count(*) from weft.task") == 0
    assert await conn.fetchval("select count(*) from weft.tasks") == 0
    await conn.close()


async def test_a_session_gets_no_list_of_another_org(
    server_database: Database, client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    ids = []
    for slug in ("acme", "rival"):
        await client.orgs.create(slug)
        ids.append((await client.orgs.show(slug)).id)
        await make_things(client.of_org(ids[-1], slug), slug)
    page = None, None, None, None, None, 0, None, 2**63 - 1, None, True, 50, 2000
    own = await conn.fetch(JOBS.list, ids[1], *page)
    assert own[0]["id"] is not None
    async with server_database.of_org(ids[0]).acquire() as held:
        assert await held.fetch(JOBS.list, ids[1], *page) == []
        assert {row["id"] for row in await held.fetch(JOBS.list, ids[0], *page)}.isdisjoint(row["id"] for row in own)
    tasks = None, None, None, 0, 2**63 - 1, True, 50, 1000
    effects = None, None, 0, 2**63 - 1, 50
    listed = [(TASKS.list, tasks), (OUTBOX.list_newest, effects), (OUTBOX.list_oldest, effects)]
    await client.of_org(ids[1], "rival").add_effect("enqueue_task", {"handler": "h"})
    for statement, asked in listed:
        theirs = await conn.fetch(statement, ids[1], *asked)
        assert theirs[0]["id"] is not None
        async with server_database.of_org(ids[0]).acquire() as held:
            assert await held.fetch(statement, ids[1], *asked) == []
        async with server_database.of_org(ids[1]).acquire() as held:
            assert await held.fetch(statement, ids[1], *asked) == theirs
    async with server_database.of_org(ids[1]).acquire() as held:
        assert await held.fetch(JOBS.list, ids[1], *page) == own
        acts, told = "select cardinality(weft.acts_on_task($1, $2))", client.of_org(ids[0], "acme")
        task_id = (await told.enqueue("a")).id
        await told.cancel(task_id)
        assert await held.fetchval(acts, ids[0], task_id) == 0
        assert await conn.fetchval(acts, ids[0], task_id) == 1
        assert await conn.fetchval(acts, ids[1], task_id) == 0
    await conn.execute("create role lists_stranger; grant usage on schema weft to lists_stranger")
    try:
        await conn.execute("set role lists_stranger")
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await conn.fetch(JOBS.list, ids[1], *page)
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await conn.fetch(TASKS.list, ids[1], *tasks)
        for statement in (OUTBOX.list_newest, OUTBOX.list_oldest):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await conn.fetch(statement, ids[1], *effects)
    finally:
        await conn.execute("reset role; drop owned by lists_stranger; drop role lists_stranger")


async def test_nothing_that_acts_with_the_owners_rights_acts_for_another_org(
    server_database: Database, client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    known = await conn.fetch(
        """select p.proname as name, 'org' = any (p.proargnames) as is_told,
             has_function_privilege('public', p.oid, 'execute') as is_for_all
           from pg_proc p where p.pronamespace = 'weft'::regnamespace and p.prosecdef"""
    )
    assert not [row["name"] for row in known if row["is_for_all"]]
    assert {row["name"] for row in known if row["is_told"]} == set(_TOLD_AN_ORG)
    ids = []
    for slug in ("acme", "rival"):
        await client.orgs.create(slug)
        ids.append((await client.orgs.show(slug)).id)
        await make_things(client.of_org(ids[-1], slug), slug)
    acme = client.of_org(ids[0], "acme")
    await acme.create_queue("secret")
    await acme.cancel(task := (await acme.enqueue("a")).id)
    await acme.add_effect("enqueue_task", {"handler": "h"})

    async def answer(held: asyncpg.Connection[asyncpg.Record], name: str, org: tuple[int, str], queue: str) -> object:
        try:
            asked = _TOLD_AN_ORG[name].format(id=org[0], slug=org[1], queue=queue, task=task)
            return [tuple(row) for row in await held.fetch(asked)]
        except asyncpg.PostgresError as problem:
            return str(problem).replace(org[1], "ORG")

    theirs, nobodys = (ids[0], "acme"), (7, "nowhere")
    for name in _TOLD_AN_ORG:
        count = "select (select count(*) from weft.task) + (select count(*) from weft.outbox)"
        before = await conn.fetchval(count)
        async with server_database.of_org(ids[1]).acquire() as held:
            unknown = await answer(held, name, nobodys, "default")
            for queue in ("secret", "default", "there is none"):
                assert await answer(held, name, theirs, queue) == unknown, name
        assert await conn.fetchval(count) == before
        async with server_database.of_org(ids[0]).acquire() as held:
            found = await answer(held, name, theirs, "secret")
            assert isinstance(found, list), found
            assert found[0][0] is not None, name
            assert found != unknown
    await conn.execute("update weft.blob set put_at = weft.now() - interval '2 days'")
    day = timedelta(days=1)
    async with server_database.of_org(ids[1]).acquire() as held:
        # Whoever collects sees what others use.
        assert await held.fetchval("select count(digest) from weft.blob_use") > 0
        for statement, asked in ((BLOBS.unused, (day,)), (UPKEEP.unused_blobs, (day, []))):
            assert await held.fetch(statement, *asked) == await conn.fetch(statement, *asked)
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await held.fetch("select digest, user_id from weft.blob_use")


async def test_sessions_change_hands_and_each_sees_its_own(server_database: Database, client: weft.Client) -> None:
    ids = []
    for slug in ("acme", "rival"):
        await client.orgs.create(slug)
        ids.append((await client.orgs.show(slug)).id)

    async def look(org_id: int) -> None:
        async with server_database.of_org(org_id).acquire() as held:
            assert await held.fetchval("select array_agg(id) from weft.org") == [org_id]
            await asyncio.sleep(0)

    await asyncio.gather(*(look(ids[n % 2]) for n in range(60)))


async def test_many_tasks_are_written_by_a_role_that_copy_is_not_for(
    server_database: Database, walled_settings: weft.Settings
) -> None:
    async with weft.Client(settings=walled_settings) as held:
        await held.orgs.create("acme")
        org = await held.orgs.show("acme")
        acme = held.of_org(org.id, "acme")
        new = [NewTask("a", {"n": n, "long": "x" * 300}, idempotency_key=str(n)) for n in range(50)]
        first = await acme.enqueue_many(new)
        again = await acme.enqueue_many(new)
        assert [each.id for each in again] == [each.id for each in first]
        assert not any(each.created for each in again)
        assert len((await acme.list_tasks(limit=100)).tasks) == 50
        assert (await acme.get_task(first[7].id)).params == {"n": 7, "long": "x" * 300}


async def test_behind_a_transaction_pooler_each_transaction_is_held(
    walled_settings: weft.Settings, client: weft.Client
) -> None:
    ids = []
    for slug in ("acme", "rival"):
        await client.orgs.create(slug)
        ids.append((await client.orgs.show(slug)).id)
    assert walled_settings.database_url is not None
    with pooler_to(walled_settings.database_url) as pooler:
        opened = await Database.open(replace(walled_settings, database_url=pooler.url, pooler="transaction"))
        for org_id in (*ids, *ids):
            async with opened.of_org(org_id).acquire() as held:
                assert await held.fetchval("select array_agg(id) from weft.org") == [org_id]
        async with opened.acquire() as free:
            assert await free.fetchval("select count(*) from weft.org") == 3
        await opened.close()


@pytest.mark.own_database
async def test_an_upgrade_builds_the_walls_of_new_tables_and_a_server_says_which_are_missing(
    walled_settings: weft.Settings, url: str, conn: asyncpg.Connection[asyncpg.Record],
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    told = "there is no second wall between orgs: its role"
    async with Server(walled_settings, port=0) as server:
        await server.look_at_walls()
        assert told not in caplog.text
    await conn.execute("create table weft.novel (org_id bigint); create table weft.of_nobody (id bigint)")
    async with Server(walled_settings, port=0) as server:
        await server.look_at_walls()
        assert f"{told} shop_server is not held back in novel;" in caplog.text
    async with asyncio.timeout(20), conn.transaction():
        # What has its wall is not locked: somebody may be at work there.
        await conn.execute("lock table weft.task in access share mode")
        await migrate.upgrade(url)
    caplog.clear()
    async with Server(walled_settings, port=0) as server:
        await server.look_at_walls()
        assert told not in caplog.text
    await conn.execute("drop table weft.novel, weft.of_nobody")


@pytest.mark.parametrize(("role", "why"), [("superuser", "is a superuser"), ("owner", "owns the tables")])
async def test_a_server_that_no_wall_holds_says_so(
    settings: weft.Settings, conn: asyncpg.Connection[asyncpg.Record], role: str, why: str,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    owner = await conn.fetchval("select relowner::regrole::text from pg_class where oid = 'weft.task'::regclass")
    await conn.execute(f"create role told_owner login in role {owner}")
    try:
        assert settings.database_url is not None
        address = settings.database_url
        if role == "owner":
            address = address.replace(f"//{owner}@", "//told_owner@")
        async with Server(replace(settings, database_url=address), port=0) as server:
            await server.look_at_walls()
        [record] = [each for each in caplog.records if "no second wall" in each.message]
        assert (record.levelno, why in record.message) == (logging.WARNING, True)
        assert "weft migrate upgrade --server-role ROLE" in record.message
    finally:
        await conn.execute("drop role told_owner")


async def test_a_server_has_all_rights_of_a_worker_and_of_who_keeps_workflows(
    walled_settings: weft.Settings, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    lacking = """
        select c.relname, r from pg_class c, unnest(array['select', 'insert', 'update', 'delete']) r
        where c.relnamespace = 'weft'::regnamespace and c.relkind in ('r', 'p', 'v')
          and (has_table_privilege('shop_worker', c.oid, r) or has_table_privilege('shop_flows', c.oid, r))
          and not has_table_privilege('shop_server', c.oid, r)
        union all
        select p.proname, 'execute' from pg_proc p where p.pronamespace = 'weft'::regnamespace
          and has_function_privilege('shop_worker', p.oid, 'execute')
          and not has_function_privilege('shop_server', p.oid, 'execute')"""
    assert await conn.fetch(lacking) == []


async def test_an_upgrade_admits_the_role_of_servers_or_says_that_there_is_none(
    url: str, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    name, named = "Told's server", '"Told\'s server"'
    with pytest.raises(InvalidInput, match=f"--server-role: there is no role {name}: make it"):
        await migrate.upgrade(url, server_role=name)
    with pytest.raises(InvalidInput, match=r"--server-role: there are no servers before revision 0004"):
        await migrate.upgrade(url, "0003", server_role=name)
    await conn.execute(f"create role {named} login")
    try:
        await migrate.upgrade(url, server_role=name)
        assert await conn.fetchval("select has_table_privilege($1, 'weft.token', 'insert')", name)
        assert not await conn.fetchval("select has_table_privilege($1, 'weft.audit', 'update')", name)
        held = "select count(*) from pg_policy where not polpermissive and polroles = array[$1::text::regrole::oid]"
        assert await conn.fetchval(held, named) > 30
        printed = migrate.sql_of_upgrade(server_role=name)
        assert """select weft.admit_server('"Told''s server"')""" in printed
        assert "perform weft.wall_in(found)" in printed
    finally:
        for statement in (f"drop owned by {named}", f"drop role {named}", DROP_WALLS):
            await conn.execute(statement)
