"""Which columns of datasets the columns of a query are made of, as its text alone tells: nothing is run for it.

The text is read in a process of its own, which is ended when it takes too long or too much: there are texts, and short
ones, for which any parser that tries several ways needs for ever.
"""

from __future__ import annotations

import functools
import resource
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import orjson

from weft.data.extra import needs

LONGEST_SQL = 100_000
_SECONDS = 10
_MEMORY = 1024**3
_CHILD = "from weft.data.sql_lineage import answer; answer()"


@dataclass(frozen=True, slots=True)
class Untold:
    """That the columns of a query cannot be told, and why."""

    why: str


def columns_of_query(
    sql: str, schemas: Mapping[str, Sequence[str]], *, seconds: float = _SECONDS
) -> dict[str, list[tuple[str, str]]] | Untold:
    """Return for each column of a query the columns of datasets that it is made of, or `Untold`; never raises for SQL.

    ``schemas`` has the columns of each dataset by the name that the SQL has for it. What a column is made of are all
    columns that stand in its expression, through subqueries, joins and unions; not those by which rows are chosen,
    joined or sorted. Columns that have no name in the text are left out. It blocks for as long as ``seconds`` at most;
    the same is told at once when it is asked again. What it returns fits ``columns_from`` of a write. Example::

        columns_of_query("select day, sum(price) as total from orders group by day", {"orders": ["day", "price"]})
        # {"day": [("orders", "day")], "total": [("orders", "price")]}
    """
    needs("sqlglot")
    if len(sql) > LONGEST_SQL:
        return Untold(f"the query is longer than {LONGEST_SQL:,} characters")
    asked = orjson.dumps({"sql": sql.encode(errors="replace").decode(), "schemas": {**schemas}})
    found = orjson.loads(_asked(asked, seconds))
    if "why" in found:
        return Untold(found["why"])
    return {name: [(dataset, column) for dataset, column in sources] for name, sources in found["columns"].items()}


@functools.lru_cache(maxsize=100)
def _asked(asked: bytes, seconds: float) -> bytes:
    try:
        done = subprocess.run(
            [sys.executable, "-c", _CHILD], input=asked, capture_output=True, timeout=seconds, check=True
        )
    except subprocess.TimeoutExpired:
        return orjson.dumps({"why": f"the query could not be read in {seconds:g} s"})
    except subprocess.CalledProcessError:
        return orjson.dumps({"why": "the query could not be read: it takes too much"})
    return done.stdout


def answer() -> None:
    """Read a query from the standard input, and tell on the standard output what its columns are made of."""
    from weft.data.sql_columns import told
    from weft.data.sql_tables import Untellable

    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    sys.setrecursionlimit(20_000)
    asked = orjson.loads(sys.stdin.buffer.read())
    try:
        answered: dict[str, object] = {"columns": told(asked["sql"], asked["schemas"])}
    except Untellable as problem:
        answered = {"why": str(problem)}
    sys.stdout.buffer.write(orjson.dumps(answered))
