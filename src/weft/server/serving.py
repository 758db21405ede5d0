"""A server in this process: its socket, the app behind it, and how it stops."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Iterator
from types import TracebackType
from typing import Self

import uvicorn
from fastapi import FastAPI

from weft.core.errors import OperatorError
from weft.core.settings import Settings
from weft.db.walls import missing_wall
from weft.server.app import make_app
from weft.server.connections import connections
from weft.server.sockets import BACKLOG, PORT, take_address
from weft.server.state import State

logger = logging.getLogger("weft.server")


class _Uvicorn(uvicorn.Server):
    """Uvicorn, which leaves signals to whoever runs it."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Server:
    """Answers over HTTP for as long as it is entered; with ``listening`` at that socket of `take_address`.

    Example::

        async with Server(settings, port=0) as server:
            print(server.url)
    """

    def __init__(
        self, settings: Settings, host: str = "127.0.0.1", port: int = PORT, *, listening: socket.socket | None = None
    ) -> None:
        self._settings = settings
        self._host = host
        self._port = port
        self._app: FastAPI | None = None
        self._socket = listening
        self._open = contextlib.AsyncExitStack()
        self._task: asyncio.Task[None] | None = None
        self._uvicorn: _Uvicorn | None = None
        self._is_closing = False

    async def __aenter__(self) -> Self:
        """Listen; when it returns, requests are answered."""
        if self._socket is None:
            self._socket = take_address(self._host, self._port)
        app = self._app = make_app(self._settings)
        config = uvicorn.Config(
            app, log_config=None, access_log=False, lifespan="off", timeout_keep_alive=30,
            # From anybody else such headers are what he likes to be taken for.
            proxy_headers=bool(self._settings.server_proxies), forwarded_allow_ips=list(self._settings.server_proxies),
            backlog=BACKLOG, server_header=False, date_header=False, timeout_graceful_shutdown=10,
            http=connections(self._settings.server_read_timeout.total_seconds(), lambda: self._is_closing),
        )  # fmt: skip
        async with contextlib.AsyncExitStack() as opening:
            opening.enter_context(self._socket)
            # Not by Uvicorn, which would tell what is wrong as a traceback, and end this process.
            await opening.enter_async_context(app.router.lifespan_context(app))
            self._uvicorn = _Uvicorn(config)
            self._task = asyncio.create_task(self._uvicorn.serve(sockets=[self._socket]))
            opening.push_async_callback(self._end)
            while not self._uvicorn.started:
                done, _ = await asyncio.wait([self._task], timeout=0.005)
                if done:
                    self._task.result()
                    raise OperatorError("the server did not start: see its log")
            self._open = opening.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Answer what has been asked, and close."""
        self._is_closing = True
        # What does not end by itself is ended first: everything else that was asked is answered.
        self.state.let_go()
        await self.state.live.close()
        await self._open.aclose()

    async def _end(self) -> None:
        assert self._uvicorn is not None
        assert self._task is not None
        self._uvicorn.should_exit = True
        await asyncio.wait([self._task])

    async def leave(self, at_once: asyncio.Event) -> None:
        """Say that there is nothing more to be asked here, and answer until whoever spreads requests has noticed.

        How long that takes is ``WEFT_SERVER_DRAIN``; ``at_once`` ends it before.
        """
        self.state.is_stopping = True
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(at_once.wait(), self._settings.server_drain.total_seconds())

    async def look_at_walls(self) -> None:
        """Say so when nothing but the statements themselves keeps orgs apart; an embedded database is like that."""
        async with self.state.client.database.acquire() as conn:
            problem = await missing_wall(conn)
        if problem is not None:
            level = logging.DEBUG if self._settings.database_url is None else logging.WARNING
            advice = "give it one of its own, by `weft migrate upgrade --server-role ROLE`: see docs/how-to/deploy.md"
            logger.log(level, "there is no second wall between orgs: %s; %s", problem, advice)

    @property
    def url(self) -> str:
        """The address at which it answers."""
        assert self._socket is not None
        host, port = self._socket.getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    @property
    def state(self) -> State:
        """What it holds while it is entered."""
        assert self._app is not None
        found: State = self._app.state.weft
        return found

    async def wait(self) -> None:
        """Return when the server has ended by itself."""
        assert self._task is not None
        await asyncio.wait([self._task])
