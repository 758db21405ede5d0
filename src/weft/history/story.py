"""How a document came to be: which change last touched each field."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from weft.core.json import Json
from weft.db.blobs import Blobs
from weft.flow.patches import apply_beside, same
from weft.flow.problems import Path
from weft.history import artifacts
from weft.history.contents import load
from weft.history.model import Artifact

if TYPE_CHECKING:
    from weft.db.database import Database

_PAGE = 100
_NOWHERE = object()


@dataclass(frozen=True, slots=True)
class _Told:
    """A part of a document with its story: the change that last touched it, or one story for each of its fields."""

    value: Any = _NOWHERE
    story: Any = _NOWHERE

    def field(self, name: str) -> _Told:
        if not isinstance(self.story, dict) or name not in self.story:
            return _UNTOLD
        return _Told(self.value[name], self.story[name])


_UNTOLD = _Told()


async def blame(database: Database, org_id: int, artifact_id: int, blobs: Callable[[], Blobs]) -> dict[Path, Artifact]:
    """Return for each field of a document the change that last touched it."""
    line = await database.read(lambda conn: artifacts.line(conn, org_id, artifact_id))
    last_needed_by = _last_needed_by(line)
    told: dict[int, _Told] = {}
    for start in range(0, len(line), _PAGE):
        page = line[start : start + _PAGE]
        ids = [artifact.id for artifact in page]
        contents = await database.read(lambda conn, ids=ids: artifacts.contents(conn, org_id, ids))  # type: ignore[misc]
        for artifact in page:
            parent, merged = told.get(artifact.parent_id or 0, _UNTOLD), told.get(artifact.merged_id or 0, _UNTOLD)
            value = await load(*contents.pop(artifact.id), blobs)
            if artifact.kind == "patch":
                value = apply_beside({} if parent is _UNTOLD else parent.value, value)
            story = _story(artifact, value, parent, merged)
            # The parent's own value where nothing changed, as in a compaction: what is one need not be compared.
            told[artifact.id] = parent if story is parent.story else _Told(value, story)
            for ancestor_id in (artifact.parent_id, artifact.merged_id):
                if ancestor_id is not None and last_needed_by.get(ancestor_id) == artifact.id:
                    told.pop(ancestor_id, None)
    return dict(_fields(told[artifact_id].story, ()))


def _last_needed_by(line: Sequence[Artifact]) -> dict[int, int]:
    """Return for each artifact the last one that is made from it: after that, nobody asks for it."""
    return {
        ancestor_id: artifact.id
        for artifact in line
        for ancestor_id in (artifact.parent_id, artifact.merged_id)
        if ancestor_id is not None
    }


def _story(artifact: Artifact, value: Json, parent: _Told, merged: _Told) -> Any:
    """Return who last touched a value: whoever is told of, where it is as it was in the parent or on the other line."""
    if parent is not _UNTOLD and same(parent.value, value):
        return parent.story
    if merged.value is value:
        return merged.story
    if isinstance(value, dict) and value:
        return {name: _story(artifact, part, parent.field(name), merged.field(name)) for name, part in value.items()}
    if isinstance(merged.story, Artifact) and same(merged.value, value):
        return merged.story
    return artifact


def _fields(story: Any, path: Path) -> Iterator[tuple[Path, Artifact]]:
    if isinstance(story, dict):
        for name, part in story.items():
            yield from _fields(part, (*path, name))
    else:
        yield path, story
