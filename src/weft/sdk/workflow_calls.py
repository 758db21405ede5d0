"""What the verbs of the history stand on: a reader, and the tags and versions that names stand for."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

from weft.core.checks import check_id, check_moment, check_number, check_text
from weft.core.errors import InvalidInput, NotFound
from weft.core.moments import moment_in
from weft.core.suggestions import did_you_mean
from weft.flow.names import PATH
from weft.history import artifacts, tags
from weft.history.changes import Changes
from weft.history.model import Tag, Wish
from weft.history.reading import Materials, Reader

if TYPE_CHECKING:
    from weft.db.database import type_Connection
    from weft.sdk.session import Session

T = TypeVar("T")
TAG = re.compile(PATH)
# A tag or a version, and then where the tag was after a move or at a moment, or how many changes back.
POINT = re.compile(r"([^@~]+)(?=[@~])(?:@(?:([0-9]{1,18})|([^~]+)))?(?:~([0-9]{0,6}))?")
# The beginning of a hash, as people name it, or all of it.
HASH = re.compile(r"[0-9a-f]{7,64}")
# Fewer digits than name a hash are those of the number of a move.
NUMBER = re.compile(r"[0-9]{1,6}")


class WorkflowCalls:
    """A session, as those see it who keep definitions in it."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._read_by: Reader | None = None

    async def _reader(self) -> Reader:
        session = self._session
        if self._read_by is None or self._read_by.database is not session.database:
            self._read_by = Reader(session.database, await session.org_id(), lambda: session.blobs)
        return self._read_by

    async def _changes(self) -> Changes:
        return Changes(await self._reader())

    async def _wish(
        self,
        tag: str,
        message: str | None,
        expect: int | str | None = None,
        *,
        force: bool = False,
        replaces: str | None = None,
        dry_run: bool = False,
    ) -> Wish:
        if replaces is not None:
            check_text(replaces, "replaces", 200)
        name, said = check_tag(tag), check_message(message)
        version, digest = await self._expected(expect)
        return Wish(name, self._session.actor, said, version, digest, force, replaces, dry_run)

    async def _expected(self, expect: int | str | None) -> tuple[int | None, str | None]:
        """Return which number of a move, or which whole hash, a caller expects a tag to be at."""
        if expect is None or not isinstance(expect, str):
            return (None if expect is None else check_number(expect, "expect", 0, 2**62)), None
        if NUMBER.fullmatch(expect) is not None:
            return int(expect), None
        if HASH.fullmatch(expect) is None:
            problem = f"{expect[:80]!r} is neither the number of a version nor a hash, of which 7 digits are enough"
            raise InvalidInput("expect", problem)
        org_id = await self._session.org_id()
        try:
            return None, (await self._read(lambda conn: artifacts.find(conn, org_id, expect, "expect")))[1]
        except NotFound:
            # No tag is at what is not there; many digits may be the number of a move yet.
            return (int(expect), None) if expect.isdecimal() else (None, expect.ljust(64, "0"))

    async def _read(self, look: Callable[[type_Connection], Awaitable[T]]) -> T:
        return await self._session.database.read(look)

    async def _run(self, statement: Callable[[type_Connection], Awaitable[T]]) -> T:
        return await self._session.database.run_alone(statement)

    @asynccontextmanager
    async def _hints(self, name: str) -> AsyncIterator[None]:
        """Say of a tag that is not there which one may be meant."""
        try:
            yield
        except NotFound as problem:
            if problem.kind != "tag":
                raise
            raise await self._no_tag(name) from None

    async def _no_tag(self, name: str, *, with_deleted: bool = False) -> NotFound:
        org_id = await self._session.org_id()
        there = await self._read(lambda conn: tags.trace(conn, org_id, name))
        if there is not None:
            whole_name, is_deleted = there
            if is_deleted and not with_deleted:
                undelete = f"`weft workflows undelete {whole_name}`"
                return NotFound("tag", f"{name!r}: it was deleted, {undelete} brings it back")
            return NotFound("tag", f"{name!r}: what {whole_name} is at is lost, `weft workflows fsck` tells of it")
        known = await self._read(lambda conn: tags.names(conn, org_id, with_deleted=with_deleted))
        # As people name main lines: what is nearly one of these is meant for it, and not for a line beside it.
        known += [each.removesuffix("/main") for each in known if each.endswith("/main")]
        return NotFound("tag", f"{name!r}.{did_you_mean(name, known)}".rstrip("."))

    async def _resolve(self, which: str | int) -> tuple[str | None, int]:
        """Return the tag that something names, if it names one, and the version that is meant.

        A text is a tag if there is one of that name, else an id if it is a long number, else the beginning of a hash.
        """
        if not isinstance(which, str):
            return None, check_version(which, "version")
        if (point := POINT.fullmatch(which)) is not None:
            return None, await self._point(*point.groups())
        if (tag := await self._live(check_tag(which))) is not None:
            return tag.name, tag.target_id
        if is_id(which):
            return None, check_version(which, "version")
        return None, await self._hashed(which)

    async def _point(self, name: str, move: str | None, moment: str | None, back: str | None) -> int:
        """Return the version at a point: where a tag was after a move or at a moment, so many changes back."""
        found = (
            (await self._resolve(name))[1] if move is None and moment is None else await self._was(name, move, moment)
        )
        if back is None:
            return found
        steps, org_id = int(back or 1), await self._session.org_id()
        return await self._read(lambda conn: artifacts.back(conn, org_id, found, steps))

    async def _was(self, name: str, move: str | None, moment: str | None) -> int:
        """Return where a tag was after its move of a number, or at a moment."""
        known, org_id = check_tag(name), await self._session.org_id()
        if move is not None:
            number = check_number(int(move), "version", 1, 2**62)
            moves = await self._read(lambda conn: tags.moves(conn, org_id, known, before=number + 1, limit=1))
            if not moves or moves[0].version != number or moves[0].to_id is None:
                await self._tag(known)
                raise NotFound("move", f"{number} of tag {known} that led somewhere")
            return moves[0].to_id
        try:
            at = check_moment(moment_in(str(moment)), "version")
        except (ValueError, OverflowError):
            problem = f"{moment!r} is not a moment; write for example {name}@2026-11-30T09:00 or '{name}@2h ago'"
            raise InvalidInput("version", problem) from None
        found = await (await self._reader()).find(tag=known, at=at)
        if found is None:
            await self._tag(known)
            raise NotFound("move", f"of tag {known} up to {at}")
        return int(found.row["id"])

    async def _hashed(self, which: str) -> int:
        """Return the newest version whose hash begins so; raises `NotFound`."""
        if HASH.fullmatch(which) is None:
            raise await self._no_tag(which)
        org_id = await self._session.org_id()
        return (await self._read(lambda conn: artifacts.find(conn, org_id, which)))[0]

    async def _tag(self, name: str) -> Tag:
        known, org_id = check_tag(name), await self._session.org_id()
        async with self._hints(name):
            return await self._read(lambda conn: tags.show(conn, org_id, known))

    async def _live(self, name: str) -> Tag | None:
        """Return a tag, unless it is deleted or was never there."""
        org_id = await self._session.org_id()
        with suppress(NotFound):
            return await self._read(lambda conn: tags.show(conn, org_id, name))
        return None

    async def _found(self, which: str | int, at: datetime | None) -> Materials:
        """Return the document that something names, at a moment if it is a tag."""
        reader = await self._reader()
        if isinstance(which, str) and POINT.fullmatch(which) is None:
            found = await reader.find(tag=check_tag(which), at=at)
            if found is not None:
                return found
        name, artifact_id = await self._resolve(which)
        if at is not None:
            if name is None:
                raise InvalidInput("at", "goes with a tag")
            raise NotFound("move", f"of tag {name} up to {at}")
        found = await reader.find(artifact_id=artifact_id)
        return found if found is not None else await reader.of(await self._snapshot_of_job(artifact_id))

    async def _snapshot_of_job(self, job_id: int) -> int:
        """Return the whole document that a job goes by; an id that is none of a job is returned as it is."""
        from weft.jobs.submit import SQL

        org_id = await self._session.org_id()
        row = await self._read(lambda conn: conn.fetchrow(SQL.show, org_id, [job_id]))
        return job_id if row is None or row["snapshot_id"] is None else int(row["snapshot_id"])


def is_id(which: str) -> bool:
    """Whether a text that names no tag is the id of a version, and not a hash."""
    return which.isdecimal() and 12 < len(which) < 20


def check_version(value: object, field: str) -> int:
    """The id of a version or a patch."""
    return check_id(value, field, shown_by="weft workflows log TAG")


def check_tag(value: object) -> str:
    """A tag's name: parts of letters, digits, _, - and ., with / between them."""
    name = check_text(value, "tag", 200)
    if TAG.fullmatch(name) is None:
        raise InvalidInput("tag", f"{name!r} is no name: letters, digits, _, - and .; / between parts")
    return name


def check_message(message: object) -> str | None:
    """Why something is done: a text, or nothing."""
    return None if message is None else check_text(message, "message", 10_000)
