"""The guards of the statements that change something, and of a few functions of Python, each with what stands in its place when it is taken away.

`GUARDS` must each be missed by a test. `REDUNDANT` are guards that nothing can miss, because another one holds the same;
they stay in the SQL as a second line, and here with the reason why no test can tell.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

FILES = {
    "task": "queue/sql/task.sql",
    "worker": "queue/sql/worker.sql",
    "upkeep": "queue/sql/upkeep.sql",
    "queue": "queue/sql/queue.sql",
    "outbox": "queue/sql/outbox.sql",
    "blob": "queue/sql/blob.sql",
    "audit": "queue/sql/audit.sql",
    "saved": "queue/sql/step.sql",
    "remote": "queue/sql/remote_worker.sql",
    "machine": "db/sql/machine.sql",
    "cache": "queue/sql/cache.sql",
    "outputs": "db/migrations/sql/0003_cache.sql",
    "user": "catalog/sql/user.sql",
    "role": "catalog/sql/role.sql",
    "token": "catalog/sql/token.sql",
    "sign_in": "catalog/sql/sign_in.sql",
    "answer": "server/sql/answer.sql",
    "seal": "queue/sql/seal.sql",
    "sealing": "db/migrations/sql/0004_audit.sql",
    "acts": "db/migrations/sql/0004_lists.sql",
    "walls": "db/migrations/sql/0004_walls.sql",
    "function": "db/migrations/sql/0001_functions.sql",
    "artifact": "history/sql/artifact.sql",
    "tag": "history/sql/tag.sql",
    "history": "history/sql/upkeep.sql",
    "version": "db/migrations/sql/0002_functions.sql",
    "job": "jobs/sql/job.sql",
    "watching": "jobs/sql/watching.sql",
    "rerun": "jobs/sql/rerun.sql",
    "kept": "db/migrations/sql/0003_reruns.sql",
    "step": "db/migrations/sql/0003_functions.sql",
    "graph": "jobs/sql/graph.sql",
    "spawned": "db/migrations/sql/0003_graphs.sql",
    "owner": "db/migrations/sql/0003_ownership.sql",
    "skipping": "db/migrations/sql/0003_skipping.sql",
    "definition": "db/migrations/sql/0003_definitions.sql",
    "loan": "db/migrations/sql/0003_loans.sql",
    "drawing": "jobs/sql/drawing.sql",
    "lists": "db/migrations/sql/0003_lists.sql",
    "task_lists": "db/migrations/sql/0003_task_lists.sql",
    "lending": "queue/sql/loan.sql",
    "schedule": "live/sql/schedule.sql",
    "source_tick": "live/sql/source_ticks.sql",
    "hook": "live/sql/hook.sql",
    "file": "live/sql/file.sql",
    "following": "db/migrations/sql/0007_following.sql",
    "deploying": "live/sql/deploying.sql",
    "looking": "live/sql/looking.sql",
    "acting": "live/sql/acting.sql",
    "swapping": "db/migrations/sql/0007_deploying.sql",
    "router": "live/sql/router.sql",
    "live_staging": "live/sql/staging.sql",
    "living": "db/migrations/sql/0007_live.sql",
    "dataset": "catalog/sql/dataset.sql",
    "staging": "catalog/sql/staging.sql",
    "collecting": "catalog/sql/collecting.sql",
    "publishing": "db/migrations/sql/0006_datasets.sql",
    "lineage": "catalog/sql/lineage.sql",
    "diff": "catalog/sql/diff.sql",
    "openlineage": "catalog/sql/openlineage.sql",
    "rows": "catalog/sql/rows.sql",
    "registering": "catalog/sql/registering.sql",
    "keeping": "catalog/sql/keeping.sql",
    "traces": "db/migrations/sql/0006_traces.sql",
    "explain": "catalog/sql/explain.sql",
    "tables": "db/migrations/sql/0006_tables.sql",
    "writing": "catalog/dataset_writing.py",
    "writer": "worker/datasets.py",
    "settling": "data/columns.py",
    "live_stage": "live/staging.py",
    "hooks": "live/hooks.py",
    "outside": "catalog/dataset_registering.py",
    "writes": "catalog/openlineage.py",
}
# What a later migration makes anew is guarded there.
SUPERSEDED = {
    "function.finish_and_claim", "function.release_next", "function.ensure_partitions", "version.undo_tag",
    "function.admit_waiting",
}  # fmt: skip


@dataclass(frozen=True)
class Guard:
    """A piece of a statement, named ``file.statement``; the ``nth`` of its kind there."""

    statement: str
    text: str
    instead: str = ""
    tests: str = ""
    nth: int = 0

    @property
    def name(self) -> str:
        shown = " ".join(self.text.split())
        place = f" (place {self.nth + 1})" if self.nth else ""
        return f"{self.statement}: {shown}{place}" + (f" → {self.instead}" if self.instead else "")

    def removed_from(self, package: Path) -> tuple[Path, str]:
        """Return the file and its text without the guard; raises `LookupError` when the guard is not there."""
        path = package / FILES[self.statement.partition(".")[0]]
        text = path.read_text(encoding="utf-8")
        body = self.body_in(text)
        pattern = re.compile(r"\s+".join(map(re.escape, self.text.split())))
        places = list(pattern.finditer(body))
        if len(places) <= self.nth:
            raise LookupError(f"{self.name} is not in the code any more: bring tests/mutation/guards.py up to date")
        place = places[self.nth]
        mutant = _with_all_parameters(body, body[: place.start()] + self.instead + body[place.end() :])
        return path, text.replace(body, mutant, 1)

    @property
    def is_python(self) -> bool:
        """Whether what it guards is a function of a module, and no statement."""
        return FILES[self.statement.partition(".")[0]].endswith(".py")

    def body_in(self, text: str) -> str:
        """Return the statement in the text of its file."""
        name = self.statement.partition(".")[2]
        of_sql = rf"^-- name: *{name} *\n(.*?)(?=^-- name:|\Z)"
        of_python = rf"^( *(?:async )?def {name}\(.*?)(?=^ *(?:async )?def |^ *class |^ *@|\Z)"
        found = re.search(of_python if self.is_python else of_sql, text, re.MULTILINE | re.DOTALL)
        if found is None:
            raise LookupError(f"there is no statement {self.statement}")
        return found[1]


def _with_all_parameters(body: str, mutant: str) -> str:
    """Let a statement name every parameter that it named before: one that cannot be called shows nothing."""
    lost = sorted(set(re.findall(r"\$\d+", body)) - set(re.findall(r"\$\d+", mutant)))
    if not lost or "create function" in body:
        return mutant
    named = ", ".join(f"{parameter}::{_type_of(parameter, body)}" for parameter in lost)
    comments, verb, rest = re.split(r"^(with|select|insert|update|delete)\b", mutant, maxsplit=1, flags=re.MULTILINE)
    kept = f"with parameters as (select {named})"
    if verb != "with":
        return f"{comments}{kept} {verb}{rest}"
    # What refers to itself says so at the beginning, before all others.
    if rest.lstrip().startswith("recursive "):
        kept, rest = kept.replace("with ", "with recursive ", 1), rest.lstrip().removeprefix("recursive ")
    return f"{comments}{kept}, {rest.lstrip()}"


def _type_of(parameter: str, body: str) -> str:
    name = re.escape(parameter)
    if cast := re.search(rf"{name}::(\w+(?:\[\])?)", body):
        return cast[1]
    if re.search(rf"\b(?:attempt|number) = {name}", body):
        return "int"
    if re.search(rf"\bkind = any \({name}\)", body):
        return "text[]"
    return "text" if re.search(rf"\bholder = {name}\b", body) and "machine" in body else "bigint"


def _of(statement: str, tests: str, *pieces: str | tuple[str, str] | tuple[str, str, int]) -> list[Guard]:
    """Guards of one statement; a piece is taken away, or replaced by the second of a pair, at the place of a triple."""
    found = []
    for piece in pieces:
        text, instead, nth = (piece, "", 0) if isinstance(piece, str) else (*piece, 0)[:3]
        found.append(Guard(statement, text, str(instead), tests, int(nth)))
    return found


HELD = ("and coalesce(t.worker_id, 0) = $1", "and t.attempt = r.attempt")

ORGS = "test_history_orgs"

GUARDS: list[Guard] = [
    # --- the hot path ---
    *_of(
        "step.finish_and_claim", "test_fences test_graph",
        "and coalesce(t.worker_id, 0) = me",
        ("and t.state = 'running'", ""),
        "and t.attempt = attempts[width_bucket(t.id, ids)]",
        "and d.worker_id = me", "and d.attempt = r.attempt", "and d.state = 'completed'",
    ),
    *_of("step.reach_next", "test_graph", "t.waiting_on = next_counts[width_bucket(t.id, next_ids)] and",
         "t.concurrency_key is null and", "t.waiting_on = 0 and"),
    *_of("step.reach_next", "test_job_graphs",
         ("and (t.reached + next_reached[width_bucket(t.id, next_ids)] > 0 and t.reason is distinct from 'upstream_failed' "
          "or t.handler = '@end')", ""),
         ("> 0 and t.reason is distinct from 'upstream_failed'", "> 0"), ("and (e.branches is null or s.taken = any (e.branches))", ""),
         ("s.taken = any (e.branches)", "true")),
    *_of("step.reach_next", "test_jobs", ("or t.handler = '@end'", "")),
    *_of("step.reach_next", "test_random_groups",
         ("and t.reason is distinct from 'upstream_failed' or t.handler", "or t.handler"),
         "perform weft.skip_later(weft.skip_tasks(spoiled, 'upstream_failed', 100, own), 'upstream_failed');"),
    # --- jobs ---
    *_of("step.skip_tasks", "test_job_graphs",
         ("case when why = 'upstream_failed' then weft.fail_next(gone || counted) else "
          "weft.reach_next(gone || counted, null, false, own) end", "weft.reach_next(gone || counted, null, false, own)")),
    *_of("step.fail_next", "test_job_leftovers", ("and t.handler = '@end'", "")),
    *_of("step.fail_next", "test_job_graphs test_random_groups", ("and t.waiting_on = 0", "")),
    # --- schedules ---
    *_of("schedule.add", "test_schedules", ("where $14::bool", "where $14::bool or true"), ("version = s.version + 1", "version = s.version"),
         ("is distinct from (excluded.cron, excluded.every, excluded.timezone)\n    then excluded.anchor", "is null then excluded.anchor"),
         ("is distinct from (excluded.cron, excluded.every, excluded.timezone)\n    then excluded.next_at", "is null then excluded.next_at")),
    *_of("schedule.show", "test_schedules", "s.org_id = $1 and"),
    *_of("schedule.list", "test_schedules", "s.org_id = $1 and"),
    *_of("schedule.lock", "test_schedules", "s.org_id = $1 and", "for update"),
    *_of("schedule.pause", "test_schedules", "s.org_id = $1 and", "and s.paused_at is null"),
    *_of("schedule.resume", "test_schedules", "s.org_id = $1 and", "and s.paused_at is not null"),
    *_of("schedule.delete", "test_schedules", "s.org_id = $1 and"),
    *_of("schedule.due", "test_schedules", ("s.next_at <= (select weft.now()) and", "")),
    *_of("schedule.take", "test_schedules", "and s.version = $2::int", "and s.next_at = $3::timestamptz", "and s.paused_at is null",
         "for update skip locked", ("s.overlap = 'skip' and", ""),
         ("exists (select 1 from weft.job j where j.id = s.last_job_id)", "false")),
    *_of("schedule.backfills", "test_schedules", "b.org_id = $1 and"),
    *_of("schedule.cancel_backfill", "test_schedules", "b.org_id = $1 and", "and b.ended_at is null"),
    *_of("schedule.take_backfill", "test_schedules", "and s.version = $2::int", "and b.next_at = $3::timestamptz", "and b.ended_at is null",
         "for update of b skip locked", "for share of s skip locked"),
    *_of("schedule.end_backfill", "test_schedules", "and b.ended_at is null", "and b.next_at is null",
         ("and not exists (select 1 from weft.job j where j.id = any (b.running))", "")),
    *_of("schedule.measure", "test_schedules", ("where s.org_id = $1", "")),
    *_of("source_tick.due", "test_source_ticks", ("s.next_at <= (select weft.now()) and", ""),
         "and l.paused_at is null", "and d.paused_at is null", "and o.units < j.max_backlog", "partition by s.org_id"),
    *_of("source_tick.move_on", "test_source_ticks", "s.next_at = t.seen_at and", "and s.is_listening",
         ("skip locked", ""), ("next_at = t.next_at, missed", "missed")),
    *_of("hook.find", "test_hook_route", ("o.slug = $1 and", "$1::text is not null and"), ("s.event = $2 and", "$2::text is not null and"),
         "s.is_listening and", "and s.hook is not null"),
    *_of("file.changed_files", "test_file_sources", ("f.seen_at <= weft.now() - $4::interval", "$4::interval is not null"),
         "or not f.is_emitted", "or f.tag <> u.tag"),
    *_of("file.gone_files", "test_file_sources", ("and f.path > $2", "and $2::text is not null"), ("($3::text is null or f.path <= $3)", "$3::text is not distinct from $3")),
    *_of("following.note_rows", "test_table_sources", "and o.followed = tg_relid", "and o.is_listening", "for key share",
         ("a.atttypid < 16384", "true")),
    *_of("following.follow_table", "test_table_sources",
         ("when s.org_id <> 1 then 'only DAGs of the org default, which operates the installation, follow tables'", ""),
         ("has_table_privilege(session_user, c.oid, 'select') and", ""),
         ("and has_table_privilege(session_user, c.oid, 'trigger')", ""),
         ("n.nspname in ('weft', 'information_schema') or", "")),
    *_of("following.only_sources_follow", "test_table_sources", ("weft.note_rows, ", ""), ("weft.follow_table, ", ""), ("weft.leave_table, ", "")),
    # --- datasets ---
    *_of("dataset.show", "test_dataset_guards", "d.org_id = $1 and"),
    *_of("dataset.lock", "test_dataset_guards", "d.org_id = $1 and"),
    *_of("dataset.set_producer", "test_dataset_guards", "and d.producer_dag is null"),
    *_of("collecting.close_versions", "test_dataset_kill", ("and v.collected_at is null", "and false")),
    *_of("dataset.show", "test_dataset_visibility", ("and ($3::text[] is null or d.read_roles && $3)", "")),
    *_of("dataset.list", "test_dataset_guards", "d.org_id = $1 and"),
    *_of("dataset.list", "test_dataset_visibility", ("and ($3::text[] is null or d.read_roles && $3)", "")),
    *_of("dataset.is_kept", "test_dataset_guards::test_another_org_finds_and_changes_nothing", "v.org_id = $1 and"),
    *_of("dataset.files", "test_datasets", "and f.added_by <= $3", ("(f.removed_by is null or f.removed_by > $3)", "true")),
    *_of("dataset.latest_partitions", "test_dataset_guards", "p.org_id = $1 and"),
    *_of("lineage.inputs", "test_lineage", ("and ($3::text[] is null or d.read_roles && $3)", ""), ("$3::text[] is not null and not d.read_roles && $3", "true")),
    *_of("lineage.outputs", "test_lineage", ("and ($3::text[] is null or d.read_roles && $3)", ""), ("$3::text[] is not null and not d.read_roles && $3", "true")),
    *_of("lineage.column_inputs", "test_lineage", ("and ($4::text[] is null or d.read_roles && $4)", ""), ("$4::text[] is not null and not d.read_roles && $4", "true")),
    *_of("lineage.column_outputs", "test_lineage", ("and ($4::text[] is null or d.read_roles && $4)", ""), ("$4::text[] is not null and not d.read_roles && $4", "true")),
    *_of("lineage.state_inputs", "test_lineage", ("and ($4::text[] is null or d.read_roles && $4)", ""), ("$4::text[] is not null and not d.read_roles && $4", "true"),
         ("where f.removed_by is null or f.removed_by > u.write", "")),
    *_of("lineage.state_outputs", "test_lineage", ("and ($4::text[] is null or d.read_roles && $4)", ""), ("$4::text[] is not null and not d.read_roles && $4", "true")),
    *_of("staging.holder", "test_dataset_guards", "and coalesce(t.worker_id, 0) = $1", "and t.attempt = $3", "and t.state = 'running'"),
    *_of("staging.stage", "test_dataset_guards", "and s.task_id = $2", ("s.partitions is null\n  or", "true or")),
    *_of("publishing.publish_write", "test_dataset_guards", ("coalesce(p.last_write, v.lost_by) > staged.seen and", "false and"), "and s.partitions is not null",
         ("and staged.seen_schema is distinct from v.schema_hash", "and false"), ("staged.follows and", "false and")),
    *_of("publishing.publish_write", "test_datasets_attacked", ("coalesce(p.last_write, v.lost_by) > staged.seen", "p.last_write > staged.seen")),
    *_of("staging.own_version", "test_dataset_guards", ("and s.attempt = $2", "and $2::int is not null")),
    *_of("publishing.publish_writes", "test_dataset_guards", ("and d.attempt = each.attempt", "")),
    *_of("collecting.abandoned", "test_dataset_guards", "and t.attempt = s.attempt", "and t.state = 'running'",
         ("s.created_at < weft.now() - $1::interval and", "")),
    *_of("collecting.abandoned", "test_dataset_gc", ("s.org_id = $3", "true")),
    *_of("publishing.close_states", "test_dataset_gc", ("f.org_id = of_org", "true")),
    *_of("collecting.removed_files", "test_dataset_gc", ("f.org_id = $2", "true")),
    *_of("collecting.close_versions", "test_dataset_gc", ("o.org_id = $2", "true")),
    *_of("collecting.close_deleted", "test_dataset_gc", ("d.org_id = $2", "true")),
    *_of("collecting.forget_datasets", "test_dataset_gc", ("d.org_id = $2", "true")),
    *_of("collecting.closed_versions", "test_dataset_gc", ("v.org_id = $2", "true")),
    *_of("collecting.past", "test_dataset_gc", "d.org_id = $1 and", "v.org_id = $1 and", ("v.org_id = $1 and not v.is_outside and", "not v.is_outside and"),
         ("f.removed_by <= v.oldest_write", "true")),
    *_of("acting.collectable", "test_dataset_gc", ("d.org_id = $3", "true")),
    *_of("collecting.close_deleted", "test_dataset_keeping", "for update skip locked"),
    *_of("collecting.close_deleted", "test_collecting_guards::test_versions_of_a_deleted_dataset_are_closed_once_and_those_of_others_not",
         ("where d.deleted_at < weft.now() - $1::interval", "where d.deleted_at < 'infinity'::timestamptz - $1::interval")),
    *_of("collecting.close_deleted", "test_live_attacked", "and not exists (select 1 from weft.live_output l where l.version_id = v.id) and not exists (select 1 from weft.dag_version_dataset p where p.version_id = v.id)"),
    *_of("deploying.deleted_datasets", "test_live_attacked", ("d.deleted_at is not null", "false")),
    *_of("keeping.live_user", "test_live_attacked", ("in (g.version_id, g.building_id)", "is not null")),
    *_of("rows.drop", "test_table_guards::test_who_drops_rows_or_a_table_waits_for_who_is_at_the_version", "for key share"),
    *_of("rows.drop_table", "test_table_guards::test_who_drops_rows_or_a_table_waits_for_who_is_at_the_version", "for update"),
    *_of("rows.staged", "test_dataset_tables", "and s.task_id = $2", "and s.partitions is null"),
    *_of("rows.are_kept", "test_dataset_tables::test_an_org_reads_and_writes_no_rows_of_another", "v.org_id = $1 and"),
    *_of("keeping.open_write", "test_dataset_keeping", ("and t.state = 'running'", "and t.state = 'dead'")),
    *_of("keeping.deleted", "test_dataset_keeping", "d.org_id = $1 and", "for no key update",
         ("order by d.deleted_at desc", "order by d.deleted_at")),
    *_of("dataset.list", "test_dataset_keeping", "and d.deleted_at is null"),
    *_of("collecting.close_versions", "test_live_guards",
         "and not exists (select 1 from weft.live_output l where l.version_id = o.id)",
         "and not exists (select 1 from weft.dag_version_dataset p where p.version_id = o.id)"),
    *_of("dataset.lock", "test_deploys", ("exists (select 1 from weft.live_output o where o.dataset_id = d.id) as is_live", "false as is_live")),
    # What stays of datasets, and what attempts note of them.
    *_of("collecting.abandoned", "test_collecting_guards::test_a_write_came_to_nothing_whatever_other_tasks_do", "t.id = s.task_id and"),
    *_of("collecting.close_deleted", "test_collecting_guards::test_versions_of_a_deleted_dataset_are_closed_once_and_those_of_others_not", "and v.collected_at is null", ", config_hash = v.id::text", "v.dataset_id = d.id and"),
    *_of("collecting.close_deleted", "test_collecting_guards::test_a_deleted_dataset_stays_while_something_has_one_of_its_versions", "and not exists (select 1 from weft.staged_write s where s.version_id = v.id)", "and not exists (select 1 from weft.live_output l where l.version_id = v.id)", "and not exists (select 1 from weft.dag_version_dataset p where p.version_id = v.id)"),
    *_of("publishing.close_states", "test_collecting_guards::test_only_states_that_are_past_the_retention_are_closed_and_none_is_opened_again", "and w.written_at < weft.now() - retention"),
    *_of("collecting.close_versions", "test_collecting_guards::test_a_version_is_closed_once_when_it_is_long_past_and_nothing_is_written_into_it", ("o.retired_at < weft.now() - $1::interval and", "$1::interval is not null and"), "and not exists (select 1 from weft.staged_write s where s.version_id = o.id)", ", config_hash = v.config_hash || '@' || v.id"),
    *_of("collecting.close_versions", "test_collecting_guards::test_whoever_closes_versions_passes_those_over_that_somebody_takes_up_again", "skip locked"),
    *_of("collecting.closed_versions", "test_collecting_guards::test_a_version_is_forgotten_when_it_is_closed_and_has_no_file_left", "where v.collected_at is not null"),
    *_of("collecting.files_of", "test_collecting_guards::test_a_version_is_forgotten_when_it_is_closed_and_has_no_file_left", "where f.version_id = $1"),
    *_of("collecting.forget_datasets", "test_collecting_guards::test_a_dataset_is_forgotten_when_it_was_deleted_long_ago_and_nothing_is_left_of_it", ("d.deleted_at < weft.now() - $1::interval and", "d.deleted_at is not null and $1::interval is not null and"), "and not exists (select 1 from weft.dataset_version v where v.dataset_id = d.id)", "and not exists (select 1 from weft.live_input i where i.dataset_id = d.id)", ("d.deleted_at < weft.now() - $1::interval and", "coalesce(d.deleted_at, '-infinity') < weft.now() - $1::interval and")),
    *_of("collecting.forget_files", "test_collecting_guards::test_a_file_goes_when_no_state_has_it_and_no_other_write_has_brought_it_back", "and f.id = u.id"),
    *_of("collecting.forget_version", "test_collecting_guards::test_a_version_is_forgotten_when_it_is_closed_and_has_no_file_left", "and v.collected_at is not null", "and not exists (select 1 from weft.dataset_file f where f.version_id = v.id)"),
    *_of("collecting.forget_writes", "test_collecting_guards::test_a_write_came_to_nothing_whatever_other_tasks_do", ("where s.id = any ($1)", "where $1::bigint[] is not null")),
    *_of("collecting.removed_files", "test_collecting_guards::test_a_file_goes_when_no_state_has_it_and_no_other_write_has_brought_it_back", "and f.removed_by <= v.oldest_write", ("not exists (select 1 from weft.dataset_file o where o.version_id = f.version_id and o.path = f.path and (o.removed_by is null or o.removed_by > v.oldest_write))", "true"), "o.version_id = f.version_id and", ("and (o.removed_by is null or o.removed_by > v.oldest_write)", "and o.id <> f.id"), "o.removed_by is null or", "or o.removed_by > v.oldest_write", "and o.path = f.path"),
    *_of("dataset.lock", "test_staging_guards::test_the_dataset_of_a_write_is_locked_before_it_is_known_who_writes_it", "for no key update"),
    *_of("dataset.one_output_at_a_time", "test_staging_guards::test_two_datasets_that_one_node_begins_at_once_have_numbers_of_their_own", ("pg_advisory_xact_lock(hashtextextended('weft.producer ' || $1::bigint || ' ' || $2::text || ' ' || $3::text, 0))", "1")),
    *_of("dataset.set_producer", "test_staging_guards::test_outputs_are_numbered_by_org_workflow_and_node", "o.org_id = $1 and", "and o.producer_dag = $3", "and o.producer_node = $4"),
    *_of("keeping.hand_over", "test_staging_guards::test_outputs_are_numbered_by_org_workflow_and_node", "o.org_id = $1 and", "and o.producer_dag = $3", "and o.producer_node = $4"),
    *_of("keeping.open_write", "test_staging_guards::test_only_a_write_into_the_dataset_itself_by_the_attempt_that_runs_is_in_the_way", "and t.attempt = s.attempt", "and s.dataset_id = $2"),
    *_of("rows.staged", "test_staging_guards::test_an_attempt_does_not_tell_of_what_one_before_it_has_begun", "and s.attempt = $3"),
    *_of("staging.holder", "test_staging_guards::test_nobody_takes_a_task_away_while_its_attempt_notes_something", "for share of t"),
    *_of("staging.note_input", "test_staging_guards::test_nothing_is_noted_of_a_version_of_another_org", ("v.id = $4 and v.org_id = $3 and", "v.id = $4 and")),
    *_of("staging.note_input", "test_staging_guards::test_what_an_attempt_reads_is_noted_once_for_each_attempt_and_state", ("not exists ( select 1 from weft.task_input o where o.task_id = $1 and o.attempt = $2 and o.version_id = $4 and o.write = $5 and o.pinned is not distinct from $7 and (o.partitions is null or o.partitions @> $6))", "true"), "o.task_id = $1 and", "and o.attempt = $2", "and o.version_id = $4", "and o.write = $5", "and o.pinned is not distinct from $7", "and (o.partitions is null or o.partitions @> $6)"),
    *_of("staging.note_look", "test_staging_guards::test_nothing_is_noted_of_a_version_of_another_org", ("v.id = $4 and v.org_id = $3 and", "v.id = $4 and")),
    *_of("staging.note_look", "test_staging_guards::test_that_an_attempt_has_looked_at_partitions_is_noted_once_for_each_attempt_and_state", "o.task_id = $1 and", "and o.version_id = $4", "and o.write = v.last_write", "and o.pinned is null", "and o.partitions is null"),
    *_of("staging.own_version", "test_staging_guards::test_a_write_goes_where_the_last_breaking_write_of_its_own_attempt_and_dataset_went", "s.task_id = $1 and", "and s.dataset_id = $3", "and s.partitions is not null", "order by s.id desc"),
    *_of("publishing.inputs_of", "test_staging_guards::test_columns_are_made_of_what_the_same_attempt_has_read", "i.task_id = task and", ("i.attempt = try or", "true or")),
    *_of("staging.stage", "test_staging_guards::test_an_attempt_does_not_tell_of_what_one_before_it_has_begun", "and s.attempt = $3"),
    *_of("keeping.deleted", "test_staging_guards::test_the_dataset_of_that_name_comes_back_unless_it_has_been_collected", ("and d.name = $2 || '@' || d.id", "and $2::text is not null"), "and (d.current_id is not null or d.last_version = 0)", "and not exists (select 1 from weft.dataset_version v where v.id = d.current_id and v.collected_at is not null)"),
    *_of("staging.note_look", "test_staging_guards::test_that_an_attempt_has_looked_at_partitions_is_noted_once_for_each_attempt_and_state", "and o.attempt = $2"),
    *_of("dataset.files", "test_version_guards::test_versions_writes_and_files_are_those_of_one_dataset", "and f.version_id = $2", "and f.added_by > $8", "and ($4::text[] is null or f.partition_key = any ($4))"),
    *_of("dataset.latest_partitions", "test_version_guards::test_versions_writes_and_files_are_those_of_one_dataset", "and p.version_id = $2"),
    *_of("dataset.partitions", "test_version_guards::test_versions_writes_and_files_are_those_of_one_dataset", "and p.version_id = $2", "and p.partition_key is distinct from $3"),
    *_of("dataset.version", "test_version_guards::test_versions_writes_and_files_are_those_of_one_dataset", "and v.collected_at is null", "$3::int is null and"),
    *_of("dataset.version_at", "test_version_guards::test_at_a_time_that_version_is_told_which_was_seen_with_what_was_written_by_then", "and s.at <= $3", ("order by s.at desc", "order by s.at"), "and w.written_at <= $3", "and v.collected_at is null", "w.version_id = v.id and"),
    *_of("dataset.versions", "test_version_guards::test_versions_writes_and_files_are_those_of_one_dataset", "and v.dataset_id = $2", "and v.collected_at is null", "and ($3::int is null or v.number < $3)"),
    *_of("dataset.writes", "test_version_guards::test_versions_writes_and_files_are_those_of_one_dataset", "and w.version_id = $2", "and ($3::bigint is null or w.number < $3)"),
    *_of("publishing.make_current", "test_version_guards::test_one_version_is_current_and_the_one_before_is_retired_from_then_on", "if before = version then return false; end if;", ("retired_at = null", "retired_at = v.retired_at"), ("set retired_at = at where v.id = before", "set retired_at = null where v.id = before")),
    *_of("publishing.make_current", "test_version_guards::test_two_versions_that_become_current_in_one_moment_leave_the_last", "on conflict on constraint dataset_seen_pkey do update set version_id = excluded.version_id"),
    *_of("publishing.publish_write", "test_dataset_guards::test_a_write_that_goes_by_what_has_changed_is_void_and_so_is_the_outcome", "s.task_id = done.id and", ("s.task_id = done.id and", "", 1), ("if not (swapping and weft.make_current(v.dataset_id, version)) and v.schema_hash is distinct from before then", "if not (swapping and weft.make_current(v.dataset_id, version)) and false then"), "and d.current_id = version", "swapping := swapping or staged.swaps;"),
    *_of("publishing.publish_write", "test_version_guards::test_a_write_has_what_its_own_attempt_has_read_and_leaves_what_others_have_begun", "and s.attempt = done.attempt", "and s.version_id = version", ("and s.attempt = done.attempt", "", 1), ("and s.version_id = version", "", 1), ("and s.partitions is not null", "", 1)),
    *_of("publishing.publish_write", "test_version_guards::test_what_was_taken_away_is_known_to_who_has_seen_it", ("v.columns_by := n;", "null;"), ("v.lost_by := n;", "null;")),
    *_of("publishing.publish_write", "test_version_guards::test_what_is_written_and_gone_back_to_changes_its_own_version_alone", ("and f.removed_by is null and (staged.is_whole", "and (staged.is_whole"), "and (staged.is_whole or f.partition_key = any (staged.partitions))", ("(staged.is_whole or f.partition_key = any (staged.partitions))", "f.partition_key = any (staged.partitions)"), ("(staged.is_whole or p.partition_key = any (staged.partitions)) returning", "p.partition_key = any (staged.partitions) returning"), ("f.version_id = version and f.removed_by is null and (staged", "f.removed_by is null and (staged"), ("p.version_id = version and (staged.is_whole", "(staged.is_whole")),
    *_of("publishing.publish_write", "test_version_guards::test_what_an_attempt_itself_has_written_and_what_is_as_before_makes_nothing_void", "and coalesce(p.last_write, v.lost_by) < n", ("staged.schema_hash is distinct from v.schema_hash and staged.seen_schema", "staged.seen_schema")),
    *_of("publishing.publish_write", "test_version_guards::test_of_each_partition_it_is_known_when_something_was_taken_away", ("and (staged.is_whole or p.partition_key = any (staged.partitions)) returning", "returning"), ("case when staged.mode = 'replace' then n else v.lost_by end", "v.lost_by")),
    *_of("publishing.publish_write", "test_version_guards::test_a_write_into_a_version_that_is_not_current_does_not_make_it_so", ("swapping and weft.make_current(v.dataset_id, version)", "weft.make_current(v.dataset_id, version)")),
    *_of("publishing.publish_writes", "test_version_guards::test_a_write_has_what_its_own_attempt_has_read_and_leaves_what_others_have_begun", ("if found then", "if true then"), ("where s.task_id = any (ended) and s.partitions is not null order by s.task_id", "where s.task_id = any (ended) order by s.task_id")),
    *_of("publishing.roll_back_version", "test_version_guards::test_nobody_goes_back_to_what_has_been_collected", ("back_to < v.oldest_write or v.collected_at is not null", "v.collected_at is not null"), "or v.collected_at is not null"),
    *_of("publishing.roll_back_version", "test_dataset_guards::test_counts_are_those_of_the_files_whatever_was_written_and_gone_back_to", ("and f.removed_by is null and f.added_by > back_to", "and f.added_by > back_to")),
    *_of("publishing.roll_back_version", "test_version_guards::test_what_is_written_and_gone_back_to_changes_its_own_version_alone", ("and f.removed_by is null and f.added_by > back_to", "and f.removed_by is null"), ("and f.added_by <= back_to and f.removed_by > back_to returning", "and f.removed_by > back_to returning"), ("and f.added_by <= back_to and f.removed_by > back_to returning", "and f.added_by <= back_to returning"), ("p.version_id = version and p.partition_key = any (touched)", "p.partition_key = any (touched)")),
    *_of("publishing.roll_back_version", "test_version_guards::test_what_was_taken_away_is_known_to_who_has_seen_it", ("and f.removed_by is null and f.partition_key = any (touched)", "and f.partition_key = any (touched)"), ("and f.partition_key = any (touched) group by", "group by"), ("case when left_over < cardinality(touched) then n else o.lost_by end", "o.lost_by")),
    *_of("publishing.roll_back_version", "test_version_guards::test_what_is_written_and_gone_back_to_changes_its_own_version_alone", "and p.partition_key = any (touched)", ("f.version_id = version and f.removed_by is null and f.partition_key", "f.removed_by is null and f.partition_key"), ("f.version_id = version and f.removed_by is null and f.added_by", "f.removed_by is null and f.added_by"), ("f.version_id = version and f.added_by <= back_to and f.removed_by > back_to returning", "f.added_by <= back_to and f.removed_by > back_to returning")),
    # Of Python: who holds the task, who writes the dataset, what a write may name.
    *_of("writing._holder", "test_dataset_guards::test_an_attempt_that_holds_its_task_no_more_writes_and_reads_nothing",
         ("raise LeaseLost(fence.task_id)", "return {'org_id': 1}")),
    *_of("writing.stage", "test_dataset_guards::test_an_attempt_that_holds_its_task_no_more_writes_and_reads_nothing",
         ("await _holder(conn, fence)", "pass")),
    *_of("writing._require_producer", "test_datasets::test_a_dataset_has_one_producer",
         ('(row["producer_dag"], row["producer_node"]) != mine', "False")),
    *_of("writing._checked_file", "test_dataset_guards::test_files_are_those_of_the_write_itself",
         ('re.fullmatch(rf"{write_id}-\\d{{1,9}}\\.{ending}", path, re.ASCII) is None', "False"),
         ('file["partition"] not in keys', "False")),
    *_of("writer.write", "test_datasets_attacked::test_data_are_not_written_in_a_step_that_a_later_attempt_leaves_out",
         ('require_no_step("dataset", self.name)', "pass")),
    *_of("writer._new_rows", "test_datasets_attacked::test_rows_that_were_replaced_do_not_keep_those_out_that_come_after",
         ("if not own.covers(name):", "if True:")),
    *_of("writer._write", "test_datasets_attacked::test_an_attempt_adds_columns_bit_by_bit",
         ("known, digest = own.schema, own.digest", "known, digest = None, None")),
    *_of("settling.settle", "test_datasets_attacked::test_a_column_of_which_only_nothing_was_known_is_filled_later",
         ("if kinds.is_null(column.type):", "if False:")),
    *_of("live_stage._job", "test_turn_guards::test_an_attempt_that_holds_its_task_no_more_knows_and_changes_nothing_of_its_live_job",
         ("raise LeaseLost(fence.task_id)", "return {'id': 0, 'org_id': 1, 'dag': '', 'name': '', 'document': '{}'}")),
    # --- live DAGs ---
    *_of("deploying.lock_dag", "test_deploy_races", "for no key update"),
    *_of("deploying.dag", "test_live_guards", "d.org_id = $1 and"),
    *_of("deploying.is_workflow", "test_live_guards", "t.org_id = $1 and"),
    *_of("deploying.is_workflow", "test_deploys", "and not t.is_deployed"),
    *_of("deploying.datasets", "test_live_guards", "d.org_id = $1 and"),
    *_of("deploying.names_of_datasets", "test_live_guards", "d.org_id = $1 and"),
    *_of("deploying.names_of_datasets", "test_live_dags", "and ($2::text[] is null or d.read_roles && $2)"),
    *_of("deploying.outputs_by_name", "test_live_guards", "d.org_id = $1 and"),
    *_of("deploying.versions_by_hash", "test_live_guards", "d.org_id = $1 and"),
    *_of("deploying.readers", "test_live_guards", "d.org_id = $1 and", ("d.org_id = $1 and", "", 1)),
    *_of("deploying.readers", "test_deploys", "and ($4::text[] is null or o.read_roles && $4)"),
    *_of("deploying.known_handlers", "test_live_guards", ("(w.org_id = $1 or 2 = any (w.queues)) and", ""), "and w.until > weft.now()"),
    *_of("deploying.version_before", "test_live_guards", "and v.number < $3::int"),
    *_of("deploying.put_input", "test_live_guards", "d.org_id = $3 and"),
    *_of("looking.list", "test_live_guards", "d.org_id = $1 and"),
    *_of("looking.jobs", "test_live_guards", "d.org_id = $1 and"),
    *_of("looking.jobs", "test_live_dags", "and ($5::text[] is null or r.read_roles && $5)",
         ("and ($5::text[] is null or r.read_roles && $5)", "", 1), "and w.until < weft.now()"),
    *_of("looking.names", "test_live_guards", ("where d.org_id = $1", "")),
    *_of("looking.job", "test_live_guards", "d.org_id = $1 and"),
    *_of("looking.units", "test_live_guards", "and u.state <> 'done'"),
    *_of("looking.measure", "test_live_guards", "j.org_id = $1 and"),
    *_of("looking.hides", "test_live_dags", ("not r.read_roles && $2", "r.read_roles && $2 and false")),
    *_of("acting.pause", "test_live_guards", "d.org_id = $1 and"),
    *_of("acting.resume", "test_live_guards", "d.org_id = $1 and"),
    *_of("acting.pause_job", "test_live_dags", "and j.paused_at is null"),
    *_of("acting.held", "test_live_guards", "and u.state = 'held'"),
    *_of("acting.begin_anew", "test_live_guards", ("and o.state in ('new', 'waiting', 'ready')", "and false")),
    *_of("acting.skip", "test_live_guards", "and u.state in ('held', 'new', 'waiting', 'ready')"),
    *_of("acting.held", "test_live_attacked", "and not exists (select 1 from weft.task t where t.id = u.task_id)"),
    *_of("acting.skip", "test_live_attacked", "and not exists (select 1 from weft.task t where t.id = u.task_id)"),
    *_of("acting.backfills", "test_live_guards", "b.org_id = $1 and"),
    *_of("acting.cancel_backfill", "test_live_guards", "b.org_id = $1 and", "and b.ended_at is null"),
    *_of("dataset.is_kept", "test_collected_reads::test_what_is_closed_is_not_read_on_though_nothing_of_it_has_gone", "v.collected_at is null and", "and v.oldest_write <= $3", "and v.id = $2"),
    *_of("rows.are_kept", "test_collected_reads::test_what_is_closed_is_not_read_on_though_nothing_of_it_has_gone", "and v.collected_at is null", ("(f.removed_by is null or f.removed_by > v.oldest_write)", "true")),
    *_of("rows.are_kept", "test_dataset_gc", "or f.removed_by > v.oldest_write"),
    *_of("acting.lock_backfilled", "test_act_orders::test_who_has_to_do_with_a_backfill_waits_for_its_job_before_he_holds_it", "for no key update"),
    *_of("swapping.hold_datasets", "test_act_orders::test_who_deploys_waits_for_a_dataset_before_he_holds_those_after_it", "for no key update"),
    *_of("swapping.hold_datasets", "test_act_orders::test_who_goes_back_waits_for_a_dataset_before_he_holds_those_after_it", ("order by d.id for update", "order by d.id for no key update")),
    *_of("acting.leave_units", "test_live_dags", ("and u.state in ('new', 'waiting', 'ready')", "and false")),
    *_of("swapping.settle_dag", "test_deploys", ("and j.state not in ('draining', 'stopped')", "and false"),
         ("and j.state in ('draining', 'stopped')", "and false")),
    *_of("swapping.settle_dag", "test_deploy_races", ("perform weft.lock_event(e.org_id, e.event) from", "perform 1 from"), ("and e.at > s.deaf_since", "and false")),
    *_of("swapping.settle_dag", "test_deployed_sources", ("when n.is_moved then 'epoch' else s.next_at", "when n.is_moved then s.next_at else s.next_at"),
         ("when n.is_moved then 'epoch' else s.next_at", "when n.is_moved then 'epoch' else 'epoch'")),
    *_of("swapping.swap_when_caught_up", "test_deploys", "s.is_behind or"),
    *_of("swapping.swap_when_caught_up", "test_live_guards", "skip locked", "or s.held > 0"),
    *_of("swapping.collect_dag", "test_live_collecting", "and j.state = 'stopped'", ("and i.live_job_id <> j.id", "and false")),
    *_of("swapping.collect_dag", "test_live_guards", "skip locked", "and v.retired_at < weft.now() - retention"),
    *_of("swapping.advance_backfill", "test_live_dags", ("greatest(b.at_once - open_units, 0)", "b.at_once")),
    # Turns of live jobs, what their attempts stage and publish, and what swaps touch.
    *_of("acting.pause", "test_swap_guards::test_acts_upon_one_job_leave_the_others_as_they_are", "and d.paused_at is null"),
    *_of("acting.resume", "test_swap_guards::test_acts_upon_one_job_leave_the_others_as_they_are", "and d.paused_at is not null"),
    *_of("acting.resume_job", "test_swap_guards::test_acts_upon_one_job_leave_the_others_as_they_are", "and j.paused_at is not null"),
    *_of("live_staging.inputs", "test_turn_guards::test_an_operator_reads_and_writes_what_is_of_its_own_job", "where i.live_job_id = $1"),
    *_of("live_staging.job", "test_turn_guards::test_an_attempt_that_holds_its_task_no_more_knows_and_changes_nothing_of_its_live_job", "and coalesce(t.worker_id, 0) = $1", "and t.attempt = $3", "and t.state = 'running'", "for share of t"),
    *_of("live_staging.outputs", "test_turn_guards::test_an_operator_reads_and_writes_what_is_of_its_own_job", "where o.live_job_id = $1"),
    *_of("live_staging.stage", "test_turn_guards::test_what_an_attempt_says_last_is_what_it_stages", ("on conflict (task_id, attempt) do update set states = excluded.states, units = excluded.units, callbacks = excluded.callbacks, rest = excluded.rest, is_caught_up = excluded.is_caught_up, files = excluded.files", "on conflict do nothing")),
    *_of("live_staging.state", "test_turn_guards::test_an_operator_reads_and_writes_what_is_of_its_own_job", "s.live_job_id = $1 and"),
    *_of("living.offer_events", "test_event_sources::test_an_event_is_of_its_own_org_only", ("s.org_id = e.org_id and", "", 1)),
    *_of("living.offer_events", "test_event_sources::test_many_events_are_sent_at_once_each_once_for_its_key", ("s.event = e.name and", "", 1)),
    *_of("living.offer_events", "test_live_attacked::test_a_version_that_is_built_and_has_no_room_keeps_nobody_from_sending", "and s.is_listening", ("and s.is_listening", "", 1), "s.live_job_id = full_id and", "- interval '1 microsecond'"),
    *_of("living.offer_events", "test_event_sources::test_a_source_that_is_full_takes_no_event_and_nothing_is_written", "and (s.match is null or e.payload @> s.match)", ("and (s.match is null or e.payload @> s.match)", "", 1), "and u.state = 'new'", "s.backlog +", "and d.version_id is not null", ("if not found then raise exception '%', crowded using errcode = 'WF008'; end if;", "exit when not found;")),
    *_of("living.publish_live", "test_turn_guards::test_what_a_task_has_staged_comes_to_nothing_when_its_unit_was_given_up", ("and u.state in ('running', 'held') order by u.id for no key update", "order by u.id for no key update")),
    *_of("living.publish_live", "test_turn_guards::test_what_another_attempt_has_staged_comes_to_nothing", "and d.attempt = s.attempt", "delete from weft.staged_live s where s.task_id = any (ended);"),
    *_of("living.publish_live", "test_turn_guards::test_a_state_that_is_not_what_was_seen_voids_all", "and o.version = each.seen", "if not found then raise exception 'state %: another unit has changed it meanwhile', each.key using errcode = 'WF007'; end if;"),
    *_of("living.publish_live", "test_turn_guards::test_what_is_published_changes_its_own_job_task_and_key_alone", "and o.state_key = each.key", ("o.live_job_id = told.live_job_id and o.state_key", "o.state_key"), "and f.live_job_id = told.live_job_id", "where x.tag is not null", ("where o.live_job_id = told.live_job_id; end if;", "; end if;"), "and f.path = x.path", ("where s.task_id = any (ended) order by s.live_job_id", "order by s.live_job_id")),
    *_of("living.publish_live", "test_turn_guards::test_a_unit_that_waits_already_is_not_made_again_by_who_finds_it", ("order by x.place on conflict do nothing", "order by x.place")),
    *_of("living.route_input", "test_live_routing::test_partitions_are_made_anew_once_for_all_that_came_before", "and w.number > i.routed_write"),
    *_of("living.route_input", "test_live_routing::test_a_write_into_several_partitions_comes_after_all_before_it_and_before_all_after_it", ("and w.number > i.routed_write", "", 1)),
    *_of("living.turn_live_job", "test_turn_guards::test_a_job_whose_turn_another_has_is_passed_over", "for no key update skip locked", "skip locked"),
    *_of("living.turn_live_job", "test_turn_guards::test_a_job_that_drains_stops_when_nothing_of_it_runs_and_has_no_turn_after_that", "or l.state = 'stopped'", ("case when running = 0 then 'stopped' else 'draining' end", "'stopped'"), ("when j.state = 'draining' then", "when false then")),
    *_of("living.turn_live_job", "test_turn_guards::test_units_whose_tasks_have_ended_without_a_word_are_found", ("and u.state = 'running' and not exists (select 1 from weft.task t where t.id = u.task_id)", "and u.state = 'running'"), ("o.ended = 'completed' or l.on_failure", "l.on_failure"), "or l.on_failure = 'skip'", "update weft.live_unit u set state = 'running' from weft.task t where u.live_job_id = job and u.state = 'held' and t.id = u.task_id;", "- case l.on_failure when 'skip' then lost else 0 end"),
    *_of("living.turn_live_job", "test_turn_guards::test_a_turn_touches_no_unit_of_another_job_and_is_held_up_by_none", ("u.live_job_id = job and u.state = 'running' and not exists", "u.state = 'running' and not exists"), ("u.live_job_id = job and u.state = 'held' and t.id = u.task_id", "u.state = 'held' and t.id = u.task_id"), ("and o.state = 'done' order by", "order by"), ("o.live_job_id = job and o.state", "o.state"), ("and s.kind in ('continuous', 'files') and open_units < l.max_backlog", "and open_units < l.max_backlog"), ("u.live_job_id = job and u.state = 'new' order by", "u.state = 'new' order by"), ("u.live_job_id = job and u.lane is null", "u.lane is null"), ("where u.live_job_id = job and u.state <> 'done'; end if", "where u.state <> 'done'; end if"), ("u.live_job_id = job and u.lane = k.lane", "u.lane = k.lane"), ("b.live_job_id = job and b.lane", "b.lane"), ("where u.live_job_id = job and u.state = 'running'; if is_asked", "where u.state = 'running'; if is_asked"), ("r.live_job_id = job and r.state", "r.state"), ("u.id = any (heads) and u.state in ('new', 'waiting')", "u.id = any (heads)"), ("s.live_job_id = job and s.backlog <> standing", "s.backlog <> standing"), ("where j.id = job and (gone > 0", "where (gone > 0")),
    *_of("living.turn_live_job", "test_turn_guards::test_what_is_done_keeps_nothing_waiting_however_much_there_is_of_it", "limit 10 * room", ("b.id < u.id and b.state <> 'done'", "b.id < u.id")),
    *_of("living.turn_live_job", "test_turn_guards::test_what_failed_of_a_partition_goes_when_that_alone_comes_anew", ("and u.state = 'held' and not exists (select 1 from weft.task t where t.id = u.task_id) and exists", "and not exists (select 1 from weft.task t where t.id = u.task_id) and exists"), ("and n.lane = u.lane and n.id > u.id", "and n.id > u.id"), "and n.id > u.id", ("if l.strategy = 'partition' then with old", "if true then with old"), ("in ('ready', 'running', 'held')", "in ('ready', 'running')")),
    *_of("living.turn_live_job", "test_turn_guards::test_nothing_begins_of_what_is_paused_or_drains", "l.state <> 'draining' and", "and l.paused_at is null", "and d.paused_at is null", ("if is_asked and running < l.max_concurrency", "if running < l.max_concurrency")),
    *_of("living.turn_live_job", "test_turn_guards::test_a_source_has_one_slice_at_a_time_and_none_without_room", ("s.live_job_id = job and s.kind in ('continuous', 'files') and open_units", "s.kind in ('continuous', 'files') and open_units"), "and open_units < l.max_backlog", ("and not exists (select 1 from weft.live_unit u where u.live_job_id = job and u.lane = '' and u.kind = 'slice') on conflict do nothing", "on conflict do nothing"), ("and u.kind = 'slice') on conflict", ") on conflict"), ("s.rest_until from weft.live_source", "null from weft.live_source")),
    *_of("living.turn_live_job", "test_turn_guards::test_a_unit_without_a_lane_comes_after_all_before_it_and_before_all_after_it", ("if had_barrier then", "if false then"), ("u.id = first", "true"), ("(barrier is null or u.id < barrier) and not exists", "not exists"), "and b.lane = u.lane", ("news || heads || barrier", "news || heads")),
    *_of("living.turn_live_job", "test_turn_guards::test_what_stands_before_it_in_its_lane_keeps_a_unit_waiting", "b.id < u.id and b.state <> 'done' or"),
    *_of("living.turn_live_job", "test_turn_guards::test_what_begins_anew_waits_for_what_has_passed_it_in_its_lane", "or b.state in ('ready', 'running', 'held')", ("in ('ready', 'running', 'held')", "in ('ready', 'held')"), ("in ('ready', 'running', 'held')", "in ('running', 'held')"), ("and r.state = 'ready' and", "and")),
    *_of("living.turn_live_job", "test_turn_guards::test_what_rests_does_not_begin_before_its_time", "and (r.run_at is null or r.run_at <= weft.now())", "and (h.run_at is null or h.run_at <= weft.now())"),
    *_of("living.turn_live_job", "test_turn_guards::test_no_more_units_run_than_may_and_no_more_begin_than_there_is_room_for", ("order by o.id limit least(room, l.max_concurrency - running)", "order by o.id"), ("order by o.id limit least(room, l.max_concurrency - running)", "order by o.id limit room"), ("order by o.id limit least(room, l.max_concurrency - running)", "order by o.id limit l.max_concurrency - running")),
    *_of("router.due", "test_turn_guards::test_jobs_have_a_turn_that_have_something_to_do", ("j.state <> 'stopped' and (", "("), "j.state = 'draining' or", "or exists (select 1 from weft.live_unit u where u.live_job_id = j.id and u.state in ('new', 'done'))", "and u.state in ('new', 'done')", "$2::boolean and", "and not exists (select 1 from weft.task t where t.id = u.task_id)", ("and u.state = 'held')", ")"), ("j.paused_at is null and exists", "exists"), ("and d.paused_at is null) and (", ") and ("), "and (u.run_at is null or u.run_at <= weft.now())", "and (select count(*) from weft.live_unit u where u.live_job_id = j.id and u.state = 'running') < j.max_concurrency", "and (i.routed_write is null or v.last_write > i.routed_write)", "and s.kind in ('continuous', 'files')", "and u.state = 'ready'"),
    *_of("live_staging.state", "test_turn_guards::test_an_operator_reads_and_writes_what_is_of_its_own_job", ("and s.state_key = $2", "and $2::text is not null")),
    *_of("swapping.units_of_backfill", "test_swap_guards::test_backfills_and_partitions_are_those_of_the_job_that_is_asked_for", ("u.backfill_id = b.id\n    or", "true or"), "and u.state <> 'done'"),
    *_of("acting.begin_anew", "test_swap_guards::test_acts_upon_one_job_leave_the_others_as_they_are", "and not exists ( select 1 from weft.live_unit o where o.live_job_id = u.live_job_id and o.dedupe_key = u.dedupe_key and o.state in ('new', 'waiting', 'ready'))", "and o.dedupe_key = u.dedupe_key", "o.live_job_id = u.live_job_id and"),
    *_of("acting.cancel_backfill", "test_swap_guards::test_backfills_and_partitions_are_those_of_the_job_that_is_asked_for", "and b.id = $2"),
    *_of("acting.collectable", "test_swap_guards::test_of_a_dag_only_what_is_long_past_and_of_no_version_is_collected", "and v.retired_at < weft.now() - $1::interval", "and not exists (select 1 from weft.dag_version_job m where m.live_job_id = j.id)", "v.dag_id = d.id and"),
    *_of("acting.count_partitions", "test_swap_guards::test_backfills_and_partitions_are_those_of_the_job_that_is_asked_for", "and p.version_id = $2"),
    *_of("acting.held", "test_swap_guards::test_acts_upon_one_job_leave_the_others_as_they_are", "and u.live_job_id = $2", "and ($4::bigint is null or u.id = $4)"),
    *_of("acting.input", "test_swap_guards::test_backfills_and_partitions_are_those_of_the_job_that_is_asked_for", "and i.version_id is not null", "and ($3::text is null or d.name = $3)", "and i.live_job_id = $2"),
    *_of("acting.leave_units", "test_swap_guards::test_backfills_and_partitions_are_those_of_the_job_that_is_asked_for", "and u.backfill_id = $2", "and u.state in ('new', 'waiting', 'ready')"),
    *_of("acting.open_backfills", "test_swap_guards::test_backfills_and_partitions_are_those_of_the_job_that_is_asked_for", "where b.ended_at is null"),
    *_of("acting.skip", "test_swap_guards::test_acts_upon_one_job_leave_the_others_as_they_are", "and u.live_job_id = $2", "and u.id = $3"),
    *_of("acting.state_of_unit", "test_swap_guards::test_acts_upon_one_job_leave_the_others_as_they_are", "and u.live_job_id = $2"),
    *_of("acting.unknown_partitions", "test_swap_guards::test_backfills_and_partitions_are_those_of_the_job_that_is_asked_for", "and p.version_id = $2", "and p.partition_key = u.key"),
    *_of("deploying.add_dag", "test_swap_guards::test_readers_see_the_datasets_of_the_version_that_comes_into_effect_and_each_version_says_what_became_of_it", "on conflict (org_id, name) do nothing"),
    *_of("swapping.settle_dag", "test_live_guards::test_what_is_held_keeps_a_version_from_coming_into_effect_however_new_it_is", ("in (d.version_id, d.building_id)", "= d.version_id"), "and j.id <> all (wanted)"),
    *_of("swapping.settle_dag", "test_live_guards::test_what_runs_is_not_left_out_and_what_is_not_held_is_not_tried_again", ("in (d.version_id, d.building_id)", "= d.building_id")),
    *_of("swapping.settle_dag", "test_swap_guards::test_what_is_done_to_one_dag_leaves_another_as_it_is", ("j.dag_id = dag and j.id <> all (wanted)", "j.id <> all (wanted)"), ("j.dag_id = dag and s.is_listening", "s.is_listening")),
    *_of("swapping.settle_dag", "test_swap_guards::test_readers_see_the_datasets_of_the_version_that_comes_into_effect_and_each_version_says_what_became_of_it", ("and j.id = any (wanted) and j.state in", "and j.state in")),
    *_of("acting.begin_anew", "test_swap_guards::test_acts_upon_one_job_leave_the_others_as_they_are", ("and u.id = any ($2)", "and $2::bigint[] is not null")),
    *_of("acting.compute_partitions", "test_swap_guards::test_backfills_and_partitions_are_those_of_the_job_that_is_asked_for", "and j.id = $2"),
    *_of("acting.count_partitions", "test_swap_guards::test_backfills_and_partitions_are_those_of_the_job_that_is_asked_for", ("and weft.key_is_within(p.partition_key, $3, $4)", "and $3::text is not distinct from $3 and $4::text is not distinct from $4")),
    *_of("swapping.advance_backfill", "test_swap_guards::test_a_backfill_makes_each_partition_in_its_range_once_a_few_at_a_time", "and o.ended_at is null", "and u.state <> 'done'", "u.backfill_id = b.id and", "and i.place = b.place", "p.version_id = version and", ("(b.next_key is null or p.partition_key > b.next_key)", "true"), "and weft.key_is_within(p.partition_key, b.first_key, b.last_key)", ("count = 0 and (weft.units_of_backfill(b)).units = 0", "count = 0"), ("count = 0 and (weft.units_of_backfill(b)).units = 0", "open_units = 0"), "where o.id = b.id"),
    *_of("swapping.advance_backfill", "test_swap_guards::test_a_backfill_makes_nothing_for_a_job_that_drains_nor_while_another_is_at_it", "skip locked", "for no key update skip locked", "or l.state in ('draining', 'stopped')"),
    *_of("swapping.collect_dag", "test_swap_guards::test_of_a_dag_only_what_is_long_past_and_of_no_version_is_collected", "and not exists (select 1 from weft.dag_version_job m where m.live_job_id = j.id)", ("v.dag_id = dag and v.state", "v.state"), ("j.dag_id = dag and j.state", "j.state")),
    *_of("swapping.collect_dag", "test_swap_guards::test_what_a_job_that_goes_has_written_counts_as_retired_unless_readers_see_it", "and v.retired_at is null", "and not exists (select 1 from weft.dataset s where s.current_id = v.id)", "v.id = o.version_id and", "o.live_job_id = any (jobs) and", ("set retired_at = v.created_at", "set retired_at = v.retired_at")),
    *_of("swapping.key_is_within", "test_swap_guards::test_a_range_of_keys_is_one_of_numbers_where_its_ends_are", ("first_key is null or key::bigint >= first_key::bigint", "true"), ("last_key is null or key::bigint <= last_key::bigint", "true"), "(first_key is null or key >= first_key) and", "and (last_key is null or key <= last_key)", ("else false end else", "else true end else"), ("coalesce(first_key, last_key) ~ '^-?[0-9]{1,18}$' and coalesce(last_key, first_key) ~ '^-?[0-9]{1,18}$'", "false")),
    *_of("swapping.settle_dag", "test_swap_guards::test_readers_see_the_datasets_of_the_version_that_comes_into_effect_and_each_version_says_what_became_of_it", "and s.is_listening <> (j.id = any (wanted))"),
    *_of("swapping.settle_dag", "test_swap_guards::test_a_source_that_listens_again_is_told_what_was_sent_to_it_in_its_own_org", "e.org_id = s.org_id and", "and e.name = s.event"),
    *_of("swapping.standing_of_live_job", "test_swap_guards::test_nothing_that_stands_is_told_of_what_is_done_and_a_slice_is_no_backlog", "filter (where u.kind <> 'slice')", ("filter (where u.kind <> 'slice')", "", 1), "filter (where u.state = 'held')", "and u.state <> 'done'", ("u.live_job_id = job and u.state", "u.state")),
    *_of("swapping.standing_of_live_job", "test_swap_guards::test_a_job_is_behind_until_all_that_was_written_is_units", ("is_behind or coalesce(bool_or(i.routed_write is null or v.id is distinct from i.version_id), false)", "is_behind"), "i.routed_write is null or", "or v.id is distinct from i.version_id", ("case when i.is_internal then i.version_id else d.current_id end", "i.version_id"), "where i.live_job_id = job", "since := least(since, first_write);", "and w.number > case when v.id = i.version_id then coalesce(i.routed_write, 0) else 0 end", "w.version_id = v.id and"),
    *_of("swapping.standing_of_live_job", "test_swap_guards::test_a_source_that_looks_is_behind_until_it_has_caught_up", "and s.caught_up_at is null", "and s.kind in ('continuous', 'files')", ("s.live_job_id = job and s.kind", "s.kind")),
    *_of("swapping.swap_dag", "test_swap_guards::test_a_dag_does_not_take_over_a_version_of_another", "and o.dag_id = dag"),
    *_of("swapping.swap_dag", "test_swap_guards::test_what_is_done_to_one_dag_leaves_another_as_it_is", ("and o.producer_dag = d.name;", ";"), "where p.dag_version_id = to_version", "and o.version_id = p.version_id", ("where o.id = d.version_id and", "where"), ("where o.id = d.building_id and", "where")),
    *_of("swapping.swap_dag", "test_swap_guards::test_readers_see_the_datasets_of_the_version_that_comes_into_effect_and_each_version_says_what_became_of_it", ("retired_at = null where", "retired_at = o.retired_at where"), ("building_id = null where", "building_id = o.building_id where")),
    *_of("swapping.swap_dag", "test_live_guards::test_what_is_called_the_same_in_another_org_is_another_thing", ("o.org_id = d.org_id and", "", 1)),
    *_of("swapping.swap_when_caught_up", "test_swap_guards::test_a_version_comes_into_effect_when_what_is_new_of_it_has_caught_up", "and o.building_id is not null", "or s.since < weft.now() - lag", "and not exists (select 1 from weft.dag_version_job o where o.dag_version_id = d.version_id and o.live_job_id = m.live_job_id)", "m.dag_version_id = d.building_id and"),
    *_of("swapping.unit_of_partition", "test_swap_guards::test_a_partition_that_waits_already_is_not_made_again", "on conflict do nothing"),
    *_of("swapping.unit_of_partition", "test_swap_guards::test_backfills_and_partitions_are_those_of_the_job_that_is_asked_for", "and i.place = at_place"),
    # Which version says how jobs are executed, who is told what came meanwhile, and when somebody looks again.
    *_of("acting.collectable", "test_swap_guards::test_of_a_dag_only_what_is_long_past_and_of_no_version_is_collected", "$3::bigint is null or"),
    *_of("acting.lock_job", "test_settling_guards::test_a_unit_that_goes_in_a_turn_is_not_sent_on_meanwhile", "for no key update"),
    *_of("acting.state_of_unit", "test_swap_guards::test_acts_upon_one_job_leave_the_others_as_they_are", "and u.id = $3"),
    *_of("living.offer_events", "test_event_sources::test_a_source_that_is_full_takes_no_event_and_nothing_is_written", ("e.id = any (events) and (s.match", "(s.match"), ("e.id = any (events) and (s.match", "(s.match", 1), ("u.live_job_id = j.id and u.state = 'new'", "u.state = 'new'")),
    *_of("living.offer_events", "test_event_sources::test_who_sends_is_told_how_many_sources_took_it", "where e.id = t.event_id"),
    *_of("living.offer_events", "test_settling_guards::test_a_source_in_effect_that_is_full_goes_on_listening_whatever_is_built_elsewhere", "and j.id = full_id"),
    *_of("living.offer_events", "test_settling_guards::test_a_source_that_had_no_room_is_deaf_from_the_event_on_for_which_it_had_none", "and e.name = s.event", ("e.id = any (events) and e.name", "e.name"), "and m.live_job_id = j.id", "m.dag_version_id = d.version_id and"),
    *_of("router.due", "test_routing_guards::test_a_job_has_a_turn_when_it_has_done_nothing_for_long_and_runs_nothing", ("j.state = 'running' and j.idle_after", "j.state in ('pending', 'running') and j.idle_after"), ("u.live_job_id = j.id and", "", 6), ("j.state = 'running' and j.idle_after", "j.idle_after"), ("and u.state = 'running'", "", 2), "and not exists (select 1 from weft.live_unit u where u.live_job_id = j.id and u.state = 'running')", "and j.activation = 'reactive'"),
    *_of("router.due", "test_routing_guards::test_a_job_has_a_turn_when_something_is_written_that_it_reads", "not i.is_internal and", "v.id is not null and"),
    *_of("router.due", "test_routing_guards::test_a_source_looks_again_whatever_else_of_it_is_in_the_same_lane", "and u.kind = 'slice'"),
    *_of("router.due", "test_turn_guards::test_jobs_have_a_turn_that_have_something_to_do", ("u.live_job_id = j.id and", "", 1), ("u.live_job_id = j.id and", "", 3), ("u.live_job_id = j.id and", "", 5), "d.id = j.dag_id and", ("and u.state = 'running'", "", 1), "i.live_job_id = j.id and", "not i.is_internal and d.current_id is distinct from i.version_id or", "u.live_job_id = j.id and", "i.routed_write is null or", ("u.live_job_id = j.id and", "", 2), "and not exists (select 1 from weft.live_unit u where u.live_job_id = j.id and u.lane = '' and u.kind = 'slice')", ("u.live_job_id = j.id and", "", 4), "and u.state = 'running'", "s.live_job_id = j.id and"),
    *_of("router.next_at", "test_routing_guards::test_nobody_looks_again_before_something_may_begin_or_a_job_is_idle", "u.state = 'ready' and", "and u.run_at > weft.now()"),
    *_of("router.next_at", "test_routing_guards::test_nobody_looks_for_a_job_to_be_idle_that_will_not_be", "j.state = 'running' and", "and j.activation = 'reactive'", "and j.paused_at is null", "and exists (select 1 from weft.live_dag d where d.id = j.dag_id and d.paused_at is null)", "and d.paused_at is null", "and not exists (select 1 from weft.live_unit u where u.live_job_id = j.id and u.state = 'running')", "d.id = j.dag_id and", "u.live_job_id = j.id and", "and u.state = 'running'"),
    *_of("swapping.advance_backfill", "test_settling_guards::test_a_backfill_sees_that_its_job_drains_when_that_is_said_meanwhile", ("where o.id = backfill) for no key update", "where o.id = backfill)")),
    *_of("swapping.collect_dag", "test_settling_guards::test_who_reads_from_outside_keeps_no_job_that_has_stopped", "and i.is_internal"),
    *_of("swapping.move_live_tag", "test_settling_guards::test_the_tag_of_a_dag_is_its_own_and_moves_when_another_version_comes_into_effect", ("elsif t.target_id <> target then", "else"), "elsif not t.is_deployed then perform weft.refuse_move('there', t);"),
    *_of("swapping.settle_dag", "test_deployed_sources::test_when_a_source_looks_and_who_signs_is_changed_while_it_goes_on", "where s.live_job_id = n.live_job_id", ("in (d.version_id, d.building_id)", "= d.building_id", 2)),
    *_of("swapping.settle_dag", "test_live_guards::test_what_runs_is_not_left_out_and_what_is_not_held_is_not_tried_again", ("in (d.version_id, d.building_id)", "= d.building_id", 1)),
    *_of("swapping.settle_dag", "test_settling_guards::test_a_job_is_executed_as_the_version_in_effect_says_and_one_that_is_new_as_the_next_does", ("m.dag_version_id = d.version_id desc", "m.dag_version_id <> d.version_id desc", 1), ("m.dag_version_id = d.version_id desc", "m.dag_version_id <> d.version_id desc"), ("in (d.version_id, d.building_id)", "= d.version_id", 1), ("in (d.version_id, d.building_id)", "= d.version_id", 2)),
    *_of("swapping.settle_dag", "test_settling_guards::test_a_source_that_listens_again_is_told_what_matches_and_was_not_taken_yet", "and (s.match is null or e.payload @> s.match)", "s.live_job_id = each.live_job_id and", "on conflict do nothing"),
    *_of("swapping.settle_dag", "test_swap_guards::test_a_source_that_listens_again_is_told_what_was_sent_to_it_in_its_own_org", ("and e.name = s.event and", "and"), ("deaf_since = case when each.is_listening then weft.now() end", "deaf_since = s.deaf_since")),
    *_of("swapping.settle_dag", "test_swap_guards::test_what_is_done_to_one_dag_leaves_another_as_it_is", ("is_listening = not each.is_listening, deaf_since = case when each.is_listening then weft.now() end where s.live_job_id = each.live_job_id", "is_listening = not each.is_listening, deaf_since = case when each.is_listening then weft.now() end")),
    *_of("swapping.unit_of_partition", "test_settling_guards::test_a_partition_is_computed_anew_of_the_jobs_own_input_and_takes_no_other_unit_over", ("u.live_job_id = l.id and u.dedupe", "u.dedupe"), ("i.live_job_id = l.id and i.place", "i.place"), "and u.state in ('new', 'waiting', 'ready')", "and u.dedupe_key = w.dedupe_key"),
    *_of("router.due", "test_routing_guards::test_a_job_has_a_turn_when_it_has_done_nothing_for_long_and_runs_nothing", "j.idle_after <= weft.now() - coalesce(j.last_active_at, j.created_at) and"),
    *_of("openlineage.columns", "test_lineage_guards::test_who_follows_lineage_is_told_of_the_write_itself", ("and e.input_id = any ($3)", "and $3::bigint[] is not null")),
    # What a deploy takes and tells of, and what is shown of live DAGs.
    *_of("deploying.abandon", "test_swap_guards::test_what_is_done_to_one_dag_leaves_another_as_it_is", ("and v.id = $2", "and $2::bigint is not null")),
    *_of("deploying.begin_building", "test_swap_guards::test_what_is_done_to_one_dag_leaves_another_as_it_is", ("and d.id = $2", "and $2::bigint is not null")),
    *_of("deploying.claim_dataset", "test_deploy_guards::test_a_deploy_claims_the_datasets_that_it_writes_and_no_other", "and d.id = $2"),
    *_of("deploying.dag", "test_swap_guards::test_what_is_done_to_one_dag_leaves_another_as_it_is", ("and d.name = $2", "and $2::text is not null")),
    *_of("deploying.highest_nonces", "test_deploy_guards::test_how_often_a_job_began_anew_is_counted_in_its_own_dag", "and j.dag_id = $2"),
    *_of("deploying.is_workflow", "test_deploy_guards::test_a_name_that_a_workflow_has_is_none_for_a_dag", "or t.name = $2 || '/live'"),
    *_of("deploying.is_workflow", "test_deploy_guards::test_a_name_that_a_workflow_has_is_none_for_a_dag", "t.workflow_id = $2 or"),
    *_of("deploying.jobs_of_version", "test_deploy_guards::test_a_plan_tells_of_those_who_read_what_it_changes", "and m.dag_version_id = $2"),
    *_of("deploying.keep_version", "test_deploy_guards::test_a_job_that_comes_back_writes_the_versions_that_it_has_left", "and v.dataset_id = $2"),
    *_of("deploying.keep_version", "test_swap_guards::test_readers_see_the_datasets_of_the_version_that_comes_into_effect_and_each_version_says_what_became_of_it", ("and v.config_hash = $3", "and $3::text is not null")),
    *_of("deploying.known_handlers", "test_deploy_guards::test_who_has_gone_knows_no_handler", "and w.state in ('active', 'idle')"),
    *_of("deploying.known_handlers", "test_live_guards::test_only_workers_that_are_there_know_handlers", "h.name = any (w.handlers) or", ("and (h.name = any (w.handlers) or starts_with(h.name, $4))", "and $4::text is not null")),
    *_of("deploying.known_handlers", "test_live_guards::test_whoever_deploys_is_told_what_to_start_for_operators_that_come_with_weft", "and h.queue_id = any (w.queues)"),
    *_of("deploying.leave", "test_swap_guards::test_what_is_done_to_one_dag_leaves_another_as_it_is", ("where d.org_id = $1 and d.id = $2;", "where d.org_id = $1;"), ("and d.id = $2 and v.id in", "and v.id in")),
    *_of("deploying.outputs", "test_swap_guards::test_what_is_done_to_one_dag_leaves_another_as_it_is", "and o.live_job_id = $2"),
    *_of("deploying.put_input", "test_swap_guards::test_what_is_done_to_one_dag_leaves_another_as_it_is", ("and d.name = $4", "and $4::text is not null")),
    *_of("deploying.put_job", "test_swap_guards::test_what_is_done_to_one_dag_leaves_another_as_it_is", ("do update set actor = j.actor", "do nothing")),
    *_of("deploying.readers", "test_deploy_guards::test_a_plan_tells_of_those_who_read_what_it_changes", ("and d.name = any ($2)", "and $2::text[] is not null", 1), ("and d.name = any ($2)", "and $2::text[] is not null"), "and m.dag_version_id = g.version_id", "and not exists (select 1 from weft.live_output l where l.dataset_id = o.id)", ("and o.producer_dag <> $3", "and $3::text is not null")),
    *_of("deploying.readers", "test_live_guards::test_names_are_looked_for_in_ones_own_org_alone", ("and g.name <> $3", "and $3::text is not null")),
    *_of("deploying.version", "test_live_guards::test_only_a_version_that_was_in_effect_is_gone_back_to", ("and v.number = $3", "and $3::int is not null")),
    *_of("deploying.version", "test_deploy_guards::test_who_goes_back_goes_back_within_its_own_dag", "and v.dag_id = $2"),
    *_of("deploying.version_before", "test_deploy_guards::test_who_goes_back_goes_back_within_its_own_dag", "and v.dag_id = $2"),
    *_of("deploying.version_before", "test_live_guards::test_who_goes_back_twice_is_two_versions_back", ("order by v.number desc", "order by v.number")),
    *_of("deploying.versions_by_hash", "test_deploy_guards::test_a_plan_tells_of_those_who_read_what_it_changes", "and u.config_hash = v.config_hash"),
    *_of("looking.hides", "test_deploy_guards::test_what_comes_to_a_job_is_hidden_by_what_that_job_reads_and_writes", "where i.live_job_id = $1", "where o.live_job_id = $1"),
    *_of("looking.job", "test_deploy_guards::test_jobs_are_told_by_the_versions_that_they_are_of", "and v.number = $4", ("m.live_job_id = j.id and v.number = $4", "v.number = $4"), ("and m.dag_version_id = d.version_id) desc", ")")),
    *_of("looking.job", "test_deploy_guards::test_units_states_and_versions_are_those_that_are_asked_for", ("and d.name = $2", "and $2::text is not null")),
    *_of("looking.job", "test_swap_guards::test_backfills_and_partitions_are_those_of_the_job_that_is_asked_for", ("and j.name = $3", "and $3::text is not null")),
    *_of("looking.job_names", "test_deploy_guards::test_jobs_are_told_by_the_versions_that_they_are_of", ("and d.name = $2", "and $2::text is not null")),
    *_of("looking.jobs", "test_deploy_guards::test_a_source_is_pending_until_a_worker_of_its_queue_is_there", "and w.state in ('active', 'idle')", "j.queue_id = any (w.queues) and", "and w.until > weft.now()"),
    *_of("looking.jobs", "test_deploy_guards::test_jobs_are_shown_as_they_are_themselves", ("and (j.name, j.id) > ($3, $4)", "and $3::text is not null and $4::bigint is not null"), ("and d.name = $2", "and $2::text is not null"), "j.state <> 'stopped' or", "u.live_job_id = j.id and", "and u.state = 'running'", "or t.state = 'ready' and t.crashes > 0", "and t.crashes > 0", "i.live_job_id = j.id and", "and j.activation = 'source'", ("i.live_job_id = j.id and", "", 1)),
    *_of("looking.jobs", "test_deploy_guards::test_jobs_are_told_by_the_versions_that_they_are_of", "or exists ( select 1 from weft.dag_version_job m where m.live_job_id = j.id and m.dag_version_id in (d.version_id, d.building_id))", ("m.live_job_id = j.id and", "", 1), ("m.live_job_id = j.id and", "", 2)),
    *_of("looking.jobs", "test_live_guards::test_what_is_called_the_same_in_another_org_is_another_thing", ("and m.dag_version_id = d.version_id)", ")"), "m.live_job_id = j.id and", ("and m.dag_version_id = d.building_id)", ")")),
    *_of("looking.list", "test_deploy_guards::test_units_states_and_versions_are_those_that_are_asked_for", ("and d.name > $2", "and $2::text is not null")),
    *_of("looking.list", "test_live_guards::test_names_are_looked_for_in_ones_own_org_alone", "and ($3::text is null or d.name = $3)"),
    *_of("looking.measure", "test_deploy_guards::test_what_is_measured_is_what_could_begin_and_what_is_held", "and j.state <> 'stopped'", ("u.live_job_id = j.id and", "", 1), "u.live_job_id = j.id and", ("on j.paused_at is null and d.paused_at is null", "on true"), ("u.live_job_id = j.id and", "", 2), "and (u.run_at is null or u.run_at <= weft.now())"),
    *_of("looking.states", "test_deploy_guards::test_units_states_and_versions_are_those_that_are_asked_for", "and o.live_job_id = $2", ("and o.state_key > $3", "and $3::text is not null")),
    *_of("looking.units", "test_deploy_guards::test_units_states_and_versions_are_those_that_are_asked_for", "and u.live_job_id = $2", "and u.id > $3"),
    *_of("looking.units", "test_swap_guards::test_acts_upon_one_job_leave_the_others_as_they_are", "and ($4::text is null or u.state = $4)"),
    *_of("looking.versions", "test_deploy_guards::test_units_states_and_versions_are_those_that_are_asked_for", "and v.dag_id = $2", ("and v.number < $3", "and $3::int is not null")),
    # What sources have seen, when they tick, and which tables they follow.
    *_of("file.changed_files", "test_file_sources::test_a_file_that_is_still_written_is_waited_for", "f.tag = u.tag and"),
    *_of("file.changed_files", "test_file_sources::test_each_file_is_one_unit_and_another_when_it_changes", "f.path is null or", "and f.path = u.path"),
    *_of("file.changed_files", "test_source_guards::test_files_are_those_that_the_source_itself_has_seen", "f.live_job_id = $1 and"),
    *_of("file.gone_files", "test_file_sources::test_each_file_is_one_unit_and_another_when_it_changes", "and f.path <> all ($4::text[])"),
    *_of("file.gone_files", "test_source_guards::test_files_are_those_that_the_source_itself_has_seen", "f.live_job_id = $1 and"),
    *_of("following.follow_or_leave", "test_table_sources::test_the_trigger_is_there_while_the_source_listens_and_no_longer", ("perform weft.leave_table(old.live_job_id, old.followed);", "null;"), ("perform weft.leave_table(new.live_job_id, new.followed);", "null;")),
    *_of("following.follow_table", "test_source_guards::test_a_column_that_only_another_table_has_is_refused", "a.attrelid = table_id and"),
    *_of("following.follow_table", "test_source_guards::test_a_source_follows_its_own_table_and_may_be_told_so_twice", ("create or replace trigger", "create trigger"), ("where o.live_job_id = job; end", "; end"), ("where o.live_job_id = job for no key update", "for no key update")),
    *_of("following.follow_table", "test_table_sources::test_what_cannot_be_followed_is_refused", "when c.oid is null then 'is no table of this installation''s database: write it with its schema, such as public.orders'", "or n.nspname like 'pg\\_%'", "when c.relkind not in ('r', 'p') then 'is no table'", ("if wrong is not null then", "if false then"), "and a.attnum > 0"),
    *_of("following.leave_table", "test_source_guards::test_a_source_whose_table_was_dropped_goes_like_any_other", ("if exists (select 1 from pg_trigger t where t.tgrelid = table_id and t.tgname = 'weft_live_' || job) then", "if true then")),
    *_of("following.leave_table", "test_table_sources::test_who_inserts_does_not_fail_when_the_source_is_gone_and_the_trigger_is_not", ("lock_not_available or insufficient_privilege", "insufficient_privilege")),
    *_of("following.note_rows", "test_table_sources::test_a_column_that_comes_later_is_told_and_one_that_goes_keeps_nobody", "and not a.attisdropped"),
    *_of("following.note_rows", "test_table_sources::test_large_rows_are_few_in_a_unit", ("/ 1000000 as size", "/ 100000000000 as size")),
    *_of("following.note_rows", "test_table_sources::test_many_rows_are_a_hundred_in_a_unit_and_in_order_within_their_lane", "o.live_job_id = tg_argv[0]::bigint and", "a.attname = any (s.columns) or", "and (s.columns is null or a.attname = any (s.columns) or a.attname = s.lane[1])", "or a.attname = s.lane[1]", ("/ 100 as part", "/ 100000 as part")),
    *_of("following.note_rows", "test_table_sources::test_rows_that_are_inserted_are_units_with_their_transaction", "and a.attnum > 0", "a.attrelid = tg_relid and", "s.columns is null or"),
    *_of("source_tick.due", "test_source_guards::test_there_is_room_for_ticks_as_long_as_the_job_itself_has_some", ("u.live_job_id = j.id limit", "true limit")),
    *_of("source_tick.due", "test_source_ticks::test_what_does_not_listen_or_is_paused_does_not_tick", "l.id = s.live_job_id and", ("g.id = l.dag_id", "true")),
    *_of("source_tick.move_on", "test_source_guards::test_a_source_that_moves_on_leaves_the_others_where_they_are", "where s.live_job_id = t.live_job_id"),
    *_of("source_tick.move_on", "test_source_ticks::test_a_tick_that_was_seen_is_nobodys_when_the_source_has_moved_on_or_is_deaf_since", "for no key update of s skip locked", "on conflict do nothing"),
    *_of("source_tick.next_due", "test_source_guards::test_the_next_tick_is_one_of_a_source_that_listens", "s.is_listening and"),
    # What is told of datasets, and the tables that some are kept in.
    *_of("cache.prune", "test_cache::test_outputs_are_pruned_when_their_time_is_over_or_with_the_retention", "where c.id = old.id", "and o.made_at < (select weft.now() - $1::interval)"),
    *_of("cache.prune_notes", "test_trace_guards::test_only_what_is_long_past_is_forgotten_of_tasks_that_are_gone", "where o.task_id < (select weft.first_id_at(weft.now() - $1::interval))", "r.task_id = old.task_id and"),
    *_of("cache.shrink", "test_cache::test_where_an_org_has_too_much_what_served_longest_ago_is_forgotten", ("order by u.used_at desc, u.id desc", "order by u.used_at, u.id"), "where c.id = old.id", "where o.upto > $1::bigint"),
    *_of("diff.before", "test_dataset_diff::test_what_the_last_write_has_changed_is_told_by_partition_and_column", ("and v.number < $3", "and $3::int is not null")),
    *_of("diff.before", "test_lineage_guards::test_before_the_first_write_comes_the_last_version_that_was_written_and_is_there", "and v.dataset_id = $2", "and v.last_write > 0", "and v.collected_at is null", ("order by v.number desc", "order by v.number")),
    *_of("diff.columns", "test_dataset_diff::test_versions_and_datasets_are_compared_as_well", "and w.version_id = $2"),
    *_of("diff.columns", "test_dataset_diff::test_what_the_last_write_has_changed_is_told_by_partition_and_column", "and w.number <= $3", ("order by w.number desc", "order by w.number"), "and w.columns is not null"),
    *_of("diff.compared_partitions", "test_dataset_diff::test_versions_and_datasets_are_compared_as_well", "and f.version_id = $2", "and f.version_id = $4"),
    *_of("diff.compared_partitions", "test_lineage_guards::test_states_of_two_versions_differ_by_the_files_that_stood_then", "and f.added_by <= $3", "and f.added_by <= $5", "and (f.removed_by is null or f.removed_by > $3)", "and (f.removed_by is null or f.removed_by > $5)", "or f.removed_by > $3", "or f.removed_by > $5"),
    *_of("diff.rows", "test_dataset_diff::test_versions_and_datasets_are_compared_as_well", "and v.id = $2"),
    *_of("diff.rows", "test_dataset_diff::test_what_the_last_write_has_changed_is_told_by_partition_and_column", "and w.number > $3"),
    *_of("diff.rows", "test_lineage_guards::test_rows_and_columns_are_those_of_the_state_itself", "w.version_id = v.id and"),
    *_of("diff.touched_partitions", "test_dataset_diff::test_what_the_last_write_has_changed_is_told_by_partition_and_column", "and f.partition_key = t.partition_key", "f.added_by <= $3 and", "where c.differs", ("and f.removed_by is null offset", "offset"), ("and f.partition_key = t.partition_key", "", 1), "and (f.removed_by is null or f.removed_by > $4)", ("and f.removed_by is not null offset", "offset")),
    *_of("diff.touched_partitions", "test_lineage_guards::test_states_of_one_version_differ_by_the_files_that_stood_then", ("and f.version_id = $2", "", 2), ("and f.version_id = $2", "", 3), "and (f.removed_by is null or f.removed_by > $3)", "f.added_by <= $4 and"),
    *_of("explain.decision", "test_explain::test_of_the_same_params_it_is_told_whose_output_served", "and t.id = $2"),
    *_of("lineage.column_inputs", "test_lineage::test_columns_are_made_of_what_is_said_of_them", "and e.output_id = u.id", 'and e.output_column = u."column"'),
    *_of("lineage.column_inputs", "test_lineage::test_what_was_deleted_has_no_name_any_more_until_it_is_back", "d.deleted_at is not null or", "and d.deleted_at is null"),
    *_of("lineage.column_inputs", "test_lineage_guards::test_what_is_made_of_other_things_that_may_not_be_seen_is_no_concern_of_this", ("and e.output_id = u.id", "", 1), ('and e.output_column = u."column"', "", 1)),
    *_of("lineage.column_outputs", "test_lineage::test_columns_are_made_of_what_is_said_of_them", 'and e.input_column = u."column"'),
    *_of("lineage.column_outputs", "test_lineage::test_what_may_not_be_seen_has_no_name_and_leads_nowhere", ('and e.input_column = u."column"', "", 1), "and e.input_id = u.id"),
    *_of("lineage.column_outputs", "test_lineage_guards::test_what_is_made_of_other_things_that_may_not_be_seen_is_no_concern_of_this", ("and e.input_id = u.id", "", 1)),
    *_of("lineage.column_outputs", "test_lineage_guards::test_what_was_made_of_it_and_deleted_has_no_name_any_more", "and d.deleted_at is null", "d.deleted_at is not null or"),
    *_of("lineage.has_column_edges", "test_lineage::test_columns_are_made_of_what_is_said_of_them", "and e.output_column = $3"),
    *_of("lineage.has_column_edges", "test_lineage_guards::test_a_column_is_known_by_edges_of_its_own_dataset", "and e.output_id = $2", "and e.input_id = $2", "and e.input_column = $3"),
    *_of("lineage.has_more_files", "test_lineage_guards::test_only_files_of_the_state_itself_are_too_many", "and f.version_id = u.version_id", "and f.added_by <= u.write"),
    *_of("lineage.inputs", "test_lineage::test_a_lineage_goes_both_ways_as_far_as_is_asked_for", "and e.output_id = any ($2)", "and d.id = e.input_id"),
    *_of("lineage.inputs", "test_lineage::test_what_may_not_be_seen_has_no_name_and_leads_nowhere", ("and e.output_id = any ($2)", "", 1)),
    *_of("lineage.inputs", "test_lineage::test_what_was_deleted_has_no_name_any_more_until_it_is_back", "d.deleted_at is not null or", "and d.deleted_at is null"),
    *_of("lineage.inputs", "test_lineage_guards::test_what_is_made_of_other_things_that_may_not_be_seen_is_no_concern_of_this", ("and d.id = e.input_id", "", 1)),
    *_of("lineage.outputs", "test_lineage::test_a_lineage_goes_both_ways_as_far_as_is_asked_for", "and e.input_id = any ($2)", "and d.id = e.output_id"),
    *_of("lineage.outputs", "test_lineage::test_what_may_not_be_seen_has_no_name_and_leads_nowhere", ("and e.input_id = any ($2)", "", 1)),
    *_of("lineage.outputs", "test_lineage::test_what_was_deleted_has_no_name_any_more_until_it_is_back", "d.deleted_at is not null or"),
    *_of("lineage.outputs", "test_lineage_guards::test_what_is_made_of_other_things_that_may_not_be_seen_is_no_concern_of_this", ("and d.id = e.output_id", "", 1)),
    *_of("lineage.outputs", "test_lineage_guards::test_what_was_made_of_it_and_deleted_has_no_name_any_more", "and d.deleted_at is null"),
    *_of("lineage.state_inputs", "test_lineage::test_a_state_is_made_of_all_writes_whose_rows_are_in_it", "f.removed_by is null or", "or f.removed_by > u.write"),
    *_of("lineage.state_inputs", "test_lineage::test_a_state_is_made_of_the_exact_states_that_were_read", "and f.added_by <= u.write", "and i.number = m.added_by", "and f.version_id = u.version_id", "i.version_id = m.version_id and"),
    *_of("lineage.state_inputs", "test_lineage::test_what_may_not_be_seen_has_no_name_and_leads_nowhere", ("i.version_id = m.version_id and", "", 1)),
    *_of("lineage.state_inputs", "test_lineage::test_what_was_deleted_has_no_name_any_more_until_it_is_back", "and d.deleted_at is null", "d.deleted_at is not null or"),
    *_of("lineage.state_inputs", "test_lineage_guards::test_a_write_that_brought_no_rows_is_made_of_what_was_read_for_it", "union select u.version_id, u.write, u.write from unnest($2::bigint[], $3::bigint[]) as u (version_id, write)"),
    *_of("lineage.state_inputs", "test_lineage_guards::test_of_a_state_it_is_told_who_made_it_and_when", "and w.number = i.input_write"),
    *_of("lineage.state_inputs", "test_lineage_guards::test_what_is_made_of_other_things_that_may_not_be_seen_is_no_concern_of_this", ("and i.number = m.added_by", "", 1)),
    *_of("lineage.state_outputs", "test_lineage::test_a_state_is_made_of_the_exact_states_that_were_read", "and i.input_write = u.write", "i.input_version_id = u.version_id and"),
    *_of("lineage.state_outputs", "test_lineage::test_what_may_not_be_seen_has_no_name_and_leads_nowhere", ("i.input_version_id = u.version_id and", "", 1)),
    *_of("lineage.state_outputs", "test_lineage_guards::test_of_a_state_it_is_told_who_made_it_and_when", "and w.number = i.number"),
    *_of("lineage.state_outputs", "test_lineage_guards::test_what_is_made_of_other_things_that_may_not_be_seen_is_no_concern_of_this", ("and i.input_write = u.write", "", 1)),
    *_of("lineage.state_outputs", "test_lineage_guards::test_what_was_made_of_it_and_deleted_has_no_name_any_more", "and d.deleted_at is null", "d.deleted_at is not null or"),
    *_of("lineage.write", "test_lineage_guards::test_of_a_state_it_is_told_who_made_it_and_when", "and w.version_id = $2", ("and w.number = $3", "and $3::bigint is not null")),
    *_of("openlineage.columns", "test_lineage_guards::test_who_follows_lineage_is_told_of_the_write_itself", "and e.output_id = $2"),
    *_of("openlineage.event", "test_lineage_guards::test_who_follows_lineage_is_told_of_the_write_itself", "and e.name = 'dataset.written'"),
    *_of("openlineage.inputs", "test_lineage_guards::test_who_follows_lineage_is_told_of_the_write_itself", ("and i.number = $3", "and $3::bigint is not null"), "and i.version_id = $2"),
    *_of("openlineage.write", "test_lineage_guards::test_who_follows_lineage_is_told_of_the_write_itself", ("o.slug = $1 and", "$1::text is not null and"), ("and w.number = $4", "and $4::bigint is not null"), "t.id = w.task_id and", ("and v.number = $3", "and $3::int is not null")),
    *_of("openlineage.write", "test_openlineage::test_each_write_is_told_with_its_datasets_and_columns", ("and d.name = $2", "and $2::text is not null"), "and v.dataset_id = d.id"),
    *_of("outputs.find_output", "test_cache::test_that_an_output_served_is_noted_once_an_hour", ("if each.used_at < at - interval '1 hour' then", "if true then")),
    *_of("outputs.find_output", "test_explain::test_what_differs_in_the_params_and_in_the_code_is_told", "c.key = wanted and", "and r.args = same"),
    *_of("outputs.find_output", "test_trace_guards::test_an_earlier_task_is_told_of_when_it_is_of_the_same_handler_and_node", "and r.handler = mine.handler", "and r.node = mine.node"),
    *_of("publishing.publish_write", "test_lineage::test_a_dataset_says_since_when_it_is_made_of_another_and_a_column_when_it_was_last", ("on conflict (org_id, output_id, output_column, input_id, input_column) do update set job_id = excluded.job_id, last_at = excluded.last_at", "on conflict do nothing")),
    *_of("publishing.publish_write", "test_lineage::test_a_state_is_made_of_the_exact_states_that_were_read", ("order by i.dataset_id on conflict do nothing", "order by i.dataset_id")),
    *_of("publishing.publish_write", "test_openlineage::test_each_write_is_told_with_its_datasets_and_columns", "perform weft.tell_write(v, named, n, case when is_replacing then 'replace' else 'append' end, touched, rows_in, done.actor);"),
    *_of("publishing.publish_write", "test_output_traces::test_who_replaced_a_partition_minds_that_alone", "and staged.seen is null"),
    *_of("publishing.publish_writes", "test_publish_locks::test_who_publishes_waits_for_a_dataset_before_it_holds_a_version", ("order by d.id for key share", "order by d.id"), ("order by d.id for no key update", "order by d.id")),
    *_of("publishing.register_files", "test_dataset_outside::test_ranges_and_globs_are_versions_of_their_own", ("f.version_id = version and f.removed_by is null group", "f.removed_by is null group"), ("where p.version_id = version;", ";")),
    *_of("publishing.register_files", "test_dataset_outside::test_what_is_registered_is_read_and_what_comes_later_is_not", "perform weft.tell_write(v, named, n, 'register', touched, rows_in, by);"),
    *_of("publishing.register_files", "test_registering_guards::test_a_registration_touches_its_own_version_alone", ("f.version_id = version and f.removed_by is null;", "f.removed_by is null;"), ("and f.removed_by is null group", "group"), ("and f.removed_by is null;", ";"), ("where p.version_id = version returning", "returning")),
    *_of("publishing.register_files", "test_registering_guards::test_it_is_known_when_something_was_taken_away_and_the_columns_have_changed", ("case when hash is distinct from v.schema_hash then n else v.columns_by end", "n"), ("case when hash is distinct from v.schema_hash then n else v.columns_by end", "v.columns_by"), "lost_by = n,"),
    *_of("registering.add", "test_registering_guards::test_each_range_of_each_dataset_is_a_version_of_its_own", ("and d.id = $2", "and $2::bigint is not null")),
    *_of("registering.current_columns", "test_registering_guards::test_columns_must_fit_those_that_readers_of_the_dataset_see", "and d.id = $2"),
    *_of("registering.registered", "test_dataset_outside::test_a_dataset_is_written_by_tasks_or_by_others_and_not_by_both", "and v.dataset_id = $2"),
    *_of("registering.registered", "test_registering_guards::test_each_range_of_each_dataset_is_a_version_of_its_own", ("and v.range_start is not distinct from $4", "and $4::bigint is not distinct from $4"), ("and v.range_end is not distinct from $5", "and $5::bigint is not distinct from $5")),
    *_of("tables.add_rows", "test_table_guards::test_two_who_begin_at_once_make_one_table_and_add_a_column_once", "a.attrelid = to_regclass(kept_in) and"),
    *_of("tables.add_rows", "test_table_guards::test_values_come_back_as_they_were_whatever_the_session_says", "set timezone = 'UTC'"),
    *_of("tables.data_table", "test_table_guards::test_a_table_is_that_of_a_version_of_ones_own_org_which_is_kept_in_the_database", ("found.kind is distinct from 'postgres'", "false"), "and v.org_id = coalesce(weft.current_org(), v.org_id)"),
    *_of("tables.drop_rows", "test_table_guards::test_only_rows_of_the_file_or_the_write_that_is_said_are_dropped", "t._write = $1 and", "and (t._file = $2 or $2 is null)", "t._file = $2 or", "or $2 is null", ("if to_regclass(kept_in) is not null then", "if true then")),
    *_of("tables.drop_table", "test_table_guards::test_only_the_table_of_a_version_that_was_collected_is_dropped", "and v.collected_at is not null", "v.id = version and"),
    *_of("tables.prepare_table", "test_table_guards::test_a_column_is_added_once_to_its_own_table_and_never_changes_its_type", "type is null or", ("replace(replace(known, ' without time zone', ''), 'timestamp with time zone', 'timestamptz') <> type", "false"), "a.attrelid = to_regclass(kept_in) and", ("a.attrelid = to_regclass(kept_in) and", "", 1), ("type !~ '^(boolean|smallint|integer|bigint|real|double precision|text|bytea|date|time|timestamp|timestamptz|numeric\\(\\d{1,3},\\d{1,3}\\))$'", "false")),
    *_of("tables.prepare_table", "test_table_guards::test_two_who_begin_at_once_make_one_table_and_add_a_column_once", "and a.attname = name", ("and a.attname = name", "", 1)),
    *_of("tables.prepare_table", "test_table_guards::test_two_who_begin_at_once_make_one_table_and_add_a_column_once", "perform pg_advisory_xact_lock(hashtextextended('weft.prepare_table ' || version, 0));", ("create table if not exists", "create table"), ("add column if not exists", "add column")),
    *_of("tables.prepare_table", "test_table_guards::test_who_finds_all_columns_there_holds_nobody_up", ("if to_regclass(kept_in) is null then", "if true then"), ("if known is null then", "if true then")),
    *_of("tables.rows_of", "test_table_guards::test_rows_are_those_of_the_files_that_are_said_in_their_order", ("known <> cardinality(names)", "false"), "and t._file = f.number", "t._write = f.write and", "where t._row > $3", "order by t._row", "limit $4", ("if to_regclass(kept_in) is null then return; elsif", "if")),
    *_of("tables.rows_of", "test_table_guards::test_values_come_back_as_they_were_whatever_the_session_says", "set datestyle = 'ISO, YMD'", "set extra_float_digits = 1"),
    *_of("tables.show_table", "test_dataset_tables::test_a_view_shows_what_readers_see_and_nobody_else_may_read_it", ("raise exception 'dataset %: other views are made of its view, and need the columns that it has', found.name using errcode = 'WF007'", "null")),
    *_of("tables.show_table", "test_dataset_tables::test_a_view_that_is_being_read_holds_nobody_up", ("raise exception 'dataset %: somebody reads through its view', found.name using errcode = 'WF007'", "null"), "set lock_timeout = '2s'"),
    *_of("tables.show_table", "test_table_guards::test_a_view_is_there_while_its_dataset_is_and_there_is_something_to_show", "and d.org_id = coalesce(weft.current_org(), d.org_id)", "or found.deleted_at is not null", "or not is_shown", ("when undefined_table or undefined_column then", "when division_by_zero then"), "found.columns is null or"),
    *_of("tables.show_table", "test_table_guards::test_a_view_shows_the_rows_of_the_files_that_stand", "and f.removed_by is null", "and f.path = t._write || ''-'' || t._file || ''.rows''", "and a.privilege_type = 'SELECT'"),
    *_of("tables.show_table", "test_table_guards::test_datasets_whose_names_begin_alike_have_views_of_their_own", ("if octet_length(named) > 63 then", "if false then")),
    *_of("tables.show_table", "test_table_guards::test_nothing_is_shown_of_what_is_kept_in_files", ("found.kind is distinct from 'postgres'", "false")),
    *_of("upkeep.prune_inputs", "test_trace_guards::test_only_what_is_long_past_is_forgotten_of_tasks_that_are_gone", "o.task_id < (select weft.first_id_at(weft.now() - $1::interval)) and", "i.task_id = old.task_id and"),
    *(guard for name in (
        "following.follow_or_leave", "following.follow_table", "following.leave_table", "following.note_rows", "tables.add_rows", "tables.data_table",
        "tables.drop_rows", "tables.drop_table", "tables.prepare_table", "tables.rows_of", "tables.show_table",
    ) for guard in _of(name, "test_sql_rights::test_whatever_acts_with_the_owners_rights_looks_for_names_where_only_the_owner_puts_them", "set search_path = pg_catalog, pg_temp")),
    *_of("tables.tables_are_granted", "test_walls::test_nothing_that_acts_with_the_owners_rights_acts_for_another_org", "weft.data_table,", "weft.prepare_table,", "weft.add_rows,", "weft.rows_of,", "weft.drop_rows,", "weft.drop_table,", ", weft.show_table"),
    *_of("following.only_sources_follow", "test_walls::test_nothing_that_acts_with_the_owners_rights_acts_for_another_org", ", weft.follow_or_leave"),
    *_of("following.source_follows", "test_deployed_sources", "when (new.kind = 'table')"),
    # Of Python: who may send without a token, whose dataset files are registered as, and which events tell of writes.
    *_of("hooks._require_now", "test_hooks", ("abs(now.timestamp() - int(time)) > said.tolerance", "False"), ("not (time.isascii() and time.isdigit() and len(time) <= 12)", "False")),
    *_of("hooks.verify", "test_hooks", ("not _is_signed(secrets, signed, candidates[:_MOST_SIGNATURES], kind)", "False"),
         ("[told.removeprefix(prefix)] * told.startswith(prefix)", "[told.removeprefix(prefix)]"), ('_require_now(times[0] if times else "", said, now)', "pass"),
         ("_require_now(time, said, now)", "pass"), ('if name == "v1"', ""), ('if each.startswith("v1,")', "")),
    *_of("hooks._is_signed", "test_hooks", ('found |= hmac.compare_digest(told.encode("utf-8", "replace"), expected)', "found = True")),
    *_of("hooks.secrets_of", "test_hooks", "not found or", ("or any(len(secret) < SHORTEST_SECRET for secret in found)", "")),
    *_of("hooks._header", "test_hooks", ("if not (found := headers.get(name.lower())):", 'if (found := headers.get(name.lower(), "")) is None:')),
    *_of("outside._require_outside", "test_dataset_outside::test_a_dataset_is_written_by_tasks_or_by_others_and_not_by_both",
         ('(row["producer_dag"], row["producer_node"]) != mine', "False"), ('orjson.loads(row["storage"]) != STORAGE', "False")),
    *_of("writes.note_of", "test_lineage_guards::test_who_follows_lineage_is_told_of_the_write_itself",
         ('not isinstance(told, dict) or not all(isinstance(told.get(name), int) for name in ("version", "write"))', "False"), ('not isinstance(told.get("dataset"), str)', "False")),
    *_of("living.offer_events", "test_turn_guards::test_only_a_source_that_is_in_effect_and_would_be_told_keeps_anybody_from_sending", "s.org_id = e.org_id and", "s.event = e.name and", "and not exists (select 1 from weft.dag_version_job m where m.dag_version_id = d.version_id and m.live_job_id = j.id)"),
    *_of("living.publish_live", "test_turn_guards::test_receivers_are_told_by_what_is_in_effect_alone", "and (d.version_id is null or exists (select 1 from weft.dag_version_job m where m.dag_version_id = d.version_id and m.live_job_id = j.id))", "d.version_id is null or"),
    *_of("living.publish_live", "test_turn_guards::test_what_is_published_changes_its_own_job_task_and_key_alone", ("coalesce(o.caught_up_at, weft.now())", "weft.now()")),
    *_of("living.route_input", "test_turn_guards::test_an_input_from_outside_follows_the_version_that_is_current_and_one_of_the_dag_its_own", "not i.is_internal and", ("where n.live_job_id = l.id and n.place = at_place;", "where n.live_job_id = l.id;", 1)),
    *_of("living.route_input", "test_turn_guards::test_no_more_is_asked_for_than_there_is_room_for_in_the_backlog", "and (i.boot_after is null or p.partition_key > i.boot_after)", ("order by p.partition_key limit room", "order by p.partition_key"), ("routed_write = case when made < room then i.boot_write end", "routed_write = i.boot_write"), ("boot_after = coalesce(last_key, i.boot_after)", "boot_after = i.boot_after"), ("p.version_id = o.id and (i.boot_after", "(i.boot_after")),
    *_of("living.turn_live_job", "test_turn_guards::test_a_turn_touches_no_unit_of_another_job_and_is_held_up_by_none", ("u.live_job_id = job and u.state = 'held' and not exists", "u.state = 'held' and not exists"), ("u.live_job_id = job and u.state = 'waiting' and u.lane is not null", "u.state = 'waiting' and u.lane is not null")),
    *_of("living.turn_live_job", "test_turn_guards::test_what_failed_of_a_partition_goes_when_that_alone_comes_anew", ("and u.state = 'held' and not exists (select 1 from weft.task t where t.id = u.task_id) and exists", "and u.state = 'held' and exists"), ("n.live_job_id = job and n.lane", "n.lane")),
    *_of("living.turn_live_job", "test_turn_guards::test_no_more_is_asked_for_than_there_is_room_for_in_the_backlog", "exit when open_units >= l.max_backlog;", ("least(room, l.max_backlog - open_units)", "room"), ("open_units := open_units + settled;", "null;"), ("elsif exists (select 1 from weft.live_input n where n.live_job_id = job and n.place > at_place) then", "elsif false then")),
    *_of("living.turn_live_job", "test_turn_guards::test_what_is_done_keeps_nothing_waiting_however_much_there_is_of_it", ("and u.lane is null and u.state <> 'done'", "and u.lane is null"), ("where u.live_job_id = job and u.state <> 'done'; end if", "where u.live_job_id = job; end if")),
    *_of("living.turn_live_job", "test_turn_guards::test_a_unit_without_a_lane_comes_after_all_before_it_and_before_all_after_it", ("and u.state in ('new', 'waiting')) c", ") c")),
    *_of("living.turn_live_job", "test_turn_guards::test_no_more_units_run_than_may_and_no_more_begin_than_there_is_room_for", ("if is_asked and running < l.max_concurrency", "if is_asked")),
    # --- graphs ---
    *_of("graph.job_of", "test_groups", "j.org_id = $1 and"),
    *_of("graph.look_at", "test_groups", "and t.job_id = $2", "and d.job_id = $2"),
    *_of("graph.health", "test_orchestration", "w.org_id = $1 and", ("w.org_id = $1 and", "", 1)),
    *_of("graph.one_adds", "test_adding",
         ("pg_advisory_xact_lock(hashtextextended('weft.graph ' || $1::bigint, 0))", "1")),
    *_of("graph.lock_before", "test_adding", "for share"),
    *_of("graph.lock_after", "test_adding", "for no key update"),
    *_of("graph.going_on", "test_adding", "for share"),
    *_of("graph.going_on", "test_adding test_groups", "and j.state in ('pending', 'running', 'paused')"),
    *_of("graph.wait_longer", "test_job_guards", "+ u.reached"),
    *_of("step.end_jobs", "test_job_guards", ("case when m.verdict is null then e.output end", "e.output")),
    *_of("step.fail_next", "test_job_guards",
         "queue_id = case when t.handler = '@end' then weft.control_queue(t.job_id) else t.queue_id end,"),
    *_of("step.reach_next", "test_job_guards",
         ("and t.concurrency_key is null then at + t.dispatch_timeout end", "then at + t.dispatch_timeout end")),
    *_of("graph.wait_longer", "test_groups test_adding", "+ u.more",
         ("case when u.more > 0 then 'pending'::weft.task_state else t.state end", "t.state")),
    *_of("spawned.spawn", "test_job_guards", "and j.state in ('pending', 'running', 'paused')",
         ("coalesce(of.counts_for, parent)", "parent")),
    *_of("spawned.spawn", "test_spawn", "and t.attempt = parent_attempt", "and coalesce(t.worker_id, 0) = me",
         "and k.key = parent || ' ' || call", ("set waiting_on = t.waiting_on + 1", "set waiting_on = t.waiting_on")),
    *_of("loan.admit_waiting", "test_key_loans", ("rooms[place.p] := rooms[place.p] - place.n;", "null;"),
         ("taken[place.p] + place.n", "place.n")),
    *_of("loan.return_loans", "test_key_loans", "and l.is_wanted", "skip locked", "limit u.room", "and l.key = u.key"),
    *_of("loan.lend_key", "test_key_loans", "and coalesce(t.worker_id, 0) = me", "and t.attempt = its_attempt",
         "and t.state = 'running'", "and t.concurrency_key is distinct from '@' || t.parent_id",
         "update weft.task t set concurrency_key = null where t.id = task;"),
    *_of("loan.take_key", "test_key_loans", "and coalesce(t.worker_id, 0) = me", "and t.attempt = its_attempt",
         "and t.state = 'running'", "and s.held < coalesce(s.max_running, q.max_running_per_key, 2147483647)",
         "update weft.key_loan l set is_wanted = true where l.task_id = task and not l.is_wanted;"),
    *_of("loan.end_loans", "test_key_loans", "and t.state = 'ready'"),
    *_of("lending.forget", "test_key_loans", "where not exists (select 1 from weft.task t where t.id = l.task_id)"),
    *_of("step.note_failed", "test_job_graphs", "and not d.allow_failure", ("filter (where d.allow_failure)", "", 0)),
    *_of("step.fail_job", "test_job_graphs", ("not job.finishes_independent or", "true or"),
         ("coalesce(j.verdict, 'failed')", "j.verdict")),
    *_of("step.fail_job", "test_job_races", "and not is_counted",
         "and coalesce(t.worker_id, 0) = me", "and t.attempt = in_attempt", "and t.state = 'running'"),
    *_of("step.fail_next", "test_job_races", ("and t.state = 'pending';", ";")),
    *_of("skipping.skip_by_step", "test_job_leftovers", "and coalesce(t.worker_id, 0) = me", "and t.attempt = in_attempt",
         "and t.state = 'running'", ("if again then", "if false then"), "and t.waiting_on = 0",
         "and t.reason is not distinct from nullif(why, 'branch_not_taken')"),
    *_of("step.note_failed", "test_job_leftovers", ", 'again', true"),
    *_of("upkeep.prune_keys", "test_job_leftovers", "and not exists (select 1 from weft.job j where j.id = k.job_id)"),
    *_of("step.begin_jobs", "test_job_leftovers", ("weft.lasting_queue(t.queue_id)", "t.queue_id")),
    *_of("job.wait_for_claims", "test_job_leftovers", "for key share"),
    *_of("task.purge", "test_job_leftovers", "and not exists (select 1 from weft.job j where j.id = c.job_id)"),
    *_of("task.count_purgeable", "test_job_leftovers", "and not exists (select 1 from weft.job j where j.id = c.job_id)"),
    *_of("task.cancel", "test_job_leftovers", "and t.handler not in ('@end', '@fail', '@skip', '@sweep')"),
    *_of("step.begin_jobs", "test_job_leftovers", ", expires_at = null"),
    *_of("step.resume_job", "test_job_leftovers", "and t.concurrency_key is null"),
    *_of("step.note_failed", "test_job_races", ("case when d.is_step then d.handler else '@fail' end", "'@fail'"),
         ("when d.is_step then d.params", ""), ("filter (where d.state = 'cancelled')", "filter (where false)")),
    *_of("step.skip_tasks", "test_job_races", ("weft.lasting_queue(queue_id)", "queue_id")),
    *_of("step.sweep_job", "test_job_races", ("or t.state = 'pending'", "", 0), ("or t.state = 'pending'", "", 1),
         ("weft.lasting_queue(queue_id)", "queue_id"), "delete from weft.awaited a where a.task_id = any (batch);",
         ("order by s.queue_id, s.key for update", "order by s.queue_id, s.key")),
    *_of("step.end_jobs", "test_job_races", ("order by t.id for update", "order by t.id")),
    *_of("step.resume_job", "test_job_races", "for no key update"),
    *_of("job.hold_end", "test_job_races", "for no key update"),
    *_of("task.cancel", "test_job_races", ("weft.lasting_queue(queue_id)", "queue_id")),
    *_of("step.sweep_job", "test_jobs", "and t.id <> job.end_id"),
    *_of("step.sweep_job", "test_job_guards", ("or job.state <> 'cancelling'", "")),
    *_of("step.begin_jobs", "test_jobs", ("and j.state = 'paused'", "and false"), ("and t.job_id = any (paused)", "and false")),
    *_of("step.begin_jobs", "test_job_guards", ("j.state in ('pending', 'paused') or", ""), "for share"),
    *_of("step.begin_jobs", "test_job_races", ("j.state in ('pending', 'paused')", "j.state = 'pending'")),
    *_of("step.resume_job", "test_job_guards", "and j.state = 'paused'", ("j.org_id = org and", "", 1)),
    *_of("step.resume_job", "test_jobs", ("and t.reason = 'job_paused'", "and false", 1)),
    *_of("step.end_late_jobs", "test_jobs", ("j.timeout_at < (select weft.now())", "false")),
    *_of("step.end_late_starts", "test_jobs", ("t.expires_at < (select weft.now())", "true"), "and t.state = 'ready'",
         "and j.state = 'paused'"),
    *_of("step.end_late_waits", "test_jobs", ("t.expires_at < (select weft.now())", "false"),
         ("case when late.skips then 'skipped' else 'failed' end", "'failed'")),
    *_of("step.answer", "test_job_guards", "and t.state = 'waiting'"),
    *_of("step.begin_wait", "test_job_guards", "and e.payload @> match", "e.org_id = of.org_id and", "and e.name = event",
         "and e.at >= (select j.created_at from weft.job j where j.id = of.job_id)",
         "perform weft.lock_event(of.org_id, event);"),
    *_of("step.route_event", "test_job_guards", "a.org_id = told.org_id and", "and told.payload @> a.match",
         "a.event = told.name and"),
    *_of("step.route_event", "test_sent_events",
         ("where (select j.created_at from weft.job j where j.id = w.job_id) <= told.at", "")),
    *_of("step.send_events", "test_job_guards",
         ("perform weft.lock_event(org, n.name) from (select distinct u.name from unnest(names) as u (name) order by u.name) n;", "")),
    *_of("step.send_events", "test_event_sources", ("f.org_id = org and", "")),
    *_of("job.send_events", "test_event_sources", "where e.is_new"),
    *_of("step.skip_tasks", "test_job_guards", "and t.state in ('pending', 'ready')", ("if keys is not null then", "if false then"),
         ("filter (where concurrency_key is not null and state = 'ready'), "
          "array_agg(concurrency_key) filter (where concurrency_key is not null and state = 'ready')",
          "filter (where concurrency_key is not null), array_agg(concurrency_key) filter (where concurrency_key is not null)")),
    *_of("step.cancel_children", "test_jobs", ("j.parent_id = any (parents)", "false")),
    *_of("step.wait_for_answer", "test_job_guards", "and t.state = 'running'", "and t.attempt = in_attempt",
         "and coalesce(t.worker_id, 0) = me"),
    *_of("step.add_children", "test_job_guards", "and t.attempt = parent_attempt", "and coalesce(t.worker_id, 0) = me",
         "and t.state = 'running'", "and j.state in ('pending', 'running', 'paused')"),
    *_of("artifact.keep", "test_jobs", "a.org_id = $1 and", "and a.digest = $3", "a.workflow_id = $2 and"),
    *_of("owner.hand_over", "test_job_races", ("j.owner_id = gone", "true"), ("and t.queue_id = -gone", "")),
    *_of("owner.adopt_jobs", "test_job_owners", "and w.until > weft.now()",
         ("not exists (select 1 from weft.worker w where w.id = gone)", "true")),
    *_of("step.put_job", "test_jobs", "k.org_id = job.org_id and"),
    *_of("task.replay", "test_jobs", "and d.job_id is null"),
    *_of("step.show_jobs", "test_jobs", "j.org_id = org and"),
    *_of("job.cancel", "test_jobs", "j.org_id = $1 and"),
    *_of("job.cancel", "test_job_guards", "and j.state in ('pending', 'running', 'paused')"),
    *_of("job.pause", "test_jobs", "j.org_id = $1 and", "and j.state in ('pending', 'running')"),
    *_of("lists.scan_newest_jobs", "test_job_lists", "d.org_id = org and", "l.org_id = org and", "and j.org_id = org",
         ("(j.org_id, j.id) > (org, low)", "j.id > low")),
    *_of("drawing.choices", "test_graphs", "d.job_id = $2 and"),
    *_of("drawing.items", "test_graphs", "and t.item > $4", "and d.item > $4", "and t.parent_id = $3", "and d.parent_id = $3"),
    *_of("lists.look_at_jobs", "test_job_lists", ("k.state = any (asked.states)", "true")),
    *_of("sealing.acts_on_task", "test_walls", ("org is distinct from coalesce", "false and org is distinct from coalesce")),
    *_of("lists.list_jobs", "test_walls", ("org is distinct from coalesce", "false and org is distinct from coalesce")),
    *_of("job.completed_items", "test_reruns", "and c.state = 'completed'"),
    *_of("rerun.job", "test_job_guards", "d.org_id = $1 and"),
    *_of("rerun.current_codes", "test_reruns", "w.org_id = $1 and", "c.org_id = $1 and",
         "and w.state in ('active', 'idle')", "and w.until > (select weft.now())"),
    *_of("rerun.items", "test_reruns", "and c.state = 'completed'"),
    *_of("rerun.lock", "test_reruns", ("select pg_advisory_xact_lock(hashtextextended('weft.rerun', $1))", "select $1::bigint")),
    *_of("rerun.candidates", "test_reruns", "d.org_id = $1 and", "and d.parent_id is null", "and d.id <= $8",
         "and not exists (select 1 from weft.job_done r where r.rerun_of = d.id)"),
    *_of("kept.keep_tasks", "test_rerun_kill", ("if written < cardinality(ids) then return false; end if;", "")),
    *_of("kept.keep_tasks", "test_reruns", ("case when u.kept is not null then coalesce(u.made, o.output) end", "o.output")),
    *_of("job.approvals", "test_jobs", "a.org_id = $1 and"),
    *_of("job.approvals", "test_job_guards", "and a.kind = 'approval'"),
    *_of("job.approvals_of", "test_jobs", "a.org_id = $1 and"),
    *_of("job.approvals_of", "test_job_guards", "and a.kind = 'approval'", "and a.job_id = $2"),
    *_of("upkeep.prune_inputs", "test_datasets_attacked", "and not exists (select 1 from weft.task t where t.id = o.task_id)",
         "and not exists (select 1 from weft.task_done d where d.id = o.task_id)"),
    *_of("upkeep.prune_edges", "test_job_retention", "and not exists (select 1 from weft.task t where t.id in (page.prev, page.next))"),
    *_of(
        "upkeep.prune_events", "test_job_retention",
        "and o.id < (select coalesce(min(j.id) - (3600000::bigint << 22), 9223372036854775807) from weft.job j)",
    ),
    *_of("upkeep.count_made", "test_metrics", "and t.queue_id > 0 and t.queue_id <> 2", "and d.queue_id > 0 and d.queue_id <> 2"),
    *_of("upkeep.fold_tallies", "test_metrics", "and not exists (select 1 from pg_stat_activity a where a.pid = t.process)"),
    # --- hints ---
    *_of("function.free_slots", "test_hints", "perform weft.hint(woken);"),
    *_of("step.reach_next", "test_wakeups", "perform weft.hint(woken);"),
    *_of("function.hint_one", "test_hints test_wakeups", "queue = any (w.queues) and",
         ("w.state in ('active', 'idle') and", ""), "w.until > weft.now() and", "and not w.saturated",
         "and w.id <> except_worker", "w.blocked,"),
    *_of("queue.with_ready", "test_hints", "and q.paused_at is null", "t.state = 'ready' and", "and t.queue_id = q.id"),
    # --- keys ---
    *_of("task.known_keys", "test_idempotency", "k.org_id = $1 and", "k.handler = r.handler and", "and k.key = r.key"),
    # --- claims ---
    *_of(
        "step.finish_and_claim", "test_claims test_key_slots",
        ("and w.state in ('active', 'idle')", ""),
        ("for share", ""),
        ("q.paused_at is not null or", ""),
        ("or u.room < 0 and q.max_running is not null", ""),
        ("t.state = 'ready' and t.queue_id = queues[i]", "t.queue_id = queues[i]", 0),
        ("t.state = 'ready' and t.queue_id = queues[i]", "t.queue_id = queues[i]", 1),
        ("and t.queue_id = queues[i]", "", 0), ("and t.queue_id = queues[i]", "", 1),
        ("limit room", "", 0), ("limit room", "", 1),
        ("for update skip locked", "", 0), ("for update skip locked", "for update", 0),
        ("wanted - cardinality(got)", "wanted", 0), ("wanted - cardinality(got)", "wanted", 1),
    ),
    *_of(
        "step.finish_and_claim", "test_key_slots",
        ("and cardinality(queues) = 1", ""), ("and queues[1] = all (freed_queues)", ""),
        ("least(wanted, rooms[1])", "wanted"),
        ("rooms[1] := rooms[1] - cardinality(got);", ""),
        ("if cardinality(got) < cardinality(admitted) then", "if false then"),
    ),
    *_of(
        "function.first_in_line", "test_key_slots",
        ("cardinality(admitted) <= room and not exists", "not exists"),
        ("t.state = 'ready' and t.queue_id = queue and (t.rank, t.order_id, t.id) > (low_rank::smallint, low_order, low_mark)",
         "false", 0),
        ("t.state = 'ready' and t.queue_id = queue and (t.rank, t.order_id, t.id) > (low_rank::smallint, low_order, low_mark)",
         "false", 1),
        ("b.is_admitted and", ""), ("and b.place <= room", ""),
    ),
    *_of("function.share_out", "test_claims test_order",
         ("t.state = 'ready' and", ""), ("limit least(wanted, u.room)", ""), ("limit wanted", ""),
         ("and (t.rank, t.order_id, t.id) > (u.rank, u.order_id, u.mark)", "")),
    *_of(
        "loan.admit_waiting", "test_key_slots test_graph",
        "and t.reason = 'concurrency_key'", "t.queue_id = u.queue_id and", "and t.concurrency_key = u.key",
        ("limit u.room", ""), ("limit u.room for update", "limit u.room"), ("for update of s", ""),
        ("greatest(0, l.most - l.held + l.n)", "greatest(0, l.most - l.held)"),
        ("greatest(0, l.most - l.held + l.n)", "l.most - l.held + l.n"),
        ("case when l.most is not null then greatest(0, l.most - l.held + l.n) end", "greatest(0, l.most - l.held + l.n)"),
        ("s.held - u.returned + u.taken", "s.held + u.taken"), ("if taken <> returned then", "if false then"),
    ),
    *_of(
        "function.take_slots", "test_key_slots",
        ("on conflict (queue_id, key) do update set held = weft.key_slot.held", "on conflict do nothing"),
        ("least(cardinality(wanted.ids), greatest(0, wanted.most - wanted.held))", "cardinality(wanted.ids)"),
        ("held = held + room", "held = held"),
    ),
    *_of(
        "function.heartbeat", "test_rescue test_lead",
        "and w.state in ('active', 'idle')",
        ("and (l.holder = me or l.until < at)", ""), ("l.holder = me or l.until < at", "l.until < at"),
        ("l.holder = me or l.until < at", "l.holder = me"), ("for update skip locked", ""),
        ("and l.holder = me and l.until > at", "and l.until > at"), ("and l.until > at", ""),
        ("case when l.holder = me then 0 else 1 end", "0"), ("case when l.holder = me then 0 else 1 end", "1"),
        ("if is_blocked then", "if false then"), ("where l.name = 'maintenance' and l.holder = me;", "where l.name = 'maintenance';"),
    ),
    # --- outcomes ---
    *_of("task.postpone", "test_fences", *HELD, "and t.state in ('running', 'dispatched')"),
    *_of("task.end_unsuccessfully", "test_fences", *HELD, "and t.state in ('running', 'dispatched')"),
    *_of("task.decline", "test_fences", "and coalesce(t.worker_id, 0) = $1", "and t.attempt = $3", "and t.state = 'running'"),
    *_of("task.decline", "test_declines", ("a.task_id = $2 and", ""), "a.attempt = t.attempt - 1 and",
         "and a.outcome = 'declined'", "and a.attempt = moved.attempt - 1",
         "and a.ended_at > (select weft.now() - $5::interval)",
         ("where not exists (select 1 from again)", ""), ("w.org_id = t.org_id and", ""), "and w.id <> $1",
         "and w.state in ('active', 'idle')", "and w.until > weft.now()", "and t.queue_id = any (w.queues)",
         "and t.handler = any (w.handlers)"),
    Guard("task.decline", "a.task_id = $2 and", tests="test_declines", nth=1),
    Guard("task.decline", "and a.outcome = 'declined'", tests="test_declines", nth=1),
    *_of("task.has_been_declined_for", "test_declines", ("a.task_id = $1 and", ""), "and a.attempt = $2::int - 1",
         "and a.outcome = 'declined'", "and a.started_at <= (select weft.now() - $3::interval)",
         "and a.ended_at > (select weft.now() - $3::interval)"),
    *_of("task.set_aside", "test_set_aside", "and coalesce(t.worker_id, 0) = $1", "and t.attempt = $3",
         "and t.state in ('running', 'dispatched')"),
    *_of("task.hand_back", "test_fences", *HELD, "and t.state in ('claimed', 'running')"),
    *_of("task.hand_back_all", "test_fences", ("t.worker_id = $1 and", ""), "and t.state in ('claimed', 'running')"),
    *_of("task.hand_back_all", "test_fences", ("skip locked", "")),
    *_of("task.extend_expiry", "test_fences", *HELD, "and t.state = 'running'", ("skip locked", "")),
    *_of("task.held_by", "test_claims test_fences", ("t.worker_id = $1 and", "")),
    # --- operators ---
    *_of("task.cancel", "test_operators", "and t.org_id = $1", ("where worker_id is not null", "")),
    *_of("task.replay", "test_operators test_graph", "and d.org_id = $1", "and d.state in ('failed', 'dead', 'cancelled')",
         ("and d.state = any ($3)", "and $3::weft.task_state[] is not null"),
         ("w.n = 0 and", ""), ("and p.state <> 'completed'", ""),
         ("case when waiting_on = 0 then concurrency_key end", "concurrency_key")),
    *_of("task.lock_predecessors", "test_graph", ("for share", "")),
    *_of("task.lock_ended_predecessors", "test_graph", ("for share", "")),
    *_of("task.purge", "test_operators", "and c.org_id = $1", ("c.state in ('failed', 'dead') and", ""),
         "and ($3::bigint is null or c.queue_id = $3)", "limit $4"),
    *_of("task.purge_ids", "test_operators test_orgs", "and c.org_id = $1", ("where c.id = u.id", "")),
    # --- graph ---
    *_of("task.add_edge_lock", "test_graph", ("for share", "")),
    *_of("task.add_edge", "test_graph", ("t.state = 'pending' and t.reason = 'dependencies'", "true"),
         "and t.reason = 'dependencies'"),
    *_of("task.hold", "test_graph",
         ("and (t.state = 'ready' or t.state = 'pending' and t.reason = 'concurrency_key')", ""),
         ("case when held.state = 'ready' then t.concurrency_key end", "t.concurrency_key")),
    *_of("task.release", "test_graph", "and t.waiting_on = 0", "and t.reason = 'dependencies'"),
    # --- rescue ---
    *_of("worker.mark_lost", "test_rescue", ("l.state in ('active', 'idle') and", ""), ("for update skip locked", ""),
         "and l.until < (select weft.now())"),
    *_of("worker.rescue", "test_rescue", "and coalesce(t.worker_id, 0) = $1", "and t.state in ('claimed', 'running')"),
    *_of("worker.bury_crashed", "test_rescue", "and coalesce(t.worker_id, 0) = $1", "and t.state in ('claimed', 'running')"),
    *_of("worker.held_by_lost", "test_rescue", "and t.state in ('claimed', 'running')", ("t.worker_id = $1 and", ""),
         ("for update skip locked", "for update")),
    *_of("worker.rescued", "test_rescue", "and w.state = 'lost'",
         "and not exists (select 1 from weft.task t where t.worker_id = $1)"),
    *_of("worker.expired", "test_rescue", ("for update skip locked", ""), ("t.expires_at < (select weft.now()) and", "")),
    *_of("worker.abandon", "test_set_aside", ("w.id = $1 and", ""), "and w.state in ('active', 'idle')",
         "and w.until > weft.now()"),
    *_of("worker.deregister", "test_rescue", "and w.state in ('active', 'idle')"),
    *_of("worker.give_up_lead", "test_lead", ("where l.holder = $1", "")),
    *_of("worker.give_up_slots", "test_queue_slots", ("where s.worker_id = $1", "")),
    *_of("worker.leave_codes", "test_rescue", "and not exists (select 1 from weft.worker w where w.id = o.worker_id)"),
    *_of("worker.prune_codes", "test_rescue", ("where o.gone_at < (select weft.now() - $1::interval)", "")),
    *_of("worker.prune", "test_rescue", "and (o.state = 'stopped' or o.rescued_at is not null)",
         "and not exists (select 1 from weft.task t where t.worker_id = w.id)",
         "and o.until < (select weft.now() - $1::interval)"),
    *_of("worker.handler_is_missing", "test_lead", ("h.known_at < (select weft.now() - $3::interval)", "true"),
         ("h.org_id = $1 and", ""), ("w.org_id = $1 and", ""), "and w.state in ('active', 'idle')",
         "and w.until > (select weft.now())", "and $2 = any (w.handlers)"),
    # --- upkeep ---
    *_of("upkeep.stage", "test_staging", ("for update skip locked", ""), "limit $1",
         "and t.due_at <= (select weft.now())"),
    *_of("upkeep.prune_keys", "test_idempotency",
         "and not exists (select 1 from weft.task t where t.id = page.task_id)",
         "and not exists (select 1 from weft.task_done d where d.id = page.task_id "
         "and d.ended_at > (select weft.now() - $1::interval))",
         "and (k.ended_at is null or k.ended_at <= (select weft.now() - $1::interval))"),
    *_of("upkeep.old_partitions", "test_partitions",
         ("f.high <= bound.id and", ""), ("f.high > bound.open_job_id", "false"),
         ("(select min(j.kept_from) from weft.job j where j.kept_from is not null)", "null::bigint"),
         ("exists (select 1 from weft.task t where t.id >= f.low and t.id < f.high)", "false"),
         ("when f.is_pending or not f.is_attached then true", ""),
         ("not exists (select 1 from found d where d.parent = 'task_done' and d.day = f.day and d.is_attached)", "true")),
    *_of("upkeep.ended_within", "test_partitions", ("weft.ended_after($1, weft.now() - $2::interval)", "$1::text = '' and $2::interval is null")),
    *_of("upkeep.prune_logs", "test_logs", ("where o.created_at < (select weft.now() - $1::interval)", "")),
    *_of("task.purge_rest", "test_idempotency", ("where k.task_id = r.id", "where false")),
    *_of("task.purge_rest", "test_dead_letter", ("where p.id = any ($1)", "where false"),
         ("where a.task_id = any ($1)", "where false"), ("where l.task_id = any ($1)", "where false"),
         ("where b.task_id = any ($1)", "where false")),
    # --- blobs ---
    *_of("blob.forget_references", "test_collection",
         "and not exists (select 1 from weft.task t where t.id = page.task_id)",
         "and not exists (select 1 from weft.task_done d where d.id = page.task_id)"),
    *_of("blob.unused", "test_collection", ("b.put_at < (select weft.now() - $1::interval) and", ""),
         ("for update of b skip locked", "")),
    *_of("walls.uses_blob", "test_engine_marks", "and u.org_id = org", ("u.digest = wanted and", "")),
    *_of("walls.uses_blob", "test_walls", ("return org = coalesce(weft.current_org(), org)\n  and", "return")),
    *_of("blob.put", "test_collection", ("do update set put_at = excluded.put_at", "do nothing")),
    # --- the history: whose it is ---
    *_of("artifact.materials", ORGS, "a.org_id = $1 and", "t.org_id = $1 and"),
    *_of("artifact.snapshot_of_plan", ORGS, "s.org_id = $1 and"),
    *_of("artifact.list", ORGS, ("and (a.org_id, a.id) > ($1, 0)", "")),
    *_of("artifact.list_of_workflow", ORGS, "a.org_id = $1 and"),
    *_of("artifact.log", ORGS, ("where a.org_id = $1", "")),
    *_of("artifact.line", ORGS, ("where a.org_id = $1", "where $1::bigint > 0")),
    *_of("artifact.find", ORGS, "a.org_id = $1 and"),
    *_of("artifact.back", "test_history_rehearsed", ("a.org_id = $1 and", "$1::bigint > 0 and")),
    *_of("tag.protect", "test_history_rehearsed", ("where d.name is not null", "")),
    *_of("tag.show", ORGS, "t.org_id = $1 and"),
    *_of("tag.now", ORGS, "t.org_id = $1 and"),
    *_of("tag.list", ORGS, "t.org_id = $1 and"),
    *_of("tag.list_of_workflow", ORGS, "t.org_id = $1 and"),
    *_of("tag.moves", ORGS, "m.org_id = $1 and"),
    *_of("version.protect_tag", ORGS, "g.org_id = org and"),
    *_of("version.refuse_lost", ORGS, "m.org_id = org and"),
    *_of("history.unused", ORGS, "a.org_id = $1 and"),
    *_of("history.lines", ORGS, ("where a.org_id = $1", "")),
    *_of("history.count_lines", ORGS, ("where a.org_id = $1", "")),
    *_of("history.lost_tags", ORGS, "m.org_id = $1 and", "t.org_id = m.org_id and"),
    *_of("history.astray_tags", ORGS, "t.org_id = $1 and"),
    *_of("history.broken_moves", "test_history_orgs test_history_upkeep", ("where m.org_id = $1", "")),
    *_of("history.broken_moves", ORGS, "and a.org_id = $1"),
    *_of("history.mend_tag", ORGS, "m.org_id = $1 and"),
    *_of("history.last_sound_move", ORGS, "m.org_id = $1 and"),
    *_of("history.last_move", ORGS, "m.org_id = $1 and"),
    *_of("history.move_astray_tag", ORGS, "t.org_id = $1 and"),
    *_of("tag.names", ORGS, "t.org_id = $1 and"),
    *_of("tag.trace", ORGS, "t.org_id = $1 and"),
    *_of("version.move_tag", ORGS, "and a.org_id = org"),
    *_of("version.put_artifact", ORGS, "and a.org_id = org"),
    *_of("version.lock_tag", ORGS, "g.org_id = org and"),
    *_of("version.add_move", ORGS, "g.org_id = t.org_id and"),
    # --- the history: what may be done ---
    *_of("artifact.materials", "test_history", ("and ($4::timestamptz is not null or t.deleted_at is null)", "")),
    *_of("artifact.materials", "test_history_names", ("length(t.name) limit 1", "length(t.name) desc limit 1")),
    *_of("artifact.materials", "test_history_damage", ("t.deleted_at is not null,", "")),
    *_of("version.tag_named", "test_history_damage", ("t.deleted_at is not null,", "")),
    *_of("version.refuse_lost", "test_history_damage",
         "and not exists (select 1 from weft.tag t where t.org_id = org and t.name = m.tag)"),
    *_of("version.put_blob", "test_history_damage", ("coalesce(excluded.content, b.content)", "coalesce(b.content, excluded.content)")),
    *_of("tag.show", "test_history", "and t.deleted_at is null"),
    *_of("tag.list", "test_history", ("t.deleted_at is null or $4", "true or $4")),
    *_of("tag.at_artifacts", "test_history_names", "and t.deleted_at is null"),
    *_of("version.lock_tag", "test_history test_history_writers", ("for update", ""),
         ("elsif t.version <> expected_version and not (expected_version = 0 and t.deleted_at is not null) then", "elsif false then"),
         ("and not exists (select 1 from weft.artifact a where a.id = t.target_id and a.version_hash = expected_hash)", "and false"),
         ("elsif t.is_protected and not force then", "elsif false then")),
    *_of("version.add_move", "test_history_clock", ("greatest(weft.now(), t.moved_at)", "weft.now()")),
    *_of("version.add_move", "test_history_names",
         ("case when t.deleted_at is null then t.target_id end", "t.target_id"),
         ("case when verb <> 'delete' then target end", "target")),
    *_of("version.add_move", "test_history",
         ("case when new_position is null and t.deleted_at is null then t.position end", "t.position")),
    *_of("version.add_move", "test_history_names", "workflow_id = coalesce(workflow, t.workflow_id),"),
    *_of("version.add_move", "test_history_damage", ("if workflow is null and verb <> 'delete' then", "if false then")),
    *_of("version.protect_tag", "test_history_damage", "and g.deleted_at is null"),
    *_of("artifact.materials", "test_history_damage", "and s.version_hash = a.version_hash"),
    *_of("version.move_tag", "test_history test_history_upkeep", "and a.kind <> 'snapshot'",
         ("if t.workflow_id <> workflow and not force and t.deleted_at is null then", "if false then"),
         ("and t.deleted_at is null then", "then")),
    *_of("version.compact_tag", "test_history", ("on b.version_hash = a.version_hash", "on true")),
    *_of("definition.undo_tag", "test_history_names", ("or t.deleted_at is not null", "")),
    *_of("definition.undo_tag", "test_history_damage", ("exit when exists (select 1 from weft.artifact a where a.id = target and a.org_id = org);", "exit;")),
    *_of("definition.is_forced", "test_history_names", ("elsif replaces is distinct from t.workflow_id then", "elsif false then"),
         ("return force or not t.is_protected;", "return true;")),
    *_of("definition.is_forced", "test_history_names", ("t.deleted_at is not null or", "")),
    *_of("definition.is_forced", ORGS, "g.org_id = org and"),
    *_of("definition.is_forced", "test_history_races", ("for update", "")),
    *_of("version.redo_tag", "test_history_names", ("or t.deleted_at is not null", "")),
    *_of("version.redo_tag", "test_history",
         ("hashtextextended(m.tag, m.back_to) = hashtextextended(tag_name, t.position) "
          "and m.org_id = org and m.tag = tag_name and m.back_to = t.position",
          "m.org_id = org and m.tag = tag_name")),
    *_of("version.delete_tag", "test_history_names", ("or t.deleted_at is not null", "")),
    *_of("version.undelete_tag", "test_history_names", ("or t.deleted_at is null", "")),
    *_of("history.unused", "test_history_upkeep",
         "and a.id < (select weft.first_id_at(weft.now() - $2::interval))",
         "where u.user_name not in (select x.id::text from open x)",
         "and not exists ( select 1 from weft.artifact_use u where u.artifact_id = a.id and u.used_by not in ('version', 'patch', 'snapshot'))"),
    *_of("history.broken_moves", "test_history_upkeep", ("m.version <> coalesce(m.before_version, 0) + 1 or", "")),
    # --- limits ---
    *_of("queue.lock_queue", "test_queue_slots", ("for no key update", "")),
    *_of("queue.lock_worker", "test_queue_slots", "and w.state in ('active', 'idle')"),
    *_of("queue.acquire_slots", "test_queue_slots",
         ("least($3::int, $4::int - used.slots)", "$3::int"),
         ("greatest($5::int, least($3::int, $4::int - used.slots))", "least($3::int, $4::int - used.slots)"),
         ("greatest(coalesce(l.slots, 0), coalesce(r.n, 0))", "coalesce(l.slots, 0)"),
         ("greatest(coalesce(l.slots, 0), coalesce(r.n, 0))", "coalesce(r.n, 0)"),
         ("and s.worker_id <> $2", ""), ("and t.worker_id <> $2", "")),
    *_of("queue.forget_idle_keys", "test_job_leftovers", ("i.max_running is null or", "true or"),
         ("when i.key ~ '^@[0-8]?[0-9]{17,18}$' then", "when false then"),
         ("not exists (select 1 from weft.task t where t.id = substr(i.key, 2)::bigint) and", ""),
         "and not exists (select 1 from weft.task_done d join weft.job j on j.id = d.job_id where d.id = substr(i.key, 2)::bigint)"),
    *_of("queue.forget_slots", "test_queue_slots", "and w.state in ('active', 'idle')",
         "and not exists (select 1 from weft.task t where t.worker_id = s.worker_id)"),
    *_of("queue.lock_keys", "test_set_aside", ("for update", "")),
    *_of("queue.crowded_keys", "test_set_aside", ("skip locked", "")),
    *_of("queue.crowded_keys", "test_key_slots", ("and s.held > coalesce(s.max_running, q.max_running_per_key)", "and false")),
    *_of("queue.park_surplus", "test_key_slots", ("t.state = 'ready' and t.queue_id = $1", "t.queue_id = $1"), ("skip locked", ""),
         ("t.rank desc, t.order_id desc, t.id desc", "t.rank, t.order_id, t.id"), ("s.held - p.n", "s.held")),
    *_of("queue.waiting_keys", "test_key_slots",
         "and s.held < coalesce(s.max_running, q.max_running_per_key, 2147483647)"),
    # --- outbox ---
    *_of("outbox.claim", "test_outbox_rows", ("o.state = 'pending' and", ""), "and o.kind = any ($2)", "limit $3",
         ("not exists ( select 1 from weft.outbox e where e.org_id = o.org_id and e.ordering_key = o.ordering_key "
          "and e.id < o.id and e.state <> 'done')", "true"),
         ("e.org_id = o.org_id and", ""), "and o.available_at <= (select weft.now())", "and e.id < o.id", ("and e.state <> 'done'", "and e.state = 'pending'"), ("for update skip locked", "")),
    *_of("outbox.done", "test_outbox_rows", "and o.worker_id = $2", "and o.state = 'processing'"),
    *_of("outbox.retry_later", "test_outbox_rows", "and o.worker_id = $2", "and o.state = 'processing'"),
    *_of("outbox.fail", "test_outbox_rows", "and o.worker_id = $2", "and o.state = 'processing'"),
    *_of("outbox.give_back", "test_outbox_rows", ("o.worker_id = $1 and", ""), "and o.kind = any ($2)",
         "and o.state = 'processing'"),
    *_of("outbox.rescue", "test_outbox_rows", ("o.state = 'processing' and", ""), "and w.state in ('active', 'idle')",
         "and w.until > (select weft.now())"),
    *_of("outbox.replay", "test_outbox_rows", ("o.org_id = $1 and", ""), "and o.state = 'failed'",
         "and ($2::bigint[] is null or o.id = any ($2))"),
    *_of("outbox.prune", "test_outbox_rows", ("d.state = 'done' and", ""),
         "and d.processed_at < (select weft.now() - $1::interval)"),
    # --- steps ---
    *_of("saved.save", "test_fences", "and coalesce(t.worker_id, 0) = $1", "and t.attempt = $3", "and t.state = 'running'",
         "for share"),
    *_of("saved.drop", "test_fences", "and coalesce(t.worker_id, 0) = $1", "and t.attempt = $3", "and t.state = 'running'",
         "for share"),
    # --- outputs that serve again ---
    *_of("outputs.find_output", "test_cache", ("c.org_id = mine.org_id and", ""), ("each.expires_at <= at or", ""),
         ("or each.made_at <= at - within", "")),
    *_of("outputs.find_output", "test_output_traces", "and (c.producer is null or c.producer = mine.producer)"),
    *_of("outputs.find_output", "test_explain", *[("r.org_id = mine.org_id and", "", place) for place in range(2)],
         *[("and d.state = 'completed'", "", place) for place in range(2)]),
    *_of("cache.list", "test_cache", *[("c.org_id = $1 and", "", place) for place in range(3)]),
    *_of("cache.clear", "test_cache", ("o.org_id = $1 and", ""), "and ($2::text is null or o.handler = $2)"),
    *_of("cache.prune", "test_cache", "where o.expires_at <= (select weft.now())", "o.expires_at is null and"),
    *_of("outputs.note_outputs", "test_cache", "where u.key is not null", "u.root is not null and"),
    *_of("outputs.note_outputs", "test_foreign_ids", "and r.org_id = d.org_id"),
    *_of("outputs.note_outputs", "test_output_traces", "where u.entry is not null", "and c.org_id = each.org_id",
         ("or weft.trace_problems(each.org_id, found_trace) is not null", "")),
    *_of("cache.prune_notes", "test_explain", "and not exists (select 1 from weft.task t where t.id = r.task_id)"),
    *_of("cache.shrink", "test_cache", ("partition by u.org_id", "")),
    *_of("traces.trace_of", "test_output_traces", ("each.columns_by > each.seen or", ""),
         ("(each.partitions is null or each.pinned = 'since') and each.last_write > each.write", "false"), ("p.last_write > each.write", "false"),
         ("if each.adds_again then", "if false then")),
    *_of("traces.trace_problems", "test_output_traces",
         ("when coalesce(each.pinned, 'since') = 'since' and now.current_id is distinct from now.id then false", ""),
         ("or now.deleted_at is not null", ""), ("when each.role <> 'read' and each.producer is distinct from now.producer then false", ""),
         ("when each.role = 'read' and now.schema_hash is distinct from each.schema then false", ""),
         "and p.lost_by <= each.write"),
    *_of("publishing.publish_write", "test_output_traces", ("and not (is_whole or staged.partitions <@ replaced)", "")),
    *_of("explain.names", "test_explain", ("and ($3::text[] is null or d.read_roles && $3)", "")),
    *_of("explain.inputs", "test_explain", ("and ($4::text[] is null or d.read_roles && $4)", "")),
    # By the rows that decide it.
    *_of("cache.drop", "test_trace_guards::test_an_output_that_was_had_in_vain_is_dropped_by_its_own_org_while_it_is_the_same", "c.org_id = t.org_id and", "and c.task_id = $3", "and c.id = $2"),
    *_of("outputs.note_outputs", "test_trace_guards::test_outputs_are_kept_of_what_has_completed_by_worker_and_attempt", "and d.worker_id = me", "and d.attempt = u.attempt", "and d.state = 'completed'", ("and d.worker_id = me", "", 1), ("and d.attempt = u.attempt", "", 1), ("and d.state = 'completed'", "", 1), ("and d.worker_id = me", "", 2), ("and d.attempt = u.attempt", "", 2), ("and d.state = 'completed'", "", 2)),
    *_of("outputs.note_outputs", "test_trace_guards::test_an_output_that_is_too_large_or_does_not_serve_is_not_kept", ("if each.bytes > each.most then", "if false then"), ("if made.unkept is not null then", "if false then")),
    *_of("outputs.note_outputs", "test_trace_guards::test_an_output_takes_the_place_of_those_that_stand_in_its_own_org_and_of_its_own_key", ("c.org_id = each.org_id and c.key = each.key and c.trace is not null", "c.key = each.key and c.trace is not null"), "and c.key = each.key", ("and c.key = each.key", "", 1), "and weft.trace_problems(c.org_id, c.trace) is null", "and c.trace is null", ("if made.trace is not null then", "if false then")),
    *_of("outputs.note_outputs", "test_trace_guards::test_of_one_key_the_last_five_outputs_are_kept", "o.org_id = each.org_id and", "and o.key = each.key", ("offset 5", "offset 5000"), ("offset 5", "offset 4")),
    *_of("outputs.note_outputs", "test_trace_guards::test_an_output_of_the_cache_is_not_had_when_it_is_gone_of_another_org_or_does_not_stand", "found_trace is null or"),
    *_of("traces.content_of", "test_trace_guards::test_a_trace_stands_while_a_reader_sees_the_same", "p.version_id = version and", "and p.partition_key = any (keys)"),
    *_of("traces.note_inputs", "test_trace_guards::test_a_task_that_has_the_output_of_another_has_read_what_that_has", "and v.org_id = org", "where r.item ->> 'role' = 'read'", "on conflict do nothing", ("case when r.item ->> 'pinned' = 'write' then (r.item ->> 'write')::bigint else v.last_write end", "v.last_write")),
    *_of("traces.trace_of", "test_trace_guards::test_an_output_does_not_serve_when_tasks_that_it_has_made_have_to_do_with_datasets", ("unkept := 'made'; return;", "null;"), "exists (select 1 from weft.task_input i where i.task_id = m.id) or", "or exists ( select 1 from weft.task_done t join weft.dataset_write w on w.org_id = t.org_id and w.task_id = t.id where t.id = m.id)", "union all select k.id from made m join weft.task_done k on k.parent_id = m.id and k.id > m.id"),
    *_of("traces.trace_of", "test_trace_guards::test_an_output_serves_while_nobody_has_written_into_what_was_read", "p.version_id = each.id and", "and p.partition_key = any (each.partitions)"),
    *_of("publishing.inputs_of", "test_trace_guards::test_what_earlier_attempts_have_read_counts_where_there_are_steps", ("or i.attempt < try and exists", "or false and exists"), "s.task_id = task and"),
    *_of("traces.trace_of", "test_trace_guards::test_an_output_does_not_serve_when_what_was_read_is_gone", "each.id is null or"),
    *_of("traces.trace_of", "test_trace_guards::test_an_output_that_has_read_what_is_current_serves_while_it_is", "or coalesce(each.pinned, 'since') = 'since' and each.current_id is distinct from each.id", "each.pinned is distinct from 'write' and"),
    *_of("traces.trace_of", "test_trace_guards::test_an_output_does_not_serve_when_a_partition_or_the_columns_have_gone", "each.lost_by > each.write or"),
    *_of("traces.trace_of", "test_trace_guards::test_an_output_serves_while_what_was_written_is_as_it_was_left", "and w.attempt = t.attempt", "and t.attempt = try", ("each.current_id is distinct from each.id or each.is_whole", "each.is_whole"), "each.is_whole and each.last_write > each.write or", "each.keys is null or", "and p.last_write = each.write", ("each.mode = 'replace' and (", "(")),
    *_of("traces.trace_problems", "test_trace_guards::test_a_trace_stands_while_a_reader_sees_the_same", "or now.collected_at is not null", "when each.pinned = 'write' then now.oldest_write <= each.write", ("now.oldest_write <= each.write", "true"), "when each.pinned = 'since' then now.own_write = each.write", ("now.own_write = each.write", "true"), "when each.role = 'added' then cardinality(each.partitions) = ( select count(*) from weft.dataset_partition p where p.version_id = now.id and p.partition_key = any (each.partitions) and p.lost_by <= each.write)", ("weft.content_of(now.id, each.partitions) = each.content", "true")),
    *_of("traces.trace_problems", "test_trace_guards::test_an_output_of_the_cache_is_not_had_when_it_is_gone_of_another_org_or_does_not_stand", ("now.content = each.content", "true")),
    *_of("outputs.note_outputs", "test_trace_guards::test_an_output_takes_the_place_of_those_that_stand_in_its_own_org_and_of_its_own_key", ("c.org_id = each.org_id and c.key = each.key and c.trace is null", "c.key = each.key and c.trace is null")),
    *_of("traces.trace_of", "test_trace_guards::test_an_output_serves_while_what_was_written_is_as_it_was_left", ("p.version_id = each.id and", "", 1)),
    *_of("traces.trace_problems", "test_trace_guards::test_a_trace_stands_while_a_reader_sees_the_same", "and v.dataset_id = d.id"),
    # --- people ---
    *_of("user.show", "test_people", ("u.org_id = $1 and", "")),
    *_of("user.list", "test_people", ("u.org_id = $1 and", ""), "and ($4::boolean or u.deactivated_at is null)"),
    *_of("user.deactivate", "test_people", "and u.deactivated_at is null"),
    *_of("user.activate", "test_people", "and u.deactivated_at is not null"),
    *_of("user.principal", "test_people", "and u.deactivated_at is null", "and ($2::text is null or o.slug = $2)"),
    *_of("role.show", "test_people", ("r.org_id = $1 and", "")),
    *_of("role.delete", "test_people", ("r.org_id = $1 and", "")),
    *_of("role.list", "test_people", ("r.org_id = $1 and", "")),
    *_of("role.forget_readers", "test_datasets_attacked_again", ("o.org_id = $1 and", "")),
    # --- workers without a database ---
    *_of("remote.bind", "test_remote_workers", "and w.state in ('active', 'idle')"),
    *_of("remote.is_beat_due", "test_remote_workers", ("w.state not in ('active', 'idle') or", "")),
    *_of("task.ask_for_logs", "test_followed_logs", ("t.org_id = $1 and", ""), "and t.worker_id is not null"),
    *_of("task.add_log", "test_followed_logs", "where task_log.bytes <= excluded.bytes"),
    *_of("remote.seat", "test_remote_workers", "and w.org_id = $2", "and w.token_id = $3"),
    *_of(
        "remote.rest", "test_remote_workers", "and t.worker_id = $1", "and t.attempt = $3", "and t.state = 'running'",
    ),
    *_of(
        "remote.rests", "test_remote_workers", "and t.worker_id = $1", "and t.attempt = $3", "and t.state = 'running'",
        "and t.resting_attempt = t.attempt",
    ),
    *_of(
        "remote.end_rest", "test_remote_workers", "and t.worker_id = $1", "and t.attempt = $3",
        "and t.state = 'running'",
    ),
    *_of(
        "remote.shares", "test_remote_workers", ("t.worker_id = $1 and", ""), "and t.state = 'running'", "and e.attempt = t.attempt",
        "and t.resting_attempt is distinct from t.attempt", "and s.worker_id = $1", "and q.max_running is not null",
    ),
    *_of(
        "remote.held_among", "test_remote_workers", "and t.attempt = r.attempt", "and coalesce(t.worker_id, 0) = $1",
        "and t.state = 'running'",
    ),
    *_of(
        "remote.settled_among", "test_remote_workers", "and a.attempt = r.attempt", "and a.worker_id = $1",
        ("where a.outcome in ('failed', 'snoozed', 'crashed')", ""),
    ),
    *_of(
        "remote.had_among", "test_remote_workers", "and t.attempt = r.attempt", "and t.worker_id = $1",
        "and d.attempt = r.attempt", "and d.worker_id = $1", "and a.attempt = r.attempt", "and a.worker_id = $1",
    ),
    *_of(
        "remote.refers_to", "test_remote_workers", "and b.org_id = $1", "and q.name = any ($3)",
        ("and q.name = any ($3)", "", 1), "and h.state = 'running'", ("w.token_id = $4 and", ""),
    ),
    *_of("remote.task_refers_to", "test_remote_workers", "and b.digest = r.digest", "and b.org_id = $1"),
    *_of("rerun.tasks", "test_foreign_ids", "and r.org_id = d.org_id"),
    *_of("remote.of_org", "test_remote_workers", "and t.org_id = $1", "and d.org_id = $1"),
    *_of("user.add", "test_people", ("and u.id = $6", "and false and u.id = $6"), ("u.org_id = $1 and", "")),
    *_of("token.create", "test_people", "and u.deactivated_at is null"),
    *_of("sign_in.create", "test_people", "and u.deactivated_at is null", "for share"),
    *_of("user.end_tokens", "test_people", ("t.user_id = $2 and", ""), "and t.revoked_at is null", ("s.user_id = $2", "false")),
    *_of("token.show", "test_people", ("t.org_id = $1 and", "")),
    *_of("token.list", "test_people", ("t.org_id = $1 and", ""), "and ($3::bigint is null or t.user_id = $3)"),
    *_of("token.revoke", "test_people", ("t.org_id = $1 and", ""), "and t.revoked_at is null"),
    *_of(
        "token.principal", "test_people", "and t.revoked_at is null",
        "and (t.expires_at is null or t.expires_at > weft.now())", "and (t.user_id is null or u.deactivated_at is null)",
        ("least(t.role::text::weft.platform_role, u.role)::text", "t.role::text"),
    ),
    *_of(
        "sign_in.take", "test_sessions", "and s.expires_at > weft.now()",
        "and not exists (select 1 from weft.user u where u.id = s.user_id and u.deactivated_at is not null)",
        ("least(s.role, (select u.role from weft.user u where u.id = s.user_id))", "s.role"),
    ),
    *_of("answer.find", "test_keyed_requests", ("a.org_id = $1 and", "$1::bigint is not null and")),
    *_of("seal.prune", "test_seals", ("greatest(o.before_id, o.ids[cardinality(o.ids)])", "o.ids[cardinality(o.ids)]"),
         "and exists (select 1 from weft.audit_seal n where n.org_id = o.org_id and n.number > o.number)"),
    *_of("seal.page", "test_seals", ("s.org_id = $1 and", "")),
    *_of("seal.unsealed", "test_orgs", ("where a.org_id = $1", "where $1::bigint is not null")),
    *_of("sealing.seal_audit", "test_seals", ("a.org_id = o.id and", ""), "on conflict do nothing",
         ("and e.next_xid <= oldest", ""), ("case when cardinality(n.ids) = room then n.ids[room] end", "null::bigint")),
    *_of("job.put", "test_acts", ("made.id = $23 and", "$23::bigint is not null and")),
    *_of("job.send_event", "test_acts", "where e.is_new"),
    *_of("job.asked_by", "test_keyed_requests", ("k.org_id = $1 and", "$1::bigint is not null and"),
         "k.handler = '@job' and"),
    *_of("tag.undelete", "test_acts", "where t.name is not null"),
    *_of("artifact.put_snapshot", "test_acts", ("where $13 and", "where ($13 or true) and")),
    *_of("walls.wall_in", "test_walls", ("as restrictive ", "")),
    *_of(
        "walls.views_of_one_org", "test_walls",
        ("where v.org_id = coalesce((select weft.current_org()), v.org_id)", "where true"),
    ),
    *_of("function.enqueue", "test_walls", ("held is not null and", "false and")),
    *_of("function.add_effect", "test_walls",
         ("and o.id = coalesce(nullif(current_setting('weft.org', true), '')::bigint, o.id)", "")),
    # --- orgs ---
    *_of("task.states_of", "test_orgs", ("and t.org_id = $1", ""), ("and d.org_id = $1", "")),
    *_of("task.count_purgeable", "test_orgs", "and c.org_id = $1"),
    *_of("task.show", "test_orgs", ("t.org_id = $1 and", "")),
    *_of("task_lists.look_at_tasks", "test_orgs", ("k.org_id = asked.org and", "")),
    *_of("task_lists.look_at_tasks", "test_lists", ("k.state = any (asked.states) and", ""),
         ("and (asked.queue is null or k.queue_id = asked.queue)", ""), ("and (asked.what is null or k.handler = asked.what)", "")),
    *_of("task_lists.list_tasks", "test_walls", ("org is distinct from coalesce", "false and org is distinct from coalesce")),
    *_of("task_lists.list_newest_effects", "test_orgs", ("o.org_id = org and", "")),
    *_of("task_lists.list_newest_effects", "test_walls",
         ("org is distinct from coalesce", "false and org is distinct from coalesce")),
    *_of("acts.list_newest_acts", "test_orgs", ("(a.org_id, a.id) > (org, low)", "true"),
         *[("a.org_id = org and", "", place) for place in range(3)]),
    *_of("worker.list", "test_orgs", ("w.org_id = $1 and", "")),
    *_of("queue.ids", "test_orgs", ("q.org_id = $1 or q.id = 2", "true")),
    *_of("queue.pause", "test_orgs", ("q.org_id = $1 and", "")),
    *_of("queue.resume", "test_orgs", ("q.org_id = $1 and", "")),
    *_of("queue.set_limit", "test_orgs", ("q.org_id = $1 and", "")),
    *_of("queue.set_limit_per_key", "test_orgs", ("q.org_id = $1 and", "")),
    *_of("queue.set_limit_of_key", "test_orgs", ("q.org_id = $1 and", "")),
    *_of("queue.depths", "test_orgs", ("q.org_id = $1 and", "")),
    *_of("queue.key_limits", "test_orgs", ("q.org_id = $1 and", "")),
    *_of("queue.rates", "test_orgs", ("where q.org_id = $1", "")),
    *_of("watching.mark_of_jobs", "test_job_events", ("t.org_id = $1 and", "$1::bigint > 0 and"),
         ("where j.org_id = $1", "where $1 > 0")),
    # --- ids ---
    *_of("machine.lease", "test_machine_numbers", ("for update skip locked", ""), ("where f.until < weft.now()", "")),
    *_of("machine.release", "test_machine_numbers", "and m.holder = $2"),
    # --- idempotency ---
    *_of("function.put_task", "test_idempotency test_sql_contract",
         ("exit when found;\n      -- The lock", "exit;\n      -- The lock")),
]  # fmt: skip

REDUNDANT: list[tuple[Guard, str]] = [
    *(
        (Guard(statement, text, instead), "what was not asked for is not looked at: they are told apart by their names")
        for statement, text, instead in (
            ("deploying.highest_nonces", "and j.name = any ($3)", "and $3::text[] is not null"),
            ("deploying.datasets", "and d.name = any ($2)", "and $2::text[] is not null"),
            ("deploying.known_jobs", "u.name = j.name and", ""),
            ("deploying.known_jobs", "and u.config_hash = j.config_hash", ""),
        )
    ),
    (
        Guard("deploying.lock_dag", "and d.name = $2", "and $2::text is not null"),
        "it bounds what is locked; what is not asked for stays as it is",
    ),
    (
        Guard("deploying.outputs_by_name", "and d.name = any ($2)", "and $2::text[] is not null"),
        "whoever asks looks for each by its name",
    ),
    (Guard("deploying.versions_by_hash", "u.name = d.name and"), "what a job writes is a part of its hash"),
    *(
        (Guard(f"deploying.{name}", "and v.range_start is null"), "a version of files of others has another hash")
        for name in ("versions_by_hash", "keep_version")
    ),
    (Guard("deploying.keep_version", "and v.collected_at is null"), "one that is collected has another config_hash"),
    (
        Guard("deploying.claim_dataset", "and d.producer_dag is null"),
        "the dataset is locked since nobody was found to write it",
    ),
    (Guard("deploying.readers", "and o.producer_dag is not null"), "nobody is not another than the one that is said"),
    *(
        (
            Guard("deploying.version_before", text),
            "what is retired was in effect, and what was in effect and is no more is retired",
        )
        for text in ("and v.live_at is not null", "and v.state = 'retired'")
    ),
    (
        Guard("deploying.deleted_datasets", "d.org_id = $1 and"),
        "the ids are those of datasets of a version which was found in its org",
    ),
    *(
        (Guard("deploying.stop_building", text, instead), "a version is being built of one DAG, which is locked")
        for text, instead in (("and d.building_id = $3", ""), ("and d.id = $2", "and $2::bigint is not null"))
    ),
    (
        Guard("deploying.being_built", "where d.building_id is not null"),
        "it bounds the work: it is asked again of each",
    ),
    (Guard("looking.jobs", "t.state = 'running' and"), "a task that does not run has no worker"),
    (
        Guard("swapping.move_live_tag", "and a.org_id = org"),
        "the artifact is the one that the deploy has put into the org",
    ),
    *(
        (
            Guard("swapping.settle_dag", "where d.id = dag order by m.live_job_id", "order by m.live_job_id", nth=nth),
            "the jobs of other DAGs are as their versions say already",
        )
        for nth in (0, 1)
    ),
    (
        Guard("swapping.settle_dag", "where b.manner::jsonb is distinct from o.manner::jsonb"),
        "it saves work: what is the same is written again, and nothing has moved",
    ),
    (
        Guard(
            "swapping.settle_dag",
            "and (j.runtime, j.queue_id, j.rank, j.timeout, j.heartbeat_timeout, j.max_attempts, j.retry, j.on_failure, "
            "j.max_concurrency, j.max_backlog, j.idle_after) is distinct from (s.runtime, s.queue_id, s.rank, s.timeout, "
            "s.heartbeat_timeout, s.max_attempts, s.retry, s.on_failure, s.max_concurrency, s.max_backlog, s.idle_after)",
        ),
        "it saves work: what is the same is written again",
    ),
    (
        Guard("swapping.unit_of_partition", "and not exists (select 1 from added)"),
        "where one was added there was no other of its key that has not begun",
    ),
    (Guard("router.due", "and u.lane = ''"), "slices are in no other lane; it is for the index"),
    (
        Guard("acting.state_of_unit", "u.state = 'held' and"),
        "what has a task that is there runs, or is held",
    ),
    (
        Guard("acting.state_of_unit", "and exists (select 1 from weft.task t where t.id = u.task_id)"),
        "one that is held and not tried again is not refused, and so not asked for",
    ),
    (
        Guard("source_tick.due", "and l.state <> 'stopped'"),
        "the source of a job that has stopped does not listen",
    ),
    (
        Guard("source_tick.next_due", "and s.next_at is not null"),
        "what is not there is not the least; it is for the index",
    ),
    (Guard("file.gone_files", "limit $5"), "it bounds the work: the rest is found by the next look"),
    (
        Guard("following.note_rows", "u.live_job_id = s.live_job_id and u.state", "u.state"),
        "whoever is on his way to any job looks at all of them",
    ),
    (
        Guard("following.follow_table", "o.live_job_id = job for no key update", "o.live_job_id = job"),
        "whoever lets a source listen has put or changed its row",
    ),
    (Guard("following.leave_table", "t.tgrelid = table_id and"), "a trigger has the id of its job in its name"),
    (
        Guard("following.follow_or_leave", "elsif new.followed is not null then", "else"),
        "there is no trigger on what is no table",
    ),
    (
        Guard(
            "tables.prepare_table",
            "perform pg_advisory_xact_lock(hashtextextended('weft.prepare_table ' || version, 0));",
            nth=1,
        ),
        "whoever would add the same column waits for the table, and finds that it is there",
    ),
    *(
        (Guard("tables.add_rows", text), "whoever names such a column is refused all the same")
        for text in ("and not a.attisdropped", "and a.attnum > 0")
    ),
    (Guard("tables.add_rows", "order by r.place"), "what is in a list comes in its order; it is for who reads it"),
    (
        Guard("tables.add_rows", "set datestyle = 'ISO, YMD'"),
        "what is told begins with the year, and is read the same in any style",
    ),
    (Guard("tables.rows_of", "set timezone = 'UTC'"), "instants are told in UTC by the statement itself"),
    (
        Guard("tables.show_table", "f.version_id = %s and f.removed_by", "%s is not null and f.removed_by"),
        "the path has the id of the write, which is of one version; it is for the index",
    ),
    (Guard("tables.show_table", "and a.grantee <> c.relowner"), "the owner may read it anyway"),
    *(
        (
            Guard("diff.touched_partitions", text, nth=nth),
            "it bounds the work: what stood before and after is left out after it",
        )
        for text, nth in (
            ("and f.version_id = $2", 0),
            ("and f.version_id = $2", 1),
            ("and f.added_by > $3", 0),
            ("and f.added_by <= $4", 0),
            ("and f.removed_by > $3", 0),
            ("and f.removed_by <= $4", 0),
        )
    ),
    (
        Guard("registering.registered", "and v.collected_at is null"),
        "one that is collected has another config_hash",
    ),
    *(
        (Guard("upkeep.prune_inputs", text), "all that a task has read is past at once")
        for text in ("and i.attempt = old.attempt", "and i.place = old.place")
    ),
    (
        Guard("cache.shrink", "order by o.used_at, o.id"),
        "it says which go first: the others are too many as well, and go by the next round",
    ),
    (
        Guard("staging.own_version", "and s.swaps"),
        "a write that swaps nothing follows what is current: when that is another by then, it voids all that its attempt wrote",
    ),
    *(
        (Guard("swapping.collect_dag", text), "what is in effect or being built is neither retired nor abandoned")
        for text in (
            "and v.state in ('retired', 'abandoned')",
            "and v.id is distinct from d.version_id",
            "and v.id is distinct from d.building_id",
        )
    ),
    (Guard("swapping.collect_dag", "order by j.id for update", "order by j.id"), "what follows takes the same locks"),
    (Guard("swapping.swap_dag", "for no key update"), "whoever swaps has locked the DAG"),
    (
        Guard("swapping.swap_dag", "o.org_id = d.org_id and"),
        "it locks only: what is changed is asked for by org after it",
    ),
    (
        Guard("swapping.swap_dag", "order by o.id for update", "order by o.id"),
        "what follows takes the same locks; the order prevents deadlocks",
    ),
    (Guard("publishing.publish_write", "staged.seen is not null and"), "what goes by nothing is compared with nothing"),
    (
        Guard(
            "publishing.publish_write",
            "case when v.schema_hash is distinct from before then v.columns end",
            "v.columns",
        ),
        "it saves room: the last write that has columns tells the same",
    ),
    *(
        (Guard("swapping.settle_dag", text, instead), "the jobs that are wanted are of the DAG")
        for text, instead in (
            ("j.dag_id = dag and j.id = any (wanted)", "j.id = any (wanted)"),
            ("where d.id = dag); --", "); --"),
        )
    ),
    (
        Guard("swapping.settle_dag", "for no key update"),
        "the updates that follow take the same locks; the order prevents deadlocks",
    ),
    (
        Guard("swapping.settle_dag", "if not each.is_listening then", "if true then"),
        "what listens was told all: it has not been deaf since any time",
    ),
    *(
        (Guard("acting.collectable", text), "it is asked again when something is taken away")
        for text in ("v.state in ('retired', 'abandoned') and", "and j.state = 'stopped'", "j.dag_id = d.id and")
    ),
    (
        Guard("living.publish_live", "for no key update"),
        "who would change a unit passes it over while its task is there",
    ),
    (Guard("living.publish_live", "x.tag is null and"), "what is listed with a tag is put again by the next statement"),
    *(
        (Guard("living.turn_live_job", text, instead), "it is asked when they are found, and when they are changed")
        for text, instead in (
            (
                "and u.state = 'running' and not exists (select 1 from weft.task t where t.id = u.task_id)",
                "and not exists (select 1 from weft.task t where t.id = u.task_id)",
            ),
            ("o where u.id = o.id and u.state = 'running' returning", "o where u.id = o.id returning"),
        )
    ),
    (
        Guard("living.turn_live_job", "and u.state = 'held' and t.id = u.task_id", "and t.id = u.task_id"),
        "a unit whose task is there runs, or is held",
    ),
    (
        Guard(
            "living.turn_live_job", "and u.state = 'new' order by u.id limit room", "and u.state = 'new' order by u.id"
        ),
        "it bounds the work: what more there is waits for the next turn",
    ),
    *(
        (Guard("living.turn_live_job", text, instead), "whether it is first in its lane is asked of each after it")
        for text, instead in (
            ("and u.state = 'waiting' order by u.id limit 1", "order by u.id limit 1"),
            ("and u.lane is not null and (barrier is null", "and (barrier is null"),
            ("and (barrier is null or u.id < barrier) order by", "order by"),
            ("and u.state = 'waiting' and u.lane is not null", "and u.lane is not null"),
        )
    ),
    (Guard("living.turn_live_job", "and b.id <> u.id"), "one that is new or waits is none that keeps itself waiting"),
    (
        Guard("living.turn_live_job", "u.id = any (others) and u.state = 'new'", "u.id = any (others)"),
        "the others of them wait already",
    ),
    (
        Guard("living.turn_live_job", "order by r.id limit least(room, l.max_concurrency - running)", "order by r.id"),
        "it bounds the work: the same limit holds for both together",
    ),
    (Guard("living.offer_events", "on conflict do nothing"), "the key is the event's id, and each is offered once"),
    (
        Guard("outputs.note_outputs", "and c.trace is not null"),
        "the one without a trace is replaced, or goes by the next statement",
    ),
    (
        Guard(
            "traces.trace_of",
            "w.org_id = t.org_id and w.task_id = t.id and w.attempt = t.attempt",
            "w.task_id = t.id and w.attempt = t.attempt",
        ),
        "ids of tasks are of one org; it is for the index",
    ),
    (Guard("traces.trace_problems", "now.id is null or"), "of what is not there nothing is known to stand"),
    (
        Guard("traces.trace_problems", "exit when jsonb_array_length(found) = 3;"),
        "it bounds what is told: one problem is enough",
    ),
    *(
        (Guard("swapping.swap_dag", "and o.id <> to_version", nth=nth), "the next statement lets that version be live")
        for nth in (0, 1)
    ),
    (
        Guard("staging.own_version", "and s.swaps"),
        "the write of the attempt that did not swap follows the version, and is void with all others when that has changed",
    ),
    (
        Guard("deploying.versions_by_hash", "v.collected_at is null and"),
        "one that is collected has another config_hash",
    ),
    *(
        (Guard(f"dataset.{name}", text), "the id is that of a dataset or a version which was found in its org")
        for name, text in {
            "change": "d.org_id = $1 and",
            "set_key": "d.org_id = $1 and",
            "add_version": "d.org_id = $1 and",
            "versions": "v.org_id = $1 and",
            "version": "d.org_id = $1 and",
            "version_at": "v.org_id = $1 and",
            "writes": "w.org_id = $1 and",
            "kept_columns": "v.org_id = $1 and",
        }.items()
    ),
    *(
        (Guard(statement, text), "the ids are those of datasets and versions which were found in the org")
        for statement, text in {
            "lineage.has_column_edges": "e.org_id = $1 and",
            "lineage.has_more_files": "f.org_id = $1 and",
            "lineage.write": "w.org_id = $1 and",
            "diff.touched_partitions": "f.org_id = $1 and",
            "diff.compared_partitions": "f.org_id = $1 and",
            "diff.rows": "v.org_id = $1 and",
            "diff.columns": "w.org_id = $1 and",
            "diff.before": "v.org_id = $1 and",
            "openlineage.inputs": "i.org_id = $1 and",
            "openlineage.columns": "e.org_id = $1 and",
        }.items()
    ),
    *(
        (Guard(name, text), "the id is that of a dataset which was found in its org, and is locked")
        for name, text in {
            "registering.registered": "v.org_id = $1 and",
            "registering.add": "d.org_id = $1 and",
            "registering.current_columns": "d.org_id = $1 and",
            "keeping.open_write": "s.org_id = $1 and",
            "keeping.hand_over": "d.org_id = $1 and",
            "keeping.delete": "d.org_id = $1 and",
            "keeping.undelete": "d.org_id = $1 and",
        }.items()
    ),
    *(
        (
            Guard("collecting.close_versions", text),
            "the same is asked inside and outside, and the rows are locked inside",
        )
        for text in ("and o.collected_at is null", "and v.collected_at is null")
    ),
    *(
        (Guard("collecting.close_versions", text), "one that is current is not retired; and it is asked twice")
        for text in (
            "and not exists (select 1 from weft.dataset d where d.current_id = o.id)",
            "and not exists (select 1 from weft.dataset d where d.current_id = v.id)",
        )
    ),
    (
        Guard("collecting.removed_files", "f.removed_by is not null and"),
        "what stands is removed by nothing; for the index",
    ),
    (
        Guard("collecting.forget_files", "f.version_id = u.version_id and"),
        "ids of files are unique; it is for the index",
    ),
    (Guard("dataset.set_key", "and d.unique_key is null"), "the dataset is locked since it was found to have none"),
    *(
        (Guard(f"keeping.{name}", text), "the dataset is locked since it was found by its name")
        for name, text in {"delete": "and d.deleted_at is null", "undelete": "and d.deleted_at is not null"}.items()
    ),
    (Guard("keeping.deleted", "and d.deleted_at is not null"), "only one that was deleted has its id behind its name"),
    *(
        (Guard("keeping.live_user", text), "the id is that of a dataset which was found in its org")
        for text in ("o.org_id = $1 and", "i.org_id = $1 and")
    ),
    (Guard("publishing.register_files", "for no key update"), "whoever registers has locked the dataset"),
    *(
        (Guard(f"explain.{name}", text), "the ids are those of a task which was found in its org")
        for name, text in {
            "decision": "t.org_id = $1 and",
            "names": "d.org_id = $1 and",
            "inputs": "i.org_id = $1 and",
        }.items()
    ),
    (Guard("traces.trace_problems", "d.org_id = org and"), "what is kept of an org has ids of its datasets"),
    (
        Guard("dataset.unknown_roles", "r.org_id = $1 and"),
        "a role of another org grants nothing to anybody of this one",
    ),
    *(
        (Guard(statement, text), "what is locked in vain is changed by nobody")
        for statement, text in (
            ("acting.lock_backfilled", "b.org_id = $1 and"),
            ("collecting.keep_datasets", "d.org_id = $1 and"),
        )
    ),
    *(
        (Guard(statement, text), "whether it is kept is asked for of the same org")
        for statement, text in (
            ("dataset.files", "f.org_id = $1 and"),
            ("dataset.partitions", "p.org_id = $1 and"),
            ("rows.read", "v.org_id = $1 and"),
        )
    ),
    (
        Guard("dataset.lock_versions", "for no key update"),
        "what goes back locks the version itself; the order prevents deadlocks",
    ),
    *(
        (Guard("publishing.close_states", text), "what is closed already is left out before and after it is locked")
        for text in ("having max(w.number) > v.oldest_write", "and u.number > v.oldest_write")
    ),
    (
        Guard("publishing.publish_writes", "for no key update", nth=1),
        "the number of a write is unique: one of two is tried again",
    ),
    (
        Guard("publishing.make_current", "for no key update"),
        "whoever makes another version current has locked the dataset",
    ),
    (Guard("publishing.roll_back_version", "for no key update"), "whoever goes back has locked the version"),
    *(
        (Guard(f"deploying.{name}", text), "the id is that of what was found in its org, and is locked")
        for name, text in {
            "lock_dag": "d.org_id = $1 and",
            "jobs_of_version": "m.org_id = $1 and",
            "highest_nonces": "j.org_id = $1 and",
            "known_jobs": "j.org_id = $1 and",
            "keep_version": "v.org_id = $1 and",
            "claim_dataset": "d.org_id = $1 and",
            "begin_building": "d.org_id = $1 and",
            "abandon": "v.org_id = $1 and",
            "outputs": "o.org_id = $1 and",
            "leave": "d.org_id = $1 and",
            "version": "v.org_id = $1 and",
            "version_before": "v.org_id = $1 and",
            "stop_building": "d.org_id = $1 and",
        }.items()
    ),
    *(
        (Guard(f"looking.{name}", text), "the id is that of what was found in its org")
        for name, text in {
            "units": "u.org_id = $1 and",
            "states": "o.org_id = $1 and",
            "versions": "v.org_id = $1 and",
        }.items()
    ),
    (Guard("looking.job_names", "d.org_id = $1 and"), "whoever asks has found the DAG in its org before"),
    *(
        (Guard(f"acting.{name}", text), "the id is that of a job, a unit or a backfill which was found in its org")
        for name, text in {
            "pause_job": "j.org_id = $1 and",
            "resume_job": "j.org_id = $1 and",
            "lock_job": "j.org_id = $1 and",
            "held": "u.org_id = $1 and",
            "begin_anew": "u.org_id = $1 and",
            "skip": "u.org_id = $1 and",
            "state_of_unit": "u.org_id = $1 and",
            "input": "i.org_id = $1 and",
            "unknown_partitions": "p.org_id = $1 and",
            "count_partitions": "p.org_id = $1 and",
            "compute_partitions": "j.org_id = $1 and",
            "leave_units": "u.org_id = $1 and",
        }.items()
    ),
    (Guard("acting.begin_anew", "and u.state = 'held'"), "the job is locked since they were found to be held"),
    (Guard("deploying.abandon", "and v.state = 'building'"), "the DAG is locked, and says that it is being built"),
    (
        Guard("schedule.change", "s.org_id = $1 and"),
        "the id is that of a schedule which was found in its org, and is locked",
    ),
    (Guard("schedule.due", "and s.paused_at is null"), "one that is paused is not taken"),
    (Guard("source_tick.due", "s.is_listening and"), "one that does not listen is not moved on"),
    (Guard("schedule.look_at_backfill", "and b.ended_at is null"), "one that has ended is not taken, nor ended again"),
    *(
        (Guard(f"watching.{name}", text), "whoever asks has found the job in its org before")
        for name, text in {
            "events": "e.org_id = $1 and",
            "open_tasks": "t.org_id = $1 and",
            "ended_node": "d.org_id = $1 and",
            "node_names": "t.org_id = $1 and",
            "attempts": "t.org_id = $1 and",
        }.items()
    ),
    (Guard("seal.hashes_now", "a.org_id = $1 and"), "the ids are those that seals of the org hold"),
    (Guard("answer.keep", "and status is null"), "only whoever has just claimed the key comes here, and comes once"),
    (Guard("sign_in.create", "s.org_id = $1 and"), "what it removes lets nobody in any more, of whichever org"),
    (Guard("job.nodes", "and t.org_id = $1"), "whoever asks has found the job in its org before"),
    (Guard("job.nodes", "and d.org_id = $1"), "whoever asks has found the job in its org before"),
    (Guard("rerun.of", "d.org_id = $1 and"), "the job that was run again was found in its org before"),
    (Guard("rerun.tasks", "d.org_id = $1 and"), "whoever asks has found the job in its org before"),
    (Guard("rerun.of", "j.org_id = $1 and"), "the job that was run again was found in its org before"),
    (
        Guard("step.fail_job", "or job.state = 'cancelling'"),
        "it saves work: what is left of a job that is cancelling is swept away, whatever is counted of it before",
    ),
    *(
        (
            Guard(name, "for share"),
            "whoever sweeps the job passes over the task that makes others, which is locked, and comes again",
        )
        for name in ("step.add_children", "spawned.spawn")
    ),
    (
        Guard("graph.edges_among", "and e.next = u.next"),
        "it bounds the work: more edges that are there are no trouble, only those that are said again are left out",
    ),
    (
        Guard("step.resume_job", "j.org_id = org and"),
        "it locks only: the job itself is asked for by org after it",
    ),
    (
        Guard("step.skip_tasks", "and t.handler <> '@end'"),
        "the end is never among what is to be skipped: when nothing is left to wait for it is ready, whatever has reached it",
    ),
    (
        Guard("saved.list", "s.org_id = $1 and"),
        "whoever asks has found the task in its org before",
    ),
    (
        Guard("queue.park_surplus", "r.place <= c.surplus", "true"),
        "it bounds the work: what is parked beyond the surplus is admitted again in the same transaction",
    ),
    (
        Guard("function.first_in_line", "limit room"),
        "it bounds the work: what lies beyond gets a place beyond the room anyway",
    ),
    (
        Guard("step.reach_next", "and t.state = 'pending' and (", "and ("),
        "a task that still waited for one that ends now was pending: only a pending task takes an edge, and nothing but "
        "cancel moves it while it waits",
    ),
    (
        Guard("queue.park_surplus", "r.place <= c.surplus", "true"),
        "what is parked beyond the surplus is admitted again by the same call, the first in line first",
    ),
    (
        Guard("step.reach_next", "and t.reason is distinct from 'concurrency_key'"),
        "a task that waits for others has the reason dependencies; it is not parked for its key at the same time",
    ),
    (
        Guard("step.reach_next", "order by t.id for no key update"),
        "the order of locks prevents deadlocks, which are retried; the update that follows takes the same locks",
    ),
    (
        Guard("step.finish_and_claim", "for update skip locked", "", nth=1),
        "below the marks lies what is more urgent or came late; the race is the same as above them, where it is tested",
    ),
    (
        Guard("step.finish_and_claim", "and t.id <> all (got)"),
        "what is taken is made running by the last statement, from whichever state",
    ),
    (
        Guard("loan.admit_waiting", "t.state = 'pending' and"),
        "the reason concurrency_key stands with the state pending only; the condition is for the partial index",
    ),
    (
        Guard("function.take_slots", "for update of s"),
        "the insert before has locked the rows already",
    ),
    (
        Guard("task.logs", "l.org_id = $1 and"),
        "the task itself was looked up in the org before",
    ),
    (
        Guard("task.log_marks", "t.org_id = $1 and"),
        "the task itself was looked up in the org before",
    ),
    (
        Guard("task.attempts", "a.org_id = $1 and"),
        "the task itself was looked up in the org before",
    ),
    *[
        (Guard("drawing.gates", text), "the gates of other jobs lead to no task of this one; it is for the index")
        for text in ("t.job_id = $2 and", "d.job_id = $2 and")
    ],
    *[
        (Guard(statement, text, nth=place), "the job itself was looked up in the org before")
        for statement, text, place in (
            ("drawing.choices", "d.org_id = $1 and", 0),
            ("drawing.gates", "t.org_id = $1 and", 0),
            ("drawing.gates", "d.org_id = $1 and", 0),
            ("drawing.items", "t.org_id = $1 and", 0),
            ("drawing.items", "d.org_id = $1 and", 0),
            ("drawing.begun", "j.org_id = $1 and", 0),
            ("drawing.begun", "d.org_id = $1 and", 0),
            ("drawing.ways", "e.org_id = $1 and", 0),
            ("drawing.ways", "e.org_id = $1 and", 1),
        )
    ],
    (
        Guard("task_lists.scan_newest_tasks", "and d.org_id = org"),
        "look_at_tasks asks for the org again; it is for the index",
    ),
    (
        Guard("task.postpone", "t.id = any ($2) and"),
        "the join holds the same; it is for the plan",
    ),
    (
        Guard("task.end_unsuccessfully", "t.id = any ($2) and"),
        "the join holds the same; it is for the plan",
    ),
    (
        Guard("task.hand_back", "t.id = any ($2) and"),
        "the join holds the same; it is for the plan",
    ),
    (
        Guard("task.lock_live", "order by t.id for update"),
        "the delete that follows takes the same locks; the order prevents deadlocks",
    ),
    (
        Guard("task.lock_done", "order by d.id for update"),
        "the delete that follows takes the same locks; the order prevents deadlocks",
    ),
    (
        Guard("task.hold", "for update"),
        "the update that follows takes the lock and finds the state changed, because held is materialized before it",
    ),
    (
        Guard("task.release", "and t.state = 'pending'"),
        "the reason dependencies stands with the state pending only",
    ),
    (
        Guard("worker.mark_lost", "and w.state in ('active', 'idle')", nth=0),
        "the rows are locked by the inner select, which has looked at the state",
    ),
    (
        Guard("worker.held_by_lost", "for update skip locked"),
        "the statements that follow name worker and state again",
    ),
    (
        Guard("worker.expired", "and t.state = 'running'"),
        "an expiry stands with the state running only",
    ),
    (
        Guard("worker.prune", "o.state in ('stopped', 'lost') and"),
        "whoever was rescued is lost; the condition is for who reads it",
    ),
    (
        Guard("upkeep.stage", "t.state = 'scheduled' and"),
        "a time stands with the state scheduled only, and the update names it again; it is for the partial index",
    ),
    (
        Guard("upkeep.stage", "and t.state = 'scheduled'"),
        "the rows are locked by the inner select, which has looked at the state",
    ),
    (
        Guard("blob.unused", "and not exists (select 1 from weft.blob_use u where u.digest = b.digest)"),
        "the second look, under the lock, asks the same; here it keeps the batch from being filled with what must stay",
    ),
    (
        Guard(
            "blob.still_unused",
            "where not exists (select 1 from weft.blob_use r where r.digest = u.digest)",
            "where true",
        ),
        "sees only what was committed between the first look and its lock, inside one statement",
    ),
    (
        Guard("step.put_job", "for update"),
        "what is answered was known when it was asked for, whether or not it expires in that moment",
    ),
    (
        Guard("queue.forget_idle_keys", "and s.held = 0"),
        "the rows are locked by the inner select, which has looked at the count",
    ),
    (
        Guard("queue.forget_idle_keys", "for update skip locked"),
        "the delete waits for the row and looks at its count again",
    ),
    (
        Guard("queue.lock_worker", "for share"),
        "slots of a worker that is marked lost meanwhile are given up by its rescue, which comes after the mark",
    ),
    (
        Guard("outbox.claim", "and o.state = 'pending'"),
        "the rows are locked by the inner select, which has looked at the state",
    ),
    (
        Guard("machine.lease", "and m.until < weft.now()"),
        "the row is locked by the inner select, which has looked at the time",
    ),
    (
        Guard("artifact.contents", "a.org_id = $1 and"),
        "the ids come from a line that was asked for by org",
    ),
    (
        Guard("artifact.parted_at", "one.org_id = $1 and"),
        "that is what the org's own tag is at",
    ),
    (
        Guard("tag.move", "and v.org_id = $1"),
        "the move itself is refused to what another org has",
    ),
    (
        Guard("artifact.chain", "h.org_id = $1 and"),
        "the id is that of an artifact that was found by org",
    ),
    (
        Guard("tag.at_artifacts", "t.org_id = $1 and"),
        "the ids come from the org's own log, and no tag is at another org's artifact",
    ),
    (
        Guard("history.mend_artifact", "a.org_id = $1 and"),
        "ids are of one org",
    ),
    (
        Guard("history.remove_unused", "for update skip locked"),
        "the delete waits for the row, and the reference itself refuses it",
    ),
    (
        Guard("artifact.show", "a.org_id = $1 and"),
        "the documents of what is reverted are read by org after it",
    ),
    (
        Guard("artifact.parted_at", "and other.org_id = $1"),
        "the document of what is merged is read by org before it",
    ),
    (
        Guard("version.put_blob", "put_at = weft.now(),"),
        "the artifact that is put in the same statement refers to it",
    ),
    (
        Guard("history.remove_unused", "a.org_id = $1 and"),
        "the ids are those that were found by org",
    ),
    (
        Guard("history.page_of_artifacts", "where a.org_id = $1"),
        "the ids are those that were found by org",
    ),
    (
        Guard("history.remove_snapshot", "a.org_id = $1 and"),
        "ids are of one org",
    ),
    (
        Guard("history.unused", "and a.kind <> 'version'"),
        "a version is put with the move that leads to it, and moves stay",
    ),
    (
        Guard("user.change", "u.org_id = $1 and"),
        "the id is that of a user who was found by org",
    ),
    (
        Guard("token.create", "u.org_id = $1 and"),
        "the id is that of a user who was found by org",
    ),
    (
        Guard("sign_in.create", "u.org_id = $1 and"),
        "the id is that of a user who was found by org",
    ),
    (
        Guard("user.end_tokens", "t.org_id = $1 and"),
        "the id is that of a user who was found by org",
    ),
    (
        Guard("user.deactivate", "u.org_id = $1 and"),
        "the id is that of a user who was found by org",
    ),
    (
        Guard("user.activate", "u.org_id = $1 and"),
        "the id is that of a user who was found by org",
    ),
    (
        Guard("role.revoke", "m.org_id = $1 and"),
        "role and user were found by org before it",
    ),
    (
        Guard("token.touch", "and coalesce(t.last_used_at < weft.now() - interval '1 minute', true)"),
        "it is asked for only when the last use was found that old; of many who find so at once, one writes",
    ),
]
