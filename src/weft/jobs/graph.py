"""A job as a graph, with what those need who draw it: nodes with their states, and by which ways it went."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

import orjson

from weft.core.job_states import JobState
from weft.core.states import TaskState
from weft.db.statements import Statements
from weft.flow.drawing.layout import Layout
from weft.flow.drawing.picture import Box, Picture, Way, picture_of
from weft.flow.drawing.svg import layout_of, path_of
from weft.flow.graph import Graph, links_of
from weft.jobs.layout import CLOSE, OPEN

if TYPE_CHECKING:
    from weft.db.database import type_Connection
    from weft.jobs.model import Job, JobNode

SQL = Statements("weft.jobs", "sql/drawing.sql")
# A graph of more nodes than these is drawn without places, or not as a whole: nobody reads such a picture.
MOST_PLACED = 1_000
MOST_NODES = 5_000
_GATES = (OPEN, CLOSE)


@dataclass(frozen=True, slots=True)
class GraphNode:
    """A node of a job that is drawn; ``state`` is None while there is no task for it, as for a start.

    Of a fan_out ``items`` are how many of its items are in which state. ``job_ids`` are the jobs that it has begun as
    a sub-workflow. Its left upper corner is at ``x`` and ``y``, unless the graph is too large to be laid out.
    """

    node: str
    type: str
    caption: str
    group: str | None
    id: int | None
    state: TaskState | None
    reason: str | None
    attempt: int
    claimed_at: datetime | None
    ended_at: datetime | None
    due_at: datetime | None
    error: Mapping[str, Any] | None
    items: Mapping[str, int]
    kept_id: int | None
    job_ids: tuple[int, ...]
    x: float | None
    y: float | None
    width: float | None
    height: float | None


@dataclass(frozen=True, slots=True)
class GraphEdge:
    """A way from a node to another; ``kind`` is ``next`` or ``branch``, ``path`` is how it is drawn, as SVG says it.

    ``state`` is ``taken`` or ``skipped``, or ``open`` while neither is certain.
    """

    source: str
    target: str
    kind: str
    label: str | None
    state: str
    path: str | None


@dataclass(frozen=True, slots=True)
class GraphGroup:
    """The frame around the nodes of a group."""

    name: str
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class GraphItem:
    """An item of a fan_out, or another task that a node has made."""

    id: int
    item: int | None
    state: TaskState
    reason: str | None
    attempt: int
    claimed_at: datetime | None
    ended_at: datetime | None
    error: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class JobGraph:
    """A job to be drawn: one node for each of its definition, however many items a fan_out has.

    ``progress`` are how many nodes are in which state. ``items`` are a page of those of the node that was asked for;
    ``next_item`` asks for the page after it. ``is_cut`` says that there are more nodes than are told.
    """

    job_id: int
    workflow_id: str
    state: JobState
    reason: str | None
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    progress: Mapping[str, int]
    nodes: tuple[GraphNode, ...]
    edges: tuple[GraphEdge, ...]
    groups: tuple[GraphGroup, ...]
    width: float | None
    height: float | None
    items: tuple[GraphItem, ...]
    next_item: int | None
    is_cut: bool

    def picture(self) -> Picture:
        """Return what to draw of the job: boxes that tell their state."""
        boxes = {node.node: Box(node.node, node.type, _told(node), node.group, node.state) for node in self.nodes}
        following: dict[str, list[str]] = {name: [] for name in boxes}
        previous: dict[str, list[str]] = {name: [] for name in boxes}
        for edge in self.edges:
            following[edge.source].append(edge.target)
            previous[edge.target].append(edge.source)
        labels = {(edge.source, edge.target): edge.label for edge in self.edges if edge.label}
        return Picture(boxes, following, previous, labels, f"Job {self.job_id} of {self.workflow_id}")


@dataclass(frozen=True)
class Drawn:
    """A definition as it is drawn, whatever becomes of a job of it: made once for all of them."""

    picture: Picture
    branches: Mapping[Way, frozenset[int]]
    layout: Layout | None

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Drawn:
        """Draw a definition."""
        picture = picture_of(data)
        return cls(picture, _branches(data), _laid_out(picture))


@dataclass(frozen=True)
class Facts:
    """What is known of a job's tasks beyond their states."""

    choices: Mapping[str, int]
    jobs: Mapping[int, tuple[int, ...]]
    edges: Sequence[tuple[int, int]] = ()
    # The beginnings and ends of groups; of an end the group's name.
    gates: Mapping[int, str | None] = field(default_factory=dict)


