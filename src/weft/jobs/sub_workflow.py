"""Executes a workflow as a node of another job, which waits for it without holding anybody."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import orjson

from weft.core.errors import LeaseLost
from weft.core.json import Json
from weft.core.signals import NonRetryable
from weft.flow.inputs import check_inputs, told_of
from weft.flow.templates import read_value
from weft.jobs.library import Libraries, Library, Planned, lanes_of
from weft.jobs.submit import SQL, NewJob, submit
from weft.queue import queues

if TYPE_CHECKING:
    from asyncpg import Record

    from weft.db.database import Database, type_Connection
    from weft.db.machine import IdSource

Fence = tuple[int, int, int]


class SubWorkflows:
    """Begins jobs for nodes, of every org, each by the version to which its name was pinned."""

    def __init__(self, database: Database, ids: IdSource, libraries: Libraries) -> None:
        self._database = database
        self._ids = ids
        self._libraries = libraries

    async def begin(self, fence: Fence, job_id: int, spec: Mapping[str, Any], values: Mapping[str, Json]) -> None:
        """Let a node wait for a job of its own: both, or neither. Raises `LeaseLost`."""
        async with self._database.acquire() as conn:
            facts = await conn.fetchrow(SQL.facts, job_id)
        if facts is None:
            raise LeaseLost(fence[1])
        library = self._libraries.of(facts["org_id"], facts["actor"])
        if not await library.anew_if_gone(lambda: self._begin_now(fence, spec, values, facts, library)):
            raise LeaseLost(fence[1])

    async def _begin_now(
        self, fence: Fence, spec: Mapping[str, Any], values: Mapping[str, Json], facts: Record, library: Library
    ) -> bool:
        pins = orjson.loads(facts["tag_positions"])
        planned = await library.pinned(pins[spec["workflow"]])
        given = _inputs(planned, spec, values)
        new = NewJob(
            planned.workflow_id, given, -facts["rank"], None, "tag", spec["workflow"], planned.snapshot_id,
            planned.version_hash, actor=facts["actor"], pins=pins, parent_id=fence[1],
            cache=spec.get("job_cache", True),
        )  # fmt: skip
        limit = spec.get("timeout_seconds")
        patience = self._database.settings.job_default_timeout if limit is None else timedelta(seconds=limit)
        ids = await self._ids.take(1 + len(planned.plan.steps))

        async def write(conn: type_Connection) -> bool:
            if not await conn.fetchval(SQL.wait, *fence, None):
                return False
            lanes = await lanes_of(conn, facts["org_id"], planned.plan.queues)
            await submit(conn, facts["org_id"], new, planned.plan, ids, lanes, patience)
            await queues.hint(conn, planned.plan.first_queues(lanes))
            return True

        return await self._database.run(write)


def _inputs(planned: Planned, spec: Mapping[str, Any], values: Mapping[str, Json]) -> dict[str, Json]:
    given = read_value(spec.get("inputs", {})).render(values)
    assert isinstance(given, dict)
    found, problems = check_inputs(planned.inputs, given)
    if problems:
        raise NonRetryable(f"inputs of {spec['workflow']}: {told_of(problems)}")
    return found
