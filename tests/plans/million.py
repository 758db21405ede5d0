"""A database with a million tasks that wait and a million that have ended, and what a statement reads there."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import asyncpg

LIVE = 1_000_000
DONE = 1_000_000
READY, PARKED, SCHEDULED = 880_000, 60_000, 60_000
DEAD_EVERY = 20
QUEUES = {"default": 1, "rare": 4, "other": 3}
WORKERS = 20
HELD_EACH = 50

# The tables are not logged: what is looked at is which pages are read, not how safely they are kept.
UNLOGGED = """
  do $$ declare name text; begin
    for name in select format('weft.%I', relname) from pg_class
      where relnamespace = 'weft'::regnamespace and relkind = 'r'
        and (relname in ('task', 'audit') or relname ~ '^(task_done|task_params|attempt)_')
    loop execute format('alter table %s set unlogged', name); execute format('alter table %s set (autovacuum_enabled = off)', name);
    end loop;
  end $$;
"""

FILL = f"""
  insert into weft.queue (id, org_id, name) values (4, 1, 'rare'), (3, 1, 'other');
  insert into weft.worker (id, org_id, until, concurrency, pid, hostname, version, queues, handlers)
    select n, 1, weft.now() + interval '1 day', 100, 1, 'here', '0', '{{1,3,4}}', '{{h}}' from generate_series(1, {WORKERS}) n;

  insert into weft.task (id, org_id, queue_id, order_id, state, rank, handler, params, due_at, concurrency_key, reason,
                         worker_id, attempt, claimed_at)
    select b.id + n, 1,
      case when n % 5000 = 0 then 4 when n % 10 = 0 then 3 else 1 end, b.id + n,
      (case when n <= {WORKERS * HELD_EACH} then 'running' when n <= {READY} then 'ready'
            when n <= {READY + PARKED} then 'pending' else 'scheduled' end)::weft.task_state,
      (n % 7) - 3, case when n % 5000 = 1 then 'seldom' else 'often' end, '{{"a": 1}}',
      case when n > {READY + PARKED} then weft.now() + make_interval(secs => n) end,
      case when n > {READY} and n <= {READY + PARKED} then 'key ' || n % 100 end,
      case when n > {READY} and n <= {READY + PARKED} then 'concurrency_key' end,
      case when n <= {WORKERS * HELD_EACH} then 1 + n % {WORKERS} end, (n <= {WORKERS * HELD_EACH})::int,
      case when n <= {WORKERS * HELD_EACH} then weft.now() end
    from generate_series(1, {LIVE}) n,
      (select weft.first_id_at(date_trunc('day', weft.now(), 'UTC')) as id) b;
  insert into weft.key_slot (queue_id, org_id, key, held, max_running)
    select distinct queue_id, 1, concurrency_key, 0, 1 from weft.task where concurrency_key is not null;

  insert into weft.task_done (id, org_id, queue_id, order_id, created_at, ended_at, state, attempt, rank, max_attempts,
                              failures, crashes, generation, handler, params, output, worker_id)
    select b.id + n * 1000, 1, case when n % 5000 = 0 then 4 when n % 10 = 0 then 3 else 1 end, b.id + n * 1000, b.at, b.at,
      (case when n % {DEAD_EVERY} = 0 then case when n % 3 = 0 then 'failed' else 'dead' end else 'completed' end)::weft.task_state,
      1, 0, 3, 0, 0, 0, case when n % 5000 = 1 then 'seldom' else 'often' end, '{{"a": 1}}', 'null', 1 + n % {WORKERS}
    from generate_series(1, {DONE}) n,
      (select weft.first_id_at(date_trunc('day', weft.now(), 'UTC') - interval '1 day') as id,
              weft.now() - interval '1 day' as at) b;
  -- An org of few tasks among all of these, with steps of the engine's own.
  insert into weft.org (id, slug, name) values (2, 'small', 'Small'), (3, 'none', 'None');
  insert into weft.queue (id, org_id, name) values (5, 2, 'theirs');
  insert into weft.task_done (id, org_id, queue_id, order_id, created_at, ended_at, state, attempt, rank, max_attempts,
                              failures, crashes, generation, handler, params, output)
    select b.id + n * 10000 + 1, case when n <= 20 then 2 else 1 end, case when n % 2 = 0 and n <= 20 then 5 else 2 end, b.id, b.at, b.at,
      (case when n % 3 = 0 then 'cancelled' else 'completed' end)::weft.task_state, 1, 0, 3, 0, 0, 0, 'often', '{{"a": 1}}', 'null'
    from generate_series(1, 50000) n,
      (select weft.first_id_at(date_trunc('day', weft.now(), 'UTC') - interval '1 day') as id,
              weft.now() - interval '1 day' as at) b;
  insert into weft.attempt (task_id, attempt, org_id, outcome, ended_at)
    select id, 1, 1, 'failed', ended_at from weft.task_done where state <> 'completed';
  insert into weft.edge (prev, next, org_id)
    select b.id + n, b.id + n + 1 + m, 1 from generate_series(1, 100000) n, generate_series(1, 2) m,
      (select weft.first_id_at(date_trunc('day', weft.now(), 'UTC') - interval '1 day') as id) b;
  insert into weft.idempotency_key (org_id, handler, key, task_id)
    select 1, 'h', 'key ' || n, b.id + n * 1000
    from generate_series(1, 50000) n,
      (select weft.first_id_at(date_trunc('day', weft.now(), 'UTC') - interval '1 day') as id) b;
  insert into weft.blob (digest, bytes, put_at)
    select md5(n::text), 1, weft.now() - make_interval(secs => 100000 - n) from generate_series(1, 20000) n;
  insert into weft.task_blob (task_id, digest, org_id)
    select b.id + n * 1000, md5(n::text), 1 from generate_series(1, 19000) n,
      (select weft.first_id_at(date_trunc('day', weft.now(), 'UTC') - interval '1 day') as id) b;
  insert into weft.outbox (org_id, kind, payload, state, ordering_key, processed_at)
    select case when n <= 10 then 2 else 1 end, case when n % 5000 = 0 then 'route_event' else 'callback' end, '{{}}',
      (case when n <= 40000 then 'done' else 'pending' end)::weft.outbox_state,
      case when n % 2 = 0 then 'key ' || n % 500 end, case when n <= 40000 then weft.now() end
    from generate_series(1, 50000) n;
  insert into weft.worker_code (worker_id, org_id, handler, code, gone_at)
    select w, 1, 'h ' || n, '\\x00', case when w > 1000 then weft.now() end
    from generate_series(1, 2000) w, generate_series(1, 20) n where w <= {WORKERS} or w > 1000;
  insert into weft.audit (org_id, actor, verb, subject_kind, subject_ids, subject_name, detail)
    select 1, 'a', 'cancel', 'task', array[n], null, '{{}}'::json from generate_series(1, 100000) n
    union all select 1, 'a', 'pause', 'queue', '{{}}', 'queue ' || n, '{{}}' from generate_series(1, 1000) n;
