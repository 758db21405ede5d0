"""What the statements of jobs read when ten thousand jobs run and ten thousand have ended, with ten tasks each.

A bound is about twice what was measured; what matters is that it does not grow with the tables.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import asyncpg
import pytest
from guard import Guard, check
from million import NO_STATISTICS, cost_of

from weft.db.statements import Statements
from weft.queue import workers

JOB, GRAPH = Statements("weft.jobs", "sql/job.sql"), Statements("weft.jobs", "sql/graph.sql")
DRAWING = Statements("weft.jobs", "sql/drawing.sql")
TASK, UPKEEP = Statements("weft.queue", "sql/task.sql"), Statements("weft.queue", "sql/upkeep.sql")
OWNER, RERUN = Statements("weft.queue", "sql/worker.sql"), Statements("weft.jobs", "sql/rerun.sql")
JOBS, TASKS = 10_000, 10
NEWEST = 2**63 - 1

# Of each job that lives the first task is ready, the others wait in a chain, and the last is its end; of each other
# the second is in the state waiting instead. The ids of jobs lie a thousand apart.
FILL = f"""
  insert into weft.worker (id, org_id, until, concurrency, pid, hostname, version, queues, handlers)
    select n, 1, weft.now() + interval '1 day', 100, 1, 'here', '0', '{{1,2}}', '{{h}}' from generate_series(1, 20) n;
  create table public.base as select weft.first_id_at(date_trunc('day', weft.now(), 'UTC')) as live,
    weft.first_id_at(date_trunc('day', weft.now(), 'UTC') - interval '1 day') as done;
  insert into weft.job (id, org_id, end_id, state, workflow_id, base_kind, inputs, owner_id, timeout_at, started_at)
    select b.live + n * 1000, 1, b.live + n * 1000 + {TASKS}, 'running', 'w' || n % 100, 'tag', '{{}}', 1 + n % 20,
      weft.now() + interval '1 day', weft.now() from public.base b, generate_series(1, {JOBS}) n;
  insert into weft.task (id, org_id, queue_id, order_id, job_id, state, waiting_on, rank, handler, params, node)
    select b.live + n * 1000 + k, 1, case when k = {TASKS} then 2 else 1 end, b.live + n * 1000, b.live + n * 1000,
      case when k = 1 then 'ready' when k = 2 and n % 2 = 0 then 'waiting' else 'pending' end::weft.task_state,
      case when k = 1 or k = 2 and n % 2 = 0 then 0 else 1 end, 0, case when k = {TASKS} then '@end' else 'h' end, '{{}}',
      'n' || k
    from public.base b, generate_series(1, {JOBS}) n, generate_series(1, {TASKS}) k;
  insert into weft.awaited (task_id, org_id, job_id, kind, event)
    select t.id, 1, t.job_id, case when t.id % 3 = 0 then 'approval' else 'event' end,
      case when t.id % 3 <> 0 then 'e' || t.id end from weft.task t where t.state = 'waiting';
  insert into weft.event (org_id, name, payload) select 1, 'e' || n, '{{}}' from generate_series(1, 20000) n;
  insert into weft.job_done (id, org_id, end_id, created_at, ended_at, state, rank, finishes_independent, workflow_id,
      base_kind, inputs, snapshot_id, parent_id, rerun_of, actor, labels)
    select b.done + n * 1000, 1, b.done + n * 1000 + {TASKS}, weft.now(), weft.now(),
      case when n % 50 = 0 then 'failed' else 'completed' end::weft.job_state, 0, false, 'w' || n % 100, 'tag', '{{}}', n % 100,
      case when n % 50 = 7 then b.done + (n - 7) * 1000 + 1 end, case when n % 100 = 1 then b.done + (n - 1) * 1000 end, 'ada',
      case when n = 77 then json_build_object('case', 'rare') when n % 2 = 0 then json_build_object('team', 'a') end
    from public.base b, generate_series(1, {JOBS}) n;
  insert into weft.job_label (job_id, org_id, name, value, ending)
    select d.id, 1, l.key, l.value, d.state from weft.job_done d, json_each_text(d.labels) l;
  insert into weft.task_done (id, org_id, queue_id, order_id, job_id, created_at, ended_at, state, attempt, rank, max_attempts,
      failures, crashes, generation, handler, params, output, node, parent_id, item)
    select b.done + n * 1000 + k, 1, 1, b.done + n * 1000, b.done + n * 1000, weft.now(), weft.now(), 'completed', 1, 0, 3, 0,
      0, 0, 'h', '{{}}', 'null', 'n' || k, case when k > 7 then b.done + n * 1000 + 1 end, case when k > 8 then k end
    from public.base b, generate_series(1, {JOBS}) n, generate_series(1, {TASKS}) k;
  insert into weft.step (task_id, name, org_id, job_id, attempt, bytes, data)
    select b.done + n * 1000 + 1, name, 1, b.done + n * 1000, 1, 2, '{{}}'
    from public.base b, generate_series(1, {JOBS}) n, unnest(array['@addition 1', 'saved']) name;
  insert into weft.edge (prev, next, org_id)
    select i + n * 1000 + k, i + n * 1000 + k + 1, 1
    from public.base b, unnest(array[b.live, b.done]) i, generate_series(1, {JOBS}) n, generate_series(1, {TASKS - 1}) k;
  insert into weft.idempotency_key (org_id, handler, key, task_id)
    select 1, '@job', 'key ' || n, b.live + n * 1000 + {TASKS} from public.base b, generate_series(1, {JOBS}) n;
