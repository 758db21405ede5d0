"""Snapshots: whole documents kept under the hash of what they are made of, for those who need them again and again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import orjson

from weft.core.errors import InvalidInput, NotFound
from weft.db.blobs import digest_of
from weft.flow.document import Document
from weft.flow.patches import Op, apply_ops, check_ops
from weft.flow.reading import sound
from weft.flow.validation import check_document
from weft.history import tags
from weft.history.contents import Content
from weft.history.model import Materialized
from weft.history.reading import SQL, Materials, Reader
from weft.queue.audit import where_from, why

# So often a snapshot that was removed before it was read is taken anew.
_TRIES = 10


async def take(
    reader: Reader, head: Materials, actor: str, ops: Sequence[Op] | None = None, message: str | None = None, *,
    is_act: bool = False,
) -> Materialized:  # fmt: skip
    """Return a document as it is kept whole: that of a version or a patch, or what ``ops`` make of it.

    It is made once: the same patch on the same version has the same plan, and finds what is there. The patch is kept
    as an artifact that no tag is at; its result must be sound. Who has it taken is kept in the audit if it ``is_act``:
    what is taken for a job is none.
    """
    if ops is None:
        if head.row["snapshot_id"] is not None:
            return await reader.materialized(head)
        return await _kept(reader, head, lambda: _taken(reader, head, actor, None, message, is_act))
    if head.row["kind"] == "snapshot":
        raise InvalidInput("ops", "go on a version or a patch, and not on a snapshot")
    text = orjson.dumps(check_ops(list(ops)))

    async def found_or_taken() -> int | None:
        known = await reader.database.read(
            lambda conn: conn.fetchval(SQL.snapshot_of_plan, reader.org_id, head.row["id"], digest_of(text))
        )
        return await _taken(reader, head, actor, text, message, is_act) if known is None else int(known)

    return await _kept(reader, head, found_or_taken)


async def _kept(reader: Reader, head: Materials, take_once: Callable[[], Awaitable[int | None]]) -> Materialized:
    """Return the snapshot that is found or taken; what is removed before it was read is taken anew."""
    for _ in range(_TRIES):
        snapshot_id = await take_once()
        found = None if snapshot_id is None else await reader.find(artifact_id=snapshot_id)
        if found is not None:
            return await reader.materialized(found)
    raise NotFound("snapshot", f"of {head.row['id']} for long enough to be read")


async def _taken(
    reader: Reader, head: Materials, actor: str, ops: bytes | None, message: str | None, is_act: bool
) -> int | None:
    """Keep the whole document, and return the id of the snapshot that has it; None when that is gone already."""
    data = await reader.document(head)
    patch: Content | None = None
    if ops is not None:
        data = apply_ops(data, orjson.loads(ops))
        patch = await reader.pack(ops)
    checked = check_document(Document(data))
    sound(checked)
    whole = await reader.pack(orjson.dumps(data))
    of_patch = (None, None, None) if patch is None else (patch.digest, patch.bytes, patch.stored)
    of_whole = whole.digest, whole.bytes, whole.stored, bytes.fromhex(checked.version_hash)
    what = reader.org_id, head.row["id"], checked.document.data["workflow_id"], *of_patch, *of_whole, actor, message
    act = is_act, where_from(), why()
    async with tags.explained(f"the snapshot of {head.row['id']}", head.row["id"]):
        kept = await reader.database.run_alone(lambda conn: conn.fetchval(SQL.put_snapshot, *what, *act))
    return None if kept is None else int(kept)
