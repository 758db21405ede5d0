"""Makes a job of a graph that no workflow describes, and the definition by which it can be run again."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import orjson

from weft.core.ids import CONTROL_QUEUE
from weft.core.json import Json
from weft.flow.expressions import has_expression
from weft.flow.names import MAX_NAME
from weft.jobs.adding import Addition, Place, Rows, write
from weft.jobs.items import Group, Item, Task
from weft.jobs.layout import Layout, names_of, path_of
from weft.jobs.rendering import END, packed
from weft.jobs.submit import SQL, NewJob, act_of, job_row

if TYPE_CHECKING:
    from weft.db.database import type_Connection

# A graph of more tasks, or of more params, is executed, but no definition of it is kept.
MOST_KEPT = 5_000
MOST_BYTES_KEPT = 8 << 20
_MOST_WAYS = 1_000
_START, _END = "START", "END"


def laid_out(addition: Addition, end_id: int) -> Layout:
    """Return where everything is in a new job; raises `InvalidInput` for circles."""
    layout = Layout.of(addition.items, addition.pairs, addition.ids, end_id, {})
    layout.require_order((), {})
    return layout


async def begin(
    conn: type_Connection, org_id: int, new: NewJob, addition: Addition, layout: Layout, job_id: int, end_id: int,
    patience: timedelta, *, is_patient: bool = False,
) -> int:  # fmt: skip
    """Insert a job with the tasks and groups of a graph and return its id, or that of the job of its idempotency key.

    Its result is the output of the task that everything leads to, if there is one such.
    """
    rows, names = Rows.of(layout, set()), names_of(addition.items, None)
    end = layout.known.get(end_id)
    last = [s for s, t in zip(layout.sources, layout.targets, strict=True) if t == end]
    needs, spec = None, "{}"
    if len(last) == 1 and isinstance(layout.items[last[0]], Task):
        needs, name = "{" + str(layout.ids[last[0]]) + "}", names[last[0]]
        job: dict[str, Json] = {"id": str(job_id), "workflow_id": new.workflow_id}
        spec = packed({"output": result_of(name)}, {}, [name], (), job)
    row = job_row(org_id, new, job_id, end_id, is_patient=is_patient)
    found: int = await conn.fetchval(
        SQL.put, row, patience, new.idempotency_key, [end_id], [None], [END], [CONTROL_QUEUE], [-new.priority], [spec],
        [0 if end is None else rows.waits[end]], [needs], [None], [None], [None], [None], [None], [None], [False],
        [], [], [], *act_of(org_id, new, job_id), new.request,
    )  # fmt: skip
    if found != job_id:
        return found
    await write(conn, Place(org_id, job_id, end_id, -new.priority, new.actor), addition, layout, rows, names)
    if end is None:
        addition.woken.add(CONTROL_QUEUE)
    return found


def document_of_graph(workflow_id: str, addition: Addition) -> dict[str, Any] | None:
    """Return a graph as a definition; None when it is too large for one, or has what none can say."""
    items = addition.items
    tasks = [item for item in items if isinstance(item, Task)]
    if len(items) > MOST_KEPT or not tasks or sum(len(task.params) for task in tasks) > MOST_BYTES_KEPT:
        return None
    names = dict(zip(items, names_of(items, None), strict=True))
    if len({*names.values(), _START, _END}) < len(items) + 2:
        return None
    full, after = _with_tasks(items), _following(addition)
    if after is None or any(_is_cut(group) for group in full if isinstance(group, Group)):
        return None
    nodes: dict[str, Any] = {_START: {"type": "start", "next": [names[item] for item in items if _is_first(item)]}}
    groups: dict[str, Any] = {}
    for item in items:
        following = [names[each] for each in after[item]]
        if isinstance(item, Task):
            nodes[names[item]] = _node(item, following)
        elif item in full:
            if any(full[item] * full.get(each, 0) > _MOST_WAYS for each in after[item]):
                # What leads from each of many to each of many is told by one node in between.
                join = f"{names[item].replace('/', '-').replace('.', '_')}-done"
                if join in names.values():
                    return None
                nodes[join] = {"type": "fan_in", "next": following, **_in_group(item)}
                following = [join]
            leading = following or ([_END] if item.group is None else None)
            groups[names[item]] = {"next": leading} if leading else {}
    last = [
        item for item in items if not after[item] and item.group is None and (isinstance(item, Task) or item in full)
    ]
    nodes[_END] = {"type": "end"}
    if len(last) == 1 and isinstance(last[0], Task):
        nodes[_END]["output"] = result_of(names[last[0]])
    return {"workflow_id": slug(workflow_id), "nodes": nodes, **({"groups": groups} if groups else {})}


def slug(name: str) -> str:
    """Return what can be the name of a workflow: what cannot be part of one becomes a dash."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", name).strip("-.") or "job"


