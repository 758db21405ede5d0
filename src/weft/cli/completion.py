"""What the shell offers when a person presses the tab key."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from weft.sdk.client import Client

PATIENCE = 2.0
MOST = 1000


def complete_state(incomplete: str) -> Iterable[str]:
    """Offer the states of tasks."""
    from weft.core.states import TaskState

    return [state for state in TaskState if state.startswith(incomplete)]


def complete_queue(incomplete: str) -> Iterable[str]:
    """Offer the names of queues."""

    async def names(client: Client) -> list[str]:
        return [queue.name for queue in await client.queues()]

    return _offered(names, incomplete)


def complete_tag(incomplete: str) -> Iterable[str]:
    """Offer tags that are there, by their whole names."""
    return _offered(lambda client: _tags(client, incomplete), incomplete)


def complete_deleted_tag(incomplete: str) -> Iterable[str]:
    """Offer tags that were deleted."""
    return _offered(lambda client: _tags(client, incomplete, deleted=True), incomplete)


def complete_schedule(incomplete: str) -> Iterable[str]:
    """Offer the names of schedules."""

    async def names(client: Client) -> list[str]:
        return [each.name for each in await client.schedules.list(after=incomplete[:-1], limit=MOST)]

    return _offered(names, incomplete)


def complete_dataset(incomplete: str) -> Iterable[str]:
    """Offer the names of datasets."""

    async def names(client: Client) -> list[str]:
        return [each.name for each in await client.datasets.list(after=incomplete[:-1], limit=MOST)]

    return _offered(names, incomplete)


def complete_dag(incomplete: str) -> Iterable[str]:
    """Offer the names of live DAGs."""

    async def names(client: Client) -> list[str]:
        return [each.name for each in await client.live.list(after=incomplete[:-1], limit=MOST)]

    return _offered(names, incomplete)


def complete_role(incomplete: str) -> Iterable[str]:
    """Offer the roles of the org."""

    async def slugs(client: Client) -> list[str]:
        return [each.slug for each in await client.roles.list(after=incomplete[:-1], limit=MOST)]

    return _offered(slugs, incomplete)


async def _tags(client: Client, incomplete: str, *, deleted: bool = False) -> list[str]:
    # Names are listed from one on: that which is written already may be a whole one.
    found = await client.workflows.list(after=incomplete[:-1], limit=MOST, with_deleted=deleted)
    return [tag.name for tag in found if (tag.deleted_at is not None) is deleted]


def _offered(look: Callable[[Client], Awaitable[list[str]]], incomplete: str) -> list[str]:
    """Return what goes on from what is written, when the database is up; a key press starts no server."""
    import asyncio

    from weft.core.errors import WeftError

    try:
        names = asyncio.run(asyncio.wait_for(_looked(look), PATIENCE))
    except (WeftError, OSError, TimeoutError):
        return []
    return [name for name in names if name.startswith(incomplete)]


def complete_context(incomplete: str) -> Iterable[str]:
    """Offer the names of contexts."""
    from weft.cli.contexts import LOCAL, read_contexts
    from weft.core.errors import WeftError

    try:
        return [name for name in (LOCAL, *read_contexts().by_name) if name.startswith(incomplete)]
    except (WeftError, OSError):
        return []


async def _looked(look: Callable[[Client], Awaitable[list[str]]]) -> list[str]:
    from weft.cli.calls import open_client
    from weft.cli.target import find_target
    from weft.db import embedded

    target = find_target()
    if target.kind == "embedded" and not (await embedded.status(target.settings)).running:
        return []
    async with open_client() as client:
        return await look(client)
