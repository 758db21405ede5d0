"""The virtual environment of each peer, and the commands that are run in it."""

import hashlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TextIO, cast

HERE = Path(__file__).resolve().parent
ENVIRONMENTS = HERE.parents[1] / ".bench" / "venvs"
PEERS = tuple(sorted(path.stem for path in (HERE / "requirements").glob("*.txt")))
INSTALL_TIMEOUT_S = 1800.0
STOP_GRACE_S = 20.0  # longer than a driver takes to stop its worker


class PeerFailed(Exception):
    """A peer could not be installed or measured. The message ends with what it printed."""

    def __init__(self, peer: str, step: str, output: str) -> None:
        super().__init__(f"{peer}: {step} failed, and is left out. Its last words:\n{output.strip()[-3000:]}")


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def python_of(peer: str) -> Path:
    return ENVIRONMENTS / peer / "bin" / "python"


def install(peer: str, progress: Callable[[str], None]) -> None:
    """Make the peer's virtual environment, unless it is there and its requirements are unchanged."""
    requirements = HERE / "requirements" / f"{peer}.txt"
    wanted = hashlib.sha256(sys.version.encode() + requirements.read_bytes()).hexdigest()
    directory = ENVIRONMENTS / peer
    stamp = directory / "requirements.sha256"
    if stamp.exists() and stamp.read_text() == wanted:
        return
    progress(f"{peer}: installing into {directory}")
    ENVIRONMENTS.mkdir(parents=True, exist_ok=True)
    (ENVIRONMENTS.parent / ".gitignore").write_text("*\n")
    # Byte-compiled, or the first start of each worker would be timed with its compilation.
    pip = [str(python_of(peer)), "-m", "pip", "install", "--quiet", "--compile", "--requirement", str(requirements)]
    run_command(peer, "making the environment", [sys.executable, "-m", "venv", "--clear", str(directory)])
    run_command(peer, "installing", pip)
    stamp.write_text(wanted)


def run_command(
    peer: str,
    step: str,
    command: Sequence[str],
    timeout: float = INSTALL_TIMEOUT_S,
    environment: Mapping[str, str] | None = None,
) -> str:
    """Run a command in a session of its own and return its output. Raises `PeerFailed`; leaves no process behind."""
    # Files, not pipes: what a command leaves behind may hold a pipe open.
    with (
        tempfile.TemporaryFile("w+", errors="replace") as output,
        tempfile.TemporaryFile("w+", errors="replace") as errors,
    ):
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
        )
        try:
            process.wait(timeout)
            late = ""
        except subprocess.TimeoutExpired:
            late = f"\nno end after {timeout:.0f} s"
        finally:
            stop(process)
        output.seek(0)
        errors.seek(0)
        if late or process.returncode != 0:
            raise PeerFailed(peer, step, output.read() + errors.read() + late)
        return output.read()


def scratch_file() -> TextIO:
    return cast(TextIO, tempfile.TemporaryFile("w+", errors="replace"))


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a process that is still running: politely, so that a driver can stop its worker, then for good."""
    if process.poll() is None:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_GRACE_S)
    for left in session_of(process.pid):
        with suppress(ProcessLookupError):
            os.kill(left, signal.SIGKILL)
    process.wait()


def session_of(leader: int) -> Iterator[int]:
    """Yield the processes of a session. A driver's servers have groups of their own, and may outlive a driver."""
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(ProcessLookupError):
            if os.getsid(int(entry.name)) == leader:
                yield int(entry.name)
