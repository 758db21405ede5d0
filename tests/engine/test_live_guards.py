"""Live DAGs of two orgs that are called the same, and acts that come too late: each lands on its own, or nowhere."""

from __future__ import annotations

import asyncio
from typing import Any, TypeAlias

import asyncpg
import pytest
from engine_scene import MakeClient

import weft
from engine.test_deploys import market
from weft.live import swapping
from weft.live.collecting import DagCollector
from weft.live.router import Router
from weft.worker.registry import Registry

Conn: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
NO_ORCHESTRATOR = "no orchestrator is there: nothing of it begins before one is; start `weft orchestrator`"


@pytest.fixture
async def both(make_client: MakeClient, conn: Conn) -> tuple[weft.Client, weft.Client]:
    """Clients of two orgs; what is of the second stands first wherever rows have no order."""
    await conn.execute("insert into weft.org (id, slug, name) values (2, 'acme', 'Acme')")
    theirs, ours = await make_client(org="acme", actor="eve"), await make_client(actor="ada")
    await theirs.create_queue("default")
    await theirs.live.deploy(market(7))
    await theirs.live.pause("market", job="again")
    return ours, theirs


async def _rows(conn: Conn, org: int = 2) -> dict[str, list[str]]:
    tables = (
        "live_dag dag_version dag_version_job dag_version_dataset live_job live_input live_output live_source "
        "live_unit live_backfill operator_state dataset dataset_version tag tag_move artifact audit"
    ).split()
    return {
        name: sorted(map(str, await conn.fetch(f"select * from weft.{name} where org_id = $1", org))) for name in tables
    }


async def test_what_is_called_the_same_in_another_org_is_another_thing(
    both: tuple[weft.Client, weft.Client], conn: Conn
) -> None:
    ours, theirs = both
    before = await _rows(conn)
    live = ours.live
    assert await live.list() == []
    for look in (live.show("market"), live.jobs("market"), live.history("market"), live.backfills("market")):
        with pytest.raises(weft.NotFound, match="see `weft live list`"):
            await look
    for act in (
        live.pause("market"), live.resume("market"), live.pause("market", job="again"), live.drain("market"),
        live.resume("market", job="again"), live.rollback("market"), live.abandon("market"),
        live.units("market", "ticks"), live.state("market", "ticks"), live.retry("market", "ticks"),
        live.rebuild("market", "ticks"), live.rematerialize("market", "scaled", partitions=["a"]),
        live.backfill("market", "scaled"), live.plan_rollback("market"),
        live.rebuild("market", "ticks", dry_run=True),
        live.rematerialize("market", "scaled", partitions=["a"], dry_run=True),
    ):  # fmt: skip
        with pytest.raises(weft.NotFound):
            await act
    # The first here: with the datasets, the queue and the handlers of its own org.
    plan = await live.plan(market(7))
    assert (plan.version, plan.base, {each.action for each in plan.datasets}) == (1, None, {"new"})
    await live.deploy(market(7))
    again = await live.deploy(market(7) | {"description": "again"})
    assert {each.version for each in again.datasets} == {1}
    assert [job.paused_at for job in await live.jobs("market")] == [None] * 3
    await live.pause("market")
    await live.drain("market")
    await live.rollback("market", version=1)
    assert await _rows(conn) == before
    await theirs.live.pause("market")
    await live.resume("market")
    assert (await theirs.live.show("market")).paused_at is not None


async def test_a_dataset_that_another_org_makes_later_is_not_in_the_way(
    both: tuple[weft.Client, weft.Client], conn: Conn
) -> None:
    ours, theirs = both

    def shared(by: int, **more: Any) -> dict[str, Any]:
        found = market(by, **more)
        found["jobs"] = {"ticks": found["jobs"]["ticks"] | {"outputs": ["shared"], "config": {"by": by}}}
        return found

    await ours.live.deploy(shared(1, dag="one"))
    await theirs.live.deploy(shared(1, dag="two"))
    before = await _rows(conn)
    await ours.live.deploy(shared(2, dag="one"))
    assert await _rows(conn) == before


