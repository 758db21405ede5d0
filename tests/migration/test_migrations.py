"""Moving the schema: up, down, at once, by hand, blocked, and without special rights."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import golden
import pytest

import weft
from weft.core.errors import InvalidInput, MigrationBlocked, OperatorError, SchemaOutdated
from weft.core.settings import Settings
from weft.db import migrate, revisions
from weft.db.database import Database, ensure_partitions
from weft.db.embedded_programs import pg_bin
from weft.queue import upkeep
from weft.worker.registry import Registry

pytestmark = pytest.mark.own_database

SCHEMAS = "select count(*) from pg_namespace where nspname = 'weft'"


@pytest.fixture
async def empty_url(server_url: str) -> AsyncIterator[str]:
    """A database in which nothing is."""
    name = f"m_{uuid.uuid4().hex[:12]}"
    admin = await asyncpg.connect(server_url)
    await admin.execute(f"create database {name}")
    yield urlsplit(server_url)._replace(path=f"/{name}").geturl()
    await admin.execute(f"drop database {name} with (force)")
    await admin.close()


@pytest.mark.embedded
async def test_the_schema_is_the_one_that_was_agreed_on(url: str) -> None:
    assert golden.dump(url) == golden.FILE.read_text(encoding="utf-8"), (
        "the schema has changed: run `python -m tests.migration.golden` and look at the difference"
    )


async def test_down_leaves_nothing_and_up_again_gives_the_same(url: str) -> None:
    before = golden.dump(url)
    steps: list[str] = []
    await migrate.downgrade(url, "base", steps.append)
    assert steps == [revision for revision, _ in migrate.history()]
    conn = await asyncpg.connect(url)
    left = await conn.fetch(
        """select relname as name from pg_class where relnamespace = 'weft'::regnamespace
           union select proname from pg_proc where pronamespace = 'weft'::regnamespace
           union select typname from pg_type where typnamespace = 'weft'::regnamespace and typtype = 'e'"""
    )
    assert {row["name"] for row in left} <= {"schema_revision", "schema_revision_pkc"}
    assert await revisions.current(conn) is None
    await migrate.upgrade(url)
    assert golden.dump(url) == before
    assert await revisions.current(conn) == revisions.head()
    await conn.close()


async def test_an_upgrade_of_what_is_up_to_date_changes_nothing(url: str) -> None:
    conn = await asyncpg.connect(url)
    id = await conn.fetchval("select id from weft.enqueue('h')")
    await migrate.upgrade(url)
    assert await conn.fetchval("select count(*) from weft.task where id = $1", id) == 1
    await conn.close()


async def test_eight_processes_that_upgrade_at_once_all_succeed(empty_url: str, url: str) -> None:
    code = "import asyncio, sys; from weft.db import migrate; asyncio.run(migrate.upgrade(sys.argv[1]))"
    processes = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-c", code, empty_url, stderr=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL
        )
        for _ in range(8)
    ]
    errors = [(await process.communicate())[1].decode()[-400:] for process in processes]
    assert [process.returncode for process in processes] == [0] * 8, "\n".join(errors)
    assert golden.dump(empty_url) == golden.dump(url)


async def test_an_outside_database_is_refused_with_the_command_to_run_and_not_touched(empty_url: str) -> None:
    settings = Settings.load(environ={}, database_url=empty_url)
    with pytest.raises(SchemaOutdated, match="no Weft schema yet: run `weft migrate upgrade`"):
        async with weft.Client(settings=settings):
            pass
    conn = await asyncpg.connect(empty_url)
    assert await conn.fetchval(SCHEMAS) == 0
    await conn.close()


@pytest.mark.parametrize("change", ["update {} set digest = 'another'", "alter table {} drop column digest"])
async def test_a_database_that_came_to_its_revision_by_another_build_is_refused_with_what_to_do(
    url: str, change: str
) -> None:
    conn = await asyncpg.connect(url)
    await conn.execute(change.format("weft.schema_revision"))
    for migrates in (False, True):
        with pytest.raises(SchemaOutdated, match=r"another build of Weft.*weft migrate downgrade.*weft db reset"):
            await Database.open(Settings.load(environ={}, database_url=url), migrate=migrates)
    with pytest.raises(SchemaOutdated, match="another build"):
        await migrate.upgrade(url)
    if change.startswith("update"):
        await migrate.downgrade(url, "0002")
        assert await revisions.current(conn) == "0002"
        await migrate.upgrade(url)
        assert await revisions.is_same(conn)
    await conn.close()


async def test_a_database_of_another_build_is_not_brought_to_a_later_revision(url: str) -> None:
    conn = await asyncpg.connect(url)
    await migrate.downgrade(url, "0003")
    await migrate.upgrade(url)
    await migrate.downgrade(url, "0003")
    await conn.execute("update weft.schema_revision set digest = 'another'")
    with pytest.raises(SchemaOutdated, match="another build"):
        await migrate.upgrade(url)
    assert await revisions.current(conn) == "0003"
    await conn.close()


async def test_a_database_of_a_newer_release_is_refused(url: str) -> None:
    conn = await asyncpg.connect(url)
    await conn.execute("update weft.schema_revision set version_num = '9999'")
    await conn.close()
    for migrates in (False, True):
        with pytest.raises(SchemaOutdated, match="newer than this release"):
            await Database.open(Settings.load(environ={}, database_url=url), migrate=migrates)
    for step in (migrate.upgrade(url), migrate.downgrade(url, "base")):
        with pytest.raises(SchemaOutdated, match="newer than this release"):
            await step


async def test_every_row_has_an_org_but_those_of_the_installation(url: str) -> None:
    conn = await asyncpg.connect(url)
    without = await conn.fetch(
        """select c.relname from pg_class c
           where c.relnamespace = 'weft'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition
             and not exists (select 1 from pg_attribute a where a.attrelid = c.oid and a.attname = 'org_id'
                             and a.attnotnull)"""
    )
    await conn.close()
    # A blob is stored once for all; `task_blob` has the org of the task that refers to it.
    assert {row[0] for row in without} == {"org", "machine", "lease", "schema_revision", "blob", "tally_mark"}


async def test_a_server_that_is_too_old_is_refused(empty_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migrate, "OLDEST", 99)
    with pytest.raises(OperatorError, match="and Weft needs 99 or later: upgrade PostgreSQL"):
        await migrate.upgrade(empty_url)


async def test_a_migration_that_never_gets_its_turn_says_that_another_has_it(
    empty_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrate, "TURN_TIMEOUT", "50ms")
    conn = await asyncpg.connect(empty_url)
    await conn.execute(f"select pg_advisory_lock({migrate._LOCK})")
    with pytest.raises(MigrationBlocked, match=r"waited 50ms for a lock and gave up.*end another migration"):
        await migrate.upgrade(empty_url)
    await conn.close()


async def test_the_printed_sql_applied_by_hand_gives_the_same_schema(empty_url: str, url: str, tmp_path: Path) -> None:
    script = tmp_path / "upgrade.sql"
    script.write_text(migrate.sql_of_upgrade(), encoding="utf-8")
    applied = await asyncio.to_thread(
        subprocess.run,
        [str(pg_bin() / "psql"), "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", empty_url, "-f", str(script)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (applied.returncode, applied.stderr) == (0, "")
    assert golden.dump(empty_url) == golden.dump(url)
    async with weft.Client(settings=Settings.load(environ={}, database_url=empty_url, home=tmp_path)) as client:
        handle = await client.enqueue("h")
        assert (await client.get_task(handle.id)).state == "ready"


async def test_a_migration_that_waits_too_long_for_a_lock_gives_up_and_changes_nothing(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrate, "LOCK_TIMEOUT", "100ms")
    before = golden.dump(url)
    conn = await asyncpg.connect(url)
    reader = conn.transaction()
    await reader.start()
    await conn.fetchval("select count(*) from weft.task")
    with pytest.raises(migrate.MigrationBlocked, match=r"gave up, nothing is changed: .*pg_stat_activity"):
        await migrate.downgrade(url, "base")
    assert golden.dump(url) == before
    await reader.rollback()
    assert await revisions.current(conn) == revisions.head()
    await conn.close()


async def test_one_who_waits_for_another_that_migrates_does_not_give_up_early(
    empty_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock that makes upgrades queue is no lock of the schema: whoever waits there waits for its turn."""
    monkeypatch.setattr(migrate, "LOCK_TIMEOUT", "100ms")
    conn = await asyncpg.connect(empty_url)
    await conn.execute("select pg_advisory_lock($1)", migrate._LOCK)
    waiting = asyncio.create_task(migrate.upgrade(empty_url))
    async with asyncio.timeout(60):
        while True:
            if waiting.done() or await conn.fetchval("select count(*) from pg_locks where not granted"):
                break
            await asyncio.sleep(0.01)
    done, _ = await asyncio.wait([waiting], timeout=0.3)
    await conn.execute("select pg_advisory_unlock($1)", migrate._LOCK)
    await asyncio.wait([waiting])
    assert not done
    assert waiting.exception() is None
    await conn.close()


