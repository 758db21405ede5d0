"""Weft's figures beside those of other systems, measured on the same server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from bench import jobs
from bench.peers import queues, shapes
from bench.report import Figure
from weft.version import __version__


def compare_queues(
    server: str, figures: Sequence[Figure], peers: Sequence[str], repeat: int, quick: bool, extra: dict[str, object]
) -> list[Figure]:
    """Measure other queues and set Weft beside the fastest."""
    chosen = [peer for peer in peers if peer in queues.DEFAULT_TASKS]
    tasks, samples = (500, 20) if quick else (None, queues.DEFAULT_SAMPLES)
    found = queues.measure_peers(server, chosen, tasks=tasks, samples=samples, repeat=repeat)
    print(queues.table(found))
    extra["peers"] = [asdict(peer) for peer in found]
    ours = next((figure for figure in figures if figure.workload.startswith("work")), None)
    if ours is None or not found:
        return []
    best = max(found, key=lambda peer: peer.tasks_per_s)
    ratio = ours.value / best.tasks_per_s
    return [Figure("work, beside the fastest peer", ratio, "times", ">= 1.2 times", ratio >= 1.2,
                   f"{best.peer} {best.tasks_per_s:,.0f}/s")]  # fmt: skip


def compare_shapes(
    server: str, figures: Sequence[Figure], peers: Sequence[str], repeat: int, scale: int, extra: dict[str, object]
) -> list[Figure]:
    """Measure other workflow systems and set Weft beside the fastest at each shape."""
    chosen = [peer for peer in peers if peer in shapes.DEFAULT_SIZES]
    found = shapes.measure_shapes(server, chosen, sizes=shapes.smaller(scale), repeat=repeat)
    ours = own_shapes(figures)
    print(shapes.table([ours, *found] if ours else found))
    extra["shapes"] = [asdict(each) for each in ([ours, *found] if ours else found)]
    if ours is None:
        return []
    return [
        *beside_the_fastest("chain, a hop", "hop_ms", "ms", ours, found),
        *beside_the_fastest("1 → 1,000 → 1", "fan_s", "s", ours, [each for each in found if each.sizes.fan == 1000]),
        *beside_the_fastest("40 sequential fib(10)", "fib_overhead_s", "s", ours, found),
    ]


def own_shapes(figures: Sequence[Figure]) -> shapes.ShapeFigures | None:
    """Return Weft's own figures of the shapes as those of a peer, if they were measured."""
    by_name = {figure.workload: figure for figure in figures}
    chain = next((figure for name, figure in by_name.items() if name.startswith("chain of")), None)
    fan, fib = by_name.get(jobs.FAN), by_name.get(jobs.FIB_OVERHEAD)
    if chain is None or fan is None or fib is None:
        return None
    return shapes.ShapeFigures(
        peer="weft",
        version=__version__,
        setting=f"one orchestrator, one worker, concurrency {jobs.CONCURRENCY}",
        keeps="PostgreSQL",
        sizes=shapes.Sizes(chain=int(chain.workload.split()[2].replace(",", ""))),
        hop_ms=chain.value,
        fan_s=fan.value,
        fib_overhead_s=fib.value,
        repeats={"hop_ms": chain.runs, "fan_s": fan.runs, "fib_overhead_s": fib.runs},
    )


def beside_the_fastest(
    workload: str, name: str, unit: str, ours: shapes.ShapeFigures, peers: Sequence[shapes.ShapeFigures]
) -> list[Figure]:
    """Return how many times faster Weft is than the fastest of the peers that have this figure."""
    found = [(value, each.peer) for each in peers if (value := getattr(each, name)) is not None]
    if not found:
        return []
    value, best = min(found)
    ratio = value / getattr(ours, name)
    return [Figure(f"{workload}, beside the fastest peer", ratio, "times", "> 1 times", ratio > 1,
                   f"{best} {value:,.2f} {unit}")]  # fmt: skip
