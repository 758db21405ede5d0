"""Measure the queue systems that a user would pick instead of Weft, on the PostgreSQL server that Weft is measured on.

    python bench/peers/run.py --url postgresql://postgres@localhost/postgres --repeat 3 --json peers.json

What the figures mean, and what they do not: README.md in this folder.
"""

import argparse
import asyncio
import hashlib
import json
import os
import secrets
import signal
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import NoReturn
from urllib.parse import urlsplit

import asyncpg

HERE = Path(__file__).resolve().parent
ENVIRONMENTS = HERE.parents[1] / ".bench" / "venvs"

DEFAULT_TASKS: Mapping[str, int] = {
    "procrastinate": 10_000,
    "pgqueuer": 100_000,
    "huey": 5_000,
    "dbos": 5_000,
    "awa-pg": 50_000,
}
"""Every peer, with a backlog that keeps it busy for some seconds."""

DEFAULT_SAMPLES = 200
DEFAULT_TIMEOUT_S = 300.0
INSTALL_TIMEOUT_S = 900.0
SETUP_GRACE_S = 60.0  # for what a driver does outside its workload: import, install, enqueue
STOP_GRACE_S = 20.0  # longer than a driver takes to stop its worker


class PeerFailed(Exception):
    """A peer could not be installed or measured. The message ends with what it printed."""

    def __init__(self, peer: str, step: str, output: str) -> None:
        super().__init__(f"{peer}: {step} failed, and the peer is left out. Its last words:\n{output.strip()[-4000:]}")


@dataclass(frozen=True, slots=True)
class Figures:
    """What one run of both workloads gives."""

    enqueue_per_s: float
    tasks_per_s: float
    pickup_p50_ms: float
    pickup_p95_ms: float
    pickup_p99_ms: float


@dataclass(frozen=True, slots=True)
class PeerFigures:
    """The medians over all repeats of a peer, and the repeats."""

    peer: str
    version: str
    setting: str
    enqueue_per_s: float
    tasks_per_s: float
    pickup_p50_ms: float
    pickup_p95_ms: float
    pickup_p99_ms: float
    n: int
    samples: int
    repeats: tuple[Figures, ...]


@dataclass(frozen=True, slots=True)
class Run:
    """One repeat of one peer."""

    version: str
    setting: str
    figures: Figures


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def measure_peers(
    url: str,
    peers: Sequence[str] = tuple(DEFAULT_TASKS),
    *,
    tasks: int | None = None,
    samples: int = DEFAULT_SAMPLES,
    repeat: int = 1,
    timeout: float = DEFAULT_TIMEOUT_S,
    progress: Callable[[str], None] = say,
) -> list[PeerFigures]:
    """Measure ``peers`` on the server at ``url``, where the user must be allowed to create databases.

    The peers take turns, repeat by repeat, so that a change in the machine's load meets all of them.
    A peer that fails is reported to ``progress`` and missing from the result. Blocks, and runs event
    loops of its own: call it from async code by `asyncio.to_thread`.
    """
    runs: dict[str, list[Run]] = {peer: [] for peer in dict.fromkeys(peers)}
    for peer in list(runs):
        try:
            install(peer, progress)
        except PeerFailed as failure:
            progress(str(failure))
            del runs[peer]
    for number in range(1, repeat + 1):
        for peer in list(runs):
            progress(f"{peer}: repeat {number} of {repeat}")
            try:
                runs[peer].append(measure_once(url, peer, tasks or DEFAULT_TASKS[peer], samples, timeout))
            except PeerFailed as failure:
                progress(str(failure))
                del runs[peer]
    return [summarise(peer, tasks or DEFAULT_TASKS[peer], samples, found) for peer, found in runs.items()]


def measure_once(url: str, peer: str, tasks: int, samples: int, timeout: float) -> Run:
    """Run both workloads, each in a database of its own."""
    with scratch_database(url, peer) as database_url:
        drained = run_driver(peer, database_url, "drain", tasks, timeout)
    with scratch_database(url, peer) as database_url:
        picked_up = run_driver(peer, database_url, "pickup", samples, timeout)
    found = drained | picked_up
    figures = Figures(**{field.name: round(float(found[field.name]), 2) for field in fields(Figures)})
    return Run(str(found["version"]), str(found["setting"]), figures)


def summarise(peer: str, tasks: int, samples: int, runs: Sequence[Run]) -> PeerFigures:
    repeats = tuple(run.figures for run in runs)
    medians = {
        field.name: statistics.median(getattr(figures, field.name) for figures in repeats) for field in fields(Figures)
    }
    return PeerFigures(
        peer=peer,
        version=runs[0].version,
        setting=runs[0].setting,
        n=tasks,
        samples=samples,
        repeats=repeats,
        **medians,
    )


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


def run_driver(peer: str, database_url: str, workload: str, count: int, timeout: float) -> dict[str, float | str]:
    """Run one workload with the peer's own Python and return the figures it prints."""
    command = [str(python_of(peer)), str(HERE / "drivers"), peer, workload, str(count), str(timeout)]
    output = run_command(peer, workload, command, timeout + SETUP_GRACE_S, {"PEER_URL": database_url})
    figures: dict[str, float | str] = json.loads(output.splitlines()[-1])
    return figures


