"""People: users of an org, the roles it defines for them, the tokens that they and programs act by; kept answers.

Revision ID: 0004
"""

from weft.db.migrate import apply_sql, note_digest

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Add users, roles and tokens."""
    apply_sql("0004_people.sql")
    apply_sql("0004_protocol.sql")
    apply_sql("0004_answers.sql")
    apply_sql("0004_sessions.sql")
    apply_sql("0004_audit.sql")
    apply_sql("0004_lists.sql")
    apply_sql("0004_walls.sql")
    note_digest(revision)


def downgrade() -> None:
    """Drop them."""
    apply_sql("0001_functions.sql", "view_tasks", "view_attempts", "view_workers")
    apply_sql("0003_tables.sql", "artifact_use")
    apply_sql("0003_functions.sql", "view_jobs")
    apply_sql("0003_steps.sql", "view_steps")
    apply_sql("0003_watching.sql", "view_job_events")
    apply_sql("0004_down.sql")
    note_digest(down_revision)
