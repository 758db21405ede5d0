"""Whatever is wrong with a call is refused with the name of the field, and nothing is written."""

from __future__ import annotations

import functools
import math
import reprlib
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg
import pytest

import weft
from weft.worker.registry import Registry

WRITTEN = """
  select (select count(*) from weft.task) + (select count(*) from weft.task_done)
    + (select count(*) from weft.task_params) + (select count(*) from weft.idempotency_key)
    + (select count(*) from weft.key_slot) + (select count(*) from weft.queue) - 2
"""


def _nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


FIELDS: list[tuple[str, dict[str, Any]]] = [
    ("handler", {"handler": ""}),
    ("handler", {"handler": "x" * 201}),
    ("handler", {"handler": None}),
    ("handler", {"handler": 5}),
    ("handler", {"handler": "a\x00b"}),
    ("handler", {"handler": "\ud800"}),
    ("params", {"params": [1]}),
    ("params", {"params": "text"}),
    ("params", {"params": 0}),
    ("params.a", {"params": {"a": math.nan}}),
    ("params.a[1]", {"params": {"a": [1, math.inf]}}),
    ("params.a.b", {"params": {"a": {"b": -math.inf}}}),
    ("params.a", {"params": {"a": "nul \x00"}}),
    ("params", {"params": {"nul \x00": 1}}),
    ("params.a", {"params": {"a": "\udfff"}}),
    ("params", {"params": {"\udfff": 1}}),
    ("params.a", {"params": {"a": 2**64}}),
    ("params.a", {"params": {"a": -(2**63) - 1}}),
    ("params", {"params": {1: "a"}}),
    ("params.a", {"params": {"a": {2: 3}}}),
    ("params.a", {"params": {"a": {1, 2}}}),
    ("params.a", {"params": {"a": b"bytes"}}),
    ("params.a", {"params": {"a": 1j}}),
    ("params.a", {"params": {"a": object()}}),
    ("params", {"params": {"a": _nested(250)}}),
    ("params", {"params": {"a": _nested(100_000)}}),
    ("params", {"params": {"$blob": "x"}}),
    ("queue", {"queue": "nowhere"}),
    ("queue", {"queue": ""}),
    ("queue", {"queue": "q" * 201}),
    ("queue", {"queue": 5}),
    ("queue", {"queue": "\x00"}),
    ("queue", {"queue": "@control"}),
    ("priority", {"priority": 32768}),
    ("priority", {"priority": -32768}),
    ("priority", {"priority": 10**30}),
    ("priority", {"priority": 1.5}),
    ("priority", {"priority": 0.0}),
    ("priority", {"priority": "high"}),
    ("priority", {"priority": True}),
    ("priority", {"priority": False}),
    ("priority", {"priority": None}),
    ("delay", {"delay": -1}),
    ("delay", {"delay": timedelta(microseconds=-1)}),
    ("delay", {"delay": math.nan}),
    ("delay", {"delay": math.inf}),
    ("delay", {"delay": 1e300}),
    ("delay", {"delay": "soon"}),
    ("delay", {"delay": True}),
    ("delay", {"delay": 10**10}),
    ("delay", {"delay": 5, "run_at": datetime(2030, 1, 1, tzinfo=UTC)}),
    ("run_at", {"run_at": datetime(2030, 1, 1)}),
    ("run_at", {"run_at": "2030-01-01"}),
    ("run_at", {"run_at": 1893456000}),
    ("run_at", {"run_at": datetime.max.replace(tzinfo=UTC)}),
    ("run_at", {"run_at": datetime(2090, 1, 1, 0, 0, 1, tzinfo=UTC)}),
    ("run_at", {"run_at": datetime(1999, 12, 31, 23, 59, 59, tzinfo=UTC)}),
    ("run_at", {"run_at": datetime(1900, 1, 1, tzinfo=UTC)}),
    ("run_at", {"run_at": datetime.min.replace(tzinfo=UTC)}),
    ("max_attempts", {"max_attempts": 0}),
    ("max_attempts", {"max_attempts": -1}),
    ("max_attempts", {"max_attempts": 32768}),
    ("max_attempts", {"max_attempts": 2.0}),
    ("max_attempts", {"max_attempts": "3"}),
    ("max_attempts", {"max_attempts": True}),
    ("retry", {"retry": -1}),
    ("retry", {"retry": 32767}),
    ("retry", {"retry": True}),
    ("retry", {"retry": "exponential"}),
    ("retry", {"retry": {"max_attempts": 3}}),
    ("timeout", {"timeout": 0}),
    ("timeout", {"timeout": -5}),
    ("timeout", {"timeout": math.nan}),
    ("timeout", {"timeout": "1h"}),
    ("timeout", {"timeout": timedelta(days=30_000)}),
    ("heartbeat_timeout", {"heartbeat_timeout": 0}),
    ("heartbeat_timeout", {"heartbeat_timeout": "x"}),
    ("idempotency_key", {"idempotency_key": ""}),
    ("idempotency_key", {"idempotency_key": "k" * 501}),
    ("idempotency_key", {"idempotency_key": 7}),
    ("idempotency_key", {"idempotency_key": "\x00"}),
    ("concurrency_key", {"concurrency_key": ""}),
    ("concurrency_key", {"concurrency_key": "k" * 501}),
    ("concurrency_key", {"concurrency_key": 7}),
    ("concurrency_key", {"concurrency_key": "\ud800"}),
]


