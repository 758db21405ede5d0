"""The routes by which a task of a live job learns what it means, and tells what is to change of it."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from weft.contract.live_protocol import (
    CompareFiles,
    FilesCompared,
    LiveJobTold,
    ReadLiveJob,
    ReadState,
    StageLive,
    StateRemembered,
)
from weft.contract.protocol import Held
from weft.contract.protocol_answers import Told
from weft.server.acting import Caller, act
from weft.worker import live_answers as asks

router = APIRouter()
_HELD = {"task_id": "7340085817581570", "lease_token": "7340085817581568.1"}


async def _answer(caller: Caller, asked: Held, verb: str) -> Any:
    said = asked.model_dump(exclude={"task_id", "lease_token"})
    return await caller.answers.answer(await caller.fence(asked), verb, said, lambda: False)


@act(router, "/v1/task/live/job", ReadLiveJob, LiveJobTold, _HELD)
async def read_live_job(caller: Caller, asked: ReadLiveJob) -> dict[str, Any]:
    """Return the live job of a task."""
    found: dict[str, Any] = await _answer(caller, asked, asks.JOB)
    return found


@act(router, "/v1/task/live/state", ReadState, StateRemembered, {**_HELD, "key": "default"})
async def read_state(caller: Caller, asked: ReadState) -> dict[str, Any]:
    """Return what the operator of a live job remembers under a key."""
    found: dict[str, Any] = await _answer(caller, asked, asks.STATE)
    return found


_STAGED = {"states": [{"key": "default", "seen": 3, "state": {"cursor": 120}}], "rest": 1.0}


@act(router, "/v1/task/live/stage", StageLive, Told, {**_HELD, **_STAGED})
async def stage_live(caller: Caller, asked: StageLive) -> dict[str, Any]:
    """Tell what is to change of the live job: it does when the task completes."""
    await _answer(caller, asked, asks.STAGE)
    return {}


_FILES = {"after": "", "until": None, "files": [{"path": "orders-1.csv", "tag": "1731571200:1048"}], "settle": 2.0}


@act(router, "/v1/task/live/files", CompareFiles, FilesCompared, {**_HELD, **_FILES})
async def compare_files(caller: Caller, asked: CompareFiles) -> dict[str, Any]:
    """Return which files have changed since a source looked last."""
    found: dict[str, Any] = await _answer(caller, asked, asks.FILES)
    return found
