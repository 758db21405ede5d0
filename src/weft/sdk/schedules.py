"""The part of the client with which workflows are made to begin by themselves."""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import orjson

from weft.core.checks import check_id, check_number
from weft.core.errors import InvalidInput
from weft.core.json import check_size, plain
from weft.flow.budget import ExpressionError
from weft.flow.document import Document
from weft.flow.reading import sound
from weft.flow.validation import check_document
from weft.jobs.model import JobHandle
from weft.live import schedules
from weft.live.schedules import Backfill, Declared, Schedule, Wanted, inputs_at

if TYPE_CHECKING:
    from weft.sdk.client import Client


class Schedules:
    """What is done with schedules; `Client.schedules`."""

    def __init__(self, session: Client) -> None:
        self._session = session

    async def add(
        self, tag: str, *, name: str | None = None, cron: str | None = None,
        every: float | timedelta | None = None, timezone: str = "UTC", inputs: Mapping[str, Any] | None = None,
        catch_up: str = "latest", overlap: str = "allow", priority: int = 0, replace: bool = False,
    ) -> Schedule:  # fmt: skip
        """Let the workflow at a tag begin by itself: by ``cron`` in a time zone, or ``every`` so often.

        Each job goes by the version at which the tag stands then. ``name`` is that of the tag unless given; ``inputs``
        may speak of the tick: ``{{ tick.date }}``, ``{{ tick.at }}``, ``{{ tick.previous }}``. ``catch_up`` says what
        becomes of ticks while nobody was there: ``none``, the ``latest``, or ``all``; ``overlap`` whether a tick is
        left out (``skip``) while the job of the one before has not ended. With ``replace`` a schedule of that name
        becomes as is said here, and one that is paused stays so; without, it is an error. Example::

            await client.schedules.add("report/main", cron="30 6 * * 1-5", inputs={"day": "{{ tick.date }}"})
        """
        found, declared = await self._workflow(tag)
        wanted = Wanted(cron, every, timezone, self._given(inputs), catch_up, overlap, priority)
        org_id, actor, called = await self._session.org_id(), self._session.actor, tag if name is None else name
        return await self._session.database.run(
            lambda conn: schedules.add(conn, org_id, called, found, declared, wanted, actor, replace=replace)
        )

    async def preview(
        self, *, cron: str | None = None, every: float | timedelta | None = None, timezone: str = "UTC", count: int = 5
    ) -> builtins.list[datetime]:
        """Return the first ticks that a schedule would have which were added now; nothing is made.

        Example::

            print(await client.schedules.preview(cron="30 2 * * *", timezone="Europe/Berlin"))
        """
        wanted = Wanted(cron, every, timezone)
        return await self._session.database.read(lambda conn: schedules.preview(conn, wanted, count))

    async def show(self, name: str) -> Schedule:
        """Return a schedule.

        Example::

            print((await client.schedules.show("report/main")).next_at)
        """
        org_id = await self._session.org_id()
        return await self._session.database.read(lambda conn: schedules.show(conn, org_id, name))

    async def list(self, *, tag: str | None = None, after: str = "", limit: int = 100) -> builtins.list[Schedule]:
        """Return schedules by name, or those of a tag; ``after`` is the last name of the page before.

        Example::

            for each in await client.schedules.list():
                print(each.name, each.next_at, each.last_error)
        """
        check_number(limit, "limit", 1, 1000)
        org_id = await self._session.org_id()
        return await self._session.database.read(
            lambda conn: schedules.list_schedules(conn, org_id, tag=tag, after=after, limit=limit)
        )

    async def ticks(self, name: str, count: int = 5) -> builtins.list[datetime]:
        """Return the next ticks of a schedule.

        Example::

            print(await client.schedules.ticks("report/main", 3))
        """
        org_id = await self._session.org_id()
        return await self._session.database.read(lambda conn: schedules.ticks(conn, org_id, name, count))

    async def change(
        self, name: str, *, tag: str | None = None, cron: str | None = None, every: float | timedelta | None = None,
        timezone: str | None = None, inputs: Mapping[str, Any] | None = None, catch_up: str | None = None,
        overlap: str | None = None, priority: int | None = None,
    ) -> Schedule:  # fmt: skip
        """Change what is given of a schedule; where its times change, the next tick is the first of these after now.

        Example::

            await client.schedules.change("report/main", cron="0 7 * * 1-5")
        """
        moved, declared = None, None
        if tag is not None or inputs is not None:
            moved, declared = await self._workflow((await self.show(name)).tag if tag is None else tag)
        wanted = Wanted(cron, every, timezone, self._given(inputs), catch_up, overlap, priority)
        org_id, actor, found = await self._session.org_id(), self._session.actor, None if tag is None else moved
        return await self._session.database.run(
            lambda conn: schedules.change(conn, org_id, name, found, declared, wanted, actor)
        )

    async def trigger(self, name: str) -> JobHandle:
        """Begin a job of a schedule now, as if it ticked, whatever its times are and whether it is paused or not.

        Its next tick stays where it is. Example::

            job = await client.schedules.trigger("report/main")
        """
        org_id = await self._session.org_id()
        found, timing, now = await self._session.database.read(lambda conn: schedules.standing(conn, org_id, name))
        try:
            inputs = inputs_at(found.inputs, timing, now)
        except ExpressionError as problem:
            raise InvalidInput("inputs", f"of the schedule: {problem}") from None
        labels = {"schedule": found.name, "tick": now.isoformat()}
        return await self._session.jobs.submit(found.tag, inputs, priority=found.priority, labels=labels)

    async def pause(self, name: str) -> None:
        """Let nothing more begin by a schedule until it is resumed.

        Example::

            await client.schedules.pause("report/main")
        """
        org_id, actor = await self._session.org_id(), self._session.actor
        await self._session.database.run(lambda conn: schedules.pause(conn, org_id, name, actor))

    async def resume(self, name: str) -> None:
        """Let a schedule go on; what it missed meanwhile is made up for as its ``catch_up`` says.

        Example::

            await client.schedules.resume("report/main")
        """
        org_id, actor = await self._session.org_id(), self._session.actor
        await self._session.database.run(lambda conn: schedules.resume(conn, org_id, name, actor))

    async def delete(self, name: str) -> None:
        """Remove a schedule; jobs that have begun go on.

        Example::

            await client.schedules.delete("report/main")
        """
        org_id, actor = await self._session.org_id(), self._session.actor
        await self._session.database.run(lambda conn: schedules.delete(conn, org_id, name, actor))

    async def backfill(
        self, name: str, *, since: datetime, until: datetime | None = None, at_once: int = 1, dry_run: bool = False
    ) -> Backfill:
        """Make up for the ticks of a time that is over, ``at_once`` jobs at a time; with ``dry_run`` only count them.

        Orchestrators see to it, whoever dies. A tick for which there is a job already, as long as its key is kept, gets
        no other. Example::

            await client.schedules.backfill("report/main", since=datetime(2026, 1, 1, tzinfo=UTC), at_once=4)
        """
        org_id, actor = await self._session.org_id(), self._session.actor
        return await self._session.database.run(
            lambda conn: schedules.backfill(conn, org_id, name, since, until, at_once, actor, dry_run=dry_run)
        )

    async def backfills(self, name: str, *, before: int | None = None, limit: int = 100) -> builtins.list[Backfill]:
        """Return the backfills of a schedule, the newest first; ``before`` is the last id of the page before.

        Example::

            for each in await client.schedules.backfills("report/main"):
                print(each.made, "of", each.ticks)
        """
        check_number(limit, "limit", 1, 1000)
        org_id = await self._session.org_id()
        return await self._session.database.read(
            lambda conn: schedules.list_backfills(conn, org_id, name, before=before, limit=limit)
        )

    async def cancel_backfill(self, backfill_id: int) -> None:
        """Let nothing more begin by a backfill; jobs that have begun go on.

        Example::

            await client.schedules.cancel_backfill(backfill.id)
        """
        chosen = check_id(backfill_id, "backfill_id", shown_by="weft schedules backfills NAME")
        org_id, actor = await self._session.org_id(), self._session.actor
        await self._session.database.run(lambda conn: schedules.cancel_backfill(conn, org_id, chosen, actor))

    async def _workflow(self, tag: str) -> tuple[str, Declared]:
        """Return the whole name of a tag, and the inputs that the workflow takes there."""
        found = await self._session.workflows.tag(tag)
        shown = await self._session.workflows.show(found.name)
        return found.name, sound(check_document(Document(dict(shown.data)))).inputs

    def _given(self, inputs: Mapping[str, Any] | None) -> dict[str, Any] | None:
        """Return inputs as they are kept, which may be as large as those of a job."""
        if inputs is None:
            return None
        given: dict[str, Any] = plain(dict(inputs), "inputs")
        check_size("inputs", orjson.dumps(given).decode(), self._session.settings.value_limit)
        return given
