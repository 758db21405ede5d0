"""What a deploy takes for itself and what it tells of: its own DAG's, and of others only who reads what changes."""

from __future__ import annotations

import asyncio
from typing import Any, TypeAlias

import asyncpg
import pytest

import weft
from engine.test_deploys import market
from engine.test_settling_guards import waits_or_is_done
from engine.test_swap_guards import bazaar, dag_id
from engine.test_turn_guards import job_of, task, unit
from live_scene import make_dag, make_output
from weft.catalog.live_readers import untold
from weft.live.deploying import SQL as DEPLOYING
from weft.live.looking import SQL as LOOKING

Conn: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


def reading(*inputs: str, dag: str = "reports") -> dict[str, Any]:
    """Return a DAG that makes something of datasets of others."""
    job = {"activation": "reactive", "operator": "scale", "execution_strategy": "PerPartition", "config": {"by": 1}}
    return {"dag": dag, "jobs": {"sum": {**job, "inputs": [*inputs], "outputs": [f"{dag} sum"]}}}


async def test_a_deploy_claims_the_datasets_that_it_writes_and_no_other(client: weft.Client, conn: Conn) -> None:
    await client.datasets.create("free")
    await client.live.deploy(market())
    assert await conn.fetchval("select producer_dag from weft.dataset where name = 'free'") is None
    assert await conn.fetchval("select count(*) from weft.dataset where producer_dag = 'market'") == 3


async def test_a_dataset_that_somebody_claims_meanwhile_is_not_written_by_the_dag(
    client: weft.Client, conn: Conn
) -> None:
    await client.datasets.create("ticks")
    async with conn.transaction():
        await conn.execute("update weft.dataset set producer_dag = 'etl', producer_node = 'load', producer_output = 0")
        deploys = asyncio.create_task(client.live.deploy(market()))
        await waits_or_is_done(conn, deploys)
    with pytest.raises(weft.InvalidInput, match="written by"):
        await deploys
    assert await conn.fetchval("select count(*) from weft.live_job") == 0
    # And from when it is known that nobody writes it, nobody claims it.
    async with conn.transaction():
        await conn.fetch(DEPLOYING.hold_datasets, 1, "market", ["ticks"], None, False)
        claims = "select 1 from weft.dataset where name = 'ticks' for no key update skip locked"
        assert await client.database.run(lambda other: other.fetch(claims)) == []


async def test_nobody_goes_back_to_what_is_deleted_meanwhile(client: weft.Client, conn: Conn) -> None:
    for deploy in (market(), market(3)):
        await client.live.deploy(deploy)
    await conn.execute("select weft.swap_dag(id, building_id) from weft.live_dag")
    async with conn.transaction():
        await conn.execute(
            "update weft.dataset set deleted_at = weft.now(), name = name || '@' || id where name = 'scaled'"
        )
        goes_back = asyncio.create_task(client.live.rollback("market", version=1))
        await waits_or_is_done(conn, goes_back)
    with pytest.raises(weft.InvalidInput, match="scaled has been deleted"):
        await goes_back
    assert (await client.live.show("market")).version == 2


async def test_who_goes_back_goes_back_within_its_own_dag(client: weft.Client, conn: Conn) -> None:
    for deploy in (bazaar(), bazaar(3)):
        await client.live.deploy(deploy)
    await conn.execute("select weft.swap_dag(id, building_id) from weft.live_dag")
    await client.live.deploy(market())
    await conn.execute("update weft.dag_version set number = 7 where dag_id = $1", await dag_id(conn))
    for number in (None, 1):
        with pytest.raises(weft.WeftError):
            await client.live.rollback("market", version=number)
    assert (await client.live.show("market")).version == 7


async def test_a_job_that_comes_back_writes_the_versions_that_it_has_left(client: weft.Client, conn: Conn) -> None:
    twofold = market()
    twofold["jobs"]["ticks"]["outputs"] = ["ticks", "rejects"]
    written = "select dataset_id, version_id from weft.live_output where place < 9 order by 1"
    await client.live.deploy(twofold)
    before = await conn.fetch(written)
    await client.live.drain("market")
    await conn.execute("update weft.live_job set state = 'stopped'")
    await conn.execute("update weft.dag_version set retired_at = 'epoch'")
    while await conn.fetchval("select weft.collect_dag($1, interval '1 day')", await dag_id(conn)):
        pass
    assert await conn.fetch(written) == []
    await client.live.deploy(twofold)
    assert await conn.fetch(written) == before