Verb = Callable[..., Awaitable[Any]]


async def _not_refused(cases: Iterable[tuple[str, Verb, tuple[Any, ...], dict[str, Any]]]) -> list[str]:
    """Call all and return what was not refused as it should be."""
    wrong = []
    for field, verb, arguments, options in cases:
        problem: BaseException | None = None
        try:
            await verb(*arguments, **options)
        except BaseException as raised:
            problem = raised
        is_refusal = isinstance(problem, (weft.InvalidInput, weft.UnknownQueue))
        fits = is_refusal and str(problem).startswith((f"{field}: ", f"{field}."))
        if not fits:
            call = f"{verb.__name__}{reprlib.repr(arguments)} {reprlib.repr(options)}"
            wrong.append(f"{call} → {type(problem).__name__}: {str(problem)[:120]}")
    return wrong


@pytest.mark.parametrize("way", ["enqueue", "enqueue_many", "connection"])
async def test_each_wrong_field_is_refused_by_name_and_nothing_is_written(
    client: weft.Client, conn: asyncpg.Connection[asyncpg.Record], way: str
) -> None:
    async def call(**fields: Any) -> None:
        chosen = {"handler": "h", "params": {"fine": 1}, **fields}
        if way == "enqueue_many":
            await client.enqueue_many([weft.NewTask("h", {"fine": 1}, idempotency_key="k"), weft.NewTask(**chosen)])
        else:
            await client.enqueue(**chosen, **({"connection": conn} if way == "connection" else {}))

    # Of many, the error says which one.
    place = "tasks[1]." if way == "enqueue_many" else ""
    wrong = await _not_refused((f"{place}{field}", call, (), fields) for field, fields in FIELDS)
    assert not wrong, "\n".join(wrong)
    assert await conn.fetchval(WRITTEN) == 0


