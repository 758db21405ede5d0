"""Plans how a job is run again: which of its nodes keep their outputs, which run, and why."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from weft.core.errors import InvalidInput
from weft.core.suggestions import did_you_mean
from weft.jobs.layout import OPEN
from weft.jobs.plan import Plan, Step
from weft.jobs.rendering import END
from weft.jobs.submit import Kept

# So many names are told to whoever gave another.
_MANY = 10


class RerunAction(StrEnum):
    """What is done about a node when its job is run again."""

    KEEP = "keep"
    RUN = "run"
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class RerunStep:
    """A node of a job that is run again; ``task_id`` is the task whose output it keeps.

    ``items_kept`` is of a fan_out how many of its items keep their outputs.
    """

    node: str
    action: RerunAction
    why: str
    task_id: int | None = None
    items_kept: int | None = None


@dataclass(frozen=True, slots=True)
class RerunPlan:
    """What happens when a job is run again, node by node."""

    job_id: int
    workflow_id: str
    version_hash: str
    steps: tuple[RerunStep, ...]

    def nodes(self, action: str) -> list[str]:
        """Return the nodes with which something is done: ``keep``, ``run`` or ``skip``."""
        return [step.node for step in self.steps if step.action == action]


@dataclass(frozen=True, slots=True)
class Before:
    """What became of a node in the job that is run again.

    ``codes`` are for each handler that made its output the versions of its code, None where that is not known. Of a
    fan_out ``parents`` are those that have its items, of which ``completed`` of ``count`` have an output. ``is_done``
    says whether what it made by itself has completed as well.
    """

    id: int
    state: str
    reason: str | None = None
    branch: int | None = None
    codes: Mapping[str, Collection[str | None]] = field(default_factory=dict)
    parents: Sequence[int] = ()
    completed: int = 0
    count: int | None = None
    is_done: bool = True


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a job is run again for: which nodes in any case, whether only what failed, by which code and versions.

    ``changed_inputs`` and ``changed_workflows`` are not what they were; ``old`` and ``new`` are the hashes of nodes.
    ``after`` are nodes that come after something that was added to the job and runs, with what that is.
    """

    nodes: Collection[str] = ()
    failed_only: bool = False
    changed_inputs: Collection[str] = ()
    changed_workflows: Collection[str] = ()
    old: Mapping[str, str] = field(default_factory=dict)
    new: Mapping[str, str] = field(default_factory=dict)
    codes: Mapping[str, str | None] = field(default_factory=dict)
    after: Mapping[str, str] = field(default_factory=dict)


def check_nodes(nodes: Collection[str], plan: Plan, added: Collection[str]) -> None:
    """Refuse nodes that a job could not run again; ``added`` are those that its definition does not have."""
    known = [*(step.node for step in plan.steps if step.node is not None), *added]
    for name in nodes:
        if name not in known:
            advice = did_you_mean(name, known) or f" There are {', '.join(known[:_MANY])}."
            raise InvalidInput("from", f"there is no node {name!r} that runs.{advice}")


def plan_steps(plan: Plan, before: Mapping[str, Before], wanted: Wanted) -> tuple[list[RerunStep | None], Kept]:
    """Return for each step what is done about it, None for one that is no node, and what a new job keeps.

    What comes after something that runs runs as well: what it is given may be another.
    """
    decided: list[RerunStep | None] = [None] * len(plan.steps)
    coming: list[list[tuple[int, tuple[int, ...] | None]]] = [[] for _ in plan.steps]
    for source, target, branches in plan.edges:
        coming[target].append((source, branches))
    kept = _Keeping()
    for place in _in_order(plan):
        step = plan.steps[place]
        running = [
            each for source, _ in coming[place] if source not in kept.froms
            for each in kept.before_gates.get(source) or [plan.steps[source]]
        ]  # fmt: skip
        reached = sum(kept.reaches(source, branches) for source, branches in coming[place])
        if step.handler == OPEN:
            kept.pass_gate(place, running, bool(reached))
        if step.node is None:
            continue
        decided[place] = one = _decided(
            step, before.get(step.node), wanted, running, bool(reached or not coming[place])
        )
        was = before.get(step.node)
        if one.action != RerunAction.RUN:
            kept.froms[place] = one.task_id
            if one.action == RerunAction.KEEP and was is not None:
                kept.branches[place] = was.branch
        if was is not None and one.items_kept is not None:
            kept.items[step.node] = was.parents
    live_reached = {
        target: sum(kept.reaches(source, branches) for source, branches in coming[target])
        for target in range(len(plan.steps))
        if target not in kept.froms
    }
    return decided, Kept(kept.froms, kept.items, {place: n for place, n in live_reached.items() if n})


