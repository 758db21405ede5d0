"""The part of the client that keeps workflow definitions: push, patch, tag, undo, merge, look back."""

from __future__ import annotations

import builtins
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.core.checks import check_moment, check_number, check_text
from weft.core.errors import InvalidInput, NotFound, StateConflict, TagConflict
from weft.core.json import Json, plain
from weft.flow.diff import Diff, diff
from weft.flow.document import Document
from weft.flow.model import WorkflowDefinition
from weft.flow.patches import Op, check_ops, ops_setting
from weft.flow.reading import read_file, read_text, sound
from weft.flow.validation import check_document
from weft.history import artifacts, story, tags
from weft.history.model import Artifact, Materialized, Pushed, Tag, TagMove, Wish
from weft.sdk.authoring.workflow import Workflow as PythonWorkflow
from weft.sdk.workflow_calls import HASH, POINT, TAG, check_tag, check_version, is_id
from weft.sdk.workflow_upkeep import WorkflowUpkeep
from weft.worker.registry import Handler

if TYPE_CHECKING:
    from weft.flow.problems import Path as FieldPath

_PREFER = (None, "ours", "theirs")
Definition = Path | str | bytes | Mapping[str, Json] | WorkflowDefinition | PythonWorkflow[..., Any]


class Workflows(WorkflowUpkeep):
    """What is done with definitions; `Client.workflows`.

    A tag is a name such as ``etl/main``; a bare ``etl`` means ``etl/main``. ``expect``, the version number of a tag or
    the hash of what it is at (7 digits of it are enough), refuses a change when somebody else has moved the tag;
    ``force`` moves a protected one; ``dry_run`` changes nothing, and returns what would become of it. Where a version
    is asked for, a point may be named as well: ``etl~2`` is two changes before what ``etl`` is at, ``etl@12`` where the
    tag was after its move 12, ``etl@2026-11-15T10:00`` where it was then.
    """

    async def push(
        self,
        definition: Definition,
        *,
        tag: str | None = None,
        message: str | None = None,
        expect: int | str | None = None,
        force: bool = False,
        replaces: str | None = None,
        dry_run: bool = False,
    ) -> Pushed:
        """Keep a definition, and move a tag to it: ``<workflow_id>/main`` unless said otherwise.

        A ``tag`` without a slash that is not there yet is the workflow's own: ``next`` is ``etl/next``. A tag of
        another workflow is moved only when ``replaces`` names that. Example::

            pushed = await client.workflows.push(Path("flow.yaml"), message="first")
            print(pushed.tag, pushed.version_hash)
        """
        document = document_of(definition)
        name = await self._line(document, None if tag is None else check_tag(tag))
        wish = await self._wish(name, message, expect, force=force, replaces=replaces, dry_run=dry_run)
        return await (await self._changes()).push(wish, document)

    async def _line(self, document: Document, tag: str | None) -> str:
        """Return the tag that a push is meant for: a name without a slash means what is there, or a line of its own."""
        workflow_id = _workflow_id(document)
        if tag is None or tag == workflow_id:
            return tag or f"{workflow_id}/main"
        if "/" in tag or await (await self._reader()).find(tag=tag) is not None:
            return tag
        return f"{workflow_id}/{tag}"

    async def patch(
        self,
        tag: str,
        ops: Sequence[Op] | None = None,
        *,
        set: Mapping[str, Json] | None = None,
        message: str | None = None,
        expect: int | str | None = None,
        force: bool = False,
        dry_run: bool = False,
    ) -> Pushed:
        """Change a definition by a JSON Patch (RFC 6902), or by fields to ``set``; the result must be sound.

        Example::

            await client.workflows.patch("etl", set={"nodes.fetch.params.size": 3}, message="larger")
        """
        if (ops is None) == (set is None):
            raise InvalidInput("ops", "give either ops or set")
        # Copies, before anything is awaited: the caller may go on to change its own.
        wanted, ops = plain(dict(set or {}), "set"), None if ops is None else check_ops(builtins.list(ops))
        wish = await self._wish(tag, message, expect, force=force, dry_run=dry_run)
        changes = await self._changes()
        async with self._hints(tag):
            if ops is not None:
                return await changes.patch(wish, ops)
            return await changes.edit(wish, lambda data: ops_setting(data, wanted))

    async def list(
        self, *, workflow_id: str | None = None, after: str = "", limit: int = 100, with_deleted: bool = False
    ) -> builtins.list[Tag]:
        """Return tags by name, or those of one workflow; pass the last name as ``after`` for the next page.

        Example::

            print([tag.name for tag in await client.workflows.list()])
        """
        check_number(limit, "limit", 1, 10_000)
        if workflow_id is not None:
            check_text(workflow_id, "workflow_id", 200)
        if after:
            check_text(after, "after", 200)
        org_id = await self._session.org_id()
        return await self._read(
            lambda conn: tags.list_tags(
                conn, org_id, workflow_id=workflow_id, after=after, limit=limit, with_deleted=with_deleted
            )
        )

    async def tag(self, tag: str) -> Tag:
        """Return where a tag stands; raises `NotFound`.

        Example::

            print((await client.workflows.tag("etl/main")).moved_by)
        """
        return await self._tag(tag)

    async def show(self, which: str | int, *, at: datetime | None = None, materialize: bool = True) -> Materialized:
        """Return the whole document of a tag, now or ``at`` a moment, or of a version by its id or hash.

        Without ``materialize`` its ``data`` is empty: only what it is is looked up. Example::

            shown = await client.workflows.show("etl")
            print(shown.version_hash, shown.data["nodes"])
        """
        moment = None if at is None else check_moment(at, "at")
        found = await self._found(which, moment)
        return await (await self._reader()).materialized(found, with_data=materialize)

    async def log(self, which: str | int, *, before: int | None = None, limit: int = 50) -> builtins.list[Artifact]:
        """Return a version and those that it was made from, newest first, with the tags that stand at them.

        Example::

            for artifact in await client.workflows.log("etl"):
                print(artifact.id, artifact.kind, artifact.actor, artifact.message)
        """
        check_number(limit, "limit", 1, 10_000)
        org_id = await self._session.org_id()
        _, artifact_id = await self._resolve(which)
        below = None if before is None else check_version(before, "before")
        found = await self._read(lambda conn: artifacts.log(conn, org_id, artifact_id, before=below, limit=limit))
        return await self._with_tags(found)

    async def artifacts(
        self, *, workflow_id: str | None = None, before: int | None = None, limit: int = 50
    ) -> builtins.list[Artifact]:
        """Return all that is kept, newest first, whether a tag leads to it or not; ``before`` goes on below an id.

        So a version is found again that no tag stands at any more. Example::

            for artifact in await client.workflows.artifacts(workflow_id="etl"):
                print(artifact.id, artifact.kind, artifact.tags)
        """
        check_number(limit, "limit", 1, 10_000)
        if workflow_id is not None:
            check_text(workflow_id, "workflow_id", 200)
        below = None if before is None else check_version(before, "before")
        org_id = await self._session.org_id()
        return await self._with_tags(
            await self._read(
                lambda conn: artifacts.list_artifacts(conn, org_id, workflow_id=workflow_id, before=below, limit=limit)
            )
        )

    async def artifact(self, artifact_id: int) -> Artifact:
        """Return what a version, patch or snapshot is, without its document.

        Example::

            print((await client.workflows.artifact(pushed.artifact_id)).kind)
        """
        key, org_id = check_version(artifact_id, "artifact_id"), await self._session.org_id()
        found = await self._read(lambda conn: artifacts.show(conn, org_id, key))
        return (await self._with_tags([found]))[0]

    async def _with_tags(self, found: builtins.list[Artifact]) -> builtins.list[Artifact]:
        """Return artifacts with the tags that stand at them."""
        org_id = await self._session.org_id()
        at = await self._read(lambda conn: tags.at_artifacts(conn, org_id, [each.id for each in found]))
        return [replace(each, tags=tuple(at.get(each.id, ()))) for each in found]

    async def moves(self, tag: str, *, before: int | None = None, limit: int = 50) -> builtins.list[TagMove]:
        """Return where a tag has been, newest first: who moved it, when, why.

        Example::

            print([(move.verb, move.moved_by) for move in await client.workflows.moves("etl")])
        """
        check_number(limit, "limit", 1, 10_000)
        name, org_id = check_tag(tag), await self._session.org_id()
        last = tags.FROM_NEWEST if before is None else check_number(before, "before", 1, tags.FROM_NEWEST)
        found = await self._read(lambda conn: tags.moves(conn, org_id, name, before=last, limit=limit))
        if not found and before is None:
            raise await self._no_tag(name, with_deleted=True)
        return found

    async def diff(self, old: str | int, new: str | int) -> Diff:
        """Return what differs between two versions, by node.

        Example::

            found = await client.workflows.diff("etl/prod", "etl/main")
            print(sorted(found.changed))
        """
        return diff((await self.show(old)).data, (await self.show(new)).data)

    async def blame(self, which: str | int) -> dict[FieldPath, Artifact]:
        """Return for each field the change that last touched it.

        Example::

            for path, artifact in (await client.workflows.blame("etl")).items():
                print(path, artifact.actor)
        """
        org_id = await self._session.org_id()
        _, artifact_id = await self._resolve(which)
        return await story.blame(self._session.database, org_id, artifact_id, lambda: self._session.blobs)

    async def undo(
        self,
        tag: str,
        steps: int = 1,
        *,
        message: str | None = None,
        expect: int | str | None = None,
        force: bool = False,
    ) -> Tag:
        """Take back the last moves of a tag, as an editor does; `redo` makes them again.

        Example::

            await client.workflows.undo("etl")
        """
        return await self._step(tags.undo, steps, await self._wish(tag, message, expect, force=force))

    async def redo(
        self,
        tag: str,
        steps: int = 1,
        *,
        message: str | None = None,
        expect: int | str | None = None,
        force: bool = False,
    ) -> Tag:
        """Make moves again that were taken back.

        Example::

            await client.workflows.redo("etl")
        """
        return await self._step(tags.redo, steps, await self._wish(tag, message, expect, force=force))

    async def _step(self, step: Callable[..., Awaitable[Tag]], steps: int, wish: Wish) -> Tag:
        check_number(steps, "steps", 1, 1000)
        org_id = await self._session.org_id()
        async with self._hints(wish.tag):
            return await self._run(lambda conn: step(conn, org_id, wish, steps))

    async def move(
        self,
        tag: str,
        to: str | int,
        *,
        message: str | None = None,
        expect: int | str | None = None,
        force: bool = False,
        replaces: str | None = None,
    ) -> Tag:
        """Move a tag to what another tag, an id or a hash names; it is made when it is not there.

        A tag of another workflow is moved only when ``replaces`` names that. Example::

            await client.workflows.move("etl/prod", "etl/main", message="release")
        """
        wish = await self._wish(tag, message, expect, force=force, replaces=replaces)
        org_id = await self._session.org_id()
        _, target = await self._resolve(to)
        return await self._run(lambda conn: tags.move(conn, org_id, wish, target))

    async def branch(self, new: str, source: str | int, *, message: str | None = None) -> Tag:
        """Make a new tag at what another tag, an id or a hash names; raises `TagConflict` when there is one.

        Example::

            await client.workflows.branch("etl/faster", "etl/main")
        """
        try:
            return await self.move(new, source, message=message, expect=0)
        except TagConflict as problem:
            if problem.why != "moved":
                raise
            raise TagConflict(problem.tag, "there", problem.now) from None

    async def merge(
        self,
        source: str | int,
        into: str,
        *,
        prefer: str | None = None,
        message: str | None = None,
        expect: int | str | None = None,
        force: bool = False,
        dry_run: bool = False,
    ) -> Pushed:
        """Take over into a tag what another line has changed since both parted, field by field.

        Raises `MergeConflict`, and changes nothing, when both changed a field differently, unless ``prefer`` says
        ``ours`` or ``theirs``. Example::

            await client.workflows.merge("etl/faster", into="etl/main")
        """
        wish = await self._wish(into, message or f"merge {source}", expect, force=force, dry_run=dry_run)
        _, theirs = await self._resolve(source)
        async with self._hints(into):
            return await (await self._changes()).merge(wish, theirs, _preference(prefer))

    async def revert(
        self,
        tag: str,
        change: int | str,
        *,
        prefer: str | None = None,
        message: str | None = None,
        expect: int | str | None = None,
        force: bool = False,
        dry_run: bool = False,
    ) -> Pushed:
        """Take back what one change has done, and keep what came after it.

        Example::

            await client.workflows.revert("etl", artifact.id)
        """
        name, org_id, id = check_tag(tag), await self._session.org_id(), await self._change_id(change)
        artifact = await self._read(lambda conn: artifacts.show(conn, org_id, id))
        if artifact.parent_id is None:
            await self._tag(name)
            raise InvalidInput("change", f"{id} is the first: there is nothing before it")
        wish = await self._wish(name, message or f"revert {id}", expect, force=force, dry_run=dry_run)
        async with self._hints(name):
            return await (await self._changes()).revert(wish, id, artifact.parent_id, _preference(prefer))

    async def _change_id(self, change: int | str) -> int:
        """Return the id of a change that is named by it, by its hash, or as the point at which it is the last."""
        if isinstance(change, str) and POINT.fullmatch(change):
            return (await self._resolve(change))[1]
        if isinstance(change, str) and HASH.fullmatch(change) and not is_id(change):
            return await self._hashed(change)
        return check_version(change, "change")

    async def delete(
        self, tag: str, *, message: str | None = None, expect: int | str | None = None, force: bool = False
    ) -> Tag:
        """Take a tag away; what it was at stays, and `undelete` brings it back.

        Example::

            await client.workflows.delete("etl/faster")
        """
        wish, org_id = await self._wish(tag, message, expect, force=force), await self._session.org_id()
        async with self._hints(tag):
            return await self._run(lambda conn: tags.delete(conn, org_id, wish))

    async def undelete(self, tag: str, *, message: str | None = None, expect: int | str | None = None) -> Tag:
        """Bring back a tag that was deleted.

        Example::

            await client.workflows.undelete("etl/faster")
        """
        wish, org_id = await self._wish(tag, message, expect), await self._session.org_id()
        try:
            return await self._session.database.run(lambda conn: tags.undelete(conn, org_id, wish))
        except NotFound:
            if (live := await self._live(tag)) is not None:
                raise StateConflict("undelete", live.name, "live", ["deleted"], kind="tag") from None
            raise await self._no_tag(tag, with_deleted=True) from None

    async def protect(self, tag: str, is_protected: bool = True, *, expect: int | str | None = None) -> str:
        """Let a tag be moved only by ``force``, or freely again; return its whole name. `Client.audit` tells who did.

        Example::

            await client.workflows.protect("etl/prod")
        """
        wish, org_id = await self._wish(tag, None, expect), await self._session.org_id()
        if not isinstance(is_protected, bool):
            raise InvalidInput("is_protected", "must be True or False")
        async with self._hints(tag):
            return await self._session.database.run(lambda conn: tags.protect(conn, org_id, wish, is_protected))


