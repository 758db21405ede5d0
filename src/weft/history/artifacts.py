"""Artifacts: listed, shown with those that they were made from, found by what they mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from weft.core.checks import MAX_ID
from weft.core.errors import InvalidInput, NotFound
from weft.db.statements import Statements
from weft.history.model import Artifact

if TYPE_CHECKING:
    from weft.db.database import type_Connection

SQL = Statements("weft.history", "sql/artifact.sql")


async def show(conn: type_Connection, org_id: int, artifact_id: int) -> Artifact:
    """Return an artifact; raises `NotFound`."""
    row = await conn.fetchrow(SQL.show, org_id, artifact_id)
    if row is None:
        raise NotFound("version", artifact_id)
    return Artifact(*row)


async def list_artifacts(
    conn: type_Connection, org_id: int, *, workflow_id: str | None = None, before: int | None = None, limit: int = 50
) -> list[Artifact]:
    """Return what is kept, or what is kept of one workflow, newest first, or what came ``before`` an id."""
    below = MAX_ID if before is None else before
    if workflow_id is None:
        rows = await conn.fetch(SQL.list, org_id, below, limit)
    else:
        rows = await conn.fetch(SQL.list_of_workflow, org_id, below, limit, workflow_id)
    return [Artifact(*row) for row in rows]


async def log(
    conn: type_Connection, org_id: int, artifact_id: int, *, before: int | None = None, limit: int = 50
) -> list[Artifact]:
    """Return an artifact and those that it was made from, newest first, or those ``before``; raises `NotFound`."""
    if before is not None:
        await show(conn, org_id, before)
    rows = await conn.fetch(SQL.log, org_id, artifact_id, before, limit)
    if not rows:
        await show(conn, org_id, artifact_id)
    return [Artifact(*row) for row in rows]


async def line(conn: type_Connection, org_id: int, artifact_id: int) -> list[Artifact]:
    """Return all that an artifact was made from, itself the last; raises `NotFound`."""
    rows = await conn.fetch(SQL.line, org_id, artifact_id)
    if not rows:
        raise NotFound("version", artifact_id)
    return [Artifact(*row) for row in rows]


async def back(conn: type_Connection, org_id: int, artifact_id: int, steps: int) -> int:
    """Return the artifact so many changes before another, along first parents; raises `NotFound`."""
    row = await conn.fetchrow(SQL.back, org_id, artifact_id, steps)
    if row is None or row["step"] < steps:
        there = 0 if row is None else row["step"]
        raise NotFound("version", f"{steps} changes before {artifact_id}, which has {there} before it")
    return int(row["id"])


async def parted_at(conn: type_Connection, org_id: int, one: int, other: int) -> list[int]:
    """Return the last artifacts from which two others came: several when each was merged into the other's line.

    Raises `InvalidInput` when they have none in common.
    """
    found = [row[0] for row in await conn.fetch(SQL.parted_at, org_id, one, other)]
    if not found:
        for each in (one, other):  # which may have been removed a moment ago
            await show(conn, org_id, each)
        raise InvalidInput("merge", "the two have no version in common: push one onto the other instead")
    return found


async def contents(conn: type_Connection, org_id: int, ids: Sequence[int]) -> dict[int, tuple[str, bytes | None]]:
    """Return the digests and the stored bytes of artifacts."""
    return {row[0]: (row[1], row[2]) for row in await conn.fetch(SQL.contents, org_id, list(ids))}


async def find(conn: type_Connection, org_id: int, prefix: str, field: str = "version") -> tuple[int, str]:
    """Return the newest artifact whose version hash begins so, and the whole hash.

    Raises `NotFound` when there is none, `InvalidInput` that names the ``field`` when several hashes begin so.
    """
    low, high = bytes.fromhex(prefix.ljust(64, "0")), bytes.fromhex(prefix.ljust(64, "f"))
    rows = await conn.fetch(SQL.find, org_id, low, high)
    if not rows:
        raise NotFound("version", prefix)
    if len(rows) > 1:
        raise InvalidInput(field, f"{prefix} is the beginning of several hashes: give more of it")
    return rows[0]["id"], rows[0]["version_hash"]
