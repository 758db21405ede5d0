"""Runs attempts in child processes, one at a time in each, that are killed when an attempt must end."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import logging
import os
import secrets
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import orjson

from weft.core.errors import InvalidInput, LeaseLost, NotFound
from weft.core.settings import Settings
from weft.queue.work import Claim
from weft.worker.context import beat_interval
from weft.worker.logs import TaskLog
from weft.worker.registry import Registry
from weft.worker.workshop import settings_to_tell

logger = logging.getLogger("weft.worker")
# What does what a handler asks for: a verb and its arguments.
Answer = Callable[[str, dict[str, Any]], Awaitable[Any]]
_START_LIMIT = 60.0
_LAST_WORDS = 0.5
_START_TRIES, _START_PAUSE = 30, 1.0


class ChildDied(Exception):
    """The process in which an attempt ran is gone."""

    @classmethod
    def with_status(cls, status: int | None) -> ChildDied:
        """It ended by itself or by a signal."""
        how = f"signal {signal.Signals(-status).name}" if status is not None and status < 0 else f"exit status {status}"
        return cls(f"the process of the task ended with {how}")


class Child:
    """One child process."""

    def __init__(self, process: asyncio.subprocess.Process, answers: asyncio.StreamReader, marker: bytes) -> None:
        self._process = process
        self._answers = answers
        self._marker = marker
        self._reaping: asyncio.Task[None]
        self._answers_end: asyncio.ReadTransport

    @classmethod
    async def start(cls, modules: list[str], main_file: str | None) -> Child:
        """Start a process, and return it when it has imported ``modules``."""
        read_end, write_end = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "weft.worker.child", str(write_end),
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
                pass_fds=[write_end], start_new_session=True, limit=2**20,
            )  # fmt: skip
        except BaseException:
            os.close(read_end)
            raise
        finally:
            os.close(write_end)
        # Of two processes that both need memory, the one that runs a single task should be the one to go.
        with contextlib.suppress(OSError):
            Path(f"/proc/{process.pid}/oom_score_adj").write_text("1000", encoding="ascii")
        # The child keeps to the limit of a value; escaped, it may be twice as long.
        answers = asyncio.StreamReader(limit=sys.maxsize)
        answers_end, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(answers), os.fdopen(read_end, "rb", buffering=0)
        )
        marker = f"\x00weft-{secrets.token_hex(16)}\x00".encode()
        setup = {"path": sys.path, "modules": modules, "main": main_file, "marker": marker.decode()}
        child = cls(process, answers, marker)
        child._answers_end = answers_end
        child._send(setup)
        child._reaping = asyncio.create_task(child._reap())
        try:
            await child._until_ready()
        except BaseException:
            await asyncio.shield(child.kill())
            raise
        return child

    async def _until_ready(self) -> None:
        """Wait until it has imported everything and can begin at once."""
        if not await self._answers.readline():
            raise ChildDied.with_status(await self._process.wait())

    async def _reap(self) -> None:
        """End what the process has started with it: their ends of its pipes would hide that it is gone.

        What has left its group is out of reach and may hold them for ever: our ends are closed soon after.
        """
        await self._until_gone()
        self._kill_group()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST_WORDS):
                await self._process.wait()
        self._process._transport.close()  # type: ignore[attr-defined]
        self._answers_end.close()

    async def _until_gone(self) -> None:
        """Not `Process.wait`: asyncio's own lets that wait for the ends of all pipes, whoever holds them."""
        try:
            watch = os.pidfd_open(self._process.pid)
        except (OSError, AttributeError):
            while self._process.returncode is None:  # noqa: ASYNC110  a system without pidfd tells nothing else
                await asyncio.sleep(_LAST_WORDS)
            return
        loop, gone = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(watch, gone.set)
        try:
            await gone.wait()
        finally:
            loop.remove_reader(watch)
            os.close(watch)
        while self._process.returncode is None:  # noqa: ASYNC110  asyncio hears of it a moment later
            await asyncio.sleep(0.005)

    def _kill_group(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def _send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(orjson.dumps(message) + b"\n")

    def request_shutdown(self) -> None:
        """Tell what runs there that the worker is about to stop."""
        if self.is_alive:
            self._send({"shutdown": True})

    async def _reply(self, question: dict[str, Any], answer: Answer | None) -> None:
        """Answer a question of the task; without an ``answer`` it comes from what an earlier one has left behind."""
        reply: dict[str, Any] = {"call": question["call"], "value": None}
        try:
            if answer is None:
                raise LeaseLost(question["id"])
            reply["value"] = await answer(question["verb"], question["arguments"])
        except LeaseLost:
            reply["lost"] = True
        except InvalidInput as problem:
            reply["refused"] = [problem.field, problem.problem]
        except NotFound as problem:
            reply["missing"] = str(problem)
        except Exception as problem:  # noqa: BLE001  raised again where it was asked
            reply["problem"] = f"{type(problem).__name__}: {problem}"
        if self.is_alive:
            self._send(reply)

    async def run(
        self, claim: Claim, params: str, worker_id: int, log: TaskLog, beat: Callable[[], None], answer: Answer,
        settings: Settings, *, has_database: bool,
    ) -> dict[str, Any]:  # fmt: skip
        """Run one attempt and return its answer; raises `ChildDied` when the process ends instead."""
        self._send(
            {"id": claim.id, "attempt": claim.attempt, "handler": claim.handler, "params": params,
             "worker_id": worker_id, "job_id": claim.job_id, "node": claim.node,
             "inline_limit": settings.inline_limit if has_database else None,
             "value_limit": settings.value_limit, "beat_interval": beat_interval(claim.heartbeat_timeout),
             "settings": settings_to_tell(settings)}
        )  # fmt: skip
        copying = asyncio.create_task(self._copy_output(log))
        replies = set[asyncio.Task[None]]()
        try:
            while True:
                line = await self._answers.readline()
                if not line:
                    await copying
                    raise ChildDied.with_status(await self._process.wait())
                told: dict[str, Any] = orjson.loads(line)
                is_ours = (told["id"], told["attempt"]) == (claim.id, claim.attempt)
                # Beats and questions may come from a thread that an earlier task has left behind.
                if told["outcome"] == "beat":
                    if is_ours:
                        beat()
                    continue
                if told["outcome"] == "ask":
                    reply = asyncio.create_task(self._reply(told, answer if is_ours else None))
                    replies.add(reply)
                    reply.add_done_callback(replies.discard)
                    continue
                if not is_ours:
                    raise ChildDied("the process of the task answered for another one, and was ended")
                await copying
                return told
        except BaseException:
            # Ended by force: what it has printed until now belongs to its log.
            if self.is_alive:
                self._kill_group()
            await asyncio.wait([copying], timeout=_LAST_WORDS)
            raise
        finally:
            copying.cancel()
            for reply in replies:
                reply.cancel()

    async def _copy_output(self, log: TaskLog) -> None:
        """Copy what the task prints to its log, up to the marker or the end."""
        assert self._process.stdout is not None
        held = b""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        while True:
            piece = await self._process.stdout.read(65536)
            held += piece
            end = held.find(self._marker)
            if end >= 0 or not piece:
                log.write(decoder.decode(held[: end if end >= 0 else None], final=True))
                return
            # The marker may be cut by the end of a piece: keep what could be its beginning.
            kept = next((n for n in range(len(self._marker) - 1, 0, -1) if held.endswith(self._marker[:n])), 0)
            log.write(decoder.decode(held[: len(held) - kept]))
            held = held[len(held) - kept :]

    async def kill(self) -> None:
        """End the process and everything that it started."""
        # Of one that has ended the group went with it, and its number may belong to others by now.
        if self.is_alive:
            self._kill_group()
        await self._reaping

    @property
    def is_alive(self) -> bool:
        """Whether the process has not ended."""
        return self._process.returncode is None


class Processes:
    """Children kept for reuse; one whose task was ended by force is killed, not reused."""

    def __init__(self, modules: list[str], main_file: str | None) -> None:
        self._modules = modules
        self._main_file = main_file
        self._idle: list[Child] = []
        self._busy: set[Child] = set()
        self._is_stopping = False
        # After a crash a whole worker's tasks want a process each; all at once they would hold up everything.
        self._turn = asyncio.Semaphore(os.cpu_count() or 1)

    @classmethod
    def of(cls, registry: Registry, app_modules: Sequence[str]) -> Processes:
        """Return processes that know the handlers of ``registry``, as far as modules hold them."""
        main_file = getattr(sys.modules.get("__main__"), "__file__", None)
        modules = {handler.function.__module__ for handler in registry}
        others = sorted(modules - {"__main__"} - set(app_modules))
        uses_main = "__main__" in modules and main_file is not None
        return cls([*app_modules, *others], os.path.abspath(main_file) if uses_main and main_file else None)

    async def run(
        self,
        claim: Claim,
        params: str,
        worker_id: int,
        log: TaskLog,
        beat: Callable[[], None],
        *,
        answer: Answer,
        on_start: Callable[[], None],
        settings: Settings,
        has_database: bool,
        alone: bool,
    ) -> dict[str, Any]:
        """Run one attempt in a child; with ``alone`` in one that has run nothing before and runs nothing after.

        It calls ``on_start`` when the child is there: to wait for it is not the attempt's own time.
        """
        child = self._idle.pop() if self._idle and not alone else None
        if child is None or not child.is_alive:
            child = await self._start()
        on_start()
        self._busy.add(child)
        if self._is_stopping:
            child.request_shutdown()
        reusable = False
        try:
            told = await child.run(claim, params, worker_id, log, beat, answer, settings, has_database=has_database)
            reusable = not (alone or told.get("is_last"))
            return told
        finally:
            self._busy.discard(child)
            if reusable:
                self._idle.append(child)
            else:
                await asyncio.shield(child.kill())

    async def _start(self) -> Child:
        """Start a child when it is its turn; what the machine lacks at the moment it may have again soon."""
        async with self._turn:
            tries = 0
            while True:
                try:
                    return await asyncio.wait_for(Child.start(self._modules, self._main_file), _START_LIMIT)
                except TimeoutError as problem:
                    raise ChildDied(f"the process of the task was not ready within {_START_LIMIT:g} s") from problem
                except OSError as problem:
                    tries += 1
                    if tries >= _START_TRIES:
                        raise
                    logger.warning("cannot start a process, trying again: %s", problem)
                    await asyncio.sleep(_START_PAUSE)

    def request_shutdown(self) -> None:
        """Tell what runs in children that the worker is about to stop."""
        self._is_stopping = True
        for child in self._busy:
            child.request_shutdown()

    async def close(self) -> None:
        """Kill all children."""
        children = [*self._idle, *self._busy]
        self._idle.clear()
        await asyncio.gather(*(child.kill() for child in children))
