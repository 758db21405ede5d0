"""The plans of versions that jobs are made of, worked out once, and the versions to which names are pinned."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256

import orjson

from weft.core.errors import NotFound
from weft.flow.document import Document
from weft.flow.model import Input, WorkflowNode
from weft.flow.validation import check_document
from weft.history import keeping, snapshots
from weft.history.reading import Materials, Reader
from weft.jobs.plan import Plan

_REMEMBERED = 500
# The snapshot that each workflow stood at, by its name, when the job was submitted that goes by them.
Pins = Mapping[str, int]


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

    def __init__(self, reader: Reader, actor: str) -> None:
        self._reader = reader
        self._actor = actor
        self._known: OrderedDict[int, Planned] = OrderedDict()
        self._documents: OrderedDict[bytes, Materials] = OrderedDict()

    async def kept(self, document: Document) -> Materials:
        """Return a definition as it is kept: checked and written the first time, then remembered."""
        digest = sha256(orjson.dumps(document.data, option=orjson.OPT_SORT_KEYS)).digest()
        if digest not in self._documents:
            self._documents[digest] = await keeping.keep(self._reader, document, self._actor)
            if len(self._documents) > _REMEMBERED:
                self._documents.popitem(last=False)
        return self._documents[digest]

    def forget(self) -> None:
        """Forget what was kept: it is there no more."""
        self._known.clear()
        self._documents.clear()

    async def planned(self, found: Materials) -> Planned:
        """Return a version ready to be executed; its whole document is kept from now on."""
        known = self._known.get(found.row["id"])
        if known is None:
            kept = await snapshots.take(self._reader, found, self._actor)
            definition = check_document(Document(kept.data)).definition
            assert definition is not None
            assert kept.snapshot_id is not None
            uses = frozenset(node.workflow for node in definition.nodes.values() if isinstance(node, WorkflowNode))
            plan = Plan.of(definition)
            known = Planned(definition.workflow_id, definition.inputs, plan, kept.snapshot_id, kept.version_hash, uses)
            self._known[found.row["id"]] = known
            if len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
        return known

    async def by_snapshot(self, snapshot_id: int) -> Planned:
        """Return a version by its whole document."""
        known = self._known.get(snapshot_id)
        return known if known is not None else await self.planned(await self._reader.of(snapshot_id))

    async def pins(self, first: Planned) -> dict[str, int]:
        """Return where all workflows stand now that a version has as nodes, and those that they have; by name."""
        found: dict[str, int] = {}
        open_ = sorted(first.uses)
        while open_:
            name = open_.pop()
            if name not in found:
                materials = await self._reader.find(tag=name)
                if materials is None:
                    raise NotFound("tag", name)
                planned = await self.planned(materials)
                found[name] = planned.snapshot_id
                open_ += sorted(planned.uses)
        return found
