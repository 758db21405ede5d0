"""The look through the whole history: whether tags, chains, hashes and contents agree, and what can be mended."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import asyncpg
import orjson

from weft.core.errors import BlobUnavailable, InvalidInput, NotFound
from weft.db.blobs import digest_of
from weft.db.statements import Statements
from weft.flow.document import Document
from weft.flow.live.validation import check_dag
from weft.flow.patches import apply_ops, same
from weft.flow.structure import is_dag
from weft.flow.validation import check_document
from weft.history.contents import MEDIA_TYPES, Content, load
from weft.history.evidence import keep_aside
from weft.history.model import Finding
from weft.history.reading import Documents, Reader
from weft.history.tags import explained

if TYPE_CHECKING:
    from asyncpg import Record

SQL = Statements("weft.history", "sql/upkeep.sql")
_PAGE = 200
# What refers to a blob may be written a day after it.
_GRACE = timedelta(days=1)
_MESSAGE = "what it was at is not there any more"


@dataclass(slots=True)
class _Truth:
    """What follows from the parents of an artifact: its document, its base and its chain."""

    base_id: int | None
    chain: list[int] | None
    generation: int
    digests: tuple[str, ...]
    text: bytes | None
    workflow_id: str

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
        lines = await self._database.read(lambda conn: conn.fetch(SQL.lines, self._org_id))
        ids, circle = in_order([(row["id"], row["parent_id"], row["merged_id"]) for row in lines])
        for done in range(0, len(ids), _PAGE):
            page = ids[done : done + _PAGE]
            rows = await self._database.read(
                lambda conn, page=page: conn.fetch(SQL.page_of_artifacts, self._org_id, page)  # type: ignore[misc]
            )
            for row in rows:
                if row["id"] in circle:
                    yield Finding("circle", f"{row['kind']} {row['id']}", "what it was made from was made from it")
                    continue
                async for finding in self._artifact(row):
                    yield finding
                await asyncio.sleep(0)  # others have their turn between two documents
            if on_progress is not None:
                on_progress(done + len(page))

    async def _artifact(self, row: Record) -> AsyncIterator[Finding]:
        what = f"{row['kind']} {row['id']}"
        truth, findings = await self._truth(row, what)
        if row["kind"] == "snapshot" and truth is not None and bytes(row["plan_hash"] or b"") != truth.plan:
            problem = (
                f"its plan_hash is {(row['plan_hash'] or b'').hex()}, and what it is made of has {truth.plan.hex()}"
            )
            findings.append(Finding("wrong_plan", what, problem))
        if any(finding.code in ("wrong_plan", "wrong_snapshot") for finding in findings):
            mended = await self._removed(row) if self._repair else None
            for finding in findings:
                yield replace(finding, mended=mended)
            return
        for finding in findings:
            yield finding
        if truth is None:
            return
        wrong, hash_ = self._disagreements(row, truth), bytes(row["version_hash"])
        if truth.text is not None and not self._quick:
            document = Document(orjson.loads(truth.text))
            checked = check_dag(document) if is_dag(document.data) else check_document(document)
            if not checked.is_sound:
                yield Finding("unsound", what, f"its document is not sound: {checked.problems[0]}")
            elif bytes.fromhex(checked.version_hash) != hash_:
                # Either of the two may be the one that was changed: with both told, nothing is lost by the repair.
                problem = f"its version_hash is {hash_.hex()}, and its document, {row['digest']}, means"
                wrong.append(("wrong_hash", f"{problem} {checked.version_hash}"))
                hash_ = bytes.fromhex(checked.version_hash)
        if wrong and self._repair:
            values = truth.base_id, truth.chain, truth.workflow_id, hash_, truth.generation
            await self._database.run_alone(
                lambda conn: conn.execute(SQL.mend_artifact, self._org_id, row["id"], *values)
            )
        for code, problem in wrong:
            yield Finding(
                code, what, problem, "written anew from its parents and its document" if self._repair else None
            )

    def _disagreements(self, row: Record, truth: _Truth) -> list[tuple[str, str]]:
        """Return what is noted of an artifact and does not follow from its parents and its document."""
        wrong: list[tuple[str, str]] = []
        if (row["base_id"], row["chain"]) != (truth.base_id, truth.chain):
            wrong.append(("wrong_chain", f"its chain is {row['chain']}, and its parents give {truth.chain}"))
        if row["generation"] != truth.generation:
            problem = f"it is of generation {row['generation']}, and its parents give {truth.generation}"
            wrong.append(("wrong_generation", problem))
        if row["workflow_id"] != truth.workflow_id:
            problem = f"it is noted as of workflow {row['workflow_id']!r}, and its document is of {truth.workflow_id!r}"
            wrong.append(("wrong_workflow", problem))
        return wrong

    async def _removed(self, row: Record) -> str | None:
        """Remove a snapshot that is wrong; None when somebody uses it."""
        try:
            await self._database.run_alone(lambda conn: conn.execute(SQL.remove_snapshot, self._org_id, row["id"]))
        except asyncpg.ForeignKeyViolationError:
            return None
        del self._truths[row["id"]]
        return f"removed, its document {row['digest']} with it: it is made again when it is asked for"

    async def _truth(self, row: Record, what: str) -> tuple[_Truth | None, list[Finding]]:
        """Return what an artifact should be, by its parents; remembered for those that are made from it."""
        parent = None if row["parent_id"] is None else self._truths.get(row["parent_id"])
        merged = None if row["merged_id"] is None else self._truths.get(row["merged_id"])
        lost = []
        if parent is None and (row["kind"] != "version" or row["parent_id"] is not None):
            lost.append(Finding("no_parent", what, f"its parent {row['parent_id']} is not there, or leads nowhere"))
        if merged is None and row["merged_id"] is not None:
            lost.append(Finding("no_merged", what, f"{row['merged_id']}, which was merged into it, is not there"))
        if parent is None and row["kind"] != "version":
            return None, lost
        text, findings = await self._text(row, what)
        generation = 1 + max([each.generation for each in (parent, merged) if each is not None], default=0)
        # Without one of them nobody can tell any more.
        generation = row["generation"] if lost else generation
        workflow_id = row["workflow_id"] if text is None else _workflow_of(text, row["workflow_id"])
        if row["kind"] == "version":
            truth = _Truth(None, None, generation, (row["digest"],), None, workflow_id)
        elif row["kind"] == "snapshot":
            assert parent is not None
            truth = _Truth(None, None, generation, parent.digests, None, workflow_id)
        else:
            assert parent is not None
            base, chain = parent.base_id or row["parent_id"], [*(parent.chain or ()), row["id"]]
            truth = _Truth(base, chain, generation, (*parent.digests, row["digest"]), None, workflow_id)
        if text is not None:
            self._texts.put(row["id"], text)
        # Texts are many: those that are needed again are in a memory that forgets.
        self._truths[row["id"]] = truth
        return replace(truth, text=text), lost + findings

    async def _text(self, row: Record, what: str) -> tuple[bytes | None, list[Finding]]:
        """Return the document of an artifact, from its own content; from its parent where that is damaged."""
        before = await self._text_of(row["parent_id"]) if row["kind"] != "version" or row["parent_id"] else None
        try:
            if not row["has_blob"]:
                raise BlobUnavailable(row["digest"], "is not in the database")
            value = await load(row["digest"], row["content"], self._reader.blobs)
        except BlobUnavailable as problem:
            return await self._mended_text(row, before, what, problem)
        if row["kind"] != "patch":
            text = orjson.dumps(value)
            is_other = row["kind"] == "snapshot" and before is not None and before != text
            if is_other and not same(orjson.loads(before or b""), value):
                return text, [Finding("wrong_snapshot", what, "it is not the document that its plan gives")]
            return text, []
        if before is None:
            return None, [Finding("no_document", what, "the document that it changes cannot be read")]
        try:
            return orjson.dumps(apply_ops(orjson.loads(before), value)), []
        except (InvalidInput, TypeError, KeyError, AttributeError) as problem:
            return None, [Finding("bad_patch", what, f"it cannot be applied to its parent: {problem}")]

    async def _mended_text(
        self, row: Record, before: bytes | None, what: str, problem: BlobUnavailable
    ) -> tuple[bytes | None, list[Finding]]:
        """Return the document of an artifact whose content is lost: a compaction and a snapshot are as their parent."""
        lost = f"its content, blob {row['digest']}, {problem.problem.partition(':')[0].partition(',')[0]}"
        if before is not None and row["kind"] == "snapshot" and digest_of(before) != row["digest"]:
            return before, [Finding("wrong_snapshot", what, f"{lost}; what it was made of gives it anew")]
        if before is None or row["kind"] == "patch" or digest_of(before) != row["digest"]:
            return None, [Finding("lost_blob", what, f"{lost}, and nothing else here has it: restore it from a backup")]
        mended = await self._replaced(row, before) if self._repair else None
        return before, [Finding("lost_blob", what, f"{lost}; what it was made of has the same document", mended)]

    async def _replaced(self, row: Record, text: bytes) -> str:
        """Put the right bytes into the place of damaged ones, which are kept aside first; return what was done."""
        kept = ""
        if row["content"] is not None:
            path = keep_aside(self._database.settings, row["digest"], row["content"])
            kept = f"; what its row held is kept in {path}"
        content = Content(text, self._database.settings.inline_limit)
        if content.stored is None:
            await self._reader.blobs().put(text)
            kept += "; what its storage held, if anything, is kept there under `damaged`"
        await self._database.run_alone(
            lambda conn: conn.execute(
                SQL.mend_blob, content.digest, content.bytes, MEDIA_TYPES[row["kind"]], content.stored
            )
        )
        return f"written anew from its parent{kept}"

    async def _text_of(self, artifact_id: int) -> bytes | None:
        text = self._texts.get(artifact_id)
        if text is not None or artifact_id not in self._truths:
            return text
        try:
            return orjson.dumps(await self._reader.document_of_chain(artifact_id))
        except (BlobUnavailable, InvalidInput, NotFound):
            return None

    # --- tags and their moves ---

    async def _tags(self) -> AsyncIterator[Finding]:
        for row in await self._database.read(lambda conn: conn.fetch(SQL.broken_moves, self._org_id)):
            problem = "it does not follow the move before it; moves are never changed, so somebody has gone round that"
            yield Finding("broken_moves", f"move {row['version']} of tag {row['tag']}", problem)
        for row in await self._database.read(lambda conn: conn.fetch(SQL.lost_tags, self._org_id)):
            mended = await self._mend_tag(row["name"]) if self._repair else None
            yield Finding("lost_tag", f"tag {row['name']}", "it has moves, and no place", mended)
        for row in await self._database.read(lambda conn: conn.fetch(SQL.astray_tags, self._org_id, None)):
            truth = self._truths.get(row["target_id"])
            if row["is_astray"] or truth is None or truth.workflow_id != row["workflow_id"]:
                yield await self._tag(row)

    async def _tag(self, row: Record) -> Finding:
        what = f"tag {row['name']}"
        if row["last_version"] is None:
            return Finding("astray_tag", what, "it has no moves")
        if not row["has_target"]:
            code, problem = "orphaned_tag", f"it is at {row['target_id']}, which is not there"
        elif not row["is_astray"]:
            code, problem = "wrong_workflow", f"it is noted as of {row['workflow_id']!r}, and at another workflow's"
        else:
            at, last = f"{row['target_id']}, move {row['version']}", f"{row['last_version']}, went to {row['to_id']}"
            code, problem = "astray_tag", f"it is at {at}, and its last move, {last}"
        return Finding(code, what, problem, await self._mend_tag(row["name"]) if self._repair else None)

    async def _mend_tag(self, name: str) -> str | None:
        async def mend(conn: Any) -> str | None:
            is_there = await conn.fetchval(SQL.lock_tag, self._org_id, name) is not None
            if is_there and not await conn.fetch(SQL.astray_tags, self._org_id, [name]):
                return "somebody else has moved it meanwhile"
            sound = await conn.fetchrow(SQL.last_sound_move, self._org_id, name)
            if sound is None:
                return None
            last, target = await conn.fetchrow(SQL.last_move, self._org_id, name), sound["to_id"]
            await conn.execute(SQL.mend_tag, self._org_id, name, target)
            # Nobody can tell whether a tag was protected whose row is lost: then it is, until somebody says otherwise.
            guarded = "" if is_there else f"; protected, unless you say `weft workflows protect {name} --off`"
            if last["verb"] == "delete" or last["to_id"] == target:
                return f"put to {target}, where its last move had put it{guarded}"
            back = target, sound["position"], self._actor, _MESSAGE
            await conn.fetchval(SQL.move_astray_tag, self._org_id, name, *back)
            return f"moved to {target}, the last place of it that is there{guarded}"

        async with explained(name):
            return await self._database.run(mend)

    # --- blobs ---

    async def _unreachable(self) -> AsyncIterator[Finding]:
        # Blobs are the same for all orgs: of one that no org uses nobody is told more than that it is there.
        row = await self._database.read(lambda conn: conn.fetchrow(SQL.unused_blobs, _GRACE, []))
        if row is not None and row["blobs"]:
            problem = f"no org uses {row['blobs']:,} of them, {row['bytes']:,} bytes; `weft workflows gc` removes them"
            yield Finding("unreachable_blob", "blobs", problem)


def in_order(lines: list[tuple[int, int | None, int | None]]) -> tuple[list[int], set[int]]:
    """Return the ids so that those come first of which others are made, and those that are made of themselves."""
    ids = {id for id, _, _ in lines}
    made_from = {id: {each for each in parents if each in ids} for id, *parents in lines}
    made_of: dict[int, list[int]] = {id: [] for id in ids}
    for id, parents in made_from.items():
        for parent in parents:
            made_of[parent].append(id)
    missing = {id: len(parents) for id, parents in made_from.items()}
    ordered = _peeled([id for id, _, _ in lines], missing, made_of)
    # What is left is on a circle, or made of what is: the latter goes from the other end.
    placed = set(ordered)
    rest = [id for id, _, _ in lines if id not in placed]
    open_children = {id: len(made_of[id]) for id in rest}
    circle = set(rest) - set(_peeled(rest, open_children, made_from))
    return ordered + rest, circle


def _peeled(ids: list[int], waits_for: dict[int, int], next_of: Mapping[int, Iterable[int]]) -> list[int]:
    """Return those that wait for nothing, then those that waited only for them, and so on."""
    peeled = [id for id in ids if waits_for[id] == 0]
    for id in peeled:  # which grows on the way
        for other in next_of[id]:
            if other in waits_for:
                waits_for[other] -= 1
                if waits_for[other] == 0:
                    peeled.append(other)
    return peeled


def _workflow_of(text: bytes, otherwise: str) -> str:
    data = orjson.loads(text)
    found = data.get("dag" if is_dag(data) else "workflow_id") if isinstance(data, dict) else None
    return found if isinstance(found, str) else otherwise
