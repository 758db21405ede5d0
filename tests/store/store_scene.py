"""The verbs of the store on one connection, so that a test of the store reads as a sequence of acts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any, TypeVar

import asyncpg

from weft.queue import graph, operate, queues, upkeep, work, workers
from weft.queue.work import Claim, Completed, Ended, Lane, Postponed

T = TypeVar("T")
DEFAULT_QUEUE = 1
LEASE = timedelta(seconds=30)
ORG = 1


class Store:
    """A database as workers, clients and the upkeep see it; each verb is a transaction of its own."""

    def __init__(self, conn: asyncpg.Connection[asyncpg.Record]) -> None:
        self.conn = conn
        self._ahead = timedelta(0)

    async def run(self, verb: Callable[..., Awaitable[T]], *arguments: Any, **options: Any) -> T:
        async with self.conn.transaction():
            return await verb(self.conn, *arguments, **options)

    # --- time ---

    async def advance(self, **span: float) -> None:
        """Move the one clock on."""
        self._ahead += timedelta(**span)
        await self.conn.execute(
            "create or replace function weft.now() returns timestamptz language sql volatile parallel safe "
            f"return clock_timestamp() + interval '{self._ahead.total_seconds()} seconds'"
        )

    async def settled(self, running: Awaitable[Any], ahead: Store) -> bool:
        """Wait until what runs on this store has ended or waits for a lock of ``ahead``; return whether it waits."""
        pid = self.conn.get_server_pid()
        while not running.done():  # type: ignore[attr-defined]
            # In a transaction, what was seen first would be seen again and again.
            await ahead.conn.execute("select pg_stat_clear_snapshot()")
            if await ahead.conn.fetchval("select wait_event_type = 'Lock' from pg_stat_activity where pid = $1", pid):
                return True
            await asyncio.sleep(0.005)
        return False

    # --- clients ---

    async def enqueue(self, handler: str = "h", **fields: Any) -> int:
        names = ", ".join(f"{name} => ${n}" for n, name in enumerate(fields, 2))
        sql = f"select id from weft.enqueue($1{', ' if names else ''}{names})"
        return int(await self.conn.fetchval(sql, handler, *fields.values()))

    async def cancel(self, *ids: int) -> set[int]:
        return await self.run(operate.cancel, ORG, ids, "cancelled", "tester")

    async def replay(self, *ids: int) -> dict[int, int]:
        return await self.run(operate.replay, ORG, ids, "tester")

    async def edge(self, prev: int, next: int) -> bool:
        """Hold ``next`` if it is not held yet, and let it wait for ``prev``."""
        async with self.conn.transaction():
            await graph.hold(self.conn, next)
            return await graph.add_edge(self.conn, prev, next)

    async def limit(self, most: int | None, *, per_key: bool = False, key: str | None = None) -> None:
        await self.run(queues.limit, ORG, "default", most, per_key=per_key, key=key)

    async def create_queue(self, name: str) -> int:
        await self.run(queues.create, ORG, name, None)
        return (await queues.ids(self.conn, ORG))[name]

    # --- workers ---

    async def worker(self, *queue_ids: int, handlers: Sequence[str] = ("h",), lease: timedelta = LEASE) -> int:
        return await self.run(
            workers.register, ORG, lease=lease, concurrency=10, pid=1, hostname="here", version="0",
            queues=list(queue_ids or (DEFAULT_QUEUE,)), handlers=list(handlers),
        )  # fmt: skip

    async def beat(self, worker: int, *, lease: timedelta = LEASE, is_blocked: bool = False) -> workers.Pulse | None:
        return await self.run(
            workers.heartbeat, worker, lease=lease, busy=True, completed=0, failed=0, is_blocked=is_blocked
        )

    async def claim(self, worker: int, wanted: int = 1, *lanes: Lane, from_head: bool = True) -> list[Claim]:
        chosen = lanes or (Lane(DEFAULT_QUEUE),)
        claims, _ = await work.finish_and_claim(self.conn, worker, [], chosen, wanted, from_head=from_head)
        return claims

    async def claim_one(self, worker: int) -> Claim:
        (claim,) = await self.claim(worker)
        return claim

    async def complete(self, worker: int, *claims: Claim, output: str = "null") -> list[int]:
        """Complete and return what did not land."""
        outcomes = [Completed(claim.id, claim.attempt, output) for claim in claims]
        return (await work.finish_and_claim(self.conn, worker, outcomes, [], 0))[1]

    async def postpone(self, worker: int, claim: Claim, *, delay: float = 60, counted: bool = True) -> set[int]:
        outcome = Postponed(
            claim.id,
            claim.attempt,
            timedelta(seconds=delay),
            "failed" if counted else "snoozed",
            "error",
            None,
            counted,
        )
        return await self.run(work.postpone, worker, [outcome])

    async def end(self, worker: int, claim: Claim, state: str = "dead") -> set[int]:
        outcome = Ended(claim.id, claim.attempt, state, "failed", "error", '{"type":"E","message":"m","traceback":""}')
        return await self.run(work.end_unsuccessfully, worker, [outcome])

    async def decline(self, worker: int, claim: Claim, *, patience: float = 600) -> timedelta | None:
        return await self.run(work.decline, worker, claim, timedelta(seconds=2), timedelta(seconds=patience))

    async def hand_back(self, worker: int, claim: Claim) -> dict[int, int]:
        return await self.run(work.hand_back, worker, [(claim.id, claim.attempt)])

    # --- upkeep ---

    async def stage(self) -> int:
        return (await self.run(upkeep.stage))[0]

    async def lose(self, *, loss_limit: int = 3) -> int:
        """Mark whoever lapsed and rescue what they held; return how many tasks were taken from them."""
        await self.run(upkeep.mark_lost)
        return sum(
            [(await self.run(upkeep.rescue, lost, loss_limit))[0] for lost in await upkeep.lost_workers(self.conn)]
        )

    # --- looks ---

    async def task(self, id: int) -> asyncpg.Record:
        row = await self.conn.fetchrow("select * from weft.tasks where id = $1", id)
        assert row is not None
        return row

    async def state(self, id: int) -> str:
        return str((await self.task(id))["state"])

    async def attempts(self, id: int) -> list[tuple[int, str]]:
        rows = await self.conn.fetch("select attempt, outcome from weft.attempts where task_id = $1 order by 1", id)
        return [(row[0], row[1]) for row in rows]

    async def held_slots(self, key: str, queue: int = DEFAULT_QUEUE) -> int:
        return int(
            await self.conn.fetchval("select held from weft.key_slot where queue_id = $1 and key = $2", queue, key) or 0
        )


class Ears:
    """Hears on another connection what workers are told."""

    def __init__(self, conn_of: Store) -> None:
        self._conn = conn_of.conn
        self._heard: list[int] = []

    async def lend(self, *worker_ids: int) -> None:
        for worker_id in worker_ids:
            await self._conn.add_listener(
                f"weft_worker_{worker_id}", lambda _, __, channel, ___: self._heard.append(int(channel.split("_")[2]))
            )

    async def told(self) -> list[int]:
        """Return who was told since the last look: whatever was committed before comes before this answer."""
        await self._conn.execute("select 1")
        heard, self._heard = self._heard, []
        return heard
