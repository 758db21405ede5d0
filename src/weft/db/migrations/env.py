"""Alembic's entry: runs the revisions on the connection that `weft.db.migrate` hands in, or prints their SQL."""

from alembic import context

from weft.db.migrate import SCHEMA, VERSION_TABLE, build_walls

if context.is_offline_mode():
    context.configure(
        dialect_name="postgresql",
        literal_binds=True,
        # Any other style would write each % twice.
        dialect_opts={"paramstyle": "named"},
        version_table=VERSION_TABLE,
        version_table_schema=SCHEMA,
        output_buffer=context.config.attributes.get("output"),
    )
    with context.begin_transaction():
        if not context.config.attributes["has_schema"]:
            context.execute(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}")
        context.run_migrations()
        context.execute(build_walls(context.config.attributes["server_role"]).replace(":", r"\:"))
else:
    on_step = context.config.attributes.get("on_step")
    context.configure(
        connection=context.config.attributes["connection"],
        version_table=VERSION_TABLE,
        version_table_schema=SCHEMA,
        on_version_apply=None if on_step is None else lambda step, **_: on_step(step.up_revision_id),
    )
    context.run_migrations()
