"""What a rollback of a live DAG would do, as it is told before: it does so then, and nothing is changed by telling."""

from __future__ import annotations

import re
from typing import Any, TypeAlias

import asyncpg
import pytest

import weft
from engine.test_deploys import Scene, market
from engine.test_live_guards import NO_ORCHESTRATOR
from live_scene import all_rows, swap
from weft.sdk.session import seeing
from weft.worker.registry import Registry

Conn: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z")


@pytest.fixture
def scene(client: weft.Client, conn: Conn, registry: Registry) -> Scene:
    return Scene(client, conn, registry)


def reader(dag: str, *inputs: str) -> dict[str, Any]:
    """Return a DAG that reads datasets of others."""
    job = {"activation": "reactive", "operator": "scale", "execution_strategy": "PerUpdate", "config": {"by": 1}}
    return {"dag": dag, "jobs": {"copy": {**job, "inputs": [*inputs], "outputs": [f"{dag} copy"]}}}


def second() -> dict[str, Any]:
    """Return the market with one job that means something else, one more, and one that is executed otherwise."""
    found = market(3)
    found["jobs"]["ticks"]["timeout_seconds"] = 90
    found["jobs"]["more"] = found["jobs"]["again"] | {"outputs": ["more"]}
    return found


def older(dataset: str, then: int, now: int, job: str) -> str:
    """Return the warning that readers see older rows of a dataset for a while, without its moments."""
    return (
        f"{dataset}@{then} was last written at M, and {dataset}@{now}, which readers see now, at M: "
        f"they see the older rows until {job} has caught up"
    )


def told(plan: weft.DeployPlan) -> list[str]:
    """Return the warnings of a plan about rows, without their moments."""
    return [_MOMENT.sub("M", each) for each in plan.warnings if "which readers see now" in each]


async def test_a_rollback_is_told_before_it_is_done_and_changes_nothing(scene: Scene) -> None:
    live = scene.client.live
    async with scene.running():
        await live.deploy(market())
        await scene.tick(1)
        await scene.settled()
        before = {job.name: job.id for job in await live.jobs("market")}
        await live.deploy(second())
        await live.wait("market", 2, timeout=30)
        await scene.tick(2)
        await scene.settled()
    for dag in (reader("readers", "scaled", "more"), reader("others", "ticks")):
        await live.deploy(dag)
    await live.deploy(market(4))
    rows = await all_rows(scene.conn)
    plan = await live.plan_rollback("market")
    assert await live.plan_rollback("market", version=1) == plan
    assert await all_rows(scene.conn) == rows
    assert (plan.changes, plan.version, plan.base, plan.replaces, plan.at_once) == (True, 1, 2, 3, True)
    assert plan.jobs == (
        weft.JobPlan("again", "changed", upstream=("scaled",), resumed=True),
        weft.JobPlan("scaled", "changed", ("config.by",), resumed=True),
        weft.JobPlan("ticks", "adjusted", ("timeout_seconds",)),
        weft.JobPlan("more", "removed"),
    )
    assert plan.datasets == (
        weft.DatasetPlan("again", "reused", "again", 1, 2), weft.DatasetPlan("scaled", "reused", "scaled", 1, 2),
        weft.DatasetPlan("ticks", "reused", "ticks", 1, 1), weft.DatasetPlan("more", "left", "more", 1, 1),
    )  # fmt: skip
    assert plan.touched == (weft.Touched("live", "readers", "copy", "scaled"),)
    assert plan.inputs == ()
    assert told(plan) == [older("again", 1, 2, "again"), older("scaled", 1, 2, "scaled")]
    assert NO_ORCHESTRATOR in plan.warnings
    assert any("knows the handler scale: again, scaled will wait for one" in each for each in plan.warnings)
    # And so it is done.
    done = await live.rollback("market")
    assert (done.version, done.was) == (plan.version, plan.base)
    assert {job.name: job.id for job in await live.jobs("market") if job.is_live} == before
    for each in plan.datasets:
        assert (await scene.client.datasets.state(each.name)).version == each.version
    assert await scene.values("scaled") == [2]
    back = await live.plan_rollback("market", version=2)
    assert [(job.name, job.action, job.resumed) for job in back.jobs] == [
        ("again", "changed", True), ("more", "new", True), ("scaled", "changed", True), ("ticks", "adjusted", False),
    ]  # fmt: skip
    assert {each.name: (each.current, each.version) for each in back.datasets} == {
        "again": (1, 2), "scaled": (1, 2), "ticks": (1, 1), "more": (1, 1),
    }  # fmt: skip


