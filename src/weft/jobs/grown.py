"""Takes what was added to a job while it ran over into the job that runs it again."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from weft.jobs.items import Item, Known, Task
from weft.jobs.layout import CLOSE, OPEN
from weft.jobs.rerun import Before, RerunAction, RerunStep, Wanted, code_change, ended_text
from weft.jobs.rerun_reading import SQL

if TYPE_CHECKING:
    from asyncpg import Record

    from weft.db.database import type_Connection


@dataclass(frozen=True, slots=True)
class Added:
    """A task that no definition has: it was added to a job from outside.

    ``previous`` and ``following`` are the tasks before and after it, by ids, whatever groups lie between.
    """

    was: Before
    row: Record
    previous: frozenset[int]
    following: frozenset[int]

    @property
    def node(self) -> str:
        """What it is called in its job."""
        name: str = self.row["node"]
        return name


async def added_tasks(conn: type_Connection, job_id: int, added: Mapping[int, Before]) -> list[Added]:
    """Return what was added to a job that has ended, in order of ids."""
    if not added:
        return []
    edges = await conn.fetch(SQL.ways, job_id, list(added))
    gates = {row["id"] for row in await conn.fetch(SQL.gates, job_id, [OPEN, CLOSE])}
    following: dict[int, set[int]] = {}
    previous: dict[int, set[int]] = {}
    for edge in edges:
        following.setdefault(edge["prev"], set()).add(edge["next"])
        previous.setdefault(edge["next"], set()).add(edge["prev"])
    rows = {row["id"]: row for row in await conn.fetch(SQL.added, list(added))}
    return [
        Added(added[id], rows[id], _beyond(id, previous, gates), _beyond(id, following, gates)) for id in sorted(rows)
    ]


def _beyond(id: int, ways: Mapping[int, Collection[int]], gates: Collection[int]) -> frozenset[int]:
    """Return what is next to a task, where the ends of groups do not count."""
    found: set[int] = set()
    open_ = list(ways.get(id, ()))
    while open_:
        other = open_.pop()
        if other in found:
            continue
        found.add(other)
        if other in gates:
            open_ += ways.get(other, ())
    return frozenset(found.difference(gates))


def decide(
    added: Sequence[Added], names: Mapping[int, str], steps: Iterable[RerunStep], wanted: Wanted
) -> list[RerunStep]:
    """Return what is done about what was added: what did not complete runs, and what comes after something that runs.

    ``names`` are those of the job's nodes by the ids of their tasks, and ``steps`` say what is done about them.
    """
    actions = {step.node: step.action for step in steps}
    by_id = {each.was.id: each for each in added}
    whys: dict[int, str] = {}
    skipped: set[int] = set()
    for each in added:
        if each.node in wanted.nodes:
            whys[each.was.id] = "it was asked for"
        elif each.was.state == "skipped" and each.was.reason == "branch_not_taken":
            skipped.add(each.was.id)
        elif not each.was.is_done:
            whys[each.was.id] = "a task that it made did not complete"
        elif each.was.state != "completed" and not each.row["allow_failure"]:
            whys[each.was.id] = f"it was added to the job, and {ended_text(each.was)}"
        elif (change := code_change(each.was, wanted)) is not None:
            whys[each.was.id] = change
    is_new = True
    while is_new:
        is_new = False
        for each in added:
            if each.was.id in whys:
                continue
            running = sorted(
                names.get(id) or by_id[id].node
                for id in each.previous
                if id in whys or actions.get(names.get(id, "")) == RerunAction.RUN
            )
            if running:
                is_new = True
                skipped.discard(each.was.id)
                whys[each.was.id] = f"it comes after {running[0]}, which runs"
    return [_step(each, whys.get(each.was.id), each.was.id in skipped) for each in added]


def _step(each: Added, why: str | None, is_skipped: bool) -> RerunStep:
    if why is not None:
        return RerunStep(each.node, RerunAction.RUN, why)
    if is_skipped:
        return RerunStep(each.node, RerunAction.SKIP, "no branch that is kept leads to it")
    return RerunStep(each.node, RerunAction.KEEP, "it was added to the job, and has ended", each.was.id)


def followers(added: Sequence[Added], decided: Sequence[RerunStep], names: Mapping[int, str]) -> dict[str, str]:
    """Return the nodes that come after something added that runs, with what that is."""
    return {
        names[id]: step.node
        for each, step in zip(added, decided, strict=True)
        if step.action == RerunAction.RUN
        for id in each.following
        if id in names
    }


def items_again(
    added: Sequence[Added], decided: Sequence[RerunStep], places: Mapping[int, tuple[int, RerunAction]], priority: int
) -> list[Item]:
    """Return the tasks that are to be added again.

    ``places`` are for the old tasks of nodes the new ones, and what is done about them; ``priority`` was the old job's.
    """
    items = {
        each.was.id: _task(each.row, priority)
        for each, step in zip(added, decided, strict=True)
        if step.action == RerunAction.RUN
    }
    for each in added:
        if (item := items.get(each.was.id)) is None:
            continue
        for id in each.previous:
            if id in items:
                item.depends_on(items[id])
            elif id in places and places[id][1] != RerunAction.SKIP:
                item.depends_on(Known(places[id][0]))
        for id in each.following:
            if id in places and places[id][1] == RerunAction.RUN:
                Known(places[id][0]).depends_on(item)
    return list(items.values())


def _task(row: Record, priority: int) -> Item:
    task = Task(
        row["handler"], name=row["node"], queue=row["queue"], priority=-priority - row["rank"],
        max_attempts=row["max_attempts"], timeout=_span(row["timeout"]),
        heartbeat_timeout=_span(row["heartbeat_timeout"]), concurrency_key=row["concurrency_key"],
        allow_failure=row["allow_failure"],
    )  # fmt: skip
    # As they stand in the database: what is large is there already.
    task.params, task.retry = row["params"] or "{}", row["retry"]
    return task


def _span(span: timedelta | None) -> timedelta | None:
    return span if span else None
