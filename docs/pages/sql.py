"""The page of the public SQL: functions and views, read from a migrated database."""

from __future__ import annotations

import re

import asyncpg

from docs.pages.markdown import code, table
from docs.pages.sql_notes import COLUMNS, FUNCTIONS, PARAMETERS, VIEWS

_HEAD = """\
# SQL

These functions and views are the contract for plain SQL, triggers and other languages. The tables behind them are
private: their columns change between releases, and writing to them by hand breaks promises that the functions keep.

Everything lives in the schema `weft`. How to enqueue from SQL, with examples and grants, is told in
[enqueue from SQL](../how-to/enqueue-from-sql.md).

"""

_ARGUMENTS = """
select p.oid::regprocedure::text as signature, pg_get_function_arguments(p.oid) as arguments,
  pg_get_function_result(p.oid) as result, obj_description(p.oid, 'pg_proc') as note
from pg_proc p where p.pronamespace = 'weft'::regnamespace and p.proname = $1
"""

_VIEW = """
select a.attname as name, format_type(a.atttypid, a.atttypmod) as type,
  col_description(a.attrelid, a.attnum) as note, obj_description(a.attrelid, 'pg_class') as view_note
from pg_attribute a
where a.attrelid = ('weft.' || $1)::regclass and a.attnum > 0 and not a.attisdropped order by a.attnum
"""


async def page(url: str) -> str:
    """Return the page; ``url`` is a database with the schema of this release."""
    conn = await asyncpg.connect(url)
    try:
        parts = [_HEAD, "## Functions\n"]
        for name, note in FUNCTIONS.items():
            parts.append(await _function(conn, name, note))
        parts.append("\n## Views\n")
        views = await conn.fetch("select viewname from pg_views where schemaname = 'weft'")
        unknown = {row[0] for row in views} ^ VIEWS.keys()
        if unknown:
            raise SystemExit(f"docs/pages/sql_notes.py does not match the views of the schema: {', '.join(unknown)}")
        for name, note in VIEWS.items():
            parts.append(await _view(conn, name, note))
    finally:
        await conn.close()
    return "".join(parts)


async def _function(conn: asyncpg.Connection[asyncpg.Record], name: str, note: str) -> str:
    row = await conn.fetchrow(_ARGUMENTS, name)
    if row is None:
        raise SystemExit(f"docs/pages/sql_notes.py tells of weft.{name}, which does not exist")
    arguments = re.split(r", (?=\w+ )", row["arguments"]) if row["arguments"] else []
    inner = "".join(f"\n  {argument}," for argument in arguments).rstrip(",")
    shown = f"weft.{name}({inner}\n) returns {row['result']}" if arguments else f"weft.{name}() returns {row['result']}"
    text = (
        f"\n### `weft.{name}`\n\n<!-- not run: a signature -->\n```sql\n{shown}\n```\n\n{_joined(row['note'], note)}\n"
    )
    rows = [
        (code(p.split()[0]), PARAMETERS[name, p.split()[0]]) for p in arguments if (name, p.split()[0]) in PARAMETERS
    ]
    return text + ("\n" + table(("argument", "meaning"), rows) if rows else "")


async def _view(conn: asyncpg.Connection[asyncpg.Record], name: str, note: str) -> str:
    rows = await conn.fetch(_VIEW, name)
    cells = []
    for row in rows:
        meaning = row["note"] or COLUMNS.get((name, row["name"])) or COLUMNS.get(("*", row["name"]))
        if meaning is None:
            raise SystemExit(f"docs/pages/sql_notes.py says nothing of weft.{name}.{row['name']}")
        cells.append((code(row["name"]), row["type"], meaning))
    return f"\n### `weft.{name}`\n\n{_joined(rows[0]['view_note'], note)}\n\n" + table(
        ("column", "type", "meaning"), cells
    )


def _joined(comment: str | None, note: str) -> str:
    return " ".join(text for text in (comment, note) if text)
