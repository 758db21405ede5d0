"""Measure the workflow systems that a user would pick instead of Weft, on three shapes of workflow."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bench.peers.drive import run_driver, scratch_database
from bench.peers.environments import PeerFailed, install, say
from bench.peers.tables import aligned, cell

DEFAULT_TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many tasks there are in each shape."""

    chain: int = 100
    fan: int = 1_000
    fib: int = 40


DEFAULT_SIZES: Mapping[str, Sizes] = {
    "dbos": Sizes(),
    "celery": Sizes(),
    "ray": Sizes(),
    "dask": Sizes(),
    "temporal": Sizes(),
    "prefect": Sizes(),
    "dagster": Sizes(),
    "airflow": Sizes(chain=20, fan=100),  # a task takes about a second
}
"""Every peer, with sizes that take it no more than minutes."""

SHAPES: Mapping[str, str] = {"chain": "hop_ms", "fan": "fan_s", "fib": "fib_overhead_s"}
"""Every shape, with the name of its figure."""


@dataclass(frozen=True, slots=True)
class ShapeFigures:
    """The medians over all repeats of a peer, None where a shape could not be measured, and the repeats."""

    peer: str
    version: str
    setting: str
    keeps: str
    sizes: Sizes
    hop_ms: float | None
    fan_s: float | None
    fib_overhead_s: float | None
    repeats: Mapping[str, Sequence[float]]


def measure_shapes(
    url: str,
    peers: Sequence[str] = tuple(DEFAULT_SIZES),
    shapes: Sequence[str] = tuple(SHAPES),
    *,
    sizes: Mapping[str, Sizes] = DEFAULT_SIZES,
    repeat: int = 1,
    timeout: float = DEFAULT_TIMEOUT_S,
    progress: Callable[[str], None] = say,
) -> list[ShapeFigures]:
    """Measure ``shapes`` with each of the ``peers``; those that keep their state in PostgreSQL do so at ``url``.

    The peers take turns, repeat by repeat. A peer that cannot be installed, and a shape that a peer cannot do
    in time, is reported to ``progress`` and missing from the result. Blocks, as `measure_peers` does.
    """
    plan = [(peer, shape) for peer in dict.fromkeys(peers) if installed(peer, progress) for shape in shapes]
    found: dict[str, list[dict[str, Any]]] = {}
    for number in range(1, repeat + 1):
        for peer, shape in list(plan):
            progress(f"{peer}: {shape}, repeat {number} of {repeat}")
            try:
                with scratch_database(url, peer) as database_url:
                    ran = run_driver(peer, database_url, shape, getattr(sizes[peer], shape), timeout)
            except PeerFailed as failure:
                progress(str(failure))
                plan.remove((peer, shape))
            else:
                found.setdefault(peer, []).append(ran)
    return [summarise(peer, sizes[peer], runs) for peer, runs in found.items()]


def installed(peer: str, progress: Callable[[str], None]) -> bool:
    try:
        install(peer, progress)
    except PeerFailed as failure:
        progress(str(failure))
        return False
    return True


def summarise(peer: str, sizes: Sizes, runs: Sequence[Mapping[str, Any]]) -> ShapeFigures:
    repeats = {name: [round(float(run[name]), 4) for run in runs if name in run] for name in SHAPES.values()}
    hop_ms, fan_s, fib_overhead_s = (statistics.median(found) if found else None for found in repeats.values())
    version, setting, keeps = (str(runs[0][name]) for name in ("version", "setting", "keeps"))
    return ShapeFigures(peer, version, setting, keeps, sizes, hop_ms, fan_s, fib_overhead_s, repeats)


def smaller(scale: int) -> dict[str, Sizes]:
    """Return the sizes of all peers for a trial: chains and fans are cut down, the row of fib is too short for it."""
    return {
        peer: replace(sizes, chain=max(2, sizes.chain // scale), fan=max(2, sizes.fan // scale))
        for peer, sizes in DEFAULT_SIZES.items()
    }


def table(peers: Sequence[ShapeFigures]) -> str:
    """The figures as aligned columns, with the ranges where there are several repeats."""
    head = ("peer", "version", "keeps", "hops", "ms a hop", "wide", "fan s", "fib", "overhead s", "setting")
    rows: list[tuple[str, ...]] = [head]
    for figures in peers:
        sizes, repeats = figures.sizes, figures.repeats
        chain = f"{sizes.chain:,}", cell(repeats["hop_ms"], ",.2f")
        fan = f"{sizes.fan:,}", cell(repeats["fan_s"], ".2f")
        fib = f"{sizes.fib:,}", cell(repeats["fib_overhead_s"], ".3f")
        rows.append((figures.peer, figures.version, figures.keeps, *chain, *fan, *fib, figures.setting))
    return aligned(rows, to_the_left=("peer", "version", "keeps", "setting"))
