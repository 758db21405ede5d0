"""Live jobs: what is written into their inputs becomes tasks, each once, in order, as many at once as they may be."""

from __future__ import annotations

import asyncio
from typing import Any, TypeAlias

import asyncpg
import orjson
import pytest

import weft
from far import with_and_without_a_database
from live_scene import make_dag, make_job, make_output, until
from weft.live.router import Router
from weft.worker.live import LiveContext, operator
from weft.worker.registry import Registry

Conn: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


class Scene:
    """An input that a task writes, from outside of the DAG, and an operator that notes what it is given."""

    def __init__(self, client: weft.Client, conn: Conn, registry: Registry) -> None:
        self.client, self.conn, self.registry = client, conn, registry
        self.seen: list[tuple[str, Any]] = []
        self.dag_id = 0

        @registry.task(name="put")
        async def put(partition: str, rows: list[dict[str, Any]], mode: str, ctx: weft.Context) -> None:
            key = ["id"] if mode == "append" else None
            await ctx.dataset("ticks").write(rows, partition=partition or None, mode=mode, unique_key=key)

    async def put(self, partition: str, *ids: int, mode: str = "append") -> None:
        rows = [{"id": id} for id in ids]
        handle = await self.client.enqueue("put", {"partition": partition, "rows": rows, "mode": mode})
        await self.client.wait(handle.id, timeout=30)

    async def settled(self, job_id: int) -> None:
        async def is_quiet() -> bool:
            return not await self.conn.fetchval(
                "select count(*) from weft.live_unit where live_job_id = $1 and state <> 'held'", job_id
            )

        await until(is_quiet)


async def dataset_id(conn: Conn, name: str) -> int:
    return int(await conn.fetchval("select id from weft.dataset where name = $1", name))


@with_and_without_a_database
async def test_each_write_is_one_unit_in_order(client: weft.Client, conn: Conn, registry: Registry) -> None:
    scene = Scene(client, conn, registry)

    @operator("note", registry=registry)
    async def note(live: LiveContext) -> None:
        table = await live.changes()
        scene.seen.append((live.unit.kind, table["id"].to_pylist()))

    async with weft.Worker(client=client, registry=registry), weft.Orchestrator(client=client):
        await scene.put("a", 1, 2)
        await scene.put("b", 3)
        dag = await make_dag(conn)
        job = await make_job(conn, dag, "note", "note", inputs=[(await dataset_id(conn, "ticks"), None)])
        await until(lambda: len(scene.seen) == 2)
        for number in range(10, 20):
            await scene.put("a", number)
        await until(lambda: len(scene.seen) == 12)
        await scene.settled(job)
    assert scene.seen == [("bootstrap", [1, 2]), ("bootstrap", [3])] + [("update", [n]) for n in range(10, 20)]
    assert await conn.fetchval("select completed from weft.live_job") == 12


async def test_partitions_are_made_anew_once_for_all_that_came_before(
    client: weft.Client, conn: Conn, registry: Registry
) -> None:
    scene = Scene(client, conn, registry)
    may_go_on = asyncio.Event()

    @operator("note", registry=registry)
    async def note(live: LiveContext) -> None:
        table = await live.changes()
        scene.seen.append((live.unit.lane or "", sorted(table["id"].to_pylist())))
        await may_go_on.wait()

    async with weft.Worker(client=client, registry=registry), weft.Orchestrator(client=client):
        await scene.put("a", 1)
        dag = await make_dag(conn)
        job = await make_job(
            conn, dag, "note", "note", inputs=[(await dataset_id(conn, "ticks"), None)], strategy="partition",
            max_concurrency=10,
        )  # fmt: skip
        await until(lambda: scene.seen == [("a", [1])])
        # The first is under way: all that comes for its partition waits as one, what comes for others goes on.
        for number in range(2, 7):
            await scene.put("a", number)
        await scene.put("b", 7)
        await until(lambda: len(scene.seen) == 2)
        may_go_on.set()
        await until(lambda: len(scene.seen) == 3)
        await scene.settled(job)
        await scene.put("", 9, mode="replace")
        await until(lambda: len(scene.seen) == 6)
        await scene.settled(job)
    assert scene.seen[:3] == [("a", [1]), ("b", [7]), ("a", [1, 2, 3, 4, 5, 6])]
    # What was taken away is told too: nothing is in it.
    assert sorted(scene.seen[3:]) == [("", [9]), ("a", []), ("b", [])]


