"""What is read of a catalog with a hundred thousand partitions."""

from __future__ import annotations

from typing import Any

import asyncpg
import orjson
from guard import Guard, check

from weft.catalog.datasets import SQL

ROWS = 100_000


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
            Guard("files of a partition", SQL.files, (1, 1, ROWS, ["p050001"], "", 0, 1000), 20, {}, 1),
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
        ]
        assert await check(conn, guards, "beside many") == []
    finally:
        await conn.close()
