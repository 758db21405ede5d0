"""Documents as they are at any point of the history: put together of what they consist of, and remembered."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from weft.core.errors import BlobUnavailable, InvalidInput, NotFound
from weft.db.blobs import Blobs
from weft.db.statements import Statements
from weft.flow.document import Document
from weft.flow.patches import apply_ops
from weft.flow.validation import Shape, check_document
from weft.history.contents import Content, load, pack
from weft.history.evidence import keep_replaced
from weft.history.model import Materialized

if TYPE_CHECKING:
    from asyncpg import Record

    from weft.db.database import Database

SQL = Statements("weft.history", "sql/artifact.sql")
# So much text of documents one reader remembers, and so many places at which they were.
_REMEMBERED_BYTES = 32 * 1024 * 1024
_REMEMBERED_DOCUMENTS = 2_000
_REMEMBERED_PLACES = 10_000
Place = tuple[int | None, str | None, datetime | None]


class Documents:
    """The texts of documents by their artifact, and their shapes: what was put together once is right for ever."""

    def __init__(self) -> None:
        self._texts: OrderedDict[int, bytes] = OrderedDict()
        self._shapes: dict[int, Shape] = {}
        self._bytes = 0
        self._at: OrderedDict[Place, int] = OrderedDict()

    def get(self, artifact_id: int) -> bytes | None:
        """Return the text of a document, when it is remembered."""
        return self._texts.get(artifact_id)

    def at(self, place: Place) -> tuple[int, bytes] | None:
        """Return the artifact that was last seen at a place, and its text, when they are remembered."""
        artifact_id = self._at.get(place)
        text = None if artifact_id is None else self._texts.get(artifact_id)
        return None if artifact_id is None or text is None else (artifact_id, text)

    def note(self, place: Place, artifact_id: int) -> None:
        """Remember which artifact stands at a place."""
        self._at[place] = artifact_id
        self._at.move_to_end(place)
        if len(self._at) > _REMEMBERED_PLACES:
            self._at.popitem(last=False)

    def shape(self, artifact_id: int) -> Shape | None:
        """Return the shape of a document, when it was checked here."""
        return self._shapes.get(artifact_id)

    def put(self, artifact_id: int, text: bytes, shape: Shape | None = None) -> None:
        """Remember a document; the oldest are forgotten."""
        self._bytes += len(text) - len(self._texts.pop(artifact_id, b""))
        self._texts[artifact_id] = text
        if shape is not None:
            self._shapes[artifact_id] = shape
        while self._bytes > _REMEMBERED_BYTES or len(self._texts) > _REMEMBERED_DOCUMENTS:
            oldest, gone = self._texts.popitem(last=False)
            self._shapes.pop(oldest, None)
            self._bytes -= len(gone)


@dataclass(frozen=True, slots=True)
class Materials:
    """An artifact, and of what its document is made: its text, or a whole one and patches on it."""

    row: Record
    text: bytes | None = None


class _Read(NamedTuple):
    """A document, and what was passed over on the way to it because it is damaged."""

    data: dict[str, Any]
    damage: str | None = None


class Reader:
    """Reads the documents of one org, and remembers the last of them."""

    def __init__(self, database: Database, org_id: int, blobs: Callable[[], Blobs]) -> None:
        self.database = database
        self.org_id = org_id
        self.blobs = blobs
        self.turns = asyncio.Lock()
        self._documents = Documents()

    async def find(
        self, *, artifact_id: int | None = None, tag: str | None = None, at: datetime | None = None
    ) -> Materials | None:
        """Return what an artifact is made of, or that at which a tag stands, or stood at a moment; None: there is none.

        A ``tag`` may be a workflow's name, which means its main line.
        """
        place = artifact_id, tag, at
        known = self._documents.at(place)
        known_id, text = known or (None, None)
        row = await self.database.read(
            lambda conn: conn.fetchrow(SQL.materials, self.org_id, artifact_id, tag, at, known_id)
        )
        if row is None:
            return None
        self._documents.note(place, row["id"])
        return Materials(row, text if row["id"] == known_id else None)

    async def of(self, artifact_id: int) -> Materials:
        """Return what an artifact is made of; raises `NotFound`."""
        found = await self.find(artifact_id=artifact_id)
        if found is None:
            raise NotFound("version", artifact_id)
        return found

    async def pack(self, text: bytes, begun: Awaitable[Content] | None = None) -> Content:
        """Return a text as it is stored; what is damaged and will be replaced by it is kept aside first."""
        content = await pack(text, self.database.settings, self.blobs, begun)
        await keep_replaced(self.database, content)
        return content

    async def document(self, found: Materials) -> dict[str, Any]:
        """Return a document of one's own; raises `BlobUnavailable` that names what is missing or damaged."""
        return (await self._read(found)).data

    async def document_of_chain(self, artifact_id: int) -> dict[str, Any]:
        """Return a document as its version and its patches give it, whatever is remembered or kept of it."""
        row = await self.database.read(lambda conn: conn.fetchrow(SQL.chain, self.org_id, artifact_id))
        if row is None:
            raise NotFound("version", artifact_id)
        return await self._put_together(row)

    async def _read(self, found: Materials) -> _Read:
        row = found.row
        if found.text is not None:
            return _Read(orjson.loads(found.text))
        if row["is_wrong"]:
            wrong = "does not mean what it was made of: `weft workflows fsck --repair` removes it"
            raise BlobUnavailable(f"{row['digest']} of snapshot {row['id']}", wrong)
        try:
            data = await self._put_together(row)
        except BlobUnavailable as problem:
            if row["kind"] == "version" or row["snapshot_id"] is None:
                raise
            return _Read(await self._without_snapshot(row, problem), f"{problem}; its patches give the same document")
        self._documents.put(row["id"], orjson.dumps(data))
        return _Read(data)

    async def _put_together(self, row: Record) -> dict[str, Any]:
        """Return the document that a whole one and the patches on it give."""
        parts = [(row["digest"], row["content"])]
        parts += zip(row["digests"] or (), row["contents"] or (), strict=True)
        if any(digest is None for digest, _ in parts):
            lost = "of a patch or a version is not known: its row is lost, restore it from a backup"
            raise BlobUnavailable(f"in {row['kind']} {row['id']}", lost)
        data = await load(*parts[0], self.blobs)
        for part in parts[1:]:
            data = apply_ops(data, await load(*part, self.blobs))
        if not isinstance(data, dict):
            raise InvalidInput("artifact", f"{row['id']} is no definition")
        return data

    async def _without_snapshot(self, row: Record, problem: BlobUnavailable) -> dict[str, Any]:
        """Return the document of patches whose snapshot is damaged; raises ``problem`` when they do not give it."""
        try:
            data = await self.document_of_chain(row["id"])
        except (BlobUnavailable, InvalidInput, NotFound):
            raise problem from None
        checked = check_document(Document(data))
        if not checked.is_sound or checked.version_hash != row["version_hash"].hex():
            raise problem
        return data

    def remember(self, artifact_id: int, tag: str, text: bytes, shape: Shape) -> None:
        """Keep a document at hand that was checked, and at which a tag stands now."""
        self._documents.put(artifact_id, text, shape)
        self._documents.note((None, tag, None), artifact_id)

    def shape_of(self, found: Materials | None) -> Shape | None:
        """Return the shape of a document, if it was checked here."""
        return None if found is None else self._documents.shape(found.row["id"])

    def shape_at(self, tag: str) -> Shape | None:
        """Return the shape of what a tag was at when it was last seen here: what comes next is most often like it."""
        known = self._documents.at((None, tag, None))
        return None if known is None else self._documents.shape(known[0])

    async def materialized(self, found: Materials, *, with_data: bool = True) -> Materialized:
        """Return a document with what it is, or only that."""
        row, read = found.row, await self._read(found) if with_data else _Read({})
        what = row["id"], row["kind"], row["depth"], row["version_hash"].hex()
        return Materialized(*what, read.data, row["tag"], row["tag_version"], row["snapshot_id"], read.damage)