async def test_rows_are_not_called_older_where_nothing_came_meanwhile(scene: Scene) -> None:
    live = scene.client.live
    async with scene.running():
        await live.deploy(market())
        await scene.tick(1)
        await scene.settled()
        await live.deploy(market(3))
        await live.wait("market", 2, timeout=30)
        await scene.settled()
        # Written later, of the same.
        quiet = await live.plan_rollback("market")
        assert (quiet.warnings, {each.dataset for each in quiet.touched}) == ((), set())
        assert {each.name: (each.current, each.version) for each in quiet.datasets}["scaled"] == (2, 1)
        other = market(3)
        other["jobs"]["again"]["config"] = {"by": 20}
        await live.deploy(other)
        await live.wait("market", 3, timeout=30)
        await scene.tick(2)
        await scene.settled()
        # Of the two jobs that come back one has nothing to do before the other has done something.
        assert told(await live.plan_rollback("market", version=1)) == [
            older("again", 1, 3, "again"), older("scaled", 1, 2, "scaled"),
        ]  # fmt: skip
        assert told(await live.plan_rollback("market", version=2)) == [older("again", 2, 3, "again")]


async def test_older_rows_are_told_of_where_a_job_that_comes_back_has_something_to_do(
    client: weft.Client, conn: Conn
) -> None:
    await client.live.deploy(market())
    await client.live.deploy(market(3))
    await swap(conn)
    await conn.execute("update weft.dataset_version set written_at = weft.now() - interval '1 hour' / number")

    async def lagging() -> list[str]:
        return [each.partition("@")[0] for each in told(await client.live.plan_rollback("market"))]

    # Those that come back have never taken up what stands there; then they have, and nothing has come.
    assert await lagging() == ["again", "scaled"]
    await conn.execute(
        """update weft.live_input i set routed_write = 0, version_id = coalesce(i.version_id, d.current_id)
           from weft.dataset d where d.id = i.dataset_id"""
    )
    assert await lagging() == []
    # What others have to do, and those that go, is not theirs.
    first = "select min(id) from weft.live_job where name = 'scaled'"
    for name, which, seen in (("ticks", "min", []), ("scaled", "max", []), ("scaled", "min", ["again", "scaled"]),
                              ("again", "min", ["again"])):  # fmt: skip
        await conn.execute(
            f"""insert into weft.live_unit (org_id, live_job_id, lane, kind, dedupe_key, state, said)
                select 1, {which}(id), 'mon', 'partition', 'partition:mon', 'held', '{{}}' from weft.live_job
                where name = $1""", name,
        )  # fmt: skip
        assert await lagging() == seen, (name, which)
        await conn.execute("delete from weft.live_unit")
    await conn.execute("update weft.dataset_version set last_write = 1 where dataset_id = "
                       "(select id from weft.dataset where name = 'ticks')")  # fmt: skip
    assert await lagging() == ["again", "scaled"]
    await conn.execute(f"update weft.live_input set routed_write = 1 where live_job_id = ({first})")
    assert await lagging() == []


@pytest.mark.parametrize(
    ("source", "ending"),
    [
        ({"kind": "event", "event": "tick"}, "the older rows until ticks has caught up"),
        ({"kind": "cron", "schedule": "@daily", "catch_up": "all"}, "the older rows until ticks has caught up"),
        ({"kind": "cron", "schedule": "@daily", "catch_up": "none"},
         "the older rows, and what came to ticks, a source of ticks, meanwhile does not come again"),
        ({"kind": "interval", "every": "1h"},
         "the older rows, and of the ticks meanwhile ticks makes up for the latest alone"),
        ({"kind": "table", "table": "public.payments", "columns": ["id"]},
         "the older rows, and what came to ticks, a source of rows, meanwhile does not come again"),
    ],
)  # fmt: skip
async def test_what_does_not_come_again_to_a_source_is_told(
    client: weft.Client, conn: Conn, source: dict[str, Any], ending: str
) -> None:
    await conn.execute("create table public.payments (id int)")
    for number in (1, 2):
        dag = market()
        dag["jobs"]["ticks"] |= {"source": source, "config": {"number": number}}
        await client.live.deploy(dag)
        if number == 2:
            await swap(conn)
    written = "update weft.dataset_version set written_at = weft.now() - interval '1 hour' * (2 - number)"
    await conn.execute(f"{written} where dataset_id = (select id from weft.dataset where name = 'ticks')")
    (warning,) = told(await client.live.plan_rollback("market"))
    assert warning.endswith(ending)
    await conn.execute("update weft.dataset_version set written_at = null where number = 1")
    (warning,) = told(await client.live.plan_rollback("market"))
    assert warning.startswith("ticks@1 was never written, and ticks@2, which readers see now, at M: they see no rows")


