"""The context in which graphs are applied to jobs: its client, and the job that it is about."""

from __future__ import annotations

import contextvars
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import Any, Self, TypeVar

from weft.core.errors import InvalidInput
from weft.core.settings import Settings
from weft.jobs.items import Item, items_of
from weft.sdk.client import Client
from weft.sdk.graph_calls import own_call
from weft.worker.context import RUNNING

Items = TypeVar("Items", bound=Item | Iterable[Item])
_CURRENT: contextvars.ContextVar[OrchContext | None] = contextvars.ContextVar("weft_orchestration", default=None)


class OrchContext:
    """A connection to the database by the usual settings, or by ``url``, for what is done with jobs in its body.

    ``job_id`` is the job that `apply` means. Example::

        async with OrchContext(job_id=job.id) as ctx:
            await ctx.apply([extract, load])
    """

    def __init__(
        self, job_id: int | None = None, url: str | None = None, *, client: Client | None = None,
        settings: Settings | None = None,
    ) -> None:  # fmt: skip
        self.job_id = job_id
        self._given = client
        self._url = url
        self._settings = settings
        self._client: Client | None = None
        self._stack = AsyncExitStack()
        self._token: contextvars.Token[OrchContext | None] | None = None

    async def __aenter__(self) -> Self:
        """Connect."""
        self._client = self._given or await self._stack.enter_async_context(_client(self._url, self._settings))
        self._token = _CURRENT.set(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Disconnect."""
        if self._token is not None:
            _CURRENT.reset(self._token)
        self._client = None
        await self._stack.aclose()

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        """Lend the client of this context; outside of its body one for this call."""
        if self._client is not None:
            yield self._client
        elif self._given is not None:
            yield self._given
        else:
            async with _client(self._url, self._settings) as client:
                yield client

    async def apply(self, items: Items, job_id: int | None = None) -> Items:
        """Make tasks and groups, with all that they wait for, part of a job that goes on; return them with their ids.

        What waits for a group waits for what is added to it too. Circles are refused, with the way round. A running
        task adds to its own job once: a later attempt gets the tasks that an earlier one has added.
        """
        chosen = self.job_id if job_id is None else job_id
        if chosen is None:
            raise InvalidInput("job_id", "say which job: give it here or to the context")
        call = own_call(chosen)
        async with self.client() as client:
            await client.jobs._add(chosen, items_of(items, "items"), call)
        return items


Context = OrchContext


def get_current_context() -> OrchContext:
    """Return the context whose body this is; inside of a task one for its job.

    Example::

        await get_current_context().apply(create_task("myapp.more"))
    """
    current = _CURRENT.get()
    running = RUNNING.get()
    if running is not None and (current is None or current.job_id is None):
        # The settings of whoever runs the task: its worker may have been given others than the environment says.
        environment: Any = getattr(running, "env", None)
        settings = None if environment is None else environment.settings
        return OrchContext(
            running.context.job_id, settings=settings, client=None if current is None else current._client
        )
    if current is None:
        raise InvalidInput("context", "there is none: use `async with OrchContext() as ctx`")
    return current


@asynccontextmanager
async def borrowed_client(settings: Settings | None = None) -> AsyncIterator[Client]:
    """Lend the client of the context whose body this is, else one for this call by the usual settings."""
    current = _CURRENT.get() or (get_current_context() if RUNNING.get() is not None else None)
    if current is not None and settings is None:
        async with current.client() as client:
            yield client
    else:
        async with _client(None, settings) as client:
            yield client


def _client(url: str | None, settings: Settings | None) -> Client:
    return Client(url) if settings is None else Client(settings=settings)
