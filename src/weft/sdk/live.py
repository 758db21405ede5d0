"""The part of the client with which live DAGs are deployed, looked at, and kept going."""

from __future__ import annotations

import builtins
from collections.abc import Sequence

from weft.core.checks import check_id, check_number
from weft.core.errors import InvalidInput
from weft.live import acting, backfilling, looking
from weft.live.backfilling import LiveBackfill
from weft.live.looking import LiveDag, LiveJob, OpenUnit, OperatorState
from weft.live.plans import DeployPlan
from weft.sdk.live_deploys import LiveDeploys


class Live(LiveDeploys):
    """What is done with live DAGs; `Client.live`. A job is that in effect; ``candles@4`` is that of version 4."""

    async def list(self, *, after: str = "", limit: int = 100) -> builtins.list[LiveDag]:
        """Return live DAGs by name; ``after`` is the last name of the page before.

        Example::

            for each in await client.live.list():
                print(each.name, each.version, each.oldest_at, each.held)
        """
        check_number(limit, "limit", 1, 1000)
        org_id = await self._session.org_id()
        return await self._session.database.read(lambda conn: looking.list_dags(conn, org_id, after=after, limit=limit))

    async def show(self, dag: str) -> LiveDag:
        """Return a live DAG: which version is in effect, which is being built, and how far its jobs are.

        Example::

            print((await client.live.show("market")).oldest_at)
        """
        org_id = await self._session.org_id()
        return await self._session.database.read(lambda conn: looking.show(conn, org_id, dag))

    async def jobs(self, dag: str, *, after: str = "", limit: int = 100) -> builtins.list[LiveJob]:
        """Return the jobs of a DAG by name, those being built and those that drain too.

        ``after`` is the ``cursor`` of the last of the page before. Example::

            for each in await client.live.jobs("market"):
                print(each.name, each.state, each.oldest_at, each.last_error)
        """
        check_number(limit, "limit", 1, 1000)
        org_id, sees = await self._session.org_id(), self._session.sees
        return await self._session.database.read(
            lambda conn: looking.list_jobs(conn, org_id, dag, after=after, limit=limit, sees=sees)
        )

    async def units(
        self, dag: str, job: str, *, state: str | None = None, after: int | None = None, limit: int = 100
    ) -> builtins.list[OpenUnit]:
        """Return the units of work of a job that are not done, in their order, or those in a state.

        Example::

            for each in await client.live.units("market", "candles", state="held"):
                print(each.id, each.lane, each.error)
        """
        check_number(limit, "limit", 1, 1000)
        org_id = await self._session.org_id()
        return await self._session.database.read(
            lambda conn: looking.list_units(
                conn, org_id, dag, job, state=state, after=after, limit=limit, sees=self._session.sees
            )
        )

    async def state(self, dag: str, job: str, *, after: str = "", limit: int = 100) -> builtins.list[OperatorState]:
        """Return what the operator of a job remembers, by key; ``after`` is the last key of the page before.

        Example::

            print([(each.key, each.state) for each in await client.live.state("market", "ticks")])
        """
        check_number(limit, "limit", 1, 1000)
        org_id = await self._session.org_id()
        return await self._session.database.read(
            lambda conn: looking.list_states(conn, org_id, dag, job, after=after, limit=limit, sees=self._session.sees)
        )

    async def pause(self, dag: str, *, job: str | None = None) -> None:
        """Let no unit of a DAG, or of one of its jobs, begin until it is resumed; what runs goes on.

        Example::

            await client.live.pause("market", job="candles")
        """
        org_id, actor = await self._session.org_id(), self._session.actor
        await self._session.database.run(lambda conn: acting.pause(conn, org_id, dag, job, actor))

    async def resume(self, dag: str, *, job: str | None = None) -> None:
        """Let a DAG or a job go on that is paused; nothing that came meanwhile is lost.

        Example::

            await client.live.resume("market", job="candles")
        """
        org_id, actor = await self._session.org_id(), self._session.actor
        await self._session.database.run(lambda conn: acting.resume(conn, org_id, dag, job, actor))

    async def retry(self, dag: str, job: str, *, unit_id: int | None = None) -> int:
        """Try units of a job again that failed and are held, or one of them; return how many.

        Example::

            await client.live.retry("market", "candles")
        """
        chosen = None if unit_id is None else check_id(unit_id, "unit_id", shown_by="weft live units DAG JOB")
        org_id, actor = await self._session.org_id(), self._session.actor
        count, last = 0, 0
        while True:
            done, last, queues = await self._session.database.run(
                lambda conn, last=last: acting.retry(conn, org_id, dag, job, chosen, last, actor)  # type: ignore[misc]
            )
            self._session._hints.send_ids(set(queues))
            count += done
            if not last:
                return count

    async def skip(self, dag: str, job: str, unit_id: int) -> None:
        """Leave out a unit that is held, or has not begun; what comes after it goes on.

        Example::

            await client.live.skip("market", "candles", unit.id)
        """
        chosen = check_id(unit_id, "unit_id", shown_by="weft live units DAG JOB")
        org_id, actor = await self._session.org_id(), self._session.actor
        await self._session.database.run(lambda conn: acting.skip(conn, org_id, dag, job, chosen, actor))

    async def rematerialize(
        self, dag: str, job: str, *, partitions: Sequence[str], dataset: str | None = None, dry_run: bool = False
    ) -> int:
        """Compute partitions of what a job reads anew, as these are by now; return how many that are.

        They are those of its first input, or of the ``dataset`` that is named; those that wait to be computed already
        do not count. With ``dry_run`` they are only counted. Example::

            await client.live.rematerialize("market", "candles", partitions=["2026-11-14"])
        """
        if isinstance(partitions, str):
            raise InvalidInput("partitions", "must be a list of keys, not a text")
        keys, org_id, actor = builtins.list(partitions), await self._session.org_id(), self._session.actor
        return await self._session.database.run(
            lambda conn: backfilling.rematerialize(
                conn, org_id, dag, job, keys, actor, dataset, sees=self._session.sees, dry_run=dry_run
            )
        )

    async def rebuild(self, dag: str, job: str, *, dry_run: bool = False) -> DeployPlan:
        """Build the datasets of a job anew, and of all after it, beside what is in effect; swapped like a deploy.

        With ``dry_run`` it is only told what that would do. Example::

            done = await client.live.rebuild("market", "candles")
            await client.live.wait("market", done.version)
        """
        return await self._anew(dag, job, dry_run=dry_run)

    async def backfill(
        self, dag: str, job: str, *, first: str | None = None, last: str | None = None, at_once: int = 1,
        dataset: str | None = None, dry_run: bool = False,
    ) -> LiveBackfill:  # fmt: skip
        """Compute all partitions of what a job reads anew, or those from one key to another, ``at_once`` at a time.

        They are those of its first input, or of the ``dataset`` that is named. Orchestrators see to it. With
        ``dry_run`` they are only counted. Example::

            await client.live.backfill("market", "candles", first="2026-01", last="2026-06", at_once=4)
        """
        org_id, actor, sees = await self._session.org_id(), self._session.actor, self._session.sees
        some = first, last, at_once
        return await self._session.database.run(
            lambda conn: backfilling.backfill(
                conn, org_id, dag, job, *some, actor, sees=sees, dataset=dataset, dry_run=dry_run
            )
        )

    async def backfills(self, dag: str, *, before: int | None = None, limit: int = 100) -> builtins.list[LiveBackfill]:
        """Return the backfills of a DAG, the newest first; ``before`` is the last id of the page before.

        Example::

            for each in await client.live.backfills("market"):
                print(each.made - each.running, "of", each.partitions)
        """
        check_number(limit, "limit", 1, 1000)
        org_id = await self._session.org_id()
        return await self._session.database.read(
            lambda conn: backfilling.list_backfills(
                conn, org_id, dag, before=before, limit=limit, sees=self._session.sees
            )
        )

    async def cancel_backfill(self, backfill_id: int) -> None:
        """Let nothing more begin by a backfill; units that have begun go on.

        Example::

            await client.live.cancel_backfill(backfill.id)
        """
        chosen = check_id(backfill_id, "backfill_id", shown_by="weft live backfills DAG")
        org_id, actor = await self._session.org_id(), self._session.actor
        await self._session.database.run(lambda conn: backfilling.cancel(conn, org_id, chosen, actor))
