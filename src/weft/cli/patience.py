"""Tells whoever waits for a task at the command line what the task waits for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from weft.cli.output import remark
from weft.cli.task_output import why_text
from weft.core.errors import WeftError

if TYPE_CHECKING:
    from weft.sdk.client import Client

PAUSE = 2.0


@asynccontextmanager
async def explained(client: Client, task_id: int) -> AsyncIterator[None]:
    """Say on stderr, while the body waits for a task, why it does not run, whenever that changes."""
    teller = asyncio.create_task(_tell(client, task_id))
    try:
        yield
    finally:
        teller.cancel()
        await asyncio.gather(teller, return_exceptions=True)


async def _tell(client: Client, task_id: int) -> None:
    told = None
    while True:
        await asyncio.sleep(PAUSE)
        with suppress(WeftError):  # whoever waits is told of it by the wait itself
            found = await client.why(task_id)
            if found.cause not in ("running", "ended", told):
                remark(why_text(found), lead="waits: ")
            told = found.cause
