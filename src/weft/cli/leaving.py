"""Turns the first Ctrl-C of whoever watches a job into a wish to leave it, and the second into a wish to cancel it."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Self

from weft.cli.output import is_quiet
from weft.core.errors import StateConflict, WaitTimeout

if TYPE_CHECKING:
    from weft.sdk.client import Client

INTERRUPTED = 130
_PATIENCE = 10.0


class Leaving:
    """The wish to leave a job, and the wish to cancel it; ``works`` is true of who works on it in the same process."""

    def __init__(self, client: Client, job_id: int, *, works: bool) -> None:
        self._client = client
        self._job_id = job_id
        self._works = works
        self.wished = asyncio.Event()
        self._presses = 0
        self._cancelling: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Listen for Ctrl-C."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, self._receive)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let Ctrl-C do again what it does."""
        asyncio.get_running_loop().remove_signal_handler(signal.SIGINT)
        if self._cancelling is not None:
            await asyncio.gather(self._cancelling, return_exceptions=True)

    def _receive(self) -> None:
        self._presses += 1
        if self._presses == 1:
            self.wished.set()
        elif self._presses == 2 and self._works:
            self._tell(f"cancelling job {self._job_id}")
            self._cancelling = asyncio.create_task(self._cancel())
        else:
            os._exit(INTERRUPTED)

    def tell(self) -> None:
        """Say what becomes of the job, and how to come back to it."""
        self._tell(f"job {self._job_id} goes on without you: `weft jobs watch {self._job_id}` shows it again")
        if self._works:
            self._tell("what runs here may end first; Ctrl-C again cancels the job")

    async def settle(self) -> None:
        """Wait until a job that is cancelled has ended, while there is still somebody here to end it."""
        if self._cancelling is not None:
            await self._cancelling
            with suppress(WaitTimeout):
                await self._client.jobs.wait(self._job_id, timeout=_PATIENCE)

    async def _cancel(self) -> None:
        # It may have ended meanwhile.
        with suppress(StateConflict):
            await self._client.jobs.cancel(self._job_id)

    def _tell(self, text: str) -> None:
        if not is_quiet():
            os.write(2, f"weft: {text}\n".encode())
