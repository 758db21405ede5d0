"""Finds the change that broke a workflow: runs versions between one that works and one that fails, by halves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from weft.core.errors import InvalidInput
from weft.core.job_states import JobState
from weft.core.json import Json, plain
from weft.core.suggestions import did_you_mean
from weft.flow.diff import Diff, diff
from weft.history import artifacts
from weft.history.model import Artifact

if TYPE_CHECKING:
    from weft.sdk.jobs import Jobs
    from weft.worker.registry import Registry

LABEL = "weft/bisect"


@dataclass(frozen=True, slots=True)
class BisectStep:
    """A version that was tried: by which job, how that ended, and what it ran and kept.

    There is no ``job_id`` where a version could not even be submitted; ``problem`` says why it failed.
    """

    artifact: Artifact
    state: JobState
    job_id: int | None
    ran: tuple[str, ...]
    kept: tuple[str, ...]
    problem: str | None = None

    @property
    def is_good(self) -> bool:
        """Whether the version works."""
        return self.state == JobState.COMPLETED


@dataclass(frozen=True, slots=True)
class Bisected:
    """What was found: the first version that fails, the last that works, what differs, and what was tried."""

    bad: Artifact
    good: Artifact
    diff: Diff
    steps: tuple[BisectStep, ...]


class Bisection:
    """A search that goes on: the versions, oldest first, and what was tried of them."""

    def __init__(
        self, jobs: Jobs, line: Sequence[Artifact], inputs: Mapping[str, Json], timeout: float | timedelta | None,
        registry: Registry | None, on_step: Callable[[BisectStep], None] | None, label: str,
    ) -> None:  # fmt: skip
        self._jobs = jobs
        self._line = line
        self._inputs = inputs
        self._timeout = timeout
        self._registry = registry
        self._on_step = on_step
        self._label = label
        self._steps: list[BisectStep] = []

    async def run(self) -> Bisected:
        """Try the ends, then halve what lies between them; raises `InvalidInput` when an end is not as it was said."""
        line = self._line
        if not (first := await self._tried(line[0])).is_good:
            raise InvalidInput("good", f"version {line[0].id} fails as well: {_how(first)}")
        if (last := await self._tried(line[-1])).is_good:
            raise InvalidInput("bad", f"version {line[-1].id} does not fail: {_how(last)}")
        low, high = 0, len(line) - 1
        while high - low > 1:
            middle = (low + high) // 2
            if (await self._tried(line[middle])).is_good:
                low = middle
            else:
                high = middle
        documents = [(await self._jobs._document(line[place].id)) for place in (low, high)]
        return Bisected(line[high], line[low], diff(*documents), tuple(self._steps))

    async def _tried(self, artifact: Artifact) -> BisectStep:
        step = await self._job_of(artifact)
        self._steps.append(step)
        if self._on_step is not None:
            self._on_step(step)
        return step

    async def _job_of(self, artifact: Artifact) -> BisectStep:
        """Run a version, with the outputs that are known of those before."""
        jobs, declared = self._jobs, (await self._jobs._document(artifact.id)).get("inputs") or {}
        inputs = {name: value for name, value in self._inputs.items() if name in declared}
        # What a job was given before by a default counts no more than the default of this version.
        own = {name: told["default"] for name, told in declared.items() if "default" in told}
        options: dict[str, Any] = {"on": artifact.id, "inputs": own | inputs, "registry": self._registry}
        try:
            plans = [await jobs.plan_rerun(each.job_id, **options) for each in self._steps if each.job_id is not None]
            if not plans:
                handle = await jobs.submit(artifact.id, inputs, labels={LABEL: self._label})
                job = await jobs.wait(handle.id, self._timeout)
                ran, kept = [node.node for node in await jobs.nodes(job.id) if node.attempt], []
            else:
                best = max(plans, key=lambda plan: (len(plan.nodes("keep")), plan.job_id))
                again = await jobs.rerun(best.job_id, **options)
                job = await jobs.wait(again.id, self._timeout)
                ran = [node.node for node in await jobs.nodes(job.id) if node.attempt]
                kept = again.plan.nodes("keep")
        except InvalidInput as problem:
            return BisectStep(artifact, JobState.FAILED, None, (), (), str(problem))
        if job.state == JobState.CANCELLED:
            raise InvalidInput(
                "bisect", f"job {job.id} of version {artifact.id} was cancelled: nothing can be told of it"
            )
        problem_text = None if job.error is None else str(job.error.get("message"))
        return BisectStep(artifact, job.state, job.id, tuple(ran), tuple(kept), problem_text)


def _how(step: BisectStep) -> str:
    if step.job_id is None:
        return f"it cannot be submitted, {step.problem}"
    return f"job {step.job_id} {step.state}" + (f", {step.problem}" if step.problem else "")


class Line(NamedTuple):
    """What a tag has been made of, the version that works, and the id of the one that fails."""

    history: Mapping[int, Artifact]
    good: Artifact
    bad: int


async def line_of(jobs: Jobs, tag: str, good: str | int, bad: str | int) -> Line:
    """Return the history between two versions from the database."""
    org_id = await jobs._session.org_id()
    (_, head), (_, first), (_, last) = [await jobs._resolve(each) for each in (tag, good, bad)]
    history = {each.id: each for each in await jobs._read(lambda conn: artifacts.line(conn, org_id, head))}
    return Line(history, await jobs._read(lambda conn: artifacts.show(conn, org_id, first)), last)


async def line_between(jobs: Jobs, tag: str, good: str | int, bad: str | int) -> list[Artifact]:
    """Return the versions from one to another, oldest first, without those that mean what the one before means."""
    history, meant, last = await jobs._line(tag, good, bad)
    first = meant.id
    if last not in history:
        raise InvalidInput("bad", f"version {last} is not in the history of {tag}: see `weft workflows log {tag}`")
    line = [history[last]]
    while line[-1].id != first and line[-1].version_hash != meant.version_hash:
        parent = line[-1].parent_id
        if parent is None:
            raise InvalidInput("good", _not_before(meant, history, last))
        line.append(history[parent])
    line.reverse()
    told = [each for place, each in enumerate(line) if place == 0 or each.version_hash != line[place - 1].version_hash]
    if len(told) < 2:
        raise InvalidInput("good", f"versions {first} and {last} mean the same: there is no change between them")
    return told


def _not_before(good: Artifact, history: Mapping[int, Artifact], last: int) -> str:
    merges = [each.merged_id for each in history.values() if each.merged_id is not None]
    if good.id in history and merges:
        return f"version {good.id} came to {last} by a merge: bisect that line, with --bad {max(merges)}"
    return f"version {good.id} does not lead to {last}: see `weft workflows log {last}`"


async def bisect(
    jobs: Jobs, tag: str, good: str | int, bad: str | int | None, inputs: Mapping[str, Any] | None,
    timeout: float | timedelta | None, registry: Registry | None, on_step: Callable[[BisectStep], None] | None,
) -> Bisected:  # fmt: skip
    """Search the change of a tag's line that broke it; `Jobs.bisect`."""
    given = plain(dict(inputs or {}), "inputs")
    line = await line_between(jobs, tag, good, tag if bad is None else bad)
    known = {name for end in (line[0], line[-1]) for name in (await jobs._document(end.id)).get("inputs") or {}}
    for name in given:
        if name not in known:
            raise InvalidInput(
                "inputs", f"there is no input {name!r} in any of the versions.{did_you_mean(name, known)}"
            )
    return await Bisection(jobs, line, given, timeout, registry, on_step, tag).run()
