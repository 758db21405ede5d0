"""The process in which tasks run that must be killable: reads one request a line, runs it, writes one answer a line.

Started by `weft.worker.processes` as ``python -m weft.worker.child ANSWER_FD``. What the task prints goes to the
standard output, ended by a marker, so that the parent knows which task it belongs to. When the parent is gone, so is
this process.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import itertools
import logging
import os
import queue
import runpy
import signal
import sys
import threading
from concurrent.futures import Future
from typing import Any

import orjson

from weft.core.errors import InvalidInput, LeaseLost, NotFound
from weft.core.json import check_size, size_of
from weft.core.server_errors import NeedsDatabase
from weft.core.signals import NonRetryable, Snooze
from weft.core.tracing import place_of_attempt, tracer
from weft.worker.context import RETURN_IT, RUNNING, Context, describe_error
from weft.worker.registry import REGISTRY, AnyHandler
from weft.worker.shutdown import Shutdown
from weft.worker.surroundings import Surroundings, loading
from weft.worker.workshop import Workshop, told_settings

MAIN_NAME = "__weft_main__"


def main() -> None:
    """Serve requests until the parent closes the standard input."""
    own_pid = os.getpid()
    answers = _Answers(int(sys.argv[1]))
    streams = _Streams()
    source = streams.requests
    setup = orjson.loads(source.readline())
    sys.path[:] = setup["path"]
    marker = setup["marker"].encode()
    streams.log.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.getLogger().addHandler(streams.log)
    logging.getLogger("weft.task").setLevel(logging.INFO)
    problem = _load(setup["modules"], setup["main"])
    if (spans := tracer()) is not None:
        spans.share()
    surroundings = Surroundings()
    requests: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    line = _Line(answers)
    threading.Thread(target=_read, args=(source, requests, line), daemon=True).start()
    answers.send({"outcome": "ready"})
    while True:
        request = requests.get()
        answer = problem or _run(request, line)
        if os.getpid() != own_pid:
            # The handler forked, and this is the copy: the answer is its parent's to give.
            os._exit(0)
        streams.restore()
        surroundings.restore()
        os.write(streams.output, marker)
        answers.send(
            {**answer, "id": request["id"], "attempt": request["attempt"], "is_last": not surroundings.is_whole}
        )


class _Streams:
    """The descriptors of this process, kept where no handler finds them; it may do with its own what it likes."""

    def __init__(self) -> None:
        # Line by line, as on a terminal: a log is read while it is written, and both streams go to the same one.
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
        self._sys = sys.stdin, sys.stdout, sys.stderr
        self.log = logging.StreamHandler(sys.stdout)
        # Not the standard input itself: our thread holds its lock, and whoever forks closes it in the copy.
        self.requests = os.fdopen(os.dup(0), "rb")
        self.output = os.dup(1)
        with open(os.devnull, "rb") as nothing:
            os.dup2(nothing.fileno(), 0)

    def restore(self) -> None:
        """Send on what is left in the streams, and undo what a task has done to them."""
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(BaseException):  # somebody else's stream, perhaps
                stream.flush()
        for descriptor in (1, 2):
            os.dup2(self.output, descriptor)
        _, stdout, stderr = self._sys
        if stdout.closed or stderr.closed:
            stdout, stderr = (os.fdopen(descriptor, "w", buffering=1, closefd=False) for descriptor in (1, 2))
            self._sys = self._sys[0], stdout, stderr
        sys.stdin, sys.stdout, sys.stderr = self._sys
        self.log.stream = stdout


class _Answers:
    """The pipe to the parent, one answer a line; threads of a task send their beats between them."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()

    def send(self, answer: dict[str, Any]) -> None:
        """Send one answer whole."""
        left = memoryview(orjson.dumps(answer) + b"\n")
        with self._lock:
            while left:
                left = left[os.write(self._descriptor, left) :]


