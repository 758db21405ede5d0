"""The servers and workers that a driver starts, and always ends."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

HERE = Path(__file__).parent
STOP_GRACE_S = 10.0
LOG_TAIL_BYTES = 3_000
LEAST_USER = "nobody"


@contextmanager
def running(
    command: list[str], environment: Mapping[str, str] | None = None, least_user: bool = False
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process in a group of its own, and end it. When the block fails, the tail of its log goes to stderr.

    With ``least_user`` it is not root's even when the driver is.
    """
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=HERE,
            env={**os.environ, "PYTHONPATH": str(HERE), **(environment or {})},
            process_group=0,
            **({"user": LEAST_USER, "group": "nogroup", "extra_groups": []} if least_user and is_root() else {}),
        )
        try:
            yield process
        except Exception:
            log.seek(max(0, log.seek(0, os.SEEK_END) - LOG_TAIL_BYTES))
            sys.stderr.write(f"--- log of {command[0]}, process {process.pid}\n{log.read().decode(errors='replace')}\n")
            raise
        finally:
            stop(process)


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a process and whatever it left in its group: politely first, then for good."""
    with suppress(ProcessLookupError, subprocess.TimeoutExpired):
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(STOP_GRACE_S)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def is_root() -> bool:
    return os.geteuid() == 0


def free_port() -> int:
    """Return a port of the loopback address on which nobody listens now."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def wait_until(check: Callable[[], bool], process: subprocess.Popen[bytes], timeout: float, every: float) -> None:
    """Return once ``check`` holds. Raises when the process ends before that, or the time is up."""
    deadline = time.monotonic() + timeout
    while not check():
        if process.poll() is not None:
            raise RuntimeError(f"it ended early with status {process.returncode}")
        if time.monotonic() > deadline:
            raise TimeoutError(f"no end after {timeout:.0f} s")
        time.sleep(every)
