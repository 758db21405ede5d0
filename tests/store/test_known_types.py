"""What the types of PostgreSQL are made of is asked once in a process, not in each session."""

from __future__ import annotations

import pytest

from weft.db.database import Database

ARRAYS = "select $1::bigint[], $2::interval[], $3::json[], $4::numeric[]"
VALUES = ([1, 2], [], ['{"a": 1}'], [])


@pytest.mark.parametrize("cached", [True, False])
async def test_a_session_knows_the_arrays_that_another_has_asked_for(database: Database, cached: bool) -> None:
    options = {} if cached else {"statement_cache_size": 0}
    for is_first in (True, False):
        conn = await database.connect(**options)
        sent: list[str] = []
        conn.add_query_logger(lambda record, sent=sent: sent.append(record.query))  # type: ignore[misc]
        row = await conn.fetchrow(ARRAYS, *VALUES)
        assert tuple(row or ()) == VALUES
        await conn.close()
        assert is_first or sent == [ARRAYS]


async def test_a_type_of_the_database_is_asked_for_in_each_session(database: Database) -> None:
    """Another database may have another type by the same number."""
    async with database.acquire() as owner:
        await owner.execute("create type public.pair as (a text, b integer)")
    for _ in range(2):
        conn = await database.connect()
        sent: list[str] = []
        conn.add_query_logger(lambda record, sent=sent: sent.append(record.query))  # type: ignore[misc]
        assert tuple(await conn.fetchval("select $1::public.pair", ("x", 1))) == ("x", 1)
        await conn.close()
        assert len(sent) > 1
