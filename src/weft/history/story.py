"""How a document came to be: which change last touched each field."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import orjson

from weft.core.json import Json
from weft.db.blobs import Blobs
from weft.flow.patches import apply_ops, same
from weft.flow.problems import Path
from weft.history import artifacts
from weft.history.contents import load
from weft.history.model import Artifact

if TYPE_CHECKING:
    from weft.db.database import Database

_PAGE = 500


async def blame(database: Database, org_id: int, artifact_id: int, blobs: Callable[[], Blobs]) -> dict[Path, Artifact]:
    """Return for each field of a document the change that last touched it."""
    line = await database.read(lambda conn: artifacts.line(conn, org_id, artifact_id))
    documents: dict[int, Json] = {}
    blamed: dict[int, dict[Path, Artifact]] = {}
    for start in range(0, len(line), _PAGE):
        page = line[start : start + _PAGE]
        ids = [artifact.id for artifact in page]
        contents = await database.read(lambda conn, ids=ids: artifacts.contents(conn, org_id, ids))  # type: ignore[misc]
        for artifact in page:
            value = await load(*contents[artifact.id], blobs)
            before = documents.get(artifact.parent_id or 0, {})
            after = apply_ops(_copied(before), value) if artifact.kind == "patch" else value
            documents[artifact.id] = after
            blamed[artifact.id] = _blamed(artifact, before, after, blamed, documents)
    return blamed[artifact_id]


def _blamed(
    artifact: Artifact,
    before: Json,
    after: Json,
    known: Mapping[int, dict[Path, Artifact]],
    documents: Mapping[int, Json],
) -> dict[Path, Artifact]:
    old, new = dict(_leaves(before, ())), dict(_leaves(after, ()))
    ours = known.get(artifact.parent_id or 0, {})
    theirs, their_leaves = (
        known.get(artifact.merged_id or 0, {}),
        dict(_leaves(documents.get(artifact.merged_id or 0, {}), ())),
    )
    found = {}
    for path, value in new.items():
        if path in old and same(old[path], value) and path in ours:
            found[path] = ours[path]
        elif path in theirs and path in their_leaves and same(their_leaves[path], value):
            found[path] = theirs[path]
        else:
            found[path] = artifact
    return found


def _leaves(value: Json, path: Path) -> Iterator[tuple[Path, Json]]:
    if isinstance(value, dict) and value:
        for key, entry in value.items():
            yield from _leaves(entry, (*path, key))
    else:
        yield path, value


def _copied(value: Json) -> Any:
    return orjson.loads(orjson.dumps(value))
