"""Where handlers run, and how an attempt is ended for real."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import asyncpg
import process_handlers
import pytest
from engine_scene import Clock, MakeClient, claimed_by_a_ghost, until

import weft
from depth import daily
from far import with_and_without_a_database
from weft.core.settings import Settings
from weft.queue import upkeep
from weft.queue.work import Claim
from weft.worker.logs import TaskLog
from weft.worker.processes import Processes
from weft.worker.registry import Registry


def _is_gone(pid: int) -> bool:
    """Whether a process has ended; one that nobody has asked for its end counts as gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


# --- threads ---


async def test_sync_handlers_run_at_once_in_threads(client: weft.Client, registry: Registry) -> None:
    together = threading.Barrier(5)

    @registry.task(name="meet")
    def meet() -> bool:
        together.wait(20)
        return threading.current_thread() is not threading.main_thread()

    handles = [await client.enqueue("meet") for _ in range(5)]
    await weft.Worker(client=client, registry=registry).run_until_idle()
    assert [await client.wait(handle.id) for handle in handles] == [True] * 5


async def test_an_async_handler_runs_on_the_loop_of_the_worker(client: weft.Client, registry: Registry) -> None:
    loops: list[asyncio.AbstractEventLoop] = []

    @registry.task(name="loop")
    async def loop() -> None:
        loops.append(asyncio.get_running_loop())

    await client.enqueue("loop")
    await weft.Worker(client=client, registry=registry).run_until_idle()
    assert loops == [asyncio.get_running_loop()]


async def test_a_timeout_ends_an_async_attempt(client: weft.Client, registry: Registry) -> None:
    ended: list[bool] = []

    @registry.task(name="wait", timeout=0.05)
    async def wait(ctx: weft.Context) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(ctx.is_cancelled)

    handle = await client.enqueue(wait, max_attempts=1)
    await weft.Worker(client=client, registry=registry).run_until_idle()
    task = await client.get_task(handle.id)
    assert (task.state, task.reason, ended) == ("dead", "timeout", [True])
    assert task.error is not None
    assert (task.error["type"], "0.05 s" in task.error["message"]) == ("TimeoutError", True)


async def test_a_timeout_is_an_attempt_like_any_other(client: weft.Client, registry: Registry) -> None:
    @registry.task(name="wait", timeout=0.05, retry=weft.Retry(2, initial_delay=0))
    async def wait(ctx: weft.Context) -> str:
        if ctx.attempt == 1:
            await asyncio.Event().wait()
        return "quick"

    handle = await client.enqueue(wait)
    async with weft.Worker(client=client, registry=registry):
        assert await client.wait(handle.id, timeout=60) == "quick"
    (attempt,) = (await client.get_task(handle.id)).attempts
    assert (attempt.outcome, attempt.reason) == ("failed", "timeout")


async def test_an_async_handler_that_will_not_end_is_fenced_and_its_slot_is_free(
    client: weft.Client, registry: Registry
) -> None:
    release = asyncio.Event()

    @registry.task(name="deaf", timeout=0.05)
    async def deaf() -> str:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        return "too late"

    @registry.task(name="quick")
    async def quick() -> str:
        return "quick"

    try:
        async with weft.Worker(client=client, registry=registry, concurrency=1):
            handle = await client.enqueue(deaf, max_attempts=1)
            with pytest.raises(weft.TaskFailed, match="timeout"):
                await client.wait(handle.id, timeout=60)
            assert await client.wait((await client.enqueue("quick")).id, timeout=60) == "quick"
            release.set()
    finally:
        release.set()
    task = await client.get_task(handle.id)
    assert (task.state, task.reason, task.output) == ("dead", "timeout", None)


async def test_a_handler_that_returns_in_spite_of_its_timeout_has_timed_out(
    client: weft.Client, registry: Registry
) -> None:
    @registry.task(name="late", timeout=0.05)
    async def late() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "I was nearly there"
        return "never"

    handle = await client.enqueue(late, max_attempts=1)
    await weft.Worker(client=client, registry=registry).run_until_idle()
    task = await client.get_task(handle.id)
    assert (task.state, task.reason, task.output) == ("dead", "timeout", None)


