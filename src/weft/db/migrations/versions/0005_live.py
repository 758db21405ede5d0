"""What begins by itself: schedules.

Revision ID: 0005
"""

from weft.db.migrate import apply_sql, note_digest

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Add schedules."""
    apply_sql("0005_schedules.sql")
    note_digest(revision)


def downgrade() -> None:
    """Drop them."""
    apply_sql("0005_down.sql")
    note_digest(down_revision)
