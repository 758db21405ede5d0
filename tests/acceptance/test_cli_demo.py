"""The demo does real work with real workers and leaves the machine as it found it."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import asyncpg
from apps.cli_scene import Cli

from room import make_home


def test_the_demo_sums_up_what_it_did_and_stops_what_it_started() -> None:
    home = make_home("demo")
    cli = Cli(None, home)
    try:
        printed = cli("demo", "--tasks", "200")
        counts = {line.split()[0]: line.split()[1] for line in printed.splitlines() if " " in line.strip()}
        assert (counts["done"], counts["retried"], counts["dead"]) == ("199", "10", "1")
        assert '{"pieces":200,"completed":199,"import":10,"key":40,"orders":40,"primes":109}' in printed
        assert "one at a time: from enqueue to start" in printed
        assert f"export WEFT_HOME={home}" in printed
        assert cli.json("db", "status", code=1)["running"] is False
        assert [task["handler"] for task in cli.json("dead", "list")["tasks"]] == ["demo:work"]
        asyncio.run(_make_that_of_another_build(cli.json("db", "url")["url"]))
        assert f"make it anew: `WEFT_HOME={home} weft db reset --yes`" in cli("demo", code=3)
        with _running(cli):
            assert "another build" in cli("demo", "--renew", code=3)
        printed = cli("demo", "--renew", "--tasks", "20", "--workers", "1")
        assert "weft: the demo's database was made by another build of Weft" in printed
        assert "Try next:" in printed
        assert cli.json("db", "status", code=1)["running"] is False
    finally:
        cli("db", "reset", "--yes")
        shutil.rmtree(home, ignore_errors=True)


@contextlib.contextmanager
def _running(cli: Cli) -> Iterator[None]:
    """Keep the embedded database running, as somebody who uses it would."""
    cli("db", "start")
    try:
        yield
    finally:
        cli("db", "stop")


async def _make_that_of_another_build(url: str) -> None:
    conn = await asyncpg.connect(url)
    await conn.execute("update weft.schema_revision set digest = 'another'")
    await conn.close()


def test_the_demo_leaves_a_database_running_that_ran_before(url: str, home: Path) -> None:
    cli = Cli(url, home)
    assert "Try next:" in cli("demo", "--tasks", "20", "--workers", "1")
    assert cli.json("workers", "list")["workers"] == []
    assert cli.json("db", "status")["running"] is True
