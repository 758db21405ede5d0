"""All of an installation on one machine: starts its parts together, replaces workers, stops everything in order."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from signal import SIGINT, SIGKILL
from typing import TYPE_CHECKING

from weft.catalog.model import SignIn
from weft.cli.dev_files import MOST, PythonFiles
from weft.cli.dev_lines import Lines
from weft.cli.dev_lock import DevLock
from weft.cli.dev_part import Part
from weft.cli.output import span
from weft.cli.stopping import LAST_MOMENT, StopSignals
from weft.cli.supervisor import FIRST_DELAY, LONGEST_DELAY
from weft.core.errors import WeftError
from weft.core.settings import Settings
from weft.db import embedded
from weft.db.address import redacted
from weft.db.embedded_layout import explained, layout_of, prepare_home
from weft.sdk.client import Client
from weft.server.sockets import take_address

if TYPE_CHECKING:
    from weft.server.serving import Server

_LINK_LIFE = timedelta(hours=1)
_BETWEEN_LOOKS = 0.3


class House:
    """A database, a server, an orchestrator and workers, for as long as `run` does."""

    def __init__(
        self, settings: Settings, lines: Lines, *, port: int, workers: int, modules: Sequence[str], operators: bool,
        reloads: bool, logging: Sequence[str], began: float,
    ) -> None:  # fmt: skip
        self._settings = replace(settings, server=None, token=None)
        self._say = lines.say
        self._port = port
        self._modules = list(modules)
        self._reloads = reloads
        self._began = began
        self._failure = 0
        # The parts are of this machine, whatever server commands go to.
        told = {name: value for name, value in os.environ.items() if name not in ("WEFT_SERVER", "WEFT_TOKEN")}
        environment = told | {
            "WEFT_CONTEXT": "local",
            "WEFT_HOME": str(layout_of(settings).home),
            "PYTHONUNBUFFERED": "1",
        }
        weft = [sys.executable, "-m", "weft"]
        self._orchestrator = Part(
            [*weft, "orchestrator", "--fast", *logging], environment, lines.teller("orchestrator")
        )
        apps = [word for module in modules for word in ("--app", module)]
        worker = [*weft, "worker", *apps, *(["--operators"] if operators else []), "--fast", *logging]
        names = ["worker"] if workers == 1 else [f"worker {number}" for number in range(1, workers + 1)]
        self._workers = [
            Part(worker, environment, lines.teller(name), awaits_change=reloads)
            for name in names
            if operators or self._modules
        ]

    async def run(self) -> int:
        """Keep everything going until a signal; return the code to exit with."""
        self._signals = StopSignals(None, 2 * LAST_MOMENT)
        layout = layout_of(self._settings)
        with explained(layout):
            prepare_home(layout)
        with DevLock(layout.home) as lock:
            async with AsyncExitStack() as stack:
                # First of all: when its port is taken, nothing else need start.
                listening = stack.enter_context(take_address("127.0.0.1", self._port))
                await stack.enter_async_context(self._database_as_found())
                # Its code is loaded while the other parts start.
                opening = asyncio.create_task(self._open(listening))
                await stack.enter_async_context(self._going([self._orchestrator], "orchestrator"))
                await stack.enter_async_context(self._going(self._workers, "workers"))
                server = await stack.enter_async_context(self._serving(opening))
                if server is not None:
                    lock.tell(server.url)
                    await self._live(server)
                self._say("weft", "stopping" if not self._failure else "stopping: a part cannot start")
            self._say("weft", "all of it has stopped")
        return self._failure or self._signals.exit_code

    async def _open(self, listening: socket.socket) -> Server:
        return await (await asyncio.to_thread(_new_server, self._settings, listening)).__aenter__()

    @asynccontextmanager
    async def _database_as_found(self) -> AsyncIterator[None]:
        """Keep the embedded server going; in the end it is stopped, unless it ran in the beginning."""
        if self._settings.database_url is not None:
            yield
            return
        was_running = (await embedded.status(self._settings)).running
        keeping = asyncio.create_task(self._keep_database())
        try:
            yield
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)
            if not was_running:
                await embedded.stop(self._settings)

    async def _keep_database(self) -> None:
        """Start the embedded server anew when it has died; one that somebody has stopped stays so."""
        delay = FIRST_DELAY
        while True:
            await asyncio.sleep(_BETWEEN_LOOKS)
            if not await asyncio.to_thread(embedded.has_died, self._settings):
                delay = FIRST_DELAY
                continue
            self._say("weft", "the database has died: starting it anew")
            try:
                await embedded.ensure_running(self._settings)
            except WeftError as problem:
                self._say("weft", f"it cannot be started, next try in {delay:g} s: {problem}")
                await asyncio.sleep(delay)
                delay = min(LONGEST_DELAY, 2 * delay)

    @asynccontextmanager
    async def _going(self, parts: Sequence[Part], name: str) -> AsyncIterator[None]:
        """Keep parts going; in the end they give back what they have, or at once after a second signal."""
        keepers = [asyncio.create_task(self._keep(part)) for part in parts]
        ending = asyncio.create_task(self._end_at_once(parts))
        try:
            yield
        finally:
            if parts and not self._failure:
                self._say("weft", f"the {name} may end what {'they have' if len(parts) > 1 else 'is'} begun")
            await asyncio.gather(*(part.stop() for part in parts))
            ending.cancel()
            await asyncio.gather(*keepers, ending, return_exceptions=True)

    async def _keep(self, part: Part) -> None:
        if code := await part.keep():
            self._failure = code
            self._signals.stop.set()

    async def _end_at_once(self, parts: Sequence[Part]) -> None:
        await self._signals.end.wait()
        for signum in (SIGINT, SIGKILL):
            for part in parts:
                part.end(signum)
            await asyncio.sleep(1.5 * LAST_MOMENT)

    @asynccontextmanager
    async def _serving(self, opening: asyncio.Task[Server]) -> AsyncIterator[Server | None]:
        """Answer over HTTP; None when the wish to stop comes before it does."""
        stopping = asyncio.create_task(self._signals.stop.wait())
        await asyncio.wait([opening, stopping], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not opening.done():
            opening.cancel()
            with suppress(asyncio.CancelledError):
                await opening
            yield None
            return
        server = await opening
        try:
            yield server
        finally:
            await server.__aexit__(None, None, None)

    async def _live(self, server: Server) -> None:
        watching = asyncio.create_task(self._watch()) if self._reloads and self._workers else None
        ending = [asyncio.create_task(wait) for wait in (self._signals.stop.wait(), server.wait())]
        ready = asyncio.create_task(self._settle())
        try:
            await asyncio.wait([ready, *ending], return_when=asyncio.FIRST_COMPLETED)
            if not self._signals.stop.is_set():
                self._announce(server, await self._sign_in())
                await asyncio.wait(ending, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (ready, *ending, *([] if watching is None else [watching])):
                task.cancel()

    async def _settle(self) -> None:
        """Return when each part is ready, or has said why it is not."""
        for part in (self._orchestrator, *self._workers):
            await part.settled.wait()

    async def _sign_in(self) -> SignIn:
        """Make a code by which a browser is let in once."""
        async with Client(settings=self._settings) as client:
            return await client.tokens.create_sign_in("weft dev", role="admin", expires_in=_LINK_LIFE)

    async def _watch(self) -> None:
        """Replace the workers whenever a Python file of the folder has changed."""
        files = await asyncio.to_thread(PythonFiles, Path.cwd())
        if files.is_too_large:
            self._say("weft", f"this folder has more than {MOST} Python files: changes in the others are not seen")
        while True:
            await asyncio.sleep(_BETWEEN_LOOKS)
            if changed := await asyncio.to_thread(files.changed):
                more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
                self._say("weft", f"{changed[0]}{more} changed: new workers")
                await asyncio.gather(*(part.replace() for part in self._workers))

    def _announce(self, server: Server, made: SignIn) -> None:
        url = self._settings.database_url
        where = f"embedded, in {layout_of(self._settings).home}" if url is None else redacted(url)
        count = len(self._workers)
        known = f"with the handlers of {', '.join(self._modules)}" if self._modules else "for operators of live DAGs"
        work = f"{count} process{'es' if count > 1 else ''} {known}"
        nothing = "none: give --app MODULE to run handlers here, --operators to run live DAGs"
        changes = "; they change with your files" if self._reloads else ""
        lines = (
            f"weft dev is ready after {span(round(time.monotonic() - self._began, 1))}, process {os.getpid()}",
            f"  address    {server.url}, its documentation {server.url}/docs",
            f"  database   {where}",
            f"  workers    {work + changes if count else nothing}",
            f"  sign in    {server.url}/sign-in?code={made.code}",
            f"             once, within {span(_LINK_LIFE)}; `weft tokens sign-in --role admin` makes another",
            "  try        weft tasks list, weft run FILE --detach, weft jobs list: elsewhere, without a token",
            "  stop       Ctrl-C",
        )
        print("\n".join(lines), flush=True)


def _new_server(settings: Settings, listening: socket.socket) -> Server:
    from weft.server.open_files import raise_limit
    from weft.server.serving import Server

    raise_limit()
    return Server(settings, listening=listening)
