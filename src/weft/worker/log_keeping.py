"""Keeps the logs of attempts where others can read them, before it is told how an attempt has ended."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from weft.worker.attempt import Attempt, Outcome
    from weft.worker.background import Background

# So long an outcome waits for its log: whoever sees the end of a task then finds all that it has printed.
_PATIENCE = 10.0
Keep = Callable[["Attempt"], Awaitable[None]]
OnEnd = Callable[["Attempt", "Outcome | None"], None]


class LogKeeping:
    """The logs of one worker; ``keep`` is what is done with one that is whole, if anything must be."""

    def __init__(self, keep: Keep | None) -> None:
        self._keep = keep

    async def start(self, running: Callable[[], Iterable[Attempt]]) -> None:
        """Begin to follow the logs of what is ``running``, where they are not kept by being written."""

    async def stop(self) -> None:
        """End what was begun."""

    async def show(self, attempt: Attempt) -> None:
        """Let others read what a running attempt has printed so far, where they cannot: somebody follows it."""

    def before(self, on_end: OnEnd, background: Background) -> OnEnd:
        """Return what tells the end of an attempt when its log is kept, or keeping it takes long."""
        keep = self._keep
        if keep is None:
            return on_end

        async def kept(attempt: Attempt, outcome: Outcome | None) -> None:
            keeping = asyncio.ensure_future(keep(attempt))
            try:
                await asyncio.wait([keeping], timeout=_PATIENCE)
                on_end(attempt, outcome)
                await keeping
            finally:
                keeping.cancel()

        def ended(attempt: Attempt, outcome: Outcome | None) -> None:
            if attempt.has_log:
                background.spawn(kept(attempt, outcome), must_end=True)
            else:
                on_end(attempt, outcome)

        return ended
