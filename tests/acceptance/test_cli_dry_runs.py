"""What a rollback and computing anew would do, on the command line, with the database and through a server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeAlias, TypeVar

import asyncpg
from apps.cli_scene import Cli

from live_scene import all_rows, swap

Conn: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
T = TypeVar("T")
_PARTITIONS = """
    insert into weft.dataset_partition (version_id, partition_key, org_id, last_write, rows, bytes, files, written_at)
    select d.current_id, k, 1, 1, 1, 1, 1, now() from weft.dataset d, unnest(array['mon', 'tue', 'wed']) k
    where d.name = 'ticks'"""
# What any request leaves behind: a server that serves, a credential that was used, the answer that a key stands for.
_OF_REQUESTS = {"token", "machine_number", "sequences", "answer"}
_BACK = ("deploy", "rollback", "market", "--plan")
_ANEW = ("live", "rematerialize", "market", "scaled")


def _with(url: str, act: Callable[[Conn], Awaitable[T]]) -> T:
    async def acting() -> T:
        conn = await asyncpg.connect(url)
        try:
            return await act(conn)
        finally:
            await conn.close()

    return asyncio.run(acting())


async def _kept(conn: Conn) -> dict[str, list[str]]:
    return {name: rows for name, rows in (await all_rows(conn)).items() if name not in _OF_REQUESTS}


async def _written(conn: Conn) -> None:
    """Let the second version be in effect, and have newer rows."""
    await swap(conn)
    await conn.execute("update weft.dataset_version set written_at = 'today'::timestamptz - interval '1 day' / number")
    await conn.execute(_PARTITIONS)


def _deploy(cli: Cli, folder: Path, factor: int) -> None:
    job = {"activation": "reactive", "operator": "scale", "execution_strategy": "PerPartition"}
    ticks = {"activation": "source", "operator": "take", "source": {"kind": "event", "event": "tick"}}
    jobs = {
        "ticks": ticks | {"outputs": ["ticks"]},
        "scaled": job | {"inputs": ["ticks"], "outputs": ["scaled"], "config": {"by": factor}},
    }
    path = folder / "market.json"
    path.write_text(json.dumps({"dag": "market", "jobs": jobs}), encoding="utf-8")
    cli("deploy", str(path))


def test_a_command_tells_what_it_would_do_and_does_nothing(url: str, home: Path, tmp_path: Path) -> None:
    near = Cli(url, home)
    _deploy(near, tmp_path, 2)
    _deploy(near, tmp_path, 3)
    _with(url, _written)
    _deploy(near, tmp_path, 4)
    before = _with(url, _kept)
    _look(near)
    assert _with(url, _kept) == before
    with near.through_server() as remote, near.through_server("reader") as reader:
        before = _with(url, _kept)
        _look(remote)
        # Whoever has no role sees none of the datasets; to compute anew, and to ask what that would be, is for writers.
        assert [line.split()[0] for line in reader(*_BACK).splitlines()] == ["JOB", "scaled", "ticks", "would"]
        blind = reader.json(*_BACK)
        assert (blind["datasets"], [each for each in blind["warnings"] if "@" in each]) == ([], [])
        assert "writer" in reader(*_ANEW, "--all", "--dry-run", code=8)
        assert _with(url, _kept) == before
    assert near("deploy", "rollback", "market") == "version 1 of market is in effect, was 2\n"
    told = near("deploy", "rollback", "market", "--to", "1", "--plan")
    assert told.splitlines()[-1] == "nothing changes: version 1 of market is in effect"


def _look(cli: Cli) -> None:
    assert [line.split() for line in cli(*_BACK).splitlines()[:-1]] == [
        "JOB WHAT WHY".split(), "scaled changed config.by; goes on where it was".split(), "ticks unchanged".split(),
        "DATASET WHAT BY NOW THEN".split(), "scaled reused scaled 2 1".split(), "ticks reused ticks 1 1".split(),
    ]  # fmt: skip
    assert cli(*_BACK).splitlines()[-1] == (
        "would bring version 1 of market into effect at once, in the place of 2; "
        "version 3, which is being built, is given up for it"
    )
    plan = cli.json(*_BACK, "--to", "1")
    assert (plan["is_plan"], plan["version"], plan["base"], plan["replaces"]) == (True, 1, 2, 3)
    assert plan["datasets"][0] == {
        "name": "scaled", "action": "reused", "job": "scaled", "version": 1, "current": 2,
    }  # fmt: skip
    assert plan["warnings"][-1].startswith("scaled@1 was last written at ")
    assert "version 9 of market" in cli(*_BACK, "--to", "9", code=4)
    told = cli(*_ANEW, "--all", "--dry-run")
    assert ["scaled", "changed", "anew"] in [line.split() for line in told.splitlines()]
    assert told.splitlines()[-1].startswith("would deploy version 4 of market, built beside what is in effect")
    whole = cli.json(*_ANEW, "--all", "--dry-run")
    assert (whole["is_plan"], whole["version"], whole["base"], whole["replaces"]) == (True, 4, 2, 3)
    assert cli(*_ANEW, "--range", "mon:tue", "--dry-run") == "would compute 2 partitions anew\n"
    counted = cli.json(*_ANEW, "--range", "tue:", "--dry-run")
    assert (counted["id"], counted["partitions"]) == (None, 2)
    assert cli(*_ANEW, "--partitions", "mon", "--dry-run") == "would compute 1 partition anew\n"
    assert cli.json(*_ANEW, "--partitions", "mon,wed", "--dry-run") == {
        "dag": "market", "job": "scaled", "count": 2, "is_dry_run": True,
    }  # fmt: skip
