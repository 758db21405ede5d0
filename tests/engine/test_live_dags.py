"""Live DAGs while they go on: what is seen of them, what is paused, held, left out, and computed anew."""

from __future__ import annotations

from typing import Any, TypeAlias

import asyncpg
import pytest
from engine_scene import Clock

import weft
from engine.test_deploys import Scene, market
from live_scene import until
from weft.live import backfilling, swapping
from weft.live.router import Router
from weft.sdk.session import seeing
from weft.worker.registry import Registry

Conn: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


@pytest.fixture
def scene(client: weft.Client, conn: Conn, registry: Registry) -> Scene:
    return Scene(client, conn, registry)


async def test_what_is_paused_begins_nothing_and_loses_nothing(scene: Scene) -> None:
    live = scene.client.live
    async with scene.running():
        await live.deploy(market())
        await live.pause("market", job="scaled")
        await scene.tick(1)

        async def has_come() -> bool:
            return bool((await live.show("market")).writes)

        await until(has_come)
        assert [job.name for job in await live.jobs("market") if job.paused_at] == ["scaled"]
        with pytest.raises(weft.StateConflict):
            await live.pause("market", job="scaled")
        await live.resume("market", job="scaled")
        await scene.settled()
        assert await scene.values("again") == [20]
        await live.pause("market")
        await scene.tick(2)
        assert (await live.show("market")).units == 1
        await Router(scene.client.database).run_once()
        assert scene.taken == [1]
        await live.resume("market")
        await scene.settled()
        assert await scene.values("again") == [20, 40]
    with pytest.raises(weft.NotFound, match="Did you mean 'market'"):
        await live.pause("markt")
    with pytest.raises(weft.NotFound, match="Did you mean 'scaled'"):
        await live.pause("market", job="scaeld")


async def test_what_is_paused_fills_up_and_says_so(scene: Scene) -> None:
    live, dag = scene.client.live, market()
    dag["jobs"]["ticks"]["scaling"] = {"max_backlog": 2}
    await live.deploy(dag)
    await live.pause("market")
    await scene.tick(1)
    assert not any(job.is_full for job in await live.jobs("market"))
    await scene.tick(2)
    assert [job.name for job in await live.jobs("market") if job.is_full] == ["ticks"]
    with pytest.raises(weft.SourceFull, match="market/ticks"):
        await scene.tick(3)
    async with scene.running():
        await live.resume("market")
        await scene.settled()
    assert scene.taken == [1, 2]
    assert not any(job.is_full for job in await live.jobs("market"))


async def measured(scene: Scene) -> dict[str, float]:
    """Return what is told of live DAGs, that of jobs by state."""
    told = {metric.name: metric.samples for metric in await scene.client.metrics() if metric.name.startswith("live_")}
    return {
        f"{name}:{sample.labels['state']}" if "state" in sample.labels else name: sample.value
        for name, samples in told.items()
        for sample in samples
    }


async def test_live_dags_are_measured_and_wait_for_an_orchestrator(scene: Scene, clock: Clock) -> None:
    async def orchestrators() -> str:
        (found,) = [check for check in (await scene.client.health()).checks if check.name == "orchestrators"]
        return found.text

    assert await orchestrators() == "none, and no job needs one"
    await scene.client.live.deploy(market())
    assert await orchestrators() == "none is alive, and live DAGs need one"
    await scene.tick(1)
    await clock.advance(minutes=2)
    found = await measured(scene)
    assert found.pop("live_lag_seconds") >= 120
    assert {name for name, value in found.items() if value} == {"live_jobs:pending"}
    await scene.client.live.pause("market")
    assert (await measured(scene))["live_lag_seconds"] == 0
    await scene.client.live.resume("market")
    async with scene.running():
        await scene.settled()
        assert await orchestrators() == "1 alive"
        found = await measured(scene)
    assert (found["live_jobs:running"], found["live_units_held"], found["live_lag_seconds"]) == (3, 0, 0)


