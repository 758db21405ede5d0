"""Pipelines that react: live DAGs, their jobs, and the units of work that come to them.

Revision ID: 0007
"""

from weft.db.migrate import apply_sql, note_digest

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Add live DAGs, and let their tasks publish what they have changed with their outcomes."""
    apply_sql("0007_live.sql")
    apply_sql("0007_deploying.sql")
    apply_sql("0007_following.sql")
    note_digest(revision)


def downgrade() -> None:
    """Drop them."""
    apply_sql("0007_down.sql")
    note_digest(down_revision)