async def test_names_are_looked_for_in_ones_own_org_alone(
    both: tuple[weft.Client, weft.Client], conn: Conn, make_client: MakeClient
) -> None:
    ours, theirs = both
    flow = {"workflow_id": "feed", "nodes": {"START": {"type": "start", "next": "END"}, "END": {"type": "end"}}}
    await theirs.workflows.push(flow)
    await theirs.datasets.create("secrets")
    dag = market(dag="feed")
    dag["jobs"]["again"]["inputs"] = ["scaled", "secrets"]
    with pytest.raises(weft.InvalidInput, match="there is no dataset 'secrets'"):
        await ours.live.deploy(dag)
    dag["jobs"]["again"]["inputs"] = ["scaled", "secret"]
    with pytest.raises(weft.InvalidInput) as refused:
        await ours.live.deploy(dag)
    assert "secrets" not in str(refused.value)
    # That there is such a workflow, dataset or reader elsewhere is nobody's concern.
    done = await ours.live.deploy(market(dag="feed"))
    assert done.at_once
    await conn.execute(
        """insert into weft.dataset (org_id, name, storage, producer_dag, producer_node, actor)
           values (2, 'report', '{}', 'reporting', 'sum', 'eve')"""
    )
    await conn.execute(
        """insert into weft.dataset_edge (org_id, input_id, output_id) select 2, i.id, o.id
           from weft.dataset i, weft.dataset o where i.org_id = 2 and i.name = 'scaled' and o.name = 'report'"""
    )
    plan = await ours.live.plan(market(9, dag="feed"))
    assert plan.touched == ()
    with pytest.raises(weft.NotFound) as missing:
        await ours.live.show("markt")
    assert "market" not in str(missing.value)
    with pytest.raises(weft.NotFound) as missing:
        await ours.live.pause("market", job="scaeld")
    assert "scaled" not in str(missing.value)


async def test_what_is_measured_is_of_ones_own_org(both: tuple[weft.Client, weft.Client]) -> None:
    counts = [
        sum(
            sample.value for metric in await client.metrics() if metric.name == "live_jobs" for sample in metric.samples
        )
        for client in both
    ]
    assert counts == [0, 3]


async def test_only_workers_that_are_there_know_handlers(both: tuple[weft.Client, weft.Client], conn: Conn) -> None:
    ours, _ = both
    for org, until, handlers in (
        (1, "-1 minute", ["take"]), (2, "1 hour", ["take", "scale"]), (1, "1 hour", ["scale"]),
    ):  # fmt: skip
        await conn.execute(
            """insert into weft.worker (org_id, until, concurrency, pid, hostname, version, queues, handlers)
               values ($1, weft.now() + $2::text::interval, 1, 1, 'here', '0', '{1}', $3)""", org, until, handlers,
        )  # fmt: skip
    plan = await ours.live.plan(market())
    assert plan.warnings == (
        "no worker of the queue default that is there knows the handler take: ticks will wait for one; "
        "start `weft worker --app MODULE --queues default`",
        NO_ORCHESTRATOR,
    )


async def test_whoever_deploys_is_told_what_to_start_for_operators_that_come_with_weft(
    both: tuple[weft.Client, weft.Client], conn: Conn
) -> None:
    ours, _ = both
    await ours.create_queue("far")
    said = {"activation": "source", "operator": "http_fetch", "source": {"kind": "interval", "every": "1h"}}
    said["config"] = {"url": "https://example.com/rates.csv"}
    dag = {"dag": "rates", "jobs": {
        "near": said | {"outputs": ["near"]},
        "far": said | {"outputs": ["far"], "queue": "far"},
        "within": said | {"outputs": ["within"], "runtime": "inline"},
    }}  # fmt: skip
    assert (await ours.live.plan(dag)).warnings == (
        "no worker of the queue default is there: near will wait for one; "
        "start `weft worker --operators --queues default`",
        "no worker of the queue far is there: far will wait for one; start `weft worker --operators --queues far`",
        NO_ORCHESTRATOR,
    )
    # A worker need not have handlers of its own for what comes with Weft.
    async with weft.Worker(client=ours, registry=Registry(), queues=["far"]), weft.Orchestrator(client=ours):
        assert [each.partition(":")[0] for each in (await ours.live.plan(dag)).warnings] == [
            "no worker of the queue default is there"
        ]


