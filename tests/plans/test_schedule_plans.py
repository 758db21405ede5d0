"""What is read to find the ticks that are due, beside twenty thousand schedules and as many backfills that have ended."""

from __future__ import annotations

import asyncpg
from guard import Guard, check

from weft.live.schedules import SQL

ROWS = 20_000
FILL = f"""
  insert into weft.schedule (id, org_id, name, tag, inputs, every, timezone, catch_up, overlap, priority, anchor, next_at, paused_at, actor)
    select n, 1, 's' || to_char(n, 'FM00000'), 'report/main', '{{}}', '1 hour', 'UTC', 'latest', 'allow', 0, weft.now(),
      weft.now() + (n - 100) * interval '1 minute', case when n % 2 = 0 then weft.now() end, 'a'
    from generate_series(1, {ROWS}) n;
  insert into weft.backfill (id, org_id, schedule_id, every, timezone, anchor, since, until, at_once, ticks, next_at, ended_at, actor)
    select n, 1, 1 + n % 1000, '1 hour', 'UTC', weft.now(), weft.now(), weft.now(), 1, 1,
      case when n > {ROWS} - 5 then weft.now() end, case when n <= {ROWS} - 5 then weft.now() end, 'a'
    from generate_series(1, {ROWS}) n;
"""


async def test_what_is_due_is_found_beside_many_that_are_not(own_url: str) -> None:
    conn = await asyncpg.connect(own_url)
    try:
        await conn.execute(FILL)
        await conn.execute("analyze")
        seen = await conn.fetchrow("select id, version, next_at from weft.schedule where id = 1")
        guards = [
            Guard("due", SQL.due, (500,), 20, {"schedule_due": 60}, 50),
            Guard("the next that is due", SQL.next_due, (), 6, {"schedule_due": 2}, 1),
            Guard("open backfills", SQL.open_backfills, (500,), 6, {"backfill_open": 10}, 5),
            Guard("take", SQL.take, tuple(seen or ()), 12, {}, 1),
            Guard("a schedule", SQL.show, (1, "s00007"), 8, {}, 1),
            Guard("a page of schedules", SQL.list, (1, "s10000", None, 100), 120, {}, 100),
            Guard("backfills of a schedule", SQL.backfills, (1, "s00007", 2**62, 10), 60, {}, 10),
            Guard("a backfill", SQL.look_at_backfill, (ROWS,), 16, {}, 1),
        ]
        assert await check(conn, guards, "beside many") == []
    finally:
        await conn.close()