async def test_a_lane_keeps_its_order_across_failures_and_others_go_on(
    client: weft.Client, conn: Conn, registry: Registry
) -> None:
    scene = Scene(client, conn, registry)
    failures = {"left": 2}

    @operator("note", registry=registry, retry=weft.Retry(5, initial_delay=0.05))
    async def note(live: LiveContext) -> None:
        table = await live.changes()
        if 1 in table["id"].to_pylist() and failures["left"]:
            failures["left"] -= 1
            raise ValueError("not yet")
        scene.seen.append((live.unit.lane or "", table["id"].to_pylist()))

    await client.datasets.create("ticks")
    dag = await make_dag(conn)
    job = await make_job(
        conn, dag, "note", "note", inputs=[(await dataset_id(conn, "ticks"), None)], max_concurrency=5, max_attempts=5
    )
    async with weft.Worker(client=client, registry=registry), weft.Orchestrator(client=client):
        for number in range(1, 5):
            await scene.put("a", number)
        await scene.put("b", 10)
        await until(lambda: len(scene.seen) == 5)
        await scene.settled(job)
    assert [ids for lane, ids in scene.seen if lane == "a"] == [[1], [2], [3], [4]]


async def test_what_failed_for_good_holds_its_lane_until_it_is_sent_round_again(
    client: weft.Client, conn: Conn, registry: Registry
) -> None:
    scene = Scene(client, conn, registry)
    is_mended = False

    @operator("note", registry=registry, retry=0)
    async def note(live: LiveContext) -> None:
        table = await live.changes()
        if 1 in table["id"].to_pylist() and not is_mended:
            raise ValueError("the first is bad")
        scene.seen.append((live.unit.lane or "", table["id"].to_pylist()))

    await client.datasets.create("ticks")
    dag = await make_dag(conn)
    job = await make_job(
        conn, dag, "note", "note", inputs=[(await dataset_id(conn, "ticks"), None)], max_concurrency=5, max_attempts=1
    )
    async with weft.Worker(client=client, registry=registry), weft.Orchestrator(client=client):
        for number in range(1, 4):
            await scene.put("a", number)
        await scene.put("b", 10)
        await until(lambda: conn.fetchval("select true from weft.live_unit where state = 'held'"))
        await until(lambda: scene.seen == [("b", [10])])
        row = await conn.fetchrow("select failed, last_error from weft.live_job where id = $1", job)
        assert row is not None
        assert tuple(row) == (1, "ValueError: the first is bad")
        is_mended = True
        await client.replay_dead()
        await until(lambda: len(scene.seen) == 4)
        await scene.settled(job)
    assert scene.seen[1:] == [("a", [1]), ("a", [2]), ("a", [3])]


async def test_what_failed_for_a_partition_gives_way_when_that_is_written_anew(
    client: weft.Client, conn: Conn, registry: Registry
) -> None:
    """Nothing else comes to the job by which it would have a turn."""
    scene = Scene(client, conn, registry)

    @operator("note", registry=registry, retry=0)
    async def note(live: LiveContext) -> None:
        table = await live.changes()
        if table["id"].to_pylist() == [1]:
            raise ValueError("the first is bad")
        scene.seen.append((live.unit.lane or "", table["id"].to_pylist()))

    await client.datasets.create("ticks")
    dag = await make_dag(conn)
    ticks = await dataset_id(conn, "ticks")
    await make_job(conn, dag, "note", "note", inputs=[(ticks, None)], strategy="partition")
    async with weft.Worker(client=client, registry=registry), weft.Orchestrator(client=client):
        await scene.put("a", 1)
        await until(lambda: conn.fetchval("select true from weft.live_unit where state = 'held'"))
        await scene.put("a", 2)
        await until(lambda: conn.fetchval("select not exists (select 1 from weft.live_unit)"))
    assert scene.seen == [("a", [1, 2])]


