"""Tags: moved, taken back and made again, deleted and brought back; every step is kept."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import fields
from typing import TYPE_CHECKING

import asyncpg
import orjson

from weft.core.errors import NotFound, StateConflict, TagConflict
from weft.db.statements import Statements
from weft.history.model import Tag, TagMove

if TYPE_CHECKING:
    from asyncpg import Record

    from weft.db.database import type_Connection

SQL = Statements("weft.history", "sql/tag.sql")
FROM_NEWEST = 2**63 - 1
_MOVE = [field.name for field in fields(TagMove)]


@asynccontextmanager
async def explained(tag: str, target: int | None = None) -> AsyncIterator[None]:
    """Turn a move that the database refuses into an error that says who moved the tag, when, to what."""
    try:
        yield
    except asyncpg.PostgresError as problem:
        match problem.sqlstate:
            case "WF003":
                now = orjson.loads(problem.detail or "{}")
                raise TagConflict(tag, str(now.get("why")), now) from None
            case "WF004":
                raise NotFound("version", target) from None
            case "WF005":
                raise NotFound("tag", tag) from None
            case "WF006":
                verb = str(problem).rpartition(" ")[2]
                raise StateConflict(verb, tag, "at its end", [f"behind a move to {verb}"], kind="tag") from None
        raise


async def show(conn: type_Connection, org_id: int, name: str) -> Tag:
    """Return a tag; raises `NotFound`."""
    row = await conn.fetchrow(SQL.show, org_id, name)
    if row is None or row["deleted_at"] is not None:
        raise NotFound("tag", name)
    return _tag(row)


async def list_tags(
    conn: type_Connection, org_id: int, *, workflow_id: str | None = None, after: str = "", limit: int = 100,
    with_deleted: bool = False,
) -> list[Tag]:  # fmt: skip
    """Return the tags of an org by name, or those of one workflow."""
    return [_tag(row) for row in await conn.fetch(SQL.list, org_id, workflow_id, after, limit, with_deleted)]


async def known(conn: type_Connection, org_id: int, wanted: list[str], *, with_deleted: bool = False) -> list[str]:
    """Return those of some names that are tags."""
    return [row[0] for row in await conn.fetch(SQL.known, org_id, wanted, with_deleted)]


async def names(conn: type_Connection, org_id: int) -> list[str]:
    """Return the names of the tags, the first thousand."""
    return [row[0] for row in await conn.fetch(SQL.names, org_id)]


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
    return [
        TagMove(**{name: row[name] for name in _MOVE})
        for row in await conn.fetch(SQL.moves, org_id, name, before, limit)
    ]


async def move(
    conn: type_Connection, org_id: int, name: str, target: int, actor: str, *, message: str | None = None,
    expected_version: int | None = None, expected_hash: bytes | None = None, force: bool = False,
) -> Tag:  # fmt: skip
    """Move a tag to an artifact, and make it when it is not there."""
    async with explained(name, target):
        row = await conn.fetchrow(
            SQL.move, org_id, name, "move", target, expected_version, expected_hash, force, actor, message
        )
    assert row is not None
    return _tag(row)


async def undo(
    conn: type_Connection, org_id: int, name: str, steps: int, actor: str, *, message: str | None = None,
    expected_version: int | None = None, force: bool = False,
) -> Tag:  # fmt: skip
    """Take back the last moves of a tag; raises `StateConflict` when there is nothing to take back."""
    return await _step(conn, SQL.undo, org_id, name, steps, actor, message, expected_version, force)


async def redo(
    conn: type_Connection, org_id: int, name: str, steps: int, actor: str, *, message: str | None = None,
    expected_version: int | None = None, force: bool = False,
) -> Tag:  # fmt: skip
    """Make moves again that were taken back; raises `StateConflict` when there are none."""
    return await _step(conn, SQL.redo, org_id, name, steps, actor, message, expected_version, force)


async def _step(
    conn: type_Connection, sql: str, org_id: int, name: str, steps: int, actor: str, message: str | None,
    expected_version: int | None, force: bool,
) -> Tag:  # fmt: skip
    async with explained(name):
        row = await conn.fetchrow(sql, org_id, name, steps, expected_version, force, actor, message)
    return _landed(row, name)


async def delete(
    conn: type_Connection, org_id: int, name: str, actor: str, *, message: str | None = None,
    expected_version: int | None = None, force: bool = False,
) -> Tag:  # fmt: skip
    """Take a tag away; its moves stay, and `undelete` brings it back."""
    async with explained(name):
        row = await conn.fetchrow(SQL.delete, org_id, name, expected_version, force, actor, message)
    return _landed(row, name)


async def undelete(conn: type_Connection, org_id: int, name: str, actor: str, *, message: str | None = None) -> Tag:
    """Bring back a tag that was deleted, to where it was."""
    return _landed(await conn.fetchrow(SQL.undelete, org_id, name, actor, message), name)


async def protect(conn: type_Connection, org_id: int, name: str, is_protected: bool) -> None:
    """Let a tag be moved only by force, or freely again."""
    if await conn.fetchval(SQL.protect, org_id, name, is_protected) is None:
        raise NotFound("tag", name)


def _landed(row: Record | None, name: str) -> Tag:
    if row is None or row["name"] is None:
        raise NotFound("tag", name)
    return _tag(row)


def _tag(row: Record) -> Tag:
    hash_ = row.get("target_hash")
    return Tag(
        name=row["name"], workflow_id=row["workflow_id"], target_id=row["target_id"], version=row["version"],
        moved_at=row["moved_at"], moved_by=row["moved_by"], is_protected=row["is_protected"],
        target_kind=row.get("target_kind"), target_hash=None if hash_ is None else hash_.hex(),
        deleted_at=row["deleted_at"],
    )  # fmt: skip
