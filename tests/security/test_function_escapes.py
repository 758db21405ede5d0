"""A function that somebody wrote into a DAG reads its table, and nothing else on the machine, whatever it tries."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
import pytest_asyncio
import sql_world
from function_escapes import ESCAPES, code_of
from sql_world import World

from weft.core.errors import WeftError
from weft.core.query_errors import InvalidQuery, QueryCrashed, QueryLimitReached
from weft.data.query_model import Attached, QueryLimits
from weft.data.query_process import QueryProcess

pytestmark = pytest.mark.asyncio(loop_scope="module")

TINY = QueryLimits(memory=100_000_000, spill=20_000_000, seconds=3, cpu_seconds=3, rows=50_000, bytes=5_000_000)
SCHEMA = pa.schema([("a", pa.int64())]).serialize().to_pybytes()
# What would mean that an attempt was none.
STUMBLES = ("ImportError", "ModuleNotFoundError", "NameError", "AttributeError", "SyntaxError", "TypeError")


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


async def attempt(queries: QueryProcess, world: World, code: str) -> tuple[str, WeftError | None]:
    """Return what came of it: rows, or an error."""
    try:
        async with queries.compute(code, "transform", Attached("changes", (world.orders,)), SCHEMA) as answer:
            table = pa.ipc.open_stream(await answer.read()).read_all()
            table.validate(full=True)
            return str(table.to_pylist()), None
    except WeftError as problem:
        return str(problem), problem


async def next_one_is_answered(queries: QueryProcess, world: World) -> bool:
    answer, _ = await attempt(queries, world, "def transform(table): return {'n': [table.num_rows]}")
    return answer == "[{'n': 10}]"


@pytest.mark.parametrize("what", ESCAPES)
async def test_an_attempt_to_escape_fails(queries: QueryProcess, world: World, what: str) -> None:
    places = {
        "secret": world.secret, "outside": str(world.outside), "own": str(world.own),
        "port": world.listener.getsockname()[1], "pid": os.getpid(),
    }  # fmt: skip
    before = world.state()
    answer, _ = await attempt(queries, world, code_of(ESCAPES[what], places))
    assert sql_world.CANARY not in answer, what
    assert "ESCAPED" not in answer, f"{what}: {answer}"
    assert not any(each in answer for each in STUMBLES), f"{what}: {answer}"
    assert world.state() == before, what
    assert not world.was_called(), what


BOMBS = {
    "a loop": "def transform(table):\n    while True: pass",
    "at the beginning": "while True: pass",
    "memory": "def transform(table):\n    x = [b'x' * 10**7 for _ in range(10**4)]\n    return {'n': [len(x)]}",
    "rows": "def transform(table): return {'n': list(range(100_000))}",
    "bytes": "def transform(table): return {'n': ['x' * 10_000_000]}",
    "threads": (
        "import threading\ndef transform(table):\n    while True: threading.Thread(target=transform, args=(0,)).start()"
    ),
    "recursion": "def transform(table): return transform(table)",
    "a crash": "import ctypes\ndef transform(table): ctypes.string_at(0)",
    "an end": "import os\ndef transform(table): os._exit(0)",
    "an end by a signal": "import os, signal\ndef transform(table): os.kill(os.getpid(), signal.SIGKILL)",
    "a spill": "def transform(table):\n    f = open('spill/x', 'wb')\n    while True: f.write(b'x' * 10**6)",
    "lies to whoever asked": "import os\ndef transform(table): os.write(3, b'C' + b'\\xff' * 100)",
    "lies in good form": "import os\ndef transform(table): os.write(3, b'E\\x00\\x00\\x00\\x02{}')",
    "no answer": "import os\ndef transform(table): os.close(3)",
    "an answer without an end": "import os\ndef transform(table):\n    while True: os.write(3, b'x' * 10**6)",
    "an answer that is no Arrow": (
        "import os, struct\ndef transform(table):\n"
        "    os.write(3, b'C' + struct.pack('>I', 2) + b'[]')\n"
        "    os.write(3, b'D' + struct.pack('>I', 64) + b'\\xff' * 64)\n"
        "    os.write(3, b'E' + struct.pack('>I', 10) + b'{\"rows\":1}')\n    os._exit(0)"
    ),
}


@pytest.mark.parametrize("what", BOMBS)
async def test_what_takes_too_much_or_lies_ends_alone(queries: QueryProcess, world: World, what: str) -> None:
    before = world.state()
    try:
        answer, error = await attempt(queries, world, BOMBS[what])
        assert error is None or isinstance(error, InvalidQuery | QueryLimitReached | QueryCrashed), answer
    except (ValueError, KeyError, TypeError, OSError, pa.ArrowException):
        pass  # what it said made no sense, and was not believed
    assert world.state() == before
    assert await next_one_is_answered(queries, world)


async def test_there_is_nothing_left_of_functions_in_their_folder(queries: QueryProcess, world: World) -> None:
    code = "import os\ndef transform(table):\n    return {'n': [str(os.getcwd())]}"
    answer, _ = await attempt(queries, world, code)
    folder = Path(answer.split("'")[3])
    assert folder.parent.name.startswith("weft-query-")
    assert await next_one_is_answered(queries, world)
    await queries.stop()
    assert not folder.parent.exists()
