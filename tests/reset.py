"""Empties a migrated database, again and again, by a session that knows its tables."""

from __future__ import annotations

import psycopg

from weft.db.statements import Statements

RESET = f"""
create or replace function weft.now() returns timestamptz language sql volatile parallel safe return clock_timestamp();
{Statements("weft.testing", "sql/reset.sql").reset};
"""

# By which those who count sessions leave it out.
EMPTIER = "emptier"


class Emptier:
    """A session that stays: to learn of all the tables anew takes a session ten times as long as to empty them."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._conn: psycopg.Connection | None = None

    def empty(self) -> None:
        """Leave nothing but the schema; a test may have ended this session, or have restarted its server."""
        if self._conn is not None:
            try:
                self._conn.execute(RESET)
            except psycopg.OperationalError:
                self.close()
        if self._conn is None:
            self._conn = psycopg.connect(self._url, autocommit=True, application_name=EMPTIER)
            self._conn.execute(RESET)

    def close(self) -> None:
        """End the session."""
        if self._conn is not None:
            self._conn.close()
        self._conn = None
