"""The routes by which a running task reads datasets, and tells what it has written."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from weft.contract.dataset_protocol import (
    AddRows,
    BeginWrite,
    FilesTold,
    ListFiles,
    ListPartitions,
    ListRows,
    PartitionsTold,
    ReadDataset,
    RowsTold,
    StageWrite,
    StateTold,
    WriteBegun,
)
from weft.contract.protocol import Held
from weft.contract.protocol_answers import Told
from weft.server.acting import Caller, act
from weft.worker import dataset_answers as asks

router = APIRouter()
_HELD = {"task_id": "7340085817581570", "lease_token": "7340085817581568.1"}
_ID = "7340085817581600"


async def _answer(caller: Caller, asked: Held, verb: str) -> Any:
    said = asked.model_dump(by_alias=True, exclude={"task_id", "lease_token"})
    return await caller.answers.answer(await caller.fence(asked), verb, said, lambda: False)


@act(router, "/v1/task/dataset/read", ReadDataset, StateTold, {**_HELD, "dataset": "orders"})
async def read_dataset(caller: Caller, asked: ReadDataset) -> dict[str, Any]:
    """Return the state of a dataset that a task is to read."""
    found: dict[str, Any] = await _answer(caller, asked, asks.READ)
    # Where files of others are read is for each worker to know, and no affair of others.
    return {name: value for name, value in found.items() if name != "allowed"}


@act(router, "/v1/task/dataset/files", ListFiles, FilesTold, {**_HELD, "version_id": _ID, "write": 12})
async def list_files(caller: Caller, asked: ListFiles) -> dict[str, Any]:
    """Return files of a state, and note that the task reads it."""
    return {"files": await _answer(caller, asked, asks.FILES)}


@act(router, "/v1/task/dataset/partitions", ListPartitions, PartitionsTold, {**_HELD, "version_id": _ID})
async def list_partitions(caller: Caller, asked: ListPartitions) -> dict[str, Any]:
    """Return partitions of a version, by key."""
    return {"partitions": await _answer(caller, asked, asks.PARTITIONS)}


@act(router, "/v1/task/dataset/begin", BeginWrite, WriteBegun, {**_HELD, "dataset": "daily"})
async def begin_write(caller: Caller, asked: BeginWrite) -> dict[str, Any]:
    """Note that a task is about to write into a dataset; one that is not there is made."""
    begun: dict[str, Any] = await _answer(caller, asked, asks.BEGIN)
    return begun


_STAGED = {
    "id": _ID,
    "partitions": ["2026-11-14"],
    "files": [{"partition": "2026-11-14", "path": f"{_ID}-1.parquet", "rows": 1200, "bytes": 20480}],
    "schema": {"columns": [{"name": "id", "type": "int64"}], "arrow": "/////w=="},
    # Only what the attempt has read may stand there: [["id", "orders.id"]].
    "columns_from": [],
}


@act(router, "/v1/task/dataset/stage", StageWrite, Told, {**_HELD, **_STAGED})
async def stage_write(caller: Caller, asked: StageWrite) -> dict[str, Any]:
    """Tell what a write has brought: it is visible when the task completes."""
    await _answer(caller, asked, asks.STAGE)
    return {}


_ROWS = {
    "id": _ID, "number": 1, "columns": [{"name": "id", "type": "bigint"}], "rows": [["1"], [None]], "before": 0,
}  # fmt: skip


@act(router, "/v1/task/dataset/rows/add", AddRows, Told, {**_HELD, **_ROWS})
async def add_rows(caller: Caller, asked: AddRows) -> dict[str, Any]:
    """Add rows to a write into a dataset that is kept in the database."""
    await _answer(caller, asked, asks.ADD_ROWS)
    return {}


_ASKED = {"version_id": _ID, "paths": [f"{_ID}-1.rows"], "columns": ["id"], "after": 0}


@act(router, "/v1/task/dataset/rows", ListRows, RowsTold, {**_HELD, **_ASKED})
async def list_rows(caller: Caller, asked: ListRows) -> dict[str, Any]:
    """Return rows of a dataset that is kept in the database."""
    return {"rows": await _answer(caller, asked, asks.READ_ROWS)}
