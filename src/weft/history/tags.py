"""Tags: moved, taken back and made again, deleted and brought back; every step is kept."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import asyncpg
import orjson

from weft.core.errors import NotFound, StateConflict, TagConflict
from weft.db.statements import Statements
from weft.history.model import Tag, TagMove, Wish
from weft.queue.audit import where_from, why

if TYPE_CHECKING:
    from asyncpg import Record

    from weft.db.database import type_Connection

SQL = Statements("weft.history", "sql/tag.sql")
FROM_NEWEST = 2**63 - 1
# What PostgreSQL says of a reference to a row that is not there.
_REFERENCE = re.compile(r"\(\w+_id\)=\((\d+)\)")


@asynccontextmanager
async def explained(tag: str, target: int | None = None) -> AsyncIterator[None]:
    """Turn a move that the database refuses into an error that says who moved the tag, when, to what."""
    try:
        yield
    except asyncpg.ForeignKeyViolationError as problem:
        gone = _REFERENCE.search(problem.detail or "")  # removed at that moment
        raise NotFound("version", gone[1] if gone else target or f"at which tag {tag} was") from None
    except asyncpg.LockNotAvailableError:
        raise TagConflict(tag, "held", {}) from None
    except asyncpg.PostgresError as problem:
        # The whole name, where the caller has named a workflow.
        named = str(problem).removeprefix("tag ").partition(":")[0]
        match problem.sqlstate:
            case "WF003":
                now = orjson.loads(problem.detail or "{}")
                if "moved_at" in now:
                    now["moved_at"] = datetime.fromisoformat(now["moved_at"]).astimezone(UTC)
                raise TagConflict(named, str(now.get("why")), now) from None
            case "WF004":
                raise NotFound("version", str(problem).rpartition(" ")[2]) from None
            case "WF005":
                raise NotFound("tag", tag) from None
            case "WF006":
                verb = str(problem).rpartition(" ")[2]
                raise StateConflict(verb, named, "at its end", [f"behind a move to {verb}"], kind="tag") from None
        raise


async def show(conn: type_Connection, org_id: int, name: str) -> Tag:
    """Return a tag; raises `NotFound`."""
    row = await conn.fetchrow(SQL.show, org_id, name)
    if row is None:
        raise NotFound("tag", name)
    return Tag(*row)


async def list_tags(
    conn: type_Connection,
    org_id: int,
    *,
    workflow_id: str | None = None,
    after: str = "",
    limit: int = 100,
    with_deleted: bool = False,
) -> list[Tag]:
    """Return the tags of an org by name, or those of one workflow."""
    page = org_id, after, limit, with_deleted
    if workflow_id is None:
        return [Tag(*row) for row in await conn.fetch(SQL.list, *page)]
    return [Tag(*row) for row in await conn.fetch(SQL.list_of_workflow, *page, workflow_id)]


async def names(conn: type_Connection, org_id: int, *, with_deleted: bool = False) -> list[str]:
    """Return the names of the tags, the first thousand."""
    return [row[0] for row in await conn.fetch(SQL.names, org_id, with_deleted)]


async def trace(conn: type_Connection, org_id: int, name: str) -> tuple[str, bool] | None:
    """Return what there is of a tag that cannot be shown: its whole name, and whether it is deleted."""
    row = await conn.fetchrow(SQL.trace, org_id, name)
    return None if row is None else (row["name"], row["is_deleted"])


async def at_artifacts(conn: type_Connection, org_id: int, ids: list[int]) -> dict[int, list[str]]:
    """Return which tags stand at which artifacts."""
    found: dict[int, list[str]] = {}
    for row in await conn.fetch(SQL.at_artifacts, org_id, ids):
        found.setdefault(row[0], []).append(row[1])
    return found


async def moves(
    conn: type_Connection, org_id: int, name: str, *, before: int = FROM_NEWEST, limit: int = 50
) -> list[TagMove]:
    """Return where a tag has been, newest first; that of one that is deleted too."""
    return [TagMove(*row) for row in await conn.fetch(SQL.moves, org_id, name, before, limit)]


async def move(conn: type_Connection, org_id: int, wish: Wish, target: int) -> Tag:
    """Move a tag to an artifact, and make it when it is not there."""
    how = wish.expected_version, _hash(wish), wish.force, wish.actor, wish.message, wish.replaces, where_from(), why()
    async with explained(wish.tag, target):
        row = await conn.fetchrow(SQL.move, org_id, wish.tag, "move", target, *how)
    return _landed(row, wish.tag)


async def undo(conn: type_Connection, org_id: int, wish: Wish, steps: int = 1) -> Tag:
    """Take back the last moves of a tag; raises `StateConflict` when there is nothing to take back."""
    return await _step(conn, SQL.undo, org_id, wish, steps)


async def redo(conn: type_Connection, org_id: int, wish: Wish, steps: int = 1) -> Tag:
    """Make moves again that were taken back; raises `StateConflict` when there are none."""
    return await _step(conn, SQL.redo, org_id, wish, steps)


async def _step(conn: type_Connection, sql: str, org_id: int, wish: Wish, steps: int) -> Tag:
    async with explained(wish.tag):
        row = await conn.fetchrow(
            sql, org_id, wish.tag, steps, wish.expected_version, _hash(wish), wish.force, wish.actor, wish.message,
            where_from(), why(),
        )  # fmt: skip
    return _landed(row, wish.tag)


async def delete(conn: type_Connection, org_id: int, wish: Wish) -> Tag:
    """Take a tag away; its moves stay, and `undelete` brings it back."""
    async with explained(wish.tag):
        row = await conn.fetchrow(
            SQL.delete, org_id, wish.tag, wish.expected_version, _hash(wish), wish.force, wish.actor, wish.message,
            where_from(), why(),
        )  # fmt: skip
    return _landed(row, wish.tag)


async def undelete(conn: type_Connection, org_id: int, wish: Wish) -> Tag:
    """Bring back a tag that was deleted, to where it was."""
    async with explained(wish.tag):
        await conn.execute(SQL.hold, org_id, wish.tag, True, wish.expected_version, _hash(wish))
        row = await conn.fetchrow(SQL.undelete, org_id, wish.tag, wish.actor, wish.message, where_from(), why())
    return _landed(row, wish.tag)


async def protect(conn: type_Connection, org_id: int, wish: Wish, is_protected: bool) -> str:
    """Let a tag be moved only by force, or freely again; return its whole name. Who did it is kept."""
    async with explained(wish.tag):
        await conn.execute(SQL.hold, org_id, wish.tag, False, wish.expected_version, _hash(wish))
        found = await conn.fetchval(SQL.protect, org_id, wish.tag, is_protected, wish.actor, where_from(), why())
    if found is None:
        raise NotFound("tag", wish.tag)
    return str(found)


def _hash(wish: Wish) -> bytes | None:
    return None if wish.expected_hash is None else bytes.fromhex(wish.expected_hash)


def _landed(row: Record | None, name: str) -> Tag:
    if row is None or row["name"] is None:
        raise NotFound("tag", name)
    return Tag(*row)
