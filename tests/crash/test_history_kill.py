"""Whoever changes a workflow dies, or loses the server, between any two statements: all of the change, or nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

import weft
from crash.harness import VICTIM, Performance, Process, until_call_waits, until_forgotten
from crash.history_acts import ACTS, DEPTH, LARGE, Act, seen_of, settings_for
from crash.moments import Moments
from crash.proxy import Fault, Proxy, proxy_to
from crash.sessions import sessions
from history_laws import broken_laws, everything, make_older
from storages import BucketStorage, FolderStorage, Storage

if TYPE_CHECKING:
    Conn = asyncpg.Connection[asyncpg.Record]

# Who acts, and under what name their sessions are known to the server.
MADE = """
  select (select count(*) from weft.tag_move where moved_by = $1 and tag = $3),
    (select count(*) from weft.artifact a where a.actor = $1 and a.workflow_id = $2
       and not exists (select 1 from weft.tag_move m where m.to_id = a.id))"""
NOTED = """
  select b::text from weft.blob b
  where b.content is null and not exists (select 1 from weft.artifact a where a.digest = b.digest)"""
USED = "select a.digest from weft.artifact a join weft.blob b on b.digest = a.digest where b.content is null"


class Stage:
    """A database on which an act is prepared again and again, each time on a workflow of its own."""

    def __init__(self, act: str, url: str, home: Path, conn: Conn, client: weft.Client, storage: Storage) -> None:
        self.act = act
        self.url = url
        self.home = home
        self.conn = conn
        self.storage = storage
        self._client = client
        self._name = ""
        self._prepared: Any = None
        self._before: list[tuple[str, str]] = []

    @property
    def plan(self) -> Act:
        return (ACTS | LARGE)[self.act]

    @property
    def tag(self) -> str:
        return f"{self._name}/main"

    async def prepare(self, number: int) -> None:
        """Make the next workflow ready."""
        self._name = f"w{number}"
        self._prepared = await self.plan.prepare(self._client.workflows, self._name)
        assert await self.seen() == self.plan.seen[0]
        self._before = await self._everything()

    async def _everything(self) -> list[tuple[str, str]]:
        """Return all rows, but for the account of what lies in the storage until it is used or collected."""
        noted = {row[0] for row in await self.conn.fetch(NOTED)}
        assert not noted or self.plan.storage is not None
        return [row for row in await everything(self.conn) if row[1] not in noted]

    async def seen(self) -> Any:
        return await seen_of(self._client.workflows, self._name)

    async def start(self, copies: Process, url: str, actor: str) -> Performance:
        """Start a process that performs the act."""
        copies.say(json.dumps({
            "act": self.act, "url": url, "home": str(self.home), "actor": actor, "name": self._name,
            "prepared": self._prepared, "blob_url": self.storage.url,
        }))  # fmt: skip
        return Performance(copies, int(await copies.hear()))

    async def perform(self, url: str) -> Any:
        """Perform the act in this process."""
        async with weft.Client(settings=settings_for(url, self.home, VICTIM, self.storage.url)) as client:
            return await self.plan.perform(client.workflows, self._name, self._prepared)

    async def require_all_or_nothing(self) -> bool:
        """Return whether the act was done; it must be done as a whole, or have left no trace."""
        row = await self.conn.fetchrow(MADE, VICTIM, self._name, self.tag)
        assert row is not None
        made = tuple(row)
        assert made in ((0, 0), (self.plan.moves, self.plan.kept)), f"{made} of its moves, and of what it keeps"
        assert await self.seen() == self.plan.seen[1 if any(made) else 0]
        if not any(made):
            assert await self._everything() == self._before
        assert await broken_laws(self.conn, DEPTH) == []
        return any(made)

    async def require_done_again(self, copies: Process, is_done: bool) -> None:
        """Perform the act in a new process, which must find nothing in its way."""
        again = await self.start(copies, self.url, "again")
        assert int(await again.end) == 0
        assert await self.seen() == self.plan.seen[2 if is_done else 1]
        assert await broken_laws(self.conn, DEPTH) == []

    async def require_nothing_left_over(self) -> None:
        """The storage holds what is used, once what the dead had put there was collected; all of it is there whole."""
        used = {row[0] for row in await self.conn.fetch(USED)}
        assert used < set(self.storage.digests()) if self.plan.storage else not self.storage.digests()
        await make_older(self.conn)
        self.storage.age(2)
        async with weft.Client(settings=settings_for(self.url, self.home, "keeper", self.storage.url)) as keeper:
            await keeper.workflows.gc(timedelta(days=1))
            assert set(self.storage.digests()) == used
            assert await keeper.workflows.fsck() == []


@pytest.fixture(params=ACTS)
async def stage(request: pytest.FixtureRequest, url: str, tmp_path: Path, conn: Conn) -> AsyncIterator[Stage]:
    storage: Storage = FolderStorage(tmp_path / "storage")
    if (ACTS | LARGE)[request.param].storage == "bucket":
        storage = BucketStorage(request.getfixturevalue("s3_bucket"))
    async with weft.Client(settings=settings_for(url, tmp_path / "home", "setter", storage.url)) as client:
        yield Stage(request.param, url, tmp_path / "home", conn, client, storage)


@pytest.fixture
async def copies(tmp_path: Path) -> AsyncIterator[Process]:
    """A program of which copies are made, one for each act."""
    process = await Process.start("crash.apps.history_act", {}, tmp_path / "crew")
    yield process
    await process.finish()


def for_victims(proxy: Proxy) -> str:
    """The address for whoever is to suffer: by way of the proxy, under a name of their own."""
    return f"{proxy.url}&application_name={VICTIM}"


@pytest.mark.parametrize("stage", [*ACTS, *LARGE], indirect=True)
async def test_a_process_killed_between_any_two_statements_has_done_all_or_nothing(
    stage: Stage, copies: Process, campaign: str
) -> None:
    """Killed when the server has executed the statement, and before the process hears of that."""
    done, moments = [], Moments(campaign)
    for number in moments:
        await stage.prepare(number)
        async with proxy_to(stage.url) as proxy:
            held = proxy.hold("", moments.at(number, with_setting_up=True))
            victim = await stage.start(copies, for_victims(proxy), VICTIM)
            if not await victim.is_reached(held.fired):
                break
            await victim.kill()
        await until_forgotten(stage.conn)
        done.append(await stage.require_all_or_nothing())
        await stage.require_done_again(copies, done[-1])
    assert int(await victim.end) == 0
    assert await stage.require_all_or_nothing()
    # Not done up to some statement, done from there on.
    assert done == sorted(done)
    assert (done[0], done[-1]) == (False, True)
    await stage.require_nothing_left_over()


async def test_a_process_killed_while_its_statement_waits_has_done_all_or_nothing(
    stage: Stage, copies: Process
) -> None:
    """The server goes on with a statement whose caller has died meanwhile: alone it is done, amid others it is not."""
    await stage.prepare(1)
    async with sessions(stage.url, 1) as (other,), other.conn.transaction():
        await other.conn.execute("lock weft.tag_move, weft.artifact in share mode")
        victim = await stage.start(copies, f"{stage.url}&application_name={VICTIM}", VICTIM)
        await until_call_waits(stage.conn, "weft.")
        await victim.kill()
    await until_forgotten(stage.conn)
    is_done = await stage.require_all_or_nothing()
    await stage.require_done_again(copies, is_done)


WAYS = ("ended by the server", "cut off")


async def test_a_session_lost_between_any_two_statements_has_done_all_or_nothing_and_nothing_twice(
    stage: Stage, campaign: str
) -> None:
    """The caller gets an error, or it was done once; after an error it was done once, or not at all."""
    moments = Moments(campaign)
    # Every day in one way after the other, else in both each time.
    rounds = ((number, how) for number in moments for how in (WAYS if campaign == "long" else (WAYS[number % 2],)))
    for round_, (number, how) in enumerate(rounds, 1):
        await stage.prepare(round_)
        async with proxy_to(stage.url) as proxy:
            when = moments.at(number, with_setting_up=True)
            rule = proxy.rule("", Fault.CUT, when) if how == "cut off" else proxy.hold("", when)
            act = asyncio.create_task(stage.perform(for_victims(proxy)))
            lost = asyncio.create_task(rule.fired.wait())
            await asyncio.wait([act, lost], return_when=asyncio.FIRST_COMPLETED)
            lost.cancel()
            if rule.gate is not None and rule.seen:
                ended = "select pg_terminate_backend(pid, 20000) from pg_stat_activity where application_name = $1"
                assert {row[0] for row in await stage.conn.fetch(ended, VICTIM)} == {True}
                rule.gate.set()
            (problem,) = await asyncio.gather(act, return_exceptions=True)
        is_told = not isinstance(problem, BaseException)
        assert is_told or isinstance(problem, weft.DatabaseUnavailable), problem
        is_done = await stage.require_all_or_nothing()
        assert is_done or not is_told
        if not rule.seen:
            moments.over()
    assert moments.statements > 1