async def test_whoever_says_so_goes_on_behind_what_failed(client: weft.Client, conn: Conn, registry: Registry) -> None:
    scene = Scene(client, conn, registry)

    @operator("note", registry=registry, retry=0)
    async def note(live: LiveContext) -> None:
        table = await live.changes()
        if 1 in table["id"].to_pylist():
            raise ValueError("the first is bad")
        scene.seen.append((live.unit.lane or "", table["id"].to_pylist()))

    await client.datasets.create("ticks")
    dag = await make_dag(conn)
    job = await make_job(
        conn, dag, "note", "note", inputs=[(await dataset_id(conn, "ticks"), None)], max_attempts=1, on_failure="skip"
    )
    async with weft.Worker(client=client, registry=registry), weft.Orchestrator(client=client):
        await scene.put("a", 1)
        await scene.put("a", 2)
        await until(lambda: len(scene.seen) == 1)
        await scene.settled(job)
    row = await conn.fetchrow("select completed, failed from weft.live_job where id = $1", job)
    assert (scene.seen, row and tuple(row)) == ([("a", [2])], (1, 1))


async def test_a_write_into_several_partitions_comes_after_all_before_it_and_before_all_after_it(
    client: weft.Client, conn: Conn, registry: Registry
) -> None:
    scene = Scene(client, conn, registry)
    may_go_on = asyncio.Event()

    @registry.task(name="put all")
    async def put_all(rows: list[dict[str, Any]], ctx: weft.Context) -> None:
        await ctx.dataset("ticks").write(rows, partition_by="part", mode="append", unique_key=["id"])

    async def put(*rows: tuple[int, str]) -> None:
        handle = await client.enqueue("put all", {"rows": [{"id": id, "part": part} for id, part in rows]})
        await client.wait(handle.id, timeout=30)

    @operator("note", registry=registry)
    async def note(live: LiveContext) -> None:
        table = await live.changes()
        scene.seen.append(("begun", sorted(table["id"].to_pylist())))
        await may_go_on.wait()

    await client.datasets.create("ticks")
    dag = await make_dag(conn)
    job = await make_job(
        conn, dag, "note", "note", inputs=[(await dataset_id(conn, "ticks"), None)], max_concurrency=10
    )
    async with weft.Worker(client=client, registry=registry), weft.Orchestrator(client=client):
        await put((1, "a"))
        await put((2, "b"))
        await until(lambda: len(scene.seen) == 2)
        await put((3, "a"), (4, "c"))
        await put((5, "d"))
        await until(lambda: conn.fetchval("select count(*) = 2 from weft.live_unit where state = 'waiting'"))
        assert len(scene.seen) == 2
        may_go_on.set()
        await until(lambda: len(scene.seen) == 4)
        await scene.settled(job)
    assert sorted(ids for _, ids in scene.seen[:2]) == [[1], [2]]
    assert [ids for _, ids in scene.seen[2:]] == [[3, 4], [5]]


async def test_no_more_becomes_units_than_may_wait_and_nothing_is_lost(
    client: weft.Client, conn: Conn, registry: Registry
) -> None:
    scene = Scene(client, conn, registry)
    most = 0

    @operator("note", registry=registry)
    async def note(live: LiveContext) -> None:
        nonlocal most
        most = max(most, await conn.fetchval("select count(*) from weft.live_unit"))
        scene.seen.append(("", (await live.changes())["id"].to_pylist()))

    async with weft.Worker(client=client, registry=registry):
        for number in range(20):
            await scene.put("a", number)
        dag = await make_dag(conn)
        ticks = await conn.fetchrow("select id, current_id from weft.dataset where name = 'ticks'")
        assert ticks is not None
        job = await make_job(conn, dag, "note", "note", inputs=[(ticks["id"], ticks["current_id"])], max_backlog=3)
        await conn.execute("update weft.live_input set routed_write = 0")
        async with weft.Orchestrator(client=client):
            await until(lambda: len(scene.seen) == 20)
            await scene.settled(job)
    assert scene.seen == [("", [number]) for number in range(20)]
    assert most <= 3