async def test_a_backfill_is_cancelled_by_its_own_org_once(both: tuple[weft.Client, weft.Client], conn: Conn) -> None:
    ours, theirs = both
    await conn.execute(
        """insert into weft.dataset_partition (version_id, partition_key, org_id, last_write, rows, bytes, files,
             written_at)
           select d.current_id, 'a', 2, 1, 0, 0, 0, weft.now() from weft.dataset d
           where d.name = 'ticks' and d.org_id = 2"""
    )
    made = await theirs.live.backfill("market", "scaled")
    with pytest.raises(weft.NotFound):
        await ours.live.cancel_backfill(made.id)
    await ours.live.deploy(market())
    assert await ours.live.backfills("market") == []
    await theirs.live.cancel_backfill(made.id)
    with pytest.raises(weft.NotFound):
        await theirs.live.cancel_backfill(made.id)


async def test_what_runs_is_not_left_out_and_what_is_not_held_is_not_tried_again(
    client: weft.Client, conn: Conn
) -> None:
    await client.live.deploy(market())
    for number in range(2):
        await client.jobs.send_event("tick", {"id": number, "day": "mon"})
    await Router(client.database).run_once()
    running, waiting = await client.live.units("market", "ticks")
    assert (running.state, waiting.state) == ("running", "waiting")
    with pytest.raises(weft.StateConflict, match="it is running, and must be held or new or ready or waiting"):
        await client.live.skip("market", "ticks", running.id)
    with pytest.raises(weft.StateConflict, match="it is waiting, and must be held"):
        await client.live.retry("market", "ticks", unit_id=waiting.id)
    assert await client.live.retry("market", "ticks") == 0
    await client.live.skip("market", "ticks", waiting.id)
    assert [unit.id for unit in await client.live.units("market", "ticks")] == [running.id]


async def test_a_held_unit_does_not_begin_anew_beside_one_that_has_taken_its_place(
    client: weft.Client, conn: Conn
) -> None:
    await client.live.deploy(market())
    for state in ("held", "new"):
        await conn.execute(
            """insert into weft.live_unit (org_id, live_job_id, lane, kind, dedupe_key, state, said)
               select 1, j.id, 'mon', 'partition', 'partition:mon', $1, '{}' from weft.live_job j
               where j.name = 'scaled'""",
            state,
        )
    assert await client.live.retry("market", "scaled") == 1
    assert sorted(unit.state for unit in await client.live.units("market", "scaled")) == ["held", "new"]


async def test_what_is_held_keeps_a_version_from_coming_into_effect_however_new_it_is(
    client: weft.Client, conn: Conn
) -> None:
    await client.live.deploy(market())
    await client.live.deploy(market(3))
    await Router(client.database).run_once()
    await conn.execute(
        """insert into weft.live_unit (org_id, live_job_id, lane, kind, dedupe_key, state, said)
           select 1, m.live_job_id, 'mon', 'partition', 'partition:mon', 'held', '{}'
           from weft.live_dag d join weft.dag_version_job m on m.dag_version_id = d.building_id
             join weft.live_job j on j.id = m.live_job_id where j.name = 'scaled'"""
    )
    assert await swapping.run_once(client.database) == 0
    await conn.execute("delete from weft.live_unit where state = 'held'")
    assert await swapping.run_once(client.database) == 1


