"""Says why a task ran, or had its output from the cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import orjson

from weft.catalog.live_readers import untold
from weft.core.checks import MAX_ID
from weft.core.json import Json
from weft.db.statements import Statements
from weft.queue.why import why

if TYPE_CHECKING:
    from asyncpg import Record

    from weft.catalog.datasets import Sees
    from weft.db.database import type_Connection
    from weft.queue.model import Task

SQL = Statements("weft.catalog", "sql/explain.sql")
_HIDDEN = "a dataset that you may not see"
_SHOWN, _LONGEST = 3, 40
_UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))
_UNKEPT = {
    "large": "it is larger than WEFT_CACHE_MAX_OUTPUT allows",
    "adds": "it adds its rows to a dataset each time that it runs: give mode='append' a unique_key",
    "made": "tasks that it has made read or write datasets",
    "moved": "what it had read or written had changed when it was done",
}


class Decision(StrEnum):
    """Why a task ran or did not, in a word."""

    WAITS = "waits"
    NOT_REACHED = "not_reached"
    KEPT = "kept"
    SERVED = "served"
    OFF = "off"
    UNIT = "unit"
    FORCED = "forced"
    CHANGED = "changed"
    EXPIRED = "expired"
    UNKEPT = "unkept"
    REMOVED = "removed"
    CODE = "code"
    PARAMS = "params"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a task ran, or why not: a word for programs, a sentence for people, and what to do, if anything.

    ``has_run`` is None before it begins. ``other_id`` is the task whose output served, or was looked at. ``inputs`` are
    the states of datasets that it has read, or whoever made its output: those that the caller may see.
    """

    task_id: int
    has_run: bool | None
    cause: Decision
    text: str
    advice: str | None = None
    other_id: int | None = None
    inputs: tuple[str, ...] = ()


async def explain(conn: type_Connection, org_id: int, task: Task, sees: Sees = None) -> Explanation:
    """Return why a task ran or did not; what it says of datasets is what may be seen."""
    row = await conn.fetchrow(SQL.decision, org_id, task.id)
    if row is None or not row["attempt"]:
        return await _not_begun(conn, org_id, task, row)
    roles = None if sees is None else sorted(sees)
    read = await conn.fetch(SQL.inputs, org_id, task.id, row["attempt"], roles)
    inputs = tuple(dict.fromkeys(_state(each["name"], each["number"], each["write"]) for each in read))
    if (unit := _unit(task)) is not None:
        is_hidden = bool(await untold(conn, org_id, {_live_job(task)}, sees))
        text = f"run: {_came(unit, {each['name'] for each in read}, is_hidden)}"
        return Explanation(task.id, True, Decision.UNIT, text, inputs=inputs)
    if row["cause"] is None:
        return Explanation(task.id, True, Decision.OFF, "run: no cache is said of it", inputs=inputs)
    told = [] if row["detail"] is None else orjson.loads(row["detail"])
    named = [int(each["dataset"]) for each in told] if isinstance(told, list) else []
    names = {each["id"]: each["name"] for each in await conn.fetch(SQL.names, org_id, named, roles)} if named else {}
    cause = Decision(row["cause"])
    return Explanation(
        task.id, cause is not Decision.SERVED, cause, _text(row, cause, told, names), None, row["other_id"], inputs
    )


async def _not_begun(conn: type_Connection, org_id: int, task: Task, row: Record | None) -> Explanation:
    """Of a task that no attempt has begun of which there is something to say."""
    if row is not None and row["kept_id"] is not None:
        kept = row["kept_id"]
        text = f"not run: it has the output of task {kept}, which the job that was run again has kept"
        return Explanation(task.id, False, Decision.KEPT, text, other_id=kept)
    if task.state.is_final:
        told = f"not run: it is {task.state}" + (f" ({task.reason})" if task.reason else "")
        return Explanation(task.id, False, Decision.NOT_REACHED, told)
    found = await why(conn, org_id, task.id)
    return Explanation(task.id, None, Decision.WAITS, found.text, found.advice)


def _unit(task: Task) -> Mapping[str, Any] | None:
    """Return what the task of a live job is about; None for any other."""
    params = task.params
    if not isinstance(params, dict) or not isinstance(params.get("live_job"), str):
        return None
    unit = params.get("unit")
    # Whoever enqueues a task may give it params that only look so.
    return unit if isinstance(unit, dict) and _is_sound(unit.get("kind"), unit.get("said")) else None


def _live_job(task: Task) -> int:
    """Return the id of the live job of a task; 0, which none has, of one that only looks so."""
    text = str(task.params["live_job"]) if isinstance(task.params, dict) else ""
    number = int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else 0
    return number if number <= MAX_ID else 0


def _is_sound(kind: Any, said: Any) -> bool:
    if not isinstance(said, dict):
        return False
    match kind:
        case "update" | "partition" | "bootstrap":
            keys = said.get("partitions") or []
            is_state = all(isinstance(said.get(name), int) for name in ("version", "write"))
            are_keys = isinstance(keys, list) and all(isinstance(key, str) for key in keys)
            return isinstance(said.get("dataset"), str) and is_state and are_keys
        case "row":
            return isinstance(said.get("rows"), list)
        case _:
            return isinstance(kind, str)


