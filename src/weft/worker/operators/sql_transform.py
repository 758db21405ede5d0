"""The operator `sql_transform`: what a query of DuckDB makes of a unit becomes rows of the output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from weft.flow.live.configs import SqlTransform
from weft.worker.operators.changes import CHANGES, inputs_named, partitions_of, rows_said
from weft.worker.operators.configured import configured
from weft.worker.operators.origins import origins_in
from weft.worker.operators.querying import answered, tables_in

if TYPE_CHECKING:
    from weft.worker.datasets import DatasetFiles
    from weft.worker.live import LiveContext

_FIELD = "config.sql"
_TURN = "answers"
_ADVICE = "say partition_by, or partition: none"


async def run(live: LiveContext) -> dict[str, Any]:
    """Run the query, once for each partition that the unit is about, and write what it answers."""
    config = configured(live, SqlTransform)
    names = await tables_in(live, config.sql, _FIELD)
    is_whole = await _take_turn(live, config, names)
    tables = await inputs_named(live, names, config.tables, _FIELD, is_latest=is_whole)
    if "dataset" not in live.unit.said:
        with rows_said(live) as rows:
            return {"rows": await _transform(live, config, tables | rows, None)}
    if config.partition_by is not None or config.partition == "none":
        changed = {CHANGES: await live.changed_files()} if CHANGES in names else {}
        return {"rows": await _transform(live, config, tables | changed, None)}
    rows_written = 0
    for key in partitions_of(live, _ADVICE):
        changed = {CHANGES: await live.changed_files(partition=key)} if CHANGES in names else {}
        rows_written += await _transform(live, config, tables | changed, key or None)
    return {"rows": rows_written}


async def _take_turn(live: LiveContext, config: SqlTransform, names: Sequence[str]) -> bool:
    """Return whether the answer, of whole inputs, takes the place of what units of other partitions have written.

    Then whoever ends last must have read last: one that has read before another ended is tried again.
    """
    is_shared = config.partition_by is not None or config.partition == "none"
    if not is_shared or live.document.get("update_strategy") == "append" or not set(names) - {CHANGES}:
        return False
    await live.set_state((await live.state(_TURN) or 0) + 1, _TURN)
    return True


async def _transform(
    live: LiveContext, config: SqlTransform, tables: Mapping[str, DatasetFiles], partition: str | None
) -> int:
    async with answered(live, config.sql, tables, _FIELD) as reader:
        origins = await origins_in(live, config.sql, tables, config.tables, reader.schema.names)
        written = await live.write(reader, partition=partition, partition_by=config.partition_by, columns_from=origins)
    return int(written.rows)
