"""DBOS: every task is a workflow with a row of status, input and output that stays."""

import os
import sys
import threading

import psycopg
from dbos import DBOS, DBOSClient
from inbox import Inbox, tell
from sqlalchemy import create_engine
from workload import Drained, Peer

QUEUE = "bench"
THREADS = 8
POLL_S = 0.05


def system_url(url: str) -> str:
    return url.replace("postgresql://", "postgresql+psycopg://", 1)


@DBOS.workflow()
def noop() -> None:
    pass


@DBOS.workflow()
def stamp(sent_ns: int) -> None:
    tell(sent_ns)


def launch() -> None:
    DBOS(
        config={
            "name": "bench",
            "system_database_url": system_url(os.environ["PEER_URL"]),
            "application_version": "1",
            "max_executor_threads": THREADS,
            "log_level": "WARNING",
        }
    )
    DBOS.launch()
    DBOS.register_queue(QUEUE, polling_interval_sec=POLL_S)


def work() -> None:
    """The worker process: DBOS has no command of its own for it."""
    launch()
    threading.Event().wait()


class Driver(Peer):
    distribution = "dbos"
    setting = f"{THREADS} executor threads, poll {POLL_S} s"

    def install(self) -> None:
        launch()  # creates the schema
        DBOS.destroy()
        self._client = DBOSClient(system_database_url=system_url(self.url))
        self._store = psycopg.connect(self.url, autocommit=True)

    def worker_command(self) -> list[str]:
        return [sys.executable, "-c", "import dbos_driver; dbos_driver.work()"]

    def enqueue(self, count: int) -> None:
        # There is no bulk call; one transaction around all of them is the next best.
        with create_engine(system_url(self.url)).begin() as connection:
            for _ in range(count):
                self._client.enqueue_in_transaction(connection, {"queue_name": QUEUE, "workflow_name": "noop"})

    def enqueue_stamp(self, sent_ns: int) -> None:
        self._client.enqueue({"queue_name": QUEUE, "workflow_name": "stamp"}, sent_ns)

    def analyze(self) -> None:
        self._store.execute("analyze")

    def is_drained(self, count: int) -> bool:
        pending = "select 1 from dbos.workflow_status where status in ('ENQUEUED', 'PENDING') limit 1"
        return self._store.execute(pending).fetchone() is None

    def drained(self, inbox: Inbox) -> Drained:
        row = self._store.execute(
            """
            select count(*) filter (where status = 'SUCCESS'), max(updated_at) - min(started_at_epoch_ms)
            from dbos.workflow_status
            """
        ).fetchone()
        assert row is not None
        return Drained(row[0], row[1] / 1000)
