"""What swaps, backfills and collecting do to the live DAG, the job and the version that are meant, and to no other."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, TypeAlias

import asyncpg
import pytest

import weft
from engine.test_deploys import market
from engine.test_turn_guards import job_of, rows_of, states, unit
from live_scene import make_dag, make_output
from weft.live.acting import SQL as ACTING

Conn: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
MONTH = timedelta(days=30)


def bazaar(factor: int = 2) -> dict[str, Any]:
    """Return the market once more, under other names, for other events."""
    found = market(factor, dag="bazaar")
    for job in found["jobs"].values():
        job["outputs"] = [f"bazaar {name}" for name in job["outputs"]]
        job["inputs"] = [f"bazaar {name}" for name in job.get("inputs", [])]
    del found["jobs"]["ticks"]["inputs"]
    found["jobs"]["ticks"]["source"]["event"] = "deal"
    return found


async def dag_id(conn: Conn, name: str = "market") -> int:
    return int(await conn.fetchval("select id from weft.live_dag where name = $1", name))


async def all_of(conn: Conn, dag: str) -> list[str]:
    """Return all rows of a live DAG, but for those of its tag."""
    found = [*await conn.fetch("select * from weft.live_dag where name = $1", dag)]
    found += await conn.fetch(
        "select v.* from weft.dag_version v join weft.live_dag d on d.id = v.dag_id where d.name = $1 order by 1", dag
    )
    for table in ("live_job", "live_input", "live_output", "live_source", "live_unit"):
        key = "o.id" if table == "live_job" else "o.live_job_id"
        found += await conn.fetch(
            f"select o.* from weft.{table} o join weft.live_job j on j.id = {key} "
            "join weft.live_dag d on d.id = j.dag_id "
            "where d.name = $1 order by 1, 2", dag,
        )  # fmt: skip
    found += await conn.fetch("select * from weft.dataset where producer_dag = $1 order by id", dag)
    found += await conn.fetch(
        "select v.* from weft.dataset_version v join weft.dataset d on d.id = v.dataset_id "
        "where d.producer_dag = $1 order by v.id",
        dag,
    )
    return [str(row) for row in found]


async def test_what_is_done_to_one_dag_leaves_another_as_it_is(client: weft.Client, conn: Conn) -> None:
    await client.live.deploy(bazaar())
    await client.live.deploy(bazaar(3))
    await client.jobs.send_event("deal", {"id": 1, "day": "mon"})
    before = await all_of(conn, "bazaar")
    await client.live.deploy(market())
    again = market()
    again["jobs"]["ticks"]["max_attempts"] = 7
    await client.live.deploy(again)
    await client.live.deploy(market(3))
    await client.live.abandon("market")
    await client.live.rollback("market", version=1)
    await client.live.pause("market")
    await client.live.drain("market")
    assert await all_of(conn, "bazaar") == before


async def test_a_dag_does_not_take_over_a_version_of_another(client: weft.Client, conn: Conn) -> None:
    await client.live.deploy(market())
    await client.live.deploy(bazaar())
    other = await conn.fetchval("select version_id from weft.live_dag where name = 'bazaar'")
    with pytest.raises(asyncpg.PostgresError):
        await conn.execute("select weft.swap_dag($1, $2)", await dag_id(conn), other)


async def test_readers_see_the_datasets_of_the_version_that_comes_into_effect_and_each_version_says_what_became_of_it(
    client: weft.Client, conn: Conn
) -> None:
    await client.live.deploy(market())
    await client.live.deploy(market(3))
    await conn.execute("select weft.swap_dag(id, building_id) from weft.live_dag")
    current = """select array_agg(v.number order by d.name)
                 from weft.dataset d join weft.dataset_version v on v.id = d.current_id"""
    # again, scaled, ticks: what is made of what has changed has changed.
    assert await conn.fetchval(current) == [2, 2, 1]
    assert await conn.fetchval("select building_id is null from weft.live_dag")
    versions = (
        "select array_agg(state || coalesce(' ' || (retired_at is not null), '') order by number) from weft.dag_version"
    )
    assert await conn.fetchval(versions) == ["retired true", "live false"]
    jobs = "select array_agg(state order by id) from weft.live_job"
    await conn.execute("update weft.live_job set state = 'stopped' where state = 'draining'")
    before = await conn.fetchval(jobs)
    assert before.count("stopped") == 2
    await conn.execute("select weft.settle_dag(id) from weft.live_dag")
    assert await conn.fetchval(jobs) == before, "what has stopped does not begin again"
    assert await conn.fetchval("select bool_and(is_listening) from weft.live_source"), "and what listens listens on"
    await client.live.deploy(market(4))
    await client.live.rollback("market", version=1)
    assert await conn.fetchval(current) == [1, 1, 1]
    assert await conn.fetchval(versions) == ["live false", "retired true", "abandoned true"]


async def test_a_source_that_listens_again_is_told_what_was_sent_to_it_in_its_own_org(
    client: weft.Client, conn: Conn
) -> None:
    await client.live.deploy(market())
    await client.live.drain("market")
    await client.orgs.create("acme")
    acme = client.of_org(await conn.fetchval("select id from weft.org where slug = 'acme'"), "acme")
    await acme.jobs.send_event("tick", {"id": 1})
    await client.jobs.send_event("deal", {"id": 2})
    sent = await client.jobs.send_event("tick", {"id": 3})
    await client.live.rollback("market", version=1)
    told = await conn.fetch("select dedupe_key from weft.live_unit")
    assert [row["dedupe_key"] for row in told] == [f"event:{sent.id}"]


async def test_nothing_that_stands_is_told_of_what_is_done_and_a_slice_is_no_backlog(conn: Conn) -> None:
    job, other = await job_of(conn), await job_of(conn, "other")
    await unit(conn, other, "a", "held", is_boot=True)

    async def standing() -> tuple[Any, ...]:
        row = await conn.fetchrow(
            "select units, held, writes, since is null, is_behind from weft.standing_of_live_job($1)", job
        )
        assert row is not None
        return (*row,)

    await unit(conn, job, "a", "done", is_boot=True)
    await unit(conn, job, "", "running", kind="slice")
    assert await standing() == (0, 0, 0, True, False)
    await unit(conn, job, "b", "held")
    await unit(conn, job, "c", "ready", is_boot=True)
    assert await standing() == (2, 1, 0, False, True)


async def test_a_job_is_behind_until_all_that_was_written_is_units(conn: Conn) -> None:
    dataset, version = await make_output(conn, "ticks", "feed", "ticks")
    mine, other = [await job_of(conn, name, inputs=[(dataset, version)]) for name in ("mine", "other")]
    outer = await job_of(conn, "outer", inputs=[(dataset, None)])
    for number, ago in ((1, 2), (2, 1)):
        await conn.execute(
            """insert into weft.dataset_write (version_id, number, org_id, mode, partitions, rows, bytes, rows_removed,
                 written_at, actor)
               values ($1, $2, 1, 'append', 1, 1, 1, 0, date_trunc('day', weft.now()) - $3::interval, 'ann')""",
            version, number, timedelta(days=ago),
        )  # fmt: skip
    await conn.execute("update weft.dataset_version set last_write = 2")

    async def standing(job: int) -> tuple[Any, ...]:
        row = await conn.fetchrow(
            "select writes, date_trunc('day', weft.now()) - since, is_behind from weft.standing_of_live_job($1)", job
        )
        assert row is not None
        return (*row,)

    days = timedelta(days=2), timedelta(days=1)
    assert await standing(mine) == (2, days[0], True)
    await conn.execute("update weft.live_input set routed_write = 1 where live_job_id = $1", mine)
    assert await standing(mine) == (1, days[1], False)
    await conn.execute("update weft.live_input set routed_write = 2 where live_job_id = $1", mine)
    assert await standing(mine) == (0, None, False)
    # From outside it is the version that is current.
    await conn.execute(
        "update weft.live_input set version_id = $2, routed_write = 2 where live_job_id = $1", outer, version
    )
    assert await standing(outer) == (0, None, False)
    await conn.execute(
        """insert into weft.dataset_version (org_id, dataset_id, number, config_hash, location, actor, last_write)
           values (1, $1, 2, 'i', 'x/', 'ann', 5)""", dataset,
    )  # fmt: skip
    await conn.execute("update weft.dataset d set current_id = (select id from weft.dataset_version where number = 2)")
    assert await standing(outer) == (5, None, True)
    assert await standing(mine) == (0, None, False)
    assert await standing(other) == (2, days[0], True)


async def test_a_source_that_looks_is_behind_until_it_has_caught_up(conn: Conn) -> None:
    looks, listens = await job_of(conn, "looks", source={"kind": "files"}), await job_of(
        conn, "listens", source={"kind": "event", "event": "tick"}
    )  # fmt: skip
    behind = "select is_behind from weft.standing_of_live_job($1)"
    assert [await conn.fetchval(behind, job) for job in (looks, listens)] == [True, False]
    await conn.execute("update weft.live_source set caught_up_at = weft.now() where live_job_id = $1", looks)
    assert await conn.fetchval(behind, looks) is False


async def test_a_version_comes_into_effect_when_what_is_new_of_it_has_caught_up(
    client: weft.Client, conn: Conn
) -> None:
    swaps = "select weft.swap_when_caught_up($1, interval '1 minute')"
    for deploy in (bazaar(), bazaar(3), market()):
        await client.live.deploy(deploy)
    market_id = await dag_id(conn)
    assert await conn.fetchval(swaps, market_id) is False, "nothing is being built"
    await client.live.deploy(market(3))
    await conn.execute(
        "update weft.live_input i set routed_write = 0 from weft.live_job j "
        "where j.id = i.live_job_id and j.dag_id = $1",
        market_id,
    )
    name = """select m.live_job_id from weft.live_dag d join weft.dag_version_job m on m.dag_version_id = d.{}
                join weft.live_job j on j.id = m.live_job_id where d.name = 'market' and j.name = $1"""
    old, new = [await conn.fetchval(name.format(column), "scaled") for column in ("version_id", "building_id")]
    same = await conn.fetchval(name.format("building_id"), "ticks")
    # Neither what goes on as it was nor what goes counts.
    for job in (old, same):
        await unit(conn, job, "a", "held", is_boot=True)
    ago = await conn.fetchval("select weft.now() - interval '1 hour'")
    late = await unit(conn, new, "a", "ready", since=ago)
    assert await conn.fetchval(swaps, market_id) is False
    await conn.execute("update weft.live_unit set since = weft.now() where id = $1", late)
    assert await conn.fetchval(swaps, market_id) is True


@pytest.mark.parametrize(
    ("key", "first", "last", "within"),
    [
        ("b", "b", "c", True), ("c", "b", "c", True), ("a", "b", "c", False), ("d", "b", "c", False),
        ("a", None, "c", True), ("d", None, "c", False), ("d", "b", None, True), ("a", "b", None, False),
        ("10", "9", "11", True), ("9", "9", "11", True), ("12", "9", "11", False), ("8", "9", "11", False),
        ("10", "9", None, True), ("8", "9", None, False), ("100", None, "99", False), ("-5", None, "99", True),
        ("b", "9", "11", False), ("", "9", "11", False), ("10", "9", "z", False), ("a", None, None, True),
    ],
)  # fmt: skip
async def test_a_range_of_keys_is_one_of_numbers_where_its_ends_are(
    conn: Conn, key: str, first: str | None, last: str | None, within: bool
) -> None:
    assert await conn.fetchval("select weft.key_is_within($1, $2, $3)", key, first, last) is within


async def _with_partitions(conn: Conn, name: str, *keys: str) -> tuple[int, int]:
    dataset, version = await make_output(conn, name, "feed", name)
    for key in keys:
        await conn.execute(
            """insert into weft.dataset_partition (version_id, partition_key, org_id, last_write, rows, bytes, files,
                 written_at) values ($1, $2, 1, 1, 0, 0, 0, weft.now())""", version, key,
        )  # fmt: skip
    return dataset, version


async def _backfill(conn: Conn, job: int, at_once: int = 2, place: int = 0, **more: Any) -> int:
    said = {"first_key": None, "last_key": None, **more}
    return int(
        await conn.fetchval(
            """insert into weft.live_backfill
                 (org_id, live_job_id, place, first_key, last_key, at_once, partitions, actor)
               values (1, $1, $2, $3, $4, $5, 9, 'ann') returning id""",
            job, place, said["first_key"], said["last_key"], at_once,
        )
    )  # fmt: skip


async def _advance(conn: Conn, backfill: int) -> tuple[int, list[str], bool]:
    """Return how many units it has made, the lanes of all there are, and whether it has ended."""
    made = await conn.fetchval("select weft.advance_backfill($1)", backfill)
    lanes = await conn.fetch(
        "select lane from weft.live_unit where backfill_id = $1 and state <> 'done' order by id", backfill
    )
    is_over = await conn.fetchval("select ended_at is not null from weft.live_backfill where id = $1", backfill)
    return made, [row["lane"] for row in lanes], is_over


async def test_a_backfill_makes_each_partition_in_its_range_once_a_few_at_a_time(conn: Conn) -> None:
    wanted, others = await _with_partitions(conn, "ticks", *"abcdef"), await _with_partitions(conn, "rates", "bb")
    job = await job_of(conn, inputs=[others, wanted], strategy="partition")
    backfill = await _backfill(conn, job, place=1, first_key="b", last_key="e")
    untouched = await _backfill(conn, job, place=1)
    await unit(conn, job, "z", "held", backfill_id=untouched)
    assert await _advance(conn, backfill) == (2, ["b", "c"], False)
    assert await _advance(conn, backfill) == (0, ["b", "c"], False)
    await conn.execute("update weft.live_unit set state = 'done' where lane = 'b'")
    assert await _advance(conn, backfill) == (1, ["c", "d"], False)
    await conn.execute("update weft.live_unit set state = 'done' where backfill_id = $1", backfill)
    assert await _advance(conn, backfill) == (1, ["e"], False)
    assert await _advance(conn, backfill) == (0, ["e"], False), "while one is open it goes on"
    await conn.execute("update weft.live_unit set state = 'done' where backfill_id = $1", backfill)
    assert await _advance(conn, backfill) == (0, [], True)
    await conn.execute("update weft.live_backfill set next_key = null where id = $1", backfill)
    assert await _advance(conn, backfill) == (0, [], True), "what has ended makes nothing more"
    assert await conn.fetchval("select made from weft.live_backfill where id = $1", untouched) == 0


async def test_a_backfill_makes_nothing_for_a_job_that_drains_nor_while_another_is_at_it(
    client: weft.Client, conn: Conn
) -> None:
    job = await job_of(conn, inputs=[await _with_partitions(conn, "ticks", "a")], strategy="partition")
    backfill = await _backfill(conn, job)
    async with conn.transaction():
        await conn.execute("select 1 from weft.live_backfill for no key update")
        assert (
            await client.database.run(lambda other: other.fetchval("select weft.advance_backfill($1)", backfill)) == 0
        )
    for state in ("draining", "stopped"):
        await conn.execute("update weft.live_job set state = $1", state)
        assert await _advance(conn, backfill) == (0, [], False)


async def test_a_partition_that_waits_already_is_not_made_again(conn: Conn) -> None:
    await job_of(conn, inputs=[await _with_partitions(conn, "ticks", "a")], strategy="partition")
    makes = "select weft.unit_of_partition(j, 0, 'a', null) from weft.live_job j"
    assert await conn.fetchval(makes) is not None
    assert await conn.fetchval(makes) is None


async def test_of_a_dag_only_what_is_long_past_and_of_no_version_is_collected(client: weft.Client, conn: Conn) -> None:
    collect = "select weft.collect_dag($1, interval '30 days')"
    await client.live.deploy(bazaar())
    await client.live.deploy(bazaar(3))
    await client.live.deploy(market())
    await client.live.deploy(market(3))
    await conn.execute("select weft.swap_dag(id, building_id) from weft.live_dag")
    await client.live.deploy(market(4))
    market_id = await dag_id(conn)
    before = await all_of(conn, "bazaar")
    long_ago = "update weft.dag_version set retired_at = weft.now() - interval '1 year' where true"
    await conn.execute("update weft.live_job set state = 'stopped' where state = 'draining'")
    before = await all_of(conn, "bazaar")
    assert await conn.fetchval(collect, market_id) == 0, "it was in effect a moment ago"
    collectable = [row["id"] for row in await conn.fetch(ACTING.collectable, MONTH, 10, None)]
    assert collectable == []
    await conn.execute(long_ago + f" and dag_id = {market_id}")
    before = await all_of(conn, "bazaar")
    collectable = [row["id"] for row in await conn.fetch(ACTING.collectable, MONTH, 10, None)]
    assert collectable == [market_id]
    await conn.execute("delete from weft.dag_version v where v.dag_id <> $1 and v.state = 'retired'", market_id)
    await conn.execute("insert into weft.dag_version (org_id, dag_id, number, artifact_id, actor, state, retired_at) "
                       "select org_id, dag_id, 9, artifact_id, actor, 'retired', 'epoch' from weft.dag_version "
                       "where dag_id <> $1", market_id)  # fmt: skip
    before = await all_of(conn, "bazaar")
    # The first version, and the two jobs that it alone had; what another still reads stays.
    assert await conn.fetchval(collect, market_id) == 2
    kept = await conn.fetch("select number, state from weft.dag_version where dag_id = $1 order by 1", market_id)
    assert [(*row,) for row in kept] == [(2, "live"), (3, "building")]
    assert await all_of(conn, "bazaar") == before
    assert await conn.fetchval("select count(*) from weft.dataset_version where retired_at is null") > 0
    assert (
        await conn.fetchval(
            "select count(*) from weft.dataset d join weft.dataset_version v on v.id = d.current_id "
            "where v.retired_at is not null"
        )
        == 0
    )


async def test_what_a_job_that_goes_has_written_counts_as_retired_unless_readers_see_it(
    client: weft.Client, conn: Conn
) -> None:
    collect = "select weft.collect_dag($1, interval '30 days')"
    for deploy in (bazaar(), bazaar(3), market(), market(3)):
        await client.live.deploy(deploy)
    await client.live.abandon("market")
    await conn.execute("update weft.live_job set state = 'stopped' where state = 'draining'")
    await conn.execute("update weft.dag_version set retired_at = 'epoch' where state = 'abandoned'")
    await conn.execute(
        """update weft.dataset_version v set retired_at = 'epoch' from weft.dataset d
           where d.id = v.dataset_id and v.number = 2 and d.name = 'again'"""
    )
    market_id = await dag_id(conn)
    assert [await conn.fetchval(collect, market_id) for _ in range(3)] == [2, 1, 0]
    told = """select d.name, v.number, case v.retired_at when v.created_at then 'then' when 'epoch' then 'long ago' end
              from weft.dataset_version v join weft.dataset d on d.id = v.dataset_id where v.retired_at is not null"""
    found = {(*row,) for row in await conn.fetch(told)}
    assert found == {("again", 2, "long ago"), ("scaled", 2, "then")}
    await client.live.drain("market")
    await conn.execute("update weft.live_job set state = 'stopped' where state = 'draining'")
    await conn.execute("update weft.dag_version set retired_at = 'epoch' where state = 'retired'")
    while await conn.fetchval(collect, market_id):
        pass
    assert await conn.fetchval("select count(*) from weft.live_job where dag_id = $1", market_id) == 0
    assert {(*row,) for row in await conn.fetch(told)} == found


async def test_backfills_and_partitions_are_those_of_the_job_that_is_asked_for(client: weft.Client, conn: Conn) -> None:
    dag = await make_dag(conn)
    wanted, others = await _with_partitions(conn, "ticks", *"abc"), await _with_partitions(conn, "rates", *"abcxyz")
    jobs = [
        await job_of(conn, "mine", dag, inputs=[(wanted[0], None), wanted, others], strategy="partition"),
        await job_of(conn, "other", dag, inputs=[others, others], strategy="partition"),
    ]
    # Of the first input that has a version by now.
    with pytest.raises(weft.InvalidInput, match="x"):
        await client.live.rematerialize("market", "mine", partitions=["a", "x"])
    assert await client.live.rematerialize("market", "mine", partitions=["a"]) == 1
    assert await client.live.rematerialize("market", "mine", partitions=["x"], dataset="rates") == 1
    said = await conn.fetch("select lane, said ->> 'dataset' from weft.live_unit order by lane")
    assert [(*row,) for row in said] == [("a", "ticks"), ("x", "rates")]
    made, other = await client.live.backfill("market", "mine"), await client.live.backfill("market", "other")
    some = await client.live.backfill("market", "mine", first="b")
    assert [each.partitions for each in (made, other, some)] == [3, 6, 2]
    assert {each.id for each in await client.live.backfills("market")} == {made.id, other.id, some.id}
    await conn.execute("select weft.advance_backfill($1)", made.id)
    mine = await unit(conn, jobs[0], "r", "running", backfill_id=made.id)
    await unit(conn, jobs[0], "s", "held", backfill_id=other.id)
    waits = await unit(conn, jobs[0], "t", "waiting", backfill_id=other.id)
    await unit(conn, jobs[0], "u", "done", backfill_id=made.id)
    shown = {each.id: (each.running, each.held) for each in await client.live.backfills("market")}
    for each, job, first in ((made, jobs[0], ""), (other, jobs[1], ""), (some, jobs[0], "b")):
        # With those that were there before it came to their partitions: of others, and of whoever has asked for them.
        last = await conn.fetchval("select last_unit from weft.live_backfill where id = $1", each.id)
        open_units = await conn.fetch("select * from weft.live_unit where live_job_id = $1 and state <> 'done'", job)
        rows = [
            row for row in open_units if row["backfill_id"] == each.id or (row["id"] < last and row["lane"] >= first)
        ]
        assert shown[each.id] == (len(rows), sum(row["state"] == "held" for row in rows))
    before = await rows_of(conn, jobs[1])
    await client.live.cancel_backfill(made.id)
    assert await states(conn, mine, waits) == ["running", "waiting"]
    left = await conn.fetch("select id from weft.live_unit where backfill_id = $1 and state <> 'done'", made.id)
    assert [row["id"] for row in left] == [mine]
    assert {row["id"] for row in await conn.fetch(ACTING.open_backfills, 10)} == {other.id, some.id}
    assert await rows_of(conn, jobs[1]) == before


async def test_acts_upon_one_job_leave_the_others_as_they_are(client: weft.Client, conn: Conn) -> None:
    dag = await make_dag(conn)
    mine, other = [await job_of(conn, name, dag) for name in ("mine", "other")]
    for job in (mine, other):
        await unit(conn, job, "a", "held", dedupe_key="a")
        await unit(conn, job, "a", "held", dedupe_key="b")
        await unit(conn, job, "a", "waiting", dedupe_key="b")
    await unit(conn, other, "a", "waiting", dedupe_key="a")
    held = [row["id"] for row in await conn.fetch("select id from weft.live_unit where state = 'held' order by id")]
    before = await rows_of(conn, other)
    with pytest.raises(weft.NotFound):
        await client.live.retry("market", "mine", unit_id=held[2])
    with pytest.raises(weft.NotFound):
        await client.live.skip("market", "mine", held[2])
    await client.live.retry("market", "mine", unit_id=held[1])
    assert await states(conn, *held[:2]) == ["held", "held"]
    await client.live.retry("market", "mine", unit_id=held[0])
    assert await states(conn, *held[:2]) == ["new", "held"]
    await client.live.skip("market", "mine", held[1])
    assert await states(conn, *held[:2]) == ["new", "done"]
    await client.live.pause("market", job="mine")
    with pytest.raises(weft.StateConflict):
        await client.live.pause("market", job="mine")
    await client.live.resume("market", job="mine")
    with pytest.raises(weft.StateConflict):
        await client.live.resume("market", job="mine")
    assert [each.id for each in await client.live.units("market", "other", state="held")] == held[2:]
    assert await rows_of(conn, other) == before
    await client.live.pause("market")
    with pytest.raises(weft.StateConflict):
        await client.live.pause("market")
    await client.live.resume("market")
    with pytest.raises(weft.StateConflict):
        await client.live.resume("market")
