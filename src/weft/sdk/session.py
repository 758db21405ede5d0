"""What every call of the client stands on: the open database, the org, its queues by name, hints and ids."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from weft.core.checks import check_name
from weft.core.errors import InvalidInput, UnknownQueue
from weft.core.settings import Settings
from weft.data.queries import Queries
from weft.db.blobs import Blobs
from weft.db.database import Database
from weft.db.machine import IdSource
from weft.db.one_transaction import OneTransaction
from weft.jobs.messages import QUEUE as MESSAGES
from weft.queue import queues
from weft.queue.audit import acting_because
from weft.queue.blobs import KeptBlobs, OwnBlobs
from weft.sdk.actor import default_actor
from weft.sdk.hints import HeldHints, Hints
from weft.sdk.waiting import Waiter
from weft.worker.registry import REGISTRY
from weft.worker.surroundings import refuse_while_loading

if TYPE_CHECKING:
    from weft.worker.store import Store

# For whom a process acts that serves many, such as a server: in whatever runs on their behalf, and nowhere else.
_acting: ContextVar[str | None] = ContextVar("acting", default=None)
# And what he sees of datasets, by his roles.
_seeing: ContextVar[tuple[frozenset[str] | None] | None] = ContextVar("seeing", default=None)


@contextmanager
def acting_as(actor: str) -> Iterator[None]:
    """Let all that is done inside be kept as done by somebody else than the process itself."""
    before = _acting.set(actor)
    try:
        yield
    finally:
        _acting.reset(before)


@contextmanager
def seeing(roles: frozenset[str] | None) -> Iterator[None]:
    """Let all that is done inside see the datasets that these roles see; None for one who sees all."""
    before = _seeing.set((roles,))
    try:
        yield
    finally:
        _seeing.reset(before)


class Session:
    """A database that is reached on entry and left on exit, and what is remembered of it meanwhile."""

    def __init__(self, url: str | None = None, *, settings: Settings | None = None, **overrides: Any) -> None:
        if settings is not None and (url is not None or overrides):
            raise InvalidInput("settings", "says everything: give either it, or a url and single settings")
        if url is not None and "database_url" in overrides:
            raise InvalidInput("database_url", "the url says it already: give one of them")
        self.settings = settings if settings is not None else Settings.load(**{"database_url": url, **overrides})
        self._own_name = self.settings.actor or default_actor()
        self._database: Database | None = None
        self._blobs: Blobs | None = None
        self._org_id: int | None = None
        # The org whose values alone it reads, wherever a value says that they are.
        self._held_to: int | None = None
        self._queues: dict[str, int] = {}

    async def __aenter__(self) -> Self:
        """Reach the database; the embedded one is started when it does not run."""
        refuse_while_loading("client")
        self._database = await Database.open(self.settings)
        self.ids = IdSource(self._database)
        self._hints = Hints(self._database)
        self.waiter = Waiter(self._database)
        self.queries = Queries(self.settings)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Send the last hints and close."""
        await self.queries.close()
        await self.waiter.close()
        await self._hints.close()
        try:
            await self.ids.close()
        finally:
            database, self._database = self.database, None
            await database.close()

    def of_org(self, org_id: int, slug: str) -> Self:
        """Return a client for another org, which lives as long as this one is open; its sessions are held to the org.

        Example::

            acme = client.of_org((await client.orgs.show("acme")).id, "acme")
        """
        other = type(self)(settings=replace(self.settings, org=slug))
        other._database, other._org_id, other._held_to = self.database.of_org(org_id), org_id, org_id
        other.ids, other._hints, other.waiter = self.ids, self._hints, self.waiter
        other.queries = self.queries
        return other

    @asynccontextmanager
    async def in_one_transaction(self) -> AsyncIterator[Self]:
        """Lend a client all of whose calls land together, when this is left without an error, or not at all.

        What would be told to workers is told after that. Example::

            async with client.in_one_transaction() as together:
                await together.users.add("ada@example.com")
                await together.roles.grant("finance", "ada@example.com")
        """
        org_id, held = await self.org_id(), HeldHints(self.database)
        async with self.database.transaction() as conn:
            other = self.of_org(org_id, self.settings.org)
            other._database, other._hints = OneTransaction(self.database, conn), held
            yield other
        held.release(self._hints)

    @property
    def sees(self) -> frozenset[str] | None:
        """The roles by which whoever acts sees datasets; None for one who sees all.

        One whose sessions are held to an org sees none before it is said which.
        """
        told = _seeing.get()
        if told is not None:
            return told[0]
        return None if self._held_to is None else frozenset()

    @contextmanager
    def because(self, reason: str) -> Iterator[None]:
        """Let all that is done inside be kept in the audit with why it is done, whatever it is; at most 500 characters.

        Example::

            with client.because("the receiver is down, ticket 4711"):
                await client.pause_queue("mail")
        """
        with acting_because(reason):
            yield

    @property
    def actor(self) -> str:
        """Who acts, as it is kept with whatever is done."""
        return _acting.get() or self._own_name

    @property
    def database(self) -> Database:
        """The database; raises when the client is not entered."""
        if self._database is None:
            raise InvalidInput("client", "is not open: use `async with weft.Client() as client`")
        return self._database

    @property
    def blobs(self) -> Blobs:
        """The storage of large values."""
        if self._blobs is None:
            kept = KeptBlobs.of(self.database)
            self._blobs = kept if self._held_to is None else OwnBlobs(kept, self.database, self._held_to)
        return self._blobs

    def _worker_store(self) -> Store | None:
        """Return where the tasks of workers are kept, unless that is the database itself."""
        return None

    async def org_id(self) -> int:
        """Return the id of the org that calls belong to."""
        if self._org_id is None:
            async with self.database.acquire() as conn:
                self._org_id = await queues.org_id(conn, self.settings.org)
        return self._org_id

    async def _known_queues(self, names: set[str]) -> dict[str, int]:
        """Return the ids of the org's queues by name, asked for anew unless ``names`` are all remembered."""
        known = self._queues
        if not names <= known.keys():
            org_id = await self.org_id()
            known = self._queues = await self.database.read(lambda conn: queues.ids(conn, org_id))
        return known

    async def _queue_ids(self, names: set[str]) -> dict[str, int]:
        """Like `_known_queues`, with those that a handler declares made; raises `UnknownQueue` for others.

        A message to orchestrators may come before the first of them, which would make its queue.
        """
        known = await self._known_queues(names)
        missing = sorted(names - known.keys())
        for name in missing:
            if name != MESSAGES and not any(handler.queue == name for handler in REGISTRY):
                raise UnknownQueue(name, known)
        for name in missing:
            await self.create_queue(name)
        return await self._known_queues(names) if missing else known

    async def _queue_id(self, name: str | None) -> int | None:
        if name is None:
            return None
        known = await self._known_queues({check_name(name, "queue")})
        if name not in known:
            raise UnknownQueue(name, known)
        return known[name]

    async def create_queue(self, name: str) -> bool:
        """Make a queue; False when there is one of that name.

        Example::

            await client.create_queue("mail")
        """
        org_id = await self.org_id()
        created = await self.database.run(lambda conn: queues.create(conn, org_id, name, self.actor))
        self._queues = {}
        return created