"""

# Statistics as they are when every task of the table is in one state; the rows stay as they are. They are those of
# another table, because there is a function to set them only since PostgreSQL 18.
STATE_STATISTICS = """
  create table public.one_state as select '{state}'::weft.task_state as state from generate_series(1, 1000);
  analyze public.one_state;
  delete from pg_statistic s using pg_attribute a
    where s.starelid = 'weft.task'::regclass and a.attrelid = s.starelid and a.attnum = s.staattnum and a.attname = 'state';
  update pg_statistic s set starelid = a.attrelid, staattnum = a.attnum from pg_attribute a
    where s.starelid = 'public.one_state'::regclass and a.attrelid = 'weft.task'::regclass and a.attname = 'state';
  drop table public.one_state;
"""
# As when nothing ran while they were made: the index of what workers hold seems to be empty.
IDLE_STATISTICS = """
  update pg_statistic s set stanullfrac = 1 from pg_attribute a
    where s.starelid = 'weft.task'::regclass and a.attrelid = s.starelid and a.attnum = s.staattnum
      and a.attname = 'worker_id';
  update pg_class set relpages = 1, reltuples = 0 where oid = 'weft.task_worker'::regclass;
"""
NO_STATISTICS = """
  delete from pg_statistic where starelid = 'weft.task'::regclass;
  update pg_class set relpages = 0, reltuples = -1, relallvisible = 0 where oid = 'weft.task'::regclass;
"""

_SCANS = """
  select c.relname as name, c.relkind::text as kind, pg_stat_get_xact_numscans(c.oid) as scans,
    pg_stat_get_xact_tuples_returned(c.oid) as read
  from pg_class c where c.relnamespace = 'weft'::regnamespace and c.relkind in ('r', 'i')
"""


@dataclass
class Cost:
    """What a statement read: pages, whole tables, and entries of each index."""

    pages: int
    rows: int
    whole_tables: dict[str, int]
    indexes: dict[str, int]

    def index_entries(self, name: str) -> int:
        """Entries that were read of an index, or of all its partitions together."""
        return sum(read for index, read in self.indexes.items() if index.startswith(name))


async def cost_of(conn: asyncpg.Connection[asyncpg.Record], statement: str, *arguments: Any) -> Cost:
    """Run a statement as a session does that has run it before, and tell what it read; nothing is kept."""
    name = f"s{abs(hash(statement))}"
    if not await conn.fetchval("select count(*) from pg_prepared_statements where name = $1", name):
        await conn.execute(f"prepare {name} as {statement}")
    transaction = conn.transaction()
    await transaction.start()
    try:
        before = {row["name"]: row for row in await conn.fetch(_SCANS)}
        plan = json.loads(
            await conn.fetchval(f"explain (analyze, buffers, format json) execute {name}({_literals(arguments)})")
            if arguments
            else await conn.fetchval(f"explain (analyze, buffers, format json) execute {name}")
        )[0]["Plan"]
        after = await conn.fetch(_SCANS)
    finally:
        await transaction.rollback()
    scans = {row["name"]: row["scans"] - before[row["name"]]["scans"] for row in after}
    read = {row["name"]: row["read"] - before[row["name"]]["read"] for row in after}
    kinds = {row["name"]: row["kind"] for row in after}
    return Cost(
        pages=plan["Shared Hit Blocks"] + plan["Shared Read Blocks"],
        rows=plan["Actual Rows"],
        whole_tables={name: read[name] for name in scans if kinds[name] == "r" and scans[name]},
        indexes={name: read[name] for name in scans if kinds[name] == "i" and scans[name]},
    )


def _literals(values: Iterable[Any]) -> str:
    return ", ".join(map(_literal, values))


def _literal(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case int() | float():
            return str(value)
        case timedelta():
            return f"interval '{value.total_seconds()} seconds'"
        case datetime():
            return f"timestamptz '{value.isoformat()}'"
        case list():
            inner = ",".join("null" if item is None else '"' + str(item).replace('"', '\\"') + '"' for item in value)
            return "'{" + inner + "}'"
        case _:
            return "'" + str(value).replace("'", "''") + "'"
