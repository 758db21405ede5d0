"""Runs programs in processes that are copies of one in which Weft is loaded: the same programs, but for their start.

Each is a process of its own, with the arguments, environment, streams and exit code of a program. What `weft` does
while it starts is for tests that start it themselves.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from multiprocessing import forkserver
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import Any

import pytest

from becoming import become, become_each, become_module, become_script, serve
from weft.cli.apps import COMMANDS

_COPIES = multiprocessing.get_context("forkserver")
# With what a command loads only when it needs it. The handlers of the demo would be those of every worker.
_LOADED = [
    *(f"weft.cli.{name}" for name, _ in COMMANDS.values()), "weft.cli.calls", "weft.cli.definitions",
    "weft.cli.failures", "weft.cli.output", "weft.cli.task_output", "weft.cli.worker_process", "weft.db.embedded",
    "weft.db.migrate", "weft.flow.drawing", "weft.flow.published", "weft.sdk.client", "weft.sdk.jobs",
    "weft.sdk.orchestrator", "weft.sdk.running", "weft.sdk.worker", "weft.sdk.workflows",
    "weft.remote.client", "alembic.command",
    "pydantic.plugin._loader", "rich.console", "rich.table", "typer._adapters", "uvloop", "yaml.cyaml",
    "weft.data.fetching", "weft.worker.datasets", "weft.worker.dataset_places", "duckdb",
]  # fmt: skip
_COPIES.set_forkserver_preload([*_LOADED, "becoming", "frozen"])


@cache
def _start_what_is_copied() -> None:
    """Start the process that is copied, if nobody has; it finds modules by its environment alone."""
    places = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, places)))
        forkserver.ensure_running()


@cache
def wait_until_loaded() -> None:
    """Return when a copy can be made at once."""
    _start_what_is_copied()
    first = _COPIES.Process(target=int)
    first.start()
    first.join()


class WarmProcess:
    """A process that was started on three open files, its standard streams."""

    def __init__(
        self, become: Callable[..., None], argv: Sequence[Any], environment: Mapping[str, str], folder: Path,
        streams: Sequence[int],
    ) -> None:  # fmt: skip
        _start_what_is_copied()
        self._argv = argv
        passed = [DupFd(stream) for stream in streams]
        self._process = _COPIES.Process(
            target=become, args=(*argv, dict(environment), str(folder), passed), daemon=False
        )
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid
        # Can be read from when the process has ended.
        self.sentinel = self._process.sentinel

    def poll(self) -> int | None:
        """Return the exit code, None while it goes on."""
        return self._process.exitcode

    def wait(self, timeout: float) -> int:
        """Return the exit code when it has ended."""
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired(list(map(str, self._argv)), timeout)
        return self._process.exitcode

    def send_signal(self, signum: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, signum)

    def kill(self) -> None:
        """End it now."""
        self._process.kill()


class WarmCommand(WarmProcess):
    """A command."""

    def __init__(
        self, arguments: Sequence[str], environment: Mapping[str, str], folder: Path, streams: Sequence[int]
    ) -> None:
        super().__init__(become, [list(arguments)], environment, folder, streams)


class WarmCommands(WarmProcess):
    """Several commands, one after the other."""

    def __init__(
        self, commands: Sequence[Sequence[str]], environment: Mapping[str, str], folder: Path, streams: Sequence[int]
    ) -> None:
        super().__init__(become_each, [list(map(list, commands))], environment, folder, streams)


class WarmModule(WarmProcess):
    """A module that is run as a program."""

    def __init__(
        self, module: str, arguments: Sequence[str], environment: Mapping[str, str], folder: Path,
        streams: Sequence[int],
    ) -> None:  # fmt: skip
        super().__init__(become_module, [module, list(arguments)], environment, folder, streams)


class WarmScript(WarmProcess):
    """A file that is run as a program."""

    def __init__(
        self, arguments: Sequence[str], environment: Mapping[str, str], folder: Path, streams: Sequence[int]
    ) -> None:
        super().__init__(become_script, arguments, environment, folder, streams)


def run_weft(
    arguments: Sequence[str], *, environment: Mapping[str, str], folder: Path, text: str | None, timeout: float
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return _run_to_its_end(WarmCommand, arguments, environment, folder, text, timeout)


def run_weft_each(
    commands: Sequence[Sequence[str]], *, environment: Mapping[str, str], folder: Path, timeout: float
) -> list[subprocess.CompletedProcess[str]]:
    """Run commands to their ends, one after the other: quicker than to ask for each."""
    done = _run_to_its_end(WarmCommands, commands, environment, folder, None, timeout)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert (done.returncode, done.stderr, len(answers)) == (0, "", len(commands)), done
    return [
        subprocess.CompletedProcess(list(arguments), *answer)
        for arguments, answer in zip(commands, answers, strict=True)
    ]


def run_script(
    script: Path, *, environment: Mapping[str, str], folder: Path, timeout: float
) -> subprocess.CompletedProcess[str]:
    """Run a file to its end."""
    return _run_to_its_end(WarmScript, [str(script)], environment, folder, None, timeout)


def _run_to_its_end(
    kind: type[WarmCommand] | type[WarmCommands] | type[WarmScript], arguments: Sequence[Any],
    environment: Mapping[str, str], folder: Path, text: str | None, timeout: float,
) -> subprocess.CompletedProcess[str]:  # fmt: skip
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as printed, tempfile.TemporaryFile() as complained:
        given.write((text or "").encode())
        given.seek(0)
        process = kind(arguments, environment, folder, [given.fileno(), printed.fileno(), complained.fileno()])
        try:
            code = process.wait(timeout)
        finally:
            process.kill()
        printed.seek(0)
        complained.seek(0)
        return subprocess.CompletedProcess(list(arguments), code, printed.read().decode(), complained.read().decode())


@contextlib.contextmanager
def weft_on_path() -> Iterator[Path]:
    """Yield a folder with a program `weft` that runs warm, for the PATH of scripts."""
    _start_what_is_copied()
    folder = Path(tempfile.mkdtemp(prefix="weft-warm-", dir="/tmp"))  # the path of a socket must be short
    program = folder / "weft"
    # Without what Python looks for when it starts: the program needs nothing that is installed.
    program.write_text(f"#!{sys.executable} -IS\n{Path(__file__).with_name('stand_in.py').read_text()}")
    program.chmod(0o755)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "socket"))
        listener.listen()
        server = _COPIES.Process(target=serve, args=(DupFd(listener.fileno()),), daemon=True)
        server.start()
    try:
        yield folder
    finally:
        server.kill()
        shutil.rmtree(folder)