async def facts(conn: type_Connection, org_id: int, job_id: int, nodes: Sequence[JobNode], drawn: Drawn) -> Facts:
    """Read which branches were taken, which jobs were begun, and what leads to what that no definition has."""
    choices = {row["node"]: row["branch"] for row in await conn.fetch(SQL.choices, org_id, job_id)}
    callers = [node.id for node in nodes if node.handler == "@workflow"]
    jobs: dict[int, tuple[int, ...]] = {}
    if callers:
        for row in await conn.fetch(SQL.begun, org_id, callers):
            jobs[row["parent_id"]] = (*jobs.get(row["parent_id"], ()), row["id"])
    added = [node.id for node in nodes if node.node not in drawn.picture.boxes]
    if not added:
        return Facts(choices, jobs)
    rows = await conn.fetch(SQL.gates, org_id, job_id)
    gates = {row["id"]: row["node"] if row["handler"] == CLOSE else None for row in rows}
    ways = await conn.fetch(SQL.ways, org_id, [*added, *gates])
    return Facts(choices, jobs, [(row["prev"], row["next"]) for row in ways], gates)


async def items(
    conn: type_Connection, org_id: int, job_id: int, task_id: int, after: int, limit: int
) -> tuple[GraphItem, ...]:
    """Return a page of the items of a node."""
    rows = await conn.fetch(SQL.items, org_id, job_id, task_id, after, limit)
    return tuple(
        GraphItem(**{**row, "state": TaskState(row["state"]), "error": row["error"] and orjson.loads(row["error"])})
        for row in rows
    )


def graph_of(
    job: Job, nodes: Sequence[JobNode], drawn: Drawn, known: Facts, found: tuple[GraphItem, ...], next_item: int | None
) -> JobGraph:
    """Return a job as it is drawn now."""
    picture, layout = drawn.picture, drawn.layout
    by_name = {node.node: node for node in nodes if node.handler not in _GATES}
    if any(name not in picture.boxes for name in by_name):
        picture = _grown(picture, nodes, known)
        layout = _laid_out(picture)
    shown = list(picture.boxes.values())[:MOST_NODES]
    names = {box.name for box in shown}
    ways = [way for way in picture.ways if names.issuperset(way)]
    rects = {} if layout is None else layout.boxes
    drawn_nodes = []
    for box in shown:
        node, rect = by_name.get(box.name), rects.get(box.name)
        place = (None,) * 4 if rect is None else (rect.x, rect.y, rect.width, rect.height)
        state: tuple[Any, ...] = (None, None, None, 0, None, None, None, None, {}, None, ())
        if node is not None:
            state = (
                node.id, node.state, node.reason, node.attempt, node.claimed_at, node.ended_at, node.due_at, node.error,
                node.items, node.kept_id, known.jobs.get(node.id, ()),
            )  # fmt: skip
        drawn_nodes.append(GraphNode(box.name, box.kind, box.caption, box.group, *state, *place))
    edges = [
        GraphEdge(
            *way, "branch" if way in drawn.branches else "next", picture.labels.get(way),
            _went(way, job, by_name, drawn, known), None if layout is None else path_of(layout, way),
        )
        for way in ways
    ]  # fmt: skip
    frames = {} if layout is None else layout.frames
    return JobGraph(
        job.id, job.workflow_id, job.state, job.reason, job.created_at, job.started_at, job.ended_at,
        Counter(node.state for node in by_name.values()), tuple(drawn_nodes), tuple(edges),
        tuple(GraphGroup("/".join(name), r.x, r.y, r.width, r.height) for name, r in sorted(frames.items())),
        None if layout is None else layout.width, None if layout is None else layout.height, found, next_item,
        len(picture.boxes) > MOST_NODES,
    )  # fmt: skip


