"""Ray: tasks and their results are in the memory of its processes."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import ray
from flows import Flows, clocked_fib
from processes import HERE

CPUS = os.cpu_count() or 1


@ray.remote
def noop(*_before: object) -> None:
    pass


@ray.remote
def compute(_before: object = None) -> float:
    return clocked_fib()


class Driver(Flows):
    distribution = "ray"
    setting = f"{CPUS} processors"
    keeps = "in memory"

    @contextmanager
    def running(self) -> Iterator[None]:
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        ray.init(
            num_cpus=CPUS,
            include_dashboard=False,
            log_to_driver=False,
            logging_level="ERROR",
            _temp_dir=str(self.home),
            runtime_env={"env_vars": {"PYTHONPATH": str(HERE)}},
        )
        try:
            # All processes of its pool are there before anything is timed.
            ray.get([noop.remote() for _ in range(20)])
            yield
        finally:
            ray.shutdown()

    def chain(self, tasks: int) -> None:
        last = noop.remote()
        for _ in range(tasks - 1):
            last = noop.remote(last)
        ray.get(last)

    def fan(self, width: int) -> None:
        first = noop.remote()
        ray.get(noop.remote(*[noop.remote(first) for _ in range(width)]))

    def fib(self, tasks: int) -> None:
        self._tasks = [compute.remote()]
        for _ in range(tasks - 1):
            self._tasks.append(compute.remote(self._tasks[-1]))
        ray.get(self._tasks[-1])

    def clocked(self) -> float:
        return float(sum(ray.get(self._tasks)))
