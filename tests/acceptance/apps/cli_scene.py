"""The command line as tests use it: real processes, whose output is waited for."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import json
import os
import re
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TextIO, TypeVar

import weft
from warm import WarmCommand, run_weft

T = TypeVar("T")

APPS = Path(__file__).parent
PATIENCE = 60.0
# Less than the grace of a worker, so that one which must end at once is seen to.
_UNTIL_IT_ENDS = 29.0


class Command:
    """A command that goes on, with its output line by line."""

    def __init__(self, process: WarmCommand, *streams: TextIO) -> None:
        self.process = process
        self._streams = streams
        self.lines: list[str] = []
        self._changed = threading.Condition()
        self._seen = 0
        self._readers = [threading.Thread(target=self._read, args=(stream,)) for stream in streams]
        for reader in self._readers:
            reader.start()

    def _read(self, stream: Any) -> None:
        for line in stream:
            with self._changed:
                self.lines.append(line.rstrip("\n"))
                self._changed.notify_all()

    def line(self, pattern: str) -> str:
        """Return the next line, of either stream, that has ``pattern`` in it; lines before it count as seen."""
        deadline = time.monotonic() + PATIENCE
        with self._changed:
            while True:
                while self._seen < len(self.lines):
                    self._seen += 1
                    if re.search(pattern, self.lines[self._seen - 1]):
                        return self.lines[self._seen - 1]
                left = deadline - time.monotonic()
                assert left > 0, f"no line with {pattern!r} in {self.lines}"
                self._changed.wait(left)

    def signal(self, signum: int) -> None:
        self.process.send_signal(signum)

    def code(self) -> int:
        """Wait for the end and return the exit code."""
        code = self.process.wait(_UNTIL_IT_ENDS)
        for reader in self._readers:
            reader.join(PATIENCE)
        return code

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.code()
        for stream in self._streams:
            stream.close()


class Cli:
    """`weft` on a database and a home of the test's own."""

    def __init__(self, url: str | None, home: Path, **variables: str) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("WEFT_", "PG", "COV_"))}
        self.environment = {**kept, "WEFT_HOME": str(home), "PYTHONWARNINGS": "error", **variables}
        if url is not None:
            self.environment["WEFT_DATABASE_URL"] = url
        self.folder = APPS
        # What has the database, also when the commands go through a server.
        self._direct = self.environment
        # What workers have.
        self._of_workers = self.environment

    def __call__(self, *arguments: str, code: int = 0, text: str | None = None) -> str:
        """Run a command to its end; return what it printed, or the one line of its complaint when it must fail."""
        done = run_weft(arguments, environment=self.environment, folder=self.folder, text=text, timeout=60)
        assert done.returncode == code, (arguments, done.returncode, done.stdout, done.stderr)
        if code == 0:
            return done.stdout
        assert "Traceback" not in done.stderr
        return done.stderr.strip()

    def json(self, *arguments: str, code: int = 0) -> Any:
        """Run a command with ``--json`` and return its one document."""
        done = run_weft([*arguments, "--json"], environment=self.environment, folder=self.folder, text=None, timeout=60)
        assert done.returncode == code, (arguments, done.returncode, done.stdout, done.stderr)
        return json.loads(done.stdout)

    @property
    def direct(self) -> Cli:
        """The same command line with the database."""
        other = copy.copy(self)
        other.environment = self._direct
        return other

    @contextlib.contextmanager
    def through_server(self, role: str = "admin") -> Iterator[Cli]:
        """Lend the same command line without the database: with a server of it, and a token."""
        token = self._ask(lambda client: client.tokens.create("cli", role=role)).secret
        with serving(weft.Settings.load(environ=self.environment)) as url:
            other = copy.copy(self)
            kept = {name: value for name, value in self.environment.items() if name != "WEFT_DATABASE_URL"}
            other.environment = {**kept, "WEFT_SERVER": url, "WEFT_TOKEN": token}
            yield other

    @contextlib.contextmanager
    def with_far_workers(self) -> Iterator[Cli]:
        """Lend the same command line, whose workers have no database: a server of it, and a token."""
        with self.through_server("worker") as far:
            other = copy.copy(self)
            other._of_workers = far.environment
            yield other

    @contextlib.contextmanager
    def start(self, *arguments: str) -> Iterator[Command]:
        """Start a command that goes on; it is killed when the test leaves it."""
        pipes = [os.pipe() for _ in range(2)]
        with open(os.devnull, "rb") as nothing:
            ends = [nothing.fileno(), *(write_end for _, write_end in pipes)]
            process = WarmCommand(arguments, self.environment, self.folder, ends)
        for _, write_end in pipes:
            os.close(write_end)
        command = Command(process, *(os.fdopen(read_end, encoding="utf-8") for read_end, _ in pipes))
        try:
            yield command
        finally:
            command.close()

    @contextlib.contextmanager
    def worker(self, *arguments: str) -> Iterator[Command]:
        """Start a worker with the handlers of `cli_app`, and wait until it is ready."""
        own = copy.copy(self)
        own.environment = self._of_workers
        with own.start("worker", "--app", "cli_app", "--fast", *arguments) as command:
            command.line("ready")
            yield command
            if command.process.poll() is None:
                command.signal(signal.SIGTERM)
                command.code()

    def enqueue(self, handler: str, *, queue: str = "default", **params: Any) -> str:
        """Enqueue a task and return its id; by the client, where the command itself is not what is tested."""
        return str(self._ask(lambda client: client.enqueue(handler, params, queue=queue)).id)

    def enqueue_many(self, handler: str, count: int) -> None:
        """Enqueue many tasks; by the client as well."""
        self._ask(lambda client: client.enqueue_many([weft.NewTask(handler)] * count))

    def task(self, task_id: str) -> weft.Task:
        """Return a task; by the client as well."""
        return self._ask(lambda client: client.get_task(int(task_id)))

    def workers(self) -> list[weft.WorkerInfo]:
        """Return the workers that have not stopped; by the client as well."""
        return [worker for worker in self._ask(lambda client: client.workers()) if worker.state != "stopped"]

    def _ask(self, question: Callable[[weft.Client], Awaitable[T]]) -> T:
        async def ask() -> T:
            async with weft.Client(settings=weft.Settings.load(environ=self._direct)) as client:
                return await question(client)

        return asyncio.run(ask())

    def wait_until_logged(self, task_id: str, word: str) -> None:
        """Follow a task's log until it has ``word``."""
        with self.start("tasks", "logs", "-f", task_id) as following:
            following.line(word)


@contextlib.contextmanager
def serving(settings: weft.Settings, port: int = 0) -> Iterator[str]:
    """Answer over HTTP from a thread of the test's process, and lend the address."""
    from weft.server.serving import Server

    loop, stopping = asyncio.new_event_loop(), asyncio.Event()
    address: Future[str] = Future()

    async def serve() -> None:
        async with Server(settings, port=port) as server:
            address.set_result(server.url)
            await stopping.wait()

    def run() -> None:
        try:
            loop.run_until_complete(serve())
        except BaseException as problem:
            address.set_exception(problem)
        finally:
            loop.close()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield address.result(PATIENCE)
    finally:
        if not loop.is_closed():
            loop.call_soon_threadsafe(stopping.set)
        thread.join(PATIENCE)


def until(look: Callable[[], Any]) -> Any:
    """Look until there is something to see, and return it; each look asks the database, which takes its time."""
    deadline = time.monotonic() + PATIENCE
    while not (seen := look()):
        assert time.monotonic() < deadline, "it never came"
    return seen