class _Line:
    """The way to the worker while a task runs: its beats and questions, what it is answered, and when to stop."""

    def __init__(self, answers: _Answers) -> None:
        self._answers = answers
        self._numbers = itertools.count(1)
        self._open: dict[int, tuple[int, Future[Any]]] = {}
        self.shutdown = Shutdown()

    def beat(self, request: dict[str, Any]) -> None:
        """Say that a task lives."""
        self._answers.send({"outcome": "beat", "id": request["id"], "attempt": request["attempt"]})

    def ask(self, request: dict[str, Any], verb: str, arguments: dict[str, Any]) -> Future[Any]:
        """Ask the worker for something in the name of a task."""
        number, answer = next(self._numbers), Future[Any]()
        self._open[number] = request["id"], answer
        said = {"id": request["id"], "attempt": request["attempt"], "verb": verb, "arguments": arguments}
        self._answers.send({"outcome": "ask", "call": number, **said})
        return answer

    def hear(self, message: dict[str, Any]) -> None:
        """Hand on what the worker says."""
        if "shutdown" in message:
            self.shutdown.request()
            return
        task_id, answer = self._open.pop(message["call"])
        if not answer.set_running_or_notify_cancel():
            return
        if "lost" in message:
            answer.set_exception(LeaseLost(task_id))
        elif "refused" in message:
            answer.set_exception(InvalidInput(*message["refused"]))
        elif "missing" in message:
            answer.set_exception(_not_found(message["missing"]))
        elif "problem" in message:
            answer.set_exception(RuntimeError(message["problem"]))
        else:
            answer.set_result(message["value"])


def _not_found(message: str) -> NotFound:
    """Return an error as it was raised where it was asked."""
    error = NotFound.__new__(NotFound)
    error.args = (message,)
    return error


def _read(source: Any, requests: queue.SimpleQueue[dict[str, Any]], line: _Line) -> None:
    for text in source:
        message = orjson.loads(text)
        requests.put(message) if "handler" in message else line.hear(message)
    # The parent is gone: whatever runs here is fenced, so end it, even in the middle, and all that it has started.
    os.killpg(os.getpgrp(), signal.SIGKILL)


def _load(modules: list[str], main_file: str | None) -> dict[str, Any] | None:
    try:
        with loading():
            if main_file is not None:
                runpy.run_path(main_file, run_name=MAIN_NAME)
            for module in modules:
                importlib.import_module(module)
            REGISTRY.admit(modules)
    except BaseException as problem:  # noqa: BLE001  the boundary to user code: told to the parent
        return {"outcome": "error", "error": describe_error(problem), "retryable": True}
    return None


class _InChild:
    """What runs in this process: its log is the standard output, which the parent copies."""

    def __init__(self, context: Context) -> None:
        self.context = context

    def write_log(self, text: str) -> bool:
        """Append to the task's log."""
        sys.stdout.write(text)
        return True


def _write(handler: AnyHandler, output: Any, limit: int | None) -> str:
    """An output for `Context.complete_in`; there is no blob storage here, and without a ``limit`` no database."""
    if limit is None:
        raise NeedsDatabase("ctx.complete_in", RETURN_IT)
    text = handler.arguments.write(output)
    if (size := size_of(text)) > limit:
        raise InvalidInput("output", f"has {size} bytes, and complete_in in a process takes {limit}: return it")
    return text


def _run(request: dict[str, Any], line: _Line) -> dict[str, Any]:
    name = request["handler"]
    handler = REGISTRY.get(name) or REGISTRY.get(name.replace("__main__.", f"{MAIN_NAME}.", 1))
    if handler is None:
        return {"outcome": "no_handler"}
    context = Context(
        task_id=request["id"], attempt=request["attempt"], handler=name, worker_id=request["worker_id"],
        write=lambda output: _write(handler, output, request["inline_limit"]),
        beat=lambda: line.beat(request), beat_interval=request["beat_interval"], job_id=request["job_id"],
        node=request["node"], ask=lambda verb, arguments: line.ask(request, verb, arguments), shutdown=line.shutdown,
        workshop=Workshop(told_settings(request["settings"]), is_lasting=False),
    )  # fmt: skip
    RUNNING.set(_InChild(context))
    if (spans := tracer()) is not None:
        spans.enter(place_of_attempt(context.job_id, context.task_id, context.attempt))
    try:
        arguments = handler.arguments.read(request["params"])
        if handler.arguments.context_name is not None:
            arguments[handler.arguments.context_name] = context
        output = handler.function(**arguments)
        if handler.is_async:
            output = asyncio.run(output)
        text = handler.arguments.write_returned(output)
        check_size("output", text, request["value_limit"])
        return {"outcome": "completed", "output": text}
    except Snooze as wish:
        return {"outcome": "snooze", "delay": wish.delay.total_seconds()}
    except BaseException as problem:  # noqa: BLE001  the boundary to user code: recorded with the attempt
        retryable = not (isinstance(problem, (NonRetryable, InvalidInput)) or handler.gives_up_on(problem))
        return {"outcome": "error", "error": describe_error(problem), "retryable": retryable}
    finally:
        if spans is not None:
            spans.flush()  # this process is ended without a word


if __name__ == "__main__":
    main()
