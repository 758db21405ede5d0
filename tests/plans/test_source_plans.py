"""What is read for sources, beside twenty thousand of them, a hundred thousand units and as many files."""

from __future__ import annotations

from datetime import timedelta

import asyncpg
from guard import Guard, check

from weft.db.statements import Statements

TICKS, HOOK = Statements("weft.live", "sql/source_ticks.sql"), Statements("weft.live", "sql/hook.sql")
FILE, JOB = Statements("weft.live", "sql/file.sql"), Statements("weft.jobs", "sql/job.sql")
SOURCES, UNITS = 20_000, 100_000
FILL = f"""
  insert into weft.live_dag (id, org_id, name, actor) select n, 1, 'd' || n, 'a' from generate_series(1, 2000) n;
  insert into weft.live_job (id, org_id, dag_id, name, config_hash, activation, runtime, operator, handler, queue_id, document,
      max_concurrency, max_backlog, max_attempts, actor)
    select n, 1, 1 + n % 2000, 'j' || n, 'h', 'source', 'worker', 'o', 'o', 1, '{{}}', 1, 1000, 3, 'a' from generate_series(1, {SOURCES}) n;
  insert into weft.live_source (live_job_id, org_id, kind, is_listening, every, anchor, next_at)
    select n, 1, 'interval', n % 2 = 0, '1 hour', weft.now(), weft.now() + (n - 100) * interval '1 minute'
    from generate_series(1, {SOURCES // 2}) n;
  insert into weft.live_source (live_job_id, org_id, kind, is_listening, event, hook)
    select n, 1, 'event', true, 'e' || n, '{{"secret_env": "WEFT_HOOK_A"}}' from generate_series({SOURCES // 2 + 1}, {SOURCES}) n;
  insert into weft.live_unit (org_id, live_job_id, lane, kind, dedupe_key, said, state)
    select 1, 1 + n % {SOURCES}, 'l' || n, 'event', 'k' || n, '{{}}', (array['new', 'waiting', 'ready', 'held', 'done'])[1 + n % 5]
    from generate_series(1, {UNITS}) n;
  insert into weft.event (org_id, name, payload) select 1, 'e' || n, '{{}}' from generate_series(1, {SOURCES}) n;
  insert into weft.live_file (live_job_id, path, org_id, tag, is_emitted)
    select 1, to_char(n, 'FM000000'), 1, 't', true from generate_series(1, {UNITS}) n;
"""


async def test_what_comes_is_found_beside_many_sources(own_url: str) -> None:
    conn = await asyncpg.connect(own_url)
    try:
        await conn.execute(FILL)
        await conn.execute("analyze")
        seen = await conn.fetchrow("select live_job_id, next_at from weft.live_source where live_job_id = 2")
        assert seen is not None
        moved = [2], [seen["next_at"]], [seen["next_at"] + timedelta(hours=1)], [0], [2], ["2026-11-18T00:00:00+00:00"]
        last, paths = f"e{SOURCES}", [f"{n:06}" for n in range(50_001, 50_101)]
        compared = (1, paths, ["t"] * 99 + ["other"], timedelta())
        guards = [
            Guard("due", TICKS.due, (500,), 900, {"live_source_due": 110}, 50),
            Guard("the next that is due", TICKS.next_due, (), 6, {"live_source_due": 2}, 1),
            Guard("move on", TICKS.move_on, moved, 60, {}, 1),
            Guard("hooks of an event", HOOK.find, ("default", last), 12, {}, 1),
            Guard("send an event", JOB.send_event, (1, last, "{}", "ann", "key", 500, None, None), 150),
            Guard("files that have changed", FILE.changed_files, compared, 450, {}, 1),
            Guard("files that are gone", FILE.gone_files, (1, "050000", "050100", paths[:-1], 2000), 60, {}, 1),
        ]
        assert await check(conn, guards, "beside many") == []
    finally:
        await conn.close()
