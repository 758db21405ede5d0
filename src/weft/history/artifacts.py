"""Artifacts: read with all that their document is made of, and put beside those that are there."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from weft.core.errors import InvalidInput, NotFound
from weft.db.blobs import Blobs
from weft.db.statements import Statements
from weft.flow.patches import apply_ops
from weft.history.contents import load
from weft.history.model import Artifact, Materialized

if TYPE_CHECKING:
    from asyncpg import Record

    from weft.db.database import type_Connection

SQL = Statements("weft.history", "sql/artifact.sql")
FROM_NEWEST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Materials:
    """An artifact and the contents of which its document is made: a whole one, and patches on it."""

    row: Record

    @property
    def plan(self) -> bytes:
        """What tells how the document is made, whether it is read from a snapshot or not."""
        row = self.row
        return bytes(row["plan_hash"]) if row["kind"] == "patch" else plan_of_version(row["digest"])

    async def document(self, blobs: Callable[[], Blobs]) -> dict[str, Any]:
        """Return the document; raises `BlobUnavailable` that names what is missing or damaged."""
        row = self.row
        data = await load(row["digest"], row["content"], blobs)
        for digest, content in zip(row["digests"] or (), row["contents"] or (), strict=True):
            data = apply_ops(data, await load(digest, content, blobs))
        if not isinstance(data, dict):
            raise InvalidInput("artifact", f"{row['id']} is no definition")
        return data

    async def materialized(self, blobs: Callable[[], Blobs], tag: str | None = None) -> Materialized:
        """Return the document with what it is."""
        row = self.row
        return Materialized(
            row["id"], row["kind"], row["depth"], row["version_hash"].hex(), await self.document(blobs), tag,
            row["tag_version"],
        )  # fmt: skip


async def materials(
    conn: type_Connection, org_id: int, *, artifact_id: int | None = None, tag: str | None = None,
    at: datetime | None = None,
) -> Materials | None:  # fmt: skip
    """Return what an artifact is made of, or that at which a tag stands, or stood at a moment; None: there is none."""
    row = await conn.fetchrow(SQL.materials, org_id, artifact_id, tag, at)
    return None if row is None else Materials(row)


def plan_of_version(digest: str) -> bytes:
    """Return the plan of a document that is kept whole."""
    return hashlib.sha256(digest.encode()).digest()


def plan_with(plan: bytes, digest: str) -> bytes:
    """Return the plan of a document to which a patch is applied."""
    return hashlib.sha256(plan + digest.encode()).digest()


async def show(conn: type_Connection, org_id: int, artifact_id: int) -> Artifact:
    """Return an artifact; raises `NotFound`."""
    row = await conn.fetchrow(SQL.show, org_id, artifact_id)
    if row is None:
        raise NotFound("version", artifact_id)
    return _artifact(row)


async def log(
    conn: type_Connection, org_id: int, artifact_id: int, *, before: int = FROM_NEWEST, limit: int = 50
) -> list[Artifact]:
    """Return an artifact and those that it was made from, newest first."""
    return [_artifact(row) for row in await conn.fetch(SQL.log, org_id, artifact_id, before, limit)]


async def contents(conn: type_Connection, org_id: int, ids: Sequence[int]) -> dict[int, tuple[str, bytes | None]]:
    """Return the digests and the stored bytes of artifacts."""
    return {row[0]: (row[1], row[2]) for row in await conn.fetch(SQL.contents, org_id, list(ids))}


async def find(conn: type_Connection, org_id: int, prefix: str) -> int:
    """Return the newest artifact whose version hash begins so; raises `NotFound`."""
    low, high = bytes.fromhex(prefix.ljust(64, "0")), bytes.fromhex(prefix.ljust(64, "f"))
    rows = await conn.fetch(SQL.find, org_id, low, high)
    if not rows:
        raise NotFound("version", prefix)
    return int(rows[0][0])


def _artifact(row: Record) -> Artifact:
    return Artifact(
        id=row["id"], kind=row["kind"], workflow_id=row["workflow_id"], parent_id=row["parent_id"],
        merged_id=row["merged_id"], base_id=row["base_id"], depth=row["depth"], digest=row["digest"],
        version_hash=row["version_hash"].hex(), actor=row["actor"], message=row["message"],
        created_at=row["created_at"],
    )  # fmt: skip
