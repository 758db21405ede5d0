"""What a job of a live DAG means, apart from how it is written, and the hash of that and of all before it.

A job whose hash stays the same is the same job: a deploy lets it go on, with all that it remembers. How it is executed
does not count, nor when: a longer timeout makes no dataset stale, and another hour none empty.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from weft.flow.identity import digest_of
from weft.flow.live.model import NEVER, DagDefinition, JobDefaults, JobSpec
from weft.flow.live.operators import handler_of
from weft.flow.live.structure import config_of
from weft.flow.policies import policy_of

# What is so where nothing else is said.
_RUNTIME, _QUEUE, _ON_FAILURE = "worker", "default", "hold"
_CONCURRENCY, _BACKLOG, _IDLE = 10, 10_000, 300.0
# When a source looks or ticks, and how those sign who tell it something: what it brings means the same.
_MANNER = ("schedule", "timezone", "every", "catch_up", "poll", "settle", "hmac")
_BY_CLOCK = frozenset({"cron", "interval"})
_STRATEGIES = {"PerUpdate": "update", "PerPartition": "partition"}


@dataclass(frozen=True, slots=True)
class JobMeaning:
    """A job as it is deployed: what it does, ``document``, and how it is executed, ``settings``, apart."""

    name: str
    document: Mapping[str, Any]
    settings: Mapping[str, Any]
    own_hash: str
    upstream: tuple[str, ...]
    resets: bool

    @property
    def activation(self) -> str:
        """Whether it is a source or reacts."""
        return str(self.document["activation"])

    @property
    def operator(self) -> str:
        """What it does, by name."""
        return str(self.document["operator"])

    @property
    def handler(self) -> str:
        """The handler that its tasks run."""
        return handler_of(self.operator, self.document["config"])

    @property
    def strategy(self) -> str | None:
        """How writes become units of work: ``update`` or ``partition``; None of a source."""
        return _STRATEGIES.get(self.document["execution_strategy"])

    @property
    def inputs(self) -> list[str]:
        """The datasets that it reads."""
        return list(self.document["inputs"])

    @property
    def outputs(self) -> list[str]:
        """The datasets that it writes, by output index."""
        return list(self.document["outputs"])


def meanings_of(definition: DagDefinition) -> dict[str, JobMeaning]:
    """Return what each job of a sound DAG means, those first that others read from."""
    jobs = definition.jobs
    producers = {dataset: name for name, job in jobs.items() for dataset in job.outputs}
    found: dict[str, JobMeaning] = {}
    open_ = list(reversed(jobs))
    while open_:
        name = open_[-1]
        before = tuple(dict.fromkeys(producers[each] for each in jobs[name].inputs if each in producers))
        missing = [each for each in before if each not in found]
        if missing:
            open_ += missing
            continue
        open_.pop()
        if name not in found:
            found[name] = _meaning(name, jobs[name], definition.defaults, before)
    return found


def config_hashes(jobs: Mapping[str, JobMeaning], nonces: Mapping[str, int]) -> dict[str, str]:
    """Return for each job the hash of what it means, of those that it reads from, and of how often it began anew."""
    found: dict[str, str] = {}
    for name, job in jobs.items():
        before = {each: found[each] for each in job.upstream}
        found[name] = digest_of({"job": job.own_hash, "before": before, "nonce": nonces.get(name, 0)})
    return found


def dag_hash(definition: DagDefinition) -> str:
    """Return the hash of what a sound DAG means."""
    jobs = {name: [job.own_hash, dict(job.settings), job.resets] for name, job in meanings_of(definition).items()}
    return digest_of({"dag": definition.dag, "jobs": jobs})


def _meaning(name: str, job: JobSpec, defaults: JobDefaults, before: tuple[str, ...]) -> JobMeaning:
    document = {
        "activation": job.activation,
        "operator": job.operator,
        "config": job.config,
        "source": None if job.source is None else job.source.model_dump(mode="json"),
        "execution_strategy": job.execution_strategy,
        "inputs": job.inputs,
        "outputs": job.outputs,
        "update_strategy": job.update_strategy,
        "unique_key": job.unique_key,
    }
    resets = job.bootstrap is not None and job.bootstrap.reset_outputs
    return JobMeaning(name, document, _settings(job, defaults), digest_of(_decisive(job, document)), before, resets)


def _decisive(job: JobSpec, document: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a job does in one form; what is so anyway is left out, so that a later release finds the same."""
    found = {key: value for key, value in document.items() if value not in (None, [], {})}
    known = config_of(job.operator, job.config)
    if known is not None:
        found["config"] = known.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    if job.source is not None:
        said = job.source.model_dump(mode="json", exclude_defaults=True, exclude=set(_MANNER))
        found["source"] = {**said, "kind": "clock" if job.source.kind in _BY_CLOCK else job.source.kind}
    return found


def _settings(job: JobSpec, defaults: JobDefaults) -> dict[str, Any]:
    def said(name: str, otherwise: Any = None) -> Any:
        own = getattr(job, name)
        usual = getattr(defaults, name)
        return own if own is not None else usual if usual is not None else otherwise

    def scaled(name: str, otherwise: int) -> int:
        for scaling in (job.scaling, defaults.scaling):
            if scaling is not None and (found := getattr(scaling, name)) is not None:
                return int(found)
        return otherwise

    retry = policy_of(job.retry, defaults.retry)
    idle = _IDLE if job.idle_timeout is None else job.idle_timeout
    return {
        "runtime": said("runtime", _RUNTIME),
        "queue": said("queue", _QUEUE),
        "priority": said("priority", 0),
        "timeout_seconds": said("timeout_seconds"),
        "heartbeat_timeout_seconds": said("heartbeat_timeout_seconds"),
        "max_attempts": _attempts(job, defaults),
        "retry": {key: value for key, value in retry.items() if key != "max_attempts"} or None,
        "on_failure": said("on_failure", _ON_FAILURE),
        "max_concurrency": scaled("max_concurrency", _CONCURRENCY),
        "max_backlog": scaled("max_backlog", _BACKLOG),
        "source": _manner(job),
        "idle_timeout": None if job.activation == "source" or idle == NEVER else idle,
    }


def _attempts(*said: JobSpec | JobDefaults) -> int | None:
    """Return how often a unit is tried, as the first says who says it; None when only its operator may say so."""
    for each in said:
        if each.max_attempts is not None:
            return each.max_attempts
        if each.retry is not None and each.retry.max_attempts is not None:
            return each.retry.max_attempts
    return None


def _manner(job: JobSpec) -> dict[str, Any] | None:
    if job.source is None:
        return None
    said = job.source.model_dump(mode="json")
    kept = {each: said[each] for each in _MANNER if said.get(each) is not None}
    return {"kind": job.source.kind, **kept} if job.source.kind in _BY_CLOCK else kept
