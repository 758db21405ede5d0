"""Damaged contents that a repair replaces, kept in files for whoever wants to know what has happened."""

from __future__ import annotations

from pathlib import Path

from weft.core.settings import Settings
from weft.db.blobs import digest_of
from weft.db.embedded_layout import home_dir


def keep_aside(settings: Settings, digest: str, damaged: bytes) -> Path:
    """Write what a blob's row held to a file, and return where: it is there before anything is replaced."""
    folder = home_dir(settings) / "damaged"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    # By what it is too: damage that comes again is other damage, and the same is kept once.
    path = folder / f"{digest}-{digest_of(damaged)[:12]}"
    path.write_bytes(damaged)
    return path
