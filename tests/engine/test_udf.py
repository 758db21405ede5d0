"""The operator `udf`: a function in the DAG over what was written, which can do that and nothing else."""

from __future__ import annotations

from typing import Any, TypeAlias

import asyncpg
from engine_scene import MakeClient

import weft
from far import with_and_without_a_database
from operator_scene import OperatorScene
from weft.worker.registry import Registry

Conn: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

DOUBLED = """
import math
import pyarrow.compute as pc

def transform(table):
    return table.append_column("twice", pc.multiply(table["n"], 2)).append_column(
        "root", [[math.sqrt(n) for n in table["n"].to_pylist()]])
"""


@with_and_without_a_database
async def test_a_function_makes_the_output(client: weft.Client, conn: Conn, registry: Registry) -> None:
    scene = OperatorScene(client, conn, registry)
    await scene.job("doubled", "udf", {"code": DOUBLED}, ["numbers"], "doubled", strategy="partition")
    async with weft.Worker(client=client, registry=registry), weft.Orchestrator(client=client):
        await scene.put("numbers", "a", [{"n": 4}, {"n": 9}])
        await scene.put("numbers", "b", [{"n": 16}])
        await scene.settled()
        found = await scene.rows("doubled")
    assert sorted((row["n"], row["twice"], row["root"]) for row in found) == [(4, 8, 2.0), (9, 18, 3.0), (16, 32, 4.0)]


async def test_rows_and_columns_are_tables_too_and_what_fails_is_told_with_its_line(
    make_client: MakeClient, conn: Conn, registry: Registry
) -> None:
    client = await make_client(query_timeout="5s", query_memory="100MiB")
    scene = OperatorScene(client, conn, registry)
    codes: dict[str, tuple[str, str]] = {
        "syntax": ("def transform(table)\n  return 1", "line 1, column 21: expected ':'"),
        "missing": ("def other(table): pass", "there is no function 'transform' in it"),
        "raises": ("def transform(table):\n    x = 1\n    return table['nothing']", "line 3: KeyError"),
        "type": ("def transform(table): return 7", "transform returned int"),
        "exits": ("def transform(table):\n    raise SystemExit(3)", "line 2: SystemExit: 3"),
        "no_text": ("def transform(table):\n    raise ValueError('a\\ud800b')", "line 2: ValueError: a?b"),
        "no_words": (
            "class Odd(Exception):\n    def __str__(self): raise KeyError\ndef transform(table): raise Odd",
            "line 3: Odd: (it cannot be told)",
        ),
        "loops": ("def transform(table):\n    while True: pass", "did not end within"),
        "memory": ("def transform(table): return [{'x': 'y' * 10**9}]", "memory"),
        "dies": ("import ctypes\ndef transform(table): ctypes.string_at(0)", "ended by SIGSEGV"),
    }
    jobs = {
        name: await scene.job(name, "udf", {"code": code}, ["numbers"], f"out_{name}", max_attempts=1)
        for name, (code, _) in codes.items()
    }
    rows = "def transform(table): return [{'n': n + 1} for n in table['n'].to_pylist()]"
    columns = "def transform(table): return {'n': [1, 2]}"
    await scene.job("rows", "udf", {"code": rows}, ["numbers"], "rows")
    await scene.job("columns", "udf", {"code": columns}, ["numbers"], "columns")
    async with weft.Worker(client=client, registry=registry), weft.Orchestrator(client=client):
        await scene.put("numbers", None, [{"n": 4}])
        for name, job in jobs.items():
            assert codes[name][1] in await scene.error(job), name
        await scene.settled()
        found: list[Any] = [await scene.rows("rows"), await scene.rows("columns")]
    assert found == [[{"n": 5}], [{"n": 1}, {"n": 2}]]


@with_and_without_a_database
async def test_what_the_columns_of_a_function_are_made_of_is_told_by_its_author(
    client: weft.Client, conn: Conn, registry: Registry
) -> None:
    scene = OperatorScene(client, conn, registry)
    said = {"twice": ["n"], "root": ["n", "x"]}
    config = {"code": DOUBLED, "columns_from": said}
    told = await scene.job("doubled", "udf", {**config, "columns_from": {"twice": ["n"]}}, ["numbers"], "doubled")
    both = await scene.job("both", "udf", config, ["numbers", "others"], "both")
    wrong = await scene.job("wrong", "udf", config, ["numbers"], "wrong", max_attempts=1)
    more = {**config, "columns_from": {"nothing": ["n"]}}
    missing = await scene.job("missing", "udf", more, ["numbers"], "missing", max_attempts=1)
    async with weft.Worker(client=client, registry=registry), weft.Orchestrator(client=client):
        await scene.put("numbers", None, [{"n": 4}])
        await scene.settled(told)
        await scene.settled(both)
        edges = (await client.datasets.lineage("numbers.n", direction="down", depth=1)).edges
        assert sorted(edge.target for edge in edges) == ["both.root", "both.twice", "doubled.twice"]
        assert "config.columns_from.root: numbers has no column 'x'; it has n" in await scene.error(wrong)
        assert "columns_from: there is no column 'nothing'; there are n, twice, root" in await scene.error(missing)


async def test_values_that_stand_for_several_are_written_as_what_they_are_and_within_the_limits(
    make_client: MakeClient, conn: Conn, registry: Registry
) -> None:
    client = await make_client(query_memory="100MiB")
    scene = OperatorScene(client, conn, registry)
    coded = "import pyarrow as pa\ndef transform(table):\n    words = pa.array({words})\n    return {{'word': words}}"
    few = coded.format(words="['a', None, 'a']).dictionary_encode(")
    many = coded.format(words="['x' * 10**6]).dictionary_encode().take(pa.array([0] * 10**5)")
    await scene.job("few", "udf", {"code": few}, ["numbers"], "few")
    bomb = await scene.job("many", "udf", {"code": many}, ["numbers"], "many", max_attempts=1)
    chosen = "select 'b'::enum ('a', 'b') as word, ['a'::enum ('a', 'b')] as words from changes"
    await scene.job("chosen", "sql_transform", {"sql": chosen}, ["numbers"], "chosen")
    async with weft.Worker(client=client, registry=registry), weft.Orchestrator(client=client):
        await scene.put("numbers", None, [{"n": 4}])
        assert "memory" in await scene.error(bomb)
        await scene.settled()
        found = [await scene.rows("few"), await scene.rows("chosen")]
    assert found == [[{"word": "a"}, {"word": None}, {"word": "a"}], [{"word": "b", "words": ["a"]}]]
