"""The queue: tasks live and done, attempts, workers, leases, limits, outbox.

Revision ID: 0001
"""

from weft.db.migrate import apply_sql

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make the first schema."""
    apply_sql("0001_tables.sql")
    apply_sql("0001_functions.sql")


def downgrade() -> None:
    """Drop everything but the version table."""
    apply_sql("0001_down.sql")
