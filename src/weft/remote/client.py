"""The client of a server: each call of `weft.Client` made over HTTP, with the same arguments, values and errors."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime, timedelta
from functools import cached_property
from types import TracebackType
from typing import Any, Self

import orjson

from weft.contract.graphs import packed
from weft.contract.table import BY_CALL
from weft.contract.wire import wire
from weft.core.checks import MAX_ID, check_id, check_number
from weft.core.errors import InvalidInput
from weft.core.server_errors import NeedsDatabase, ServerUnavailable
from weft.core.settings import Settings
from weft.db.blobs import Blobs
from weft.db.database import Database
from weft.history.model import Artifact
from weft.jobs.adding import Addition
from weft.jobs.events import JobEvent
from weft.jobs.items import Item, items_of
from weft.jobs.layout import Layout
from weft.jobs.model import Job, JobHandle
from weft.jobs.rerun import RerunPlan
from weft.remote.answers import answered
from weft.remote.calls import PAGE, remote, transport_of, waited
from weft.remote.streams import Once, messages
from weft.remote.transport import Transport
from weft.remote.worker_store import RemoteStore
from weft.sdk.bisecting import Line
from weft.sdk.client import Client
from weft.sdk.datasets import Datasets, QueryAnswer
from weft.sdk.graph_calls import own_call, require_job, require_new
from weft.sdk.jobs import Jobs, Workflow, used_by
from weft.sdk.live import Live
from weft.sdk.operating import Progress, cancellable, replayable
from weft.sdk.orgs import Orgs
from weft.sdk.reruns import Rerun
from weft.sdk.roles import Roles
from weft.sdk.schedules import Schedules
from weft.sdk.tokens import Tokens
from weft.sdk.users import Users
from weft.sdk.workflows import Workflows
from weft.worker.answers import ADD
from weft.worker.context import RUNNING
from weft.worker.store import Store

_EVENT = wire(JobEvent)
_WHERE = "do it where WEFT_DATABASE_URL is set"


def _known(call: str, given: dict[str, Any]) -> dict[str, Any]:
    """Return arguments of a call; raises `TypeError` for one that it does not take, as the call itself would."""
    inspect.signature(BY_CALL[call].function).bind(None, **given)
    return given


@remote("jobs")
class RemoteJobs(Jobs):
    """What is done with jobs, by a server."""

    async def submit(
        self, workflow: Workflow, inputs: Mapping[str, Any] | None = None, *, uses: Sequence[Workflow] = (),
        **options: Any,
    ) -> JobHandle:  # fmt: skip
        """Execute a workflow, as `Jobs.submit` does; those that a Python workflow calls travel with it."""
        given = {"workflow": workflow, "inputs": inputs, **options}
        if every := [*uses, *used_by(workflow)]:
            given["uses"] = every
        found: JobHandle = await transport_of(self).call(BY_CALL["jobs.submit"], _known("jobs.submit", given))
        return found

    async def submit_graph(
        self, name: str, items: Item | Sequence[Item], *, priority: int = 0, idempotency_key: str | None = None,
        labels: Mapping[str, str] | None = None, on_failure: str = "fail_fast",
    ) -> JobHandle:  # fmt: skip
        """Execute tasks and groups, as `Jobs.submit_graph` does."""
        addition = Addition.of(items_of(items, "items"))
        require_new(items, addition)
        said = {
            "name": name, "priority": priority, "idempotency_key": idempotency_key, "labels": labels,
            "on_failure": on_failure, "items": (graph := packed(addition))["items"], "pairs": graph["pairs"],
        }  # fmt: skip
        told = await transport_of(self).post("/jobs/graph", said)
        job = JobHandle(int(told["id"]), told["created"])
        if job.created:
            addition.landed(Layout(addition.items, [int(id) for id in told["ids"]]), job.id)
        return job

    async def add(self, job_id: int, items: Item | Sequence[Item]) -> None:
        """Add to a job, as `Jobs.add` does: by a task that runs here to its own once in all of its attempts."""
        call, running = own_call(job_id), RUNNING.get()
        job_id = check_id(job_id, "job_id", shown_by="weft jobs list")
        addition = Addition.of(items_of(items, "items"))
        require_job(addition, job_id)
        if call is None or running is None or running.context.ask is None:
            told = (await transport_of(self).post(f"/jobs/{job_id}/add", packed(addition)))["ids"]
        else:
            said = {"number": call.number, **packed(addition)}
            told = await asyncio.wrap_future(running.context.ask(ADD, {"text": orjson.dumps(said).decode()}))
        addition.landed(Layout(addition.items, [int(id) for id in told]), job_id)

    async def plan_rerun(self, job_id: int, *, on: Any = None, uses: Sequence[Any] = (), **options: Any) -> RerunPlan:
        """Return what `rerun` would do, as `Jobs.plan_rerun` does."""
        found: RerunPlan = await self._onto_own("plan_rerun", on, uses, {"job_id": job_id, **options})
        return found

    async def rerun(self, job_id: int, *, on: Any = None, uses: Sequence[Any] = (), **options: Any) -> Rerun:
        """Run a job again, as `Jobs.rerun` does; workflows that a Python workflow calls travel with it."""
        found: Rerun = await self._onto_own("rerun", on, uses, {"job_id": job_id, **options})
        return found

    async def rerun_all(self, *, on: Any = None, uses: Sequence[Any] = (), **options: Any) -> int:
        """Run all jobs in a state again, as `Jobs.rerun_all` does."""
        found: int = await self._onto_own("rerun_all", on, uses, options)
        return found

    async def _onto_own(self, name: str, on: Any, uses: Sequence[Any], given: dict[str, Any]) -> Any:
        given |= {"on": on, "uses": [*uses, *used_by(on)] or None}
        return await transport_of(self).call(BY_CALL[f"jobs.{name}"], _known(f"jobs.{name}", given))

    async def _document(self, artifact_id: int) -> dict[str, Any]:
        return dict((await RemoteWorkflows(self._session).show(artifact_id)).data)

    async def _line(self, tag: str, good: str | int, bad: str | int) -> Line:
        """Return what `bisect` asks of the history, by calls."""
        workflows = RemoteWorkflows(self._session)
        first = (await workflows.log(good, limit=1))[0]
        last = (await workflows.log(bad, limit=1))[0]
        history: dict[int, Artifact] = {}
        page = await workflows.log(tag, limit=PAGE)
        while page:
            history |= {each.id: each for each in page}
            page = await workflows.log(tag, before=page[-1].id, limit=PAGE) if len(page) == PAGE else []
        return Line(history, first, last.id)

    async def wait(self, job_id: int, timeout: float | timedelta | None = None) -> Job:
        """Return a job when it has ended; raises `WaitTimeout` after ``timeout`` seconds."""
        call = functools.partial(transport_of(self).call, BY_CALL["jobs.wait"])
        found: Job = await waited(lambda left: call({"job_id": job_id, "timeout": left}), job_id, timeout)
        if found.unavailable:
            raise found.unavailable["result"]
        return found

    async def follow(self, job_id: int, *, after: str | None = None) -> AsyncIterator[JobEvent]:
        """Yield what happens in a job, from its beginning or a cursor on, until it has ended."""
        job_id, once = check_id(job_id, "job_id", shown_by="weft jobs list"), Once()
        async for message in messages(transport_of(self), f"/jobs/{job_id}/stream", after):
            if message.name == "message" and once.is_new(message.data["id"]):
                yield _EVENT.decode(message.data)


@remote("workflows")
class RemoteWorkflows(Workflows):
    """What is done with workflow definitions, by a server."""


@remote("schedules")
class RemoteSchedules(Schedules):
    """What is done with workflows that begin by themselves, by a server."""


@remote("datasets")
class RemoteDatasets(Datasets):
    """What is done with named tables of data, by a server."""

    def query(
        self, sql: str, *, format: str = "json", as_of: datetime | None = None
    ) -> AbstractAsyncContextManager[QueryAnswer]:
        """Run a query over datasets at the server; its answer comes piece by piece."""
        return answered(transport_of(self), sql, format, as_of)


@remote("live")
class RemoteLive(Live):
    """What is done with live DAGs, by a server."""


@remote("orgs")
class RemoteOrgs(Orgs):
    """What is done with orgs, by a server."""


@remote("users")
class RemoteUsers(Users):
    """What is done with users, by a server."""


@remote("roles")
class RemoteRoles(Roles):
    """What is done with the roles of an org, by a server."""


@remote("tokens")
class RemoteTokens(Tokens):
    """What is done with tokens, by a server."""


@remote("")
class RemoteClient(Client):
    """A connection to a server: what `weft.Client` does, for those who have a token and no database.

    Example::

        async with weft.RemoteClient("https://weft.example.com", token=secret) as client:
            print(await client.jobs.list(state="failed"))
    """

    def __init__(
        self, server: str | None = None, token: str | None = None, *, settings: Settings | None = None
    ) -> None:
        super().__init__(settings=settings if settings is not None else Settings.load())
        address = server or self.settings.server
        if address is None:
            raise InvalidInput("server", "is missing: give the address of a server, or set WEFT_SERVER")
        self._address = address
        self._token = token or self.settings.token
        self._transport: Transport | None = None

    async def __aenter__(self) -> Self:
        """Make the connection ready; the server is reached by the first call."""
        self._transport = Transport(self._address, self._token)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connection."""
        transport, self._transport = self.transport, None
        await transport.close()

    @property
    def transport(self) -> Transport:
        """The way to the server; raises when the client is not entered."""
        if self._transport is None:
            raise InvalidInput("client", "is not open: use `async with weft.RemoteClient(…) as client`")
        return self._transport

    def _worker_store(self) -> Store:
        return RemoteStore(self._address, self._token, self.settings)

    async def org_id(self) -> int:
        """Return the id of the org that the token is of."""
        if self._org_id is None:
            self._org_id = int((await self.transport.get("/me"))["org_id"])
        return self._org_id

    @property
    def database(self) -> Database:
        """Refuse: the server has it."""
        raise NeedsDatabase("client.database", _WHERE)

    @property
    def blobs(self) -> Blobs:
        """Refuse: the server has them."""
        raise NeedsDatabase("client.blobs", f"large values go and come with the calls themselves; else {_WHERE}")

    def of_org(self, org_id: int, slug: str) -> Self:
        """Refuse: the org comes from the credential alone."""
        raise NeedsDatabase("client.of_org", "open another client with a token of that org")

    @asynccontextmanager
    async def in_one_transaction(self) -> AsyncIterator[Self]:
        """Refuse: a transaction does not last from one request to the next."""
        raise NeedsDatabase("client.in_one_transaction", f"give each call a key; else {_WHERE}")
        yield

    @cached_property
    def workflows(self) -> Workflows:
        """What is done with workflow definitions."""
        return RemoteWorkflows(self)

    @cached_property
    def jobs(self) -> Jobs:
        """What is done with jobs."""
        return RemoteJobs(self)

    @cached_property
    def schedules(self) -> Schedules:
        """What is done with workflows that begin by themselves."""
        return RemoteSchedules(self)

    @cached_property
    def datasets(self) -> Datasets:
        """What is done with named tables of data."""
        return RemoteDatasets(self)

    @cached_property
    def live(self) -> Live:
        """What is done with live DAGs."""
        return RemoteLive(self)

    @cached_property
    def orgs(self) -> Orgs:
        """What an installation's operator does with orgs."""
        return RemoteOrgs(self)

    @cached_property
    def users(self) -> Users:
        """What is done with the users of the org."""
        return RemoteUsers(self)

    @cached_property
    def roles(self) -> Roles:
        """What is done with the roles that the org defines."""
        return RemoteRoles(self)

    @cached_property
    def tokens(self) -> Tokens:
        """What is done with the tokens of the org."""
        return RemoteTokens(self)

    async def cancel_all(
        self, *, queue: str | None = None, handler: str | None = None, state: str | Iterable[str] | None = None,
        reason: str = "cancelled", dry_run: bool = False, ids: Sequence[int] | None = None,
        on_progress: Progress | None = None,
    ) -> int:  # fmt: skip
        """Cancel tasks as `Client.cancel_all` does: a page of them in each request, so that none takes long."""
        chosen = {"queue": queue, "handler": handler, "state": state}
        if dry_run or ids is not None:
            return await self._count("cancel_all", chosen | {"reason": reason, "dry_run": dry_run, "ids": ids})
        pages = self._pages(queue, handler, cancellable(state))
        return await self._in_pages("cancel_all", pages, {"reason": reason}, on_progress)

    async def replay_all(
        self, *, queue: str | None = None, handler: str | None = None, state: str | Iterable[str] | None = None,
        dry_run: bool = False, ids: Sequence[int] | None = None, on_progress: Progress | None = None,
    ) -> int:  # fmt: skip
        """Send tasks round again as `Client.replay_all` does: a page of them in each request."""
        chosen = {"queue": queue, "handler": handler, "state": state}
        if dry_run or ids is not None:
            return await self._count("replay_all", chosen | {"dry_run": dry_run, "ids": ids})
        pages = self._pages(queue, handler, replayable(state))
        return await self._in_pages("replay_all", pages, {"state": state}, on_progress)

    async def replay_dead(
        self, *, queue: str | None = None, handler: str | None = None, dry_run: bool = False,
        on_progress: Progress | None = None,
    ) -> int:  # fmt: skip
        """Send dead letters round again as `Client.replay_dead` does: a page of them in each request."""
        return await Client.replay_dead(self, queue=queue, handler=handler, dry_run=dry_run, on_progress=on_progress)

    async def purge(
        self, *, older_than: float | timedelta = 0, queue: str | None = None, ids: Sequence[int] | None = None,
        limit: int | None = None, on_progress: Progress | None = None,
    ) -> int:  # fmt: skip
        """Remove dead letters as `Client.purge` does: some in each request."""
        chosen = {"older_than": older_than, "queue": queue, "ids": ids}
        if limit is not None:
            return await self._count("purge", chosen | {"limit": limit})
        count, gone = 0, PAGE
        while gone == PAGE:
            try:
                gone = await self._count("purge", chosen | {"limit": PAGE})
            except ServerUnavailable as problem:
                raise problem.after(count) from problem
            count += gone
            if on_progress is not None:
                on_progress(count)
        return count

    async def _in_pages(
        self, call: str, pages: AsyncIterator[list[int]], options: dict[str, Any], on_progress: Progress | None
    ) -> int:
        count = 0
        try:
            async for ids in pages:
                count += await self._count(call, options | {"ids": ids})
                if on_progress is not None:
                    on_progress(count)
        except ServerUnavailable as problem:
            raise problem.after(count) from problem
        return count

    async def _count(self, call: str, given: dict[str, Any]) -> int:
        found: int = await self.transport.call(BY_CALL[call], given)
        return found

    async def wait(self, task_id: int, timeout: float | timedelta | None = None) -> Any:
        """Return a task's output when it has completed; raises `TaskFailed`, and `WaitTimeout` after ``timeout``."""
        call = functools.partial(transport_of(self).call, BY_CALL["wait"])
        return await waited(lambda left: call({"task_id": task_id, "timeout": left}), task_id, timeout)

    async def follow_log(self, task_id: int, offset: int = 0) -> AsyncIterator[bytes]:
        """Yield what a task prints, from ``offset`` on, until it has ended."""
        task_id, place = check_id(task_id), str(check_number(offset, "offset", 0, MAX_ID))
        async for message in messages(transport_of(self), f"/tasks/{task_id}/log/stream", place):
            if message.name == "message":
                yield message.data["text"].encode()
