"""Whoever is killed while he deploys, swaps, goes back or collects: one whole version is in effect, and can go on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

import weft
from crash.harness import Process
from crash.job_acts import settings_for
from crash.moments import Moments
from crash.test_dataset_kill import each_statement
from live_scene import until
from weft.live import swapping
from weft.live.router import Router

if TYPE_CHECKING:
    Conn = asyncpg.Connection[asyncpg.Record]

# All that belongs to versions of DAGs and their datasets, each row with nothing that moves by itself.
SEEN = """
  select (select count(*) from weft.artifact) as artifacts, (select count(*) from weft.dag_version) as versions,
    (select count(*) from weft.live_job) as jobs, (select count(*) from weft.live_input) as inputs,
    (select count(*) from weft.live_output) as outputs, (select count(*) from weft.live_source) as sources,
    (select count(*) from weft.dag_version_job) as version_jobs,
    (select count(*) from weft.dag_version_dataset) as pointers,
    (select count(*) from weft.dataset) as datasets, (select count(*) from weft.dataset_version) as dataset_versions,
    (select count(*) from weft.tag_move) as moves,
    (select count(*) from weft.audit where subject_kind = 'live_dag') as acts,
    (select last_version from weft.live_dag) as last,
    (select building_id is not null from weft.live_dag) as is_building"""
# One version is in effect: its datasets are current, the tag is at its document, its jobs listen, and no others.
WRONG = """
  select 'current' as what from weft.live_dag d join weft.dag_version_dataset p on p.dag_version_id = d.version_id
    join weft.dataset s on s.id = p.dataset_id where s.current_id <> p.version_id
  union all select 'tag' from weft.live_dag d join weft.dag_version v on v.id = d.version_id
    join weft.tag t on t.name = d.name || '/live' where t.target_id <> v.artifact_id
  union all select 'state of version' from weft.dag_version v join weft.live_dag d on d.id = v.dag_id
    where (v.state = 'live') <> (v.id is not distinct from d.version_id)
      or (v.state = 'building') <> (v.id is not distinct from d.building_id)
  union all select 'state of job' from weft.live_job j join weft.live_dag d on d.id = j.dag_id
    where (j.state in ('draining', 'stopped')) = exists (select 1 from weft.dag_version_job m
      where m.live_job_id = j.id and m.dag_version_id in (d.version_id, d.building_id))
  union all select 'listening' from weft.live_source s join weft.live_job j on j.id = s.live_job_id
    where s.is_listening = (j.state in ('draining', 'stopped'))
  union all select 'outputs' from weft.live_output o where not exists (
    select 1 from weft.dataset_version v where v.id = o.version_id and v.collected_at is null)"""


@pytest.fixture
async def copies(tmp_path: Path) -> AsyncIterator[Process]:
    """A program of which copies are made, one for each round."""
    process = await Process.start("crash.apps.live_act", {}, tmp_path / "crew")
    yield process
    await process.finish()


def feed(number: int) -> dict[str, Any]:
    """Return a DAG whose source and reader are others with each number."""
    return {
        "dag": "feed",
        "jobs": {
            "notes": {
                "activation": "source", "operator": "note", "source": {"kind": "event", "event": "told"},
                "outputs": ["notes"], "config": {"n": number},
            },
            "copies": {
                "activation": "reactive", "operator": "copy", "execution_strategy": "PerPartition",
                "inputs": ["notes"], "outputs": ["copies"],
            },
        },
    }  # fmt: skip


async def _seen(conn: Conn) -> dict[str, Any]:
    wrong = await conn.fetch(WRONG)
    assert not wrong, [row["what"] for row in wrong]
    row = await conn.fetchrow(SEEN)
    assert row is not None
    return dict(row)


async def _swapped(client: weft.Client, conn: Conn) -> None:
    async def is_swapped() -> bool:
        await Router(client.database).run_once()
        await swapping.run_once(client.database)
        return not await conn.fetchval("select building_id is not null from weft.live_dag")

    await until(is_swapped)


async def test_who_is_killed_while_he_deploys_has_deployed_whole_or_not(
    url: str, home: Path, conn: Conn, copies: Process, campaign: str
) -> None:
    number, outcomes, before = 0, list[bool](), dict[str, Any]()
    async with weft.Client(settings=settings_for(url, home)) as client:
        await client.live.deploy(feed(0))

        async def order() -> dict[str, Any]:
            nonlocal number, before
            number += 1
            before = await _seen(conn)
            return {"act": "deploy", "definition": feed(number)}

        async def look(said: dict[str, Any], round_: int) -> None:
            after = await _seen(conn)
            is_done = after["last"] != before["last"]
            outcomes.append(is_done)
            if not is_done:
                assert after == before, round_
            else:
                grown = {key for key in after if after[key] != before[key] and key not in ("is_building", "moves")}
                assert grown == {
                    "artifacts", "versions", "jobs", "inputs", "outputs", "sources", "version_jobs", "pointers",
                    "dataset_versions", "acts", "last",
                }, round_  # fmt: skip
            # Whoever comes next finds nothing in the way.
            if is_done:
                await _swapped(client, conn)

        assert await each_statement(url, home, conn, copies, order, look, Moments(campaign)) > 20
        assert outcomes == sorted(outcomes), "not up to some statement, and from there on"
        assert outcomes[-1]
        assert not outcomes[0]
        done = await client.live.deploy(feed(1000))
        assert done.changes


async def test_who_is_killed_while_he_swaps_leaves_one_whole_version(
    url: str, home: Path, conn: Conn, copies: Process, campaign: str
) -> None:
    number, outcomes = 0, list[bool]()
    async with weft.Client(settings=settings_for(url, home)) as client:
        await client.live.deploy(feed(0))

        async def order() -> dict[str, Any]:
            nonlocal number
            number += 1
            await client.live.deploy(feed(number))

            async def is_ready() -> bool:
                await Router(client.database).run_once()
                behind = "select bool_or((weft.standing_of_live_job(j.id)).is_behind) from weft.live_job j"
                return not await conn.fetchval(behind)

            await until(is_ready)
            return {"act": "swap"}

        async def look(said: dict[str, Any], round_: int) -> None:
            seen = await _seen(conn)
            outcomes.append(not seen["is_building"])
            shown = await client.live.show("feed")
            assert shown.version is not None
            data = (await client.workflows.show("feed/live")).data
            assert data["jobs"]["notes"]["config"]["n"] == (number if outcomes[-1] else _last(outcomes)), round_

        def _last(found: list[bool]) -> int:
            return max((place + 1 for place, is_done in enumerate(found) if is_done), default=0)

        assert await each_statement(url, home, conn, copies, order, look, Moments(campaign)) > 2
        assert outcomes[-1]
        assert not outcomes[0]


async def test_who_is_killed_while_going_back_leaves_one_whole_version_and_no_event_is_lost(
    url: str, home: Path, conn: Conn, copies: Process, campaign: str
) -> None:
    sent = 0
    async with weft.Client(settings=settings_for(url, home)) as client:
        await client.live.deploy(feed(0))
        await client.live.deploy(feed(1))
        await _swapped(client, conn)

        async def order() -> dict[str, Any]:
            nonlocal sent
            sent += 1
            await client.jobs.send_event("told", {"n": sent})
            version = (await client.live.show("feed")).version
            return {"act": "rollback", "dag": "feed", "version": 3 - (version or 0)}

        async def look(said: dict[str, Any], round_: int) -> None:
            await _seen(conn)
            listening = """
                select count(*) as units, count(distinct u.dedupe_key) as events from weft.live_source s
                  left join weft.live_unit u on u.live_job_id = s.live_job_id where s.is_listening"""
            row = await conn.fetchrow(listening)
            assert row is not None
            # Each event once, in whichever version is in effect.
            assert (row["units"], row["events"]) == (sent, sent), round_

        assert await each_statement(url, home, conn, copies, order, look, Moments(campaign)) > 4


async def test_who_is_killed_while_collecting_takes_nothing_that_is_in_effect(
    url: str, home: Path, conn: Conn, copies: Process, campaign: str
) -> None:
    number = 0
    async with weft.Client(settings=settings_for(url, home)) as client:
        await client.live.deploy(feed(0))

        async def order() -> dict[str, Any]:
            nonlocal number
            for _ in range(2):
                number += 1
                await client.live.deploy(feed(number))
                await _swapped(client, conn)
            for _ in range(2):
                await Router(client.database).run_once()
            return {"act": "collect", "retention": "1ms"}

        async def look(said: dict[str, Any], round_: int) -> None:
            await _seen(conn)
            data = (await client.workflows.show("feed/live")).data
            assert data["jobs"]["notes"]["config"]["n"] == number, round_
            for name in ("notes", "copies"):
                assert (await client.datasets.show(name)).version is not None, round_

        assert await each_statement(url, home, conn, copies, order, look, Moments(campaign, every=7)) > 5
        # In the end nothing is left but what is in effect.
        kept = await conn.fetchrow(
            "select (select count(*) from weft.dag_version) as versions, (select count(*) from weft.live_job) as jobs, "
            "(select count(*) from weft.dataset_version) as dataset_versions"
        )
        assert dict(kept or {}) == {"versions": 1, "jobs": 2, "dataset_versions": 2}