def result_of(name: str) -> str:
    """Return the expression for what a job gives: the output of one of its nodes."""
    return f"{{{{ nodes['{name}'].output }}}}"


def _with_tasks(items: Sequence[Item]) -> dict[Item, int]:
    """Return the groups in which there is a task, with how many they are; what is too deep is passed over."""
    found: dict[Item, int] = {}
    for item in items:
        above, depth = item.group if isinstance(item, Task) else None, 0
        while above is not None and depth < MAX_NAME:
            found[above] = found.get(above, 0) + 1
            above, depth = above.group, depth + 1
    return found


def _in_group(item: Item) -> dict[str, str]:
    return {} if item.group is None else {"group": path_of(item.group)}


def _following(addition: Addition) -> dict[Item, list[Item]] | None:
    """Return what comes after each; what would come after an empty group comes after what leads to it.

    None when that does not tell all: an empty group inside of one that waits for something.
    """
    full = _with_tasks(addition.items)
    after: dict[Item, list[Item]] = {item: [] for item in addition.items}
    for first, later in addition.pairs:
        after[first].append(later)
    if any(after[item] and item.group is not None for item in after if isinstance(item, Group) and item not in full):
        return None
    found: dict[Item, list[Item]] = {}
    for item, nearest in after.items():
        reached: dict[Item, None] = {}
        open_ = list(nearest)
        while open_:
            later = open_.pop(0)
            if isinstance(later, Group) and later not in full:
                open_ += [each for each in after[later] if each not in reached]
            else:
                reached[later] = None
        found[item] = list(reached)
    return found


def _is_cut(group: Group) -> bool:
    """Whether its path is too long to be told whole."""
    return group.group is not None and "/" not in path_of(group)


def _is_first(item: Item) -> bool:
    """Whether nothing comes before a task, nor before a group that it is in."""
    if not isinstance(item, Task):
        return False
    above: Item | None = item
    while above is not None:
        if above.before:
            return False
        above = above.group
    return True


def _node(task: Task, following: list[str]) -> dict[str, Any]:
    said: dict[str, Any] = {
        "handler": task.handler,
        "params": _literal(orjson.loads(task.params)),
        "queue": None if task.queue == "default" else task.queue,
        "priority": task.priority or None,
        "timeout_seconds": _seconds(task.timeout),
        "heartbeat_timeout_seconds": _seconds(task.heartbeat_timeout),
        "concurrency_key": None if task.concurrency_key is None else _literal(task.concurrency_key),
        "allow_failure": task.allow_failure or None,
        **_in_group(task),
        "next": following or ([_END] if task.group is None else None),
        "retry": _retry(task),
    }
    return {name: value for name, value in said.items() if value not in (None, {})}


def _retry(task: Task) -> dict[str, Any] | None:
    if task.max_attempts is None:
        return None
    names = {"initial_delay": "initial_delay_seconds", "max_delay": "max_delay_seconds"}
    policy = {names.get(name, name): value for name, value in orjson.loads(task.retry or "{}").items()}
    return {**policy, "max_attempts": task.max_attempts}


def _seconds(span: timedelta | None) -> float | None:
    return None if span is None else span.total_seconds()


def _literal(value: Json) -> Json:
    """Return a value that evaluates to the one given: its texts are not expressions, whatever is in them."""
    match value:
        case str() if has_expression(value):
            return f"{{{{ {orjson.dumps(value).decode()} }}}}"
        case dict():
            return {key: _literal(each) for key, each in value.items()}
        case list():
            return [_literal(each) for each in value]
        case _:
            return value
