"""Sends what a task prints and logs to its own file, also for tasks that share a thread or a process."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import io
import logging
import os
import re
import stat
import sys
import threading
import time
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any, TextIO

from weft.core.settings import Settings
from weft.queue.service import Service
from weft.worker.context import RUNNING
from weft.worker.threads import Threads

logger = logging.getLogger("weft.worker")

# What stands above the text of each attempt but the first, in the one file of a task.
_HEADING = re.compile(rb"(?:\A|\n)\[weft: attempt (\d{1,10})\]\n")


def log_dir(settings: Settings) -> Path:
    """Return the folder of the tasks' logs: ``WEFT_LOG_DIR``, by default under WEFT_HOME."""
    if settings.log_dir is not None:
        return settings.log_dir
    from weft.db.embedded_layout import home_dir

    return home_dir(settings) / "logs"


def log_path(folder: Path, task_id: int) -> Path:
    """Return the path of a task's log, built from its id alone."""
    return folder / f"{int(task_id)}.log"


def part_of(log: bytes, attempt: int) -> bytes | None:
    """Return what one attempt has written to a task's log; None when that is nothing."""
    place = place_of(log, attempt)
    return None if place is None else log[slice(*place)] or None


def parts_of(log: bytes) -> dict[int, bytes]:
    """Return what each attempt has written to a task's log, as far as that is anything."""
    return {attempt: text for attempt, place in _places(log).items() if (text := log[slice(*place)])}


def place_of(log: bytes, attempt: int) -> tuple[int, int] | None:
    """Return where in a task's log an attempt's part begins and ends; None when there is none."""
    return _places(log).get(attempt)


def _places(log: bytes) -> dict[int, tuple[int, int]]:
    """Return where the part of each attempt begins and ends.

    A line of the handler's own that looks like a heading is one only when its number is higher than those before.
    """
    found, number, begin = {}, 1, 0
    for heading in _HEADING.finditer(log):
        if int(heading[1]) > number:
            found[number] = begin, heading.start()
            number, begin = int(heading[1]), heading.end()
    return found | {number: (begin, len(log))}


def heading_of(attempt: int, *, has_text: bool) -> bytes:
    """Return what stands above the part of an attempt."""
    return b"" if attempt == 1 else b"\n" * has_text + b"[weft: attempt %d]\n" % attempt


def cut_mark(limit: int) -> bytes:
    """Return what stands where a log was cut."""
    return f"\n[weft: log cut at {limit} bytes]\n".encode()


async def local_size(settings: Settings, task_id: int) -> int | None:
    """Return how long a task's log on this machine is; None when there is none."""

    def size() -> int | None:
        with contextlib.suppress(FileNotFoundError):
            return log_path(log_dir(settings), task_id).lstat().st_size
        return None

    return await asyncio.to_thread(size)


async def local_log(settings: Settings, task_id: int, offset: int = 0, most: int = -1) -> bytes | None:
    """Return a task's log from ``offset`` on, ``most`` bytes of it or all, when there is one on this machine."""

    def read() -> bytes | None:
        path = log_path(log_dir(settings), task_id)
        with contextlib.suppress(FileNotFoundError), open(path, "rb", opener=open_own) as file:
            file.seek(offset)
            return file.read(most)
        return None

    return await asyncio.to_thread(read)


async def remove_logs(settings: Settings, task_ids: Iterable[int]) -> None:
    """Remove the logs of tasks, as far as they are on this machine and may be removed."""

    def remove() -> None:
        for task_id in task_ids:
            with contextlib.suppress(OSError):
                log_path(log_dir(settings), task_id).unlink(missing_ok=True)

    await asyncio.to_thread(remove)


def open_own(path: str, flags: int) -> int:
    """Open a log for its owner's eyes; refuse a link or a pipe that somebody has put in its place."""
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "is not a plain file", path)
    return descriptor


class TaskLog:
    """The log of one attempt: opened at the first byte, appended to the task's file, cut with a marker at the limit."""

    def __init__(self, folder: Path, task_id: int, limit: int, attempt: int) -> None:
        self.path = log_path(folder, task_id)
        self._limit = limit
        self._attempt = attempt
        self._file: io.FileIO | None = None
        self._written = 0
        self.begins_at = 0
        self._ends_at: int | None = None
        self._is_full = False
        self._problem: OSError | None = None
        self._lock = threading.Lock()

    @property
    def has_text(self) -> bool:
        """Whether anything was written."""
        return self._file is not None or self._written > 0

    def write(self, text: str) -> None:
        """Append text; what cannot be written, because the disk is full, is reported and dropped: the task goes on."""
        data = text.encode("utf-8", "replace")
        with self._lock:
            if self._is_full or not data:
                return
            try:
                if self._file is None:
                    self.path.parent.mkdir(parents=True, exist_ok=True)
                    # Without a buffer: closing one writes what is left in it, and a full disk would refuse that too.
                    self._file = open(self.path, "ab", buffering=0, opener=open_own)  # noqa: SIM115  (closed at the end)
                    self._written = self.begins_at = self._file.tell()
                    self._written += self._file.write(self._heading())
                if self._written + len(data) > self._limit:
                    data = data[: max(0, self._limit - self._written)]
                    data += cut_mark(self._limit)
                    self._is_full = True
                self._written += self._file.write(data)
            except OSError as problem:
                self._is_full = True
                self._problem = problem

    def _heading(self) -> bytes:
        return heading_of(self._attempt, has_text=self.begins_at > 0)

    def printed(self, offset: int, most: int) -> bytes:
        """Return up to ``most`` bytes of what this attempt has written from ``offset`` on, not counting its heading."""
        with open(self.path, "rb", opener=open_own) as file:
            file.seek(start := self.begins_at + len(self._heading()) + offset)
            end = self._ends_at
            return file.read(most if end is None else max(0, min(most, end - start)))

    def read(self) -> bytes:
        """Return what this attempt has written; those before it stand above in the same file, those after it below."""
        with open(self.path, "rb", opener=open_own) as file:
            file.seek(self.begins_at)
            return file.read(-1 if self._ends_at is None else self._ends_at - self.begins_at)

    def close(self) -> None:
        """Close the file, if it was ever opened, and note where it ends now: the next attempt goes on there."""
        if self._problem is not None:
            # Not where it happened: what is logged inside a task goes to this very log.
            logger.warning("the log %s is incomplete: %s", self.path, self._problem)
            self._problem = None
        with self._lock:
            self._is_full = True
            if self._file is not None:
                self._ends_at = self._file.tell()
                self._file.close()
                self._file = None