async def test_a_thread_that_cannot_be_ended_is_reported_and_fenced(
    client: weft.Client, registry: Registry, caplog: pytest.LogCaptureFixture
) -> None:
    release, ended = threading.Event(), threading.Event()

    @registry.task(name="stuck", timeout=0.05)
    def stuck() -> str:
        release.wait(30)
        ended.set()
        return "too late"

    handle = await client.enqueue(stuck, max_attempts=1)
    async with weft.Worker(client=client, registry=registry) as worker:
        with pytest.raises(weft.TaskFailed, match="timeout"):
            await client.wait(handle.id, timeout=60)
        release.set()
        await asyncio.to_thread(ended.wait)
        await worker.process.wait_until_idle()
    task = await client.get_task(handle.id)
    assert (task.state, task.reason, task.output) == ("dead", "timeout", None)
    (line,) = [record.getMessage() for record in caplog.records if "cannot be ended" in record.getMessage()]
    assert str(handle.id) in line
    assert 'executor="process"' in line


async def test_a_task_without_a_timeout_ends_by_the_workers_own(make_client: MakeClient, registry: Registry) -> None:
    @registry.task(name="wait")
    async def wait() -> None:
        await asyncio.Event().wait()

    client = await make_client(worker_task_timeout=0.05)
    handle = await client.enqueue("wait", max_attempts=1)
    await weft.Worker(client=client, registry=registry).run_until_idle()
    task = await client.get_task(handle.id)
    assert (task.state, task.reason) == ("dead", "timeout")


async def test_a_handler_that_cancels_itself_has_failed(client: weft.Client, registry: Registry) -> None:
    @registry.task(name="odd")
    async def odd() -> None:
        raise asyncio.CancelledError("of my own")

    handle = await client.enqueue("odd", max_attempts=1)
    await weft.Worker(client=client, registry=registry).run_until_idle()
    assert (await client.get_task(handle.id)).state == "dead"


# --- processes ---


@with_and_without_a_database
async def test_a_handler_in_a_process_gets_typed_arguments_and_gives_a_typed_result(client: weft.Client) -> None:
    handle = await client.enqueue(process_handlers.awaited, {"day": "2026-02-01"})
    other = await client.enqueue(process_handlers.pid)
    wrong = await client.enqueue(process_handlers.awaited, {"day": "never"})
    await weft.Worker(client=client).run_until_idle()
    assert await client.wait(handle.id) == {"day": "2026-02-01", "attempt": 1, "key": f"weft-task-{handle.id}"}
    assert await client.wait(other.id) != os.getpid()
    task = await client.get_task(wrong.id)
    assert task.state == "failed"
    assert task.error is not None
    assert task.error["message"].startswith("params.day: ")


async def test_a_process_is_used_again_for_the_next_task(client: weft.Client) -> None:
    handles = [await client.enqueue(process_handlers.pid) for _ in range(3)]
    await weft.Worker(client=client, concurrency=1).run_until_idle()
    pids = {await client.wait(handle.id) for handle in handles}
    assert len(pids) == 1
    assert _is_gone(pids.pop())


async def test_what_a_handler_raises_in_a_process_means_the_same_as_elsewhere(client: weft.Client) -> None:
    cases = {"snooze": ("scheduled", "snooze", 0), "never": ("failed", "non_retryable", 1),
             "lookup": ("failed", "non_retryable", 1), "other": ("scheduled", "error", 1)}  # fmt: skip
    handles = {how: await client.enqueue(process_handlers.fail, {"how": how}) for how in cases}
    await weft.Worker(client=client).run_until_idle()
    for how, expected in cases.items():
        task = await client.get_task(handles[how].id)
        assert (task.state, task.reason, task.failures) == expected
    (attempt,) = (await client.get_task(handles["other"].id)).attempts
    assert attempt.error is not None
    assert (attempt.error["type"], "process_handlers.py" in attempt.error["traceback"]) == ("ValueError", True)


