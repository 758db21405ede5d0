"""The part of the client that keeps workflow definitions: push, patch, tag, undo, merge, look back."""

from __future__ import annotations

import builtins
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from weft.core.checks import check_id, check_moment, check_number, check_text
from weft.core.errors import InvalidInput, NotFound, did_you_mean
from weft.core.json import Json
from weft.flow.diff import Diff, diff
from weft.flow.document import Document
from weft.flow.model import PATH, WorkflowDefinition
from weft.flow.patches import Op, op_for
from weft.flow.reading import check_file, sound
from weft.flow.validation import check_document
from weft.flow.validation import check_text as check_definition
from weft.history import artifacts, story, tags
from weft.history.changes import Changes, Wish
from weft.history.model import Artifact, Materialized, Pushed, Tag, TagMove

if TYPE_CHECKING:
    from weft.db.database import type_Connection
    from weft.flow.problems import Path as FieldPath
    from weft.sdk.session import Session

T = TypeVar("T")
_TAG = re.compile(PATH)
_HASH = re.compile(r"[0-9a-f]{8,64}")
_PREFER = (None, "ours", "theirs")
Definition = Path | str | bytes | Mapping[str, Json] | WorkflowDefinition


class Workflows:
    """What is done with definitions; `Client.workflows`.

    A tag is a name such as ``etl/main``; a bare ``etl`` means ``etl/main``. ``expect``, the version number of a tag or
    the hash of what it is at, refuses a change when somebody else has moved the tag; ``force`` moves a protected one.
    """

    def __init__(self, session: Session) -> None:
        self._session = session

    async def push(
        self, definition: Definition, *, tag: str | None = None, message: str | None = None,
        expect: int | str | None = None, force: bool = False,
    ) -> Pushed:  # fmt: skip
        """Keep a definition, and move a tag to it: ``<workflow_id>/main`` unless said otherwise.

        Example::

            pushed = await client.workflows.push(Path("flow.yaml"), message="first")
            print(pushed.tag, pushed.version_hash)
        """
        data = _document(definition)
        name = f"{data['workflow_id']}/main" if tag is None else check_tag(tag)
        return await (await self._changes()).push(self._wish(name, message, expect, force), data)

    async def patch(
        self, tag: str, ops: Sequence[Op] | None = None, *, set: Mapping[str, Json] | None = None,
        message: str | None = None, expect: int | str | None = None, force: bool = False,
    ) -> Pushed:  # fmt: skip
        """Change a definition by a JSON Patch (RFC 6902), or by fields to ``set``; the result must be sound.

        Example::

            await client.workflows.patch("etl", set={"nodes.fetch.params.size": 3}, message="larger")
        """
        if (ops is None) == (set is None):
            raise InvalidInput("ops", "give either ops or set")
        wish = self._wish(await self._tag_name(tag), message, expect, force)
        changes = await self._changes()
        if ops is not None:
            return await changes.patch(wish, ops)
        wanted = dict(set or {})
        return await changes.edit(wish, lambda data: [op_for(data, field, value) for field, value in wanted.items()])

    async def list(
        self, *, workflow_id: str | None = None, after: str = "", limit: int = 100, with_deleted: bool = False
    ) -> builtins.list[Tag]:
        """Return tags by name, or those of one workflow; pass the last name as ``after`` for the next page.

        Example::

            print([tag.name for tag in await client.workflows.list()])
        """
        check_number(limit, "limit", 1, 10_000)
        org_id = await self._session.org_id()
        return await self._read(
            lambda conn: tags.list_tags(
                conn, org_id, workflow_id=workflow_id, after=after, limit=limit, with_deleted=with_deleted
            )
        )

    async def tag(self, name: str) -> Tag:
        """Return where a tag stands; raises `NotFound`.

        Example::

            print((await client.workflows.tag("etl/main")).moved_by)
        """
        known, org_id = await self._tag_name(name), await self._session.org_id()
        return await self._read(lambda conn: tags.show(conn, org_id, known))

    async def show(self, which: str | int, *, at: datetime | None = None) -> Materialized:
        """Return the whole document of a tag, now or ``at`` a moment, or of a version by its id or hash.

        Example::

            shown = await client.workflows.show("etl")
            print(shown.version_hash, shown.data["nodes"])
        """
        org_id = await self._session.org_id()
        moment = None if at is None else check_moment(at, "at")
        name, artifact_id = await self._resolve(which)
        if moment is not None and name is None:
            raise InvalidInput("at", "goes with a tag")
        found = await self._read(
            lambda conn: artifacts.materials(
                conn, org_id, artifact_id=None if moment else artifact_id, tag=name, at=moment
            )
        )
        if found is None:
            raise NotFound("version", f"of tag {name} at {moment}" if moment else which)
        return await found.materialized(lambda: self._session.blobs, name)

    async def log(self, which: str | int, *, before: int | None = None, limit: int = 50) -> builtins.list[Artifact]:
        """Return a version and those that it was made from, newest first, with the tags that stand at them.

        Example::

            for artifact in await client.workflows.log("etl"):
                print(artifact.id, artifact.kind, artifact.actor, artifact.message)
        """
        check_number(limit, "limit", 1, 10_000)
        org_id = await self._session.org_id()
        _, artifact_id = await self._resolve(which)
        last = artifacts.FROM_NEWEST if before is None else check_id(before, "before")
        found = await self._read(lambda conn: artifacts.log(conn, org_id, artifact_id, before=last, limit=limit))
        at = await self._read(lambda conn: tags.at_artifacts(conn, org_id, [each.id for each in found]))
        return [replace(each, tags=tuple(at.get(each.id, ()))) for each in found]

    async def moves(self, tag: str, *, before: int | None = None, limit: int = 50) -> builtins.list[TagMove]:
        """Return where a tag has been, newest first: who moved it, when, why.

        Example::

            print([(move.verb, move.moved_by) for move in await client.workflows.moves("etl")])
        """
        check_number(limit, "limit", 1, 10_000)
        name, org_id = await self._tag_name(tag, with_deleted=True), await self._session.org_id()
        last = tags.FROM_NEWEST if before is None else check_number(before, "before", 1, tags.FROM_NEWEST)
        return await self._read(lambda conn: tags.moves(conn, org_id, name, before=last, limit=limit))

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
        self, tag: str, steps: int = 1, *, message: str | None = None, expect: int | None = None, force: bool = False
    ) -> Tag:
        """Take back the last moves of a tag, as an editor does; `redo` makes them again.

        Example::

            await client.workflows.undo("etl")
        """
        check_number(steps, "steps", 1, 1000)
        name, org_id = await self._tag_name(tag), await self._session.org_id()
        return await self._run(
            lambda conn: tags.undo(
                conn, org_id, name, steps, self._session.actor, message=message, expected_version=expect, force=force
            )
        )

    async def redo(
        self, tag: str, steps: int = 1, *, message: str | None = None, expect: int | None = None, force: bool = False
    ) -> Tag:
        """Make moves again that were taken back.

        Example::

            await client.workflows.redo("etl")
        """
        check_number(steps, "steps", 1, 1000)
        name, org_id = await self._tag_name(tag), await self._session.org_id()
        return await self._run(
            lambda conn: tags.redo(
                conn, org_id, name, steps, self._session.actor, message=message, expected_version=expect, force=force
            )
        )

    async def move(
        self,
        tag: str,
        to: str | int,
        *,
        message: str | None = None,
        expect: int | str | None = None,
        force: bool = False,
    ) -> Tag:
        """Move a tag to what another tag, an id or a hash names; it is made when it is not there.

        Example::

            await client.workflows.move("etl/prod", "etl/main", message="release")
        """
        name, org_id = check_tag(tag), await self._session.org_id()
        _, target = await self._resolve(to)
        version, digest = _expected(expect)
        if digest is not None and len(digest) < 64:
            raise InvalidInput("expect", "give the whole hash, of 64 digits")
        hash_ = None if digest is None else bytes.fromhex(digest)

        async def write(conn: type_Connection) -> Tag:
            return await tags.move(
                conn, org_id, name, target, self._session.actor, message=message, expected_version=version,
                expected_hash=hash_, force=force,
            )  # fmt: skip

        return await self._run(write)

    async def branch(self, new: str, source: str | int, *, message: str | None = None) -> Tag:
        """Make a new tag at what another tag, an id or a hash names; raises `TagConflict` when there is one.

        Example::

            await client.workflows.branch("etl/faster", "etl/main")
        """
        return await self.move(new, source, message=message, expect=0)

    async def merge(
        self,
        source: str | int,
        into: str,
        *,
        prefer: str | None = None,
        message: str | None = None,
        force: bool = False,
    ) -> Pushed:
        """Take over into a tag what another line has changed since both parted, field by field.

        Raises `MergeConflict`, and changes nothing, when both changed a field differently, unless ``prefer`` says
        ``ours`` or ``theirs``. Example::

            await client.workflows.merge("etl/faster", into="etl/main")
        """
        name = await self._tag_name(into)
        _, ours = await self._resolve(name)
        _, theirs = await self._resolve(source)
        org_id = await self._session.org_id()
        base = await story.common_ancestor(self._session.database, org_id, ours, theirs)
        wish = self._wish(name, message or f"merge {source}", None, force)
        return await (await self._changes()).merge(wish, theirs, base, _preference(prefer))

    async def revert(
        self, tag: str, change: int | str, *, prefer: str | None = None, message: str | None = None, force: bool = False
    ) -> Pushed:
        """Take back what one change has done, and keep what came after it.

        Example::

            await client.workflows.revert("etl", artifact.id)
        """
        name, org_id, id = await self._tag_name(tag), await self._session.org_id(), check_id(change, "change")
        artifact = await self._read(lambda conn: artifacts.show(conn, org_id, id))
        if artifact.parent_id is None:
            raise InvalidInput("change", f"{id} is the first: there is nothing before it")
        wish = self._wish(name, message or f"revert {id}", None, force)
        return await (await self._changes()).revert(wish, id, artifact.parent_id, _preference(prefer))

    async def delete(self, tag: str, *, message: str | None = None, force: bool = False) -> Tag:
        """Take a tag away; what it was at stays, and `undelete` brings it back.

        Example::

            await client.workflows.delete("etl/faster")
        """
        name, org_id = await self._tag_name(tag), await self._session.org_id()
        return await self._run(
            lambda conn: tags.delete(conn, org_id, name, self._session.actor, message=message, force=force)
        )

    async def undelete(self, tag: str, *, message: str | None = None) -> Tag:
        """Bring back a tag that was deleted.

        Example::

            await client.workflows.undelete("etl/faster")
        """
        name, org_id = check_tag(tag), await self._session.org_id()
        return await self._run(lambda conn: tags.undelete(conn, org_id, name, self._session.actor, message=message))

    async def protect(self, tag: str, is_protected: bool = True) -> None:
        """Let a tag be moved only by ``force``, or freely again.

        Example::

            await client.workflows.protect("etl/prod")
        """
        name, org_id = await self._tag_name(tag), await self._session.org_id()
        await self._run(lambda conn: tags.protect(conn, org_id, name, is_protected))

    async def compact(self, tag: str) -> Pushed:
        """Make one version of a tag's patches; it means the same, and is no step to undo.

        Example::

            await client.workflows.compact("etl")
        """
        name = await self._tag_name(tag)
        return await (await self._changes()).compact(name, self._session.actor)

    # --- what the verbs stand on ---

    async def _changes(self) -> Changes:
        session = self._session
        return Changes(session.database, await session.org_id(), lambda: session.blobs)

    def _wish(self, tag: str, message: str | None, expect: int | str | None, force: bool) -> Wish:
        if message is not None:
            check_text(message, "message", 10_000)
        version, digest = _expected(expect)
        return Wish(tag, self._session.actor, message, version, digest, force)

    async def _read(self, verb: Callable[[type_Connection], Awaitable[T]]) -> T:
        return await self._session.database.read(verb)

    async def _run(self, verb: Callable[[type_Connection], Awaitable[T]]) -> T:
        return await self._session.database.run(verb)

    async def _tag_name(self, name: str, *, with_deleted: bool = False) -> str:
        """Return the tag that a name means: itself, or that of a workflow's main line."""
        check_tag(name)
        org_id = await self._session.org_id()
        wanted = [name, f"{name}/main"]
        found = await self._read(lambda conn: tags.known(conn, org_id, wanted, with_deleted=with_deleted))
        if found:
            return name if name in found else found[0]
        known = await self._read(lambda conn: tags.names(conn, org_id))
        raise NotFound("tag", f"{name!r}.{did_you_mean(name, known)}".rstrip("."))

    async def _resolve(self, which: str | int) -> tuple[str | None, int]:
        """Return the tag that something names, if it names one, and the version that is meant."""
        if isinstance(which, int) or (isinstance(which, str) and which.isdecimal() and len(which) > 12):
            return None, check_id(which, "version")
        org_id = await self._session.org_id()
        try:
            name = await self._tag_name(which)
        except NotFound:
            if _HASH.fullmatch(which) is None:
                raise
            return None, await self._read(lambda conn: artifacts.find(conn, org_id, which))
        tag: Tag = await self._read(lambda conn: tags.show(conn, org_id, name))
        return name, tag.target_id


