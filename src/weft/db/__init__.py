"""The way to PostgreSQL: connections, the embedded server, migrations, named SQL, ids and blob storage."""
