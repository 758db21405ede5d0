"""Runs one attempt from its claim to exactly one outcome."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import math
import threading
import time
from concurrent.futures import Future
from datetime import timedelta
from typing import Any

import orjson

from weft.core.errors import InvalidInput, NotFound
from weft.core.json import BLOB_MARK, CACHED_MARK, RENDER_MARK, blob_reference, check_size, referenced_blob, size_of
from weft.core.server_errors import NeedsDatabase
from weft.core.signals import NonRetryable, Parked, Snooze
from weft.flow.budget import ExpressionError
from weft.jobs.rendering import rendered, unpacked
from weft.queue.retry import Retry
from weft.queue.steps import Fence
from weft.queue.work import MISSING_PARAMS, NO_HEARTBEAT, Claim, Completed, Ended, Postponed
from weft.worker.answers import AWAIT_TASKS, LEAVE, SPAWN
from weft.worker.caching import Caching, caching_said
from weft.worker.context import RETURN_IT, RUNNING, Context, beat_interval, describe_error
from weft.worker.environment import Environment
from weft.worker.logs import TaskLog
from weft.worker.processes import ChildDied
from weft.worker.registry import AnyHandler
from weft.worker.reporting import about, report
from weft.worker.resting import Rest
from weft.worker.reusing import run_cached
from weft.worker.spans import place_of

logger = logging.getLogger("weft.worker")
Outcome = Completed | Postponed | Ended
CANCEL_GRACE = 1.0
_SHORTEST_BEAT = 0.1


class TimedOut(Exception):
    """The attempt ran longer than its timeout."""


class Attempt:
    """One attempt while it runs; it ends in exactly one outcome, or in none when it is no longer ours.

    ``has_missed`` says whether it has asked for something that is not there.

    Made for every task, so it makes nothing that most tasks never use.
    """

    __slots__ = (
        "_context",
        "_ending",
        "_log",
        "_rest",
        "claim",
        "env",
        "handler",
        "has_missed",
        "is_over",
        "started",
        "task",
        "timer",
    )

    def __init__(self, env: Environment, claim: Claim, handler: AnyHandler) -> None:
        self.env = env
        self.claim = claim
        self.handler = handler
        self.started = time.monotonic()
        self.is_over = self.has_missed = False
        self.task: asyncio.Task[None] | None = None
        self.timer: asyncio.TimerHandle | None = None
        self._context: Context | None = None
        self._log: TaskLog | None = None
        self._ending: str | None = None
        self._rest: Rest | None = None

    @property
    def context(self) -> Context:
        """What the handler may know and do."""
        if self._context is None:
            claim = self.claim
            self._context = Context(
                task_id=claim.id, attempt=claim.attempt, handler=claim.handler, worker_id=self.env.worker_id,
                write=self._write_now, beat=self.beat, beat_interval=beat_interval(claim.heartbeat_timeout),
                job_id=claim.job_id, node=claim.node, ask=self._ask, shutdown=self.env.shutdown,
                pool=self.env.pool, workshop=self.env.workshop,
            )  # fmt: skip
            if self._ending is not None:
                self._context.cancel()
        return self._context

    @property
    def log(self) -> TaskLog:
        """The log of this attempt."""
        if self._log is None:
            self._log = TaskLog(self.env.log_folder, self.claim.id, self.env.settings.log_limit, self.claim.attempt)
        return self._log

    @property
    def has_log(self) -> bool:
        """Whether anything was written to the log."""
        return self._log is not None and self._log.has_text

    def write_log(self, text: str) -> bool:
        """Append to the log; False when the attempt is over, and what a thread of it prints now is no part of it."""
        if self.is_over:
            return False
        self.log.write(text)
        return True

    def is_overdue(self, now: float) -> bool:
        """Whether the attempt has run for longer than its timeout, or the worker's."""
        limit = self.timeout or self.env.settings.worker_task_timeout
        return now - self.started > limit.total_seconds()

    @property
    def policy(self) -> Retry:
        """How the task is retried: as whoever enqueued it said or knew, else as its handler says, field by field."""
        claim = self.claim
        general = self.handler.retry or Retry(max_attempts=self.env.settings.worker_max_attempts)
        if claim.max_attempts is None and claim.retry is None:
            return general
        return Retry.from_json(claim.retry, claim.max_attempts or general.max_attempts, general)

    @property
    def timeout(self) -> timedelta | None:
        """The timeout of its task, else that of its handler: whoever enqueued by name does not know the handler's."""
        return self.claim.timeout or self.handler.timeout

    @property
    def _runs_in_process(self) -> bool:
        """Whether it is kept apart from others: it asks for that, or was in a crash. What is the engine's never is."""
        is_suspect = self.claim.crashes > 0 and not self.claim.handler.startswith("@")
        return is_suspect or self.handler.executor == "process"

    def beat(self) -> None:
        """Say that the attempt is alive."""
        self.env.beat(self.claim)

    def _ask(self, verb: str, arguments: dict[str, Any]) -> Future[Any]:
        """Do what the handler asks for; called on any thread."""
        assert self.task is not None
        return asyncio.run_coroutine_threadsafe(self.answer(verb, arguments), self.task.get_loop())

    async def answer(self, verb: str, arguments: dict[str, Any]) -> Any:
        """Do what the handler asks for."""
        if verb in (SPAWN, AWAIT_TASKS, LEAVE):
            self._rest = self._rest or Rest(self)
            return await self._rest.answer(verb, arguments)
        try:
            return await self.env.answers.answer(self.fence, verb, arguments, self.is_ending)
        except NotFound:
            self.has_missed = True
            raise

    @property
    def fence(self) -> Fence:
        """In whose name the attempt writes."""
        return Fence(self.env.worker_id, self.claim.id, self.claim.attempt)

    def is_ending(self) -> bool:
        """Whether it is over, or was told to end."""
        return self.is_over or self._ending is not None

    @property
    def why_ended(self) -> str | None:
        """Why it was told to end, if it was."""
        return self._ending

    def end(self, why: str) -> None:
        """End the attempt: ``timeout`` writes an outcome, anything else writes none (someone else decides)."""
        if self._ending is None:
            self._ending = why
            if self._context is not None:
                self._context.cancel()
            if self.task is not None:
                # A task that is cancelled before its first step never runs, so its end is heard of only here.
                self.task.add_done_callback(self._never_ran)
                self.task.cancel()
                self.task.get_loop().call_later(CANCEL_GRACE, self._give_up)

    def _never_ran(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            self._over(self._outcome_of_ending())

    def _give_up(self) -> None:
        """The handler swallowed its cancellation: it goes on, but what it does counts no more."""
        if not self.is_over and self.task is not None and not self.task.done():
            said = "task %s (%s) ignores its cancellation and is left behind"
            logger.warning(said, self.claim.id, self.claim.handler, extra=about(self))
            self._over(self._outcome_of_ending())
            self.task.cancel()

    def _outcome_of_ending(self) -> Outcome | None:
        return self._failed(self._timeout_error(), "timeout") if self._ending == "timeout" else None

    def _over(self, outcome: Outcome | None) -> None:
        """Tell the one outcome; whatever comes later is not heard."""
        if self.is_over:
            return
        self.is_over = True
        try:
            if self._log is not None:
                self._log.close()
        except OSError as problem:
            logger.warning("the log of task %s is incomplete: %s", self.claim.id, problem, extra=about(self))
        if isinstance(outcome, (Postponed, Ended)):
            report(self, outcome)
        self.env.on_end(self, outcome)

    async def run(self) -> None:
        """Run the handler and tell the outcome; None says that the attempt is no longer ours."""
        claim, handler = self.claim, self.handler
        RUNNING.set(self)
        if self.env.tracer is not None:
            self.env.tracer.enter(place_of(claim))
        outcome: Outcome | None = None
        if claim.max_attempts is None and claim.failures >= self.policy.max_attempts:
            # Its heartbeats were missed, and whoever noticed did not know how often its handler may be tried.
            self._over(Ended(claim.id, claim.attempt, "dead", "failed", "heartbeat_timeout", NO_HEARTBEAT))
            return
        try:
            params, caching = claim.params or "{}", handler.caching
            if params.startswith((RENDER_MARK, CACHED_MARK)) and (
                claim.job_id is not None or claim.handler.startswith("@")
            ):
                params, caching = await self._prepared(params)
            if caching is not None and params != MISSING_PARAMS:
                outcome = await run_cached(self, params, caching)
            elif self._runs_in_process or params.startswith((BLOB_MARK, MISSING_PARAMS)):
                outcome = await self.run_apart(params)
            else:
                output = await self._call(params)
                self._require_in_time()
                if output is None and not handler.arguments.checks_output:
                    text = "null"
                else:
                    text = await self._written(handler.arguments.write_returned(output))
                outcome = Completed(claim.id, claim.attempt, text)
        except asyncio.CancelledError as problem:
            if self._ending == "timeout":
                outcome = self._failed(self._timeout_error(), "timeout")
            elif self._ending is None:
                # The handler cancelled itself: a failure like any other.
                outcome = self._failed(describe_error(problem), "error")
        except TimedOut:
            outcome = self._failed(self._timeout_error(), "timeout")
        except Parked:
            pass
        except BaseException as problem:  # noqa: BLE001  the boundary to user code: recorded with the attempt
            try:
                outcome = self._from_exception(problem)
            except BaseException as again:  # noqa: BLE001  an error that breaks what looks at it
                outcome = self._failed(describe_error(again), "error")
        self._over(outcome)

    async def _prepared(self, params: str) -> tuple[str, Caching | None]:
        """Return the params, rendered where others' outputs are asked for, and whether an earlier output serves."""
        params, caching = caching_said(params, self.handler.caching)
        is_open = self.claim.given is not None or self.claim.handler.startswith("@")
        return (await self._rendered(params) if is_open and params.startswith(RENDER_MARK) else params), caching

    async def _rendered(self, params: str) -> str:
        """Return the params with the outputs of other tasks in them; what the engine carries out gets both apart."""
        limit = self.env.settings.value_limit
        spec, values = await unpacked(params, self.claim.given, lambda: self.env.blobs_of(self.claim), limit)
        if self.claim.handler.startswith("@"):
            return orjson.dumps({"spec": spec, "values": values}).decode()
        return rendered(spec, values)

    async def _call(self, params: str) -> Any:
        handler = self.handler
        arguments = handler.arguments.read(params)
        if handler.arguments.context_name is not None:
            arguments[handler.arguments.context_name] = self.context
        if handler.is_async:
            return await handler.function(**arguments)
        return await self._run_in_thread(arguments)

    async def run_apart(self, params: str) -> Outcome:
        """The ways that few tasks take: params in the blob storage, or a process of its own."""
        claim = self.claim
        if params == MISSING_PARAMS:
            raise NonRetryable("the params of this task are gone: its partition was dropped")
        if (digest := referenced_blob(params)) is not None:
            params = (await self.env.blobs_of(self.claim).get(digest)).decode()
        if self._runs_in_process:
            return await self._run_in_process(params)
        return Completed(claim.id, claim.attempt, await self._written(await self._call_and_write(params)))

    def _require_in_time(self) -> None:
        """Refuse what came too late: where the handler blocked the event loop, no timer could end it."""
        if self._ending == "timeout" or (self.timer is not None and self.is_overdue(time.monotonic())):
            raise TimedOut

    async def _call_and_write(self, params: str) -> str:
        output = await self._call(params)
        self._require_in_time()
        return self.handler.arguments.write_returned(output)

    def _from_exception(self, problem: BaseException) -> Outcome:
        claim = self.claim
        if isinstance(problem, Snooze):
            return Postponed(claim.id, claim.attempt, problem.delay, "snoozed", "snooze", None, False)
        error = describe_error(problem)
        if isinstance(problem, ExpressionError):
            return Ended(claim.id, claim.attempt, "failed", "failed", "expression", error)
        if isinstance(problem, (NonRetryable, InvalidInput)) or self.handler.gives_up_on(problem):
            return Ended(claim.id, claim.attempt, "failed", "failed", "non_retryable", error)
        return self._failed(error, "error")

    def _failed(self, error: str, reason: str, outcome: str = "failed") -> Outcome:
        claim = self.claim
        failures = claim.failures + 1
        policy = self.policy
        if failures >= policy.max_attempts:
            return Ended(claim.id, claim.attempt, "dead", outcome, reason, error)
        delay = policy.delay(failures)
        return Postponed(claim.id, claim.attempt, delay, outcome, reason, error, True)

    def _timeout_error(self) -> str:
        limit = self.timeout or self.env.settings.worker_task_timeout
        return describe_error(TimeoutError(f"ran longer than its timeout of {limit.total_seconds():g} s"))

    async def _written(self, text: str) -> str:
        """Return the output as it stands in the database: itself, or a reference when it is large."""
        check_size("output", text, self.env.settings.value_limit)
        if size_of(text) <= self.env.settings.inline_limit:
            return text
        return blob_reference(await self.env.blobs_of(self.claim).put(text.encode()), size_of(text))

    def _write_now(self, output: Any) -> str:
        """The same for `Context.complete_in`, which may be called where nothing can be awaited."""
        if not self.env.has_database:
            raise NeedsDatabase("ctx.complete_in", RETURN_IT)
        text = self.handler.arguments.write(output)
        check_size("output", text, self.env.settings.value_limit)
        if size_of(text) <= self.env.settings.inline_limit:
            return text
        return blob_reference(self.env.blobs_of(self.claim).put_now(text.encode()), size_of(text))

    async def _run_in_thread(self, arguments: dict[str, Any]) -> Any:
        """Run the function in a thread of its own; one that cannot be ended is left behind, reported and fenced."""
        future: Future[Any] = Future()
        context = contextvars.copy_context()

        def target() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(context.run(self.handler.function, **arguments))
            except StopIteration as problem:
                # A future cannot carry it.
                future.set_exception(RuntimeError(f"the handler raised StopIteration({problem.value!r})"))
            except BaseException as problem:  # noqa: BLE001  the boundary to user code: raised again where it is awaited
                future.set_exception(problem)

        thread = threading.Thread(target=target, name=f"weft-task-{self.claim.id}", daemon=True)
        thread.start()
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            if thread.is_alive():
                logger.warning(
                    "task %s (%s) goes on in a thread that cannot be ended; its outcome will be refused. "
                    'Use executor="process" for work that must be ended.', self.claim.id, self.claim.handler,
                    extra=about(self),
                )  # fmt: skip
            raise

    def _stop_clock(self) -> None:
        """The time of an attempt does not run while it waits for its process."""
        self.started = math.inf
        if self.timer is not None:
            self.timer.cancel()
        self._beat_for_the_handler()

    def _beat_for_the_handler(self) -> None:
        if self.claim.heartbeat_timeout is not None:
            self.beat()
            pause = max(_SHORTEST_BEAT, self.claim.heartbeat_timeout.total_seconds() / 3)
            self.timer = asyncio.get_running_loop().call_later(pause, self._beat_for_the_handler)

    def _start_clock(self) -> None:
        self.started = time.monotonic()
        if self.timer is not None:
            self.timer.cancel()
        if self.timeout is not None:
            seconds = self.timeout.total_seconds()
            self.timer = asyncio.get_running_loop().call_later(seconds, self.end, "timeout")
        if self.claim.heartbeat_timeout is not None:
            self.beat()

    async def _run_in_process(self, params: str) -> Outcome:
        claim = self.claim
        self._stop_clock()
        try:
            answer = await self.env.processes.run(
                claim,
                params,
                self.env.worker_id,
                self.log,
                self.beat,
                answer=self.answer,
                on_start=self._start_clock,
                settings=self.env.settings,
                has_database=self.env.has_database,
                alone=bool(claim.crashes),
            )
        except ChildDied as problem:
            return self._crashed(problem)
        match answer["outcome"]:
            case "completed":
                return Completed(claim.id, claim.attempt, await self._written(answer["output"]))
            case "snooze":
                delay = timedelta(seconds=answer["delay"])
                return Postponed(claim.id, claim.attempt, delay, "snoozed", "snooze", None, False)
            case "no_handler" if self.handler.executor == "process":
                raise NonRetryable(f"the child process cannot import the handler {claim.handler!r}")
            case "no_handler":
                # It was to run alone after a crash, but a handler that no module holds exists only here.
                return Completed(claim.id, claim.attempt, await self._written(await self._call_and_write(params)))
            case _:
                if not answer["retryable"]:
                    return Ended(claim.id, claim.attempt, "failed", "failed", "non_retryable", answer["error"])
                return self._failed(answer["error"], "error")

    def _crashed(self, problem: ChildDied) -> Outcome:
        """A process that died is a failed attempt and a crash: the task is dead at whichever limit comes first."""
        claim = self.claim
        error = describe_error(problem)
        if claim.crashes + 1 >= self.env.settings.worker_crash_limit:
            return Ended(claim.id, claim.attempt, "dead", "crashed", "crashed", error)
        return self._failed(error, "crashed", outcome="crashed")
