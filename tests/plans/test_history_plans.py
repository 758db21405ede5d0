"""What the statements of the history read when there are fifty thousand versions and patches: pages, and indexes.

A bound is about twice what was measured; what matters is that it does not grow with the tables.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import asyncpg
import pytest
from guard import ONE_PASS, Guard, check

from weft.db.statements import Statements

ARTIFACT, TAG = Statements("weft.history", "sql/artifact.sql"), Statements("weft.history", "sql/tag.sql")
UPKEEP, BLOB = Statements("weft.history", "sql/upkeep.sql"), Statements("weft.queue", "sql/blob.sql")
FLOWS, EACH, BRANCHES, MOVES, UNUSED = 100, 550, 2_000, 20_000, 100
BLOBS = FLOWS * EACH + UNUSED
DAY = timedelta(days=1)

# Each workflow has versions with ten patches on each; the first has a tag that was moved to and fro, half a year long,
# another one that was just taken back a step, and another one that was deleted.
FILL = f"""
  create function pg_temp.id_of(flow int, place int) returns bigint immutable language sql
    return weft.first_id_at('2026-01-01') + (place * {FLOWS} + flow) * (10000::bigint << 22);
  insert into weft.blob (digest, bytes, content, put_at)
    select encode(sha256(n::text::bytea), 'hex'), 100, repeat('x', 100)::bytea,
      timestamptz '2026-01-01' + n * interval '10 seconds'
    from generate_series(0, {BLOBS - 1}) n;
  set session_replication_role = replica;
  insert into weft.artifact (id, org_id, parent_id, base_id, chain, kind, generation, workflow_id, digest, version_hash, actor)
    select pg_temp.id_of(flow, k), 1, case when k > 0 then pg_temp.id_of(flow, k - 1) end,
      case when k % 11 > 0 then pg_temp.id_of(flow, k - k % 11) end,
      case when k % 11 > 0 then array(select pg_temp.id_of(flow, m) from generate_series(k - k % 11 + 1, k) m) end,
      (case when k % 11 > 0 then 'patch' else 'version' end)::weft.artifact_kind, k + 1, 'flow' || flow,
      encode(sha256((k * {FLOWS} + flow)::text::bytea), 'hex'), sha256((k || '/' || flow)::bytea), 'ann'
    from generate_series(0, {FLOWS - 1}) flow, generate_series(0, {EACH - 1}) k;
  insert into weft.artifact (id, org_id, parent_id, kind, generation, workflow_id, digest, version_hash, plan_hash, actor)
    select pg_temp.id_of(flow, k) + 1, 1, pg_temp.id_of(flow, k), 'snapshot', k + 2, 'flow' || flow,
      encode(sha256((k * {FLOWS} + flow)::text::bytea), 'hex'), sha256((k || '/' || flow)::bytea),
      sha256(('plan' || k || '/' || flow)::bytea), 'ann'
    from generate_series(0, {FLOWS - 1}) flow, generate_series(1, {EACH - 1}, 110) k;
  insert into weft.tag (org_id, name, workflow_id, target_id, version, position, moved_at, moved_by)
    select 1, 'flow' || flow || '/main', 'flow' || flow, pg_temp.id_of(flow, {EACH - 1}), {EACH}, {EACH},
      timestamptz '2026-01-01' + {EACH} * interval '1 hour', 'ann'
    from generate_series(0, {FLOWS - 1}) flow;
  insert into weft.tag (org_id, name, workflow_id, target_id, version, position, moved_at, moved_by)
    select 1, 'flow1/branch-' || n, 'flow1', pg_temp.id_of(1, n % {EACH}), 1, 1, '2026-01-01', 'ann'
    from generate_series(1, {BRANCHES}) n;
  insert into weft.tag_move (org_id, version, position, back_to, from_id, to_id, moved_at, verb, tag, moved_by)
    select 1, k + 1, k + 1, nullif(k, 0), case when k > 0 then pg_temp.id_of(flow, k - 1) end, pg_temp.id_of(flow, k),
      timestamptz '2026-01-01' + k * interval '1 hour', 'patch', 'flow' || flow || '/main', 'ann'
    from generate_series(0, {FLOWS - 1}) flow, generate_series(0, {EACH - 1}) k;
  insert into weft.tag_move (org_id, version, position, back_to, from_id, to_id, moved_at, verb, tag, moved_by)
    select 1, {EACH} + n, {EACH} + n, {EACH} + n - 1, pg_temp.id_of(0, case n when 1 then {EACH - 1} else (n - 1) % 2 end), pg_temp.id_of(0, n % 2),
      timestamptz '2026-03-01' + n * interval '1 minute', 'move', 'flow0/main', 'ann'
    from generate_series(1, {MOVES}) n;
  update weft.tag set version = {EACH + MOVES}, position = {EACH + MOVES}, target_id = pg_temp.id_of(0, {MOVES} % 2)
    where name = 'flow0/main';
  insert into weft.tag_move (org_id, version, position, to_id, moved_at, verb, tag, moved_by)
    select 1, 1, 1, t.target_id, t.moved_at, 'move', t.name, 'ann' from weft.tag t where t.name like '%branch%';
  insert into weft.tag_move (org_id, version, position, from_id, to_id, moved_at, verb, tag, moved_by)
    select 1, t.version + 1, t.version - 1, t.target_id, pg_temp.id_of(8, {EACH - 2}), t.moved_at, 'undo', t.name, 'ann'
    from weft.tag t where t.name = 'flow8/main';
  update weft.tag set version = {EACH + 1}, position = {EACH - 1}, target_id = pg_temp.id_of(8, {EACH - 2})
    where name = 'flow8/main';
  insert into weft.tag_move (org_id, version, position, from_id, moved_at, verb, tag, moved_by)
    select 1, t.version + 1, t.version, t.target_id, t.moved_at, 'delete', t.name, 'ann'
    from weft.tag t where t.name = 'flow9/main';
  update weft.tag set version = {EACH + 1}, deleted_at = moved_at where name = 'flow9/main';
  set session_replication_role = origin;