async def test_what_is_held_is_tried_again_or_left_out(scene: Scene) -> None:
    live = scene.client.live
    async with scene.running():
        await live.deploy(market())
        scene.fails = True
        await scene.tick(1, day="mon")
        await scene.tick(2, day="tue")

        async def are_held() -> bool:
            return (await live.show("market")).held == 2

        await until(are_held)
        assert (await measured(scene))["live_units_held"] == 2
        by_day = {unit.lane: unit for unit in await live.units("market", "scaled", state="held")}
        first, second = by_day["mon"], by_day["tue"]
        assert first.error == "NonRetryable: not now"
        assert first.task_id is not None
        (job,) = [job for job in await live.jobs("market") if job.name == "scaled"]
        assert (job.held, job.failed, job.last_error) == (2, 2, "NonRetryable: not now")
        scene.fails = False
        await live.skip("market", "scaled", second.id)
        assert await live.retry("market", "scaled", unit_id=first.id) == 1
        await scene.settled()
        assert await scene.values("again", "mon") == [20]
        assert await scene.values("again", "tue") == []
        with pytest.raises(weft.NotFound):
            await live.retry("market", "scaled", unit_id=first.id)
        assert await live.retry("market", "scaled") == 0
        # The next write of that partition brings all of it.
        await scene.tick(3, day="tue")
        await scene.settled()
        assert await scene.values("again", "tue") == [40, 60]
    verbs = [entry.verb for entry in await scene.client.audit() if entry.subject_kind == "live_dag"]
    assert verbs == ["replay", "skip", "deploy"]


async def test_a_held_unit_whose_task_is_gone_begins_anew(scene: Scene) -> None:
    live = scene.client.live
    async with scene.running():
        await live.deploy(market())
        scene.fails = True
        await scene.tick(1)

        async def is_held() -> bool:
            return (await live.show("market")).held == 1

        await until(is_held)
        scene.fails = False
        await scene.client.purge()
        assert await live.retry("market", "scaled") == 1
        await scene.settled()
    assert await scene.values("again") == [20]


async def test_a_source_whose_worker_gives_no_sign_of_life_is_lost(scene: Scene, clock: Clock) -> None:
    await scene.client.live.deploy(market())
    await scene.tick(1)
    await Router(scene.client.database).run_once()
    ghost = await scene.conn.fetchval(
        """insert into weft.worker (org_id, until, concurrency, pid, hostname, version, queues, handlers)
           values (1, weft.now() + interval '1 minute', 1, 1, 'gone', '0', '{1}', '{}') returning id"""
    )
    await scene.conn.execute("update weft.task set state = 'running', attempt = 1, worker_id = $1", ghost)

    async def state() -> str:
        (job,) = [job for job in await scene.client.live.jobs("market") if job.name == "ticks"]
        return job.state

    assert await state() == "running"
    await clock.advance(minutes=2)
    assert await state() == "lost"


async def test_a_source_is_pending_while_nobody_is_there_who_could_run_it(scene: Scene) -> None:
    await scene.client.live.deploy(market())

    async def states() -> dict[str, str]:
        return {job.name: job.state for job in await scene.client.live.jobs("market")}

    async with weft.Orchestrator(client=scene.client):
        await scene.tick(1)
        await until(lambda: scene.conn.fetchval("select state = 'running' from weft.live_job where name = 'ticks'"))
        assert (await states())["ticks"] == "pending"
        async with weft.Worker(client=scene.client, registry=scene.registry):
            assert (await states())["ticks"] == "running"
            await scene.settled()
    assert await states() == {"ticks": "pending", "scaled": "running", "again": "running"}


