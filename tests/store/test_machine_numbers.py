"""Machine numbers: leased, never shared, given back after a while."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from store_scene import Store

from weft.core.errors import IdsExhausted
from weft.core.ids import MACHINES
from weft.db.database import Database
from weft.db.machine import SQL, IdSource


async def _held(store: Store) -> list[int]:
    return [
        row[0] for row in await store.conn.fetch("select number from weft.machine where until > weft.now() order by 1")
    ]


async def test_sources_at_once_get_different_numbers_and_different_ids(store: Store, database: Database) -> None:
    sources = [IdSource(database) for _ in range(20)]
    made = await asyncio.gather(*(source.take(1000) for source in sources))
    assert len(await _held(store)) == 20
    assert len({id for ids in made for id in ids}) == 20_000
    assert 0 not in {id >> 12 & 1023 for ids in made for id in ids}


async def test_a_number_is_leased_when_the_first_id_is_asked_for(store: Store, database: Database) -> None:
    source = IdSource(database)
    assert await _held(store) == []
    await source.take(1)
    await source.take(1)
    assert len(await _held(store)) == 1


async def test_a_number_that_is_given_back_rests_before_it_is_given_out_again(store: Store, database: Database) -> None:
    await store.conn.execute("update weft.machine set until = 'infinity' where number > 1")
    source = IdSource(database)
    first = await source.take(50_000)
    await source.close()
    await source.close()
    with pytest.raises(IdsExhausted, match=f"all {MACHINES - 1} machine numbers"):
        await IdSource(database).take(1)
    await store.advance(seconds=11)
    later = await IdSource(database).take(1)
    assert later[0] > first[-1]


async def test_a_number_of_a_process_that_died_comes_back_when_its_lease_has_lapsed(
    store: Store, database: Database
) -> None:
    await store.conn.execute("update weft.machine set until = 'infinity' where number > 1")
    await IdSource(database).take(1)
    await store.advance(minutes=9, seconds=50)
    with pytest.raises(IdsExhausted):
        await IdSource(database).take(1)
    await store.advance(seconds=20)
    assert len(await IdSource(database).take(1)) == 1


async def test_two_who_reach_for_the_last_number_at_once_do_not_both_get_it(
    store: Store, other: Store, database: Database
) -> None:
    await store.conn.execute("update weft.machine set until = 'infinity' where number > 1")
    transaction = store.conn.transaction()
    await transaction.start()
    row = await store.conn.fetchrow(SQL.lease, "a", timedelta(minutes=10))
    assert row is not None
    assert row["number"] == 1
    reaching = asyncio.create_task(other.conn.fetchrow(SQL.lease, "b", timedelta(minutes=10)))
    assert not await other.settled(reaching, ahead=store)
    await transaction.commit()
    assert await reaching is None
    assert await other.conn.fetchrow(SQL.lease, "b", timedelta(minutes=10)) is None


async def test_only_its_holder_gives_a_number_back(store: Store, database: Database) -> None:
    await IdSource(database).take(1)
    (number,) = await _held(store)
    await store.conn.execute(SQL.release, number, "somebody else")
    await store.advance(seconds=30)
    assert await _held(store) == [number]