"""


def _digest(letter: str) -> str:
    return letter * 64


def _guards(ids: dict[str, Any]) -> list[Guard]:
    head, early, young, at, hash_ = ids["head"], ids["early"], ids["young"], ids["at"], ids["hash"]
    put = ("flow7", head, None, _digest("a"), 10, "\\x00", hash_, "ann", "why")
    version = EACH
    kept = (_digest("c"), 10, "\\x00", ids["head_hash"], "ann", None)
    return [
        Guard("a document, by its tag", ARTIFACT.materials, (1, None, "flow7/main", None, None), 250, {"artifact_pkey": 40}, 1),
        Guard("a document, by its workflow", ARTIFACT.materials, (1, None, "flow7", None, None), 250, {"tag_pkey": 4}, 1),
        Guard("a document that is known", ARTIFACT.materials, (1, None, "flow7", None, head), 60, {"tag_pkey": 4}, 1),
        Guard("a document, by its id", ARTIFACT.materials, (1, early, None, None, None), 250, {"artifact_pkey": 40}, 1),
        Guard("a document that is kept whole", ARTIFACT.materials, (1, ids["kept"], None, None, None), 60, {}, 1),
        Guard("a document of a moment", ARTIFACT.materials, (1, None, "flow0", at, None), 400, {"tag_move_pkey": 40}, 1),
        Guard("where is a tag", TAG.show, (1, "flow7"), 25, {"tag_pkey": 4}, 1),
        Guard("a page of tags", TAG.list, (1, "flow1/branch-2", 100, False), 1200, {"tag_pkey": 110}, 100),
        Guard("tags of a workflow", TAG.list_of_workflow, (1, "", 100, False, "flow7"), 30, {"tag_workflow": 8}, 1),
        Guard("tags at artifacts", TAG.at_artifacts, (1, [head, early]), 30, {"tag_target": 5}),
        Guard("a page of moves", TAG.moves, (1, "flow0", MOVES // 2, 50), 60, {"tag_move_pkey": 60}, 50),
        Guard("an artifact", ARTIFACT.show, (1, head), 15, {"artifact_list": 1}, 1),
        Guard("a page of all", ARTIFACT.list, (1, head, 50), 60, {"artifact_list": 60}, 50),
        Guard("a page of a workflow", ARTIFACT.list_of_workflow, (1, 2**62, 50, "flow7"), 60, {"artifact_list_of_workflow": 60}, 50),
        Guard("a page of the log", ARTIFACT.log, (1, head, None, 50), 1500, {"artifact_pkey": 300}, 50),
        Guard("a page of the log, further down", ARTIFACT.log, (1, head, young, 50), 2000, {}, 50),
        Guard("where two lines parted", ARTIFACT.parted_at, (1, head, young), 1500, {"artifact_pkey": 300}, 1),
        Guard("by the beginning of a hash", ARTIFACT.find, (1, hash_, hash_), 20, {"artifact_meaning": 5}, 1),
        Guard("the snapshot of a plan", ARTIFACT.snapshot_of_plan, (1, head, _digest("b")), 150, {}, 0),
        Guard("a move", TAG.move, (1, "flow7", "move", early, version, None, False, "ann", None, None, None, None), 250, {}, 1),
        Guard("undo", TAG.undo, (1, "flow7", 1, None, None, False, "ann", None, None, None), 250, {"tag_move_pkey": 6}, 1),
        Guard("undo of many", TAG.undo, (1, "flow0", 1, None, None, False, "ann", None, None, None), 250, {"tag_move_pkey": 6}, 1),
        Guard(
            "a version", ARTIFACT.put_on_tag,
            (1, "flow7/main", "push", "version", *put, version, False, None, None, None), 400, {"artifact_pkey": 20}, 1,
        ),
        Guard(
            "a patch", ARTIFACT.put_on_tag,
            (1, "flow7/main", "patch", "patch", *put, version, False, None, None, None), 400, {"artifact_pkey": 20}, 1,
        ),
        Guard("redo", TAG.redo, (1, "flow8", 1, None, None, False, "ann", None, None, None), 250, {"tag_move_back": 4}, 1),
        Guard("a tag that is deleted", TAG.delete, (1, "flow7", None, None, False, "ann", None, None, None), 250, {}, 1),
        Guard("a tag that comes back", TAG.undelete, (1, "flow9", "ann", None, None, None), 250, {}, 1),
        Guard(
            "a compaction", ARTIFACT.compact,
            (1, "flow7/main", "flow7", head, _digest("c"), 10, "\\x00", ids["head_hash"], "ann", version, None, None), 400,
            {"artifact_pkey": 20}, 1,
        ),
        Guard("a snapshot", ARTIFACT.put_snapshot, (1, head, "flow7", None, None, None, *kept, True, None, None), 400, {"artifact_pkey": 30}, 1),
        Guard(
            "a snapshot of a patch", ARTIFACT.put_snapshot, (1, head, "flow7", _digest("b"), 10, "\\x00", *kept, True, None, None), 500,
            {"artifact_pkey": 40}, 1,
        ),
        Guard("all that led to an artifact", ARTIFACT.line, (1, head), 13 * EACH, {"artifact_pkey": 2 * EACH + 10}, EACH),
        Guard("what artifacts hold", ARTIFACT.contents, (1, ids["some"]), 500, {"artifact_list": 60, "blob_pkey": 60}, 50),
        # One look for each blob, whose references are few.
        Guard("how much nobody refers to", UPKEEP.unused_blobs, (DAY, []), 3 * BLOBS, {"artifact_digest": BLOBS}, 1),
        Guard("what nobody refers to", BLOB.unused, (DAY,), 3 * BLOBS, {"artifact_digest": BLOBS}, UNUSED),
        Guard("what nobody uses", UPKEEP.unused, (1, DAY), 3 * ONE_PASS, {}, FLOWS * 5),
        Guard(
            "a removal", UPKEEP.remove_unused, (1, [ids["snapshot"]]), 60,
            {"artifact_parent": 2, "artifact_merged": 2, "tag_move_to": 2, "tag_target": 2}, 1,
        ),
        Guard("a page to be looked through", UPKEEP.page_of_artifacts, (1, [head, early]), 60, {"artifact_list": 2}, 2),
        Guard("what everything was made from", UPKEEP.lines, (1,), ONE_PASS, {}),
        Guard("tags that are lost", UPKEEP.lost_tags, (1,), ONE_PASS, {}, 0),
        Guard("one tag astray", UPKEEP.astray_tags, (1, ["flow7/main"]), 60, {"tag_pkey": 2}, 0),
        Guard("moves that do not follow", UPKEEP.broken_moves, (1,), ONE_PASS, {}, 0),
        Guard("tags astray", UPKEEP.astray_tags, (1, None), ONE_PASS, {}, 0),
    ]  # fmt: skip


@pytest.mark.long
async def test_no_statement_reads_more_when_the_history_is_longer(own_url: str) -> None:
    conn = await asyncpg.connect(own_url)
    await conn.execute(FILL)
    await conn.execute("analyze")
    ids = await conn.fetchrow(
        """select pg_temp.id_of(7, $1) as head, pg_temp.id_of(7, 5) as early, pg_temp.id_of(7, $1 - 20) as young,
        pg_temp.id_of(7, 111) as kept, pg_temp.id_of(7, 111) + 1 as snapshot, timestamptz '2026-03-10' as at""",
        EACH - 1,
    )
    assert ids is not None
    some = await conn.fetchval("select array(select pg_temp.id_of(7, k) from generate_series(100, 149) k)")
    hash_, head_hash = [
        f"\\x{(await conn.fetchval('select version_hash from weft.artifact where id = $1', ids[name])).hex()}"
        for name in ("early", "head")
    ]
    guards = _guards({**ids, "hash": hash_, "head_hash": head_hash, "some": some})
    broken = []
    # Once as first planned, and again after so many calls that a generic plan may have taken over.
    for turn in range(7):
        broken += await check(conn, guards, f"call {turn + 1}")
        # What the guards wrote is taken back, and leaves entries of dead rows in the indexes that are counted.
        await conn.execute("vacuum weft.tag, weft.tag_move, weft.artifact, weft.blob")
    await conn.close()
    assert not broken, "\n".join(broken)
