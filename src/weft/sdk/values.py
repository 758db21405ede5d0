"""Reads the values of a task, wherever they are kept."""

from __future__ import annotations

from dataclasses import replace

from weft.core.errors import BlobUnavailable
from weft.core.json import CACHED_MARK, Json, readable, referenced_blob
from weft.db.blobs import Blobs
from weft.jobs.cached_params import without_cache
from weft.queue.model import Task


async def with_values(task: Task, params: str | None, output: str | None, blobs: Blobs) -> Task:
    """Return the task with its params and output; of one that cannot be read, the error stands in ``unavailable``."""
    if params is not None and params.startswith(CACHED_MARK):
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
    return readable(text if digest is None else (await blobs.get(digest)).decode())