async def test_of_a_dags_old_versions_the_young_stay(client: weft.Client, conn: Conn) -> None:
    for attempts in (1, 2, 3):
        dag = market(7)
        dag["jobs"]["ticks"]["max_attempts"] = attempts
        await client.live.deploy(dag)
    collector = DagCollector(client.database, client.settings.dataset_retention)
    await conn.execute("update weft.dag_version set retired_at = retired_at - interval '40 days' where number = 1")
    async with conn.transaction():
        await conn.execute("select * from weft.live_dag for no key update")
        assert await collector.run_once() == 0
    assert await collector.run_once() == 1
    assert [each.number for each in await client.live.history("market")] == [3, 2]


async def test_whoever_changes_a_dag_waits_for_whoever_does_so_already(client: weft.Client, conn: Conn) -> None:
    await client.live.deploy(market())
    await client.live.deploy(market(3))
    async with conn.transaction():
        await conn.execute("select * from weft.live_dag for no key update")
        # Those who look again and again pass it over.
        assert await swapping.run_once(client.database) == 0
        acting = asyncio.create_task(client.live.abandon("market"))
        async with asyncio.timeout(30):
            waits = "select count(*) from pg_locks where not granted and pid <> pg_backend_pid()"
            while not await conn.fetchval(waits):
                pass
        assert not acting.done()
    assert await acting == 2


async def test_only_a_version_that_was_in_effect_is_gone_back_to(client: weft.Client, conn: Conn) -> None:
    await client.live.deploy(market())
    await client.live.deploy(market(3))
    await client.live.deploy(market(4))
    with pytest.raises(weft.StateConflict, match="to version 2: it is abandoned, and must be retired"):
        await client.live.rollback("market", version=2)
    with pytest.raises(weft.StateConflict, match="to version 3: it is building, and must be retired"):
        await client.live.rollback("market", version=3)
    with pytest.raises(weft.NotFound, match="that was in effect before 1"):
        await client.live.rollback("market")
    assert (await client.live.rollback("market", version=1)).was == 1
    assert (await client.live.show("market")).building == 3
    with pytest.raises(weft.NotFound, match="version 9 of market"):
        await client.live.rollback("market", version=9)


async def test_what_is_used_by_another_version_is_not_closed_beneath_it(client: weft.Client, conn: Conn) -> None:
    """A version of a dataset that a live job writes, or that a kept version of a DAG has, stays, however old it is."""
    from weft.data.collecting import SQL

    await client.live.deploy(market())
    await client.live.deploy(market(3))
    await conn.execute("update weft.dataset_version set retired_at = weft.now() - interval '1 year'")
    closed: list[Any] = await conn.fetch(SQL.close_versions, _month(), None)
    assert closed == []
    # Once without those who write it, once without the versions that have it.
    await conn.execute("delete from weft.live_input")
    for table in ("live_output", "dag_version_dataset"):
        async with _undone(conn):
            await conn.execute(f"delete from weft.{table}")
            assert await conn.fetch(SQL.close_versions, _month(), None) == []
    await conn.execute("delete from weft.live_output")
    await conn.execute("delete from weft.dag_version_dataset")
    # All but those that are current.
    assert len(await conn.fetch(SQL.close_versions, _month(), None)) == 2


def _month() -> Any:
    from datetime import timedelta

    return timedelta(days=30)


class _undone:
    """What is done inside is taken back."""

    def __init__(self, conn: Conn) -> None:
        self._transaction = conn.transaction()

    async def __aenter__(self) -> None:
        await self._transaction.start()

    async def __aexit__(self, *_: object) -> None:
        await self._transaction.rollback()


async def test_who_goes_back_twice_is_two_versions_back(client: weft.Client) -> None:
    for attempts in (1, 2, 3):
        dag = market(7)
        dag["jobs"]["ticks"]["max_attempts"] = attempts
        await client.live.deploy(dag)
    for version in (2, 1):
        await client.live.rollback("market")
        assert (await client.live.show("market")).version == version
    with pytest.raises(weft.NotFound):
        await client.live.rollback("market")
