"""Definitions that no tag is at: kept once, for the jobs that were made of them."""

from __future__ import annotations

import orjson

from weft.flow.document import Document
from weft.flow.reading import sound
from weft.flow.validation import check_document
from weft.history.reading import SQL, Materials, Reader


async def keep(reader: Reader, document: Document, actor: str) -> Materials:
    """Return a definition as it is kept; the same one is there once. Raises when it is not sound."""
    checked = check_document(document)
    sound(checked)
    content = await reader.pack(orjson.dumps(document.data))
    kept = content.digest, content.bytes, content.stored, bytes.fromhex(checked.version_hash), actor
    artifact_id = await reader.database.run_alone(
        lambda conn: conn.fetchval(SQL.keep, reader.org_id, document.data["workflow_id"], *kept)
    )
    return await reader.of(artifact_id)
