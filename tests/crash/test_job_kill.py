"""Whoever does something about a job dies between any two statements: all or nothing, and others go on with it."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

import weft
from crash.apps import acting  # noqa: F401  the handlers of the workers in this process
from crash.checker import check
from crash.harness import VICTIM, Performance, Process, until, until_forgotten
from crash.job_acts import ACTS, Act, settings_for
from crash.job_sessions import JobSession, flow, job_sessions
from crash.moments import Moments, is_part_of_the_act
from crash.proxy import Exchange, Proxy, proxy_to
from crash.sessions import sessions
from weft.worker.registry import Registry

if TYPE_CHECKING:
    Conn = asyncpg.Connection[asyncpg.Record]

REGISTRY = Registry()


@REGISTRY.task(name="act")
async def act(ok: bool = True) -> bool:
    if not ok:
        raise ValueError("as drawn")
    return True


def counted(number: int, text: str) -> Callable[[Exchange], bool]:
    """True for one statement only, by its place among those that have a text and do something."""
    seen = itertools.count(1)
    return lambda exchange: is_part_of_the_act(exchange, text) and next(seen) == number


@pytest.fixture
async def copies(tmp_path: Path) -> AsyncIterator[Process]:
    """A program of which copies are made, one for each act."""
    process = await Process.start("crash.apps.job_act", {}, tmp_path / "crew")
    yield process
    await process.finish()


async def _start(copies: Process, proxy: Proxy, home: Path, act: str, **more: Any) -> Performance:
    url = f"{proxy.url}&application_name={VICTIM}"
    copies.say(json.dumps({"act": act, "url": url, "home": str(home), **more}))
    return Performance(copies, int(await copies.hear()))


async def _prepared(client: weft.Client, engine: JobSession, plan: Act) -> int | None:
    """Return a job that is ready for the act, if there is one."""
    if plan.before is None:
        return None
    job_id = (await client.jobs.submit(plan.definition)).id
    for step in await engine.claim(10, (2, -engine.worker_id)):
        if step.handler == "@wait":
            assert await engine.wait_for_event(step, "go" if step.node == "told" else None)
        elif step.handler == "@fail":
            await engine.carry_out(step)
        else:
            assert await engine.finish(step)
    if plan.before == "paused":
        await client.jobs.pause(job_id)
    return job_id


async def _seen(engine: JobSession, plan: Act, job_id: int | None, key: str) -> str | None:
    """Return the state of the job, or of its first node where that is what changes."""
    if job_id is None:
        statement = (
            "select j.state from weft.idempotency_key k join weft.jobs j on j.end_id = k.task_id where k.key = $1"
        )
        return await engine.conn.fetchval(statement, key)
    if plan.before == "waiting":
        states = await engine.states(job_id)
        first = states[plan.definition["nodes"]["START"]["next"]]
        return first if first in ("waiting", "failed") else states["then"]
    return await engine.job_state(job_id)


@pytest.mark.parametrize("name", ACTS)
async def test_a_process_killed_between_any_two_statements_has_done_all_or_nothing_to_a_job(
    url: str, home: Path, copies: Process, name: str, campaign: str
) -> None:
    """Killed when the server has executed the statement, and before the process hears of that."""
    plan, done, jobs, moments = ACTS[name], [], [], Moments(campaign)
    async with weft.Client(settings=settings_for(url, home)) as client, job_sessions(url, 1) as (engine,):
        await engine.orchestrate()
        for number in moments:
            job_id, key = await _prepared(client, engine, plan), f"{name} {number}"
            async with proxy_to(url) as proxy:
                held = proxy.hold("", moments.at(number))
                victim = await _start(copies, proxy, home, name, job_id=job_id, key=key)
                is_killed = await victim.is_reached(held.fired)
                if is_killed:
                    await victim.kill()
            await until_forgotten(engine.conn)
            await check(engine.conn)
            seen = await _seen(engine, plan, job_id, key)
            assert seen in (plan.before, plan.done), number
            done.append(seen == plan.done)
            if not done[-1]:
                # Somebody does it again, and finds nothing in the way.
                await plan.perform(client, job_id, key)
            jobs.append(job_id or await engine.conn.fetchval("select max(id) from weft.job"))
            if name == "pause":
                await client.jobs.resume(job_id)
            if not is_killed:
                moments.over()
        assert int(await victim.end) == 0
        # Not done up to some statement, done from there on.
        assert done == sorted(done)
        assert done[-1]
        assert len(done) > 1
        await engine.conn.execute("update weft.worker set until = weft.now() - interval '1 ms'")
        async with weft.Worker(client=client, registry=REGISTRY), weft.Orchestrator(client=client):
            if name in ("submit", "pause", "resume"):
                await until(lambda: _all_wait(engine), "they wait for an answer")
                for job in jobs:
                    await client.jobs.approve(job)
            ended = {(await client.jobs.wait(job, timeout=60)).state for job in jobs}
        assert ended == {plan.end}
        await check(engine.conn)


async def _all_wait(engine: JobSession) -> bool:
    return bool(await engine.conn.fetchval("select count(*) = (select count(*) from weft.job) from weft.awaited"))


# --- orchestrators ---

ITEMS = {"weft.add_children": 4001}
LARGE = [f"missed{number}" for number in range(101)]


def _everything(items: int) -> dict[str, Any]:
    """A job in which an orchestrator does all that there is to do, and a task of which fails."""

    def no(number: int) -> dict[str, Any]:
        return {"condition": "== 0", "next": LARGE} if number == 0 else {"default": True, "next": "each"}

    return flow(
        name="all", on_failure="finish_independent",
        choose={"type": "conditional", "condition_field": 1, "branches": [no(0), no(1)]},
        **{name: {"handler": "act"} for name in LARGE},
        each={"type": "fan_out", "items": list(range(items)), "task": {"handler": "act"}, "next": "all"},
        all={"type": "fan_in", "next": ["call", "told", "bad"]},
        call={"type": "workflow", "workflow": "inner"},
        told={"type": "wait", "for": "event", "event": "go"},
        bad={"handler": "act", "params": {"ok": False}, "retry": {"max_attempts": 1}, "next": "after"},
        after={"handler": "act"},
    )  # fmt: skip


def _hasty() -> dict[str, Any]:
    """A job that fails at once, with much left to sweep away."""
    bad = {"handler": "act", "params": {"ok": False}, "retry": {"max_attempts": 1}}
    always = [{"default": True, "next": ["bad", "long"]}]
    return flow(
        name="hasty", begin={"type": "conditional", "condition_field": 1, "branches": always}, bad=bad,
        long={"type": "wait", "for": "approval", "next": "after"}, after={"handler": "act"},
    )  # fmt: skip


STATEMENTS = (
    "weft.add_children", "weft.fail_job", "weft.skip_by_step", "weft.sweep_job", "weft.begin_wait",
    "weft.wait_for_answer", "weft.put_job", "weft.finish_and_claim", "weft.adopt_jobs", "commit",
)  # fmt: skip


@pytest.mark.parametrize("statement", STATEMENTS)
async def test_an_orchestrator_killed_at_any_statement_leaves_jobs_that_others_bring_to_their_end(
    url: str, home: Path, copies: Process, statement: str, campaign: str
) -> None:
    most, kills = (2 if statement in ITEMS else 1) if campaign == "short" else 1000, 0
    async with weft.Client(settings=settings_for(url, home)) as client, sessions(url, 1) as (watcher,):
        await client.workflows.push(flow(name="inner", only={"handler": "act"}))
        async with weft.Worker(client=client, registry=REGISTRY, concurrency=200):
            for number in range(1, most + 1):
                jobs = [
                    (await client.jobs.submit(each)).id for each in (_everything(ITEMS.get(statement, 3)), _hasty())
                ]
                await client.jobs.send_event("go")
                if statement == "weft.adopt_jobs":
                    await _lose_an_owner(url, jobs)
                async with proxy_to(url) as proxy:
                    held = proxy.hold("", counted(number, statement))
                    victim = await _start(copies, proxy, home, "orchestrate")
                    is_killed = await _is_reached(held.fired, client, jobs)
                    await victim.kill()
                    kills += is_killed
                await until_forgotten(watcher.conn)
                await check(watcher.conn)
                # What it has left is taken over at once.
                await watcher.conn.execute(
                    "update weft.worker set until = weft.now() - interval '1 ms' where 2 = any (queues)"
                )
                async with weft.Orchestrator(client=client):
                    ended = [await client.jobs.wait(job, timeout=60) for job in jobs]
                await _require_right_ends(client, watcher.conn, ended, ITEMS.get(statement, 3))
                if not is_killed:
                    break
        assert kills, "it never came to that"


async def _lose_an_owner(url: str, jobs: list[int]) -> None:
    """Let an orchestrator be lost that owns all jobs, with the first step of each."""
    async with job_sessions(url, 1) as (lost,):
        await lost.orchestrate()
        # Beside a step of an earlier round whose job ended while it was carried out, and that is left to be settled.
        steps = [step for step in await lost.claim(10, (2, -lost.worker_id)) if step.job_id in jobs]
        assert sorted(step.job_id or 0 for step in steps) == sorted(jobs)
        await lost.lapse()


async def _is_reached(event: Any, client: weft.Client, jobs: list[int]) -> bool:
    """Return whether something happens before the jobs have ended."""

    async def is_over() -> bool:
        return event.is_set() or all([(await client.jobs.show(job)).state in ("completed", "failed") for job in jobs])

    await until(is_over, "it comes to that, or to an end")
    return bool(event.is_set())


async def _require_right_ends(client: weft.Client, conn: Conn, ended: list[weft.Job], items: int) -> None:
    await check(conn)
    assert [job.state for job in ended] == ["failed", "failed"]
    nodes = {node.node: node for node in await client.jobs.nodes(ended[0].id)}
    states = {name: node.state for name, node in nodes.items() if name not in LARGE}
    assert states == {
        "choose": "completed", "each": "completed", "all": "completed", "call": "completed", "told": "completed",
        "bad": "dead", "after": "skipped", "END": "completed",
    }  # fmt: skip
    assert nodes["each"].items == {"completed": items}
    assert {nodes[name].state for name in LARGE} == {"skipped"}
    hasty = {node.node: node.state for node in await client.jobs.nodes(ended[1].id)}
    assert (hasty["bad"], hasty["after"]) == ("dead", "skipped")
    assert await conn.fetch("select id, handler, state::text from weft.task where node is not null") == []
    assert await conn.fetchval("select count(*) from weft.job") == 0
