"""What a running attempt reads and is about to write: noted in its name, visible when its task completes."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import orjson

from weft.catalog import column_origins, dataset_reading, datasets
from weft.catalog.dataset_reading import DatasetState, File, Named, Partition
from weft.catalog.datasets import ALONE, SQL, Producer
from weft.core.checks import check_number, check_text
from weft.core.errors import InvalidInput, LeaseLost
from weft.db.statements import Statements

if TYPE_CHECKING:
    from asyncpg import Record

    from weft.db.database import type_Connection
    from weft.queue.steps import Fence

STAGING = Statements("weft.catalog", "sql/staging.sql")
STORAGE = {"kind": "parquet"}
# How the names of files end, by how a dataset is kept.
ENDINGS = {"parquet": "parquet", "postgres": "rows"}
LONGEST_KEY = 500
# As far as the numbers of JSON go without losing digits.
MOST = 2**53


class Mode(StrEnum):
    """What a write does with what is there: adds to it, or takes its place."""

    APPEND = "append"
    REPLACE = "replace"


@dataclass(frozen=True, slots=True)
class Begun:
    """A write that has begun: where its files belong, and the state that it goes by."""

    id: int
    version_id: int
    location: str
    write: int
    schema: str | None
    schema_hash: str | None
    storage: str


@dataclass(frozen=True, slots=True)
class Staged:
    """What a write has brought: its files by partition, and what the columns are with it.

    ``seen`` is the write that it goes by, where another one meanwhile would make it wrong; ``schema`` has the columns
    as they are told and as Arrow has them. ``columns_from`` says what columns are made of, each with one of the others.
    """

    id: int
    partitions: Sequence[str]
    is_whole: bool
    files: Sequence[Mapping[str, Any]]
    seen: int | None
    seen_schema: str | None
    schema: Mapping[str, Any]
    columns_from: Sequence[Sequence[Any]] = ()


async def read(conn: type_Connection, fence: Fence, named: Named) -> tuple[DatasetState, str | None, int]:
    """Return the state of a dataset that an attempt is to read, its columns as they are kept, and after which write.

    They are those that there are now, of an earlier state too.
    """
    holder = await _holder(conn, fence)
    state = await dataset_reading.state_of(conn, holder["org_id"], named)
    kept = await conn.fetchrow(STAGING.version, state.version_id)
    if kept is None:
        return state, None, state.write
    return state, kept["columns"], kept["last_write"] if named.pinned == "write" else state.write


async def list_files(
    conn: type_Connection, fence: Fence, version_id: int, write: int, partitions: Sequence[str] | None,
    after: tuple[str, int], limit: int, *, since: int = -1, pinned: str | None = None, seen: int | None = None,
    is_input: bool = True,
) -> list[File]:  # fmt: skip
    """Return a page of the files of a state, and note with the first that the attempt reads it, unless it is no input.

    Of what is ``pinned`` the columns were ``seen`` after that write.
    """
    holder = await _holder(conn, fence)
    wanted = None if partitions is None else sorted(set(partitions))
    if is_input and after == ("", 0):
        pinned = "since" if since >= 0 else pinned
        await conn.execute(
            STAGING.note_input, fence.task_id, fence.attempt, holder["org_id"], version_id, write, wanted, pinned, seen
        )
    return await dataset_reading.files(conn, holder["org_id"], version_id, write, wanted, after, limit, since=since)


async def org_of(conn: type_Connection, fence: Fence) -> int:
    """Return the org of a task that an attempt holds."""
    return int((await _holder(conn, fence))["org_id"])


async def list_partitions(
    conn: type_Connection, fence: Fence, version_id: int, after: str | None, limit: int
) -> list[Partition]:
    """Return a page of the partitions of a version, and note with the first that the attempt has seen all there is."""
    org_id = await org_of(conn, fence)
    if not after:
        await conn.execute(STAGING.note_look, fence.task_id, fence.attempt, org_id, version_id)
    return await dataset_reading.partitions(conn, org_id, version_id, after, limit)


async def begin(
    conn: type_Connection, fence: Fence, name: str, mode: Mode, unique_key: Sequence[str] | None, *,
    is_breaking: bool = False,
) -> Begun:  # fmt: skip
    """Note that an attempt is about to write; a dataset that is not there is made, and belongs to who writes first.

    ``is_breaking`` begins a version, which becomes current with this write, so that its columns may be any.
    """
    holder = await _holder(conn, fence)
    org_id, actor = holder["org_id"], holder["actor"] or ""
    datasets.check_dataset(name)
    # Again, when one that another has made has been deleted before it could be locked.
    while (row := await conn.fetchrow(SQL.lock, org_id, name)) is None:
        # No act of a person: what made it is told by its first write.
        await conn.execute(SQL.create, org_id, name, None, orjson.dumps(STORAGE).decode(), actor)
    if unique_key and len(set(unique_key)) < len(unique_key):
        raise InvalidInput("unique_key", "names a column twice")
    follows, version_id = not is_breaking, row["current_id"]
    if holder["live_job_id"] is not None:
        # Who writes it and by which key was said by its deploy, of each version apart.
        follows, version_id = False, await _live_version(conn, holder, name, row, is_breaking=is_breaking)
    else:
        await _require_producer(conn, org_id, name, row, _producer(holder))
        if unique_key:
            await _require_key(conn, org_id, name, row, list(unique_key))
        if is_breaking or version_id is None:
            version_id = await _add_version(conn, org_id, row, actor)
        elif (own := await conn.fetchval(STAGING.own_version, fence.task_id, fence.attempt, row["id"])) is not None:
            # What an attempt writes after a breaking write goes where that went.
            follows, version_id = False, own
    begun = await conn.fetchrow(
        STAGING.begin, org_id, fence.task_id, fence.attempt, row["id"], version_id, follows, is_breaking, mode
    )
    found = await conn.fetchrow(STAGING.version, version_id)
    assert begun is not None
    assert found is not None
    return Begun(
        begun["id"], version_id, found["location"], found["last_write"], found["columns"], found["schema_hash"],
        orjson.loads(row["storage"])["kind"],
    )  # fmt: skip


async def stage(conn: type_Connection, fence: Fence, staged: Staged) -> None:
    """Tell what a write has brought; raises `LeaseLost` when the attempt is over."""
    await _holder(conn, fence)
    keys = sorted({check_partition(key) for key in staged.partitions})
    kind = await conn.fetchval(STAGING.kind, staged.id)
    files = [_checked_file(each, staged.id, keys, ENDINGS.get(kind, "parquet")) for each in staged.files]
    columns = _checked_columns(staged.schema)
    names = [each["name"] for each in columns["columns"]]
    origins = await column_origins.checked(conn, fence, staged.columns_from, names)
    told = await conn.fetchval(
        STAGING.stage, staged.id, fence.task_id, fence.attempt, keys, staged.is_whole, orjson.dumps(files).decode(),
        staged.seen, staged.seen_schema, orjson.dumps(columns).decode(), schema_digest(columns),
        orjson.dumps(origins).decode() if origins else None,
    )  # fmt: skip
    if told is None:
        raise InvalidInput("id", f"{staged.id} is no write that this attempt has begun and not told of yet")


def schema_digest(columns: Mapping[str, Any]) -> str:
    """Return what tells columns from others."""
    return hashlib.sha256(orjson.dumps(columns["columns"])).hexdigest()


def check_partition(key: object) -> str:
    """Return the key of a partition, empty for data without partitions; raises `InvalidInput`."""
    return "" if key == "" else check_text(key, "partition", LONGEST_KEY)


def _checked_file(file: Mapping[str, Any], write_id: int, keys: Sequence[str], ending: str) -> dict[str, Any]:
    """Return a file as it is kept. Its name begins with that of its write, so that nobody tells of another's files."""
    path = check_text(file["path"], "files.path", 200)
    if re.fullmatch(rf"{write_id}-\d{{1,9}}\.{ending}", path, re.ASCII) is None:
        raise InvalidInput("files.path", f"must be {write_id}-NUMBER.{ending}, and not {path!r}")
    if file["partition"] not in keys:
        raise InvalidInput("files.partition", f"{file['partition']!r} is not one of the partitions of the write")
    rows = check_number(file["rows"], "files.rows", 0, MOST)
    return {
        "partition": file["partition"],
        "path": path,
        "rows": rows,
        "bytes": check_number(file["bytes"], "files.bytes", 0, MOST),
    }


