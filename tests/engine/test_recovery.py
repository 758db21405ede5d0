"""What a worker keeps when it cannot settle outcomes after PostgreSQL refused the whole batch."""

from __future__ import annotations

from pathlib import Path

import asyncpg

import weft
from weft.core.settings import Settings
from weft.db.blobs import open_blobs
from weft.queue.work import Claim, Completed
from weft.worker.attempt import Attempt, Environment
from weft.worker.holdings import Holdings
from weft.worker.line import Line
from weft.worker.processes import Processes
from weft.worker.recovery import recover
from weft.worker.registry import Registry


async def test_outcomes_that_could_not_be_sent_are_all_kept_and_the_worker_goes_on(
    client: weft.Client, tmp_path: Path, registry: Registry
) -> None:
    @registry.task(name="h")
    async def handler() -> None: ...

    known = registry.get("h")
    assert known is not None
    settings = Settings(home=tmp_path)
    env = Environment(
        settings,
        1,
        open_blobs(settings),
        Processes([], None),
        tmp_path,
        lambda _: None,
        lambda _attempt, _outcome: None,
    )
    held = Holdings()
    for id in (1, 2, 3):
        claim = Claim(id, 1, 1, 0, id, "h", "{}", 3, 0, 0, None, None, None, None)
        held.running[id] = Attempt(env, claim, known)
        held.note(Completed(id, 1, "null"))
    line = Line(client.database, "weft_worker_1", lambda _: None)
    await line.open()
    async with line.statement() as conn, client.database.acquire() as other:
        await other.execute("select pg_terminate_backend($1, 5000)", conn.get_server_pid())
    await recover(asyncpg.DataError("refused"), client.database, line, held, 1, lambda _completed, _lost: None)
    assert [outcome.id for outcome in held.completed] == [1, 2, 3]
    assert not line.is_open
