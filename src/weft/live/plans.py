"""What a deploy would do: which jobs go on, which are built anew, which datasets that touches, and who reads them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

from weft.flow.live.identity import JobMeaning
from weft.flow.problems import dotted

# So many fields of one job are named.
_MOST_FIELDS = 20
# Sources to which what came before their outputs began anew does not come again, as files and feeds do.
_PASSING = {"cron": "ticks", "interval": "ticks", "event": "events", "table": "rows"}
# How settings are written that the database calls otherwise.
_WRITTEN = {
    "rank": "priority", "queue_id": "queue", "timeout": "timeout_seconds", "idle_after": "idle_timeout",
    "heartbeat_timeout": "heartbeat_timeout_seconds", "max_concurrency": "scaling.max_concurrency",
    "max_backlog": "scaling.max_backlog",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class JobPlan:
    """What becomes of a job.

    It is ``unchanged``; ``adjusted``, when only how it is executed changes; ``changed`` and built anew, by its own
    ``fields`` or by what the jobs ``upstream`` of it write; ``new``; or ``removed``. ``resumed`` are those that were
    deployed before with this very meaning, and go on where they were.
    """

    name: str
    action: str
    fields: tuple[str, ...] = ()
    upstream: tuple[str, ...] = ()
    resumed: bool = False


@dataclass(frozen=True, slots=True)
class DatasetPlan:
    """What becomes of a dataset: ``reused`` with its ``version``, ``rebuilt`` beside it, ``new``, or ``left`` as it is.

    ``job`` is who writes it, of one that is left who did; ``current`` the version that readers see by now.
    """

    name: str
    action: str
    job: str
    version: int | None = None
    current: int | None = None


@dataclass(frozen=True, slots=True)
class InputPlan:
    """A dataset from outside of the DAG that a job reads, and who writes it, if anybody does."""

    name: str
    job: str
    producer: str | None


@dataclass(frozen=True, slots=True)
class Touched:
    """Who reads a dataset that gets another version: a job of another live DAG, or a node of a workflow."""

    kind: str
    name: str
    node: str
    dataset: str
    schedule: str | None = None


@dataclass(frozen=True, slots=True)
class DeployPlan:
    """What a deploy would do, or has done, or a rollback would do; nothing where it ``changes`` nothing.

    ``version`` is the number that it gets, or goes back to, ``base`` that of the version in effect, ``replaces`` that
    of one which is being built and given up for it. With ``at_once`` it is in effect with the deploy itself: nothing
    must catch up.
    """

    dag: str
    changes: bool
    version: int
    base: int | None
    replaces: int | None
    at_once: bool
    jobs: tuple[JobPlan, ...]
    datasets: tuple[DatasetPlan, ...]
    inputs: tuple[InputPlan, ...]
    touched: tuple[Touched, ...]
    warnings: tuple[str, ...]


class Deployed(NamedTuple):
    """A job that is in effect: what it means, and how it is executed."""

    config_hash: str
    nonce: int
    document: Mapping[str, Any]
    settings: Mapping[str, Any]


def nonces_of(
    jobs: Mapping[str, JobMeaning], before: Mapping[str, Deployed], highest: Mapping[str, int], anew: Sequence[str]
) -> dict[str, int]:
    """Return how often each job began anew: as it is, or once more than ever for those that are to do so."""
    return {
        name: highest.get(name, 0) + 1 if name in anew else before[name].nonce if name in before else 0 for name in jobs
    }


def plan_jobs(
    jobs: Mapping[str, JobMeaning], hashes: Mapping[str, str], settings: Mapping[str, Mapping[str, Any]],
    before: Mapping[str, Deployed], known: frozenset[tuple[str, str]], anew: Sequence[str],
) -> tuple[JobPlan, ...]:  # fmt: skip
    """Return what becomes of each job, in the order of the document, and then of those that are removed."""
    found = []
    for name, job in jobs.items():
        if (old := before.get(name)) is None:
            found.append(JobPlan(name, "new", resumed=(name, hashes[name]) in known))
        elif old.config_hash == hashes[name]:
            fields = tuple(_WRITTEN.get(each, each) for each in _differing(old.settings, settings[name]))
            found.append(JobPlan(name, "adjusted" if fields else "unchanged", fields))
        else:
            fields = (*_differing(old.document, job.document), *(("anew",) if name in anew else ()))
            upstream = tuple(
                each for each in job.upstream if each not in before or before[each].config_hash != hashes[each]
            )
            found.append(JobPlan(name, "changed", fields, upstream, (name, hashes[name]) in known))
    found += [JobPlan(name, "removed") for name in before if name not in jobs]
    return tuple(found)


def plan_datasets(
    jobs: Mapping[str, JobMeaning], hashes: Mapping[str, str], before: Mapping[str, Deployed],
    versions: Mapping[str, int], there: Mapping[str, int | None],
) -> tuple[DatasetPlan, ...]:  # fmt: skip
    """Return what becomes of each dataset that jobs write, or wrote.

    ``versions`` are the numbers of those that a job of this very meaning has written, ``there`` all that there are,
    with the versions that are current.
    """
    found = []
    for name, job in jobs.items():
        is_same = name in before and before[name].config_hash == hashes[name]
        for dataset in job.outputs:
            current = there.get(dataset)
            if dataset in versions:
                found.append(DatasetPlan(dataset, "reused", name, versions[dataset], current))
            elif is_same:
                found.append(DatasetPlan(dataset, "reused", name, current, current))
            else:
                found.append(DatasetPlan(dataset, "new" if current is None else "rebuilt", name, current, current))
    written = {dataset for job in jobs.values() for dataset in job.outputs}
    for name, old in before.items():
        left = [each for each in old.document["outputs"] if each not in written]
        found += [DatasetPlan(dataset, "left", name, there.get(dataset), there.get(dataset)) for dataset in left]
    return tuple(found)


def emptied(
    dag: str, jobs: Mapping[str, JobMeaning], datasets: Sequence[DatasetPlan], rows: Mapping[str, int]
) -> Iterator[str]:
    """Yield a warning for each dataset that loses rows before readers, because its source is not given them again."""
    for each in datasets:
        if each.action != "rebuilt" or not rows.get(each.name) or jobs[each.job].activation != "source":
            continue
        if (what := _PASSING.get(jobs[each.job].document["source"]["kind"])) is not None:
            yield (
                f"{each.name} begins empty, without the rows that it has: what came to {each.job}, a source of {what}, "
                f"does not come again; `weft deploy rollback {dag}` leads back"
            )


def _differing(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[str, ...]:
    """Return which fields differ, as they are written."""
    return tuple(dotted(path) for path in islice(_differing_paths(old, new), _MOST_FIELDS))


def _differing_paths(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    for key in dict.fromkeys([*old, *new]):
        before, after = old.get(key), new.get(key)
        if isinstance(before, dict) and isinstance(after, dict):
            yield from ((key, *path) for path in _differing_paths(before, after))
        elif before != after:
            yield (key,)
