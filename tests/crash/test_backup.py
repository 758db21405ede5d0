"""A backup that is made amid work, restored into a fresh home: what it holds goes on, and none of it is done twice."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest

import weft as sdk
from crash import ledger
from crash.checker import check, check_outcomes
from crash.harness import LIVENESS, crew_at, until, until_settled
from room import make_home
from weft.core.settings import Settings
from weft.db import embedded, migrate

WORLD = """
  select (select count(*) from weft.task) as open, (select count(*) from weft.task_done) as ended,
    greatest((select max(id) from weft.task), (select max(id) from weft.task_done)) as task,
    (select max(id) from weft.worker) as worker, (select max(token) from weft.lease) as token
"""


@pytest.fixture
async def homes() -> AsyncIterator[list[Path]]:
    """Two homes, each for a server of its own."""
    made = [make_home("backup") for _ in range(2)]
    yield made
    for home in made:
        await embedded.stop(Settings(home=home), mode="immediate")
        shutil.rmtree(home, ignore_errors=True)


async def weft(home: Path, *words: str) -> str:
    """Run the command line, which must succeed."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "weft", *words, env={"PATH": "/usr/bin:/bin", "WEFT_HOME": str(home)},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    async with asyncio.timeout(LIVENESS):
        output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
    return output.decode()


@pytest.mark.long
async def test_a_backup_made_amid_work_goes_on_in_another_home_and_loses_nothing_acknowledged(
    homes: list[Path], tmp_path: Path
) -> None:
    old_home, new_home = homes
    file = tmp_path / "weft.dump"
    server = await embedded.ensure_running(Settings(home=old_home))
    await migrate.upgrade(server.url)
    async with crew_at(server.url, tmp_path / "crew") as crew:
        conn = await asyncpg.connect(server.url)
        await crew.workers(2, worker_loss_limit=1000)
        async with sdk.Client(settings=Settings(home=old_home)) as client:
            # Running when the backup is made, whatever else is.
            gated = [(await client.enqueue("gated", {"folder": str(crew.folder)})).id for _ in range(4)]
        await crew.until_started(*gated)
        await crew.submitter(1, window=10)
        await until(lambda: conn.fetchval("select count(*) > 100 from weft.task_done"), "work is under way")
        acknowledged = crew.ledger().acknowledged
        await weft(old_home, "db", "backup", str(file))
        begun = await conn.fetchval("select count(*) from weft.task_done")
        await until(lambda: conn.fetchval("select count(*) > $1 from weft.task_done", begun + 50), "work went on")
        await crew.disband()
        before = await conn.fetchrow(WORLD)
        assert before is not None
        await check(conn)
        await conn.close()
    await weft(old_home, "db", "stop")

    await weft(new_home, "db", "restore", str(file))
    server = await embedded.ensure_running(Settings(home=new_home))
    conn = await asyncpg.connect(server.url)
    await check(conn)
    restored = await conn.fetchrow(WORLD)
    assert restored is not None
    assert restored["ended"] < before["ended"]
    held = await conn.fetch("select id, attempt, worker_id from weft.task where state = 'running'")
    assert {row["id"] for row in held} >= set(gated)
    await keep_what_was_backed_up(conn, tmp_path / "crew", acknowledged)
    (tmp_path / "crew" / "open").touch()
    async with crew_at(server.url, tmp_path / "crew") as crew:
        await crew.workers(2, worker_loss_limit=1000)
        submitter = await crew.submitter(3, window=10)
        await until(
            lambda: conn.fetchval("select count(*) > 50 from weft.task_done where id > $1", before["task"]),
            "new work is done too",
        )
        assert await submitter.finish() == 0
        await until_settled(conn)
        states = await check_outcomes(conn, crew.ledger())
        assert set(states) == {"completed"}
        after = await conn.fetchrow(WORLD)
    assert after is not None
    # What was running goes on under fences above those of the backup, and of whoever worked on after it.
    rows = await conn.fetch(
        "select id, attempt, worker_id from weft.task_done where id = any ($1)", [r["id"] for r in held]
    )
    granted = {row["id"]: row["attempt"] for row in held}
    assert all(row["attempt"] > granted[row["id"]] for row in rows)
    assert all(row["worker_id"] > before["worker"] for row in rows)
    assert after["token"] > restored["token"]
    new = await conn.fetch("select id from weft.task_done where id > $1", restored["task"])
    assert min(row["id"] for row in new) > before["task"], "no id is given out again"
    print(
        f"backup: {len(acknowledged)} acknowledged before, {restored['open']} open, {len(held)} running, {dict(after)}"
    )
    await conn.close()


async def keep_what_was_backed_up(
    conn: asyncpg.Connection[asyncpg.Record], folder: Path, acknowledged: set[int]
) -> None:
    """Forget in the ledger what came after the backup: in the restored database it has not happened."""
    rows = await conn.fetch("select id, attempt from weft.task union all select id, attempt from weft.task_done")
    granted = {row["id"]: row["attempt"] for row in rows}
    lines = (folder / ledger.ATTEMPTS).read_text().splitlines()
    kept = [line for line in lines if int(line.split()[2]) <= granted.get(int(line.split()[1]), 0)]
    (folder / ledger.ATTEMPTS).write_text("".join(f"{line}\n" for line in kept))
    (folder / ledger.ACKNOWLEDGED).unlink()
    ledger.acknowledge(folder, acknowledged)
