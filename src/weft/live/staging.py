"""What a running task knows of its live job, and what it is about to change of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from weft.core.checks import check_text
from weft.core.errors import InvalidInput, LeaseLost
from weft.core.json import encode, size_of
from weft.db.statements import Statements
from weft.jobs.posting import check_url

if TYPE_CHECKING:
    from asyncpg import Record

    from weft.db.database import type_Connection
    from weft.queue.steps import Fence

SQL = Statements("weft.live", "sql/staging.sql")
FILES = Statements("weft.live", "sql/file.sql")
LONGEST_KEY, LONGEST_PATH = 400, 600
# Of what a source finds it makes so many units at a time.
MOST_UNITS = 10_000
MOST_CALLBACKS = 1000
_MOST_GONE = 2000
_ADVICE = {
    "states": "remember less, or write it into a dataset", "units": "emit fewer, and hand on the names of datasets",
    "callbacks": "tell less, and where the rest is", "files": "the rest with the next slice",
}  # fmt: skip
KINDS = ("event", "file", "row")


class Emitted(NamedTuple):
    """A further unit of the same live job; one with a key that waits already is not made again."""

    kind: str
    lane: str
    key: str
    said: Mapping[str, Any]


class CallbackStaged(NamedTuple):
    """What a receiver outside is told when the task completes; those of one key in their order."""

    url: str
    key: str
    payload: Mapping[str, Any]


async def job_of(conn: type_Connection, fence: Fence) -> dict[str, Any]:
    """Return the live job of a task: what it is called, what it means, what it reads and writes.

    ``by_now`` is the version of an input whose writes become units by now, and ``stood`` the write after which it was
    taken up; ``is_boot`` is of the unit of the task.
    """
    row = await _job(conn, fence)
    outputs = await conn.fetch(SQL.outputs, row["id"])
    return {
        "dag": row["dag"], "name": row["name"], "document": orjson.loads(row["document"]),
        "inputs": [dict(each) for each in await conn.fetch(SQL.inputs, row["id"])],
        "outputs": [each["name"] for each in outputs], "output_versions": [each["version"] for each in outputs],
        "is_boot": row["is_boot"],
    }  # fmt: skip


async def state_of(conn: type_Connection, fence: Fence, key: str) -> dict[str, Any] | None:
    """Return what the operator remembers under a key, and how often that has changed."""
    row = await conn.fetchrow(SQL.state, (await _job(conn, fence))["id"], _check_key(key))
    return None if row is None else {"version": row["version"], "state": orjson.loads(row["state"])}


async def stage(
    conn: type_Connection, fence: Fence, states: Sequence[Mapping[str, Any]], units: Sequence[Emitted],
    callbacks: Sequence[CallbackStaged], rest: timedelta | None, is_caught_up: bool | None,
    files: Sequence[Mapping[str, Any]] = (), *, most_bytes: int, most_of_unit: int,
) -> None:  # fmt: skip
    """Note what an attempt is about to change, over what it said before; it is so when its task completes.

    Of each kind it is no larger than one output may be, and a unit no larger than an event: raises `InvalidInput` that
    names the kind, and notes nothing.
    """
    row = await _job(conn, fence)
    for name, several in (("units", units), ("files", files)):
        if len(several) > MOST_UNITS:
            raise InvalidInput(name, f"are {len(several)}, and may be {MOST_UNITS}: the rest with the next slice")
    told = [{"key": _check_key(each["key"]), "seen": int(each["seen"]), "state": each["state"]} for each in states]
    made = [_checked_unit(each, most_of_unit) for each in units]
    if len(callbacks) > MOST_CALLBACKS:
        raise InvalidInput("callbacks", f"are {len(callbacks)}, and may be {MOST_CALLBACKS}")
    said = [
        {
            "key": check_text(each.key, "key", LONGEST_KEY),
            "payload": {"url": check_url(each.url, "callback_url"), **each.payload},
        }
        for each in callbacks
    ]
    texts = {
        "states": encode(told, "state"), "units": encode(made, "units"), "callbacks": encode(said, "callbacks"),
        "files": encode(list(files), "files"),
    }  # fmt: skip
    for kind, text in texts.items():
        if (size := size_of(text)) > most_bytes:
            raise InvalidInput(
                kind, f"have {size:,} bytes together, and may have {most_bytes:,} (WEFT_VALUE_LIMIT): {_ADVICE[kind]}"
            )
    await conn.execute(
        SQL.stage, fence.task_id, fence.attempt, row["org_id"], row["id"], texts["states"], texts["units"],
        texts["callbacks"], rest, is_caught_up, texts["files"],
    )  # fmt: skip


async def changed_files(
    conn: type_Connection,
    fence: Fence,
    files: Sequence[tuple[str, str]],
    settle: timedelta,
    within: tuple[str, str | None],
) -> dict[str, Any]:
    """Return which of the files that are there, each with its tag, are new or wait for their unit, and which are gone.

    They are all that there are from after one path to another, or to the end.
    """
    job_id = (await _job(conn, fence))["id"]
    paths, tags = [path for path, _ in files], [tag for _, tag in files]
    changed = await conn.fetch(FILES.changed_files, job_id, paths, tags, settle)
    gone = await conn.fetch(FILES.gone_files, job_id, *within, paths, _MOST_GONE)
    return {"changed": [dict(row) for row in changed], "gone": [row["path"] for row in gone]}


def check_lane(lane: object) -> str:
    """Return the lane of a unit; raises `InvalidInput`."""
    return "" if lane == "" else check_text(lane, "lane", LONGEST_KEY)


def _check_key(key: object) -> str:
    return check_text(key, "state_key", LONGEST_KEY)


def _checked_unit(unit: Emitted, most: int) -> dict[str, Any]:
    if unit.kind not in KINDS:
        raise InvalidInput("kind", f"{unit.kind!r} is not one of {', '.join(KINDS)}")
    key = check_text(unit.key, "key", LONGEST_KEY)
    if (size := size_of(encode(dict(unit.said), "units"))) > most:
        raise InvalidInput(
            "units", f"{key} says {size:,} bytes, and may say {most:,}, as an event (WEFT_INLINE_LIMIT): hand on the "
            "name of a dataset",
        )  # fmt: skip
    return {
        "kind": unit.kind,
        "lane": check_lane(unit.lane),
        "dedupe_key": f"{unit.kind}:{key}",
        "said": dict(unit.said),
    }


async def _job(conn: type_Connection, fence: Fence) -> Record:
    row = await conn.fetchrow(SQL.job, *fence)
    if row is None:
        raise LeaseLost(fence.task_id)
    if row["id"] is None:
        raise InvalidInput("task_id", f"task {fence.task_id} is not one of a live job")
    return row
