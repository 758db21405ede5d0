"""Jobs that are asked for by messages in a queue: the message is finished in the transaction that inserts its job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from weft.core.checks import check_key, check_priority
from weft.core.errors import LeaseLost, NotFound
from weft.core.json import Json, encode
from weft.core.signals import NonRetryable
from weft.flow.inputs import check_inputs, told_of
from weft.jobs.labels import check_labels
from weft.jobs.library import Libraries, Library, Pins, Planned, lanes_of
from weft.jobs.posting import check_url
from weft.jobs.submit import SQL, NewJob, submit
from weft.queue import queues

if TYPE_CHECKING:
    from asyncpg import Record

    from weft.db.database import Database, type_Connection
    from weft.db.machine import IdSource
    from weft.history.reading import Materials


@dataclass(frozen=True, slots=True)
class Request:
    """What a message asks for; a bare ``workflow_id`` means the main line of that workflow."""

    workflow_id: str
    inputs: Mapping[str, Json]
    priority: int = 0
    callback_url: str | None = None
    idempotency_key: str | None = None
    labels: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Standing:
    """The version at which a tag stands, with all that a job of it goes by."""

    found: Materials
    planned: Planned
    pins: Pins
    queues: set[str]

    def job(
        self, inputs: Mapping[str, Json], priority: int, key: str, labels: Mapping[str, str], actor: str | None,
        callback_url: str | None = None,
    ) -> NewJob:  # fmt: skip
        """Return a job of it; raises `NonRetryable` when the inputs are not those that it takes."""
        given, problems = check_inputs(self.planned.inputs, inputs)
        if problems:
            raise NonRetryable(f"inputs: {told_of(problems)}")
        return NewJob(
            self.planned.workflow_id, given, priority, key, "tag", self.found.row["tag"], self.planned.snapshot_id,
            self.planned.version_hash, labels, actor, pins=self.pins, callback_url=callback_url,
        )  # fmt: skip


async def standing_at(library: Library, tag: str) -> Standing:
    """Return the version at which a tag stands; raises `NotFound`."""
    found, planned = await library.at(tag)
    pins = await library.pins(planned, found)
    return Standing(found, planned, pins, await library.queues(planned, pins))


class Requests:
    """Makes jobs of messages, of every org."""

    def __init__(self, database: Database, ids: IdSource, libraries: Libraries) -> None:
        self._database = database
        self._ids = ids
        self._libraries = libraries

    async def accept(self, fence: tuple[int, int, int], request: Request) -> dict[str, Any]:
        """Insert the job of a message and finish the message: both, or neither. Return the job, and whether it is new.

        The job's idempotency key is the one that is asked for, else that of the message, else its id. Raises
        `NonRetryable` for what asks for something that cannot be, and `LeaseLost`.
        """
        async with self._database.acquire() as conn:
            facts = await conn.fetchrow(SQL.message, fence[1])
        if facts is None:
            raise LeaseLost(fence[1])
        check_priority(request.priority)
        if request.callback_url is not None:
            check_url(request.callback_url, "callback_url")
        if request.idempotency_key is not None:
            check_key(request.idempotency_key, "idempotency_key")
        labels = check_labels(request.labels)
        library = self._libraries.of(facts["org_id"], facts["actor"])
        return await library.anew_if_gone(lambda: self._accept_now(fence, request, library, facts, labels))

    async def _accept_now(
        self, fence: tuple[int, int, int], request: Request, library: Library, facts: Record, labels: Mapping[str, str]
    ) -> dict[str, Any]:
        try:
            at = await standing_at(library, request.workflow_id)
        except NotFound as problem:
            raise NonRetryable(f"workflow_id: {problem}") from None
        planned, needed = at.planned, at.queues
        key = request.idempotency_key or facts["key"] or f"message-{fence[1]}"
        new = at.job(request.inputs, request.priority, key, labels, facts["actor"], request.callback_url)
        ids = await self._ids.take(1 + len(planned.plan.steps))
        patience = self._database.settings.job_default_timeout

        async def write(conn: type_Connection) -> dict[str, Any]:
            lanes = await lanes_of(conn, facts["org_id"], needed)
            job_id = await submit(conn, facts["org_id"], new, planned.plan, ids, lanes, patience)
            answer = {"job_id": str(job_id), "created": job_id == ids[0]}
            if not await conn.fetchval(SQL.finish, *fence, encode(answer, "output")):
                raise LeaseLost(fence[1])
            if answer["created"]:
                await queues.hint(conn, planned.plan.first_queues(lanes))
            return answer

        return await self._database.run(write)