async def test_partitions_are_computed_anew_and_only_these(scene: Scene) -> None:
    live = scene.client.live
    async with scene.running():
        await live.deploy(market())
        for day in ("mon", "tue", "wed"):
            await scene.tick(1, day=day)
        await scene.settled()
        before = {part.key: part.write for part in await scene.client.datasets.partitions("scaled")}
        assert await live.rematerialize("market", "scaled", partitions=["mon", "wed"]) == 2
        await scene.settled()
        after = {part.key: part.write for part in await scene.client.datasets.partitions("scaled")}
        assert {key for key in after if after[key] != before[key]} == {"mon", "wed"}
        assert (await scene.client.datasets.state("scaled")).version == 1
        with pytest.raises(weft.InvalidInput, match="no partition 'sun'; `weft datasets partitions ticks` lists"):
            await live.rematerialize("market", "scaled", partitions=["mon", "sun"])
        with pytest.raises(weft.InvalidInput, match="ticks is a source"):
            await live.rematerialize("market", "ticks", partitions=["mon"])


async def test_a_backfill_goes_on_a_few_at_once_until_all_is_done(scene: Scene) -> None:
    live, days = scene.client.live, [f"day-{number}" for number in range(7)]
    async with scene.running():
        await live.deploy(market())
        for number, day in enumerate(days):
            await scene.tick(number, day=day)
        await scene.settled()
        scene.gate.clear()
        counted = await live.backfill("market", "scaled", dry_run=True)
        assert (counted.partitions, counted.id) == (7, 0)
        made = await live.backfill("market", "scaled", first="day-1", last="day-5", at_once=2)
        assert (made.partitions, made.made, made.running) == (5, 2, 2)
        assert await backfilling.run_once(scene.client.database) == 0
        (shown,) = await live.backfills("market")
        assert (shown.made, shown.running) == (2, 2)
        most = 0
        scene.gate.set()

        async def has_ended() -> bool:
            nonlocal most
            (found,) = await live.backfills("market")
            most = max(most, found.running)
            return found.ended_at is not None

        await until(has_ended)
        assert most <= 2
        (shown,) = await live.backfills("market")
        assert (shown.made, shown.running, shown.cancelled_at) == (5, 0, None)
        written = {part.key: part.write for part in await scene.client.datasets.partitions("scaled")}
        assert sorted(sorted(written, key=lambda key: written[key])[-5:]) == days[1:6]
    with pytest.raises(weft.InvalidInput, match="no partition there"):
        await live.backfill("market", "scaled", first="x")


async def test_partitions_of_any_input_are_computed_anew(scene: Scene) -> None:
    live, dag = scene.client.live, market()
    dag["jobs"]["again"]["inputs"] = ["scaled", "ticks"]
    async with scene.running():
        await live.deploy(dag)
        await scene.tick(3, day="mon")
        await scene.settled()
        assert await live.rematerialize("market", "again", partitions=["mon"], dataset="ticks") == 1
        await scene.settled()
        assert await scene.values("again") == [30]
        assert (await live.backfill("market", "again", dataset="scaled")).partitions == 1
        await scene.settled()
        assert await scene.values("again") == [60]
    for dataset in ("again", "nothing"):
        with pytest.raises(weft.InvalidInput, match=f"again does not read {dataset}"):
            await live.backfill("market", "again", dataset=dataset)


async def test_partitions_from_one_number_to_another_are_those_in_between(scene: Scene) -> None:
    live = scene.client.live
    async with scene.running():
        await live.deploy(market())
        for number, key in enumerate(["-60", "0", "60", "120", "600", "1200", "half"]):
            await scene.tick(number, day=key)
        await scene.settled()
        before = (await scene.client.datasets.show("scaled")).write
        assert (await live.backfill("market", "scaled", first="60", last="600", at_once=9)).partitions == 3
        await scene.settled()
        written = [part for part in await scene.client.datasets.partitions("scaled") if part.write > before]
        assert sorted(part.key for part in written) == ["120", "60", "600"]
    for first, last, count in (("-60", "60", 3), (None, "120", 4), ("600", None, 2), ("6", "half", 3), (None, None, 7)):
        counted = await live.backfill("market", "scaled", first=first, last=last, dry_run=True)
        assert counted.partitions == count, (first, last)
    for first, last in (("600", "60"), ("half", "60")):
        with pytest.raises(weft.InvalidInput, match="comes after"):
            await live.backfill("market", "scaled", first=first, last=last)


