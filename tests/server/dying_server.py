"""A server that is killed when it has done what it was asked for and has not said so, or amid a call that takes long.

python dying_server.py URL
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import sys

import uvicorn
from starlette.types import Message, Receive, Scope, Send

from weft.core.settings import Settings
from weft.server import progress
from weft.server.app import make_app

_CREATED = 201
_FAR = re.compile(rb'{"progress":([1-9][0-9]*)}')


async def main(url: str) -> None:
    """Answer on a port of its own, which it prints, until something was created or a part of it was done."""
    progress._EVERY = 0.0
    app = make_app(Settings.load(environ={}, database_url=url))

    async def dying(scope: Scope, receive: Receive, send: Send) -> None:
        async def last(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] == _CREATED:
                os.kill(os.getpid(), signal.SIGKILL)
            await send(message)
            if message["type"] == "http.response.body" and _FAR.match(message.get("body", b"")):
                os.kill(os.getpid(), signal.SIGKILL)

        await app(scope, receive, last)

    listening = socket.create_server(("127.0.0.1", 0))
    print(listening.getsockname()[1], flush=True)
    await uvicorn.Server(uvicorn.Config(dying, log_config=None, lifespan="on")).serve(sockets=[listening])


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
