"""Starts workers and submitters as processes, ends them badly, and waits for what must come of it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asyncpg

from crash import ledger
from crash.copied import Copy
from weft.core.settings import Settings
from weft.db.database import Database

if TYPE_CHECKING:
    type_Connection = asyncpg.Connection[asyncpg.Record]

TESTS = Path(__file__).parents[1]
# What those call themselves to the server who are to be killed.
VICTIM = "victim"
# Generous: a machine under load is slow, and only what never happens must fail.
LIVENESS = 60.0


@asynccontextmanager
async def opened(settings: Settings) -> AsyncIterator[Database]:
    """Reach a database as a client does, and leave it."""
    database = await Database.open(settings)
    try:
        yield database
    finally:
        await database.close()


async def until(look: Callable[[], Awaitable[Any]], what: str, seconds: float = LIVENESS) -> Any:
    """Return what ``look`` finds as soon as that is true; a deadline says what never came about."""
    deadline = time.monotonic() + seconds
    while not (found := await look()):
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        await asyncio.sleep(0.01)
    return found


async def until_forgotten(conn: type_Connection) -> None:
    """Return when the server has ended the sessions of whoever died."""

    async def is_forgotten() -> bool:
        return not await conn.fetch("select 1 from pg_stat_activity where application_name = $1", VICTIM)

    await until(is_forgotten, "the server ends the sessions of the dead")


async def until_settled(conn: type_Connection, seconds: float = LIVENESS) -> None:
    """Return when no task is open."""

    async def is_settled() -> bool:
        return not await conn.fetchval("select exists (select 1 from weft.task)")

    try:
        await until(is_settled, "every task has ended", seconds)
    except AssertionError as problem:
        rows = await conn.fetch(
            "select t.id, t.handler, t.state::text, t.reason, t.attempt, t.crashes, t.worker_id,"
            " w.state::text as worker, w.rescued_at is not null as rescued, t.waiting_on, t.concurrency_key"
            " from weft.task t left join weft.worker w on w.id = t.worker_id order by t.id limit 10"
        )
        raise AssertionError(f"{problem}; open are {[dict(row) for row in rows]}") from None


async def until_waiting(conn: type_Connection, pid: int) -> None:
    """Return when the session of ``pid`` waits for a lock."""

    async def is_waiting() -> Any:
        # In a transaction, what was seen first would be seen again and again.
        await conn.execute("select pg_stat_clear_snapshot()")
        return await conn.fetchval(
            "select wait_event_type = 'Lock' and state = 'active' from pg_stat_activity where pid = $1", pid
        )

    await until(is_waiting, f"session {pid} waits for a lock")


async def until_call_waits(conn: type_Connection, call: str = "finish_and_claim") -> None:
    """Return when a worker's call waits for a lock."""

    async def is_waiting() -> Any:
        # In a transaction, what was seen first would be seen again and again.
        await conn.execute("select pg_stat_clear_snapshot()")
        return await conn.fetchval(
            "select exists (select 1 from pg_stat_activity where datname = current_database()"
            " and wait_event_type = 'Lock' and state = 'active' and query like $1)", f"%{call}%",
        )  # fmt: skip

    await until(is_waiting, f"a call of {call} waits for a lock")


