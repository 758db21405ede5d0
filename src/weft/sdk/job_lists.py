"""The part of the client that lists jobs."""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from datetime import datetime

import orjson

from weft.core.checks import MAX_ID, check_id, check_moment, check_name, check_number, check_text, check_word
from weft.core.job_states import JobState
from weft.core.states import Sort
from weft.jobs.labels import check_labels
from weft.jobs.model import JobPage, JobSummary
from weft.jobs.submit import SQL
from weft.sdk.workflow_calls import WorkflowCalls

# How many jobs a page looks at: when few of many pass, it is answered before it is full.
ROOM = 1000


class JobLists(WorkflowCalls):
    """What finds jobs."""

    async def list(
        self, *, workflow_id: str | None = None, state: str | Sequence[str] | None = None, actor: str | None = None,
        labels: Mapping[str, str] | None = None, rerun_of: int | None = None, since: datetime | None = None,
        until: datetime | None = None, sort: str = "newest", before: int | None = None, after: int | None = None,
        limit: int = 50,
    ) -> builtins.list[JobSummary]:  # fmt: skip
        """Return jobs that pass all filters, newest first; pass the last id as ``before`` for the next page.

        ``labels`` are all there; from ``since`` on and before ``until`` they were submitted. With ``sort="oldest"`` the
        last id is passed as ``after``. Example::

            print([job.id for job in await client.jobs.list(workflow_id="etl", state="failed")])
        """
        found: builtins.list[JobSummary] = []
        is_newest = check_word(sort, "sort", Sort) is Sort.NEWEST
        while True:
            page = await self.page(
                workflow_id=workflow_id, state=state, actor=actor, labels=labels, rerun_of=rerun_of, since=since,
                until=until, sort=sort, before=before, after=after, limit=limit,
            )  # fmt: skip
            found += page.jobs
            limit -= len(page.jobs)
            if page.next is None or limit <= 0:
                return found
            before, after = (page.next, after) if is_newest else (before, page.next)

    async def page(
        self, *, workflow_id: str | None = None, state: str | Sequence[str] | None = None, actor: str | None = None,
        labels: Mapping[str, str] | None = None, rerun_of: int | None = None, since: datetime | None = None,
        until: datetime | None = None, sort: str = "newest", before: int | None = None, after: int | None = None,
        limit: int = 50,
    ) -> JobPage:  # fmt: skip
        """Return a page of jobs that pass all filters, newest first, and where the next one begins.

        A page may have fewer jobs than ``limit``, or none, and yet not be the last: it is answered in a short time,
        however few pass of however many. ``labels`` are all there; from ``since`` on and before ``until`` they were
        submitted. With ``sort="oldest"`` the next page is asked for by ``after``. Example::

            page = await client.jobs.page(workflow_id="etl", labels={"team": "maps"})
            while page.next is not None:
                page = await client.jobs.page(workflow_id="etl", labels={"team": "maps"}, before=page.next)
        """
        check_number(limit, "limit", 1, 1000)
        if workflow_id is not None:
            check_name(workflow_id, "workflow_id")
        if actor is not None:
            check_text(actor, "actor", 500)
        low = None if after is None else check_id(after, "after", shown_by="weft jobs list")
        high = None if before is None else check_id(before, "before", shown_by="weft jobs list")
        original = None if rerun_of is None else check_id(rerun_of, "rerun_of", shown_by="weft jobs list")
        asked = (
            None if state is None else _states([state] if isinstance(state, str) else state), workflow_id, actor,
            orjson.dumps(check_labels(labels)).decode() if labels else None, original,
            low or 0, None if since is None else check_moment(since, "since"),
            high or MAX_ID, None if until is None else check_moment(until, "until"),
            check_word(sort, "sort", Sort) is Sort.NEWEST, limit, ROOM,
        )  # fmt: skip
        org_id = await self._session.org_id()
        rows = [dict(row) for row in await self._read(lambda conn: conn.fetch(SQL.list, org_id, *asked))]
        following = [row.pop("rest") for row in rows]
        jobs = (JobSummary(**{**row, "state": JobState(row["state"])}) for row in rows if row["id"] is not None)
        return JobPage(tuple(jobs), following[0] if following else None)


def _states(names: Sequence[str]) -> builtins.list[str]:
    return [check_word(name, "state", JobState) for name in names]
