"""The statements that empty a migrated database."""

from __future__ import annotations

from weft.db.statements import Statements

RESET = f"""
create or replace function weft.now() returns timestamptz language sql volatile parallel safe return clock_timestamp();
{Statements("weft.testing", "sql/reset.sql").reset};
"""
