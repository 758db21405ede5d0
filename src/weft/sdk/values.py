"""Reads the values of a task, wherever they are kept."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace

import orjson

from weft.core.errors import BlobUnavailable
from weft.core.json import CACHED_MARK, Json, readable, referenced_blob
from weft.db.blobs import Blobs
from weft.jobs.cached_params import without_cache
from weft.queue.model import Task

_as_kept: ContextVar[bool] = ContextVar("as_kept", default=False)


@contextmanager
def as_kept() -> Iterator[None]:
    """Let large values that are read inside be JSON as it is kept, not taken apart: for whoever only passes them on."""
    before = _as_kept.set(True)
    try:
        yield
    finally:
        _as_kept.reset(before)


async def with_values(task: Task, params: str | None, output: str | None, blobs: Blobs) -> Task:
    """Return the task with its params and output; of one that cannot be read, the error stands in ``unavailable``."""
    # Of other tasks nobody says anything of the cache.
    if params is not None and task.job_id is not None and params.startswith(CACHED_MARK):
        params = without_cache(params)[0]
    values: dict[str, Json] = {}
    unavailable: dict[str, BlobUnavailable] = {}
    for name, text in (("params", params), ("output", output)):
        try:
            values[name] = None if text is None else await value_of(text, blobs)
        except BlobUnavailable as problem:
            unavailable[name] = problem
    return replace(task, **values, unavailable=unavailable)


async def value_of(text: str, blobs: Blobs) -> Json:
    """Return a value, also one that is kept in the blob storage; raises `BlobUnavailable`."""
    digest = referenced_blob(text)
    if digest is None:
        return readable(text)
    data = await blobs.get(digest)
    # Taking it apart takes seconds in which nothing else is done, and many times its size.
    return orjson.Fragment(data) if _as_kept.get() else readable(data.decode())
