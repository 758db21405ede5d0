"""What is read of a catalog with a hundred thousand partitions."""

from __future__ import annotations

from typing import Any

import asyncpg
import orjson
from guard import Guard, check

from weft.catalog.dataset_diff import SQL as DIFF
from weft.catalog.datasets import SQL
from weft.catalog.lineage import SQL as LINEAGE

ROWS = 100_000
MANY = list(range(400, 500))


def _trace(**said: Any) -> str:
    """Return a trace of what has changed since."""
    item = {"role": "read", "dataset": 1, "version": 1, "number": 1, "write": 0, "content": 7, **said}
    return orjson.dumps([item]).decode()


FILL = f"""
  insert into weft.dataset (id, org_id, name, storage, actor, last_version) select n, 1, 'd' || to_char(n, 'FM0000'), '{{}}', 'a', 1 from generate_series(1, 1000) n;
  insert into weft.dataset_version (id, org_id, dataset_id, number, config_hash, location, last_write, current_at, actor)
    select n, 1, n, 1, 'x', '1/1/1/', {ROWS}, weft.now(), 'a' from generate_series(1, 1000) n;
  update weft.dataset set current_id = id;
  insert into weft.dataset_write (version_id, number, org_id, mode, task_id, partitions, rows, bytes, rows_removed, written_at, actor)
    select 1, n, 1, 'replace', n, 1, 1, 1, 0, weft.now(), 'a' from generate_series(1, {ROWS}) n;
  insert into weft.dataset_partition (version_id, partition_key, org_id, last_write, rows, bytes, files, written_at)
    select 1, 'p' || to_char(n, 'FM000000'), 1, n, 1, 1, 1, weft.now() from generate_series(1, {ROWS}) n;
  insert into weft.dataset_file (version_id, org_id, partition_key, path, rows, bytes, added_by, removed_by)
    select 1, 1, 'p' || to_char(n, 'FM000000'), n || '-1.parquet', 1, 1, n, case when n % 10 = 0 then n + 1 end from generate_series(1, {ROWS}) n;
  insert into weft.dataset_edge (org_id, input_id, output_id) select 1, n, m from generate_series(2, 1000) n, generate_series(n - 10, n - 1) m where m > 0;
  insert into weft.column_edge (org_id, output_id, output_column, input_id, input_column, last_at)
    select 1, n - 1, 'c' || c, n, 'c' || c, weft.now() from generate_series(2, 1000) n, generate_series(1, 100) c;
  insert into weft.dataset_write_input (version_id, number, org_id, place, input_id, input_version_id, input_write)
    select 1, n, 1, 1, 2, 2, n from generate_series(1, {ROWS}) n;
"""


async def test_a_catalog_of_many_partitions_is_read_by_its_indexes(own_url: str) -> None:
    conn = await asyncpg.connect(own_url)
    try:
        await conn.execute(FILL)
        await conn.execute("analyze")
        guards = [
            Guard("a dataset", SQL.show, (1, "d0001", None), 12, {}, 1),
            Guard("a page of datasets", SQL.list, (1, "d0500", None, 100), 420, {}, 100),
            Guard("a page of partitions", SQL.partitions, (1, 1, "p050000", 100), 120, {}, 100),
            Guard("the newest partitions", SQL.latest_partitions, (1, 1, 100), 120, {}, 100),
            Guard("files of a partition", SQL.files, (1, 1, ROWS, ["p050001"], "", 0, 1000, -1), 20, {}, 1),
            Guard("the newest writes", SQL.writes, (1, 1, None, 100), 120, {}, 100),
            Guard("a state", SQL.version, (1, 1, None), 12, {}, 1),
            *(
                Guard(f"whether {what} stands", "select weft.trace_problems(1, $1)", (_trace(**said),), 120, {}, 1)
                for what, said in {
                    "all that was read": {},
                    "what was read of some partitions": {"partitions": ["p000001", "p050000"]},
                    "what was added": {"role": "added", "partitions": ["p000001", "p050000"]},
                }.items()
            ),
            Guard("what a dataset is made of", LINEAGE.inputs, (1, [500], None, 5000), 120, {}, 10),
            Guard("what is made of a dataset", LINEAGE.outputs, (1, [500], None, 5000), 120, {}, 10),
            Guard("what a column is made of", LINEAGE.column_inputs, (1, [500], ["c50"], None, 5000), 20, {}, 1),
            Guard(
                "what many columns are made of",
                LINEAGE.column_inputs,
                (1, MANY, ["c50"] * 100, None, 5000),
                2000,
                {},
                100,
            ),
            Guard(
                "what is made of many columns",
                LINEAGE.column_outputs,
                (1, MANY, ["c50"] * 100, None, 5000),
                2000,
                {},
                100,
            ),
            Guard(
                "what is made of some states", LINEAGE.state_outputs, (1, [2] * 10, MANY[:10], None, 5000), 300, {}, 10
            ),
            Guard("what is made of a column", LINEAGE.column_outputs, (1, [500], ["c50"], None, 5000), 20, {}, 1),
            Guard(
                "what a state is made of", LINEAGE.state_inputs, (1, [1], [50_000], None, 5000, 500), 12_000, {}, 451
            ),
            Guard("what is made of a state", LINEAGE.state_outputs, (1, [2], [50_000], None, 5000), 30, {}, 1),
            Guard("whether a state has more files", LINEAGE.has_more_files, (1, [1], [50_000], 500), 600, {}, 1),
            Guard("what the last write changed", DIFF.touched_partitions, (1, 1, ROWS - 1, ROWS, 100), 60, {}, 1),
            Guard("the rows of a state", DIFF.rows, (1, 1, ROWS - 10), 30, {}, 1),
            Guard("the columns of a state", DIFF.columns, (1, 1, ROWS), 12, {}, 0),
        ]
        assert await check(conn, guards, "beside many") == []
    finally:
        await conn.close()
