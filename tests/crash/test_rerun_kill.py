"""Whoever runs a job again dies between any two statements: there is a whole new job, or nothing of one."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

import weft
from crash.harness import VICTIM, Process, until_forgotten
from crash.moments import Moments
from crash.proxy import Exchange, proxy_to
from weft.worker.registry import Registry

if TYPE_CHECKING:
    Conn = asyncpg.Connection[asyncpg.Record]

FLOW = {
    "workflow_id": "again",
    "on_failure": "finish_independent",
    "nodes": {
        "START": {"type": "start", "next": ["one", "each"]},
        "one": {"handler": "act", "params": {"value": 10}, "next": "sum"},
        "each": {
            "type": "fan_out", "items": [0, 1, 2, 3], "task": {"handler": "act", "params": {"value": "{{ item }}"}},
            "next": "all",
        },
        "all": {"type": "fan_in", "next": "sum"},
        "sum": {"handler": "act", "params": {"value": "{{ nodes.all.output.results + [nodes.one.output] }}"},
                "next": "END"},
        "END": {"type": "end", "output": "{{ nodes.sum.output }}"},
    },
}  # fmt: skip
# What there is in all that a rerun writes to.
COUNTS = """
  select (select count(*) from weft.job), (select count(*) from weft.task), (select count(*) from weft.task_done),
    (select count(*) from weft.edge), (select count(*) from weft.task_params)"""


@pytest.fixture
async def copies(tmp_path: Path) -> AsyncIterator[Process]:
    """A program of which copies are made, one for each rerun."""
    process = await Process.start("crash.apps.rerun_act", {}, tmp_path / "crew")
    yield process
    await process.finish()


class Players:
    """A handler that fails for some values until it is mended."""

    def __init__(self) -> None:
        self.registry = Registry()
        self.broken: list[Any] = [2]
        self.acted: list[Any] = []
        self.registry.task(name="act", retry=0)(self.act)

    async def act(self, value: Any) -> Any:
        self.acted.append(value)
        if value in self.broken:
            raise ValueError("broken")
        return value


async def _counts(conn: Conn) -> tuple[int, ...]:
    row = await conn.fetchrow(COUNTS)
    assert row is not None
    return tuple(row)


async def _killed_at(moment: Callable[[Exchange], bool], job_id: int, url: str, home: Path, copies: Process) -> bool:
    """Kill whoever runs a job again when a statement of theirs was executed; False when they had so many not."""
    async with proxy_to(url) as proxy:
        held = proxy.hold("", moment)
        settings = {"database_url": f"{proxy.url}&application_name={VICTIM}", "home": str(home)}
        copies.say(json.dumps({"job_id": job_id, "settings": settings}))
        pid = int(await copies.hear())
        end = asyncio.create_task(copies.hear())
        reached = asyncio.create_task(held.fired.wait())
        await asyncio.wait([reached, end], return_when=asyncio.FIRST_COMPLETED)
        reached.cancel()
        if not held.fired.is_set():
            assert int(await end) == 0
            return False
        os.kill(pid, signal.SIGKILL)
        assert int(await end) == -signal.SIGKILL
        return True


async def test_a_rerun_that_is_killed_between_any_two_statements_is_there_as_a_whole_or_not_at_all(
    client: weft.Client, url: str, tmp_path: Path, conn: Conn, copies: Process, campaign: str
) -> None:
    players, moments = Players(), Moments(campaign)
    async with weft.Worker(client=client, registry=players.registry), weft.Orchestrator(client=client):
        job = await client.jobs.wait((await client.jobs.submit(FLOW)).id, timeout=30)
    assert job.state == "failed"
    done, before = [], await _counts(conn)
    whole: tuple[int, ...] | None = None
    for number in moments:
        moment = moments.at(number, with_setting_up=True)
        was_killed = await _killed_at(moment, job.id, url, tmp_path / "home", copies)
        await until_forgotten(conn)
        now = await _counts(conn)
        made = tuple(new - old for new, old in zip(now, before, strict=True))
        if any(made):
            whole = whole or made
            assert made == whole, "all of a job, or nothing"
        done.append(any(made))
        before = now
        if not was_killed:
            moments.over()
    assert done == sorted(done)
    assert (done[0], done[-1], done.count(True) > 1) == (False, True, True)
    players.broken, players.acted = [], []
    async with weft.Worker(client=client, registry=players.registry), weft.Orchestrator(client=client):
        made_jobs = [each.id for each in await client.jobs.list() if each.id != job.id]
        ended = [await client.jobs.wait(job_id, timeout=30) for job_id in made_jobs]
    assert [each.result for each in ended] == [[0, 1, 2, 3, 10]] * done.count(True)
    assert sorted(map(str, players.acted)) == sorted(["2", "[0, 1, 2, 3, 10]"] * done.count(True))


async def test_an_output_that_goes_while_it_is_about_to_be_kept_is_made_again(
    client: weft.Client, url: str, tmp_path: Path, conn: Conn
) -> None:
    players = Players()
    players.broken = []
    async with weft.Worker(client=client, registry=players.registry), weft.Orchestrator(client=client):
        job = await client.jobs.wait((await client.jobs.submit(FLOW)).id, timeout=30)
        players.acted = []
        async with proxy_to(url) as proxy:
            held = proxy.hold("weft.put_job")
            settings = weft.Settings.load(environ={}, database_url=proxy.url, home=tmp_path / "home")
            async with weft.Client(settings=settings) as caller:
                act = asyncio.create_task(caller.jobs.rerun(job.id))
                await held.fired.wait()
                await conn.execute("delete from weft.task_done where job_id = $1 and node = 'one'", job.id)
                assert held.gate is not None
                held.gate.set()
                again = await act
        done = await client.jobs.wait(again.id, timeout=30)
    assert (done.result, again.plan.nodes("run")) == ([0, 1, 2, 3, 10], ["one", "sum", "END"])
    assert players.acted == [10, [0, 1, 2, 3, 10]]
    assert await conn.fetchval("select count(*) from weft.jobs") == 2
