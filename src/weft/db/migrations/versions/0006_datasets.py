"""Data that knows where it came from: datasets, their versions and what was written into them.

Revision ID: 0006
"""

from weft.db.migrate import apply_sql, note_digest

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Add datasets, and let tasks publish what they write with their outcomes."""
    apply_sql("0006_datasets.sql")
    apply_sql("0006_tables.sql")
    apply_sql("0006_traces.sql")
    note_digest(revision)


def downgrade() -> None:
    """Drop them."""
    apply_sql("0006_down.sql")
    apply_sql("0003_cache.sql", "trace_of", "trace_problems", "note_inputs")
    note_digest(down_revision)
