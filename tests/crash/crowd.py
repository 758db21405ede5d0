"""People and programs that act on the same datasets and live DAGs at any moment, and what must be so afterwards."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeAlias

import asyncpg
import pyarrow.parquet as pq

import weft
from crash.harness import until
from crash.job_acts import settings_for
from crash.test_deploy_kill import WRONG
from live_oracle import LANES, QUIET, Event, Node, add_operators, document, expected, read_all
from weft.live import swapping
from weft.live.router import Router
from weft.worker.registry import Registry

Conn: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
Act: TypeAlias = Callable[[random.Random], Awaitable[Any]]
# What somebody may be told whom another has forestalled; whatever else is raised is a defect.
TOLD = (
    weft.NotFound, weft.InvalidInput, weft.StateConflict, weft.DeployConflict, weft.DatasetBusy, weft.TaskFailed
)  # fmt: skip
EVENT = "told"
ROLES = ("finance", "sales")
USERS = ("ann", "bob")


def _source(name: str) -> Node:
    return Node(name, "source", scaling={"max_concurrency": 4, "max_backlog": 10_000})


def _made_of(name: str, kind: str, *inputs: Node) -> Node:
    return Node(name, kind, list(inputs), scaling={"max_concurrency": 4, "max_backlog": 10_000})


class Crowd:
    """Two live DAGs of which each reads what the other writes, datasets that tasks write, and who acts on them."""

    def __init__(self, url: str, home: Path) -> None:
        self._settings = settings_for(url, home)
        self._home = home
        self._numbers = itertools.count(1)
        e1, w1 = _source("e1"), _source("w1")
        e2, w2 = _made_of("e2", "map", e1), _made_of("w2", "map", w1)
        # A job of each reads an output of the other, and not the same: else they would wait for each other.
        self.dags = {
            "east": [e1, e2, _made_of("e3", "sum", e1, w2)],
            "west": [w1, w2, _made_of("w3", "sum", w1, e2)],
        }
        # What comes and goes as a whole.
        self.side = [_made_of("s1", "sum", e2, w2), _made_of("s2", "sum", w2, e2)]
        self.events: list[Event] = []
        self.appended: list[int] = []
        self.told: dict[str, int] = {}
        self.done: dict[str, int] = {}
        self.client: weft.Client

    @asynccontextmanager
    async def gathered(self) -> AsyncIterator[None]:
        """Deploy both, write each dataset once, and let work be done until the end."""
        registry = Registry()
        add_operators(registry, lambda: None)
        _add_writers(registry)
        async with (
            weft.Client(settings=self._settings) as self.client,
            weft.Client(settings=self._settings) as worker_client,
            weft.Client(settings=self._settings) as other_client,
        ):
            for name in ("e2", "w2"):
                await self.client.datasets.create(name)
            await self.client.datasets.create("kept", storage="postgres")
            for dag in self.dags:
                await self.client.live.deploy(self._document(dag))
            for slug in ROLES:
                await self.client.roles.create(slug)
            for user in USERS:
                await self.client.users.add(user)
            await self.client.live.deploy(document("side", self.side))
            worker = weft.Worker(client=worker_client, registry=registry, concurrency=8)
            async with worker, weft.Orchestrator(client=other_client):
                for handler in ("append", "fill", "reshape", "keep", "spare", "hand_a"):
                    await self._task(handler, 0)
                await self.send(random.Random(0))
                yield

    @property
    def acts(self) -> dict[str, Act]:
        """All that may be done, each by a name."""
        return {
            "grant": self.grant, "role deletion": self.delete_role, "role grant": self.grant_role,
            "delete": self.delete, "undelete": self.undelete, "hand over": self.hand_over,
            "dataset rollback": self.roll_back_dataset, "write": self.write, "breaking write": self.reshape,
            "table write": self.keep, "deploy east": self.deploy("east"), "deploy west": self.deploy("west"),
            "rollback east": self.roll_back("east"), "rollback west": self.roll_back("west"),
            "deploy side": self.deploy_side, "drain side": self.drain_side, "delete of side": self.delete_side,
            "swap": self.swap, "route": self.route, "cancel unit": self.cancel_unit, "create": self.create,
            "abandon": self.abandon, "gc": self.collect, "gc look": self.look, "rematerialize": self.rematerialize,
            "backfill": self.backfill, "pause": self.pause, "skip": self.skip, "retry": self.retry,
            "send": self.send, "read": self.read,
        }  # fmt: skip

    async def grant(self, chance: random.Random) -> None:
        await self.client.datasets.grant(chance.choice(("e2", "fill", "spare")), chance.sample(ROLES, 1))

    async def delete_role(self, chance: random.Random) -> None:
        slug = chance.choice(ROLES)
        try:
            await self.client.roles.delete(slug)
        finally:
            await self.client.roles.create(slug)

    async def grant_role(self, chance: random.Random) -> None:
        await self.client.roles.grant(chance.choice(ROLES), chance.choice(USERS))

    async def create(self, chance: random.Random) -> None:
        await self.client.datasets.create("spare")

    async def delete(self, chance: random.Random) -> None:
        try:
            await self.client.datasets.delete("spare")
        except weft.NotFound:
            await self.client.datasets.create("spare")
        else:
            if chance.random() < 0.5:
                await self.client.datasets.undelete("spare")

    async def deploy_side(self, chance: random.Random) -> None:
        for node in self.side:
            node.factor = chance.choice((1, 2))
        await self.client.live.deploy(document("side", self.side))

    async def drain_side(self, chance: random.Random) -> None:
        await self.client.live.drain("side")

    async def delete_side(self, chance: random.Random) -> None:
        try:
            await self.client.datasets.delete(chance.choice(("s1", "s2")))
        except weft.NotFound:
            await self.client.datasets.undelete(chance.choice(("s1", "s2")))

    async def swap(self, chance: random.Random) -> None:
        await swapping.run_once(self.client.database)

    async def route(self, chance: random.Random) -> None:
        await Router(self.client.database).run_once()

    async def cancel_unit(self, chance: random.Random) -> None:
        dag, job = self._sum(chance)
        for unit in (await self.client.live.units(dag, job))[:1]:
            if unit.task_id is not None:
                await self.client.cancel(unit.task_id)

    async def undelete(self, chance: random.Random) -> None:
        await self.client.datasets.undelete("spare")

    async def hand_over(self, chance: random.Random) -> None:
        node = chance.choice(("hand_a", "hand_b"))
        await self.client.datasets.hand_over("handed", "@task", node)
        await self._task(node, next(self._numbers))

    async def roll_back_dataset(self, chance: random.Random) -> None:
        name = chance.choice(("fill", "reshape", "keep"))
        versions = await self.client.datasets.versions(name, limit=5)
        version = chance.choice(versions)
        await self.client.datasets.rollback(f"{name}@{version.number}.{max(1, version.write - chance.randint(0, 2))}")

    async def write(self, chance: random.Random) -> None:
        handler, number = chance.choice(("append", "append", "fill", "spare")), next(self._numbers)
        if handler != "append":
            await self._task(handler, number)
            return
        self.appended.append(number)
        await self._task(handler, number)

    async def reshape(self, chance: random.Random) -> None:
        await self._task("reshape", next(self._numbers))

    async def keep(self, chance: random.Random) -> None:
        await self._task("keep", next(self._numbers))

    def deploy(self, dag: str) -> Act:
        async def deploy(chance: random.Random) -> None:
            for node in self.dags[dag][1:]:
                node.factor = chance.choice((node.factor, chance.randint(2, 999)))
            await self.client.live.deploy(self._document(dag))

        return deploy

    def roll_back(self, dag: str) -> Act:
        async def roll_back(chance: random.Random) -> None:
            versions = [each.number for each in await self.client.live.history(dag) if each.live_at is not None]
            await self.client.live.rollback(dag, version=chance.choice(versions))

        return roll_back

    async def abandon(self, chance: random.Random) -> None:
        await self.client.live.abandon(chance.choice(list(self.dags)))

    async def collect(self, chance: random.Random) -> None:
        await self.client.datasets.gc(timedelta(seconds=chance.choice((0.001, 1))))

    async def look(self, chance: random.Random) -> None:
        await self.client.datasets.gc(timedelta(milliseconds=1), dry_run=True)

    async def rematerialize(self, chance: random.Random) -> None:
        await self.client.live.rematerialize(*self._sum(chance), partitions=[chance.choice(LANES)])

    async def backfill(self, chance: random.Random) -> None:
        begun = await self.client.live.backfill(*self._sum(chance), at_once=chance.randint(1, 3))
        if chance.random() < 0.5:
            await self.client.live.cancel_backfill(begun.id)

    async def pause(self, chance: random.Random) -> None:
        dag, job = self._sum(chance)
        of = chance.choice((None, job))
        try:
            await self.client.live.pause(dag, job=of)
        finally:
            await self.client.live.resume(dag, job=of)

    async def skip(self, chance: random.Random) -> None:
        dag, job = self._sum(chance)
        for unit in (await self.client.live.units(dag, job))[:1]:
            await self.client.live.skip(dag, job, unit.id)

    async def retry(self, chance: random.Random) -> None:
        await self.client.live.retry(*self._sum(chance))

    async def send(self, chance: random.Random) -> None:
        number = next(self._numbers)
        event = chance.choice(LANES), f"r{number}", number
        await self.client.jobs.send_event(EVENT, dict(zip(("lane", "id", "v"), event, strict=True)))
        self.events.append(event)

    async def read(self, chance: random.Random) -> None:
        name = chance.choice(("append", "reshape", "e1"))
        async with self.client.datasets.query(f'select count(*) as n, count(distinct id) as d from "{name}"') as answer:
            (row,) = [row async for row in answer.records()]
        assert row["n"] == row["d"], f"{name} has a row twice"

    async def together(self, names: tuple[str, ...], times: int, seed: int) -> None:
        """Let some act so often each, all at once; raises what nobody may be told."""

        async def act(name: str, place: int) -> None:
            chance, act = random.Random(f"{seed} {name} {place}"), self.acts[name]
            for _ in range(times):
                try:
                    await act(chance)
                    self.done[name] = self.done.get(name, 0) + 1
                except TOLD as problem:
                    self.told[type(problem).__name__] = self.told.get(type(problem).__name__, 0) + 1
                except Exception as problem:
                    problem.add_note(f"{name} beside {names}")
                    raise

        async with asyncio.timeout(120):
            done = await asyncio.gather(*(act(name, place) for place, name in enumerate(names)), return_exceptions=True)
        problems = [each for each in done if isinstance(each, BaseException)]
        if problems:
            raise BaseExceptionGroup(f"beside each other: {names}", problems)

    async def require_whole(self, conn: Conn) -> None:
        """Let all come to rest, and hold what there is against a plain program."""
        for dag, nodes in self.dags.items():
            await self.client.live.deploy(self._document(dag))
            for job in (None, nodes[-1].name):
                try:
                    await self.client.live.resume(dag, job=job)
                except weft.StateConflict:
                    continue
        await self._until_quiet(conn)
        for dag, nodes in self.dags.items():
            lanes = sorted({lane for lane, _, _ in self.events})
            await self.client.live.rematerialize(dag, nodes[-1].name, partitions=lanes)
        await self._until_quiet(conn)
        wrong = await conn.fetch(WRONG)
        assert not wrong, [row["what"] for row in wrong]
        assert not await conn.fetch(TWO_PRODUCERS)
        nodes = [*self.dags["east"][:2], *self.dags["west"][:2], self.dags["east"][2], self.dags["west"][2]]
        assert await read_all(self.client, nodes) == expected(nodes, self.events)
        await self._require_files(conn)
        done = await self._task("count", 0)
        assert done == [0, *sorted(self.appended)]

    async def _until_quiet(self, conn: Conn) -> None:
        async def is_quiet() -> bool:
            for row in await conn.fetch(HELD):
                await self.client.live.retry(row["dag"], f"{row['job']}@{row['version']}")
            return bool(await conn.fetchval(QUIET))

        await until(is_quiet, "all is done")

    async def _require_files(self, conn: Conn) -> None:
        """All files are there that readers may see, each whole."""
        for row in await conn.fetch(SEEN_FILES):
            table = pq.read_table(self._home / "data" / row["location"] / row["path"])
            assert table.num_rows == row["rows"]
        assert not await conn.fetch(WRONG_COUNTS)

    async def _task(self, handler: str, number: int) -> Any:
        return await self.client.wait((await self.client.enqueue(handler, {"number": number})).id, timeout=60)

    def _sum(self, chance: random.Random) -> tuple[str, str]:
        dag = chance.choice(list(self.dags))
        return dag, self.dags[dag][-1].name

    def _document(self, dag: str) -> dict[str, Any]:
        said = document(dag, self.dags[dag])
        said["jobs"][self.dags[dag][0].name]["source"]["event"] = EVENT
        return said


# Units whose tasks somebody has cancelled.
HELD = """
  select distinct d.name as dag, j.name as job, max(v.number) as version from weft.live_unit u
    join weft.live_job j on j.id = u.live_job_id join weft.live_dag d on d.id = j.dag_id
    join weft.dag_version_job m on m.live_job_id = j.id join weft.dag_version v on v.id = m.dag_version_id
  where u.state = 'held' and j.state not in ('draining', 'stopped') group by 1, 2, j.id"""
# No two datasets have one producer and output, and what is written has a producer.
TWO_PRODUCERS = """
  select d.name from weft.dataset d where d.producer_dag is null and d.current_id is not null
  union all select min(d.name) from weft.dataset d where d.producer_output is not null
    group by d.org_id, d.producer_dag, d.producer_node, d.producer_output having count(*) > 1"""
SEEN_FILES = """
  select v.location, f.path, f.rows from weft.dataset d join weft.dataset_version v on v.dataset_id = d.id
    join weft.dataset_file f on f.version_id = v.id
  where v.collected_at is null and not v.is_outside and d.storage ->> 'kind' = 'parquet'
    and (f.removed_by is null or f.removed_by > v.oldest_write)"""
# What a version is said to have is what its files and its partitions have.
WRONG_COUNTS = """
  select v.id from weft.dataset_version v
    left join lateral (select coalesce(sum(f.rows), 0) as rows, count(*) as files from weft.dataset_file f
      where f.version_id = v.id and f.removed_by is null) f on true
    left join lateral (select coalesce(sum(p.rows), 0) as rows, coalesce(sum(p.files), 0) as files
      from weft.dataset_partition p where p.version_id = v.id) p on true
  where v.collected_at is null and (v.rows, v.files) is distinct from (f.rows, f.files)
    or v.collected_at is null and (v.rows, v.files) is distinct from (p.rows, p.files)"""


def _add_writers(registry: Registry) -> None:
    """Add tasks that write each a dataset of its name, or that which is handed over."""
    patient = weft.Retry(1000, initial_delay=0)

    @registry.task(name="append", retry=patient)
    async def append(number: int, ctx: weft.Context) -> None:
        await ctx.dataset("append").write([{"id": number}], mode="append", unique_key=[])

    @registry.task(name="fill", retry=patient)
    async def fill(number: int, ctx: weft.Context) -> None:
        await ctx.dataset("fill").write([{"id": number}], partition=str(number % 3))

    @registry.task(name="reshape", retry=patient)
    async def reshape(number: int, ctx: weft.Context) -> None:
        await ctx.dataset("reshape").write([{"id": number, f"c{number % 3}": number}], breaking=True)

    @registry.task(name="keep", retry=patient)
    async def keep(number: int, ctx: weft.Context) -> None:
        await ctx.dataset("kept").write([{"id": number}], mode="append", unique_key=[])
        await ctx.dataset("keep").write([{"id": number}], breaking=number % 5 == 0)

    @registry.task(name="spare", retry=patient)
    async def spare(number: int, ctx: weft.Context) -> None:
        await ctx.dataset("spare").write([{"id": number}])

    for name in ("hand_a", "hand_b"):

        @registry.task(name=name, retry=patient)
        async def hand(number: int, ctx: weft.Context) -> None:
            await ctx.dataset("handed").write([{"id": number}], mode="append", unique_key=[])

    @registry.task(name="count")
    async def count(number: int, ctx: weft.Context) -> list[int]:
        return sorted((await ctx.dataset("append").read()).column("id").to_pylist())
