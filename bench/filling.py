"""Millions of jobs that nobody ran: rows such as a month of work leaves, some of them rare."""

from __future__ import annotations

import asyncpg

DAYS = 30

# The days before today get partitions of their own; ids lie a second's share apart, as if submitted evenly.
_PARTITIONS = f"""
  do $$ declare day timestamptz; parent text; child text; begin
    for day in select date_trunc('day', weft.now(), 'UTC') - make_interval(hours => 24 * n)
      from generate_series(2, {DAYS}) n
    loop
      foreach parent in array array['job_done', 'job_label'] loop
        child := parent || '_' || to_char(day at time zone 'UTC', 'YYYYMMDD');
        execute format('create table weft.%I partition of weft.%I for values from (%s) to (%s)', child, parent,
          weft.first_id_at(day), weft.first_id_at(day + interval '24 hours'));
      end loop;
    end loop;
  end $$;
"""
# Of each hundred thousand jobs one was cancelled, of a hundred two failed; nearly all by one actor; a fifth has labels.
_DONE = """
  insert into weft.job_done (id, org_id, end_id, created_at, ended_at, state, rank, finishes_independent, started_at,
      workflow_id, base_kind, base_ref, inputs, result, labels, actor, rerun_of)
    select f.id, $1, f.id + 1, f.at, f.at + interval '2 s',
      (case when f.n % 1000000 = 999 then 'cancelled' when f.n % 50 = 7 then 'failed' else 'completed' end)
        ::weft.job_state,
      0, false, f.at, case when f.n = 1 then 'once' else 'flow' || f.n % 100 end, 'tag', 'main',
      '{"day": "2026-11-14"}', '{"rows": 12}',
      case when f.n = 2 then '{"case": "rare"}' when f.n % 5 = 0
        then json_build_object('team', 't' || f.n % 10, 'run', 'r' || f.n % 1000) end,
      case when f.n = 3 then 'once' when f.n % 20 = 0 then 'ada' else 'cron' end,
      case when f.n % 100 = 57 then $2 + (f.n - 50) * $3 end
    from (
      select n, $2 + n * $3 as id,
        timestamptz '2024-01-01Z' + make_interval(secs => (($2 + n * $3) >> 22) / 1000.0) as at
      from generate_series($4::bigint, $5::bigint) n) f
"""
_LABELS = """
  insert into weft.job_label (job_id, org_id, name, value, ending)
    select d.id, d.org_id, l.key, l.value, d.state from weft.job_done d, json_each_text(d.labels) l
    where d.org_id = $1 and d.labels is not null and d.id >= $2 and d.id <= $3
"""
_LIVE = """
  insert into weft.job (id, org_id, end_id, state, workflow_id, base_kind, base_ref, inputs, actor, started_at)
    select b.id + n * 1000 + $1::bigint % 997, $1, b.id + n * 1000 + $1::bigint % 997 + 1,
      (case when n <= 10 then 'running' when n = 11 then 'paused' else 'pending' end)::weft.job_state,
      'flow' || n % 100, 'tag', 'main', '{}', 'cron', case when n <= 10 then weft.now() end
    from (select weft.first_id_at(date_trunc('day', weft.now(), 'UTC')) as id) b, generate_series(1, $2::int) n
"""


async def fill(url: str, org_id: int, jobs: int, live: int) -> None:
    """Write so many jobs of an org that have ended, and a few that have not."""
    conn = await asyncpg.connect(url, command_timeout=3600)
    await conn.execute("set synchronous_commit = off")
    if await conn.fetchval(
        "select to_regclass('weft.job_done_' || to_char(weft.now() - interval '9 days', 'YYYYMMDD')) is null"
    ):
        await conn.execute(_PARTITIONS)
    bounds = await conn.fetchrow(
        "select weft.first_id_at(date_trunc('day', weft.now(), 'UTC') - make_interval(hours => 24 * $1)), "
        "weft.first_id_at(date_trunc('day', weft.now(), 'UTC'))", DAYS,
    )  # fmt: skip
    assert bounds is not None
    first, last = bounds
    # Ids are unique among orgs too.
    first += org_id % 997
    gap, chunk = (last - first) // (jobs + 2), 250_000
    for low in range(1, jobs + 1, chunk):
        high = min(low + chunk - 1, jobs)
        await conn.execute(_DONE, org_id, first, gap, low, high)
        await conn.execute(_LABELS, org_id, first + low * gap, first + high * gap)
    await conn.execute(_LIVE, org_id, live)
    await conn.execute("vacuum (analyze) weft.job_done, weft.job, weft.job_label")
    await conn.close()
