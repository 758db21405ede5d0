"""Measure the queue systems that a user would pick instead of Weft."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields

from bench.peers.drive import run_driver, scratch_database
from bench.peers.environments import PeerFailed, install, say
from bench.peers.tables import aligned, cell

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


def table(peers: Sequence[PeerFigures]) -> str:
    """The figures as aligned columns: the median, with the range in brackets where there are several repeats."""
    head = ("peer", "version", "tasks", "enqueue/s", "tasks/s", "p50 ms", "p95 ms", "p99 ms", "setting")
    rows: list[tuple[str, ...]] = [head]
    for figures in peers:
        rates = [_cell(figures, name, ",.0f") for name in ("enqueue_per_s", "tasks_per_s")]
        waits = [_cell(figures, f"pickup_p{percent}_ms", ".1f") for percent in (50, 95, 99)]
        rows.append((figures.peer, figures.version, f"{figures.n:,}", *rates, *waits, figures.setting))
    return aligned(rows, to_the_left=("peer", "version", "setting"))


def _cell(figures: PeerFigures, name: str, style: str) -> str:
    return cell([getattr(repeat, name) for repeat in figures.repeats], style)
