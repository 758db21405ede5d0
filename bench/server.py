"""The server over loopback: single requests, submissions, memory, and pages of long lists."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import quote

import orjson

import weft
from bench.bare import PATH
from bench.filling import fill
from bench.jobs import SMALL
from bench.lists import beside_a_list
from bench.load import Answered, Load, put
from bench.place import child_process, fresh_database, walled
from bench.process import resident_mb
from bench.report import Figure

LISTS = {
    "newest": "",
    "oldest": "sort=oldest",
    "a state": "state=failed",
    "a rare state": "state=cancelled",
    "what runs, beneath what waits": "state=running",
    "a workflow": "workflow_id=flow7",
    "a workflow of one old job": "workflow_id=once",
    "a workflow nobody has": "workflow_id=none",
    "an actor": "actor=ada",
    "an actor of one old job": "actor=once",
    "a label": "labels=team%3Dt5",
    "a label of one old job": "labels=case%3Drare",
    "a label nobody has": "labels=case%3Dnone",
    "two labels": "labels=team%3Dt5&labels=run%3Dr25",
    "two labels, none with both": "labels=team%3Dt0&labels=run%3Dr25",
    "a label and a state": "labels=team%3Dt5&state=failed",
    "a label and a rare state": "labels=team%3Dt5&state=cancelled",
    "a workflow and a state": "workflow_id=flow7&state=failed",
    "a workflow and an actor": "workflow_id=flow20&actor=ada",
    "a workflow and an actor, none of both": "workflow_id=flow7&actor=ada",
    "a workflow and a label": "workflow_id=flow5&labels=team%3Dt5",
    "a label and an actor": "labels=team%3Dt0&actor=ada",
    "a label and an actor, none of both": "labels=team%3Dt5&actor=ada",
    "a workflow and a label, none of both": "workflow_id=flow5&labels=team%3Dt0",
    "a workflow, an actor, a label, none of all": "workflow_id=flow10&actor=ada&labels=run%3Dr25",
    "several states": "state=failed&state=cancelled&state=paused",
    "an actor, oldest": "actor=ada&sort=oldest",
    "a label and a state, oldest": "labels=team%3Dt5&state=completed&sort=oldest",
    "since and until": "",
    "since, oldest": "",
    "what runs a job again": "",
    "a page in the middle": "",
}


@asynccontextmanager
async def server_process(url: str) -> AsyncIterator[tuple[int, int]]:
    """Run a server in a process of its own; yields its port and its id when it answers."""
    async with _process("bench.serve", url) as found:
        yield found


@asynccontextmanager
async def _process(module: str, url: str) -> AsyncIterator[tuple[int, int]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    async with child_process(module, url, str(port)) as process:
        yield port, process.pid


async def measure_lists(server: str, jobs: int, count: int) -> list[Figure]:
    """Pages of a list of millions of jobs, by each filter and both orders; and of an org that has few among them."""
    figures = []
    async with fresh_database(server) as url:
        async with weft.Client(url) as client:
            await client.orgs.create("big", "Big")
            big_id = await _org_id(client, "big")
            await fill(url, await client.org_id(), 10, 2)
            await fill(url, big_id, jobs, 20_000)
            few = (await client.tokens.create("bench", role="reader")).secret
        async with weft.Client(url, org="big") as client:
            many = (await client.tokens.create("bench", role="reader")).secret
            newest, *_ = await client.jobs.list(state="completed", limit=1)
            middle = (await client.jobs.list(sort="oldest", limit=1))[0].id // 2 + newest.id // 2
            again = await client.jobs.list(state="completed", after=middle, sort="oldest", limit=400)
        moments = [quote(job.created_at.isoformat()) for job in (again[0], again[-1])]
        asked = LISTS | {
            "since and until": f"since={moments[0]}&until={moments[1]}",
            "since, oldest": f"since={moments[0]}&sort=oldest",
            "what runs a job again": f"rerun_of={again[0].id}", "a page in the middle": f"before={middle}",
        }  # fmt: skip
        async with server_process(await walled(url)) as (port, _):
            for name, query in asked.items():
                load = Load(port, many, f"/api/v1/jobs?{query}", count)
                beside = await beside_a_list(url, "big", port, many, query, count)
                figures.append(_page(f"list of {jobs:,} jobs: {name}", await put(load), beside))
            load = Load(port, few, "/api/v1/jobs", count)
            beside = await beside_a_list(url, "default", port, few, "", count)
            figures.append(_page(f"list of 12 jobs among {jobs:,} of another org", await put(load), beside))
    return figures


async def _org_id(client: weft.Client, slug: str) -> int:
    return int(next(org.id for org in await client.orgs.list() if org.slug == slug))


def _page(name: str, answered: Answered, beside: str) -> Figure:
    p99 = answered.p99
    return Figure(name, p99, "ms (p99)", "<= 30 ms", p99 <= 30, f"p50 {answered.median:.1f} ms; {beside}")


async def measure_requests(server: str, scale: int, repeat: int) -> list[Figure]:
    """Single requests at a steady rate, submissions as fast as they go, and what the process holds."""
    figures = []
    async with fresh_database(server) as url, weft.Client(url) as client:
        token = (await client.tokens.create("bench", role="writer")).secret
        await client.workflows.push(SMALL)
        job_id = (await client.jobs.submit("small")).id
        async with server_process(await walled(url)) as (port, pid), _process("bench.bare", url) as (bare, bare_pid):
            idle, least = resident_mb(pid), resident_mb(bare_pid)
            await put(Load(bare, token, PATH, 200))
            single = await put(Load(bare, token, PATH, 6000 // scale, connections=16, rate=200))
            for name, path in {"a tag": "/api/v1/tags/small/main", "a job": f"/api/v1/jobs/{job_id}"}.items():
                load = Load(port, token, path, 6000 // scale, connections=16, rate=200)
                await put(Load(port, token, path, 200))
                found = [await put(load) for _ in range(repeat)]
                times = [time for each in found for time in each.times]
                figures += _both(f"GET {name}, 200 requests/s", Answered(times, 0.0), single)
            body = orjson.dumps({"workflow": "small"}).decode()
            flood = Load(port, token, "/api/v1/jobs", 5000 // scale, 16, None, "POST", body, 201)
            await put(Load(port, token, "/api/v1/jobs", 200, 16, None, "POST", body, 201))
            rates = [flood.count / (await put(flood)).seconds for _ in range(repeat)]
            rate, direct = sorted(rates)[len(rates) // 2], await _submitted(client, flood.count, flood.connections)
            figures.append(
                Figure(
                    "submit small jobs by HTTP, 16 connections", rate, "jobs/s", ">= 600 jobs/s", rate >= 600,
                    f"{100 * rate / direct:.0f}% of {direct:,.0f}/s by the client itself", rates,
                )
            )  # fmt: skip
            many = Load(port, token, f"/api/v1/jobs/{job_id}", 50_000 // scale, connections=16)
            await put(many)
            half = resident_mb(pid)
            answered = await put(many)
            whole = resident_mb(pid)
            each = f"{answered.times and answered.median:.1f} ms each, {many.count / answered.seconds:,.0f} requests/s"
    return [
        *figures,
        Figure("server idle: memory (RSS)", idle, "MB", "<= 120 MB", idle <= 120,
               f"bare uvicorn and FastAPI with one route {least:.0f} MB"),
        Figure(f"server: memory after {2 * many.count:,} requests", whole, "MB", f"after half of them {half:.0f} MB",
               whole <= 1.02 * half, each),
    ]  # fmt: skip


async def _submitted(client: weft.Client, count: int, at_once: int) -> float:
    """Return how many jobs a second a client submits by itself, so many at once."""
    turns = iter(range(count))

    async def submit() -> None:
        for _ in turns:
            await client.jobs.submit("small")

    began = time.perf_counter()
    await asyncio.gather(*(submit() for _ in range(at_once)))
    return count / (time.perf_counter() - began)


def _both(name: str, answered: Answered, bare: Answered) -> list[Figure]:
    median, p99, beside = answered.median, answered.p99, "a bare route with one select"
    return [
        Figure(f"{name}: p50", median, "ms", "<= 3 ms", median <= 3, f"{beside} {bare.median:.2f} ms"),
        Figure(f"{name}: p99", p99, "ms", "<= 15 ms", p99 <= 15, f"{beside} {bare.p99:.2f} ms"),
    ]
