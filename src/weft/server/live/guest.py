"""One who looks: how far he has come, and whether he is still welcome."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fastapi import Request

    from weft.catalog.model import Principal
    from weft.server.live.feed import Page


class Guest:
    """An open stream. ``place`` is the number of the page that he gets next, ``fit`` leaves out what he has had."""

    def __init__(self, who: Principal, request: Request) -> None:
        self.who = who
        self.request = request
        self.place = 0
        self.fit: Callable[[Page], bytes] | None = None
        self.is_gone = False
        # Since when he has not taken what he was told.
        self.waits_since: float | None = None
        self.parting: bytes | None = None
        self.task: asyncio.Task[object] | None = None
        self.is_given_up = False
        self._news = asyncio.Event()

    def wake(self) -> None:
        """Let him look whether there is something for him."""
        self._news.set()

    async def wait(self) -> None:
        """Return when there may be something for him."""
        await self._news.wait()
        self._news.clear()

    def dismiss(self, parting: bytes) -> None:
        """Let this be the last that he is told."""
        if self.parting is None:
            self.parting = parting
        self.wake()

    def leave(self) -> None:
        """Note that nobody is there any more to tell something to."""
        self.is_gone = True
        self.wake()

    def give_up(self) -> None:
        """End the stream of one who does not take what he is told."""
        self.is_given_up = True
        if self.task is not None:
            self.task.cancel()

    @property
    def credential(self) -> tuple[str | None, str | None]:
        """What he came in by: streams of the same are looked at together."""
        headers = self.request.headers
        return headers.get("authorization"), headers.get("cookie")
