"""A damaged Parquet file ends at most the query that reads it."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from pathlib import Path

import duckdb
import pytest
import pytest_asyncio

from depth import daily
from weft.core.errors import WeftError
from weft.core.query_errors import InvalidQuery, QueryCrashed, QueryLimitReached
from weft.data.query_model import Attached, QueryLimits
from weft.data.query_process import QueryProcess

pytestmark = pytest.mark.asyncio(loop_scope="module")
SELECT = """
    select range as a, 'text ' || (range % 50) as b, [range, range + 1] as c, {'x': range % 3, 'y': 'z'} as d,
      (range % 100)::decimal(10, 2) as e, date '2026-01-01' + (range % 300)::integer as f, range % 7 = 0 as g
    from range(3000)
"""
SQL = "select count(a), min(b), sum(len(c)), max(d.y), sum(e), max(f), count_if(g) from t where b <> 'x'"
ROUNDS = 60


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def queries() -> AsyncIterator[QueryProcess]:
    async with QueryProcess(QueryLimits(seconds=20, memory=300_000_000)) as process:
        yield process


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """A file of each compression, sound."""
    folder = tmp_path_factory.mktemp("whole")
    found = {}
    with duckdb.connect() as connection:
        for compression in ("snappy", "zstd", "uncompressed", "gzip", "lz4_raw"):
            path = folder / f"{compression}.parquet"
            connection.execute(f"copy ({SELECT}) to '{path}' (format parquet, compression {compression})")
            found[compression] = path.read_bytes()
    return found


def damaged(chance: random.Random, whole: bytes) -> bytes:
    """Return a file that is cut, or has other bytes in its body or its footer, or parts in another's place."""
    data = bytearray(whole)
    match chance.randrange(5):
        case 0:
            return bytes(data[: chance.randrange(len(data))])
        case 1:
            for _ in range(chance.randrange(1, 20)):
                data[chance.randrange(len(data))] = chance.randrange(256)
        case 2:
            footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
            for _ in range(chance.randrange(1, 6)):
                data[chance.randrange(footer, len(data) - 4)] ^= 1 << chance.randrange(8)
        case 3:
            begin, size = chance.randrange(len(data)), chance.randrange(1, 500)
            data[begin : begin + size] = chance.randbytes(size)
        case _:
            one, two, size = (chance.randrange(len(data) // 2) for _ in range(3))
            data[one : one + size] = data[two : two + size]
    return bytes(data)


async def problem_with(queries: QueryProcess, path: Path) -> WeftError | None:
    try:
        async with queries.query(SQL, [Attached("t", (str(path),))]) as answer:
            await answer.read()
    except WeftError as problem:
        return problem
    return None


@pytest.mark.parametrize("seed", daily(range(4), 4))
async def test_a_damaged_file_ends_at_most_its_query(
    queries: QueryProcess, whole: dict[str, bytes], tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    sound = tmp_path / "sound.parquet"
    sound.write_bytes(whole["zstd"])
    outcomes: list[str] = []
    for number in range(ROUNDS):
        path = tmp_path / f"{number}.parquet"
        path.write_bytes(damaged(chance, chance.choice(list(whole.values()))))
        problem = await problem_with(queries, path)
        assert problem is None or isinstance(problem, InvalidQuery | QueryCrashed | QueryLimitReached)
        assert str(tmp_path) not in str(problem)
        outcomes.append("answered" if problem is None else problem.code)
    async with queries.query("select count(*) as n from t", [Attached("t", (str(sound),))]) as answer:
        assert await answer.read() == b'{"n":3000}\n'
    assert outcomes.count("invalid_query") > ROUNDS // 4
