"""The answer that does not end: what happens is sent as it happens, to whoever takes it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

from fastapi import Response

from weft.server.live.frames import MEDIA_TYPE

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from weft.server.live.guest import Guest

logger = logging.getLogger("weft.server")
# Whoever takes nothing for so long is not there any more.
_PATIENCE = 60.0


class EventStream(Response):
    """Sends what a guest is told, until it is over or he has gone."""

    media_type = MEDIA_TYPE

    def __init__(self, told: AsyncGenerator[bytes], guest: Guest) -> None:
        super().__init__(headers={"cache-control": "no-store", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._told = told
        self._guest = guest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the head at once, and then each piece when it is there."""
        leaving = asyncio.create_task(self._until_gone(receive))
        try:
            async with asyncio.timeout(_PATIENCE) as patience:
                await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
                async for data in self._told:
                    if data:
                        patience.reschedule(asyncio.get_running_loop().time() + _PATIENCE)
                        await send({"type": "http.response.body", "body": data, "more_body": True})
                    patience.reschedule(None)
                patience.reschedule(asyncio.get_running_loop().time() + _PATIENCE)
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        except TimeoutError:
            logger.info("a stream of %s is given up: nothing was taken for %g s", self._guest.who.actor, _PATIENCE)
        finally:
            leaving.cancel()
            await self._told.aclose()
            await asyncio.gather(leaving, return_exceptions=True)

    async def _until_gone(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._guest.leave()