def _went(way: Way, job: Job, nodes: Mapping[str, JobNode], drawn: Drawn, known: Facts) -> str:
    """Return whether a job went by a way, did not, or may yet."""
    source = nodes.get(way[0])
    if source is None:
        # A start has no task; what is not there of a job that has ended will not come.
        is_start = way[0] in drawn.picture.boxes and drawn.picture.boxes[way[0]].kind == "start"
        if is_start and job.started_at is not None:
            return "taken"
        return "skipped" if job.state.is_final else "open"
    if not source.state.is_final:
        return "open"
    if source.state != TaskState.COMPLETED:
        goes_on = source.allow_failure and source.state in (TaskState.FAILED, TaskState.DEAD)
        return "taken" if goes_on else "skipped"
    if way in drawn.branches:
        return "taken" if known.choices.get(way[0]) in drawn.branches[way] else "skipped"
    return "taken"


def _branches(data: Mapping[str, Any]) -> dict[Way, frozenset[int]]:
    """Return by which branches of a conditional each way leads."""
    graph, found = Graph.of(data), dict[Way, frozenset[int]]()
    for link in links_of(data):
        if link.branch is not None:
            for target in [link.target] if link.target in graph.next else graph.groups.get(link.target, ()):
                way = link.source, target
                found[way] = found.get(way, frozenset()) | {link.branch}
    return found


def _grown(picture: Picture, nodes: Sequence[JobNode], known: Facts) -> Picture:
    """Return a picture with what no definition has: it was added to the job, or there is no definition of it."""
    by_id = {node.id: node for node in nodes}
    gates = known.gates
    after: dict[int, list[int]] = {}
    groups: dict[int, str] = {}
    for prev, next_ in known.edges:
        after.setdefault(prev, []).append(next_)
        if (group := gates.get(next_)) is not None:
            groups[prev] = group
    boxes = dict(picture.boxes)
    for node in nodes:
        if node.node not in boxes and node.id not in gates:
            kind, is_own = node.handler.lstrip("@"), node.handler.startswith("@")
            boxes[node.node] = Box(
                node.node, kind if is_own else "task", "" if is_own else node.handler, groups.get(node.id)
            )
    following = {name: list(picture.next.get(name, ())) for name in boxes}
    previous = {name: list(picture.previous.get(name, ())) for name in boxes}
    for node in nodes:
        if node.id in after and node.id not in gates:
            for target in _beyond(node.id, after, gates):
                name = by_id[target].node if target in by_id else None
                if name in boxes and name not in following[node.node]:
                    following[node.node].append(name)
                    previous[name].append(node.node)
    return Picture(_ordered(boxes, following, previous), following, previous, picture.labels, picture.title)


def _ordered(
    boxes: dict[str, Box], following: Mapping[str, list[str]], previous: Mapping[str, list[str]]
) -> dict[str, Box]:
    """Return the boxes such that each comes after those that lead to it."""
    waits = {name: len(previous[name]) for name in boxes}
    ready = [name for name in boxes if not waits[name]]
    for name in ready:
        for target in following[name]:
            waits[target] -= 1
            if not waits[target]:
                ready.append(target)
    return {name: boxes[name] for name in (ready if len(ready) == len(boxes) else boxes)}


def _beyond(id: int, after: Mapping[int, list[int]], gates: Collection[int]) -> Iterator[int]:
    """Yield what comes next after a task, where the ends of groups do not count."""
    seen, open_ = set[int](), list(after.get(id, ()))
    while open_:
        other = open_.pop()
        if other not in seen:
            seen.add(other)
            if other in gates:
                open_ += after.get(other, ())
            else:
                yield other


def _laid_out(picture: Picture) -> Layout | None:
    return layout_of(picture) if 0 < len(picture.boxes) <= MOST_PLACED else None


def _told(node: GraphNode) -> str:
    """Return what stands in a box below its name: what it does, and how it goes."""
    total, ended = (
        sum(node.items.values()),
        sum(count for state, count in node.items.items() if TaskState(state).is_final),
    )
    said = [node.caption, node.state and str(node.state), f"{ended:,} of {total:,} items" if total else None]
    return " · ".join(each for each in said if each)