@pytest.mark.parametrize("ending", ["timeout", "cancel", "stop"])
async def test_a_process_is_killed_with_all_it_started(client: weft.Client, tmp_path: Path, ending: str) -> None:
    note = tmp_path / "pids"
    async with weft.Worker(client=client, concurrency=1) as worker:
        # The process is up and has imported everything before the clock of the timeout starts.
        await client.wait((await client.enqueue(process_handlers.pid)).id, timeout=60)
        timeout = 1 if ending == "timeout" else None
        handle = await client.enqueue(process_handlers.hang, {"path": str(note)}, timeout=timeout, max_attempts=1)

        async def noted() -> bool:
            return note.exists()

        await until(noted)
        pids = [int(word) for word in note.read_text(encoding="ascii").split()]
        match ending:
            case "timeout":
                with pytest.raises(weft.TaskFailed, match="timeout"):
                    await client.wait(handle.id, timeout=60)
            case "cancel":
                await client.cancel(handle.id)
                await worker.process.wait_until_idle()
            case "stop":
                await worker.stop(0)

        async def gone() -> bool:
            return all(map(_is_gone, pids))

        await until(gone)
        if ending != "stop":
            assert await client.wait((await client.enqueue(process_handlers.pid)).id, timeout=60) not in pids
    states = {"timeout": "dead", "cancel": "cancelled", "stop": "ready"}
    assert (await client.get_task(handle.id)).state == states[ending]


async def test_a_task_that_kills_its_process_is_dead_at_the_crash_limit_and_others_go_on(
    client: weft.Client, clock: Clock
) -> None:
    hows = {"exit": "exit status 7", "kill": "SIGKILL", "segfault": "SIGSEGV"}
    handles = {
        how: await client.enqueue(
            process_handlers.die, {"how": how}, max_attempts=10, retry=weft.Retry(initial_delay=0)
        )
        for how in hows
    }
    fine = await client.enqueue(process_handlers.pid)
    async with weft.Worker(client=client, concurrency=2):
        for handle in handles.values():
            with pytest.raises(weft.TaskFailed, match="the process of the task ended with"):
                await client.wait(handle.id, timeout=60)
        assert await client.wait(fine.id, timeout=60) > 0
    for how, message in hows.items():
        task = await client.get_task(handles[how].id)
        assert (task.state, task.reason, len(task.attempts)) == ("dead", "crashed", 3)
        assert task.error is not None
        assert message in task.error["message"]


@pytest.mark.parametrize(
    ("ways", "most", "end"),
    [
        ("rrd", 10, ("completed", None, 4, 3, 1)),
        ("rrrrd", 10, ("completed", None, 6, 5, 1)),
        ("drdr", 10, ("completed", None, 5, 4, 2)),
        ("ddr", 3, ("dead", "error", 3, 3, 2)),
        ("rrdrdrd", 10, ("dead", "crashed", 7, 7, 3)),
        ("rd", 2, ("dead", "crashed", 2, 2, 1)),
    ],
)
async def test_only_crashes_count_against_the_crash_limit(
    client: weft.Client,
    conn: asyncpg.Connection[asyncpg.Record],
    ways: str,
    most: int,
    end: tuple[str, str | None, int, int, int],
) -> None:
    handle = await client.enqueue(process_handlers.stumble, {"ways": ways}, max_attempts=most)
    async with weft.Worker(client=client, concurrency=1):
        with contextlib.suppress(weft.TaskFailed):
            await client.wait(handle.id, timeout=60)
    task = await client.get_task(handle.id)
    assert (task.state, task.reason, task.attempt, task.failures, task.crashes) == end
    expected = {"r": ("failed", "error"), "d": ("crashed", "crashed")}
    assert [(a.outcome, a.reason) for a in task.attempts] == [expected[way] for way in ways]


