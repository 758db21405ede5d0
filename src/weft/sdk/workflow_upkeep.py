"""The upkeep of the history: compaction, snapshots, the look through everything, the removal of what nobody needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from weft.core.checks import check_moment, check_span
from weft.core.errors import InvalidInput
from weft.core.json import Json, plain
from weft.history.model import Collected, Finding, Materialized, Pushed
from weft.queue import audit
from weft.queue.audit import AuditVerb
from weft.sdk.workflow_calls import WorkflowCalls, check_message

if TYPE_CHECKING:
    from weft.flow.patches import Op


class WorkflowUpkeep(WorkflowCalls):
    """What keeps the history small and whole."""

    async def compact(self, tag: str, *, expect: int | str | None = None) -> Pushed:
        """Make one version of a tag's patches; it means the same, and is no step to undo.

        Example::

            await client.workflows.compact("etl")
        """
        wish = await self._wish(tag, None, expect)
        async with self._hints(tag):
            return await (await self._changes()).compact(wish)

    async def snapshot(
        self,
        which: str | int,
        ops: Sequence[Op] | None = None,
        *,
        set: Mapping[str, Json] | None = None,
        at: datetime | None = None,
        message: str | None = None,
    ) -> Materialized:
        """Keep the whole document of a version, or what a patch makes of it, where no tag moves; made once, then found.

        Example::

            kept = await client.workflows.snapshot("etl", set={"nodes.fetch.params.size": 3})
            print(kept.snapshot_id, kept.data["nodes"]["fetch"])
        """
        from weft.flow.patches import check_ops, ops_setting
        from weft.history import snapshots

        if ops is not None and set is not None:
            raise InvalidInput("ops", "give either ops or set")
        # Copies, before anything is awaited: the caller may go on to change its own.
        wanted, ops = plain(dict(set or {}), "set"), None if ops is None else check_ops(list(ops))
        moment, reader = None if at is None else check_moment(at, "at"), await self._reader()
        head = await self._found(which, moment)
        if set is not None:
            data = await reader.document(head)
            ops = ops_setting(data, wanted)
        return await snapshots.take(reader, head, self._session.actor, ops, check_message(message), is_act=True)

    async def fsck(
        self, *, repair: bool = False, quick: bool = False, on_progress: Callable[[int], None] | None = None
    ) -> list[Finding]:
        """Look through the whole history, and return what does not agree; ``repair`` mends what follows from the rest.

        ``quick`` does not work out anew what each document means; ``on_progress`` is called with how many were looked
        at. Example::

            for finding in await client.workflows.fsck():
                print(finding.code, finding.what, finding.problem)
        """
        from weft.history.checking import Checker
        from weft.history.reading import Reader

        # One that remembers nothing: what this client has read before may not be there any more.
        self._read_by = None
        reader = Reader(self._session.database, await self._session.org_id(), lambda: self._session.blobs)
        checker = Checker(reader, self._session.actor, repair=repair, quick=quick)
        found = [finding async for finding in checker.run(on_progress)]
        if mended := sum(finding.mended is not None for finding in found):
            await self._record(AuditVerb.CHANGE, {"mended": mended})
        return found

    async def _count_artifacts(self) -> int:
        """Return how many artifacts `fsck` is to look at."""
        from weft.history.checking import SQL

        org_id = await self._session.org_id()
        return int(await self._session.database.read(lambda conn: conn.fetchval(SQL.count_lines, org_id)))

    async def gc(
        self, grace: timedelta | float = timedelta(days=1), *, dry_run: bool = False,
        on_progress: Callable[[int], None] | None = None,
    ) -> Collected:  # fmt: skip
        """Remove snapshots and blobs that nobody has used for ``grace``; with ``dry_run`` only say what they are.

        Example::

            print((await client.workflows.gc(dry_run=True)).bytes)
        """
        from weft.db.blobs import open_blobs
        from weft.history import collecting

        database, org_id = self._session.database, await self._session.org_id()
        found = await collecting.collect(
            database,
            org_id,
            open_blobs(database.settings),
            check_span(grace, "grace"),
            dry_run=dry_run,
            on_progress=on_progress,
        )
        if not dry_run and (found.snapshots or found.patches or found.blobs):
            await self._record(
                AuditVerb.PURGE, {"snapshots": found.snapshots, "patches": found.patches, "blobs": found.blobs}
            )
        return found

    async def _record(self, verb: AuditVerb, detail: Mapping[str, int]) -> None:
        """Note what was done to the history, in many small steps before."""
        org_id, actor = await self._session.org_id(), self._session.actor
        await self._session.database.run(
            lambda conn: audit.record_named(conn, org_id, actor, verb, "history", None, detail)
        )
