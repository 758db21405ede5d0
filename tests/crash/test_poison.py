"""Poison among the innocent: whatever a task does to its worker, the others complete and it is buried."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
from collections import Counter
from pathlib import Path

import asyncpg
import pytest

import weft
from crash.checker import check
from crash.harness import LIVENESS, Crew, Process, until, until_settled

MODULES = ("crash.apps.handlers", "crash.apps.poison")
# A worker has to be up with its threads before it may use what is left of this.
MEMORY = 3 << 30
KINDS = "segfault exit suicide hoard hoard_apart choke spin_in_thread spin_apart spin_on_loop stubborn".split()
INNOCENT = {"short": 150, "long": 500}
CRASH_LIMIT = 3


class Supervisor:
    """Starts a worker again that died, as any process manager would."""

    def __init__(self, crew: Crew, timeout: float) -> None:
        self._crew = crew
        self._timeout = timeout
        self._posts: list[asyncio.Task[None]] = []
        self.deaths = 0

    async def start(self, count: int) -> None:
        """Man some posts."""
        workers = await asyncio.gather(*(self._worker() for _ in range(count)))
        self._posts = [asyncio.create_task(self._watch(worker)) for worker in workers]

    async def _worker(self) -> Process:
        return await self._crew.worker(
            modules=MODULES, memory=MEMORY, concurrency=10, worker_task_timeout=self._timeout, worker_poll_interval=1
        )

    async def _watch(self, worker: Process) -> None:
        while True:
            await worker.ended()
            self.deaths += 1
            worker = await self._worker()

    async def stop(self) -> None:
        """Start nobody any more."""
        for post in self._posts:
            post.cancel()
        results = await asyncio.gather(*self._posts, return_exceptions=True)
        for problem in results:
            if not isinstance(problem, asyncio.CancelledError):
                raise problem


@pytest.mark.long
@pytest.mark.timeout(300)
async def test_poison_of_every_kind_is_buried_and_no_innocent_task_with_it(
    crew: Crew, client: weft.Client, conn: asyncpg.Connection[asyncpg.Record], campaign: str
) -> None:
    draw = random.Random(5)
    __import__("crash.apps.poison")
    # As many blocked event loops as there are workers, and more.
    new = [weft.NewTask(kind) for kind in [*KINDS, "spin_on_loop", "spin_on_loop"]]
    new += [
        weft.NewTask("work", {"folder": str(crew.folder), "seconds": draw.choice((0, 0.01, 0.1))})
        for _ in range(INNOCENT[campaign])
    ]
    draw.shuffle(new)
    # What spins does so until its time is over, three times.
    supervisor = Supervisor(crew, 3 if campaign == "long" else 1.5)
    handles = await client.enqueue_many(new)
    await supervisor.start(2)
    try:
        await until_settled(conn, 150)
    finally:
        await supervisor.stop()
    ended = {row["id"]: row for row in await conn.fetch("select * from weft.task_done")}
    innocent = [ended[handle.id] for handle, task in zip(handles, new, strict=True) if task.handler == "work"]
    assert [dict(row) for row in innocent if row["state"] != "completed"] == []
    found: dict[str, set[tuple[str, str]]] = {kind: set() for kind in KINDS}
    for handle, task in zip(handles, new, strict=True):
        if task.handler != "work":
            row = ended[handle.id]
            found[task.handler].add((row["state"], row["reason"]))
            outcomes = Counter(
                attempt["outcome"]
                for attempt in await conn.fetch("select outcome from weft.attempt where task_id = $1", handle.id)
            )
            # A process of its own that died counts as a failure and as a crash.
            assert outcomes.total() == row["failures"] + row["crashes"] - outcomes["crashed"] == row["attempt"], (
                outcomes
            )
            # Three crashes are enough only when the last was that of its own process; workers may have died before.
            by_own_process = row["crashes"] >= CRASH_LIMIT and outcomes["crashed"] > 0
            assert row["failures"] == row["max_attempts"] or by_own_process, dict(row)
    crashes = await conn.fetchval("select count(*) from weft.task_done where handler = 'work' and crashes > 0")
    print(f"poison: {supervisor.deaths} workers died, {crashes} innocent tasks were in a crash, {found}")
    for kind in ("segfault", "exit", "suicide"):
        assert found[kind] == {("dead", "crashed")}
    for kind in ("spin_in_thread", "spin_apart", "stubborn"):
        assert found[kind] == {("dead", "timeout")}
    for kind in ("hoard", "hoard_apart", "choke", "spin_on_loop"):
        assert {state for state, _ in found[kind]} == {"dead"}
    assert supervisor.deaths >= 3
    await check(conn)


@pytest.mark.parametrize(("kind", "reason", "counts"), [("hoard_apart", "error", (2, 0)), ("choke", "crashed", (3, 3))])
async def test_memory_that_a_task_asks_for_is_refused_to_its_own_process_alone(
    crew: Crew, client: weft.Client, conn: asyncpg.Connection[asyncpg.Record],
    kind: str, reason: str, counts: tuple[int, int],
) -> None:  # fmt: skip
    """It fails when it takes no for an answer, and is a crash when it must be ended."""
    __import__("crash.apps.poison")
    worker = await crew.worker(modules=MODULES)
    handle = await client.enqueue(kind)
    with pytest.raises(weft.TaskFailed):
        await client.wait(handle.id, timeout=LIVENESS)
    task = await client.get_task(handle.id)
    assert (task.state, task.reason, (task.failures, task.crashes)) == ("dead", reason, counts)
    assert task.error is not None
    assert task.error["type"] == ("MemoryError" if reason == "error" else "ChildDied")
    after = await client.enqueue("work", {"folder": str(crew.folder)})
    assert (await client.wait(after.id, timeout=LIVENESS))["pid"] == worker.pid
    await check(conn)


async def test_what_a_task_leaves_behind_is_ended_with_its_process(
    crew: Crew, client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    """Fifty children each time: they would be many after some attempts."""
    await crew.worker(modules=MODULES)
    brood = crew.folder / "brood"
    __import__("crash.apps.poison")
    handle = await client.enqueue("breed", {"path": str(brood)})
    try:
        with pytest.raises(weft.TaskFailed):
            await client.wait(handle.id, timeout=25)  # less than what is left behind would stay
        task = await client.get_task(handle.id)
        assert (task.state, task.reason, task.failures, task.crashes) == ("dead", "crashed", 2, 2)
        born = brood.read_text(encoding="ascii").split()
        assert len(set(born)) == 100

        async def are_gone() -> bool:
            return not any(is_running(int(pid)) for pid in born)

        await until(are_gone, "none of them is left", 10)
        await check(conn)
    finally:
        for pid in map(int, brood.read_text(encoding="ascii").split()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


async def test_what_a_task_has_started_ends_with_a_worker_that_is_killed(crew: Crew, client: weft.Client) -> None:
    worker = await crew.worker(modules=MODULES)
    brood = crew.folder / "brood"
    __import__("crash.apps.poison")
    await client.enqueue("breed", {"path": str(brood), "children": 3, "stays": True})

    async def is_born() -> bool:
        return brood.exists() and brood.read_text(encoding="ascii").endswith("\n")

    await until(is_born, "the children run")
    born = list(map(int, brood.read_text(encoding="ascii").split()))
    assert all(map(is_running, born))
    await worker.kill()

    async def are_gone() -> bool:
        return not any(map(is_running, born))

    await until(are_gone, "none of them is left", 10)


async def test_a_task_that_kills_its_worker_from_its_own_process_does_so_only_up_to_the_limit(
    crew: Crew, client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    __import__("crash.apps.poison")
    handle = await client.enqueue("patricide")
    for _ in range(4):
        worker = await crew.worker(modules=MODULES, worker_loss_limit=4)
        await worker.wait()
    await crew.worker(modules=MODULES, worker_loss_limit=4)
    with pytest.raises(weft.TaskFailed):
        await client.wait(handle.id, timeout=LIVENESS)
    task = await client.get_task(handle.id)
    assert (task.state, task.reason, task.failures, task.crashes) == ("dead", "crashed", 0, 4)
    await check(conn)


def is_running(pid: int) -> bool:
    """Whether there is such a process that has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
