"""``python -m bench.peers``: measures other systems without Weft. What the figures mean is told in README.md."""

import argparse
import asyncio
import json
import signal
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import NoReturn

from bench.peers import queues, shapes
from bench.peers.drive import describe_server
from bench.peers.environments import PEERS
from bench.place import own_server

QUEUE = "queue"


def main() -> None:
    """Measure the chosen workloads of the chosen peers."""
    arguments = _parser().parse_args()
    signal.signal(signal.SIGTERM, end)
    workloads = arguments.only or (QUEUE, *shapes.SHAPES)
    peers = arguments.peer or PEERS
    with nullcontext(arguments.url) if arguments.url else own_server() as url:
        print(asyncio.run(describe_server(url)), flush=True)
        measured = _queues(url, peers if QUEUE in workloads else (), arguments)
        ran = _shapes(url, peers, tuple(name for name in shapes.SHAPES if name in workloads), arguments)
    if arguments.json:
        found = {"peers": [asdict(each) for each in measured], "shapes": [asdict(each) for each in ran]}
        arguments.json.write_text(json.dumps(found, indent=2) + "\n")
    if missing := set(peers) - {each.peer for each in measured} - {each.peer for each in ran}:
        sys.exit(f"not measured: {', '.join(sorted(missing))}; see above")


def _queues(url: str, peers: tuple[str, ...], arguments: argparse.Namespace) -> list[queues.PeerFigures]:
    chosen = [peer for peer in peers if peer in queues.DEFAULT_TASKS]
    if not chosen:
        return []
    found = queues.measure_peers(
        url,
        chosen,
        tasks=arguments.tasks,
        samples=arguments.samples,
        repeat=arguments.repeat,
        timeout=arguments.timeout or queues.DEFAULT_TIMEOUT_S,
    )
    print(queues.table(found), flush=True)
    return found


def _shapes(
    url: str, peers: tuple[str, ...], wanted: tuple[str, ...], arguments: argparse.Namespace
) -> list[shapes.ShapeFigures]:
    chosen = [peer for peer in peers if peer in shapes.DEFAULT_SIZES]
    if not chosen or not wanted:
        return []
    given = {"chain": arguments.hops, "fan": arguments.width, "fib": arguments.fibs}
    asked = {name: size for name, size in given.items() if size is not None}
    found = shapes.measure_shapes(
        url,
        chosen,
        wanted,
        sizes={peer: replace(sizes, **asked) for peer, sizes in shapes.DEFAULT_SIZES.items()},
        repeat=arguments.repeat,
        timeout=arguments.timeout or shapes.DEFAULT_TIMEOUT_S,
    )
    print(shapes.table(found), flush=True)
    return found


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="bench.peers", description="Measure other systems on one PostgreSQL server.")
    parser.add_argument("--url", help="a server on which databases may be created; default: one of its own")
    parser.add_argument("--peer", action="append", choices=PEERS, help="may be given several times; default: all")
    parser.add_argument("--only", nargs="+", choices=(QUEUE, *shapes.SHAPES), help="measure only these workloads")
    parser.add_argument("--tasks", type=at_least(1), help="backlog of every queue; default: one that suits each")
    parser.add_argument("--samples", type=at_least(2), default=queues.DEFAULT_SAMPLES, help="pick-ups (%(default)s)")
    parser.add_argument("--hops", type=at_least(1), help="tasks of the chain; default: as many as suit each peer")
    parser.add_argument("--width", type=at_least(1), help="width of the fan; default: one that suits each peer")
    parser.add_argument("--fibs", type=at_least(1), help="tasks of the row of fib(10)")
    parser.add_argument("--repeat", type=at_least(1), default=1, help="times each peer is measured (%(default)s)")
    parser.add_argument("--timeout", type=float, help="seconds a workload may take (300; of a shape 600)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures, with all repeats, to FILE")
    return parser


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
