"""Gives back claims whose handler this worker does not know."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

from weft.queue.work import Claim
from weft.worker.registry import Registry
from weft.worker.store import Store


class Declines:
    """The declines of one worker; what is on its way back still takes up room."""

    def __init__(self, store: Store, registry: Registry, on_end: Callable[[bool, timedelta | None], None]) -> None:
        self._store = store
        self._registry = registry
        self._on_end = on_end
        self.queues: Counter[int] = Counter()

    @property
    def under_way(self) -> int:
        """How many are on their way back."""
        return self.queues.total()

    def decline(self, claim: Claim) -> Coroutine[Any, Any, None]:
        """Begin to give a claim back; the worker is told when that is done, and when the task comes back, if it does.

        It is also told when nobody knows, because it went wrong: then it must ask what it holds.
        """
        self.queues[claim.queue_id] += 1
        return self._decline(claim)

    async def _decline(self, claim: Claim) -> None:
        advice = self._registry.suggest(claim.handler)
        is_known, delay = False, None
        try:
            delay = await self._store.decline(claim, advice)
            is_known = True
        finally:
            self.queues[claim.queue_id] -= 1
            self._on_end(is_known, delay)