def _preference(prefer: str | None) -> str | None:
    if prefer not in _PREFER:
        raise InvalidInput("prefer", f"{prefer!r} is neither 'ours' nor 'theirs'")
    return prefer


def document_of(definition: Definition) -> Document:
    """Return the document of a definition in any of its forms; raises `InvalidDefinition` when it cannot be read."""
    if isinstance(definition, WorkflowDefinition):
        return Document(definition.model_dump(by_alias=True, exclude_unset=True, mode="json"))
    if isinstance(definition, PythonWorkflow):
        return Document(definition.document)
    if isinstance(definition, Path):
        return read_file(definition)
    if isinstance(definition, (str, bytes)):
        return read_text(definition)
    if isinstance(definition, Handler):
        raise InvalidInput(
            "definition", f"{definition.name} is a task: enqueue it, or call it in a function with @weft.workflow"
        )
    if not isinstance(definition, Mapping):
        advice = ": give it @weft.workflow" if callable(definition) else ""
        raise InvalidInput(
            "definition", f"must be a file, a text, a mapping or a workflow, not {type(definition).__name__}{advice}"
        )
    # A copy in plain JSON: the caller's own may change, or hold what JSON has not.
    return Document(plain(dict(definition), "definition"))


def _workflow_id(document: Document) -> str:
    name = document.data.get("workflow_id") if isinstance(document.data, dict) else None
    if not isinstance(name, str) or TAG.fullmatch(name) is None:
        sound(check_document(document))
    return str(name)
