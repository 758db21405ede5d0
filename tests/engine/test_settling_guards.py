"""What versions of live DAGs say of jobs and sources, and who is told of what came meanwhile: each its own, once."""

from __future__ import annotations

import asyncio
from typing import Any, TypeAlias

import asyncpg
import pytest
from engine_scene import until

import weft
from engine.test_deploys import market
from engine.test_swap_guards import bazaar, dag_id
from engine.test_turn_guards import ended, job_of, states, turn, unit
from live_scene import make_dag, make_output

Conn: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
# Who waits for a lock that the session has which asks.
WAITING = "select 1 from pg_locks where not granted and pg_backend_pid() = any (pg_blocking_pids(pid))"


async def waits_or_is_done(conn: Conn, task: asyncio.Task[Any]) -> None:
    """Return when a task waits for this session, or has not had to."""

    async def look() -> bool:
        return task.done() or bool(await conn.fetch(WAITING))

    await until(look)


async def named(conn: Conn, name: str, column: str = "building_id") -> int:
    """Return the id of a job of the version in effect, or of the one being built."""
    return int(
        await conn.fetchval(
            f"""select j.id from weft.live_dag d join weft.dag_version_job m on m.dag_version_id = d.{column}
                  join weft.live_job j on j.id = m.live_job_id where d.name = 'market' and j.name = $1""", name,
        )
    )  # fmt: skip