@with_and_without_a_database
async def test_state_and_output_change_with_the_completion_or_not_at_all(
    client: weft.Client, conn: Conn, registry: Registry
) -> None:
    scene = Scene(client, conn, registry)
    attempts: list[int] = []

    @operator("total", registry=registry, retry=weft.Retry(5, initial_delay=0))
    async def total(live: LiveContext) -> None:
        rows = (await live.changes())["id"].to_pylist()
        before = await live.state() or {"sum": 0}
        now = {"sum": before["sum"] + sum(rows)}
        await live.set_state(now)
        await live.write([{"n": live.unit.said["write"], "sum": now["sum"]}])
        attempts.append(live.task.attempt)
        if live.task.attempt == 1:
            raise ValueError("after all was staged")

    await client.datasets.create("ticks")
    dag = await make_dag(conn)
    output = await make_output(conn, "sums", "market", "total")
    job = await make_job(
        conn, dag, "total", "total", inputs=[(await dataset_id(conn, "ticks"), None)], outputs=[output], max_attempts=5,
        document={"update_strategy": "append", "unique_key": ["n"]},
    )  # fmt: skip
    async with weft.Worker(client=client, registry=registry), weft.Orchestrator(client=client):
        for number in range(1, 6):
            await scene.put("a", number)
        await until(lambda: conn.fetchval("select completed = 5 from weft.live_job where id = $1", job))
        async with client.datasets.query("select sum from sums order by n") as answer:
            sums = [row["sum"] async for row in answer.records()]
    assert attempts == [1, 2] * 5
    assert sums == [1, 3, 6, 10, 15]
    state = await conn.fetchrow("select version, state::text from weft.operator_state")
    assert state is not None
    assert (state["version"], state["state"]) == (5, '{"sum":15}')
    assert await conn.fetchval("select count(*) from weft.staged_live") == 0


@with_and_without_a_database
async def test_of_two_units_that_change_one_state_the_later_is_tried_again_uncounted(
    client: weft.Client, conn: Conn, registry: Registry
) -> None:
    scene = Scene(client, conn, registry)
    both = asyncio.Barrier(2)
    met = 0

    @operator("total", registry=registry, retry=0)
    async def total(live: LiveContext) -> None:
        nonlocal met
        before, ids = (await live.state() or {"ids": []})["ids"], (await live.changes())["id"].to_pylist()
        # Both have seen the same: twice when nothing was remembered yet, and twice when something was.
        if met < 4:
            met += 1
            await both.wait()
        await live.set_state({"ids": [*before, *ids]})

    await client.datasets.create("ticks")
    dag = await make_dag(conn)
    job = await make_job(
        conn, dag, "total", "total", inputs=[(await dataset_id(conn, "ticks"), None)], max_attempts=1, max_concurrency=2
    )
    async with weft.Worker(client=client, registry=registry), weft.Orchestrator(client=client):
        await scene.put("a", 1)
        await scene.put("b", 2)
        # Of these two the one that is tried again meets the next, so that both have seen the same once more.
        await scene.put("c", 3)
        await until(lambda: conn.fetchval("select completed = 3 from weft.live_job where id = $1", job))
    state = await conn.fetchval("select state->>'ids' from weft.operator_state")
    assert sorted(orjson.loads(state)) == [1, 2, 3]


