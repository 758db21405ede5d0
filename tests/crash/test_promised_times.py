"""The times that are promised, by the clock of the database: how soon a task runs again, how soon after an outage.

Every day the steps are counted that a time is made of, because a busy machine may be late, and in the fast profile; in
a long campaign the times themselves are measured, in both.
"""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import asyncpg
import pytest

import weft
from crash.checker import check_outcomes
from crash.harness import LIVENESS, Crew, crew_at, until, until_settled
from room import make_home
from weft.core.settings import Settings
from weft.db import embedded, migrate

SOON = timedelta(seconds=5)
# Notes every beat, so that a test counts them instead of seconds.
NOTE_BEATS = """
create table beat (pid int, at timestamptz);
create function note_beat() returns trigger language plpgsql as $$
begin
  insert into public.beat values (new.pid, new.heartbeat_at);
  return new;
end $$;
create trigger note_beat after update of heartbeat_at on weft.worker for each row execute function note_beat();
"""


@pytest.mark.parametrize(
    ("profile", "promised"), [("fast", timedelta(seconds=3)), ("standard", timedelta(seconds=15))], ids=["3s", "15s"]
)
@pytest.mark.parametrize("role", ["leader", "follower"])
async def test_a_killed_workers_task_runs_again_within_the_time_of_its_profile(
    crew: Crew, client: weft.Client, conn: asyncpg.Connection[asyncpg.Record], campaign: str,
    profile: str, promised: timedelta, role: str,
) -> None:  # fmt: skip
    settings = Settings.load(environ={}, profile=profile)
    assert settings.lease_time + settings.heartbeat_interval < promised
    if campaign == "short" and profile == "standard":
        pytest.skip("takes as long as the lease of the standard profile")
    await conn.execute(NOTE_BEATS)
    first = await crew.worker(profile=profile, queues=("default",) if role == "leader" else ("other",))
    second = await crew.worker(profile=profile, queues=("default",) if role == "follower" else ("other",))
    victim = first if role == "leader" else second
    leader = "select w.pid from weft.lease l join weft.worker w on w.id = l.holder"
    assert await until(lambda: conn.fetchval(leader), "somebody leads") == first.pid
    task_id = (await client.enqueue("gated", {"folder": str(crew.folder)})).id
    await crew.until_started(task_id)
    # Has room for what the victim holds.
    heir = await crew.worker(profile=profile)
    await until(lambda: conn.fetchval("select count(distinct pid) = 3 from beat"), "all of them beat")
    killed_at = await conn.fetchval("select weft.now()")
    await victim.kill()
    (again,) = await crew.until_started(task_id, attempt=2)
    assert again.worker == heir.pid
    claimed_at = await conn.fetchval("select claimed_at from weft.task where id = $1", task_id)
    lapsed_at = await conn.fetchval("select until from weft.worker where pid = $1", victim.pid)
    assert killed_at < lapsed_at <= killed_at + settings.lease_time
    assert lapsed_at < claimed_at
    passed = await conn.fetch(
        "select pid, count(*) from beat where at > $1 and at < $2 group by pid", lapsed_at, claimed_at
    )
    print(f"killed {role}, {profile}: running again after {(claimed_at - killed_at).total_seconds():.1f} s,"
          f" {[tuple(row) for row in passed]} beats after its lease")  # fmt: skip
    # The first beat after the lease finds it lapsed, whoever leads by then; the next may come while that is done.
    assert max((row["count"] for row in passed), default=0) <= 2
    if campaign == "long":
        assert claimed_at - killed_at <= promised
    (crew.folder / "open").touch()
    await until_settled(conn)
    await check_outcomes(conn, crew.ledger())


@pytest.fixture
async def own(tmp_path: Path) -> AsyncIterator[Settings]:
    """A server of the test's own, which it may stop."""
    home = make_home("times")
    settings = Settings(home=home)
    await migrate.upgrade((await embedded.ensure_running(settings)).url)
    yield settings
    await embedded.stop(settings, mode="immediate")
    shutil.rmtree(home, ignore_errors=True)


@pytest.mark.parametrize("profile", ["fast", "standard"])
async def test_the_first_claim_comes_soon_after_postgresql_is_back(
    own: Settings, tmp_path: Path, campaign: str, profile: str
) -> None:
    """However long it was away: nobody may have got used to waiting."""
    if campaign == "short" and profile == "standard":
        pytest.skip("takes as long as ten beats of the standard profile")
    url = (await embedded.ensure_running(own)).url
    async with crew_at(url, tmp_path / "crew") as crew:
        async with weft.Client(settings=Settings(home=own.home, profile="fast")) as client:
            handles = await client.enqueue_many([weft.NewTask("work", {"folder": str(crew.folder)}, delay=3600)])
        worker = await crew.worker(profile=profile)
        assert await embedded.stop(own, mode="immediate")

        async def has_tried() -> bool:
            return crew.log().count("offline") >= (10 if campaign == "short" else 30)

        await until(has_tried, "the worker has tried often")
        await embedded.ensure_running(own)
        conn = await asyncpg.connect(url)
        back_at = await conn.fetchval("select weft.now()")
        await conn.execute(NOTE_BEATS)
        await conn.execute("update weft.task set state = 'ready', due_at = null")
        await until(lambda: conn.fetchval("select count(*) from weft.task_done"), "the task has ended", LIVENESS)
        row = await conn.fetchrow("select id, claimed_at from weft.task_done")
        assert row is not None
        assert row["id"] == handles[0].id
        passed = await conn.fetchval("select count(*) from beat where at < $1", row["claimed_at"])
        print(
            f"back, {profile}: first claim after {(row['claimed_at'] - back_at).total_seconds():.1f} s, {passed} beats"
        )
        beat = Settings.load(environ={}, profile=profile).heartbeat_interval
        assert passed <= SOON / beat, "no more beats than fit into the time that is promised"
        if campaign == "long":
            assert row["claimed_at"] - back_at <= SOON
        assert worker.is_alive
        await until_settled(conn)
        await check_outcomes(conn, crew.ledger())
        await conn.close()