async def test_a_task_that_was_in_a_crash_runs_next_in_a_process_of_its_own(
    client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    handle = await client.enqueue(process_handlers.pid_anywhere)
    ghost, claimed = await claimed_by_a_ghost(conn)
    assert claimed == handle.id
    await conn.execute("update weft.worker set state = 'lost' where id = $1", ghost)
    async with conn.transaction():
        await upkeep.rescue(conn, ghost, 3)
    innocent = await client.enqueue(process_handlers.pid_anywhere)
    await weft.Worker(client=client).run_until_idle()
    assert await client.wait(innocent.id) == os.getpid()
    pid = await client.wait(handle.id)
    assert pid != os.getpid()
    assert _is_gone(pid)
    assert (await client.get_task(handle.id)).crashes == 1


@pytest.mark.parametrize("limit", ["timeout", "heartbeat_timeout"])
async def test_to_wait_for_a_process_is_not_the_attempts_own_time(
    client: weft.Client, conn: asyncpg.Connection[asyncpg.Record], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    limit: str,
) -> None:  # fmt: skip
    """As when all tasks of a lost worker want a process each: one starts for long, the other waits for its turn."""
    (tmp_path / "slow_to_load.py").write_text(
        "import pathlib, time\nwhile not pathlib.Path(__file__).with_name('go').exists():\n    time.sleep(0.02)\n",
        encoding="utf-8",
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    handles = [await client.enqueue(process_handlers.pid, **{limit: 3}, max_attempts=1) for _ in range(2)]
    async with weft.Worker(client=client, app_modules=["slow_to_load"]):
        both = "select count(*) = 2 from weft.task where claimed_at < weft.now() - interval '6 s' and state = 'running'"
        await until(lambda: conn.fetchval(both))
        (tmp_path / "go").touch()
        for handle in handles:
            assert await client.wait(handle.id, timeout=60) > 0


@pytest.mark.parametrize(("crashes", "end"), [(8, ("completed", None, 9)), (9, ("dead", "crashed", 10))])
async def test_a_task_is_not_dead_because_three_workers_died_but_because_ten_did(
    client: weft.Client, conn: asyncpg.Connection[asyncpg.Record], crashes: int, end: tuple[str, str | None, int]
) -> None:
    handle = await client.enqueue(process_handlers.pid_anywhere)
    ghost, _ = await claimed_by_a_ghost(conn)
    await conn.execute("update weft.task set crashes = $1", crashes)
    await conn.execute("update weft.worker set until = weft.now() - interval '1 minute' where id = $1", ghost)
    async with weft.Worker(client=client):
        with contextlib.suppress(weft.TaskFailed):
            await client.wait(handle.id, timeout=60)
    task = await client.get_task(handle.id)
    assert (task.state, task.reason, task.crashes) == end


async def test_a_handlers_timeout_holds_also_when_it_was_enqueued_by_name(
    client: weft.Client, registry: Registry, caplog: pytest.LogCaptureFixture
) -> None:
    @registry.task(name="slow", timeout=0.2)
    async def slow() -> None:
        await asyncio.Event().wait()

    handle = await client.enqueue("slow", max_attempts=1)
    with caplog.at_level(logging.INFO, "weft.worker"):
        await weft.Worker(client=client, registry=registry).run_until_idle()
    task = await client.get_task(handle.id)
    assert (task.state, [a.reason for a in task.attempts]) == ("dead", ["timeout"])
    assert f"task {handle.id} (slow) is dead after attempt 1: TimeoutError: ran longer" in caplog.text


async def test_a_handler_that_blocks_the_loop_past_its_timeout_has_not_completed(
    client: weft.Client, registry: Registry
) -> None:
    @registry.task(name="spin", timeout=0.2)
    async def spin() -> str:
        time.sleep(0.5)
        return "too late"

    handle = await client.enqueue("spin", max_attempts=1)
    await weft.Worker(client=client, registry=registry).run_until_idle()
    task = await client.get_task(handle.id)
    assert (task.state, task.output, [a.reason for a in task.attempts]) == ("dead", None, ["timeout"])


async def test_the_worker_tells_of_attempts_that_fail(
    client: weft.Client, registry: Registry, caplog: pytest.LogCaptureFixture
) -> None:
    @registry.task(name="flaky")
    async def flaky() -> None:
        raise ValueError("not today")

    handle = await client.enqueue("flaky", retry=weft.Retry(2, initial_delay=0))
    with caplog.at_level(logging.INFO, "weft.worker"):
        async with weft.Worker(client=client, registry=registry):
            with pytest.raises(weft.TaskFailed):
                await client.wait(handle.id, timeout=60)
    assert [record.getMessage() for record in caplog.records if str(handle.id) in record.getMessage()] == [
        f"task {handle.id} (flaky) failed, 1 of 2, again in 0.0 s: ValueError: not today",
        f"task {handle.id} (flaky) is dead after attempt 2: ValueError: not today",
    ]


@pytest.mark.parametrize("dies", [True, False])
async def test_what_a_process_leaves_behind_with_its_pipes_holds_up_nobody(client: weft.Client, dies: bool) -> None:
    handle = await client.enqueue(process_handlers.leave_a_session, {"dies": dies}, max_attempts=1)
    async with asyncio.timeout(60), weft.Worker(client=client):
        if dies:
            with pytest.raises(weft.TaskFailed, match="exit status 3"):
                await client.wait(handle.id)
        else:
            assert await client.wait(handle.id) == "done"


class Unprintable(Exception):
    """An error that ends whoever asks what it says."""

    def __str__(self) -> str:
        raise SystemExit(3)


class Undescribed(weft.Snooze):
    """A signal whose author has forgotten what it is made of."""

    def __init__(self) -> None:
        pass


@pytest.mark.parametrize(
    "problem",
    [Unprintable(), SyntaxError("x", ("f", 3, 1, b"bytes")), Undescribed()],
    ids=lambda problem: type(problem).__name__,
)
async def test_an_error_that_cannot_be_described_ends_its_attempt(
    client: weft.Client, registry: Registry, problem: BaseException
) -> None:
    @registry.task(name="odd")
    async def odd() -> None:
        raise problem

    handle = await client.enqueue("odd", max_attempts=1)
    async with asyncio.timeout(60):
        await weft.Worker(client=client, registry=registry).run_until_idle()
    assert (await client.get_task(handle.id)).state == "dead"


async def test_threads_that_handlers_have_filled_do_not_keep_a_worker_from_leaving(
    client: weft.Client, registry: Registry
) -> None:
    go, begun = threading.Event(), asyncio.Semaphore(0)

    @registry.task(name="wait")
    async def wait() -> None:
        begun.release()
        await asyncio.to_thread(go.wait)

    ids = [(await client.enqueue("wait")).id for _ in range(40)]
    worker = await weft.Worker(client=client, registry=registry, concurrency=40).start()
    for _ in ids:
        await begun.acquire()
    try:
        async with asyncio.timeout(60):
            await worker.stop(grace=0)
    finally:
        go.set()
    assert {(await client.get_task(id)).state for id in ids} == {"ready"}


# --- heartbeats of tasks ---


@with_and_without_a_database
async def test_an_attempt_that_misses_its_heartbeats_fails_and_one_that_beats_goes_on(
    make_client: MakeClient, clock: Clock, registry: Registry, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    # The worker's own lease outlasts what the clock is moved by.
    client = await make_client(worker_timeout=86400)
    contexts: dict[str, weft.Context] = {}
    told, go = asyncio.Event(), asyncio.Event()

    @registry.task(name="beat", heartbeat_timeout=60)
    async def beat(name: str, ctx: weft.Context) -> str:
        contexts[name] = ctx
        try:
            await go.wait()
        except asyncio.CancelledError:
            told.set()
            raise
        return name

    alive = await client.enqueue(beat, {"name": "alive"})
    silent = await client.enqueue(beat, {"name": "silent"}, retry=weft.Retry(2, initial_delay=3600))

    async def left() -> timedelta:
        return await conn.fetchval("select expires_at - weft.now() from weft.task where id = $1", alive.id)

    async with weft.Worker(client=client, registry=registry):
        await until(lambda: client.list_tasks(state="running"), lambda page: len(page.tasks) == 2)
        await until(lambda: asyncio.sleep(0, len(contexts)), lambda count: count == 2)
        await clock.advance(seconds=50)
        contexts["alive"].heartbeat()
        await until(left, lambda span: span > timedelta(seconds=50))
        await clock.advance(seconds=20)
        await asyncio.wait_for(told.wait(), 60)
        task = await until(lambda: client.get_task(silent.id), lambda task: task.state != "running")
        assert (task.state, task.reason, task.failures) == ("scheduled", "heartbeat_timeout", 1)
        go.set()
        assert await client.wait(alive.id, timeout=60) == "alive"
    assert contexts["silent"].is_cancelled


async def test_a_task_without_a_heartbeat_timeout_need_not_beat(client: weft.Client, registry: Registry) -> None:
    @registry.task(name="calm")
    async def calm(ctx: weft.Context) -> None:
        ctx.heartbeat()

    handle = await client.enqueue("calm")
    await weft.Worker(client=client, registry=registry).run_until_idle()
    assert (await client.get_task(handle.id)).state == "completed"


async def test_heartbeats_that_follow_quickly_are_not_all_sent(registry: Registry) -> None:
    sent: list[None] = []
    context = weft.Context(
        task_id=1, attempt=1, handler="h", worker_id=1, beat=lambda: sent.append(None), beat_interval=3600
    )
    for _ in range(1000):
        context.heartbeat()
    assert len(sent) == 1


async def _refuse(verb: str, arguments: dict[str, Any]) -> None:
    raise AssertionError(verb)


async def test_an_answer_of_a_process_is_whole_and_only_its_own_beats_count(tmp_path: Path) -> None:
    """Threads that the first task leaves behind beat on, while it answers and while the next one runs."""
    processes = Processes(["process_handlers"], None)
    timeout = timedelta(milliseconds=1)

    async def run(id: int, handler: str, params: str) -> tuple[int, dict[str, str]]:
        beats: list[None] = []
        claim = Claim(id, 1, 1, 0, id, handler, params, 3, 0, 0, None, timeout, None, None)
        log = TaskLog(tmp_path, id, 1000, attempt=1)
        answer = await processes.run(
            claim, params, 1, log, lambda: beats.append(None), answer=_refuse, on_start=lambda: None,
            settings=Settings(), has_database=True, alone=False,
        )  # fmt: skip
        return len(beats), answer

    try:
        for id in range(1, 6):
            _, answer = await run(id, "process:beat", '{"size": 1000000}')
            assert (answer["outcome"], len(answer["output"])) == ("completed", 1_000_002)
            beats, answer = await run(id + 100, "process:rest", "{}")
            assert (beats, answer["outcome"]) == (0, "completed")
    finally:
        await processes.close()


MEDDLING = {
    "fork and return twice": "parent", "fork by multiprocessing": "parent", "read the standard input": "",
    "close the descriptors": "parent", "send the output elsewhere": "parent", "close the streams": "parent",
    "forget the streams": "parent", "set an alarm": "parent", "set a timer with a handler": "parent",
    "leave no descriptors": "parent", "go elsewhere": "parent", "put a stream that leaves": "parent",
}  # fmt: skip


@pytest.mark.parametrize("how", daily(MEDDLING, 3))
async def test_what_a_task_does_to_its_process_concerns_no_other_task(
    client: weft.Client, how: str, home: Path
) -> None:
    """Each answer belongs to its own task, and what is printed afterwards to the log of the next."""
    async with weft.Worker(client=client, concurrency=1):
        task = await client.enqueue(process_handlers.meddle, {"how": how})
        assert await client.wait(task.id, timeout=60) == MEDDLING[how]
        for text in ("one", "two"):
            said = await client.enqueue(process_handlers.say, {"words": [text]})
            await client.wait(said.id, timeout=60)
            assert (home / "logs" / f"{said.id}.log").read_text(encoding="utf-8").startswith(f"{text}\n")
            echo = await client.enqueue(process_handlers.echo, {"text": text})
            assert await client.wait(echo.id, timeout=60) == text
            assert [(await client.get_task(task.id)).attempt for task in (said, echo)] == [1, 1]


async def test_a_task_finds_the_surroundings_of_its_process_as_the_first_did(client: weft.Client) -> None:
    async with weft.Worker(client=client, concurrency=1):
        first = await client.wait((await client.enqueue(process_handlers.surroundings)).id, timeout=60)
        for how in ("go elsewhere", "leave no descriptors", "set a timer with a handler"):
            await client.wait((await client.enqueue(process_handlers.meddle, {"how": how})).id, timeout=60)
            found = await client.wait((await client.enqueue(process_handlers.surroundings)).id, timeout=60)
            assert found == first, how
