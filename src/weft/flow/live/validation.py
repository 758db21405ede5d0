"""Whether a live DAG means something: each dataset has one producer, and nothing waits for itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from weft.core.errors import InvalidDefinition, InvalidInput
from weft.flow.document import Document, read_or_tell
from weft.flow.durations import seconds_of
from weft.flow.live.identity import JobMeaning, dag_hash, meanings_of
from weft.flow.live.model import DagDefinition
from weft.flow.live.operators import OPERATORS, PYTHON
from weft.flow.live.structure import read_structure, unknown_operator
from weft.flow.problems import Path, Problem, Severity, placed
from weft.flow.ticks import check_timezone, check_timing

Written = Mapping[str, Mapping[str, Any]]
# Of two kinds of jobs, what each of them has not.
_FOREIGN = {
    "source": ("inputs", "execution_strategy", "idle_timeout"),
    "reactive": ("source", "bootstrap"),
}
_ANCHOR = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class CheckedDag:
    """What became of a text: its live DAG, unless an error is among the problems."""

    definition: DagDefinition | None
    document: Document
    problems: list[Problem] = field(default_factory=list)

    @property
    def is_sound(self) -> bool:
        """Whether no problem is an error."""
        return self.definition is not None

    @cached_property
    def version_hash(self) -> str:
        """The hash of what the DAG means; there is none of a document with errors."""
        return dag_hash(self.sound)

    @cached_property
    def jobs(self) -> dict[str, JobMeaning]:
        """What each job means, those first that others read from."""
        return meanings_of(self.sound)

    @property
    def sound(self) -> DagDefinition:
        """The definition; raises `InvalidDefinition` when it has errors."""
        if self.definition is None:
            raise InvalidDefinition([problem for problem in self.problems if problem.severity is Severity.ERROR])
        return self.definition


def check_dag_text(text: str | bytes, file: str | None = None) -> CheckedDag:
    """Return the live DAG in a text of YAML or JSON, and everything that is wrong with it, by line."""
    document, problems = read_or_tell(text, file)
    return CheckedDag(None, document, problems) if problems else check_dag(document)


def check_dag(document: Document) -> CheckedDag:
    """Return the live DAG in a document, and everything that is wrong with it."""
    structure = read_structure(document.data)
    problems = [*document.problems, *structure.problems]
    written = structure.written
    general = document.data.get("defaults") if isinstance(document.data, dict) else None
    if isinstance(general, dict):
        problems += _retry_problems(general, ("defaults",))
    for name, job in written.items():
        problems += _job_problems(job, general if isinstance(general, dict) else {}, ("jobs", name))
    problems += _dataset_problems(written)
    problems += _circles(written)
    is_wrong = any(problem.severity is Severity.ERROR for problem in problems)
    definition = None if is_wrong else structure.definition
    return CheckedDag(definition, document, placed(problems, document) if problems else [])


def _job_problems(job: Mapping[str, Any], general: Mapping[str, Any], path: Path) -> Iterator[Problem]:
    is_source, is_reactive = job.get("activation") == "source", job.get("activation") == "reactive"
    for name in _FOREIGN.get(str(job.get("activation")), ()):
        if job.get(name) not in (None, []):
            what = "a source begins by itself" if is_source else "a reactive job begins with what is written"
            yield Problem("out_of_place", (*path, name), f"{what}: leave `{name}` out", is_about_key=True)
    if is_source and job.get("source") is None:
        yield Problem("missing", path, "`source` is missing: what makes it begin, such as {kind: cron, schedule: …}")
    if is_reactive and not job.get("inputs"):
        yield Problem("missing", path, "`inputs` is missing: the datasets whose writes make it begin")
    if is_reactive and job.get("execution_strategy") is None:
        yield Problem("missing", path, "`execution_strategy` is missing: PerUpdate or PerPartition")
    if job.get("update_strategy") == "append" and not job.get("unique_key"):
        yield Problem("missing", path, "`unique_key` is missing: append adds each row once, and must know them apart")
    for name in ("inputs", "outputs", "unique_key"):
        names = _texts(job.get(name))
        for place, each in enumerate(names):
            if each in names[:place]:
                yield Problem("bad_value", (*path, name, place), f"{each!r} stands here twice")
    yield from _retry_problems(job, path)
    if isinstance(operator := job.get("operator"), str):
        yield from _operator_problems(operator, job.get("runtime") or general.get("runtime"), path)
    if isinstance(source := job.get("source"), dict):
        yield from _time_problems(source, (*path, "source"))


def _retry_problems(said: Mapping[str, Any], path: Path) -> Iterator[Problem]:
    retry = said.get("retry")
    if said.get("max_attempts") is not None and isinstance(retry, dict) and retry.get("max_attempts") is not None:
        what = "`max_attempts` stands beside it already: say it once"
        yield Problem("bad_value", (*path, "retry", "max_attempts"), what)


def _operator_problems(operator: str, runtime: object, path: Path) -> Iterator[Problem]:
    if (told := unknown_operator(operator)) is not None:
        what = f"{told} An operator of your own must be known to a worker."
        yield Problem("unknown_operator", (*path, "operator"), what, Severity.WARNING)
    if runtime in ("inline", "dispatcher") and (operator not in OPERATORS or operator == PYTHON):
        what = f"inline, only operators that come with Weft run, and not {operator!r}: take worker"
        yield Problem("bad_value", (*path, "runtime"), what)


def _time_problems(source: Mapping[str, Any], path: Path) -> Iterator[Problem]:
    kind, zone = source.get("kind"), source.get("timezone", "UTC")
    if kind == "cron" and isinstance(zone, str) and zone:
        try:
            check_timezone(zone)
        except InvalidInput as problem:
            yield Problem("bad_value", (*path, "timezone"), problem.problem)
            zone = "UTC"
        if isinstance(source.get("schedule"), str) and source["schedule"]:
            yield from _timing_problems(source["schedule"], None, zone, (*path, "schedule"))
    if kind == "interval":
        try:
            every = seconds_of(source.get("every"))
        except ValueError:
            return  # told where it stands
        yield from _timing_problems(None, every, "UTC", (*path, "every"))


def _timing_problems(cron: str | None, every: float | None, zone: str, path: Path) -> Iterator[Problem]:
    try:
        check_timing(cron, every, zone, _ANCHOR)
    except InvalidInput as problem:
        yield Problem("bad_value", path, problem.problem)


def _texts(value: object) -> list[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


def _dataset_problems(jobs: Written) -> Iterator[Problem]:
    producers: dict[str, str] = {}
    for name, job in jobs.items():
        for place, dataset in enumerate(_texts(job.get("outputs"))):
            if (other := producers.setdefault(dataset, name)) != name:
                what = f"{dataset!r} is written by {other!r} already, and has one producer"
                yield Problem("two_producers", ("jobs", name, "outputs", place), what)


def _circles(jobs: Written) -> Iterator[Problem]:
    producers = {dataset: name for name, job in jobs.items() for dataset in _texts(job.get("outputs"))}
    before = {
        name: [producers[each] for each in _texts(job.get("inputs")) if each in producers] for name, job in jobs.items()
    }
    state: dict[str, int] = {}
    for first in jobs:
        # Each name with those before it that are left to look at.
        path: list[tuple[str, Iterator[str]]] = [(first, iter(before[first]))] if first not in state else []
        state.setdefault(first, 1)
        while path:
            name, rest = path[-1]
            other = next(rest, None)
            if other is None:
                state[name] = 2
                path.pop()
            elif state.get(other) == 1:
                names = [each for each, _ in path]
                circle = [*names[names.index(other) :], other]
                what = f"jobs wait for each other: {' -> '.join(reversed(circle))}"
                yield Problem("cycle", ("jobs", other), what, is_about_key=True)
            elif other not in state:
                state[other] = 1
                path.append((other, iter(before[other])))