async def test_an_unknown_revision_is_refused_with_a_suggestion(empty_url: str) -> None:
    with pytest.raises(InvalidInput, match=r"revision: there is no revision 'haed'. Did you mean 'head'\?"):
        await migrate.upgrade(empty_url, "haed")
    with pytest.raises(InvalidInput, match="revision: there is no revision '0815'"):
        migrate.sql_of_upgrade("0815")
    conn = await asyncpg.connect(empty_url)
    assert await conn.fetchval(SCHEMAS) == 0
    await conn.close()


def test_revisions_are_numbered_in_order_and_told_newest_first() -> None:
    numbers = list(revisions.all_revisions())
    assert numbers == [f"{n:04}" for n in range(1, len(numbers) + 1)]
    assert [revision for revision, _ in migrate.history()] == numbers[::-1]
    assert all(title for _, title in migrate.history())


async def test_an_ordinary_user_can_migrate_and_run_everything(empty_url: str, tmp_path: Path) -> None:
    user = f"u_{uuid.uuid4().hex[:8]}"
    parts = urlsplit(empty_url)
    name = parts.path[1:]
    admin = await asyncpg.connect(empty_url)
    await admin.execute(f"create role {user} login nosuperuser; alter database {name} owner to {user}")
    url = parts._replace(netloc=f"{user}@").geturl()
    try:
        await migrate.upgrade(url)
        settings = Settings.load(environ={}, database_url=url, home=tmp_path, profile="fast")
        registry = Registry()

        @registry.task(name="double")
        async def double(n: int) -> int:
            return 2 * n

        async with weft.Client(settings=settings) as client:
            await client.limit_queue("default", 3)
            handles = await client.enqueue_many(
                [weft.NewTask("double", {"n": n}, concurrency_key="k") for n in range(9)]
            )
            async with weft.Worker(client=client, registry=registry):
                assert [await client.wait(handle.id, timeout=60) for handle in handles] == [2 * n for n in range(9)]
            await client.database.run(ensure_partitions)
            assert await upkeep.drop_partitions(client.database, timedelta(days=-3))
        await migrate.downgrade(url, "base")
    finally:
        await admin.execute(f"reassign owned by {user} to current_user; drop owned by {user}; drop role {user}")
        await admin.close()
