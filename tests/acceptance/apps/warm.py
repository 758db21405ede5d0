"""Runs `weft` in processes that are copies of one in which everything is loaded: the same command, but for its start.

Each is a process of its own, with the arguments, environment, streams and exit code of a command. What a command does
while it starts is for tests that start it themselves.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from multiprocessing import forkserver
from multiprocessing.reduction import DupFd
from pathlib import Path

import pytest
from apps.becoming import become

from weft.cli.apps import COMMANDS

_COPIES = multiprocessing.get_context("forkserver")
# With what a command loads only when it needs it. The handlers of the demo would be those of every worker.
_LOADED = [
    *(f"weft.cli.{name}" for name, _ in COMMANDS.values()), "weft.cli.calls", "weft.cli.definitions",
    "weft.cli.failures", "weft.cli.output", "weft.cli.task_output", "weft.cli.worker_process", "weft.db.embedded",
    "weft.db.migrate", "weft.flow.drawing", "weft.flow.published", "weft.sdk.client", "weft.sdk.workflows",
    "weft.remote.client",
    "alembic.command", "pydantic.plugin._loader", "rich.console", "rich.table", "typer._adapters", "yaml.cyaml",
]  # fmt: skip
_COPIES.set_forkserver_preload([*_LOADED, "apps.becoming", "apps.frozen"])


@cache
def _start_what_is_copied() -> None:
    """Start the process that is copied; it finds modules by its environment alone."""
    places = [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, places)))
        forkserver.ensure_running()


class WarmCommand:
    """A command that was started on three open files, its standard streams."""

    def __init__(
        self, arguments: Sequence[str], environment: Mapping[str, str], folder: Path, streams: Sequence[int]
    ) -> None:
        _start_what_is_copied()
        self._arguments = list(arguments)
        passed = [DupFd(stream) for stream in streams]
        self._process = _COPIES.Process(
            target=become, args=(self._arguments, dict(environment), str(folder), passed), daemon=False
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
