"""huey on PostgreSQL: a task's row is deleted when it is picked up, its result is a row in a key-value table."""

import os
import sys
import threading
import time
from pathlib import Path

import psycopg
from huey.api import PostgresHuey
from inbox import Inbox, tell
from workload import Drained, Peer

THREADS = 8

# store_none: without it a finished no-op leaves no trace in the store.
huey = PostgresHuey("bench", dsn=os.environ["PEER_URL"], store_none=True)
_first_start = threading.Lock()  # taken by the first no-op and never released


@huey.task()
def noop() -> None:
    if _first_start.acquire(blocking=False):
        tell(0)


@huey.task()
def stamp(sent_ns: int) -> None:
    tell(sent_ns)


class Driver(Peer):
    distribution = "huey"
    setting = f"{THREADS} threads, results stored"
    poll_s = 0.02  # nothing in the store is dated: the last completion is the moment it is seen

    def install(self) -> None:
        self._store = psycopg.connect(self.url, autocommit=True)

    def worker_command(self) -> list[str]:
        consumer = str(Path(sys.executable).with_name("huey_consumer"))
        return [consumer, "huey_driver.huey", f"--workers={THREADS}", "--worker-type=thread", "--quiet"]

    def enqueue(self, count: int) -> None:
        for _ in range(count):
            noop()

    def enqueue_stamp(self, sent_ns: int) -> None:
        stamp(sent_ns)

    def analyze(self) -> None:
        self._store.execute("analyze")

    def is_drained(self, count: int) -> bool:
        if self._store.execute("select 1 from huey_task limit 1").fetchone() is not None:
            return False
        return self._completed() >= count

    def drained(self, inbox: Inbox) -> Drained:
        seen_ns = time.time_ns()
        _, first_start_ns = inbox.receive(timeout=1)
        return Drained(self._completed(), (seen_ns - first_start_ns) / 1e9)

    def _completed(self) -> int:
        row = self._store.execute("select count(*) from huey_kv").fetchone()
        assert row is not None
        return int(row[0])
