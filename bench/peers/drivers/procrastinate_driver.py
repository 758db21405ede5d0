"""procrastinate: jobs stay in a table, each change of state is an event row written by a trigger."""

import os
import sys

import procrastinate
import psycopg
from inbox import Inbox, tell
from workload import Drained, Peer

CONCURRENCY = 20

app = procrastinate.App(
    connector=procrastinate.PsycopgConnector(conninfo=os.environ["PEER_URL"], min_size=4, max_size=CONCURRENCY)
)


@app.task(name="noop")
async def noop() -> None:
    pass


@app.task(name="stamp")
async def stamp(sent_ns: int) -> None:
    tell(sent_ns)


class Driver(Peer):
    distribution = "procrastinate"
    setting = f"concurrency {CONCURRENCY}"

    def install(self) -> None:
        self._store = psycopg.connect(self.url, autocommit=True)
        app.open()
        app.schema_manager.apply_schema()

    def worker_command(self) -> list[str]:
        command = [sys.executable, "-m", "procrastinate", "--app=procrastinate_driver.app", "--log-level=warning"]
        return [*command, "worker", f"--concurrency={CONCURRENCY}"]

    def enqueue(self, count: int) -> None:
        noop.batch_defer(*[{}] * count)

    def enqueue_stamp(self, sent_ns: int) -> None:
        stamp.defer(sent_ns=sent_ns)

    def analyze(self) -> None:
        self._store.execute("analyze")

    def is_drained(self, count: int) -> bool:
        pending = "select 1 from procrastinate_jobs where status in ('todo', 'doing') limit 1"
        return self._store.execute(pending).fetchone() is None

    def drained(self, inbox: Inbox) -> Drained:
        row = self._store.execute(
            """
            select count(*) filter (where type = 'succeeded'),
                   extract(epoch from max(at) filter (where type = 'succeeded')
                                      - min(at) filter (where type = 'started'))
            from procrastinate_events
            """
        ).fetchone()
        assert row is not None
        return Drained(row[0], float(row[1]))