class _Keeping:
    """What is kept so far, by the places of the steps."""

    def __init__(self) -> None:
        self.froms: dict[int, int | None] = {}
        self.branches: dict[int, int | None] = {}
        self.items: dict[str, Sequence[int]] = {}
        # Of what stands between groups: whether it was reached, and what runs before it.
        self.gates: dict[int, bool] = {}
        self.before_gates: dict[int, list[Step]] = {}

    def pass_gate(self, place: int, running: list[Step], is_reached: bool) -> None:
        """Note what stands between groups: it is as what comes before it."""
        if running:
            self.before_gates[place] = running
        else:
            self.froms[place] = None
            self.gates[place] = is_reached

    def reaches(self, source: int, branches: tuple[int, ...] | None) -> bool:
        """Whether a step that is kept leads to what comes after it by these branches."""
        if source in self.gates:
            return self.gates[source]
        if self.froms.get(source) is None:
            return False
        return branches is None or self.branches.get(source) in branches


def _decided(step: Step, was: Before | None, wanted: Wanted, running: Sequence[Step], is_reached: bool) -> RerunStep:
    assert step.node is not None
    run, name = RerunAction.RUN, step.node
    if step.handler == END:
        return RerunStep(name, run, "it is the end of the job")
    if not running and not is_reached:
        return RerunStep(name, RerunAction.SKIP, "no branch that is kept leads to it")
    why = _why_run(step, was, wanted, running)
    if running and (why is None or why.gives_way):
        return RerunStep(name, run, f"it comes after {running[0].node}, which runs")
    if why is not None:
        return RerunStep(name, run, why.text, items_kept=was.completed if was is not None and why.keeps_items else None)
    assert was is not None
    items = was.completed if step.child is not None else None
    return RerunStep(name, RerunAction.KEEP, "nothing about it has changed", was.id, items)


@dataclass(frozen=True, slots=True)
class _Why:
    """Why a node runs; ``keeps_items`` when those of its items that completed need not.

    One that ``gives_way`` is not told where the node would run anyway.
    """

    text: str
    keeps_items: bool = False
    gives_way: bool = False


def _why_run(step: Step, was: Before | None, wanted: Wanted, running: Sequence[Step]) -> _Why | None:
    """Return why a node runs, whatever comes before it; None: nothing about it has changed."""
    node = step.node
    assert node is not None
    if node in wanted.nodes:
        return _Why("it was asked for")
    if node in wanted.after:
        return _Why(f"it comes after {wanted.after[node]}, which runs")
    if was is None:
        return _Why("it is new")
    if _is_changed(node, wanted) and not any(_is_changed(each.node, wanted) for each in running):
        return _Why("its definition has changed, or what leads to it")
    used = sorted(
        name for name in wanted.changed_inputs if step.inputs is None or name in step.inputs
    )  # fmt: skip
    if used:
        return _Why(f"it takes the input {used[0]}, which has changed")
    workflow = step.spec.get("workflow") if step.handler == "@workflow" else None
    if workflow in wanted.changed_workflows:
        return _Why(f"the workflow {workflow} is at another version")
    if not was.is_done:
        return _Why("a task that it made did not complete")
    if was.state == "completed" or was.parents:
        code = code_change(was, wanted)
        return _why_items(was) if code is None else _Why(code)
    return _Why(ended_text(was), gives_way=was.state == "skipped")


def _is_changed(node: str | None, wanted: Wanted) -> bool:
    return node is not None and wanted.old.get(node) != wanted.new.get(node)


def code_change(was: Before, wanted: Wanted) -> str | None:
    """Return what has changed about the code that made an output, if that counts."""
    if wanted.failed_only:
        return None
    for handler, codes in sorted(was.codes.items()):
        now = wanted.codes.get(handler)
        if None in codes or now is None:
            return f"it is not known which code of {handler} made its output"
        if set(codes) != {now}:
            return f"the code of {handler} has changed"
    return None


def _why_items(was: Before) -> _Why | None:
    """Return why a fan_out runs of which some items have no output."""
    if not was.parents:
        return None
    if was.state == "completed" and was.completed == was.count:
        return None
    if was.reason == "kept":
        return _Why("outputs of its items are not there any more")
    if not was.completed:
        text = "none of its items completed" if was.state == "completed" else ended_text(was)
        return _Why(text, gives_way=was.state == "skipped")
    left = (
        "it was not expanded to the end"
        if was.count is None
        else f"{was.count - was.completed:,} of its items did not complete"
    )
    return _Why(f"{left}; the {was.completed:,} that did keep their outputs", keeps_items=True, gives_way=True)


def ended_text(was: Before) -> str:
    """Return how a node ended, as the reason why it runs again."""
    return f"it was {was.state} ({was.reason})" if was.reason else f"it was {was.state}"


def _in_order(plan: Plan) -> Iterator[int]:
    """Yield the places of the steps, each after those that lead to it."""
    waits = list(plan.waits)
    following: list[list[int]] = [[] for _ in plan.steps]
    for source, target, _ in plan.edges:
        following[source].append(target)
    open_ = [place for place, count in enumerate(waits) if count == 0]
    while open_:
        place = open_.pop()
        yield place
        for target in following[place]:
            waits[target] -= 1
            if waits[target] == 0:
                open_.append(target)