async def test_how_often_a_job_began_anew_is_counted_in_its_own_dag(client: weft.Client, conn: Conn) -> None:
    for deploy in (bazaar(), market()):
        await client.live.deploy(deploy)
    for dag in ("bazaar", "bazaar", "market"):
        await client.live.rebuild(dag, "ticks")
    highest = "select max(nonce) from weft.live_job where dag_id = $1 and name = 'ticks'"
    assert [await conn.fetchval(highest, await dag_id(conn, dag)) for dag in ("bazaar", "market")] == [2, 1]


async def test_a_plan_tells_of_those_who_read_what_it_changes(client: weft.Client, conn: Conn) -> None:
    await client.live.deploy(market())
    await client.live.deploy(reading("scaled"))
    for other in (reading("scaled", dag="past"), reading("ticks", dag="past")):
        await client.live.deploy(other)
    await conn.execute("select weft.swap_dag(id, building_id) from weft.live_dag where building_id is not null")
    await client.live.deploy(reading("ticks", dag="elsewhere"))
    # Workflows that have made something of it, or of something else; and datasets that nobody writes any more.
    for name, dag, made_of in (
        ("report", "reporting", "scaled"),
        ("other", "others", "ticks"),
        ("old", None, "scaled"),
        ("own", "market", "scaled"),
    ):
        await conn.execute(
            """with made as (
                 insert into weft.dataset (org_id, name, storage, producer_dag, producer_node, actor)
                 values (1, $1, '{}', $2, 'sum', 'ann') returning id)
               insert into weft.dataset_edge (org_id, input_id, output_id)
               select 1, d.id, m.id from weft.dataset d cross join made m where d.name = $3""", name, dag, made_of,
        )  # fmt: skip
    # What a live DAG writes of it is told of once.
    await conn.execute(
        """insert into weft.dataset_edge (org_id, input_id, output_id) select 1, i.id, o.id
           from weft.dataset i cross join weft.dataset o where i.name = 'scaled' and o.name = 'reports sum'"""
    )
    plan = await client.live.plan(market(3))
    assert {(each.kind, each.name, each.dataset) for each in plan.touched} == {
        ("live", "reports", "scaled"), ("workflow", "reporting", "scaled"),
    }  # fmt: skip
    assert {(each.name, each.action) for each in plan.datasets} == {
        ("ticks", "reused"), ("scaled", "rebuilt"), ("again", "rebuilt"),
    }  # fmt: skip


async def test_a_name_that_a_workflow_has_is_none_for_a_dag(client: weft.Client) -> None:
    flow = {"workflow_id": "feed", "nodes": {"START": {"type": "start", "next": "END"}, "END": {"type": "end"}}}
    await client.workflows.push(flow, tag="market/live")
    for dag in (market(), market(dag="feed")):
        with pytest.raises(weft.InvalidInput, match="there is a workflow"):
            await client.live.deploy(dag)
    await client.live.deploy(bazaar())


async def shown(conn: Conn, dag: str = "market", after: tuple[str, int] = ("", 0)) -> dict[str, Any]:
    rows = await conn.fetch(LOOKING.jobs, 1, dag, *after, None, 9)
    return {row["name"]: row for row in rows}


async def test_jobs_are_shown_as_they_are_themselves(conn: Conn) -> None:
    dag, other = await make_dag(conn), await make_dag(conn, "other")
    read, written = await make_output(conn, "rates", "feed", "rates"), await make_output(conn, "ticks", "market", "b")
    first = await job_of(conn, "a", dag, state="running", inputs=[(read[0], None)])
    await job_of(conn, "b", dag, state="running", outputs=[written])
    await job_of(conn, "gone", dag, state="stopped")
    lost = await job_of(conn, "lost", other, state="running")
    for number, state, crashes in ((1, "ready", 1), (2, "running", 0)):
        await unit(conn, lost, str(number), "running", task_id=await task(conn, number, state))
        await conn.execute("update weft.task set crashes = $2 where id = $1", number, crashes)
    # One that was sent back by hand, and one that is over: neither is lost.
    await unit(conn, first, "x", "running", task_id=await task(conn, 3, "ready"))
    await unit(conn, first, "y", "held", task_id=1)
    found = await shown(conn)
    assert {name: (row["state"], row["inputs"], row["outputs"]) for name, row in found.items()} == {
        "a": ("running", ["rates"], []), "b": ("running", [], ["ticks@1"]),
    }  # fmt: skip
    assert not any(row["is_live"] or row["is_building"] for row in found.values())
    assert [*await shown(conn, after=("a", found["a"]["id"]))] == ["b"]
    assert (await shown(conn, "other"))["lost"]["state"] == "lost"


