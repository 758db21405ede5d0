"""${message}

Revision ID: ${up_revision}
"""

from weft.db.migrate import apply_sql

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}


def upgrade() -> None:
    """Say what changes."""
    apply_sql("${up_revision}_up.sql")


def downgrade() -> None:
    """Say what is undone."""
    apply_sql("${up_revision}_down.sql")