async def test_a_backfill_that_is_cancelled_begins_nothing_more(scene: Scene) -> None:
    live = scene.client.live
    async with scene.running():
        await live.deploy(market())
        for number in range(5):
            await scene.tick(number, day=f"day-{number}")
        await scene.settled()
        await live.pause("market")
        made = await live.backfill("market", "scaled", at_once=2)
        await live.cancel_backfill(made.id)
        await live.resume("market")
        await scene.settled()
        (shown,) = await live.backfills("market")
        assert shown.cancelled_at is not None
        assert (shown.made, shown.running) == (2, 0)
        with pytest.raises(weft.NotFound):
            await live.cancel_backfill(made.id)
    writes = await scene.client.datasets.writes("scaled")
    assert len(writes) == 5


async def test_lists_come_in_pages(scene: Scene) -> None:
    live = scene.client.live
    for name in ("a", "b", "c"):
        dag = market(dag=name)
        for job in dag["jobs"].values():
            job["outputs"] = [f"{name}/{each}" for each in job["outputs"]]
            job["inputs"] = [f"{name}/{each}" for each in job.get("inputs", [])]
        await live.deploy(dag)
    assert [each.name for each in await live.list(limit=2)] == ["a", "b"]
    assert [each.name for each in await live.list(after="b")] == ["c"]
    found: list[Any] = []
    while page := await live.jobs("b", limit=2, after=found[-1].cursor if found else ""):
        found += page
    assert [job.name for job in found] == ["again", "scaled", "ticks"]
    await scene.tick(1, 2, 3)
    units = await live.units("a", "ticks", limit=2)
    assert [unit.said["payload"]["id"] for unit in units] == [1, 2]
    assert [unit.said["payload"]["id"] for unit in await live.units("a", "ticks", after=units[-1].id)] == [3]
    for number in (3, 4, 5):
        ticks = {**market()["jobs"]["ticks"], "outputs": ["a/ticks"], "config": {"n": number}}
        await live.deploy({"dag": "a", "jobs": {"ticks": ticks}})
        await until(lambda: swapping.run_once(scene.client.database))
    assert [each.number for each in await live.history("a", limit=2)] == [4, 3]
    assert [each.number for each in await live.history("a", before=3)] == [2, 1]


async def test_what_comes_to_a_job_is_for_those_who_see_all_of_its_datasets(scene: Scene) -> None:
    client, live = scene.client, scene.client.live
    await client.roles.create("finance")
    async with scene.running():
        await live.deploy(market())
        await scene.tick(1)
        await scene.settled()
        await live.pause("market")
        await live.rematerialize("market", "scaled", partitions=["mon"])
        await scene.tick(2)
    for dataset in ("ticks", "scaled"):
        with seeing(frozenset({"finance"})):
            assert [(unit.said, unit.lane) for unit in await live.units("market", "scaled")] == [({}, None)]
            with pytest.raises(weft.NotFound, match="those who see all datasets"):
                await live.state("market", "scaled")
        await client.datasets.grant(dataset, ["finance"])
    with seeing(frozenset({"finance"})):
        (unit,) = await live.units("market", "scaled")
        assert (unit.lane, unit.said["dataset"], unit.said["partitions"]) == ("mon", "ticks", ["mon"])
        assert [each.state for each in await live.state("market", "scaled")] == [1]
        (event,) = await live.units("market", "ticks")
        assert event.said["payload"] == {"id": 2, "day": "mon"}
    with seeing(frozenset()):
        assert [unit.said for unit in await live.units("market", "ticks")] == [{}]