@pytest.mark.parametrize("why", ["of another queue", "gone", "late"])
async def test_a_source_is_pending_until_a_worker_of_its_queue_is_there(conn: Conn, why: str) -> None:
    await job_of(conn, "looks", dag := await make_dag(conn), source={"kind": "continuous"}, state="running")
    await job_of(conn, "reacts", dag, state="running")
    worker = await conn.fetchval(
        """insert into weft.worker (org_id, until, concurrency, pid, hostname, version, queues, handlers)
           values (1, weft.now() + interval '1 hour', 1, 1, 'here', '0', '{1}', '{}') returning id"""
    )
    assert {name: row["state"] for name, row in (await shown(conn)).items()} == {
        "looks": "running",
        "reacts": "running",
    }
    changes = {"of another queue": "queues = '{9}'", "gone": "state = 'stopped'", "late": "until = weft.now()"}
    await conn.execute(f"update weft.worker set {changes[why]} where id = $1", worker)
    assert {name: row["state"] for name, row in (await shown(conn)).items()} == {
        "looks": "pending",
        "reacts": "running",
    }


async def test_units_states_and_versions_are_those_that_are_asked_for(client: weft.Client, conn: Conn) -> None:
    for deploy in (bazaar(), market(), market(3)):
        await client.live.deploy(deploy)
    jobs = {
        row["name"]: row["id"]
        for row in await conn.fetch(
            "select j.name, j.id from weft.live_job j join weft.live_dag d on d.id = j.dag_id where d.name = 'market'"
        )
    }
    for name, job in jobs.items():
        await unit(conn, job, name, "held")
        await unit(conn, job, name, "waiting")
        await conn.execute(
            """insert into weft.operator_state (live_job_id, state_key, org_id, state)
               select $1, k, 1, to_json($2::text) from unnest('{a,b}'::text[]) k""", job, name,
        )  # fmt: skip
    units = await client.live.units("market", "ticks")
    assert [(each.lane, each.state) for each in units] == [("ticks", "held"), ("ticks", "waiting")]
    assert [each.state for each in await client.live.units("market", "ticks", state="waiting")] == ["waiting"]
    rows = await conn.fetch(LOOKING.units, 1, jobs["ticks"], units[0].id, None, 9)
    assert [row["id"] for row in rows] == [units[1].id]
    rows = await conn.fetch(LOOKING.states, 1, jobs["ticks"], "a", 9)
    assert [(row["key"], row["state"]) for row in rows] == [("b", '"ticks"')]
    assert await client.live.units("bazaar", "ticks") == []
    assert [row["name"] for row in await conn.fetch(LOOKING.list, 1, "bazaar", None, 9)] == ["market"]
    assert [each.number for each in await client.live.history("market")] == [2, 1]
    rows = await conn.fetch(LOOKING.versions, 1, await dag_id(conn), 2, 9)
    assert [row["number"] for row in rows] == [1]


