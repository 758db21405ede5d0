"""The SQL of a live DAG, read before it is deployed: what is wrong with it is told with its place in the document."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from weft.core.errors import InvalidDefinition, InvalidSetting
from weft.core.query_errors import InvalidQuery, QueryStartFailed, WallsMissing
from weft.core.suggestions import did_you_mean
from weft.flow.live.configs import AlertEvaluate, RangeAggregator, SqlTransform
from weft.flow.problems import Path, Problem, placed

if TYPE_CHECKING:
    from weft.data.queries import Queries
    from weft.data.query_process import QueryProcess
    from weft.flow.live.model import JobSpec
    from weft.flow.live.validation import CheckedDag

_CHANGES = "changes"


@dataclass(frozen=True, slots=True)
class _Text:
    """SQL in a document: ``around`` it is what makes a query of it, and it may name ``tables``."""

    path: Path
    sql: str
    tables: frozenset[str]
    around: str = "{}"


async def require_readable(queries: Queries, checked: CheckedDag) -> None:
    """Raise `InvalidDefinition` that names all SQL which is none, does more than query, or reads what is no input.

    What takes the data to be known, such as a column, is told by the first unit. Where no queries can be run, nothing
    is looked at: who deploys need not be able to do what workers do.
    """
    texts = [text for name, job in checked.sound.jobs.items() for text in _texts(name, job)]
    if not texts:
        return
    try:
        process = await queries.process()
    except (InvalidSetting, QueryStartFailed, WallsMissing):
        return
    problems = [problem for text in texts if (problem := await _problem(process, text)) is not None]
    if problems:
        raise InvalidDefinition(placed(problems, checked.document))


def _texts(name: str, job: JobSpec) -> Iterator[_Text]:
    at, tables = ("jobs", name, "config"), frozenset((_CHANGES, *job.inputs))
    match job.operator:
        case "sql_transform":
            transform = SqlTransform.model_validate(job.config)
            yield _Text((*at, "sql"), transform.sql, tables | transform.tables.keys())
        case "alert_evaluate":
            alert = AlertEvaluate.model_validate(job.config)
            yield _Text((*at, "condition"), alert.condition, tables, f"select * from {_CHANGES} where (\n{{}}\n)")
            if alert.query is not None:
                yield _Text((*at, "query"), alert.query, tables)
        case "range_aggregator":
            for column, sql in RangeAggregator.model_validate(job.config).aggregates.items():
                yield _Text((*at, "aggregates", column), sql, tables, f"select (\n{{}}\n) from {_CHANGES}")
        case _:
            return


async def _problem(process: QueryProcess, text: _Text) -> Problem | None:
    from weft.worker.operators.querying import told

    query = text.around.format(text.sql)
    try:
        names = await process.mentioned(query)
    except InvalidQuery as problem:
        # With a place in what the author has written, and none in what stands around it.
        what = told(problem.problem, query) if query == text.sql else problem.problem.partition("\n")[0]
        return Problem("sql", text.path, what)
    known = {name.lower() for name in text.tables}
    for name in names:
        if name.lower() not in known:
            hint = did_you_mean(name, sorted(text.tables))
            what = f"there is no table {name!r}: there are `{_CHANGES}` and the inputs of the job.{hint}"
            return Problem("sql", text.path, what)
    return None