def told(factor: int, every: str, **scaling: int) -> dict[str, Any]:
    """Return the market with a clock beside it, which says how often it ticks, and how its jobs are executed."""
    found = market(factor)
    found["jobs"]["clock"] = {
        "activation": "source", "operator": "take", "source": {"kind": "interval", "every": every},
        "outputs": ["minutes"], "update_strategy": "append", "unique_key": ["id"], "config": {"by": factor // 10},
    }  # fmt: skip
    found["jobs"]["scaled"]["scaling"] = found["jobs"]["ticks"]["scaling"] = scaling
    return found


async def test_a_job_is_executed_as_the_version_in_effect_says_and_one_that_is_new_as_the_next_does(
    client: weft.Client, conn: Conn
) -> None:
    await client.live.deploy(told(2, "1h", max_concurrency=2))
    await client.live.deploy(told(3, "2h", max_concurrency=3))
    concurrency = "select max_concurrency from weft.live_job where id = $1"
    every = "select extract(epoch from every) / 3600 from weft.live_source where live_job_id = $1"
    same, new, clock = await named(conn, "ticks"), await named(conn, "scaled"), await named(conn, "clock")
    assert [await conn.fetchval(concurrency, each) for each in (same, new)] == [2, 3]
    assert await conn.fetchval(every, clock) == 1
    await conn.execute("select weft.swap_dag(id, building_id) from weft.live_dag")
    assert [await conn.fetchval(concurrency, each) for each in (same, new)] == [3, 3]
    assert await conn.fetchval(every, clock) == 2
    # Of what only versions have that were never in effect, the last of these says.
    await client.live.deploy(told(10, "3h"))
    clock = await named(conn, "clock")
    await client.live.deploy(told(11, "4h"))
    assert await named(conn, "clock") == clock
    assert await conn.fetchval(every, clock) == 4


async def test_a_source_that_listens_again_is_told_what_matches_and_was_not_taken_yet(
    client: weft.Client, conn: Conn
) -> None:
    picky = market()
    picky["jobs"]["ticks"]["source"]["match"] = {"day": "mon"}
    other = bazaar()
    other["jobs"]["ticks"]["source"]["event"] = "tick"
    for deploy in (picky, other):
        await client.live.deploy(deploy)
        await client.live.drain(deploy["dag"])
    taken, _, wanted = [
        await client.jobs.send_event("tick", {"id": number, "day": day})
        for number, day in enumerate(("mon", "tue", "mon"))
    ]
    job = await conn.fetchval("select id from weft.live_job where dag_id = $1 and name = 'ticks'", await dag_id(conn))
    # As when it was sent by somebody who saw it listen still.
    await unit(conn, job, "mon", dedupe_key=f"event:{taken.id}")
    await client.live.rollback("market", version=1)
    told = await conn.fetch("select live_job_id, dedupe_key from weft.live_unit order by id")
    assert [(*row,) for row in told] == [(job, f"event:{taken.id}"), (job, f"event:{wanted.id}")]


async def test_the_tag_of_a_dag_is_its_own_and_moves_when_another_version_comes_into_effect(
    client: weft.Client, conn: Conn
) -> None:
    await client.live.deploy(market())
    await conn.execute("select weft.swap_dag(id, version_id) from weft.live_dag")
    assert len(await client.workflows.moves("market/live")) == 1
    flow = {"workflow_id": "feed", "nodes": {"START": {"type": "start", "next": "END"}, "END": {"type": "end"}}}
    await client.workflows.push(flow, tag="feed/live")
    before = await conn.fetch("select * from weft.tag where name = 'feed/live'")
    with pytest.raises(asyncpg.PostgresError, match="feed/live"):
        await conn.execute(
            "select weft.move_live_tag(1, 'feed/live', 'deploy', artifact_id, 'eve', null) from weft.dag_version"
        )
    assert await conn.fetch("select * from weft.tag where name = 'feed/live'") == before


async def test_a_partition_is_computed_anew_of_the_jobs_own_input_and_takes_no_other_unit_over(conn: Conn) -> None:
    makes = "select weft.unit_of_partition(j, 0, 'a', 7) from weft.live_job j where j.id = $1"
    jobs = [
        await job_of(conn, name, inputs=[await make_output(conn, name, "feed", name)], strategy="partition")
        for name in ("ticks", "rates")
    ]
    for job, name in zip(jobs, ("ticks", "rates"), strict=True):
        made = await conn.fetchval(makes, job)
        assert await conn.fetchval("select said ->> 'dataset' from weft.live_unit where id = $1", made) == name
    # Who asks for the same again wants it whatever becomes of the backfill; of no other unit that is said.
    await unit(conn, jobs[0], "b", dedupe_key="partition:b", backfill_id=7)
    await unit(conn, jobs[0], "a", "running", dedupe_key="partition:a", backfill_id=7)
    assert await conn.fetchval(makes, jobs[0]) is None
    shared = "select live_job_id, lane, state from weft.live_unit where backfill_id is null"
    assert [(*row,) for row in await conn.fetch(shared)] == [(jobs[0], "a", "new")]


async def test_a_backfill_sees_that_its_job_drains_when_that_is_said_meanwhile(client: weft.Client, conn: Conn) -> None:
    dataset, version = await make_output(conn, "ticks", "feed", "ticks")
    await conn.execute(
        """insert into weft.dataset_partition (version_id, partition_key, org_id, last_write, rows, bytes, files,
             written_at) values ($1, 'a', 1, 1, 0, 0, 0, weft.now())""", version,
    )  # fmt: skip
    job = await job_of(conn, inputs=[(dataset, version)], strategy="partition")
    backfill = await conn.fetchval(
        """insert into weft.live_backfill (org_id, live_job_id, place, at_once, partitions, actor)
           values (1, $1, 0, 1, 1, 'ann') returning id""", job,
    )  # fmt: skip
    async with conn.transaction():
        await conn.execute("update weft.live_job set state = 'draining'")
        advances = asyncio.create_task(
            client.database.run(lambda other: other.fetchval("select weft.advance_backfill($1)", backfill))
        )
        await waits_or_is_done(conn, advances)
    assert await advances == 0
    assert await conn.fetchval("select count(*) from weft.live_unit") == 0


async def test_a_unit_that_goes_in_a_turn_is_not_sent_on_meanwhile(client: weft.Client, conn: Conn) -> None:
    job = await job_of(conn, "note", await make_dag(conn), strategy="partition")
    failed = await ended(conn, "dead")
    held = await unit(conn, job, "a", "held", task_id=failed)
    await unit(conn, job, "a")
    async with conn.transaction():
        # What failed of a partition is of no use when that comes anew.
        await turn(conn, job)
        assert await states(conn, held) == [None]
        sends = asyncio.create_task(client.live.retry("market", "note", unit_id=held))
        await waits_or_is_done(conn, sends)
    with pytest.raises(weft.NotFound):
        await sends
    assert await conn.fetchval("select state from weft.task_done where id = $1", failed) == "dead"


async def test_who_reads_from_outside_keeps_no_job_that_has_stopped(conn: Conn) -> None:
    written, dag = await make_output(conn, "ticks", "market", "ticks"), await make_dag(conn)
    job = await job_of(conn, "ticks", dag, outputs=[written], state="stopped")
    outer = await job_of(conn, "outer", inputs=[(written[0], None)])
    await conn.execute("update weft.live_input set version_id = $2 where live_job_id = $1", outer, written[1])
    inner = await job_of(conn, "inner", inputs=[written])
    collects = "select weft.collect_dag($1, interval '30 days')"
    assert await conn.fetchval(collects, dag) == 0
    await conn.execute("delete from weft.live_job where id = $1", inner)
    assert await conn.fetchval(collects, dag) == 1
    assert await conn.fetchval("select count(*) from weft.live_job where id = $1", job) == 0


async def test_a_source_in_effect_that_is_full_goes_on_listening_whatever_is_built_elsewhere(
    client: weft.Client, conn: Conn
) -> None:
    for deploy in (bazaar(), bazaar(3), market()):
        await client.live.deploy(deploy)
    await conn.execute("update weft.live_job set max_backlog = 1 where name = 'ticks'")
    await client.jobs.send_event("tick", {"id": 1})
    with pytest.raises(weft.SourceFull):
        await client.jobs.send_event("tick", {"id": 2})
    assert await conn.fetchval("select bool_and(is_listening) from weft.live_source")


async def test_a_source_that_had_no_room_is_deaf_from_the_event_on_for_which_it_had_none(
    client: weft.Client, conn: Conn
) -> None:
    await client.live.deploy(market())
    changed = market()
    changed["jobs"]["ticks"]["config"] = {"new": True}
    changed["jobs"]["ticks"]["scaling"] = {"max_backlog": 1}
    await client.live.deploy(changed)
    await client.jobs.send_event("tick", {"id": 1})
    events = [
        await conn.fetchval(
            """insert into weft.event (org_id, name, payload, actor, at)
               values (1, $1, '{}', 'ann', weft.now() + $2 * interval '1 hour') returning id""", name, hours,
        )
        for name, hours in (("deal", 1), ("tick", 2))
    ]  # fmt: skip
    await conn.execute("select weft.offer_events($1)", events)
    since = "select deaf_since + interval '1 microsecond' from weft.live_source where not is_listening"
    assert await conn.fetchval(since) == await conn.fetchval("select at from weft.event where id = $1", events[1])
