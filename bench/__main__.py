"""``python -m bench``: measures, prints a table, writes JSON to ``bench/results``."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from pathlib import Path

from bench import (
    comparison,
    datasets,
    definitions,
    dev,
    graphs,
    jobs,
    owners,
    process,
    queries,
    queue,
    schedules,
    server_worker,
    sizes,
    sources,
    streams,
    workflows,
)
from bench import server as serving
from bench.peers.environments import PEERS
from bench.place import own_server
from bench.report import Figure, print_table, write_json

QUOTED = Path("bench/figures.json")
PARTS = (
    *("work", "enqueue", "pick-up", "history", "horizon", "limits", "idle", "start"),
    *("definitions", "workflows", "jobs", "graphs", "owners", "schedules", "sources", "datasets", "query-overhead"),
    *("server-requests", "server-lists", "server-streams", "server-worker", "dev", "sizes"),
)


def main() -> None:
    """Run the chosen parts on a server of their own."""
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("--only", nargs="*", choices=PARTS, default=PARTS, help="measure only these parts")
    parser.add_argument("--quick", action="store_true", help="a tenth of the size: to try, not to quote")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--peers", action="store_true", help="measure other systems on the same server too")
    parser.add_argument("--peer", action="append", choices=PEERS, help="only this one; may be repeated")
    parser.add_argument("--quote", action="store_true", help="write bench/figures.json, which the docs quote")
    options = parser.parse_args()
    scale = 10 if options.quick else 1
    tasks, repeat = 100_000 // scale, options.repeat
    figures: list[Figure] = []
    extra: dict[str, object] = {}
    with own_server() as server:
        steps = {
            "work": lambda: queue.measure_work(server, tasks, repeat),
            "enqueue": lambda: queue.measure_enqueue(server, tasks, repeat),
            "pick-up": lambda: queue.measure_pick_up(server, 500 // scale),
            "history": lambda: queue.measure_history(server, tasks, 5_000_000 // scale, repeat),
            "horizon": lambda: queue.measure_horizon(server, tasks, 120 / scale),
            "limits": lambda: queue.measure_limits(server, tasks, repeat),
            "workflows": lambda: workflows.measure_workflows(server, scale, repeat),
            "jobs": lambda: jobs.measure_jobs(server, scale, repeat),
            "graphs": lambda: graphs.measure_graphs(server, 1000 // scale, repeat),
            "owners": lambda: owners.measure_owners(server, repeat),
            "schedules": lambda: schedules.measure_schedules(server, 1000 // scale, repeat),
            "sources": lambda: _sources(server, scale, repeat),
            "datasets": lambda: _datasets(server, scale, repeat),
            "query-overhead": lambda: queries.measure_queries(200 // scale),
            "server-streams": lambda: streams.measure_streams(server, scale),
            "server-worker": lambda: server_worker.measure_server_worker(server, tasks, repeat),
            "server-requests": lambda: serving.measure_requests(server, scale, repeat),
            "server-lists": lambda: serving.measure_lists(server, 5_000_000 // scale, 300),
            "sizes": lambda: sizes.measure_sizes(server, tasks, 5000 // scale),
            "dev": lambda: dev.measure_dev(repeat),
            "idle": lambda: process.measure_idle(server, 30 / scale),
        }
        extra["command"] = _command(options)
        try:
            for part in options.only:
                print(f"… {part}", flush=True)
                match part:
                    case "start":
                        figures += process.measure_start(repeat)
                    case "definitions":
                        figures += definitions.measure_definitions(10_000 // scale, repeat)
                    case _:
                        figures += asyncio.run(steps[part]())
            if options.peers or options.peer:
                figures += compare(server, figures, options, extra)
        finally:
            # What was measured before something went wrong is not lost with it.
            print_table(figures)
            write_json(figures, Path("bench/results") / time.strftime("%Y%m%d-%H%M%S.json"), extra)
    if options.quote:
        write_json(figures, QUOTED, extra)


async def _datasets(server: str, scale: int, repeat: int) -> list[Figure]:
    written = await datasets.measure_writes(server, 10_000_000 // scale, repeat)
    return written + await datasets.measure_catalog(server, 1_000_000 // scale, 500)


async def _sources(server: str, scale: int, repeat: int) -> list[Figure]:
    found = await sources.measure_reaction(server, 500 // scale)
    found += await sources.measure_ticks(server, 1000 // scale, repeat)
    return found + await sources.measure_events(server, 100_000 // scale, repeat)


def _command(options: argparse.Namespace) -> str:
    """Return what was called: by its short name when nothing was said but that."""
    if (options.only, options.quick, options.repeat, options.peer) == (PARTS, False, 3, None):
        return "make bench-peers" if options.peers else "make bench"
    return " ".join(["python -m bench", *sys.argv[1:]])


def compare(server: str, figures: list[Figure], options: argparse.Namespace, extra: dict[str, object]) -> list[Figure]:
    """Measure the peers of what was measured: queues beside ``work``, workflow systems beside ``jobs``."""
    peers, parts, repeat = options.peer or PEERS, options.only, options.repeat
    found = []
    if "work" in parts or not parts:
        found += comparison.compare_queues(server, figures, peers, repeat, options.quick, extra)
    if "jobs" in parts or not parts:
        found += comparison.compare_shapes(server, figures, peers, repeat, 10 if options.quick else 1, extra)
    return found


if __name__ == "__main__":
    main()