async def test_jobs_are_told_by_the_versions_that_they_are_of(client: weft.Client, conn: Conn) -> None:
    for deploy in (market(), market(3), bazaar()):
        await client.live.deploy(deploy)

    async def told() -> list[tuple[str, bool, bool]]:
        rows = await conn.fetch(LOOKING.jobs, 1, "market", "", 0, None, 9)
        return [(row["name"], row["is_live"], row["is_building"]) for row in rows]

    old_and_new = [(name, *which) for name in ("again", "scaled") for which in ((True, False), (False, True))]
    assert await told() == [*old_and_new, ("ticks", True, True)]
    found = [(await conn.fetchrow(LOOKING.job, 1, "market", "scaled", number))["id"] for number in (1, 2, None)]  # type: ignore[index]
    assert found[0] == found[2] < found[1]
    names = [row["name"] for row in await conn.fetch(LOOKING.job_names, 1, "bazaar")]
    assert names == ["again", "scaled", "ticks"]
    await client.live.deploy(reading("ticks"))
    assert [row["name"] for row in await conn.fetch(LOOKING.job_names, 1, "reports")] == ["sum"]
    # What was left behind is shown until it has stopped; what is in effect, whatever its state.
    await conn.execute("select weft.swap_dag(id, building_id) from weft.live_dag where building_id is not null")
    await conn.execute("update weft.live_job set state = 'stopped'")
    assert await told() == [("again", True, False), ("scaled", True, False), ("ticks", True, False)]


async def test_what_comes_to_a_job_is_hidden_by_what_that_job_reads_and_writes(conn: Conn) -> None:
    made = [await make_output(conn, name, "feed", name) for name in ("rates", "ticks")]
    for (dataset, _), role in zip(made, ("staff", "sales"), strict=True):
        await conn.execute("update weft.dataset set read_roles = array[$2] where id = $1", dataset, role)
    jobs = [
        await job_of(conn, "reads rates", inputs=[made[0]]), await job_of(conn, "reads ticks", inputs=[made[1]]),
        await job_of(conn, "writes rates", outputs=[made[0]]), await job_of(conn, "writes ticks", outputs=[made[1]]),
    ]  # fmt: skip
    for role, hidden in (("staff", jobs[1::2]), ("sales", jobs[::2])):
        assert await untold(conn, 1, jobs, frozenset({role})) == set(hidden)
    assert await untold(conn, 1, jobs, None) == set()
    # Nor is anything told of one that is gone, or of another org.
    reader = await job_of(conn, "reads nothing")
    assert await untold(conn, 1, [reader, 5], frozenset()) == {5}
    assert await untold(conn, 2, [reader], frozenset()) == {reader}


async def test_what_is_measured_is_what_could_begin_and_what_is_held(conn: Conn) -> None:
    ago = await conn.fetchval("select weft.now() - interval '1 hour'")
    soon = await conn.fetchval("select weft.now() + interval '1 hour'")
    dag, paused = await make_dag(conn), await make_dag(conn, "paused")
    await conn.execute("update weft.live_dag set paused_at = weft.now() where id = $1", paused)
    job, other = await job_of(conn, "one", dag, state="running"), await job_of(conn, "two", dag, state="idle")
    await unit(conn, job, "a", "held", since=ago)
    await unit(conn, job, "b", "ready", since=ago, run_at=soon)
    await unit(conn, other, "a", "waiting", since=ago)
    for name, which in (("of a paused DAG", {"dag": paused}), ("paused", {"dag": dag, "paused_at": ago})):
        held_up = await job_of(conn, name, state="pending", **which)
        for state in ("ready", "new"):
            await unit(conn, held_up, state, state, since=ago)
    await unit(conn, await job_of(conn, "gone", dag, state="stopped"), "a", "held")
    row = await conn.fetchrow(LOOKING.measure, 1)
    assert row is not None
    assert {**row} == {"pending": 2, "running": 1, "idle": 1, "draining": 0, "held": 1, "lag": 0.0}
    for state in ("new", "ready"):
        waits = await unit(conn, other, state, state, since=ago)
        assert 3500 < (await conn.fetchrow(LOOKING.measure, 1))["lag"] < 3700  # type: ignore[index]
        await conn.execute("delete from weft.live_unit where id = $1", waits)


@pytest.mark.parametrize("state", ["stopped", "lost"])
async def test_who_has_gone_knows_no_handler(conn: Conn, state: str) -> None:
    await conn.execute(
        """insert into weft.worker (org_id, until, concurrency, pid, hostname, version, queues, handlers)
           values (1, weft.now() + interval '1 hour', 1, 1, 'here', '0', '{1}', '{note}')"""
    )
    assert len(await conn.fetch(DEPLOYING.known_handlers, 1, [1], ["note"], "weft.")) == 1
    await conn.execute("update weft.worker set state = $1::text::weft.worker_state", state)
    assert await conn.fetch(DEPLOYING.known_handlers, 1, [1], ["note"], "weft.") == []
