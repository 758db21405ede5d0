"""Deploys of live DAGs: what stays the same goes on, the rest is built beside it, and readers see one whole version."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import asyncpg
import pytest

import weft
from live_scene import until
from weft.live import swapping
from weft.live.router import Router
from weft.sdk.session import seeing
from weft.worker.live import LiveContext, operator
from weft.worker.registry import Registry

Conn: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


def market(factor: int = 2, **more: Any) -> dict[str, Any]:
    """Return a DAG of a source of events, and two jobs that multiply what it writes, one after the other."""
    return {
        "dag": "market",
        "jobs": {
            "ticks": {
                "activation": "source", "operator": "take", "source": {"kind": "event", "event": "tick", "lane": "day"},
                "outputs": ["ticks"], "update_strategy": "append", "unique_key": ["id"],
            },
            "scaled": {
                "activation": "reactive", "operator": "scale", "execution_strategy": "PerPartition",
                "inputs": ["ticks"], "outputs": ["scaled"], "config": {"by": factor},
            },
            "again": {
                "activation": "reactive", "operator": "scale", "execution_strategy": "PerPartition",
                "inputs": ["scaled"], "outputs": ["again"], "config": {"by": 10},
            },
        },
        **more,
    }  # fmt: skip


class Scene:
    """Operators that write what they are told, and may be stopped."""

    def __init__(self, client: weft.Client, conn: Conn, registry: Registry) -> None:
        self.client, self.conn, self.registry = client, conn, registry
        self.gate = asyncio.Event()
        self.gate.set()
        self.fails = False
        self.taken: list[int] = []

        @operator("take", registry=registry)
        async def take(live: LiveContext) -> None:
            said = live.unit.payload
            self.taken.append(said["id"])
            await live.write([said], partition=said["day"])

        @operator("scale", registry=registry)
        async def scale(live: LiveContext) -> None:
            await self.gate.wait()
            if self.fails:
                raise weft.NonRetryable("not now")
            rows = [{**row, "id": row["id"] * live.config["by"]} for row in (await live.changes()).to_pylist()]
            before = await live.state() or 0
            await live.set_state(before + 1)
            await live.write(rows, partition=live.unit.lane)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with weft.Worker(client=self.client, registry=self.registry), weft.Orchestrator(client=self.client):
            yield

    async def tick(self, *ids: int, day: str = "mon") -> None:
        for id in ids:
            await self.client.jobs.send_event("tick", {"id": id, "day": day})

    async def settled(self, dag: str = "market") -> None:
        async def is_quiet() -> bool:
            shown = await self.client.live.show(dag)
            return not shown.units and not shown.writes and shown.building is None

        await until(is_quiet)

    async def values(self, name: str, partition: str = "mon") -> list[int]:
        rows = await self.client.datasets.sample(name, limit=1000)
        return sorted(row["id"] for row in rows if row.get("day", partition) == partition)


@pytest.fixture
def scene(client: weft.Client, conn: Conn, registry: Registry) -> Scene:
    return Scene(client, conn, registry)


async def test_the_first_version_is_in_effect_at_once_and_its_jobs_react(scene: Scene) -> None:
    async with scene.running():
        done = await scene.client.live.deploy(market(), message="first")
        assert (done.version, done.base, done.at_once, done.changes) == (1, None, True, True)
        assert [(job.name, job.action) for job in done.jobs] == [("ticks", "new"), ("scaled", "new"), ("again", "new")]
        await scene.tick(1, 2, 3)
        await scene.settled()
        assert await scene.values("ticks") == [1, 2, 3]
        assert await scene.values("scaled") == [2, 4, 6]
        assert await scene.values("again") == [20, 40, 60]
    tag = await scene.client.workflows.tag("market/live")
    assert (tag.is_protected, tag.workflow_id) == (True, "market")
    shown = await scene.client.datasets.show("scaled")
    assert shown.producer == weft.Producer("market", "scaled", 0)
    assert (await scene.client.datasets.show("ticks")).unique_key == ("id",)


async def test_what_a_deploy_leaves_as_it_is_goes_on_and_the_rest_is_built_beside_it(scene: Scene) -> None:
    async with scene.running():
        await scene.client.live.deploy(market())
        await scene.tick(1, 2)
        await scene.settled()
        before = {job.name: job for job in await scene.client.live.jobs("market")}
        scene.gate.clear()
        done = await scene.client.live.deploy(market(3))
        assert (done.version, done.base, done.at_once) == (2, 1, False)
        assert {job.name: (job.action, job.fields, job.upstream) for job in done.jobs} == {
            "ticks": ("unchanged", (), ()), "scaled": ("changed", ("config.by",), ()),
            "again": ("changed", (), ("scaled",)),
        }  # fmt: skip
        assert {each.name: (each.action, each.version) for each in done.datasets} == {
            "ticks": ("reused", 1), "scaled": ("rebuilt", 1), "again": ("rebuilt", 1),
        }  # fmt: skip
        await until(lambda: _has_units(scene, 2))
        for _ in range(3):
            assert await swapping.run_once(scene.client.database) == 0
        # Readers see what is in effect, and the source goes on.
        assert await scene.values("scaled") == [2, 4]
        assert (await scene.client.live.show("market")).version == 1
        scene.gate.set()
        shown = await scene.client.live.wait("market", 2, timeout=30)
        assert shown.building is None
        await scene.settled()
        assert await scene.values("scaled") == [3, 6]
        assert await scene.values("again") == [30, 60]
        after = {job.name: job for job in await scene.client.live.jobs("market") if job.is_live}
        assert after["ticks"].id == before["ticks"].id
        assert after["scaled"].id != before["scaled"].id
        await scene.tick(5)
        await scene.settled()
        assert await scene.values("again") == [30, 60, 150]
    assert scene.taken == [1, 2, 5]
    assert (await scene.client.datasets.state("scaled")).version == 2


async def _has_units(scene: Scene, version: int) -> bool:
    return bool(await scene.client.live.units("market", f"scaled@{version}"))


async def test_going_back_is_instant_and_loses_no_event(scene: Scene) -> None:
    other = market()
    other["jobs"]["ticks"]["config"] = {"changed": True}
    async with scene.running():
        await scene.client.live.deploy(market())
        await scene.tick(1)
        await scene.settled()
        await scene.client.live.deploy(other)
        await scene.client.live.wait("market", 2, timeout=30)
        await scene.tick(2, 3)
        await scene.settled()
        assert await scene.values("ticks") == [2, 3]
        done = await scene.client.live.rollback("market", message="worse")
        assert (done.version, done.was) == (1, 2)
        assert [state.number for state in await scene.client.live.history("market") if state.state == "live"] == [1]
        await scene.settled()
        assert await scene.values("ticks") == [1, 2, 3]
        assert await scene.values("again") == [20, 40, 60]
        again = await scene.client.live.rollback("market", version=2)
        assert (again.version, again.was) == (2, 1)
        await scene.tick(4)
        await scene.settled()
        assert await scene.values("ticks") == [2, 3, 4]
    moves = await scene.client.workflows.moves("market/live")
    assert [move.verb for move in moves] == ["rollback", "rollback", "deploy", "deploy"]
    assert moves[1].message == "worse"


async def test_the_same_document_changes_nothing(scene: Scene) -> None:
    await scene.client.live.deploy(market())
    again = await scene.client.live.deploy(dict(reversed(market().items())))
    assert (again.changes, again.version) == (False, 1)
    assert len(await scene.client.live.history("market")) == 1
    words = await scene.client.live.deploy(market(description="other words"))
    assert (words.changes, words.at_once, words.version) == (True, True, 2)
    assert {job.action for job in words.jobs} == {"unchanged"}
    assert (await scene.client.workflows.show("market/live")).data["description"] == "other words"


async def _stumble(
    client: weft.Client, conn: Conn, registry: Registry, said: dict[str, Any], state: str, delay: float = 0
) -> list[asyncpg.Record]:
    """Let a unit fail until it is in a state; return what failed, with when its task is tried again."""

    @operator("stumble", registry=registry, retry=weft.Retry(4, initial_delay=delay, jitter=0))
    async def stumble(live: LiveContext) -> None:
        raise ValueError("as ever")

    source = {"kind": "event", "event": "told"}
    job = {"activation": "source", "operator": "stumble", "source": source, "outputs": ["notes"], **said}
    await client.live.deploy({"dag": "notes", "jobs": {"notes": job}})
    await client.jobs.send_event("told", {})
    async with weft.Worker(client=client, registry=registry), weft.Orchestrator(client=client):
        await until(lambda: conn.fetchval(f"select true from {state}"))
        return await conn.fetch(
            "select t.due_at > weft.now() + interval '500 s' as is_late from weft.attempt a"
            " left join weft.task t on t.id = a.task_id"
        )


@pytest.mark.parametrize(("said", "attempts"), [({}, 4), ({"max_attempts": 2}, 2), ({"retry": {"jitter": 0}}, 4)])
async def test_a_unit_is_tried_again_as_its_operator_says_where_its_job_does_not(
    client: weft.Client, conn: Conn, registry: Registry, said: dict[str, Any], attempts: int
) -> None:
    held = "weft.live_unit where state = 'held'"
    assert len(await _stumble(client, conn, registry, said, held)) == attempts


@pytest.mark.parametrize(
    ("said", "delay"),
    [
        ({"retry": {"backoff": "fixed", "initial_delay_seconds": 600, "jitter": 0}}, 0),
        # What the job leaves out is as the operator says, also where it says something else.
        ({"max_attempts": 2}, 600),
    ],
)
async def test_a_unit_is_tried_again_as_late_as_its_job_says_and_else_as_its_operator_does(
    client: weft.Client, conn: Conn, registry: Registry, said: dict[str, Any], delay: float
) -> None:
    rows = await _stumble(client, conn, registry, said, "weft.task where state = 'scheduled'", delay)
    assert [row["is_late"] for row in rows] == [True]


async def test_how_a_job_is_executed_changes_without_building_anything(scene: Scene) -> None:
    await scene.client.live.deploy(market())
    await scene.client.create_queue("fast")
    other = market()
    other["jobs"]["scaled"] |= {"timeout_seconds": "90s", "scaling": {"max_concurrency": 7}, "queue": "fast"}
    done = await scene.client.live.deploy(other)
    assert done.at_once
    changed = {job.name: (job.action, set(job.fields)) for job in done.jobs}
    assert changed["scaled"] == ("adjusted", {"timeout_seconds", "scaling.max_concurrency", "queue"})
    kept = (
        "select max_concurrency, extract(epoch from timeout)::int as timeout from weft.live_job where name = 'scaled'"
    )
    assert dict(await scene.conn.fetchrow(kept) or {}) == {"max_concurrency": 7, "timeout": 90}
    await scene.client.live.rollback("market")
    assert dict(await scene.conn.fetchrow(kept) or {}) == {"max_concurrency": 10, "timeout": None}


async def test_of_two_who_deploy_at_once_one_is_told(scene: Scene) -> None:
    await scene.client.live.deploy(market())
    with pytest.raises(weft.DeployConflict, match="was deployed meanwhile, as version 1"):
        await scene.client.live.deploy(market(3), seen=0)
    results = await asyncio.gather(
        *(scene.client.live.deploy(market(factor), seen=1) for factor in (3, 4, 5)), return_exceptions=True
    )
    assert sorted(type(each).__name__ for each in results) == ["DeployConflict", "DeployConflict", "DeployPlan"]
    assert [each.number for each in await scene.client.live.history("market")] == [2, 1]


async def test_a_deploy_replaces_what_is_being_built(scene: Scene) -> None:
    await scene.client.live.deploy(market())
    await scene.client.live.deploy(market(3))
    assert (await scene.client.live.deploy(market(3))).changes is False
    plan = await scene.client.live.plan(market(4))
    assert (plan.version, plan.replaces) == (3, 2)
    await scene.client.live.deploy(market(4))
    states = {each.number: each.state for each in await scene.client.live.history("market")}
    assert states == {1: "live", 2: "abandoned", 3: "building"}
    assert await scene.client.live.abandon("market") == 3
    assert (await scene.client.live.show("market")).building is None
    with pytest.raises(weft.StateConflict):
        await scene.client.live.abandon("market")
    # What is in effect may take the place of what is being built.
    await scene.client.live.deploy(market(3))
    back = await scene.client.live.deploy(market())
    assert (back.changes, back.at_once) == (True, True)
    assert (await scene.client.live.show("market")).version == back.version


async def test_nothing_comes_into_effect_while_a_new_job_is_held(scene: Scene) -> None:
    async with scene.running():
        await scene.client.live.deploy(market())
        await scene.tick(1)
        await scene.settled()
        scene.fails = True
        await scene.client.live.deploy(market(3))

        async def is_held() -> bool:
            return any(job.held for job in await scene.client.live.jobs("market") if job.is_building)

        await until(is_held)
        await scene.conn.execute("update weft.live_unit set since = weft.now()")
        assert await swapping.run_once(scene.client.database) == 0
        (held,) = await scene.client.live.units("market", "scaled@2", state="held")
        assert held.error == "NonRetryable: not now"
        scene.fails = False
        assert await scene.client.live.retry("market", "scaled@2") == 1
        await scene.client.live.wait("market", 2, timeout=30)
        await scene.settled()
        assert await scene.values("again") == [30]


async def test_state_is_carried_over_a_deploy_when_the_job_means_the_same(scene: Scene) -> None:
    async with scene.running():
        await scene.client.live.deploy(market())
        await scene.tick(1)
        await scene.settled()
        other = market()
        other["jobs"]["again"]["config"] = {"by": 20}
        await scene.client.live.deploy(other)
        await scene.client.live.wait("market", 2, timeout=30)
        await scene.tick(2)
        await scene.settled()
        counts = {job: (await scene.client.live.state("market", job))[0].state for job in ("scaled", "again")}
    assert counts["scaled"] >= 2
    assert await scene.values("again") == [40, 80]


async def test_a_job_that_resets_its_outputs_begins_anew_with_each_deploy_that_changes_something(scene: Scene) -> None:
    first = market()
    first["jobs"]["ticks"]["bootstrap"] = {"reset_outputs": True}
    await scene.client.live.deploy(first)
    assert (await scene.client.live.deploy(first)).changes is False
    done = await scene.client.live.deploy(first | {"description": "again"})
    assert {job.name: job.action for job in done.jobs} == dict.fromkeys(("ticks", "scaled", "again"), "changed")
    assert done.jobs[0].fields == ("anew",)


async def test_a_rebuild_makes_a_job_and_all_after_it_anew(scene: Scene) -> None:
    async with scene.running():
        await scene.client.live.deploy(market())
        await scene.tick(1, 2)
        await scene.settled()
        done = await scene.client.live.rebuild("market", "scaled")
        assert {job.name: job.action for job in done.jobs} == {
            "ticks": "unchanged", "scaled": "changed", "again": "changed",
        }  # fmt: skip
        await scene.client.live.wait("market", done.version, timeout=30)
        await scene.settled()
        assert await scene.values("again") == [20, 40]
        assert (await scene.client.datasets.state("scaled")).version == 2
        again = await scene.client.live.deploy(market())
        assert again.changes is False
        first, second = await scene.client.live.history("market")
        assert first.artifact_id == second.artifact_id
        assert done.warnings == ()
        assert (await scene.client.live.rebuild("market", "ticks")).warnings == (
            "ticks begins empty, without the rows that it has: what came to ticks, a source of events, "
            "does not come again; `weft deploy rollback market` leads back",
        )


async def test_a_dataset_has_one_producer_whoever_deploys(scene: Scene) -> None:
    await scene.client.live.deploy(market())
    other = {**market(), "dag": "rival"}
    with pytest.raises(weft.InvalidInput, match="ticks is written by market, node ticks, and has one producer"):
        await scene.client.live.deploy(other)
    assert [each.name for each in await scene.client.live.list()] == ["market"]

    @scene.registry.task(name="write", retry=weft.Retry(1))
    async def write(ctx: weft.Context) -> None:
        await ctx.dataset("ticks").write([{"id": 1}])

    async with scene.running():
        handle = await scene.client.enqueue(write)
        with pytest.raises(weft.TaskFailed, match="ticks is written by market, node ticks and by nobody else"):
            await scene.client.wait(handle.id, timeout=30)
    await scene.client.live.deploy(market(3))
    assert await swapping.run_once(scene.client.database) == 0
    # With a first turn of its jobs there is nothing that they would have to take up.
    await Router(scene.client.database).run_once()
    assert await swapping.run_once(scene.client.database) == 1
    with pytest.raises(weft.InvalidInput, match="weft deploy rollback market"):
        await scene.client.datasets.rollback("scaled@1")


async def test_outputs_may_change_places_and_jobs_their_names(scene: Scene) -> None:
    def named(job: str, *outputs: str) -> dict[str, Any]:
        dag = market()
        dag["jobs"] = {job: {**dag["jobs"]["ticks"], "outputs": list(outputs)}}
        return dag

    await scene.client.live.deploy(named("ticks", "a", "b"))
    await scene.client.live.deploy(named("ticks", "b", "a"))
    assert await swapping.run_once(scene.client.database) == 1
    await scene.client.live.deploy(named("other", "b", "c"))
    assert await swapping.run_once(scene.client.database) == 1
    producers = {name: (await scene.client.datasets.show(name)).producer for name in "bc"}
    assert producers == {"b": weft.Producer("market", "other", 0), "c": weft.Producer("market", "other", 1)}
    left = await scene.client.datasets.show("a")
    assert left.producer is not None
    assert left.producer.node == "ticks"
    await scene.client.live.rollback("market")
    assert (await scene.client.datasets.show("a")).producer == weft.Producer("market", "ticks", 1)


async def test_a_dag_that_is_drained_stops_and_can_be_brought_back(scene: Scene) -> None:
    async with scene.running():
        await scene.client.live.deploy(market())
        await scene.tick(1)
        await scene.settled()
        await scene.client.live.drain("market")
        assert (await scene.client.live.show("market")).version is None

        async def has_stopped() -> bool:
            return not await scene.client.live.jobs("market")

        await until(has_stopped)
        await scene.tick(2)
        assert await scene.values("scaled") == [2]
        with pytest.raises(weft.StateConflict):
            await scene.client.live.drain("market")
        await scene.client.live.rollback("market", version=1)
        await scene.settled()
        assert await scene.values("scaled") == [2, 4]


async def test_what_people_do_with_tags_does_not_move_what_is_in_effect(scene: Scene) -> None:
    await scene.client.live.deploy(market())
    await scene.client.live.deploy(market(description="more"))
    flow = {"workflow_id": "etl", "nodes": {"START": {"type": "start", "next": "END"}, "END": {"type": "end"}}}
    await scene.client.workflows.push(flow)
    workflows = scene.client.workflows
    acts = (
        workflows.move("market/live", "market/live~1", force=True), workflows.undo("market/live", force=True),
        workflows.delete("market/live", force=True), workflows.protect("market/live", False),
        workflows.push(flow, tag="market/live", force=True, replaces="market"),
    )  # fmt: skip
    for act in acts:
        with pytest.raises(weft.TagConflict, match="is moved by `weft deploy`"):
            await act
    with pytest.raises(weft.InvalidInput, match="market/live is a live DAG"):
        await scene.client.jobs.submit("market/live")
    with pytest.raises(weft.InvalidDefinition, match="this is a live DAG, and no workflow"):
        await scene.client.workflows.push(market())
    with pytest.raises(weft.InvalidInput, match="there is a workflow 'etl'"):
        await scene.client.live.deploy(market(dag="etl"))
    with pytest.raises(weft.InvalidInput, match="this is a workflow"):
        await scene.client.live.deploy(flow)
    # Looked back at it is as any other.
    assert len(await workflows.log("market/live")) == 2
    found = await workflows.diff("market/live~1", "market/live")
    assert [change.path for change in found.outside] == [("description",)]
    assert [finding async for finding in _fsck(scene)] == []


async def _fsck(scene: Scene) -> AsyncIterator[Any]:
    for finding in await scene.client.workflows.fsck():
        yield finding


async def test_inputs_from_outside_must_be_there(scene: Scene) -> None:
    dag = market()
    dag["jobs"]["scaled"]["inputs"] = ["tickz"]
    with pytest.raises(weft.InvalidInput, match=r"there is no dataset 'tickz'.*Did you mean 'ticks'"):
        await scene.client.live.deploy(dag)
    assert await scene.client.live.list() == []
    assert await scene.client.datasets.list() == []


async def test_a_plan_tells_who_reads_what_is_built_anew(scene: Scene) -> None:
    reader = {
        "dag": "reader",
        "jobs": {
            "copy": {
                "activation": "reactive", "operator": "nobody", "execution_strategy": "PerUpdate",
                "inputs": ["scaled"], "outputs": ["copied"],
            },
        },
    }  # fmt: skip
    await scene.client.live.deploy(market())
    done = await scene.client.live.deploy(reader)
    assert [(each.name, each.job, each.producer) for each in done.inputs] == [("scaled", "copy", "market, node scaled")]
    assert any("nobody" in warning for warning in done.warnings)
    plan = await scene.client.live.plan(market(3))
    assert [(each.kind, each.name, each.node, each.dataset) for each in plan.touched] == [
        ("live", "reader", "copy", "scaled")
    ]


async def test_a_plan_tells_who_reads_what_goes_back_to_an_earlier_version(scene: Scene) -> None:
    copied = {
        "activation": "reactive", "operator": "nobody", "execution_strategy": "PerUpdate", "inputs": ["scaled"],
        "outputs": ["copied"],
    }  # fmt: skip
    async with scene.running():
        await scene.client.live.deploy(market())
        await scene.client.live.deploy({"dag": "reader", "jobs": {"copy": copied}})
        await scene.tick(1)
        await scene.settled()
        done = await scene.client.live.deploy(market(3))
        await scene.client.live.wait("market", done.version, timeout=60)
    assert (await scene.client.live.plan(market(3))).touched == ()
    plan = await scene.client.live.plan(market())
    assert [(each.name, each.action, each.version) for each in plan.datasets if each.name == "scaled"] == [
        ("scaled", "reused", 1)
    ]
    assert [(each.name, each.node, each.dataset) for each in plan.touched] == [("reader", "copy", "scaled")]


async def test_a_plan_tells_which_workflows_have_read_what_is_built_anew_and_when_they_begin(scene: Scene) -> None:
    @scene.registry.task(name="sum")
    async def total(ctx: weft.Context) -> None:
        rows = (await ctx.dataset("scaled").read()).to_pylist()
        await ctx.dataset("totals").write([{"total": sum(row["id"] for row in rows)}])

    nodes = {
        "START": {"type": "start", "next": "sum"}, "sum": {"handler": "sum", "next": "END"}, "END": {"type": "end"},
    }  # fmt: skip
    async with scene.running():
        await scene.client.live.deploy(market())
        await scene.tick(1)
        await scene.settled()
        await scene.client.workflows.push({"workflow_id": "totals", "nodes": nodes})
        job = await scene.client.jobs.submit("totals")
        assert (await scene.client.jobs.wait(job.id, 30)).state == "completed"
    touched = (await scene.client.live.plan(market(3))).touched
    assert [(each.kind, each.name, each.node, each.dataset, each.schedule) for each in touched] == [
        ("workflow", "totals", "sum", "scaled", None)
    ]
    await scene.client.schedules.add("totals", name="nightly", cron="@daily")
    (reader,) = (await scene.client.live.plan(market(3))).touched
    assert reader.schedule == "nightly"
    # Nor is anybody told of it who may not see what it makes.
    await scene.client.roles.create("analyst")
    await scene.client.datasets.grant("scaled", ["analyst"])
    for roles, seen in ((frozenset(), 0), (frozenset({"analyst"}), 0), (None, 1)):
        with seeing(roles):
            assert len((await scene.client.live.plan(market(3))).touched) == seen, roles
    await scene.client.datasets.grant("totals", ["analyst"])
    with seeing(frozenset({"analyst"})):
        assert (await scene.client.live.plan(market(3))).touched == (reader,)


async def test_partitions_of_what_is_not_seen_are_neither_told_nor_asked_for(scene: Scene) -> None:
    async with scene.running():
        await scene.client.live.deploy(market())
        await scene.tick(1)
        await scene.settled()
    live = scene.client.live
    await live.backfill("market", "scaled", first="mon", last="mon")
    await scene.client.roles.create("analyst")
    with seeing(frozenset({"analyst"})):
        (blind,) = await live.backfills("market")
        for asking in (
            live.backfill("market", "scaled", first="mon", dry_run=True), live.backfill("market", "scaled"),
            live.rematerialize("market", "scaled", partitions=["tue"]),
        ):  # fmt: skip
            with pytest.raises(weft.NotFound, match="those who see what it reads"):
                await asking
    assert (blind.first_key, blind.last_key) == (None, None)
    await scene.client.datasets.grant("ticks", ["analyst"])
    with seeing(frozenset({"analyst"})):
        (shown,) = await live.backfills("market")
        assert (await live.backfill("market", "scaled", dry_run=True)).partitions == 1
    assert (shown.first_key, shown.last_key) == ("mon", "mon")