async def test_why_a_job_failed_is_for_those_who_see_all_of_its_datasets(scene: Scene) -> None:
    client, live = scene.client, scene.client.live
    await client.roles.create("finance")
    async with scene.running():
        await live.deploy(market())
        scene.fails = True
        await scene.tick(1)

        async def is_held() -> bool:
            return bool((await live.show("market")).held)

        await until(is_held)
        await live.pause("market", job="ticks")
        await scene.tick(2)

    async def told() -> dict[str, str | None]:
        (held,) = await live.units("market", "scaled")
        (waiting,) = await live.units("market", "ticks")
        jobs = {job.name: job.last_error for job in await live.jobs("market")}
        return {"job": jobs["scaled"], "held": held.error, "sound job": jobs["ticks"], "waiting": waiting.error}

    why, nothing = "NonRetryable: not now", {"sound job": None, "waiting": None}
    withheld = "failed; why is told to those who see all datasets of the job: ask an admin for their roles"
    for dataset in ("ticks", "scaled"):
        with seeing(frozenset({"finance"})):
            assert await told() == {"job": withheld, "held": withheld, **nothing}
        await client.datasets.grant(dataset, ["finance"])
    with seeing(frozenset({"finance"})):
        assert await told() == {"job": why, "held": why, **nothing}
    with seeing(frozenset()):
        assert await told() == {"job": withheld, "held": withheld, **nothing}
    assert await told() == {"job": why, "held": why, **nothing}


async def test_only_datasets_are_named_that_may_be_seen(scene: Scene) -> None:
    live = scene.client.live
    await scene.client.datasets.create("rates")
    await scene.client.datasets.create("secret")
    await scene.client.roles.create("finance")
    await scene.client.datasets.grant("rates", ["finance"])
    dag = market()
    dag["jobs"]["again"]["inputs"] = ["scaled", "rates"]
    with seeing(frozenset()), pytest.raises(weft.InvalidInput, match="there is no dataset 'rates'"):
        await live.deploy(dag)
    with seeing(frozenset({"finance"})):
        assert [each.name for each in (await live.plan(dag)).inputs] == ["rates"]
        dag["jobs"]["again"]["inputs"] = ["scaled", "secre"]
        with pytest.raises(weft.InvalidInput) as refused:
            await live.deploy(dag)
        assert "secret" not in str(refused.value)
        dag["jobs"]["again"]["inputs"] = ["scaled", "rates"]
        await live.deploy(dag)
        (job,) = [job for job in await live.jobs("market") if job.name == "again"]
        assert (job.inputs, job.outputs) == (("rates",), ())
    # What a job reads already it may read on, whoever deploys it.
    with seeing(frozenset()):
        plan = await live.plan(dag | {"description": "more"})
        assert (plan.inputs, plan.datasets) == ((), ())
        await live.deploy(dag | {"description": "more"})
        await live.deploy(dag | {"description": "less"})
    (job,) = [job for job in await live.jobs("market") if job.name == "again"]
    assert (job.inputs, job.outputs) == (("scaled", "rates"), ("again@1",))


async def test_the_task_of_a_live_job_is_explained_by_what_came_to_it(scene: Scene) -> None:
    async def explained(handler: str) -> list[tuple[str, str]]:
        rows = await scene.conn.fetch("select id from weft.task_done where handler = $1 order by id", handler)
        found = [await scene.client.explain(row["id"]) for row in rows]
        return [(each.cause, each.text) for each in found]

    async with scene.running():
        await scene.client.live.deploy(market())
        sent = await scene.client.jobs.send_event("tick", {"id": 1, "day": "mon"})
        await scene.settled()
    assert await explained("take") == [("unit", f"run: the event tick came, {sent.id}")]
    assert await explained("scale") == [
        ("unit", "run: ticks@1.1 was written (partition mon)"), ("unit", "run: scaled@1.1 was written (partition mon)"),
    ]  # fmt: skip
    with seeing(frozenset()):
        assert await explained("scale") == [("unit", "run: a dataset that you may not see was written")] * 2
        assert await explained("take") == [("unit", "run: an event came")]
