"""Handlers that run in processes of their own: a child imports this module and finds them in the one registry."""

from __future__ import annotations

import asyncio
import ctypes
import io
import logging
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from datetime import date
from pathlib import Path
from typing import Any

import weft


@weft.task(name="process:pid", executor="process")
def pid() -> int:
    return os.getpid()


@weft.task(name="process:pid anywhere")
async def pid_anywhere() -> int:
    return os.getpid()


@weft.task(name="process:async", executor="process")
async def awaited(day: date, ctx: weft.Context) -> dict[str, Any]:
    return {"day": day, "attempt": ctx.attempt, "key": ctx.idempotency_key}


@weft.task(name="process:hang", executor="process")
def hang(path: str) -> None:
    """Note the ids of this process and of one that it starts, then be deaf to everything."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
    Path(f"{path}.new").write_text(f"{os.getpid()} {other.pid}", encoding="ascii")
    os.replace(f"{path}.new", path)
    while True:
        time.sleep(3600)


@weft.task(name="process:die", executor="process")
def die(how: str) -> None:
    if how == "exit":
        os._exit(7)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    ctypes.string_at(0)


@weft.task(name="process:stumble", executor="process", retry=weft.Retry(10, initial_delay=0))
def stumble(ways: str, ctx: weft.Context) -> int:
    """Fail in the way that stands for this attempt: r raises, d takes the process with it."""
    way = ways[ctx.attempt - 1 : ctx.attempt]
    if way == "r":
        raise ValueError("again")
    if way == "d":
        os._exit(7)
    return ctx.attempt


@weft.task(name="process:raise", executor="process", retry=weft.Retry(2, non_retryable=(LookupError,)))
def fail(how: str) -> None:
    if how == "snooze":
        raise weft.Snooze(600)
    if how == "never":
        raise weft.NonRetryable("never")
    if how == "lookup":
        raise KeyError("gone")
    raise ValueError("again")


@weft.task(name="process:print", executor="process")
def say(words: list[str]) -> None:
    for word in words:
        print(word)
    print("to stderr", file=sys.stderr)
    logging.getLogger("somewhere").warning("to a logger")
    subprocess.run(["/bin/echo", "from a program"], check=True)


def _count(results: list[Any], ctx: weft.Context) -> int:
    """Give the result that stands for this attempt, whatever it is."""
    return results[ctx.attempt - 1]  # type: ignore[no-any-return]


@weft.task(name="process:count in async", retry=weft.Retry(5, initial_delay=0))
async def count_in_async(results: list[Any], ctx: weft.Context) -> int:
    return _count(results, ctx)


@weft.task(name="process:count in thread", retry=weft.Retry(5, initial_delay=0))
def count_in_thread(results: list[Any], ctx: weft.Context) -> int:
    return _count(results, ctx)


@weft.task(name="process:count in process", executor="process", retry=weft.Retry(5, initial_delay=0))
def count_in_process(results: list[Any], ctx: weft.Context) -> int:
    return _count(results, ctx)


@weft.task(name="process:echo", executor="process")
def echo(text: str) -> str:
    return text


@weft.task(name="process:quotes", executor="process")
def quotes(n: int) -> str:
    return '"' * n


@weft.task(name="process:beat", executor="process", heartbeat_timeout=0.001)
def beat_while_answering(size: int, ctx: weft.Context) -> str:
    """Leave threads behind that beat for as long as this process lives."""
    for _ in range(3):
        threading.Thread(target=_beat_for_ever, args=(ctx,), daemon=True).start()
    return "x" * size


def _beat_for_ever(ctx: weft.Context) -> None:
    while True:
        ctx.heartbeat()


@weft.task(name="process:rest", executor="process")
def rest() -> None:
    """Long enough for whoever beats here to be heard."""
    time.sleep(0.05)


@weft.task(name="process:echo aloud", executor="process")
def echo_aloud(text: str) -> str:
    print(text, end="")
    return text


@weft.task(name="process:flood", executor="process")
def flood(pattern: str, size: int) -> tuple[int, int]:
    """Write a pattern to the standard output without any encoding; return how many bytes, and from which process."""
    piece = bytes.fromhex(pattern) * 400
    written = 0
    while written < size:
        written += os.write(1, piece[: size - written])
    return written, os.getpid()


@weft.task(name="process:meddle", executor="process", retry=weft.Retry(1))
def meddle(how: str) -> str:
    """Do something to this process that no task should have to answer for but this one."""
    match how:
        case "fork and return twice":
            return "child" if os.fork() == 0 else "parent"
        case "fork by multiprocessing":
            child = multiprocessing.get_context("fork").Process(target=print, args=("in a fork",))
            child.start()
            child.join()
        case "read the standard input":
            return sys.stdin.read()
        case "close the descriptors":
            os.close(1)
            os.close(2)
        case "send the output elsewhere":
            with open(os.devnull, "w", encoding="ascii") as nothing:
                os.dup2(nothing.fileno(), 1)
        case "close the streams":
            sys.stdout.close()
            sys.stderr.close()
        case "forget the streams":
            sys.stdout = sys.stderr = None  # type: ignore[assignment]
        case "put a stream that leaves":
            sys.stdout = _Leaving()  # type: ignore[assignment]
        case "set an alarm":
            signal.alarm(1)
        case "set a timer with a handler":
            signal.signal(signal.SIGALRM, _interrupt)
            signal.setitimer(signal.ITIMER_REAL, 0.2)
        case "leave no descriptors":
            resource.setrlimit(resource.RLIMIT_NOFILE, (20, 20))
        case "go elsewhere":
            os.chdir("/")
            os.umask(0)
            os.environ["WEFT_TEST_MARK"] = "here"
    return "parent"


class _Leaving(io.StringIO):
    def flush(self) -> None:
        raise SystemExit(3)


def _interrupt(number: int, frame: object) -> None:
    raise RuntimeError("interrupted")


@weft.task(name="process:surroundings", executor="process")
def surroundings() -> dict[str, Any]:
    """What is around a task; it takes so long that an alarm of another would be heard."""
    time.sleep(0.5)
    mask = os.umask(0)
    os.umask(mask)
    handler = signal.getsignal(signal.SIGALRM)
    return {
        "folder": os.getcwd(),
        "mask": mask,
        "marks": [name for name in os.environ if name.startswith("WEFT_TEST_MARK")],
        "alarm": getattr(handler, "name", str(handler)),
        "files": resource.getrlimit(resource.RLIMIT_NOFILE),
    }


@weft.task(name="test:last_words", executor="process")
def last_words() -> None:
    print("the last line before it hangs", flush=True)
    while True:
        time.sleep(0.05)


@weft.task(name="process:leave a session", executor="process")
def leave_a_session(dies: bool) -> str:
    """Start something that leaves the group and holds the pipes for long."""
    subprocess.Popen(["sleep", "40"], start_new_session=True)
    if dies:
        os._exit(3)
    return "done"


@weft.task(name="process:steps", executor="process", retry=weft.Retry(3, initial_delay=0))
def steps(path: str, ctx: weft.Context) -> list[Any]:
    """Note each call of a step in a file; fail after the second, until the last attempt."""
    first = ctx.step("first", _noted, path, "first")
    second = ctx.step("second", _noted_later, path, "second")
    ctx.checkpoint.save("both", {"size": "x" * 3000})
    if ctx.attempt < 2:
        raise ValueError("again")
    found = ctx.checkpoint.load()
    return [first, second, found.phase, len(found.data["size"])]


@weft.task(name="process:steps async", executor="process", retry=weft.Retry(3, initial_delay=0))
async def steps_async(path: str, ctx: weft.Context) -> list[Any]:
    first = await ctx.step("first", _noted, path, "first")
    second = await ctx.step("second", _noted_later, path, "second")
    if ctx.attempt < 2:
        raise ValueError("again")
    return [first, second]


def _noted(path: str, word: str) -> str:
    with Path(path).open("a", encoding="ascii") as file:
        file.write(f"{word}\n")
    return word


async def _noted_later(path: str, word: str) -> str:
    return _noted(path, word)


@weft.task(name="process:until shutdown", executor="process")
def until_shutdown(path: str, ctx: weft.Context) -> bool:
    Path(path).write_text("begun", encoding="ascii")
    return bool(ctx.wait_for_shutdown(30)) and ctx.shutdown_requested


@weft.task(name="process:too late", executor="process", retry=weft.Retry(1))
def twice(ctx: weft.Context) -> None:
    ctx.step("same", pid.function)
    ctx.step("same", pid.function)


@weft.register_handler("process:of params", executor="process", retry=weft.Retry(2, initial_delay=0))
def of_params(ctx: weft.HandlerContext) -> weft.HandlerResult:
    assert ctx.blob_repository is not None
    digest = ctx.blob_repository.put(b"\x00kept")
    metrics = {"attempt": ctx.attempt}
    if ctx.attempt == 1:
        return weft.HandlerResult(success=False, error_message="not yet", metrics=metrics)
    found = ctx.blob_repository.get(digest).hex()
    return weft.HandlerResult(success=True, output={"found": found, "has_pool": ctx.pool is not None}, metrics=metrics)


@weft.task(name="process:cached", executor="process", cache=True, retry=weft.Retry(2, initial_delay=0))
def cached(path: str, size: int, ctx: weft.Context) -> dict[str, Any]:
    """Note each run; where the name says so, the first attempt ends its process before it has an output."""
    with open(path, "a", encoding="ascii") as runs:
        runs.write("x")
    if "die" in path and ctx.attempt == 1:
        os._exit(7)
    return {"pid": os.getpid(), "text": "x" * size}


@weft.task(name="process:hasty", executor="process")
async def hasty(ctx: weft.Context) -> str:
    """Wait in vain, but not for ever."""
    part = await ctx.spawn("process:echo", {"text": ""}, queue="idle")
    try:
        await asyncio.wait_for(part.result(), 0.05)
    except TimeoutError:
        return "went on"
    return "waited"


@weft.task(name="process:write and read", executor="process")
def write_and_read(count: int, ctx: weft.Context) -> list[int]:
    """Replace a dataset by so many rows; return how many there were, and how many were written."""
    try:
        before = ctx.dataset("counted").read().num_rows
    except weft.NotFound:
        before = 0
    return [before, ctx.dataset("counted").write([{"n": n} for n in range(count)]).rows]
