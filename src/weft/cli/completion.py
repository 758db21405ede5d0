"""What the shell offers when a person presses the tab key."""

from __future__ import annotations

from collections.abc import Iterable

PATIENCE = 2.0


def complete_state(incomplete: str) -> Iterable[str]:
    """Offer the states of tasks."""
    from weft.core.states import TaskState

    return [state for state in TaskState if state.startswith(incomplete)]


def complete_queue(incomplete: str) -> Iterable[str]:
    """Offer the names of queues, when the database is up; a key press starts no server."""
    import asyncio

    from weft.core.errors import WeftError

    try:
        names = asyncio.run(asyncio.wait_for(_queue_names(), PATIENCE))
    except (WeftError, OSError, TimeoutError):
        return []
    return [name for name in names if name.startswith(incomplete)]


async def _queue_names() -> list[str]:
    from weft.core.settings import Settings
    from weft.db import embedded
    from weft.sdk.client import Client

    settings = Settings.load()
    if settings.database_url is None and not (await embedded.status(settings)).running:
        return []
    async with Client(settings=settings) as client:
        return [queue.name for queue in await client.queues()]
