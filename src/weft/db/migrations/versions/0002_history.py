"""The history of definitions: content-addressed documents, versions and patches, tags and their moves.

Revision ID: 0002
"""

from weft.db.migrate import apply_sql

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add the history."""
    apply_sql("0002_tables.sql")
    apply_sql("0002_functions.sql")


def downgrade() -> None:
    """Drop the history."""
    apply_sql("0002_down.sql")
