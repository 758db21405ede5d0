"""One worker as a process: imports the handlers, works until a signal, gives everything back."""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NoReturn

from weft.cli.leash import Leash
from weft.cli.stopping import LAST_MOMENT, StopSignals
from weft.core.errors import HandlerImportFailed
from weft.core.log_lines import JsonLines
from weft.core.settings import Settings
from weft.sdk.client import Client
from weft.sdk.orchestrator import Orchestrator
from weft.sdk.worker import Worker
from weft.worker.context import RUNNING
from weft.worker.registry import REGISTRY


def new_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return what makes the event loop: uvloop where it exists."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def import_apps(modules: Sequence[str]) -> None:
    """Import the modules with handlers, as Python run in this folder would."""
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    for name in modules:
        try:
            importlib.import_module(name)
        except (Exception, SystemExit) as problem:  # the boundary to user code: told with its place
            logging.getLogger("weft.worker").debug("cannot import %s", name, exc_info=True)
            raise HandlerImportFailed(name, _cause(name, problem)) from problem
    REGISTRY.admit(modules)


def _cause(name: str, problem: BaseException) -> str:
    if name.endswith(".py") or os.sep in name:
        module = name.removesuffix(".py").replace(os.sep, ".").strip(".")
        return f"give a module, not a file: --app {module}"
    if (
        isinstance(problem, ModuleNotFoundError)
        and problem.name is not None
        and f"{name}.".startswith(f"{problem.name}.")
    ):
        return f"there is no module {problem.name!r} in {os.getcwd()} or on the Python path"
    frames = [frame for frame in traceback.extract_tb(problem.__traceback__) if "importlib" not in frame.filename]
    place = f" ({os.path.relpath(frames[-1].filename)}, line {frames[-1].lineno})" if len(frames) > 1 else ""
    return f"{type(problem).__name__}: {problem}{place}"


def log_to_stderr(level: str, format: str = "text") -> None:
    """Write what this process logs to the standard error; what its tasks log goes to their own files."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setLevel(level.upper())
    plain = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    handler.setFormatter(JsonLines() if format == "json" else plain)
    handler.addFilter(lambda record: RUNNING.get() is None or record.name == "weft.worker")
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.DEBUG if level == "debug" else logging.INFO)
    for chatty in ("alembic", "httpx"):  # of each step of a migration, of each request
        logging.getLogger(chatty).setLevel(logging.WARNING)


def logs_json() -> JsonLines | None:
    """Return what writes the lines of this process, when they are JSON."""
    found = [handler.formatter for handler in logging.getLogger().handlers]
    return next((each for each in found if isinstance(each, JsonLines)), None)


class WorkerProcess:
    """Works until it is told to stop, by a signal or by the end of the process that started it."""

    def __init__(
        self, settings: Settings, modules: Sequence[str], queues: Sequence[str], concurrency: int | None, leash: Leash
    ) -> None:
        self._settings = settings
        self._modules = list(modules)
        self._queues = list(queues) or None
        self._concurrency = concurrency
        self._leash = leash
        self._worker: Worker | None = None

    async def run(self) -> int:
        """Work until told to stop; return the code to exit with."""
        self._signals = StopSignals(
            None if self._leash.is_tied or logs_json() else self._settings.worker_shutdown_grace
        )
        serving = asyncio.create_task(self._serve())
        attendants = (self._watch_leash(), self._stop_early(serving), self._end_at_once())
        watching = [asyncio.create_task(work) for work in attendants]
        try:
            await serving
        except asyncio.CancelledError:
            if not self._signals.stop.is_set():
                raise
        finally:
            for task in watching:
                task.cancel()
        if any(thread is not threading.main_thread() and not thread.daemon for thread in threading.enumerate()):
            # What handlers have left in threads cannot be ended, and Python would wait for it.
            self._signals.end_process()
        return self._signals.exit_code

    async def _serve(self) -> None:
        async with self._new_client() as client:
            worker = self._new_worker(client)
            self._worker = await worker.start()
            if (lines := logs_json()) is not None:
                lines.always["worker_id"] = lambda: str(worker.process.id)
            # Not `run`, which gives everything back when it is cancelled, whoever did that.
            working = asyncio.create_task(worker.process.wait())
            stopping = asyncio.create_task(self._signals.stop.wait())
            try:
                await self._announce(worker)
                await asyncio.wait([working, stopping], return_when=asyncio.FIRST_COMPLETED)
            finally:
                stopping.cancel()
                # What the worker itself raised is told; anything else that ends it unasked is the doing of a task.
                has_failed = working.done() and not working.cancelled() and working.exception() is not None
                if not self._signals.stop.is_set() and not has_failed:
                    await self._abandon(worker)
                await worker.stop(0 if has_failed else None)
            await working

    def _new_client(self) -> Client:
        if self._settings.server is None:
            return Client(settings=self._settings)
        from weft.remote.client import RemoteClient

        return RemoteClient(settings=self._settings)

    def _new_worker(self, client: Client) -> Worker:
        return Worker(client=client, queues=self._queues, concurrency=self._concurrency, app_modules=self._modules)

    async def _abandon(self, worker: Worker) -> NoReturn:
        """End this process: a task has ended the event loop, or cancelled all that runs on it.

        Handed back as not begun, it would do so again and again: what is running counts as lost, as after any crash.
        """
        logging.getLogger("weft.worker").error("ended by one of its tasks: what it was running counts as lost")
        saying = asyncio.ensure_future(worker.process.abandon())
        for _ in range(3):
            # Whoever closes an event loop cancels what runs on it, perhaps more than once.
            with suppress(asyncio.CancelledError):
                await asyncio.wait([saying], timeout=LAST_MOMENT)  # if not, its lease lapses by itself
                break
        self._signals.end_process(1)

    def _ready_line(self, worker: Worker) -> str:
        count = len(REGISTRY.names())
        queues = f"queue{'s' if len(worker.queues) > 1 else ''} {', '.join(worker.queues)}"
        handlers = f"{count} handler{'s' if count != 1 else ''}"
        return f"worker {worker.process.id} ready, {queues}, {handlers}"

    async def _announce(self, worker: Worker) -> None:
        if logs_json() is not None:
            logging.getLogger("weft.worker").info("%s", self._ready_line(worker))
        if logs_json() is None or not self._leash.is_tied:
            with suppress(BrokenPipeError):  # whoever read this has gone, which is no reason not to work
                print(f"weft: {self._ready_line(worker)}", flush=True)
        await self._leash.tell_ready()

    async def _watch_leash(self) -> None:
        await self._leash.until_gone()
        self._signals.stop.set()

    async def _stop_early(self, serving: asyncio.Task[None]) -> None:
        """Give up starting when the wish to stop comes before there is anything to hand back."""
        await self._signals.stop.wait()
        if self._worker is None:
            serving.cancel()

    async def _end_at_once(self) -> None:
        """After the second signal hand back what runs, if that goes quickly, and end without waiting for it."""
        await self._signals.end.wait()
        if self._worker is not None:
            await self._worker.stop(grace=0)
        self._signals.end_process()


class OrchestratorProcess(WorkerProcess):
    """Advances jobs until it is told to stop."""

    def __init__(self, settings: Settings, leash: Leash) -> None:
        super().__init__(settings, [], [], None, leash)

    def _new_client(self) -> Client:
        return Client(settings=self._settings)

    def _new_worker(self, client: Client) -> Worker:
        return Orchestrator(client=client)

    def _ready_line(self, worker: Worker) -> str:
        return f"orchestrator {worker.process.id} ready"