"""


class Place:
    """Jobs of which something is asked."""

    def __init__(self, live: int, done: int) -> None:
        self.live, self.done = live + 5000 * 1000, done + 5000 * 1000
        self.waiting = live + 5000 * 1000 + 2
        self.plain = live + 4999 * 1000

    def guards(self) -> list[Guard]:
        """All statements, with what each may read."""
        step, first = self.plain + 2, self.plain + 1
        finish = (1, [first], [1], ["null"], [1, -1], [-1, -1], [-32768] * 2, [0] * 2, [0] * 2, 10, True, None)
        asked = timedelta(hours=1), "event", False, "e7", "{}", "{}"
        return [
            Guard("show", JOB.show, (1, [self.live]), 30, {}, 1),
            Guard("show what ended", JOB.show, (1, [self.done]), 30, {}, 1),
            Guard("show several", JOB.show, (1, [self.live, self.done]), 60, {}, 2),
            Guard("nodes", JOB.nodes, (1, self.live, 0, None), 100, {}, TASKS),
            Guard("a page of nodes", JOB.nodes, (1, self.live, self.live + 2, 3), 100, {}, 3),
            Guard("facts", JOB.facts, (self.live,), 10, {}, 1),
            Guard("hold the end", JOB.hold_end, (1, self.live), 20, {"task_pkey": 2}, 1),
            Guard("cancel", JOB.cancel, (1, self.live), 30, {}, 1),
            Guard("pause", JOB.pause, (1, self.live), 30, {}, 1),
            Guard("resume", JOB.resume, (1, self.live), 60),
            Guard("sweep", JOB.sweep, (self.live, 1000), 60),
            Guard("fail", JOB.fail, (1, step, 1, first), 60),
            Guard("wait for claims", JOB.wait_for_claims, (self.live,), 100, {}, 1),
            Guard("count children", JOB.count_children, (step,), 120),
            Guard("answer", JOB.answer, (self.waiting, "completed", "null", None, None), 250),
            Guard("begin to wait", JOB.begin_wait, (1, step, 1, *asked), 40),
            Guard("send an event", JOB.send_event, (1, "e7", "{}", "ann", "key", 500, None, None), 100),
            Guard("approvals", JOB.approvals, (1, 0, 100), 700, {"awaited_approval": 110}, 100),
            Guard("approvals of an org of none", JOB.approvals, (2, 0, 100), 20, {"awaited_approval": 2}, 0),
            Guard("approvals of a job", JOB.approvals_of, (1, self.live, 0, 100), 20, {"awaited_job": 2}),
            Guard("late", UPKEEP.end_late_jobs, (), 60, {"job_timeout": 5}),
            Guard("hand over", OWNER.leave_jobs, (1,), 10_000, {"job_owner": 1100}),
            Guard("note failed", TASK.note_failed, ([self.done + 1],), 150),
            Guard("finish and claim", TASK.finish_and_claim, finish, 900),
            Guard("look at", GRAPH.look_at, (1, self.live, [first]), 60),
            Guard("job of", GRAPH.job_of, (1, self.live), 30, {}, 1),
            Guard("edges among", GRAPH.edges_among, ([first], [step]), 20, {}, 1),
            Guard("leading to", GRAPH.leading_to, ([first], [first + 9]), 200, {}, 1),
            Guard("group of", GRAPH.group_of, (first,), 60),
            *self.guards_of_lists(),
            *self.guards_of_reruns(),
            *self.guards_of_drawings(),
        ]

    def guards_of_drawings(self) -> list[Guard]:
        """What is read to draw a job."""
        job, first = self.done, self.done + 1
        return [
            Guard("choices", DRAWING.choices, (1, job), 60, {}, 0),
            Guard("begun jobs", DRAWING.begun, (1, [first, first + 1]), 200, {}, 1),
            Guard("gates of a group", DRAWING.gates, (1, self.live), 60, {}, 0),
            Guard("gates of what ended", DRAWING.gates, (1, job), 60, {}, 0),
            Guard("ways of tasks", DRAWING.ways, (1, [first + 1, first + 2]), 40, {}, 3),
            Guard("items of a node", DRAWING.items, (1, job, first, -1, 50), 60, {}, 2),
            Guard("later items of a node", DRAWING.items, (1, job, first, 9, 50), 60, {}, 1),
            Guard("items of a node that lives", DRAWING.items, (1, self.live, self.live + 1, -1, 50), 100, {}, 0),
        ]

    def guards_of_lists(self) -> list[Guard]:
        """Lists of jobs: of many, of few, of none, and of what lies where the others are not."""
        asked: dict[str, tuple[Any, ...]] = {
            "all": (),
            "a state": (["completed"],),
            "a rare state": (["cancelled", "paused"],),
            "a workflow": (None, "w7"),
            "no workflow": (None, "none"),
            "a workflow's rare state": (["failed"], "w50"),
            "somebody's": (None, None, "ada"),
            "nobody's": (None, None, "nobody"),
            "a label's": (None, None, None, '{"team": "a"}'),
            "a rare label's": (None, None, None, '{"case": "rare"}'),
            "a label that nobody has": (None, None, None, '{"case": "none"}'),
            "two labels": (None, None, None, '{"team": "a", "case": "rare"}'),
            "a label that no such state has": (["cancelled"], None, None, '{"team": "a"}'),
            "a workflow's and nobody's": (None, "w7", "nobody"),
            "runs again": (None, None, None, None, self.done - 4000 * 1000),
        }
        found = []
        for name, filters in asked.items():
            rest = (*filters, *[None] * (5 - len(filters)))
            for is_newest in (True, False):
                page = 1, *rest, 0, None, NEWEST, None, is_newest, 50, 2000
                found.append(Guard(f"list {name}, {is_newest}", JOB.list, page, 3000))
        return found

    def guards_of_reruns(self) -> list[Guard]:
        """What is read to run a job again, with what each may read."""
        job, first = self.done, self.done + 1
        failed = 1, 0, ["failed"], None, None, None, None, NEWEST, 50
        return [
            Guard("job to run again", RERUN.job, (1, job), 10, {}, 1),
            Guard("its tasks", RERUN.tasks, (1, job), 20, {"task_done": TASKS}, 7),
            Guard("items", RERUN.items, ([first], [first]), 20, {"task_done": 10}, 1),
            Guard("made", RERUN.made, ([job],), 20, {"task_done": 10}, 1),
            Guard("additions", RERUN.additions, ([job],), 60, {"task_done": 10}, 1),
            Guard("endings", RERUN.endings, ([first, first + 1],), 20, {}, 2),
            Guard("added", RERUN.added, ([first, first + 1],), 20, {}, 2),
            Guard("gates", RERUN.gates, (job, ["@open", "@close"]), 20, {}, 0),
            Guard("ways", RERUN.ways, (job, [first + 1]), 40, {}, 2),
            Guard("ran inside", RERUN.ran_inside, ([first],), 40, {}, 1),
            Guard("run again already", RERUN.of, (1, job), 20, {}, 1),
            Guard("candidates", RERUN.candidates, failed, 700, {}, 50),
            Guard("candidates of a workflow", RERUN.candidates, (*failed[:3], "w50", *failed[4:]), 700, {}, 50),
        ]


async def _swept(conn: asyncpg.Connection[asyncpg.Record], place: Place) -> list[Guard]:
    """Bring jobs to where there is something to sweep away, to resume, to hand over."""
    await conn.execute("update weft.job set state = 'cancelling', verdict = 'cancelled' where id = $1", place.live)
    await conn.execute("update weft.job set state = 'paused' where id = $1", place.plain)
    skips = "update weft.task set state = 'running', worker_id = 1, attempt = 1 where id = $1"
    await conn.execute(skips, place.plain + 3)
    said = 1, place.plain + 3, 1, [place.plain + 4], "branch_not_taken", True, 1000
    return [
        Guard("skip", JOB.skip, said, 1500),
        Guard("sweep away", JOB.sweep, (place.live, 1000), 900),
        Guard("resume what is paused", JOB.resume, (1, place.plain), 100),
    ]


@pytest.mark.long
@pytest.mark.timeout(400)
async def test_no_statement_of_jobs_reads_more_when_there_are_more_jobs(own_url: str) -> None:
    conn = await asyncpg.connect(own_url)
    await conn.execute("select weft.ensure_partitions(31)")
    await conn.execute(FILL)
    row: Any = await conn.fetchrow("select live, done from public.base")
    place = Place(*row)
    await workers.own_queue(conn, 1)
    broken = []
    for when, statistics in (("with true statistics", "analyze"), ("without statistics", NO_STATISTICS)):
        await conn.execute(statistics)
        fresh = await asyncpg.connect(own_url)
        # Once as first planned, and again after so many calls that a generic plan may have taken over.
        for turn in range(1, 8):
            if turn in (1, 7):
                broken += await check(fresh, place.guards(), f"{when}, time {turn}")
            else:
                for guard in place.guards():
                    await cost_of(fresh, guard.statement, *guard.arguments)
        await fresh.close()
    broken += await check(conn, await _swept(conn, place), "in between")
    await conn.close()
    assert not broken, "\n".join(broken)