async def test_a_plan_is_refused_as_the_rollback_would_be(client: weft.Client, conn: Conn) -> None:
    live = client.live
    await client.datasets.create("rates")
    dag = market()
    dag["jobs"]["again"]["inputs"] = ["scaled", "rates"]

    async def same(
        match: str, name: str = "market", version: Any = None, kind: type[weft.WeftError] = weft.NotFound
    ) -> None:
        rows, errors = await all_rows(conn), []
        for act in (live.plan_rollback, live.rollback):
            with pytest.raises(kind, match=match) as refused:
                await act(name, version=version)
            errors.append((type(refused.value), str(refused.value)))
        assert errors[0] == errors[1]
        assert await all_rows(conn) == rows

    await same("see `weft live list`")
    await live.deploy(dag)
    await same("that was in effect before 1")
    await same("Did you mean 'market'", "markt")
    await live.deploy(market(3))
    await same("to version 2: it is building, and must be retired", version=2, kind=weft.StateConflict)
    await live.abandon("market")
    await same("to version 2: it is abandoned, and must be retired", version=2, kind=weft.StateConflict)
    await same("version 9 of market", version=9)
    for wrong in (0, 2**31, "1", True):
        await same("version", version=wrong, kind=weft.InvalidInput)
    await live.drain("market")
    await same("no version of market is in effect", kind=weft.InvalidInput)
    await client.datasets.delete("rates")
    await client.datasets.delete("ticks")
    await same("rates has been deleted: `weft datasets undelete rates`", version=1, kind=weft.InvalidInput)
    # Nor is anybody told the name of what he does not see.
    await client.roles.create("analyst")
    with seeing(frozenset({"analyst"})):
        gone = "a dataset that you do not see has been deleted: ask an admin to bring it back"
        await same(gone, version=1, kind=weft.InvalidInput)
        await conn.execute("update weft.dataset set read_roles = '{analyst}' where name like 'ticks@%'")
        await same("ticks has been deleted", version=1, kind=weft.InvalidInput)
    for name in ("rates", "ticks"):
        await client.datasets.undelete(name)
    plan = await live.plan_rollback("market", version=1)
    assert (plan.changes, plan.version, plan.base, {job.action for job in plan.jobs}) == (True, 1, None, {"new"})
    assert plan.inputs == (weft.InputPlan("rates", "again", None),)
    assert told(plan) == []
    assert (await live.rollback("market", version=1)).version == 1


async def test_going_back_to_what_is_in_effect_changes_nothing(client: weft.Client, conn: Conn) -> None:
    await client.live.deploy(market())
    await client.live.deploy(market(3))
    plan = await client.live.plan_rollback("market", version=1)
    assert (plan.changes, plan.version, plan.base, plan.replaces, plan.touched) == (False, 1, 1, None, ())
    assert {job.action for job in plan.jobs} == {"unchanged"}
    assert {(each.action, each.current, each.version) for each in plan.datasets} == {("reused", 1, 1)}
    # As it does also where what it has is not there any more.
    await conn.execute("update weft.dataset set deleted_at = weft.now(), name = name || '@' || id where name = 'again'")
    assert not (await client.live.plan_rollback("market", version=1)).changes
    assert (await client.live.rollback("market", version=1)).was == 1
    assert (await client.live.show("market")).building == 2


async def test_a_plan_names_no_dataset_that_is_not_seen(client: weft.Client, conn: Conn) -> None:
    await client.datasets.create("rates")
    first = market()
    first["jobs"]["again"]["inputs"] = ["scaled", "rates"]
    await client.live.deploy(first)
    await client.live.deploy(second())
    await swap(conn)
    await client.live.deploy(reader("readers", "scaled", "again"))
    await conn.execute("update weft.dataset_version set written_at = weft.now() - interval '1 hour' / number")
    await client.roles.create("analyst")
    for roles, seen in ((frozenset(), set()), (frozenset({"analyst"}), {"again", "more"})):
        if seen:
            for name in seen:
                await client.datasets.grant(name, ["analyst"])
        with seeing(roles):
            plan = await client.live.plan_rollback("market")
        assert {each.name for each in plan.datasets} == seen
        assert {each.dataset for each in plan.touched} == seen & {"again"}
        assert plan.inputs == ()
        assert {each.partition("@")[0] for each in told(plan)} == seen & {"again"}
        # Jobs are told of as a deploy tells of them.
        assert {job.name for job in plan.jobs} == {"ticks", "scaled", "again", "more"}
    plan = await client.live.plan_rollback("market")
    assert plan.inputs == (weft.InputPlan("rates", "again", None),)
    assert {each.partition("@")[0] for each in told(plan)} == {"scaled", "again"}
    assert {each.dataset for each in plan.touched} == {"scaled", "again"}


async def test_a_plan_tells_which_worker_a_job_that_comes_back_waits_for(client: weft.Client, conn: Conn) -> None:
    await client.create_queue("far")
    first = market()
    first["jobs"]["scaled"]["queue"] = "far"
    await client.live.deploy(first)
    await client.live.deploy(market())
    plan = await client.live.plan_rollback("market")
    assert [(job.name, job.action, job.fields) for job in plan.jobs if job.action != "unchanged"] == [
        ("scaled", "adjusted", ("queue",))
    ]
    assert [each.partition(";")[0] for each in plan.warnings] == [
        "no worker of the queue default that is there knows the handler scale: again will wait for one",
        "no worker of the queue far that is there knows the handler scale: scaled will wait for one",
        "no worker of the queue default that is there knows the handler take: ticks will wait for one",
        NO_ORCHESTRATOR.partition(";")[0],
    ]