def _came(unit: Mapping[str, Any], seen: Set[str], is_hidden: bool) -> str:
    """Return what came to a live job, by which it ran; a dataset is named that may be seen.

    Which event or file it was is told to those who see all that the job writes.
    """
    said: Mapping[str, Any] = unit["said"]
    match unit.get("kind"):
        case "update" | "partition" | "bootstrap" if said.get("dataset") not in seen:
            return f"{_HIDDEN} was written"
        case "update" | "partition" | "bootstrap" as kind:
            state = _state(said["dataset"], said["version"], said["write"])
            how = "stood there when the job began, or is computed anew" if kind == "bootstrap" else "was written"
            return f"{state} {how}{_partitions(said.get('partitions'))}"
        case "event" | "file" as kind if is_hidden:
            return f"{'an event' if kind == 'event' else 'a file'} came"
        case "event":
            return f"the event {said.get('event')} came, {said.get('id')}"
        case "tick":
            return f"its time had come, {said.get('at')}"
        case "file":
            return f"the file {said.get('path')} has come"
        case "row":
            return f"{len(said.get('rows') or ())} rows were inserted"
        case _:
            return "it is a source, and looks again and again"


def _partitions(keys: Sequence[str] | None) -> str:
    named = [key for key in keys or () if key]
    more = f" and {len(named) - _SHOWN} more" if len(named) > _SHOWN else ""
    return f" (partition {', '.join(named[:_SHOWN])}{more})" if named else ""


def _state(name: str, number: int | None, write: int) -> str:
    return f"{name}@{'?' if number is None else number}.{write}"


def _text(row: Record, cause: Decision, told: Any, names: Mapping[int, str]) -> str:
    other = f"task {row['other_id']}"
    match cause:
        case Decision.SERVED:
            same = [f"{_state(names[at], each['number'], each['write'])} unchanged" for at, each in _known(told, names)]
            facts = "; ".join([f"made {_age(row)} before", "same code, same params", *same])
            verb = "served" if row["reason"] == "cached" else "serves"
            return f"not run: the output of {other} {verb} ({facts})"
        case Decision.FORCED:
            return "run: it is to run in any case, and renews what is in the cache"
        case Decision.CHANGED:
            return f"run: {'; '.join(_problem(each, other, names) for each in told)}"
        case Decision.EXPIRED:
            return f"run: the output of {other} was past its time (made {_age(row)} before)"
        case Decision.UNKEPT:
            return f"run: the output of {other} was not kept: {_UNKEPT[told]}"
        case Decision.REMOVED:
            return f"run: no output of {other} is kept any more, which had the same code and params"
        case Decision.CODE:
            return f"run: its code changed since {other}"
        case Decision.PARAMS:
            return f"run: other params than those of {other}"
        case _:
            return "run: nothing was kept yet"


def _known(told: Sequence[Mapping[str, Any]], names: Mapping[int, str]) -> list[tuple[int, Mapping[str, Any]]]:
    return [(int(each["dataset"]), each) for each in told if int(each["dataset"]) in names]


def _age(row: Record) -> str:
    """Return how much older an output was than the look for it."""
    age: timedelta = row["noted_at"] - row["made_at"]
    seconds = max(0, round(age.total_seconds()))
    size, unit = next(((size, unit) for size, unit in _UNITS if seconds >= size), _UNITS[-1])
    return f"{seconds // size} {unit}"


def _problem(each: Mapping[str, Any], other: str, names: Mapping[int, str]) -> str:
    """Return what has changed of one dataset since an output was made."""
    name = names.get(int(each["dataset"]))
    was, by = f"{each['number']}.{each['write']}", ""
    if name is None:
        return f"{_HIDDEN} has changed since {other}"
    if each["mode"] is not None:
        part = "it" if each["partition"] is None else f"partition {each['partition']}"
        how = "went back to an earlier state" if each["by"] is None else f"was written by task {each['by']}"
        by = f" ({part} {how})"
    now = "is not there any more" if each["now_number"] is None else f"is at {each['now_number']}.{each['now_write']}"
    if each["role"] == "read":
        return f"input {name} {now}, the output of {other} was made of {was}{by}"
    return f"{name} {now}, and is not as {other} left it at {was}{by}"


def with_params(found: Explanation, task: Task, other: Task) -> Explanation:
    """Return the explanation with what differs in the params, and in the code, from those of the task before."""
    has_other_code = None not in (task.code_version, other.code_version) and task.code_version != other.code_version
    told = f"run: its code changed since task {other.id}, and its params" if has_other_code else found.text
    changes = _changes(other.params, task.params)
    return replace(found, text=f"{told}: {', '.join(changes)}" if changes else told)


def _changes(before: Json, after: Json) -> list[str]:
    if not isinstance(before, dict) or not isinstance(after, dict):
        return []
    names = [name for name in {**before, **after} if before.get(name) != after.get(name) and not name.startswith("$")]
    told = [f"{name} {_value(before, name)} → {_value(after, name)}" for name in names[:_SHOWN]]
    return [*told, f"and {len(names) - _SHOWN} more"] if len(names) > _SHOWN else told


def _value(params: Mapping[str, Json], name: str) -> str:
    if name not in params:
        return "nothing"
    text = orjson.dumps(params[name]).decode()
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
