"""The schema of the database and its revisions, applied by Alembic."""
