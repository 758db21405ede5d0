"""Runs `weft` in processes that are copies of one in which everything is loaded: the same command, but for its start.

Each is a process of its own, with the arguments, environment, streams and exit code of a command. What a command does
while it starts is for tests that start it themselves.
"""

from __future__ import annotations

import io
import multiprocessing
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import Any

import weft
from weft.cli.apps import COMMANDS
from weft.cli.main import run

_COPIES = multiprocessing.get_context("forkserver")
_COPIES.set_forkserver_preload(
    [__name__, *(f"weft.cli.{name}" for name, _ in COMMANDS.values()), "weft.cli.failures", "weft.cli.output",
     "weft.cli.calls", "weft.cli.worker_process", "weft.sdk.client", "typer._adapters", "rich.table"]
)  # fmt: skip


class WarmCommand:
    """A command that was started on three open files, its standard streams."""

    def __init__(
        self, arguments: Sequence[str], environment: Mapping[str, str], folder: Path, streams: Sequence[int]
    ) -> None:
        self._arguments = list(arguments)
        passed = [DupFd(stream) for stream in streams]
        self._process = _COPIES.Process(
            target=_become, args=(self._arguments, dict(environment), str(folder), passed), daemon=False
        )
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    def poll(self) -> int | None:
        """Return the exit code, None while it goes on."""
        return self._process.exitcode

    def wait(self, timeout: float) -> int:
        """Return the exit code when it has ended."""
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired(["weft", *self._arguments], timeout)
        return self._process.exitcode

    def send_signal(self, signum: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, signum)

    def kill(self) -> None:
        """End it now."""
        self._process.kill()


def run_weft(
    arguments: Sequence[str], *, environment: Mapping[str, str], folder: Path, text: str | None, timeout: float
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as printed, tempfile.TemporaryFile() as complained:
        given.write((text or "").encode())
        given.seek(0)
        command = WarmCommand(arguments, environment, folder, [given.fileno(), printed.fileno(), complained.fileno()])
        try:
            code = command.wait(timeout)
        finally:
            command.kill()
        printed.seek(0)
        complained.seek(0)
        return subprocess.CompletedProcess(
            ["weft", *arguments], code, printed.read().decode(), complained.read().decode()
        )


def _become(arguments: list[str], environment: dict[str, str], folder: str, streams: list[Any]) -> None:
    """Make of this copy what the command line would have made: a process that runs one command."""
    for descriptor, stream in enumerate(streams):
        os.dup2(stream.detach(), descriptor)
    sys.stdin = io.TextIOWrapper(io.FileIO(0, closefd=False))
    sys.stdout, sys.stderr = (
        io.TextIOWrapper(io.FileIO(descriptor, "w", closefd=False), write_through=True) for descriptor in (1, 2)
    )
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.path.insert(0, folder)
    sys.argv = [str(Path(weft.__file__).with_name("__main__.py")), *arguments]
    warnings.simplefilter("error")
    run()
