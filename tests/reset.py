"""The statements that empty a migrated database."""

from __future__ import annotations

from pathlib import Path

RESET = Path(__file__).with_name("reset.sql").read_text(encoding="utf-8")
