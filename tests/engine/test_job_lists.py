"""Lists of jobs: each filter, several of them together, both orders, page by page."""

from __future__ import annotations

import asyncio
import random
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import orjson
import pytest
from job_scene import Handlers, at_work, flow

import weft
from weft.jobs.submit import SQL

STATES = ("pending", "running", "paused", "cancelling", "completed", "failed", "cancelled")
COUNT = 3000
# Of two orgs in turn. What some ask for is rare, and much of it lies where the others are not.
FILL = f"""
  with f as (
    select n, b.id + n * 4194304 as id, case when n % 2 = 0 then $1::bigint else $2::bigint end as org_id,
      case when n % 5 = 0 then 'running' when n % 601 = 0 then 'failed' else 'completed' end::weft.job_state as state,
      case when n < 1500 then 'early' else 'late' end as workflow_id,
      case when n % 40 = 6 or n > 2900 then 'ada' else 'cron' end as actor,
      case when n % 3 = 0
        then json_build_object('team', 't' || n % 4, 'half', case when n < 1700 then 'first' else 'second' end)
      end as labels,
      case when n % 500 in (2, 3, 5, 10) then b.id + 10 * 4194304 end as rerun_of
    from generate_series(1::bigint, {COUNT}) n, (select weft.first_id_at(date_trunc('day', weft.now(), 'UTC')) as id) b
  ), labelled as (
    insert into weft.job_label (job_id, org_id, name, value, ending)
    select f.id, f.org_id, l.key, l.value, f.state from f, json_each_text(f.labels) l where f.state <> 'running'
  ), live as (
    insert into weft.job (id, org_id, end_id, state, workflow_id, base_kind, inputs, actor, labels, rerun_of)
    select f.id, f.org_id, f.id + 1, f.state, f.workflow_id, 'tag', '{{}}', f.actor, f.labels, f.rerun_of
    from f where f.state = 'running'
  ), done as (
    insert into weft.job_done (id, org_id, end_id, created_at, ended_at, state, rank, finishes_independent, workflow_id,
      base_kind, inputs, actor, labels, rerun_of)
    select f.id, f.org_id, f.id + 1, weft.now(), weft.now(), f.state, 0, false, f.workflow_id,
      'tag', '{{}}', f.actor, f.labels, f.rerun_of
    from f where f.state <> 'running'
  )
  select f.id, f.org_id, f.state::text as state, f.workflow_id, f.actor, f.labels, f.rerun_of from f order by f.id
"""


@pytest.fixture
async def jobs(client: weft.Client, url: str) -> list[dict[str, Any]]:
    """Jobs of two orgs, oldest first: those of the client's own."""
    await client.orgs.create("other", "Other")
    conn = await asyncpg.connect(url)
    mine, other = [
        await conn.fetchval("select id from weft.org where slug = $1", slug) for slug in ("default", "other")
    ]
    rows = await conn.fetch(FILL, mine, other)
    await conn.close()
    return [{**row, "labels": orjson.loads(row["labels"] or "{}")} for row in rows if row["org_id"] == mine]


def _passes(job: dict[str, Any], filters: dict[str, Any]) -> bool:
    asked = dict(filters)
    states, labels = asked.pop("state", None), asked.pop("labels", {})
    since, until = asked.pop("since", None), asked.pop("until", None)
    made = datetime(2024, 1, 1, tzinfo=UTC) + timedelta(milliseconds=job["id"] >> 22)
    return (
        (states is None or job["state"] in ([states] if isinstance(states, str) else states))
        and labels.items() <= job["labels"].items()
        and (since is None or made >= since)
        and (until is None or made < until)
        and all(job[name] == value for name, value in asked.items())
    )


async def _all(client: weft.Client, sort: str, page_size: int, **filters: Any) -> list[int]:
    found: list[int] = []
    while True:
        key = {"before" if sort == "newest" else "after": found[-1]} if found else {}
        page = await client.jobs.list(sort=sort, limit=page_size, **key, **filters)
        found += [job.id for job in page]
        if len(page) < page_size:
            return found


