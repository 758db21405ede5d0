"""What is past of datasets and live DAGs, looked at and removed at once by whoever asks."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, TypeAlias

import asyncpg
import pytest
from engine_scene import MakeClient

import weft
from live_scene import until
from weft.data.collecting import SQL as COLLECTING
from weft.live import swapping
from weft.live.collecting import DagCollector
from weft.live.past import NOTHING
from weft.live.router import Router
from writing import written

Conn: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
SOON = timedelta(milliseconds=1)


@pytest.mark.parametrize("storage", ["parquet", "postgres"])
async def test_who_looks_removes_nothing_and_who_collects_removes_what_he_has_seen(
    client: weft.Client, storage: str
) -> None:
    await client.datasets.create("orders", storage=storage)
    await written(client, "orders", 1, 2, 3)
    assert await client.datasets.gc() == NOTHING
    found = await client.datasets.gc(SOON, dry_run=True)
    assert (found.files, found.versions, found.datasets) == (2, (), 0)
    assert await client.datasets.sample("orders@1.1") == [{"value": 1}]
    assert await client.datasets.gc(SOON) == found
    with pytest.raises(weft.NotFound):
        await client.datasets.sample("orders@1.1")
    assert await client.datasets.sample("orders") == [{"value": 3}]
    assert await client.datasets.gc(SOON) == NOTHING
    (entry,) = await client.audit(verb="purge")
    assert (entry.subject_kind, entry.detail) == ("dataset", {"versions": 0, "datasets": 0, "files": 2})


async def test_versions_and_deleted_datasets_are_named_and_counted(client: weft.Client, conn: Conn) -> None:
    await written(client, "orders", 1)
    await written(client, "gone", 2)
    await _renewed(conn, "orders")
    await client.datasets.delete("gone")
    found = await client.datasets.gc(SOON, dry_run=True)
    assert (found.versions, found.datasets, found.files) == (("gone@1", "orders@1"), 1, 2)
    assert await client.datasets.gc(SOON) == found
    assert [row["name"] for row in await conn.fetch("select name from weft.dataset")] == ["orders"]
    assert await conn.fetchval("select array_agg(number) from weft.dataset_version") == [2]


async def _renewed(conn: Conn, name: str) -> None:
    """Let the datasets of a name have another version, as a write does that is told to break its readers."""
    await conn.execute(
        """with v as (insert into weft.dataset_version (org_id, dataset_id, number, config_hash, location, actor)
             select d.org_id, d.id, 2, 'other', d.id || '/2/', 'ann' from weft.dataset d where d.name = $1
             returning id, dataset_id)
           select weft.make_current(v.dataset_id, v.id) from v""", name,
    )  # fmt: skip


async def _two_orgs(client: weft.Client, make_client: MakeClient, conn: Conn) -> weft.Client:
    """Let two orgs have the same, most of it past; return a client of the other."""
    await client.orgs.create("other")
    other = await make_client(org="other")
    for each in (client, other):
        await written(each, "orders", 1, 2)
        await written(each, "gone", 3)
        await each.datasets.delete("gone")
        await written(each, "old", 4)
        await _retired(each, conn)
    await _renewed(conn, "old")
    await conn.execute(
        """insert into weft.staged_write (org_id, dataset_id, version_id, task_id, attempt, mode, follows, created_at)
           select v.org_id, v.dataset_id, v.id, 1, 1, 'append', true, weft.now() - interval '2 days'
           from weft.dataset_version v join weft.dataset d on d.current_id = v.id where d.name = 'orders'"""
    )
    return other


async def test_what_is_past_of_another_org_stays_as_it_is(
    client: weft.Client, make_client: MakeClient, conn: Conn
) -> None:
    other = await _two_orgs(client, make_client, conn)
    theirs = await other.datasets.gc(SOON, dry_run=True)
    assert (theirs.versions, theirs.datasets, theirs.files) == (("gone@1", "notes@1", "old@1"), 1, 3)
    assert (theirs.writes, theirs.dags) == (1, 1)
    assert await client.datasets.gc(SOON) == theirs
    assert await client.datasets.gc(SOON, dry_run=True) == NOTHING
    assert await other.datasets.gc(SOON, dry_run=True) == theirs
    assert await other.datasets.sample("orders@1.1") == [{"value": 1}]
    await other.datasets.undelete("gone")
    assert await other.datasets.sample("gone") == [{"value": 3}]
    assert (await other.live.rollback("feed", version=1)).version == 1
    assert (await other.datasets.rollback("old@1")).version == 1


async def test_what_another_org_has_begun_to_remove_is_left_to_it(
    client: weft.Client, make_client: MakeClient, conn: Conn
) -> None:
    other = await _two_orgs(client, make_client, conn)
    while await DagCollector(client.database, SOON).run_once():
        pass
    await conn.execute("delete from weft.staged_write")
    for closing in (COLLECTING.close_states, COLLECTING.close_versions, COLLECTING.close_deleted):
        await conn.execute(closing, SOON, None)
    await conn.execute(
        """insert into weft.dataset (org_id, name, storage, actor, deleted_at)
           select o.id, 'empty@1', '{"kind": "parquet"}', 'ann', weft.now() - interval '1 day' from weft.org o"""
    )
    theirs = await other.datasets.gc(SOON, dry_run=True)
    assert (theirs.versions, theirs.datasets, theirs.files) == (("gone@1", "notes@1", "old@1"), 2, 3)
    assert await client.datasets.gc(SOON) == theirs
    assert await other.datasets.gc(SOON, dry_run=True) == theirs


async def test_what_a_version_of_a_live_dag_has_that_can_be_gone_back_to_stays(client: weft.Client, conn: Conn) -> None:
    await _retired(client, conn)
    await conn.execute("update weft.dataset_version set retired_at = weft.now() - interval '2 days'")
    # The DAG's version was replaced just now, its dataset's long ago.
    assert await client.datasets.gc(timedelta(days=1)) == NOTHING
    await client.live.rollback("feed", version=1)
    assert (await client.live.show("feed")).version == 1


async def _retired(client: weft.Client, conn: Conn) -> None:
    """Deploy a DAG twice, so that its first version and the first of its dataset are past."""
    for number in (1, 2):
        source = {"kind": "event", "event": "told"}
        job: dict[str, Any] = {
            "activation": "source", "operator": "note", "source": source, "outputs": ["notes"], "config": {"n": number}
        }  # fmt: skip
        await client.live.deploy({"dag": "feed", "jobs": {"notes": job}})

        async def is_swapped() -> bool:
            await Router(client.database).run_once()
            await swapping.run_once(client.database)
            return not await conn.fetchval(
                "select exists (select 1 from weft.live_dag where building_id is not null)"
                " or exists (select 1 from weft.live_job where state = 'draining')"
            )

        await until(is_swapped)
