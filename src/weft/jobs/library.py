"""The plans of versions that jobs are made of, worked out once, and the versions to which names are pinned."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Set
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, TypeVar

import asyncpg
import orjson

from weft.core.errors import InvalidInput, NotFound
from weft.core.json import Json
from weft.core.signals import NonRetryable
from weft.flow.document import Document
from weft.flow.model import Input, WorkflowNode
from weft.flow.reading import sound
from weft.flow.structure import is_dag
from weft.flow.validation import check_document
from weft.history import keeping, snapshots, tags
from weft.history.reading import Materials, Reader
from weft.jobs.plan import Plan
from weft.queue import queues

if TYPE_CHECKING:
    from weft.db.blobs import Blobs
    from weft.db.database import Database, type_Connection

_Made = TypeVar("_Made")
_REMEMBERED = 500
# Where each tag stood, by the name by which it is used, when the job was submitted that goes by them: how it is kept.
Pins = Mapping[str, Mapping[str, Json]]


@dataclass(frozen=True, slots=True)
class Planned:
    """A version, ready to be executed; ``uses`` are the workflows that it has as nodes."""

    workflow_id: str
    inputs: Mapping[str, Input]
    plan: Plan
    snapshot_id: int
    version_hash: str
    uses: frozenset[str]


class Library:
    """Plans versions of one org, and remembers the last of them."""

    def __init__(self, reader: Reader, actor: Callable[[], str]) -> None:
        self._reader = reader
        self._actor = actor
        self._known: OrderedDict[int, Planned] = OrderedDict()
        self._documents: OrderedDict[bytes, Materials] = OrderedDict()

    async def kept(self, document: Document) -> Materials:
        """Return a definition as it is kept: checked and written the first time, then remembered."""
        digest = sha256(orjson.dumps(document.data, option=orjson.OPT_SORT_KEYS)).digest()
        if digest not in self._documents:
            self._documents[digest] = await keeping.keep(self._reader, document, self._actor())
            if len(self._documents) > _REMEMBERED:
                self._documents.popitem(last=False)
        return self._documents[digest]

    def forget(self) -> None:
        """Forget what was kept: it is there no more."""
        self._known.clear()
        self._documents.clear()

    async def anew_if_gone(self, make: Callable[[], Awaitable[_Made]]) -> _Made:
        """Return what is made of what is remembered here; when that is there no more, it is forgotten and made anew."""
        try:
            return await make()
        except asyncpg.ForeignKeyViolationError:
            # What was remembered has been collected as garbage, or the database is another one by now.
            self.forget()
            return await make()

    async def planned(self, found: Materials) -> Planned:
        """Return a version ready to be executed; its whole document is kept from now on."""
        known = self._known.get(found.row["id"])
        if known is None:
            kept = await snapshots.take(self._reader, found, self._actor())
            if is_dag(kept.data):
                what = f"{found.row['tag'] or found.row['id']} is a live DAG, which goes on by itself"
                raise InvalidInput("workflow", f"{what}: `weft deploy` lets it, and `weft live` looks at it")
            # Sound when it was kept: a later release may find something wrong with it, and says what.
            definition = sound(check_document(Document(kept.data)))
            assert kept.snapshot_id is not None
            uses = frozenset(node.workflow for node in definition.nodes.values() if isinstance(node, WorkflowNode))
            plan = Plan.of(definition)
            known = Planned(definition.workflow_id, definition.inputs, plan, kept.snapshot_id, kept.version_hash, uses)
            self._known[found.row["id"]] = known
            if len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
        return known

    async def at(self, tag: str) -> tuple[Materials, Planned]:
        """Return the version at which a tag stands, as it was found and ready to be executed; raises `NotFound`."""
        found = await self._reader.find(tag=tag)
        if found is None:
            raise NotFound("tag", repr(tag))
        return found, await self.planned(found)

    async def by_snapshot(self, snapshot_id: int) -> Planned:
        """Return a version by its whole document."""
        known = self._known.get(snapshot_id)
        return known if known is not None else await self.planned(await self._reader.of(snapshot_id))

    async def pinned(self, position: Mapping[str, Json]) -> Planned:
        """Return the version to which a name was pinned; its whole document is taken anew if it has been collected.

        A job holds that of its own version only. Where a tag has been is kept for good, and so are versions.
        """
        try:
            return await self.by_snapshot(int(str(position["snapshot_id"])))
        except NotFound:
            if position["tag"] is None:
                raise
            place, reader = (str(position["tag"]), int(str(position["version"])) + 1), self._reader
            (move,) = await reader.database.read(
                lambda conn: tags.moves(conn, reader.org_id, place[0], before=place[1], limit=1)
            )
            assert move.to_id is not None
            return await self.planned(await reader.of(move.to_id))

    async def pins(
        self, first: Planned, found: Materials, own: Mapping[str, tuple[Materials, Planned]] | None = None
    ) -> dict[str, dict[str, Json]]:
        """Return where the tag stands by which a version was found, and all workflows that it uses, at any depth.

        By name; each with the snapshot that jobs of it go by, and the number of the tag's last move. ``own`` are those
        that the caller has given with it, whatever their tags are at. One that is a part of itself is refused.
        """
        pinned: dict[str, dict[str, Json]] = {}
        if found.row["tag"] is not None:
            pinned[found.row["tag"]] = _position(found, first)
        used: dict[str, Planned] = {}
        open_ = sorted(first.uses)
        while open_:
            name = open_.pop()
            if name not in used:
                materials, used[name] = (own or {}).get(name) or await self.at(name)
                pinned[name] = _position(materials, used[name])
                open_ += sorted(used[name].uses)
        _require_end(first, used)
        return pinned

    async def queues(self, first: Planned, pins: Pins) -> set[str]:
        """Return the names of the queues in which tasks of a version, and of all workflows that it uses, may wait."""
        found = set(first.plan.queues)
        for position in pins.values() if first.uses else ():
            found |= (await self.pinned(position)).plan.queues
        return found


def _require_end(first: Planned, used: Mapping[str, Planned]) -> None:
    """Refuse a workflow that has itself as a node, over others or not: it would begin jobs for ever."""
    path: list[tuple[str, int, Iterator[str]]] = [(first.workflow_id, first.snapshot_id, iter(sorted(first.uses)))]
    done: set[int] = set()
    while path:
        name = next(path[-1][2], None)
        if name is None:
            done.add(path.pop()[1])
            continue
        later = used[name]
        if any(later.snapshot_id == id for _, id, _ in path):
            way = " → ".join([*(each for each, _, _ in path), name])
            raise InvalidInput("workflow", f"{way}: a workflow that is a part of itself would never end")
        if later.snapshot_id not in done:
            path.append((name, later.snapshot_id, iter(sorted(later.uses))))


def _position(found: Materials, planned: Planned) -> dict[str, Json]:
    return {
        "tag": found.row["tag"],
        "version": found.row["tag_version"],
        "snapshot_id": str(planned.snapshot_id),
        "version_hash": planned.version_hash,
    }


class Libraries:
    """The libraries of all orgs, made when they are first asked for."""

    def __init__(self, database: Database, blobs: Callable[[], Blobs]) -> None:
        self._database = database
        self._blobs = blobs
        self._known: dict[int, Library] = {}

    def of(self, org_id: int, actor: str | None) -> Library:
        """Return the library of an org; whoever asks first is noted as who keeps its snapshots."""
        if org_id not in self._known:
            self._known[org_id] = Library(Reader(self._database, org_id, self._blobs), lambda: actor or "")
        return self._known[org_id]


async def lanes_of(conn: type_Connection, org_id: int, needed: Set[str]) -> dict[str, int]:
    """Return the queues of an org by name; raises `NonRetryable` when one that is needed is missing."""
    known = await queues.ids(conn, org_id)
    if missing := needed - known.keys():
        raise NonRetryable(f"there is no queue {min(missing)!r}: make it with `weft queues create`")
    return known
