"""The look through the whole history: whether tags, chains, hashes and contents agree, and what can be mended."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import orjson

from weft.core.errors import BlobUnavailable, InvalidInput
from weft.db.blobs import digest_of
from weft.db.statements import Statements
from weft.flow.document import Document
from weft.flow.patches import apply_ops
from weft.flow.validation import check_document
from weft.history.contents import MEDIA_TYPES, Content, load
from weft.history.model import Finding
from weft.history.reading import Documents, Reader

if TYPE_CHECKING:
    from asyncpg import Record

SQL = Statements("weft.history", "sql/upkeep.sql")
_PAGE = 200
_MESSAGE = "what it was at is not there any more"


@dataclass(slots=True)
class _Truth:
    """What follows from the parents of an artifact: its document, its base and its chain."""

    base_id: int | None
    chain: list[int] | None
    generation: int
    digests: tuple[str, ...]
    text: bytes | None

    @property
    def plan(self) -> bytes:
        """What the document is made of, as a snapshot of it has it."""
        return hashlib.sha256(",".join(self.digests).encode()).digest()


class Checker:
    """Goes through the history of one org, and mends what follows from the rest of it when it is asked to."""

    def __init__(self, reader: Reader, actor: str, *, repair: bool = False, quick: bool = False) -> None:
        self._reader = reader
        self._database = reader.database
        self._org_id = reader.org_id
        self._actor = actor
        self._repair = repair
        self._quick = quick
        self._truths: dict[int, _Truth] = {}
        self._texts = Documents()

    async def run(self, on_progress: Callable[[int], None] | None = None) -> AsyncIterator[Finding]:
        """Yield everything that is wrong; ``on_progress`` is told how many artifacts were looked at."""
        async for finding in self._artifacts(on_progress):
            yield finding
        async for finding in self._tags():
            yield finding
        async for finding in self._unreachable():
            yield finding

    # --- artifacts and what they hold ---

    async def _artifacts(self, on_progress: Callable[[int], None] | None) -> AsyncIterator[Finding]:
        done, last = 0, (0, 0)
        while True:
            page = await self._database.read(
                lambda conn, last=last: conn.fetch(SQL.page_of_artifacts, self._org_id, *last, _PAGE)  # type: ignore[misc]
            )
            for row in page:
                async for finding in self._artifact(row):
                    yield finding
                await asyncio.sleep(0)  # others have their turn between two documents
            done += len(page)
            if on_progress is not None:
                on_progress(done)
            if len(page) < _PAGE:
                return
            last = page[-1]["generation"], page[-1]["id"]

    async def _artifact(self, row: Record) -> AsyncIterator[Finding]:
        what = f"{row['kind']} {row['id']}"
        truth, findings = await self._truth(row, what)
        for finding in findings:
            yield finding
        if truth is None:
            return
        wrong: list[tuple[str, str]] = []
        if (row["base_id"], row["chain"]) != (truth.base_id, truth.chain):
            wrong.append(("wrong_chain", f"its chain is {row['chain']}, and its parents give {truth.chain}"))
        if row["kind"] == "snapshot" and bytes(row["plan_hash"] or b"") != truth.plan:
            wrong.append(("wrong_plan", "the hash of what it is made of is another"))
        if row["generation"] != truth.generation:
            problem = f"it is of generation {row['generation']}, and its parents give {truth.generation}"
            wrong.append(("wrong_generation", problem))
        hash_ = bytes(row["version_hash"])
        if truth.text is not None and not self._quick:
            checked = check_document(Document(orjson.loads(truth.text)))
            if not checked.is_sound:
                yield Finding("unsound", what, f"its document is not sound: {checked.problems[0]}")
            elif bytes.fromhex(checked.version_hash) != hash_:
                wrong.append(("wrong_hash", "the hash of what its document means is another"))
                hash_ = bytes.fromhex(checked.version_hash)
        if wrong and self._repair:
            plan = truth.plan if row["kind"] == "snapshot" else None
            await self._database.run_alone(
                lambda conn: conn.execute(
                    SQL.mend_artifact,
                    self._org_id,
                    row["id"],
                    truth.base_id,
                    truth.chain,
                    plan,
                    hash_,
                    truth.generation,
                )
            )
        for code, problem in wrong:
            yield Finding(
                code, what, problem, "written anew from its parents and its document" if self._repair else None
            )

    async def _truth(self, row: Record, what: str) -> tuple[_Truth | None, list[Finding]]:
        """Return what an artifact should be, by its parents; remembered for those that are made from it."""
        parent = None if row["parent_id"] is None else self._truths.get(row["parent_id"])
        if row["kind"] != "version" and parent is None:
            return None, [Finding("no_parent", what, f"its parent {row['parent_id']} is not there, or came after it")]
        text, findings = await self._text(row, what)
        merged = None if row["merged_id"] is None else self._truths.get(row["merged_id"])
        generation = 1 + max([each.generation for each in (parent, merged) if each is not None], default=0)
        if row["kind"] == "version":
            truth = _Truth(None, None, generation, (row["digest"],), None)
        elif row["kind"] == "snapshot":
            assert parent is not None
            truth = _Truth(None, None, generation, parent.digests, None)
        else:
            assert parent is not None
            base, chain = parent.base_id or row["parent_id"], [*(parent.chain or ()), row["id"]]
            truth = _Truth(base, chain, generation, (*parent.digests, row["digest"]), None)
        if text is not None:
            self._texts.put(row["id"], text)
        # Texts are many: those that are needed again are in a memory that forgets.
        self._truths[row["id"]] = truth
        truth = replace(truth, text=text)
        return truth, findings

    async def _text(self, row: Record, what: str) -> tuple[bytes | None, list[Finding]]:
        """Return the document of an artifact, from its own content; from its parent where that is damaged."""
        before = await self._text_of(row["parent_id"]) if row["kind"] != "version" or row["parent_id"] else None
        try:
            if not row["has_blob"]:
                raise BlobUnavailable(row["digest"], "is not in the database")
            value = await load(row["digest"], row["content"], self._reader.blobs)
        except BlobUnavailable as problem:
            return await self._mended_text(row, before, what, str(problem))
        if row["kind"] != "patch":
            text = orjson.dumps(value)
            if row["kind"] == "snapshot" and before is not None and before != text:
                return text, [Finding("wrong_snapshot", what, "it is not the document that its plan gives")]
            return text, []
        if before is None:
            return None, [Finding("no_document", what, "the document that it changes cannot be read")]
        try:
            return orjson.dumps(apply_ops(orjson.loads(before), value)), []
        except (InvalidInput, TypeError, KeyError, AttributeError) as problem:
            return None, [Finding("bad_patch", what, f"it cannot be applied to its parent: {problem}")]

    async def _mended_text(
        self, row: Record, before: bytes | None, what: str, problem: str
    ) -> tuple[bytes | None, list[Finding]]:
        """Return the document of an artifact whose content is lost: a compaction and a snapshot are as their parent."""
        if before is None or row["kind"] == "patch" or digest_of(before) != row["digest"]:
            return None, [Finding("lost_blob", what, f"{problem}; nothing here has the same document")]
        mended = None
        if self._repair:
            content = Content(before, self._database.settings.inline_limit)
            if content.stored is None:
                await self._reader.blobs().put(before)
            await self._database.run_alone(
                lambda conn: conn.execute(
                    SQL.mend_blob, content.digest, content.bytes, MEDIA_TYPES[row["kind"]], content.stored
                )
            )
            mended = "written anew from its parent"
        return before, [Finding("lost_blob", what, problem, mended)]

    async def _text_of(self, artifact_id: int) -> bytes | None:
        text = self._texts.get(artifact_id)
        if text is not None or artifact_id not in self._truths:
            return text
        try:
            return orjson.dumps(await self._reader.document(await self._reader.of(artifact_id)))
        except (BlobUnavailable, InvalidInput):
            return None

    # --- tags and their moves ---

    async def _tags(self) -> AsyncIterator[Finding]:
        for row in await self._database.read(lambda conn: conn.fetch(SQL.broken_moves, self._org_id)):
            problem = "it does not follow the move before it; moves are never changed, so somebody has gone round that"
            yield Finding("broken_moves", f"move {row['version']} of tag {row['tag']}", problem)
        for row in await self._database.read(lambda conn: conn.fetch(SQL.astray_tags, self._org_id)):
            yield await self._tag(row)

    async def _tag(self, row: Record) -> Finding:
        name = row["name"]
        what = f"tag {name}"
        if row["last_version"] is None:
            return Finding("astray_tag", what, "it has no moves")
        problem = (
            f"it is at {row['target_id']}, move {row['version']}, and its last move, {row['last_version']}, went to "
            f"{row['to_id']}" if row["has_target"] else f"it is at {row['target_id']}, which is not there"
        )  # fmt: skip
        code = "astray_tag" if row["has_target"] else "orphaned_tag"
        if not self._repair:
            return Finding(code, what, problem)
        return Finding(code, what, problem, await self._mend_tag(name))

    async def _mend_tag(self, name: str) -> str | None:
        async def mend(conn: Any) -> str | None:
            target = await conn.fetchval(SQL.last_sound_target, self._org_id, name)
            if target is None:
                return None
            last = await conn.fetchrow(SQL.last_move, self._org_id, name)
            if last["verb"] == "delete" or last["to_id"] == target:
                await conn.execute(SQL.mend_tag, self._org_id, name, target)
                return f"put to {target}, where its last move had put it"
            await conn.execute(SQL.mend_tag, self._org_id, name, target)
            await conn.fetchval(SQL.move_astray_tag, self._org_id, name, target, self._actor, _MESSAGE)
            return f"moved to {target}, the last place of it that is there"

        return await self._database.run(mend)

    # --- blobs ---

    async def _unreachable(self) -> AsyncIterator[Finding]:
        rows = await self._database.read(lambda conn: conn.fetch(SQL.list_unused_blobs, 1000))
        for row in rows:
            problem = f"nothing refers to its {row['bytes']:,} bytes; `weft workflows gc` removes it"
            yield Finding("unreachable_blob", f"blob {row['digest']}", problem)
