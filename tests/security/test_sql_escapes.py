"""Untrusted SQL reads what it was given, and nothing else on the machine, whatever it tries."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio
import sql_bombs
import sql_world
from sql_world import World

from depth import daily
from weft.core.errors import WeftError
from weft.core.query_errors import InvalidQuery, QueryCrashed, QueryLimitReached
from weft.data.query_model import Attached, QueryLimits
from weft.data.query_process import QueryProcess

pytestmark = pytest.mark.asyncio(loop_scope="module")

COUNT = sql_world.ESCAPES.read_text(encoding="utf-8").count("\n\n") + 1
HERE = Path(__file__).parent

# What Weft lets through because it shows nothing and does nothing.
HARMLESS = {
    "a value of a variable",
    "SQL out of JSON",
    "see which files are allowed, in the order",
}
TINY = QueryLimits(memory=100_000_000, spill=20_000_000, seconds=2, cpu_seconds=2, rows=50_000, bytes=5_000_000)


@dataclass(frozen=True)
class Tried:
    """What came of an attempt: bytes of an answer, or an error."""

    answer: str
    error: WeftError | None


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = sql_world.make(tmp_path_factory.mktemp("world"))
    yield made
    made.listener.close()


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def queries() -> AsyncIterator[QueryProcess]:
    os.environ["WEFT_TEST_CANARY"] = sql_world.CANARY
    async with QueryProcess(TINY) as process:
        del os.environ["WEFT_TEST_CANARY"]
        yield process


async def attempt(queries: QueryProcess, world: World, sql: str) -> Tried:
    try:
        async with queries.query(sql, [Attached("orders", (world.orders,))], "json") as answer:
            return Tried((await answer.read()).decode(), None)
    except WeftError as problem:
        return Tried(str(problem), problem)


async def next_query_is_answered(queries: QueryProcess, world: World) -> bool:
    return (await attempt(queries, world, "select count(*) as n from orders")).answer == '{"n":10}\n'


async def test_all_walls_stand_here(queries: QueryProcess) -> None:
    assert {wall.name: wall.why for wall in queries.walls} == dict.fromkeys(("limits", "privileges", "files", "calls"))


async def test_there_are_enough_attempts() -> None:
    assert COUNT >= 150


@pytest.mark.parametrize("number", range(COUNT))
async def test_an_attempt_to_escape_fails(queries: QueryProcess, world: World, number: int) -> None:
    what, sql = world.escapes()[number]
    before = world.state()
    tried = await attempt(queries, world, sql)
    assert world.shows(tried.answer, sql) == [], what
    assert isinstance(tried.error, InvalidQuery) or what in HARMLESS, f"{what}: {tried}"
    assert world.state() == before, what
    assert not world.was_called(), what


async def test_after_all_attempts_queries_are_answered(queries: QueryProcess, world: World) -> None:
    assert await next_query_is_answered(queries, world)


@pytest.mark.parametrize("wall", ["duckdb", "kernel"])
async def test_each_wall_holds_alone(world: World, tmp_path: Path, wall: str) -> None:
    """Contents of others are not shown, nothing outside changes, nobody is called, with only this one wall."""
    escapes = world.escapes()
    before = world.state()
    done = subprocess.run(
        [sys.executable, str(HERE / "sql_prison.py"), wall, world.orders, world.secret, str(tmp_path)],
        input=json.dumps(escapes), capture_output=True, text=True, check=True, timeout=110,
    )  # fmt: skip
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) == len(escapes)
    assert [each["what"] for each in found if sql_world.CANARY in each["answer"]] == []
    assert [each["what"] for each in found if "WALLS MISSING" in each["answer"]] == []
    assert world.state() == before
    assert not world.was_called()
    if wall == "duckdb":
        begins = ("set ", "reset ", "pragma memory", "pragma temp")
        settings = [what for what, sql in escapes if sql.startswith(begins) and not sql.startswith("set variable")]
        assert len(settings) >= 25
        assert [each["what"] for each in found if each["what"] in settings and each["answer"].startswith("[")] == []


BOMBS = sql_bombs.bombs()


@pytest.mark.parametrize("what", daily(BOMBS, 3))
async def test_what_takes_too_much_ends_alone(queries: QueryProcess, world: World, what: str) -> None:
    tried = await attempt(queries, world, BOMBS[what])
    assert tried.error is None or isinstance(tried.error, InvalidQuery | QueryLimitReached | QueryCrashed)
    assert world.shows(tried.answer, BOMBS[what]) == []
    assert await next_query_is_answered(queries, world)