def check_tag(value: object) -> str:
    """A tag's name: parts of letters, digits, _, - and ., with / between them."""
    name = check_text(value, "tag", 200)
    if _TAG.fullmatch(name) is None:
        raise InvalidInput("tag", f"{name!r} is no name: letters, digits, _, - and .; / between parts")
    return name


def _expected(expect: int | str | None) -> tuple[int | None, str | None]:
    if expect is None or isinstance(expect, int):
        return (None if expect is None else check_number(expect, "expect", 0, 2**62)), None
    if _HASH.fullmatch(expect) is None or len(expect) % 2:
        raise InvalidInput("expect", f"{expect!r} is neither the number of a version nor a hash")
    return None, expect


def _preference(prefer: str | None) -> str | None:
    if prefer not in _PREFER:
        raise InvalidInput("prefer", f"{prefer!r} is neither 'ours' nor 'theirs'")
    return prefer


def _document(definition: Definition) -> dict[str, Any]:
    """Return the document of a definition in any of its forms; raises `InvalidDefinition` with all its problems."""
    if isinstance(definition, WorkflowDefinition):
        definition = definition.model_dump(by_alias=True, exclude_unset=True, mode="json")
    if isinstance(definition, Path):
        checked = check_file(definition)
    elif isinstance(definition, (str, bytes)):
        checked = check_definition(definition)
    else:
        checked = check_document(Document(dict(definition)))
    sound(checked)
    return dict(checked.document.data)
