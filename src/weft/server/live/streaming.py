"""The answer that does not end: what happens is sent as it happens, to whoever takes it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from typing import TYPE_CHECKING

from fastapi import Response

from weft.server.live.frames import MEDIA_TYPE

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from weft.server.live.visit import Visit

logger = logging.getLogger("weft.server")


class EventStream(Response):
    """Sends what a guest is told, until it is over or he has gone."""

    media_type = MEDIA_TYPE

    def __init__(self, visit: Visit) -> None:
        super().__init__(headers={"cache-control": "no-store", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._visit = visit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the head at once, and then each piece when it is there."""
        leaving = asyncio.create_task(self._until_gone(receive))
        guest = self._visit.guest
        guest.task = asyncio.current_task()

        def write(data: bytes) -> Awaitable[None]:
            return send({"type": "http.response.body", "body": data, "more_body": True})

        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            await self._visit.tell(write)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except asyncio.CancelledError:
            if not guest.is_given_up:
                raise
            logger.info("a stream of %s is given up: nothing of it was taken for long", guest.who.actor)
        finally:
            leaving.cancel()
            await self._visit.close()
            await asyncio.gather(leaving, return_exceptions=True)

    async def _until_gone(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._visit.guest.leave()
