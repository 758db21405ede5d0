"""Plain data as a live DAG: all its parts of the right kind, all that is wrong with them told at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from weft.core.json import depth_of
from weft.core.suggestions import did_you_mean
from weft.flow.document import MAX_DEPTH
from weft.flow.fields import read_part
from weft.flow.live.model import SOURCES, AnySource, DagDefinition, JobDefaults, JobSpec
from weft.flow.live.operators import OPERATORS
from weft.flow.nodes import name_problems, too_deep
from weft.flow.problems import Path, Problem, unknown
from weft.flow.values import kind_of, shown

MAX_JOBS = 1000
Data = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class DagStructure:
    """The parts of a document: the definition, unless a field is wrong, and each job as far as it could be read.

    ``written`` are the jobs as they stand there, also those of which a field is wrong.
    """

    definition: DagDefinition | None
    written: Mapping[str, Data]
    problems: list[Problem]


def read_structure(data: object) -> DagStructure:
    """Return the live DAG that plain data is, or None, with all problems of its fields.

    Names that begin with ``x-`` at the top are the author's own, for anchors, and ``$schema`` is what editors write:
    both are passed over.
    """
    problems: list[Problem] = []
    if not isinstance(data, dict):
        what = f"a live DAG is a mapping with dag and jobs, not {kind_of(data)}"
        return DagStructure(None, {}, [Problem("bad_value", (), what)])
    if not isinstance(data.get("$schema", ""), str):
        problems.append(Problem("bad_value", ("$schema",), f"must be text, not {kind_of(data['$schema'])}"))
    data = {key: value for key, value in data.items() if key != "$schema" and not key.startswith("x-")}
    if depth_of(data) > MAX_DEPTH:
        problems.append(too_deep(()))
    defaults = read_part(JobDefaults, data.get("defaults", {}), ("defaults",), problems)
    written = _written(data, problems)
    jobs = {name: _job(entry, ("jobs", name), problems) for name, entry in written.items()}
    head = {key: value for key, value in data.items() if key not in ("defaults", "jobs")}
    checked = read_part(DagDefinition, {**head, "jobs": {}}, (), problems)
    definition = None
    if checked is not None and defaults is not None and not problems:
        definition = checked.model_copy(update={"defaults": defaults, "jobs": jobs})
    return DagStructure(definition, written, problems)


def _written(data: Data, problems: list[Problem]) -> dict[str, Data]:
    jobs, path = data.get("jobs"), ("jobs",)
    if jobs is None:
        problems.append(Problem("missing", path, "`jobs` is missing: a live DAG has at least one"))
        return {}
    if not isinstance(jobs, dict) or not jobs:
        what = "must not be empty" if jobs == {} else f"must be a mapping, not {kind_of(jobs)}"
        problems.append(Problem("bad_value", path, what))
        return {}
    if len(jobs) > MAX_JOBS:
        problems.append(Problem("too_large", path, f"a live DAG has at most {MAX_JOBS:,} jobs, not {len(jobs):,}"))
        return {}
    found: dict[str, Data] = {}
    for name, entry in jobs.items():
        problems += name_problems(name, (*path, name))
        if isinstance(entry, dict):
            found[name] = entry
        else:
            problems.append(Problem("bad_value", (*path, name), f"must be a mapping, not {kind_of(entry)}"))
    return found


def _job(entry: Data, path: Path, problems: list[Problem]) -> JobSpec | None:
    """Return a job; what starts it and what its operator is told are looked at by themselves, by their kinds."""
    source = None if entry.get("source") is None else _source(entry["source"], (*path, "source"), problems)
    job = read_part(JobSpec, {key: value for key, value in entry.items() if key != "source"}, path, problems)
    config = entry.get("config", {})
    if isinstance(config, dict):
        _read_config(entry.get("operator"), config, (*path, "config"), problems)
    return job if job is None or source is None else job.model_copy(update={"source": source})


def _source(value: object, path: Path, problems: list[Problem]) -> AnySource | None:
    if not isinstance(value, dict):
        problems.append(Problem("bad_value", path, f"must be a mapping with `kind`, not {kind_of(value)}"))
        return None
    kind = value.get("kind")
    if kind is None:
        problems.append(Problem("missing", (*path, "kind"), f"`kind` is missing: one of {', '.join(SOURCES)}"))
        return None
    if not isinstance(kind, str) or kind not in SOURCES:
        wanted = " or ".join(map(repr, SOURCES))
        hint = did_you_mean(str(kind)[:200], SOURCES)
        problems.append(Problem("bad_value", (*path, "kind"), f"must be {wanted}, not {shown(kind)}.{hint}"))
        return None
    return read_part(SOURCES[kind], value, path, problems)


def config_of(operator: str, config: Data) -> BaseModel | None:
    """Return what an operator that comes with Weft is told, which was found right; None of one that does not."""
    model = OPERATORS.get(operator)
    return None if model is None else model.model_validate(dict(config))


def _read_config(operator: object, config: Data, path: Path, problems: list[Problem]) -> None:
    if isinstance(operator, str) and (model := OPERATORS.get(operator)) is not None:
        read_part(model, config, path, problems)


def unknown_operator(name: str) -> str | None:
    """Return what to say of an operator that is nearly one that comes with Weft; None where nothing is."""
    told = unknown("operator", name, OPERATORS)
    return told if name not in OPERATORS and did_you_mean(name, OPERATORS) else None