@with_and_without_a_database
async def test_a_source_goes_on_slice_by_slice_and_emits_what_it_finds(
    client: weft.Client, conn: Conn, registry: Registry
) -> None:
    seen: list[Any] = []

    @operator("feed", registry=registry)
    async def feed(live: LiveContext) -> None:
        if live.unit.kind == "slice":
            at = (await live.state() or {"at": 0})["at"]
            await live.set_state({"at": at + 2})
            if at >= 6:
                await live.caught_up()
                await live.rest(60)
                return
            await live.emit(*({"key": f"n{n}", "lane": "x", "said": {"payload": n}} for n in (at, at + 1)))
        else:
            seen.append(live.unit.payload)

    dag = await make_dag(conn)
    await make_job(conn, dag, "feed", "feed", source={"kind": "continuous"}, max_concurrency=2)
    async with weft.Worker(client=client, registry=registry), weft.Orchestrator(client=client):
        await until(lambda: len(seen) == 6)
        await until(lambda: conn.fetchval("select caught_up_at is not null from weft.live_source"))
        await until(lambda: conn.fetchval("select run_at > weft.now() from weft.live_unit where kind = 'slice'"))
    assert seen == [0, 1, 2, 3, 4, 5]


async def test_an_event_is_one_unit_of_each_source_that_listens(
    client: weft.Client, conn: Conn, registry: Registry
) -> None:
    seen: list[tuple[str, Any]] = []

    @operator("take", registry=registry)
    async def take(live: LiveContext) -> None:
        seen.append((live.job, live.unit.payload["n"]))

    dag = await make_dag(conn)
    await make_job(conn, dag, "all", "take", source={"kind": "event", "event": "tick", "lane": ["symbol"]})
    await make_job(
        conn,
        dag,
        "some",
        "take",
        source={"kind": "event", "event": "tick", "match": '{"symbol": "x"}'},
        max_concurrency=5,
    )
    async with weft.Worker(client=client, registry=registry), weft.Orchestrator(client=client):
        for number in range(6):
            said = {"symbol": "xy"[number % 2], "n": number}
            await client.jobs.send_event("tick", said, idempotency_key=f"e{number}")
            await client.jobs.send_event("tick", said, idempotency_key=f"e{number}")
        await until(lambda: len(seen) == 9)
        await until(lambda: conn.fetchval("select count(*) = 0 from weft.live_unit"))
    assert [n for job, n in seen if job == "all"] == [0, 1, 2, 3, 4, 5]
    assert sorted(n for job, n in seen if job == "some") == [0, 2, 4]


_SPOILT = """
    create function weft.spoilt() returns trigger language plpgsql as $f$ begin
      if new.live_job_id = {job} then raise 'spoilt'; end if; return new; end $f$;
    create trigger spoilt before update on weft.live_unit for each row execute function weft.spoilt();"""


async def test_many_have_their_turns_together_and_one_that_cannot_keeps_no_other(
    client: weft.Client, conn: Conn
) -> None:
    dag = await make_dag(conn)
    jobs = [
        await make_job(conn, dag, f"j{n}", "take", source={"kind": "event", "event": f"e{n}"}, max_concurrency=100)
        for n in range(60)
    ]
    counts = {job: 1 for job in jobs} | {jobs[7]: 100}
    for number, job in enumerate(jobs):
        await client.jobs.send_events([weft.NewEvent(f"e{number}", {"n": n}) for n in range(counts[job])])
    await conn.execute(_SPOILT.format(job=jobs[30]))
    router = Router(client.database)
    with pytest.raises(asyncpg.RaiseError, match="spoilt"):
        await router.run_once()
    begun = "select live_job_id, count(*) from weft.live_unit where state = 'running' group by 1"
    assert dict(await conn.fetch(begun)) == {job: count for job, count in counts.items() if job != jobs[30]}
    await conn.execute("drop function weft.spoilt cascade")
    assert await router.run_once() == 1
    assert dict(await conn.fetch(begun)) == counts
    assert await conn.fetchval("select count(*) from weft.task") == 159
