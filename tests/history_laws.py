"""What must hold of the history of definitions whatever happened, told by its rows alone."""

from __future__ import annotations

import asyncpg

# Each query returns what is wrong; $1 is the deepest chain that may be.
LAWS = {
    "the moves of a tag are numbered without a gap": """
        select tag, min(version), max(version), count(*) from weft.tag_move group by org_id, tag
        having min(version) <> 1 or max(version) <> count(*)""",
    "each move begins where the one before it ended": """
        select tag, version, from_id, ended from (
          select tag, version, from_id, lag(to_id) over (partition by org_id, tag order by version) as ended
          from weft.tag_move) m
        where from_id is distinct from ended""",
    "no move is earlier than the one before it": """
        select tag, version, moved_at, before from (
          select tag, version, moved_at, lag(moved_at) over (partition by org_id, tag order by version) as before
          from weft.tag_move) m
        where moved_at < before""",
    "a tag is where its last move left it": """
        select t.name, t.version, m.version, t.target_id, m.to_id from weft.tag t
        full join (select distinct on (org_id, tag) * from weft.tag_move order by org_id, tag, version desc) m
          on m.org_id = t.org_id and m.tag = t.name
        where (t.version, t.position, t.moved_at, t.moved_by, t.deleted_at is not null)
          is distinct from (m.version, m.position, m.moved_at, m.moved_by, m.verb = 'delete')
          or t.target_id is distinct from case when m.verb = 'delete' then m.from_id else m.to_id end""",
    "what is in effect means what the move set that undo would take back": """
        select m.tag, m.version, m.verb, m.position from weft.tag_move m
        left join weft.tag_move p on p.org_id = m.org_id and p.tag = m.tag and p.version = m.position
        left join weft.artifact a on a.id = m.to_id left join weft.artifact b on b.id = p.to_id
        where m.verb <> 'delete' and (a.version_hash = b.version_hash) is not true""",
    "an undo and a redo go to the very version that a move had set": """
        select m.tag, m.version, m.verb from weft.tag_move m
        left join weft.tag_move p on p.org_id = m.org_id and p.tag = m.tag and p.version = m.position
        where m.verb in ('undo', 'redo') and (m.to_id = p.to_id) is not true""",
    "a change was made on what the tag was at": """
        select m.tag, m.version, m.verb, m.from_id, a.parent_id from weft.tag_move m
        left join weft.artifact a on a.id = m.to_id
        where m.verb in ('push', 'patch', 'merge', 'revert', 'compact') and a.parent_id is distinct from m.from_id""",
    "a tag leads to a version or a patch of its workflow": """
        select t.name from weft.tag t left join weft.artifact a on a.id = t.target_id and a.org_id = t.org_id
        where (a.kind <> 'snapshot' and a.workflow_id = t.workflow_id) is not true""",
    "a patch is on a version, or on a patch of the same version": """
        select a.id from weft.artifact a
        join weft.artifact p on p.id = a.parent_id join weft.artifact b on b.id = a.base_id
        where a.kind = 'patch' and (b.kind <> 'version'
          or case p.kind when 'version' then p.id <> b.id or a.depth <> 1
                         when 'patch' then p.base_id <> b.id or a.depth <> p.depth + 1 else true end)""",
    "the rows of a chain are the patches from its version on, in their order": """
        with recursive chain (head_id, member_id, seq) as (
          select a.id, a.id, a.depth::int from weft.artifact a where a.kind = 'patch'
          union all
          select c.head_id, p.id, c.seq - 1 from chain c
          join weft.artifact a on a.id = c.member_id
          join weft.artifact p on p.id = a.parent_id and p.kind = 'patch')
        select coalesce(c.head_id, m.head_id), coalesce(c.seq, m.seq), c.member_id, m.member_id
        from chain c full join weft.patch_chain_member m on m.head_id = c.head_id and m.seq = c.seq
        where c.member_id is distinct from m.member_id""",
    "no chain at which a tag was is longer than the setting": """
        select a.id, a.depth from weft.artifact a
        where a.depth > $1 and exists (select 1 from weft.tag_move m where m.to_id = a.id)""",
    "no chain is longer than the setting by more than the patch of one job": """
        select id, depth from weft.artifact where depth > $1 + 1""",
}

BROKEN_LAWS = "\nunion all\n".join(
    f"select $law${law}$law$ as law, row_to_json(x)::text as found from ({query}) x" for law, query in LAWS.items()
)

HISTORY = ("blob", "artifact", "patch_chain_member", "tag", "tag_move")
_EVERYTHING = "\nunion all\n".join(f"select '{table}', x::text from weft.{table} x" for table in HISTORY)


async def broken_laws(conn: asyncpg.Connection[asyncpg.Record], depth: int = 10) -> list[tuple[str, str]]:
    """Return what is wrong with the history; nothing, if all is well."""
    return [(row[0], row[1]) for row in await conn.fetch(BROKEN_LAWS, depth)]


async def everything(conn: asyncpg.Connection[asyncpg.Record]) -> list[tuple[str, str]]:
    """Return every row of the history, to be compared with what was there before."""
    return sorted((row[0], row[1]) for row in await conn.fetch(_EVERYTHING))


_OLDER = """
  set session_replication_role = replica;
  update weft.artifact set id = id - {back}, parent_id = parent_id - {back}, base_id = base_id - {back},
    merged_id = merged_id - {back},
    chain = (select array_agg(c.id - {back} order by c.n) from unnest(chain) with ordinality as c (id, n));
  update weft.tag set target_id = target_id - {back};
  update weft.tag_move set from_id = from_id - {back}, to_id = to_id - {back};
  update weft.blob set put_at = put_at - interval '2 days';
  set session_replication_role = origin;
"""


async def make_older(conn: asyncpg.Connection[asyncpg.Record]) -> None:
    """Make everything two days older: artifacts by their ids, which tell the time, blobs by their rows."""
    await conn.execute(_OLDER.format(back=(2 * 24 * 3600 * 1000) << 22))
