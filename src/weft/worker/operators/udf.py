"""The operator `udf`: a function of Python in the DAG itself makes the output of a unit, in a limited process."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from weft.core.errors import InvalidInput
from weft.core.query_errors import InvalidQuery
from weft.flow.live.configs import Udf
from weft.worker.operators.changes import CHANGES, partitions_of, rows_said
from weft.worker.operators.configured import configured, seconds_allowed
from weft.worker.operators.origins import Origins, bounded
from weft.worker.operators.querying import IN_MEMORY, checked, lent, spool

if TYPE_CHECKING:
    from weft.worker.datasets import DatasetFiles
    from weft.worker.live import LiveContext

_FIELD = "config.code"
_ADVICE = "say partition_by, or partition: none"


async def run(live: LiveContext) -> dict[str, Any]:
    """Call the function, once for each partition that the unit is about, and write what it returns."""
    config = configured(live, Udf)
    if "dataset" not in live.unit.said:
        with rows_said(live) as rows:
            if CHANGES not in rows:
                raise InvalidInput("unit", f"a {live.unit.kind} has no rows: a udf is for what was written, and events")
            return {"rows": await _call(live, config, rows[CHANGES], None)}
    if config.partition_by is not None or config.partition == "none":
        return {"rows": await _call(live, config, await live.changed_files(), None)}
    written = 0
    for key in partitions_of(live, _ADVICE):
        written += await _call(live, config, await live.changed_files(partition=key), key or None)
    return {"rows": written}


def _origins(live: LiveContext, config: Udf, columns: Sequence[str]) -> Origins | None:
    """Return what is said of columns, each of the dataset that the unit is about; what an event says is of none."""
    dataset = live.unit.said.get("dataset")
    if dataset is None or not config.columns_from:
        return None
    for name, origins in config.columns_from.items():
        wrong = next((each for each in origins if each not in columns), None)
        # Another input may be the one that has it.
        if wrong is not None and len(live.inputs) == 1:
            raise InvalidInput(
                f"config.columns_from.{name}", f"{dataset} has no column {wrong!r}; it has {', '.join(columns)}"
            )
    return bounded({
        name: [(dataset, each) for each in origins if each in columns] for name, origins in config.columns_from.items()
    })  # fmt: skip


async def _call(live: LiveContext, config: Udf, files: DatasetFiles, partition: str | None) -> int:
    queries = await live.workshop.queries()
    seconds = seconds_allowed(live)
    limits = dataclasses.replace(queries.limits, seconds=seconds, cpu_seconds=2 * seconds)
    schema = files.schema.serialize().to_pybytes()
    with tempfile.SpooledTemporaryFile(IN_MEMORY) as file:
        async with lent(CHANGES, files) as attached:
            try:
                async with queries.compute(config.code, config.entry, attached, schema, limits) as answer:
                    await spool(live, answer, file)
            except InvalidQuery as problem:
                raise InvalidInput(_FIELD, problem.problem) from None
        written = await live.write(
            checked(file, limits), partition=partition, partition_by=config.partition_by,
            columns_from=_origins(live, config, files.schema.names),
        )  # fmt: skip
    return int(written.rows)
