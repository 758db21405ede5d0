"""Reads values that workers have sent, or have put before because they are large."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from weft.core.errors import InvalidInput, NotFound
from weft.core.json import encode_plain
from weft.queue import remote_workers

if TYPE_CHECKING:
    from weft.contract.protocol import Blob
    from weft.server.acting import Caller


async def value_of(caller: Caller, task_id: int, blob: Blob | None, value: Any, field: str = "data") -> str:
    """Return a value as JSON: what was sent of it, or the blob that the task has put before. Raises `NotFound`."""
    if blob is None:
        return encode_plain(value, field)
    named, org_id = [(task_id, blob.digest)], caller.who.org_id
    if not await caller.database.read(lambda conn: remote_workers.task_refers_to(conn, org_id, named)):
        raise NotFound("blob", blob.digest)
    try:
        found = orjson.loads(await caller.state.blobs.get(blob.digest))
    except orjson.JSONDecodeError:
        raise InvalidInput("blob", "is not JSON") from None
    if isinstance(value, dict) and not isinstance(found, dict):
        raise InvalidInput("blob", "is not an object")
    return encode_plain(found, "blob")