class Process:
    """A program under test."""

    def __init__(self, process: asyncio.subprocess.Process | Copy, folder: Path) -> None:
        self._process = process
        self._folder = folder
        self.pid = process.pid

    @classmethod
    async def start(cls, module: str, config: dict[str, Any], folder: Path, skew: str | None = None) -> Process:
        """Start a module of this package; returns when it says that it is ready."""
        folder.mkdir(parents=True, exist_ok=True)
        program = [module] if skew is None else ["crash.apps.skewed", skew, module]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])}
        process: asyncio.subprocess.Process | Copy
        with open(folder / "stderr", "ab") as errors:
            # Neither a clock nor a limit of memory is changed but for what starts with it.
            if skew is None and config.get("memory") is None:
                process = await Copy.start(module, [json.dumps(config)], environment, folder, errors.fileno())
            else:
                process = await asyncio.create_subprocess_exec(
                    sys.executable, "-m", *program, json.dumps(config),
                    stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=errors, cwd=folder,
                    env=environment,
                )  # fmt: skip
        started = cls(process, folder)
        try:
            async with asyncio.timeout(LIVENESS):
                assert process.stdout is not None
                line = await process.stdout.readline()
        except BaseException:
            await started.kill()
            raise
        if line != b"ready\n":
            await started.kill()
            raise AssertionError(f"{module} did not start:\n{(folder / 'stderr').read_text()[-3000:]}")
        return started

    @property
    def is_alive(self) -> bool:
        """Whether the process has not ended."""
        return self._process.returncode is None

    async def kill(self) -> None:
        """End it by SIGKILL, also when it is paused."""
        if self.is_alive:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
        await self.wait()

    def pause(self) -> None:
        """Stop it where it is."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        os.kill(self.pid, signal.SIGCONT)

    def terminate(self) -> None:
        """Ask it to end, as a supervisor does."""
        self._process.terminate()

    def tell(self) -> None:
        """Let a worker write to its log what it waits for."""
        os.kill(self.pid, signal.SIGUSR1)

    def say(self, line: str) -> None:
        """Write a line to its standard input."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())

    async def hear(self) -> str:
        """Return the next line of its standard output; empty when it has ended."""
        assert self._process.stdout is not None
        async with asyncio.timeout(LIVENESS):
            return (await self._process.stdout.readline()).decode().rstrip("\n")

    async def finish(self) -> int:
        """Close its standard input, and return how it ended."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        return await self.wait()

    async def wait(self) -> int:
        """Return its exit status when it has ended, which must be soon."""
        async with asyncio.timeout(LIVENESS):
            return await self.ended()

    async def ended(self) -> int:
        """Return its exit status when it has ended, whenever that is."""
        status = await self._process.wait()
        ledger.note_death(self._folder, self.pid)
        return status


class Performance:
    """One process that performs an act."""

    def __init__(self, copies: Process, pid: int) -> None:
        self._copies = copies
        self._pid = pid
        self.end = asyncio.create_task(copies.hear())

    async def kill(self) -> None:
        """End it by SIGKILL."""
        os.kill(self._pid, signal.SIGKILL)
        assert int(await self.end) == -signal.SIGKILL

    async def is_reached(self, event: asyncio.Event) -> bool:
        """Return whether something happens before it ends."""
        waiting = asyncio.create_task(event.wait())
        await asyncio.wait([waiting, self.end], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        return event.is_set()


class Crew:
    """The processes of one test, which share a folder for the ledger."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.folder = folder
        self.processes: list[Process] = []

    async def worker(
        self, *, queues: tuple[str, ...] = ("default",), concurrency: int = 8, grace: float = 10.0,
        modules: tuple[str, ...] = ("crash.apps.handlers",), memory: int | None = None, skew: str | None = None,
        **settings: Any,
    ) -> Process:  # fmt: skip
        """Start a worker, in the fast profile unless told otherwise; ``skew`` says how its clock is wrong."""
        return await self._start("crash.apps.worker", skew, {
            "queues": queues, "concurrency": concurrency, "grace": grace, "modules": modules, "memory": memory,
            "folder": str(self.folder), "settings": self._settings(settings),
        })  # fmt: skip

    async def workers(self, count: int, **options: Any) -> list[Process]:
        """Start several workers."""
        return list(await asyncio.gather(*(self.worker(**options) for _ in range(count))))

    async def orchestrator(self, *, skew: str | None = None, **settings: Any) -> Process:
        """Start an orchestrator; ``skew`` says how its clock is wrong."""
        return await self._start("crash.apps.worker", skew, {
            "orchestrates": True, "grace": 10.0, "modules": (), "memory": None, "folder": str(self.folder),
            "settings": self._settings(settings),
        })  # fmt: skip

    async def submitter(
        self, seed: int, *, queues: tuple[str, ...] = ("default",), window: int = 30, skew: str | None = None
    ) -> Process:
        """Start a submitter."""
        return await self._start("crash.apps.submitter", skew, {
            "queues": queues, "seed": seed, "window": window, "folder": str(self.folder),
            "settings": self._settings({}),
        })  # fmt: skip

    async def history_writer(self, config: dict[str, Any]) -> Process:
        """Start writers of the history of a workflow, which begin when they are told to."""
        return await self._start("crash.apps.history_writer", None, config)

    def _settings(self, changed: dict[str, Any]) -> dict[str, Any]:
        return {"database_url": self.url, "home": str(self.folder / "home"), "profile": "fast", **changed}

    async def _start(self, module: str, skew: str | None, config: dict[str, Any]) -> Process:
        process = await Process.start(module, config, self.folder, skew)
        self.processes.append(process)
        return process

    def ledger(self) -> ledger.Ledger:
        """Read the ledger."""
        return ledger.Ledger.read(self.folder)

    async def until_started(self, *task_ids: int, attempt: int = 1) -> list[ledger.Span]:
        """Return when an attempt of each task has begun, with these attempts."""

        async def have_started() -> list[ledger.Span]:
            found = {span.task_id: span for span in self.ledger().spans if span.attempt == attempt}
            return [found[task_id] for task_id in task_ids] if found.keys() >= set(task_ids) else []

        began: list[ledger.Span] = await until(have_started, f"attempt {attempt} of {task_ids} has begun")
        return began

    async def until_any_started(self, task_ids: set[int]) -> None:
        """Return when an attempt of any of the tasks has begun."""

        async def has_started() -> bool:
            return any(span.task_id in task_ids for span in self.ledger().spans)

        await until(has_started, f"any of {len(task_ids)} tasks has begun")

    def log(self) -> str:
        """Return what the processes logged."""
        return (self.folder / "stderr").read_text(errors="replace")

    async def disband(self) -> None:
        """End all processes that this crew started, and let go of those that have ended by themselves."""
        await asyncio.gather(*(process.kill() for process in self.processes))


@asynccontextmanager
async def crew_at(url: str, folder: Path) -> AsyncIterator[Crew]:
    """Lend a crew, and end its processes afterwards."""
    crew = Crew(url, folder)
    try:
        yield crew
    finally:
        await crew.disband()
