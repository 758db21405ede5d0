"""Run one workload of one peer, with the peer's own Python; the figures are printed as one line of JSON."""

import argparse
import importlib
import json
import os
import signal
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import NoReturn

from flows import SHAPES, Flows, measure
from workload import Peer, drain, pickup

WORKLOADS = {"drain": drain, "pickup": pickup}


def main() -> None:
    parser = argparse.ArgumentParser(prog="drivers")
    parser.add_argument("peer")
    parser.add_argument("workload", choices=(*WORKLOADS, *SHAPES))
    parser.add_argument("count", type=int, help="tasks to drain, pick-ups to sample, or tasks of the shape")
    parser.add_argument("timeout", type=float, help="seconds after which the workload is given up")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, end)
    # Imported by name, never run as a script: a worker looks the tasks up under the name of their module.
    kind = "flows" if arguments.workload in SHAPES else "driver"
    module = importlib.import_module(f"{arguments.peer.replace('-', '_')}_{kind}")
    url = os.environ["PEER_URL"]
    if kind == "driver":
        peer: Peer = module.Driver(url)
        peer.install()
        about = {"setting": peer.setting, "version": version(peer.distribution)}
        figures = WORKLOADS[arguments.workload](peer, arguments.count, arguments.timeout)
    else:
        with tempfile.TemporaryDirectory(prefix="peer-", ignore_cleanup_errors=True) as home:
            flows: Flows = module.Driver(url, Path(home), arguments.count)
            about = {"setting": flows.setting, "version": version(flows.distribution), "keeps": flows.keeps}
            figures = measure(flows, arguments.workload, arguments.timeout)
    print(json.dumps({**about, **figures}), flush=True)
    # All is told and stopped: threads that a peer leaves behind would keep the process for ever.
    os._exit(0)


def end(_number: int, _frame: object) -> NoReturn:
    """Leave by an exception, so that the worker is stopped on the way out."""
    sys.exit("terminated")


if __name__ == "__main__":
    main()
