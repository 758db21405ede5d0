"""Adds tasks and groups to a job, while it runs or as it is made: all of them and what leads to what, or nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from weft.core.checks import MAX_PRIORITY
from weft.core.errors import InvalidInput, LeaseLost, NotFound, StateConflict
from weft.core.ids import CONTROL_QUEUE
from weft.core.json import BLOB_MARK
from weft.db.copying import copy_rows
from weft.db.statements import Statements
from weft.jobs.items import Group, Item, Task
from weft.jobs.layout import CLOSE, OPEN, Layout, Pair, gather, names_of
from weft.queue import audit, blobs, steps
from weft.queue.audit import AuditVerb
from weft.queue.enqueue import INLINE_PARAMS

if TYPE_CHECKING:
    from weft.db.database import type_Connection

SQL = Statements("weft.jobs", "sql/graph.sql")
_COLUMNS = (
    "id org_id queue_id order_id state waiting_on reached rank max_attempts handler params job_id timeout"
    " heartbeat_timeout retry concurrency_key reason actor node allow_failure"
).split()
_OPEN_STATES = ("pending", "ready")
_FAILED = ("failed", "dead")


@dataclass(slots=True)
class Addition:
    """Items that are to become part of a job, with ids and the queues they need, by name.

    ``woken`` are the queues in which something is ready when they are, for whoever gives the hint after the commit;
    ``large`` are references to params that are in the blob storage, and so in the place of the task's own.
    """

    items: list[Item]
    pairs: list[Pair]
    ids: list[int] = field(default_factory=list)
    lanes: Mapping[str, int] = field(default_factory=dict)
    woken: set[int] = field(default_factory=set)
    large: dict[Item, str] = field(default_factory=dict)

    @classmethod
    def of(cls, items: Sequence[Item]) -> Addition:
        """Gather what comes along with ``items``."""
        return cls(*gather(items))

    @property
    def queues(self) -> set[str]:
        """The names of the queues in which the tasks wait."""
        return {item.queue for item in self.items if isinstance(item, Task)}

    @property
    def room(self) -> int:
        """How many ids are needed at most: one for each task, two for each group."""
        return len(self.items) + sum(isinstance(item, Group) for item in self.items)

    def landed(self, layout: Layout, job_id: int) -> None:
        """Note on the items that they are part of the job."""
        for item, id in zip(self.items, layout.ids, strict=False):
            item.id = id
            item.job_id = job_id
        for before, after in self.pairs:
            after.before[before] = True


@dataclass(slots=True)
class Rows:
    """The counters of a layout: how many each place waits for, and how many have reached it."""

    waits: list[int]
    reached: list[int]

    @classmethod
    def of(cls, layout: Layout, ended: set[int]) -> Rows:
        """Count; ``ended`` are the places of what has completed."""
        waits, reached = [0] * len(layout.ids), [0] * len(layout.ids)
        for source, target in zip(layout.sources, layout.targets, strict=True):
            if source in ended:
                reached[target] += 1
            else:
                waits[target] += 1
        return cls(waits, reached)


@dataclass(frozen=True, slots=True)
class Place:
    """The job that tasks are added to."""

    org_id: int
    job_id: int
    end_id: int
    rank: int
    actor: str | None


class Call(NamedTuple):
    """A call by which a running task adds to its own job: a later attempt that makes it again gets the same tasks."""

    fence: steps.Fence
    number: int


async def add(
    conn: type_Connection, org_id: int, job_id: int, new: Addition, call: Call | None = None, actor: str | None = None
) -> Layout:
    """Add to a job that goes on, and return where everything is. Raises `StateConflict`, and writes nothing then.

    With an ``actor`` it is an act of his, and what is added is his; else it is part of what was submitted. What a
    ``call`` has added in an earlier attempt is not added again. What comes before is locked first, then what waits: as
    whoever finishes a task does it.
    """
    job = await conn.fetchrow(SQL.job_of, org_id, job_id)
    if job is None:
        raise NotFound("job", job_id)
    await conn.execute(SQL.one_adds, job_id)
    if call is not None and (known_ids := await _added_before(conn, call, new)) is not None:
        return Layout(new.items, known_ids)
    known = await _known(conn, org_id, job_id, new)
    layout = Layout.of(new.items, new.pairs, new.ids, job["end_id"], known.gates)
    old = await _lock(conn, layout, known, job_id, job["end_id"])
    row = await conn.fetchrow(SQL.going_on, org_id, job_id)
    if row is None:
        raise _ended_job(job_id, job["state"])
    layout.require_order(await _stored(conn, layout), known.names)
    layout.forget_edges(await _known_edges(conn, layout))
    at = Place(org_id, job_id, job["end_id"], row["rank"], actor or row["actor"])
    rows = Rows.of(layout, old.completed)
    await _wait_longer(conn, layout, rows, old)
    await write(conn, at, new, layout, rows, names_of(new.items, layout.ids))
    if actor is not None:
        await audit.record_many(conn, org_id, actor, AuditVerb.ADD, "job", [job_id], {"added": len(new.items)})
    # Whoever looked for work may have passed over what is locked here.
    new.woken |= old.queues
    return layout


async def _added_before(conn: type_Connection, call: Call, new: Addition) -> list[int] | None:
    """Return what an earlier attempt has added by the same call; None when there is none, and this one is noted."""
    name, handlers = steps.addition_name(call.number), [_handler(item) for item in new.items]
    if (saved := await steps.load(conn, call.fence.task_id, name)) is not None:
        before = orjson.loads(saved.data)
        if before["handlers"] != handlers:
            raise InvalidInput(
                "items", f"an earlier attempt of this task added others by its call {call.number}: keep their order"
            )
        return [int(id) for id in before["ids"]]
    ids = [str(id) for id in new.ids[: len(new.items)]]
    text = orjson.dumps({"ids": ids, "handlers": handlers}).decode()
    if await steps.save(conn, call.fence, name, None, len(text), text) is None:
        raise LeaseLost(call.fence.task_id)
    return None


def _handler(item: Item) -> str | None:
    return item.handler if isinstance(item, Task) else None


@dataclass(slots=True)
class _Known:
    """What is part of the job already: names, and the gates of groups."""

    names: dict[int, str]
    gates: dict[int, int | None]


async def _known(conn: type_Connection, org_id: int, job_id: int, new: Addition) -> _Known:
    wanted = {item.id for pair in new.pairs for item in pair if item.id is not None}
    wanted |= {item.group.id for item in new.items if item.group is not None and item.group.id is not None}
    found = _Known({}, {})
    for row in await conn.fetch(SQL.look_at, org_id, job_id, list(wanted)) if wanted else ():
        found.names[row["id"]] = row["node"] or str(row["id"])
        if row["handler"] == CLOSE:
            gate = orjson.loads(row["params"] or "{}").get("gate")
            found.gates[row["id"]] = None if gate is None else int(gate)
    if missing := wanted - found.names.keys():
        raise NotFound("task", f"{min(missing)} in job {job_id}")
    return found


@dataclass(slots=True)
class _Old:
    """What is there already, by places: what has completed, and what waits for more, as it was."""

    completed: set[int]
    waiting: dict[int, Any]
    queues: set[int]


async def _lock(conn: type_Connection, layout: Layout, known: _Known, job_id: int, end_id: int) -> _Old:
    """Lock what new edges touch, and refuse what cannot be waited for, or cannot wait, any more."""
    places = layout.known
    sources = {place for place in layout.sources if place >= layout.new}
    targets = {place for place in layout.targets if place >= layout.new}
    before = [layout.ids[place] for place in sources]
    living = {row["id"]: row for row in await conn.fetch(SQL.lock_before, before)} if before else {}
    after = [layout.ids[place] for place in targets]
    waiting = {row["id"]: row for row in await conn.fetch(SQL.lock_after, after)} if after else {}
    gone = [id for id in (*before, *after) if id not in living and id not in waiting]
    endings = {row["id"]: row for row in await conn.fetch(SQL.endings, gone)} if gone else {}
    for id in sorted(after):
        state = waiting[id]["state"] if id in waiting else endings[id]["state"] if id in endings else "gone"
        if state not in _OPEN_STATES:
            if id == end_id:
                raise StateConflict("add to", job_id, "ending", ("pending", "running", "paused"), "job")
            is_group = id in known.gates
            name = known.names.get(id, str(id))
            raise StateConflict("add to" if is_group else "add something before", name, state, _OPEN_STATES,
                                "group" if is_group else "task")  # fmt: skip
    completed = set()
    for id in sorted(before):
        if id in living:
            continue
        ending = endings.get(id)
        state = "gone" if ending is None else ending["state"]
        is_allowed = ending is not None and state in _FAILED and ending["allow_failure"]
        if state != "completed" and not is_allowed:
            raise StateConflict("add something after", known.names.get(id, id), state, ("completed", "not ended"))
        completed.add(places[id])
    queues = {row["queue_id"] for row in (*waiting.values(), *living.values())}
    return _Old(completed, {places[id]: row for id, row in waiting.items()}, queues)


def _ended_job(job_id: int, state: str) -> StateConflict:
    return StateConflict("add to", job_id, state, ("pending", "running", "paused"), "job")


async def _stored(conn: type_Connection, layout: Layout) -> list[tuple[int, int]]:
    """Return what of what is there leads to what, where a circle could close over it."""
    first = {layout.ids[place] for place in layout.targets if place >= layout.new}
    last = {layout.ids[place] for place in layout.sources if place >= layout.new}
    if not first or not last:
        return []
    return [(row["first"], row["last"]) for row in await conn.fetch(SQL.leading_to, list(first), list(last))]


async def _wait_longer(conn: type_Connection, layout: Layout, rows: Rows, old: _Old) -> None:
    """Let what is there wait for what is new; what it had of its key is free again."""
    if not old.waiting:
        return
    places = sorted(old.waiting)
    ids, more = [layout.ids[place] for place in places], [rows.waits[place] for place in places]
    await conn.execute(SQL.wait_longer, ids, more, [rows.reached[place] for place in places])
    freed = [
        row for place, row in old.waiting.items()
        if row["state"] == "ready" and row["concurrency_key"] is not None and rows.waits[place]
    ]  # fmt: skip
    if freed:
        await conn.execute(
            SQL.free_slots, [row["queue_id"] for row in freed], [row["concurrency_key"] for row in freed]
        )


async def write(
    conn: type_Connection, at: Place, new: Addition, layout: Layout, rows: Rows, names: Sequence[str]
) -> None:
    """Write rows and edges by COPY; tasks that wait for nothing are ready, those with a key ask for a slot."""
    beside = _Beside()
    await copy_rows(conn, "task", _COLUMNS, _task_rows(at, new, layout, rows, names, beside), layout.new)
    if beside.params:
        await copy_rows(conn, "task_params", ("id", "org_id", "params"), beside.params, len(beside.params))
    await blobs.keep(conn, beside.references)
    ids, org_id = layout.ids, at.org_id
    edges = ((ids[source], ids[target], org_id) for source, target in zip(layout.sources, layout.targets, strict=True))
    if layout.sources:
        await copy_rows(conn, "edge", ("prev", "next", "org_id"), edges, len(layout.sources))
    if beside.keyed:
        await conn.execute(SQL.take_slots, sorted(beside.keyed))
    new.woken = beside.queues


async def _known_edges(conn: type_Connection, layout: Layout) -> set[tuple[int, int]]:
    """Return which edges are there already: somebody may say twice what comes after what."""
    ids, new = layout.ids, layout.new
    both = [(ids[s], ids[t]) for s, t in zip(layout.sources, layout.targets, strict=True) if s >= new and t >= new]
    if not both:
        return set()
    return {tuple(row) for row in await conn.fetch(SQL.edges_among, *map(list, zip(*both, strict=True)))}


@dataclass(slots=True)
class _Beside:
    """What is written beside the rows: long params, who asks for a slot, and whom to wake."""

    params: list[tuple[int, int, str]] = field(default_factory=list)
    references: list[tuple[int, str]] = field(default_factory=list)
    keyed: list[int] = field(default_factory=list)
    queues: set[int] = field(default_factory=set)


def _task_rows(
    at: Place, new: Addition, layout: Layout, rows: Rows, names: Sequence[str], beside: _Beside
) -> Iterator[tuple[Any, ...]]:
    org_id, job_id, rank, actor = at.org_id, at.job_id, at.rank, at.actor
    for id, item, name, waits, reached in zip(layout.ids, layout.items, names, rows.waits, rows.reached, strict=False):
        if isinstance(item, Task):
            given = new.large.get(item, item.params)
            params: str | None = given
            if len(given) > INLINE_PARAMS:
                beside.params.append((id, org_id, given))
                params = None
            elif given.startswith(BLOB_MARK):
                beside.references.append((id, given))
            queue_id = new.lanes[item.queue]
            is_ready = not waits
            if is_ready and item.concurrency_key is not None:
                beside.keyed.append(id)
                is_ready = False
            if not waits:
                beside.queues.add(queue_id)
            own_rank = max(-MAX_PRIORITY, min(MAX_PRIORITY, rank - item.priority))
            yield (
                id, org_id, queue_id, job_id, "ready" if is_ready else "pending", waits, reached, own_rank,
                item.max_attempts, item.handler, params, job_id, item.timeout, item.heartbeat_timeout, item.retry,
                item.concurrency_key, "dependencies" if waits else None, actor, name, item.allow_failure,
            )  # fmt: skip
        else:
            gate = layout.gate_of(item)
            params = "{}" if gate is None else f'{{"gate":"{gate}"}}'
            yield _control(at, id, CLOSE, params, waits, reached, name, beside)
    for place in range(len(layout.items), layout.new):
        # It has no name: the group's is that of its close.
        yield _control(at, layout.ids[place], OPEN, "{}", rows.waits[place], rows.reached[place], None, beside)


def _control(
    at: Place, id: int, handler: str, params: str, waits: int, reached: int, name: str | None, beside: _Beside
) -> tuple[Any, ...]:
    if not waits:
        beside.queues.add(CONTROL_QUEUE)
    return (
        id, at.org_id, CONTROL_QUEUE, at.job_id, "pending" if waits else "ready", waits, reached, at.rank, None,
        handler, params, at.job_id, None, None, None, None, "dependencies" if waits else None, at.actor, name, False,
    )  # fmt: skip