async def test_a_bad_one_behind_thousands_of_good_ones_leaves_nothing_behind(
    client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    """PostgreSQL has the first rows when the bad one is met."""
    tasks = [weft.NewTask("h", {"n": f"{n:050}"}) for n in range(20_000)]
    for bad, field in (
        (weft.NewTask("h", {"n": math.nan}), "tasks[19999].params.n"),
        (weft.NewTask("h", priority=True), "tasks[19999].priority"),
        (weft.NewTask("h", queue=""), "tasks[19999].queue"),
        (weft.NewTask("h", {"n": math.nan}, idempotency_key="k"), "tasks[19999].params.n"),
    ):
        tasks[-1] = bad
        with pytest.raises(weft.InvalidInput) as caught:
            await client.enqueue_many(tasks)
        assert caught.value.field == field
        tables = ("task", "task_params", "idempotency_key")
        assert [await conn.fetchval(f"select count(*) from weft.{table}") for table in tables] == [0, 0, 0]
    tasks[-1] = weft.NewTask("h")
    assert len(await client.enqueue_many(tasks)) == 20_000


async def test_a_misspelt_queue_is_told_with_the_nearest_one(client: weft.Client) -> None:
    await client.create_queue("emails")
    for call in (client.enqueue("h", queue="email"), client.enqueue_many([weft.NewTask("h", queue="email")])):
        with pytest.raises(weft.UnknownQueue, match=r"Did you mean 'emails'\? Make it with `weft queues create email`"):
            await call


async def test_other_verbs_refuse_by_name_too(client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]) -> None:
    cases: list[tuple[str, Verb, tuple[Any, ...], dict[str, Any]]] = [
        *(("id", verb, (id,), {}) for verb in (client.get_task, client.cancel, client.replay, client.wait)
          for id in (0, -1, 2**63, "x", None, 1.5, True, "")),
        ("reason", client.cancel, (1,), {"reason": ""}),
        ("reason", client.cancel, (1,), {"reason": "x" * 501}),
        ("reason", client.cancel, (1,), {"reason": "\x00"}),
        *(("limit", client.list_tasks, (), {"limit": limit}) for limit in (0, -1, 1001, "5", None, 2.5, True)),
        *(("before", client.list_tasks, (), {"before": before}) for before in ("x", 2**63, -1, 1.5)),
        *(("state", client.list_tasks, (), {"state": state}) for state in ("done", "", ["ready", "nope"], 5, [None])),
        *(("handler", client.list_tasks, (), {"handler": handler}) for handler in (5, "\x00")),
        *(("queue", client.list_tasks, (), {"queue": queue}) for queue in ("nowhere", 5, "\x00", "")),
        *(("queue", client.dead_letters, (), {"queue": queue}) for queue in ("nowhere", 5)),
        *(("queue", verb, (queue,), {}) for verb in (client.pause_queue, client.resume_queue)
          for queue in ("nowhere", "", 5, None, "\x00")),
        *(("queue", client.create_queue, (queue,), {}) for queue in ("", "q" * 201, 5, None, "\x00", "@mine")),
        *(("queue", client.limit_queue, (queue, 5), {}) for queue in ("nowhere", "", 5, None)),
        *(("max_running", client.limit_queue, ("default", most), {}) for most in (0, -1, 2**31, "5", 1.5, True)),
        *(("key", client.limit_queue, ("default", 5), {"key": key}) for key in ("", "k" * 501, 5, "\x00")),
        ("key", client.limit_queue, ("default", 5), {"key": "k", "per_key": True}),
        *(("tasks", client.enqueue_many, (tasks,), {}) for tasks in (None, 5, weft.NewTask("h"))),
        *(("tasks[0]", client.enqueue_many, (tasks,), {}) for tasks in ("h", ["h"], [None], [[weft.NewTask("h")]])),
        *(("older_than", client.purge, (), {"older_than": age}) for age in (-1, "x", math.nan)),
        ("queue", client.purge, (), {"queue": "nowhere"}),
        *(("ids", client.purge, (), {"ids": ids}) for ids in ([2**63], ["x"], "12", 5)),
        *(("timeout", client.wait, (1,), {"timeout": timeout}) for timeout in (-1, "x", math.nan, True)),
        *(("id", client.read_log, (id,), {}) for id in ("x", 0)),
        *(("offset", client.read_log, (1, offset), {}) for offset in (-1, "x", 1.5)),
        *(("state", client.workers, (), {"state": state}) for state in ("busy", 5)),
        *(("state", client.outbox, (), {"state": state}) for state in ("busy", 5)),
        *(("kind", client.outbox, (), {"kind": kind}) for kind in ("bogus", 5, "")),
        *(("limit", client.outbox, (), {"limit": limit}) for limit in (0, "x", 10**6)),
    ]  # fmt: skip
    wrong = await _not_refused(cases)
    assert not wrong, "\n".join(wrong)
    assert await conn.fetchval(WRITTEN) == 0