def remove_old_logs(folder: Path, older_than: timedelta) -> int:
    """Remove logs that nobody has written to for longer than the retention; return how many."""
    if not folder.is_dir():
        return 0
    oldest, count = time.time() - older_than.total_seconds(), 0
    with os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                age = entry.stat(follow_symlinks=False).st_mtime
                if entry.name.endswith(".log") and entry.name[:-4].isdigit() and age < oldest:
                    os.unlink(entry.path)
                    count += 1
    return count


class LogSweeper(Service):
    """Removes the old logs of this machine."""

    name = "log sweeper"
    interval = 3600.0

    def __init__(self, folder: Path, retention: timedelta) -> None:
        super().__init__()
        self._folder = folder
        self._retention = retention

    async def run_once(self) -> int:
        """Look through the folder once."""
        return await asyncio.to_thread(remove_old_logs, self._folder, self._retention)

    def pause_before_next(self, done: int) -> float:
        """Rest for about an hour, however much there was."""
        return super().pause_before_next(0)


class _BinaryRedirect(io.RawIOBase):
    """The bytes below such a stream, for handlers that write them."""

    def __init__(self, text: _Redirect, real: TextIO) -> None:
        self._text = text
        self._real = real

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        if RUNNING.get() is None:
            return int(self._real.buffer.write(data))
        written = bytes(data)
        self._text.write(written.decode(errors="replace"))
        return len(written)

    def flush(self) -> None:
        self._text.flush()

    def fileno(self) -> int:
        return self._real.fileno()


class _Redirect(io.TextIOBase):
    """Stands in for stdout or stderr: writes go to the log of the current task, or else to the real stream."""

    def __init__(self, real: TextIO) -> None:
        self._real = real

    def write(self, text: str) -> int:
        sink = RUNNING.get()
        return len(text) if sink is not None and sink.write_log(text) else self._real.write(text)

    def flush(self) -> None:
        if RUNNING.get() is None:
            self._real.flush()

    def isatty(self) -> bool:
        return RUNNING.get() is None and self._real.isatty()

    def fileno(self) -> int:
        return self._real.fileno()

    @property
    def buffer(self) -> io.RawIOBase:
        return _BinaryRedirect(self, self._real)

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._real.encoding

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


class _TaskHandler(logging.Handler):
    """Writes records that are logged inside a task to the task's log."""

    def emit(self, record: logging.LogRecord) -> None:
        sink = RUNNING.get()
        if sink is not None:
            try:
                sink.write_log(self.format(record) + "\n")
            except Exception:  # noqa: BLE001  as every handler of logging: a bad call is told, and the program goes on
                self.handleError(record)


class Capture:
    """Puts the redirection in place while a worker runs; several workers in one process share it."""

    _users = 0
    _handler: _TaskHandler | None = None

    @classmethod
    def start(cls) -> None:
        """Begin to redirect."""
        cls._users += 1
        # Looked at each time: whoever runs us may have put other streams in place meanwhile.
        for name in ("stdout", "stderr"):
            if not isinstance(getattr(sys, name), _Redirect):
                setattr(sys, name, _Redirect(getattr(sys, name)))
        if cls._handler is not None:
            return
        cls._handler = _TaskHandler()
        cls._handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        logging.getLogger().addHandler(cls._handler)
        Threads.follow()
        # What a handler logs at INFO belongs in its task's log, whatever the program's own level is.
        logging.getLogger("weft.task").setLevel(logging.INFO)

    @classmethod
    def stop(cls) -> None:
        """Put the real streams back after the last worker."""
        cls._users -= 1
        if cls._users > 0:
            return
        for name in ("stdout", "stderr"):
            stream = getattr(sys, name)
            if isinstance(stream, _Redirect):
                setattr(sys, name, stream._real)
        if cls._handler is not None:
            logging.getLogger().removeHandler(cls._handler)
            cls._handler = None
            Threads.leave()