def _checked_columns(schema: Mapping[str, Any]) -> dict[str, Any]:
    told = [
        {
            "name": check_text(each["name"], "columns.name", 500),
            "type": check_text(each["type"], "columns.type", 10_000),
            "nullable": each["nullable"] is True,
        }
        for each in schema["columns"]
    ]
    return {"columns": told, "arrow": check_text(schema["arrow"], "columns.arrow", 10_000_000)}


async def _holder(conn: type_Connection, fence: Fence) -> Record:
    found = await conn.fetchrow(STAGING.holder, *fence)
    if found is None:
        raise LeaseLost(fence.task_id)
    return found


def _producer(holder: Record) -> tuple[str, str]:
    """Return the workflow and the node of a task; of one without a job its handler."""
    if holder["dag"] is None:
        return ALONE, holder["handler"]
    return holder["dag"], holder["node"] or holder["handler"]


async def _require_producer(conn: type_Connection, org_id: int, name: str, row: Record, mine: tuple[str, str]) -> None:
    if row["producer_dag"] is None:
        await conn.execute(SQL.one_output_at_a_time, org_id, *mine)
        await conn.execute(SQL.set_producer, org_id, row["id"], *mine)
    elif row["is_live"] or (row["producer_dag"], row["producer_node"]) != mine:
        known = Producer(row["producer_dag"], row["producer_node"])
        raise InvalidInput(
            "dataset", f"{name} is written by {known} and by nobody else, and this is {Producer(*mine)}: write another "
            f"dataset, or let an admin hand it over, `weft datasets hand-over {name}`",
        )  # fmt: skip


async def _require_key(conn: type_Connection, org_id: int, name: str, row: Record, key: list[str]) -> None:
    if row["unique_key"] is None:
        await conn.execute(SQL.set_key, org_id, row["id"], key)
    elif row["unique_key"] != key:
        known = ", ".join(row["unique_key"])
        raise InvalidInput("unique_key", f"that of {name} is {known}, and not {', '.join(key)}")


async def _add_version(conn: type_Connection, org_id: int, row: Record, actor: str) -> int:
    version_id = await conn.fetchval(STAGING.next_id)
    made = await conn.fetchrow(SQL.add_version, org_id, row["id"], version_id, str(version_id), None, actor)
    assert made is not None
    if row["current_id"] is None:
        await conn.execute(SQL.make_current, row["id"], version_id)
    return int(version_id)


async def _live_version(conn: type_Connection, holder: Record, name: str, row: Record, *, is_breaking: bool) -> int:
    """Return the version that a live job writes: that of its own deploy, whichever readers see."""
    if is_breaking:
        raise InvalidInput("breaking", "the columns of a live job's output change with a deploy that changes the job")
    found = await conn.fetchval(STAGING.live_output, holder["live_job_id"], row["id"])
    if found is None:
        raise InvalidInput("dataset", f"{name} is not among the outputs of the live job {holder['node']}: add it there")
    return int(found)