async def test_a_worker_is_made_of_sound_values_or_not_at_all(
    client: weft.Client, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    async def make(**options: Any) -> None:
        weft.Worker(client=client, **options)

    cases: list[tuple[str, dict[str, Any]]] = [
        *(("queues", {"queues": queues}) for queues in ("ab", "", b"ab", [], (), 5)),
        *(("queues[1]", {"queues": ["a", name]}) for name in ("", "q" * 201, 5, None, "\x00", "@x")),
        *(("concurrency", {"concurrency": most}) for most in (0, -1, 1.5, "x", "5", 10**12, 2**31, True, False)),
        *(("app_modules", {"app_modules": modules}) for modules in ("shop", None, 5)),
    ]
    wrong = await _not_refused((field, make, (), options) for field, options in cases)
    assert not wrong, "\n".join(wrong)
    assert await conn.fetchval(WRITTEN) == 0
    assert await client.workers() == []


def test_a_handler_is_registered_with_sound_values_or_not_at_all(registry: Registry) -> None:
    async def fine() -> None: ...
    def sync() -> None: ...

    cases: list[tuple[str, dict[str, Any]]] = [
        ("name", {"name": "n" * 201}),
        ("name", {"name": "\x00"}),
        ("name", {"name": 5}),
        ("queue", {"queue": ""}),
        ("queue", {"queue": 5}),
        ("queue", {"queue": "@x"}),
        ("retry", {"retry": -1}),
        ("retry", {"retry": "x"}),
        ("retry", {"retry": True}),
        ("timeout", {"timeout": 0}),
        ("timeout", {"timeout": "x"}),
        ("heartbeat_timeout", {"heartbeat_timeout": -1}),
        ("executor", {"executor": "gpu"}),
        ("executor", {"executor": "thread"}),
    ]
    wrong = []
    for field, options in cases:
        try:
            registry.task(**options)(fine)
        except weft.InvalidInput as problem:
            if not str(problem).startswith(field):
                wrong.append(f"{options} → {problem}")
        except Exception as problem:
            wrong.append(f"{options} → {problem!r}")
        else:
            wrong.append(f"{options} → accepted")
    assert not wrong, "\n".join(wrong)
    with pytest.raises(weft.InvalidInput, match=r"executor: .*sync is not async"):
        registry.task(executor="async")(sync)
    assert registry.names() == []


def test_a_second_handler_of_one_name_is_refused(registry: Registry) -> None:
    @registry.task(name="same")
    async def one() -> None: ...

    with pytest.raises(weft.InvalidInput, match="name: there is a handler 'same' already"):

        @registry.task(name="same")
        async def other() -> None: ...


@pytest.mark.parametrize("more", [{"url": "postgresql://elsewhere/app"}, {"inline_limit": 1000}])
def test_settings_are_given_whole_or_one_by_one(client: weft.Client, more: dict[str, Any]) -> None:
    with pytest.raises(weft.InvalidInput, match="settings: says everything"):
        weft.Client(settings=client.settings, **more)


def test_the_address_of_a_database_is_given_in_one_place_whichever() -> None:
    assert weft.Client(database_url="postgresql://here/app").settings.database_url == "postgresql://here/app"
    with pytest.raises(weft.InvalidInput, match="database_url: the url says it already"):
        weft.Client("postgresql://here/app", database_url="postgresql://there/app")


async def test_a_grace_is_a_span_of_time(client: weft.Client, registry: Registry) -> None:
    async with weft.Worker(client=client, registry=registry) as worker:
        for grace in ("x", -1, math.nan):
            with pytest.raises(weft.InvalidInput, match="grace: "):
                await worker.stop(grace=grace)  # type: ignore[arg-type]
        assert not worker.process.has_stopped


async def test_a_client_that_is_not_open_says_so(url: str, home: Path) -> None:
    client = weft.Client(settings=weft.Settings.load(environ={}, database_url=url, home=home))
    calls: list[Callable[[], Awaitable[Any]]] = [
        lambda: client.enqueue("h"), lambda: client.wait(5), lambda: client.enqueue_many([weft.NewTask("h")]),
    ]  # fmt: skip
    for _ in range(2):
        for call in calls:
            with pytest.raises(weft.InvalidInput, match="client: is not open: use `async with"):
                await call()
        async with client:
            assert (await client.enqueue("h")).created


def test_what_is_no_function_is_no_handler(registry: Registry) -> None:
    with pytest.raises(weft.InvalidInput, match=r"function: must be a function, not str; write @weft.task\(name='a'\)"):
        registry.task("a")  # type: ignore[call-overload]
    with pytest.raises(weft.InvalidInput, match="function: must be a function, not partial"):
        registry.task(functools.partial(print, 1))


async def test_a_function_that_was_not_decorated_is_not_enqueued(client: weft.Client) -> None:
    def send() -> None: ...

    with pytest.raises(weft.InvalidInput, match=r"handler: .*send is no handler: decorate it with @weft.task"):
        await client.enqueue(send)  # type: ignore[arg-type]


async def test_an_actor_has_a_bounded_name(conn: asyncpg.Connection[asyncpg.Record]) -> None:
    with pytest.raises(asyncpg.PostgresError, match="actor: must have at most 200 characters"):
        await conn.execute("select weft.enqueue('h', actor => repeat('x', 201))")
    with pytest.raises(asyncpg.PostgresError, match="actor: must have at most 200 characters"):
        await conn.execute("""select weft.add_effect('enqueue_task', '{"handler": "h"}', actor => repeat('x', 201))""")
