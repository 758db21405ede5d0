"""Jobs: workflows that are executed, their tasks, and what leads from one to the next.

Revision ID: 0003
"""

from weft.db.migrate import apply_sql, note_digest

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Add jobs."""
    apply_sql("0003_tables.sql")
    apply_sql("0003_steps.sql")
    apply_sql("0003_reruns.sql")
    apply_sql("0003_functions.sql")
    apply_sql("0003_ownership.sql")
    apply_sql("0003_graphs.sql")
    apply_sql("0003_definitions.sql")
    apply_sql("0003_skipping.sql")
    apply_sql("0003_watching.sql")
    apply_sql("0003_cache.sql")
    apply_sql("0003_loans.sql")
    apply_sql("0003_lists.sql")
    apply_sql("0003_task_lists.sql")
    apply_sql("0003_artifacts.sql")
    note_digest(revision)


def downgrade() -> None:
    """Drop jobs, and what they added to tasks."""
    apply_sql("0002_tables.sql", "blob_use", "artifact_use")
    apply_sql("0003_down.sql")
    apply_sql("0001_tables.sql", "task_done_job", "task_done_unsuccessful")
    apply_sql("0002_functions.sql", "undo_tag")
    apply_sql("0001_functions.sql", "ensure_partitions", "admit_waiting", "release_next", "finish_and_claim")
