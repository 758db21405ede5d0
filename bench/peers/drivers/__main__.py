"""Run one workload of one peer, with the peer's own Python; the figures are printed as one line of JSON."""

import argparse
import importlib
import json
import os
import signal
import sys
from importlib.metadata import version
from typing import NoReturn

from workload import Peer, drain, pickup

WORKLOADS = {"drain": drain, "pickup": pickup}


def main() -> None:
    parser = argparse.ArgumentParser(prog="drivers")
    parser.add_argument("peer")
    parser.add_argument("workload", choices=WORKLOADS)
    parser.add_argument("count", type=int, help="tasks to drain, or pick-ups to sample")
    parser.add_argument("timeout", type=float, help="seconds after which the workload is given up")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, end)
    # Imported by name, never run as a script: a worker looks the tasks up under the name of their module.
    module = importlib.import_module(f"{arguments.peer.replace('-', '_')}_driver")
    peer: Peer = module.Driver(os.environ["PEER_URL"])
    peer.install()
    figures = WORKLOADS[arguments.workload](peer, arguments.count, arguments.timeout)
    print(json.dumps({"version": version(peer.distribution), "setting": peer.setting, **figures}), flush=True)


def end(_number: int, _frame: object) -> NoReturn:
    """Leave by an exception, so that the worker is stopped on the way out."""
    sys.exit("terminated")


if __name__ == "__main__":
    main()
