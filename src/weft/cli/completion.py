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


def complete_context(incomplete: str) -> Iterable[str]:
    """Offer the names of contexts."""
    from weft.cli.contexts import LOCAL, read_contexts
    from weft.core.errors import WeftError

    try:
        return [name for name in (LOCAL, *read_contexts().by_name) if name.startswith(incomplete)]
    except (WeftError, OSError):
        return []


async def _queue_names() -> list[str]:
    from weft.cli.calls import open_client
    from weft.cli.target import find_target
    from weft.db import embedded

    target = find_target()
    if target.kind == "embedded" and not (await embedded.status(target.settings)).running:
        return []
    async with open_client() as client:
        return [queue.name for queue in await client.queues()]
