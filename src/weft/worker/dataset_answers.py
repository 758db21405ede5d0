"""Answers what an attempt asks of datasets: what it may read, where it may write, what it has written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from weft.catalog import dataset_rows, dataset_writing
from weft.catalog.dataset_reading import read_name
from weft.catalog.dataset_writing import Mode, Staged
from weft.core.checks import check_id, check_number, check_word

if TYPE_CHECKING:
    from weft.db.database import type_Connection
    from weft.queue.steps import Fence

READ, FILES, PARTITIONS, BEGIN, STAGE = "read_dataset", "list_files", "list_partitions", "begin_write", "stage_write"
ADD_ROWS, READ_ROWS = "add_rows", "list_rows"
VERBS = frozenset({READ, FILES, PARTITIONS, BEGIN, STAGE, ADD_ROWS, READ_ROWS})
PAGE = 5000


async def answer(conn: type_Connection, fence: Fence, verb: str, said: dict[str, Any], root: str) -> Any:
    """Do what an attempt asks for; raises `LeaseLost` when the task is not its own any more."""
    match verb:
        case _ if verb == READ:
            found, schema, seen = await dataset_writing.read(conn, fence, named := read_name(said["dataset"]))
            return {
                "dataset_id": str(found.dataset_id), "version_id": str(found.version_id), "name": found.name,
                "version": found.version, "write": found.write, "location": found.location, "schema": schema,
                "is_outside": found.is_outside, "storage": found.storage, "root": root,
                "pinned": named.pinned, "seen": seen,
            }  # fmt: skip
        case _ if verb == FILES:
            after = said["after_partition"], 0 if said["after_id"] is None else check_id(said["after_id"])
            files = await dataset_writing.list_files(
                conn, fence, check_id(said["version_id"]), check_number(said["write"], "write", 0, 2**62),
                said["partitions"], after, PAGE, since=check_number(said.get("since", -1), "since", -1, 2**62),
                pinned=said.get("pinned"), seen=said.get("seen"), is_input=not said.get("for_write", False),
            )  # fmt: skip
            return [[file.partition, str(file.id), file.path, file.rows, file.bytes, file.write] for file in files]
        case _ if verb == PARTITIONS:
            found_parts = await dataset_writing.list_partitions(
                conn, fence, check_id(said["version_id"]), said.get("after"), PAGE
            )
            return [asdict(each) | {"written_at": each.written_at.isoformat()} for each in found_parts]
        case _ if verb == BEGIN:
            begun = await dataset_writing.begin(
                conn, fence, said["dataset"], check_word(said["mode"], "mode", Mode), said["unique_key"],
                is_breaking=said["breaking"],
            )  # fmt: skip
            return asdict(begun) | {"id": str(begun.id), "version_id": str(begun.version_id), "root": root}
        case _ if verb == STAGE:
            await dataset_writing.stage(
                conn,
                fence,
                Staged(
                    check_id(said["id"]), said["partitions"], said["is_whole"], said["files"], said["seen"],
                    said["seen_schema"], said["schema"], said.get("columns_from") or (),
                ),
            )  # fmt: skip
            return None
        case _ if verb == ADD_ROWS:
            return await dataset_rows.add(
                conn, fence, check_id(said["id"]), said["number"], said["columns"], said["rows"], said.get("before")
            )
        case _ if verb == READ_ROWS:
            org_id = await dataset_writing.org_of(conn, fence)
            return await dataset_rows.read(
                conn, org_id, check_id(said["version_id"]), said["paths"], said["columns"], said["after"], said["most"]
            )
        case _:
            raise AssertionError(verb)


def with_allowed(verb: str, told: Any, allowed: Sequence[str]) -> Any:
    """Return what an attempt is told with where files of others are read: as whoever runs this worker says."""
    return {**told, "allowed": list(allowed)} if verb == READ else told
