"""Damaged contents that are replaced, kept in files for whoever wants to know what has happened."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from weft.core.errors import BlobUnavailable
from weft.core.settings import Settings
from weft.db.blobs import digest_of, tell_kept
from weft.db.embedded_layout import home_dir
from weft.db.statements import Statements
from weft.history.contents import Content, unpack

if TYPE_CHECKING:
    from weft.db.database import Database

SQL = Statements("weft.history", "sql/artifact.sql")


async def keep_replaced(database: Database, content: Content) -> None:
    """Keep what the row of a blob holds, when it is damaged and the right bytes are about to take its place."""
    if content.stored is None:
        return  # the storage does it
    found = await database.read(lambda conn: conn.fetchval(SQL.other_content, content.digest, content.stored))
    if found is None:
        return
    try:
        unpack(content.digest, found)
    except BlobUnavailable:
        tell_kept(content.digest, keep_aside(database.settings, content.digest, found))


def keep_aside(settings: Settings, digest: str, damaged: bytes) -> Path:
    """Write what a blob's row held to a file, and return where: it is there before anything is replaced."""
    folder = home_dir(settings) / "damaged"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    # By what it is too: damage that comes again is other damage, and the same is kept once.
    path = folder / f"{digest}-{digest_of(damaged)[:12]}"
    path.write_bytes(damaged)
    return path