def run_command(
    peer: str,
    step: str,
    command: Sequence[str],
    timeout: float = INSTALL_TIMEOUT_S,
    environment: Mapping[str, str] | None = None,
) -> str:
    """Run a command in a session of its own and return its output. Raises `PeerFailed`; leaves no process behind."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **(environment or {})},
        start_new_session=True,
    )
    try:
        output, errors = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        raise PeerFailed(peer, step, f"no end after {timeout:.0f} s") from None
    finally:
        stop(process)
    if process.returncode != 0:
        raise PeerFailed(peer, step, output + errors)
    return output


def stop(process: subprocess.Popen[str]) -> None:
    """End a process that is still running: politely, so that a driver can stop its worker, then for good."""
    if process.poll() is None:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=STOP_GRACE_S)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@contextmanager
def scratch_database(url: str, peer: str) -> Iterator[str]:
    """Create an empty database on the server, give its URL, and drop it."""
    name = f"weft_bench_{peer.replace('-', '_')}_{secrets.token_hex(4)}"
    asyncio.run(execute(url, f"create database {name} template template0"))
    try:
        parts = urlsplit(url)
        yield f"postgresql://{parts.netloc}/{name}" + (f"?{parts.query}" if parts.query else "")
    finally:
        asyncio.run(execute(url, f"drop database {name} with (force)"))


async def execute(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url, timeout=30, command_timeout=60)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


async def describe_server(url: str) -> str:
    """One line on what the figures depend on most."""
    connection = await asyncpg.connect(url, timeout=30, command_timeout=60)
    try:
        names = ("server_version", "fsync", "synchronous_commit", "shared_buffers")
        values = [await connection.fetchval("select current_setting($1)", name) for name in names]
    finally:
        await connection.close()
    settings = ", ".join(f"{name}={value}" for name, value in zip(names[1:], values[1:], strict=True))
    return f"PostgreSQL {values[0]} ({settings}), {os.cpu_count()} CPUs, Python {sys.version.split()[0]}"


def table(peers: Sequence[PeerFigures]) -> str:
    """The figures as aligned columns: the median, with the range in brackets where there are several repeats."""
    head = ("peer", "version", "tasks", "enqueue/s", "tasks/s", "p50 ms", "p95 ms", "p99 ms", "setting")
    rows: list[tuple[str, ...]] = [head]
    for figures in peers:
        rates = [cell(figures, name, ",.0f") for name in ("enqueue_per_s", "tasks_per_s")]
        waits = [cell(figures, f"pickup_p{percent}_ms", ".1f") for percent in (50, 95, 99)]
        rows.append((figures.peer, figures.version, f"{figures.n:,}", *rates, *waits, figures.setting))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    to_the_left = ("peer", "version", "setting")
    lines = []
    for row in rows:
        columns = zip(head, row, widths, strict=True)
        cells = [text.ljust(width) if name in to_the_left else text.rjust(width) for name, text, width in columns]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def cell(figures: PeerFigures, name: str, style: str) -> str:
    values = [getattr(repeat, name) for repeat in figures.repeats]
    text = format(getattr(figures, name), style)
    return text if len(values) == 1 else f"{text} [{min(values):{style}}..{max(values):{style}}]"


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure other queue systems on one PostgreSQL server.")
    parser.add_argument("--url", required=True, help="the server; its user must be allowed to create databases")
    parser.add_argument(
        "--peer", action="append", choices=DEFAULT_TASKS, help="may be given several times; default: all"
    )
    parser.add_argument("--tasks", type=at_least(1), help="backlog of every peer; default: one that suits each")
    parser.add_argument("--samples", type=at_least(2), default=DEFAULT_SAMPLES, help="pick-ups to time (%(default)s)")
    parser.add_argument("--repeat", type=at_least(1), default=1, help="times each peer is measured (%(default)s)")
    parser.add_argument(
        "--timeout", type=float, default=DEFAULT_TIMEOUT_S, help="seconds a workload may take (%(default)s)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures, with all repeats, to FILE")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, end)
    peers = arguments.peer or tuple(DEFAULT_TASKS)
    print(asyncio.run(describe_server(arguments.url)), flush=True)
    measured = measure_peers(
        arguments.url,
        peers,
        tasks=arguments.tasks,
        samples=arguments.samples,
        repeat=arguments.repeat,
        timeout=arguments.timeout,
    )
    print(table(measured))
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(figures) for figures in measured], indent=2) + "\n")
    if len(measured) < len(set(peers)):
        sys.exit("some peers failed; see above")


def at_least(lowest: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        value = int(text)
        if value < lowest:
            raise argparse.ArgumentTypeError(f"must be at least {lowest}")
        return value

    return number


def end(_number: int, _frame: object) -> NoReturn:
    """Leave by an exception, so that processes are stopped and databases dropped on the way out."""
    sys.exit("terminated")


if __name__ == "__main__":
    main()