def _choices(jobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return each filter alone, with values that many jobs have, few and none, and many together."""
    day = datetime(2024, 1, 1, tzinfo=UTC) + timedelta(milliseconds=jobs[0]["id"] >> 22)
    values: dict[str, list[Any]] = {
        "workflow_id": ["early", "late", "never"],
        "state": ["completed", "failed", "running", "paused", ["failed", "running"]],
        "actor": ["ada", "cron", "nobody"],
        "labels": [{"team": "t0"}, {"half": "second"}, {"team": "t2", "half": "first"}, {"team": "nobody's"}],
        "since": [day + timedelta(milliseconds=1600)],
        "until": [day + timedelta(milliseconds=1650)],
        "rerun_of": [jobs[4]["id"], jobs[5]["id"]],
    }
    chosen: list[dict[str, Any]] = [{}, *({name: each} for name, found in values.items() for each in found)]
    random.seed(5)
    for _ in range(30):
        names = random.sample(sorted(values), random.choice((2, 2, 3, 4)))
        chosen.append({name: random.choice(values[name]) for name in names})
    return chosen


async def test_a_list_has_what_passes_all_filters_in_both_orders(
    client: weft.Client, jobs: list[dict[str, Any]]
) -> None:
    for filters in _choices(jobs):
        expected = [job["id"] for job in jobs if _passes(job, filters)]
        size = 1000 if len(expected) > 300 else 20
        assert await _all(client, "oldest", size, **filters) == expected, filters
        assert await _all(client, "newest", size, **filters) == expected[::-1], filters


async def test_a_list_between_two_ids_has_neither(client: weft.Client, jobs: list[dict[str, Any]]) -> None:
    low, high = jobs[100]["id"], jobs[110]["id"]
    for sort in ("newest", "oldest"):
        found = await client.jobs.list(after=low, before=high, sort=sort)
        assert sorted(job.id for job in found) == [job["id"] for job in jobs[101:110]]


async def test_pages_that_look_at_few_jobs_lead_to_all_that_pass(
    client: weft.Client, jobs: list[dict[str, Any]], url: str
) -> None:
    conn = await asyncpg.connect(url)
    org_id, most, short = await client.org_id(), 0, 0
    for filters in _choices(jobs):
        wish = {"state": None, "workflow_id": None, "actor": None, "labels": None, "rerun_of": None} | filters
        states = [wish["state"]] if isinstance(wish["state"], str) else wish["state"]
        labels = None if wish["labels"] is None else orjson.dumps(wish["labels"]).decode()
        asked = states, wish["workflow_id"], wish["actor"], labels, wish["rerun_of"]
        for is_newest in (True, False):
            found: list[int] = []
            low, high, pages = 0, 2**63 - 1, 0
            while True:
                times = low, filters.get("since"), high, filters.get("until")
                rows = await conn.fetch(SQL.list, org_id, *asked, *times, is_newest, 300, 10)
                page, following = [row["id"] for row in rows if row["id"] is not None], rows[0]["rest"]
                assert len(page) <= 300
                found, pages = found + page, pages + 1
                if following is None:
                    break
                short += len(page) < 300
                low, high = (low, following) if is_newest else (following, high)
            expected = [job["id"] for job in jobs if _passes(job, filters)]
            assert found == (expected[::-1] if is_newest else expected), filters
            most = max(most, pages)
    await conn.close()
    assert most > 3
    assert short > 10, "there are pages that end before they are full"


async def test_a_page_says_where_the_next_begins_and_the_last_that_there_is_none(
    client: weft.Client, jobs: list[dict[str, Any]]
) -> None:
    expected, found = [job["id"] for job in jobs if job["actor"] == "ada"], []
    page = await client.jobs.page(actor="ada", limit=30)
    while page.next is not None:
        found += [job.id for job in page.jobs]
        page = await client.jobs.page(actor="ada", limit=30, before=page.next)
    assert found + [job.id for job in page.jobs] == expected[::-1]


async def test_another_org_is_not_in_any_list(jobs: list[dict[str, Any]], url: str) -> None:
    mine = {job["id"] for job in jobs}
    async with weft.Client(url, org="other") as other:
        for filters in _choices(jobs):
            found = {job.id for job in await other.jobs.list(limit=1000, **filters)}
            assert not found & mine, filters
        assert len(await other.jobs.list(limit=1000)) == 1000


async def test_what_cannot_be_asked_for_is_refused_by_name(client: weft.Client) -> None:
    asked: dict[str, Any] = {"sort": "newset", "since": datetime(2026, 1, 1), "until": "now", "after": -1, "actor": ""}
    for name, value in asked.items():
        with pytest.raises(weft.InvalidInput) as caught:
            await client.jobs.list(**{name: value})
        assert caught.value.field == name


async def test_a_label_finds_a_job_by_how_it_ended(client: weft.Client) -> None:
    handlers = Handlers()
    labels = {"team": "maps", "day": "1"}
    held = await client.jobs.submit(flow(only={"handler": "hold"}), labels=labels)
    assert [job.id for job in await client.jobs.list(labels=labels, state="pending")] == [held.id]
    async with at_work(client, handlers):
        failed = await client.jobs.submit(flow(only={"handler": "fail", "retry": {"max_attempts": 1}}), labels=labels)
        await client.jobs.wait(failed.id, timeout=30)
        await asyncio.wait_for(handlers.begun.wait(), 60)
        found = {state: [job.id for job in await client.jobs.list(labels=labels, state=state)] for state in STATES}
        assert {state: ids for state, ids in found.items() if ids} == {"running": [held.id], "failed": [failed.id]}
        handlers.leave.set()
        await client.jobs.wait(held.id, timeout=30)
    assert [job.id for job in await client.jobs.list(labels=labels, state="completed")] == [held.id]
    assert [job.id for job in await client.jobs.list(labels=labels)] == [failed.id, held.id]
