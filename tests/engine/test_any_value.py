"""Any text and any number: it comes back as it went, through every step, or is refused by name and leaves nothing."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest
from engine_scene import MakeClient
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import weft
from weft.core.errors import InvalidInput
from weft.worker.registry import Registry

# All of Unicode: NUL, surrogates that stand alone, marks that turn the direction, four bytes, what composes.
TEXT = st.text(st.characters(exclude_categories=())) | st.text(
    st.sampled_from("\0\ud800\udfff\u202e\u2066\u200b\ufeff\U0001f600\U0010ffffe\u0301\u00e9\\\"'\n\x1b\x7f${}%s"),
    max_size=8,
)
NUMBERS = (
    st.floats()
    | st.sampled_from([math.nan, math.inf, -math.inf, -0.0, 5e-324, 1.7976931348623157e308, 1e22, 2.0**53, 1e400])
    | st.integers()
    | st.sampled_from([2**53 + 1, 2**63 - 1, -(2**63), 2**63, 2**64 - 1, 2**64, -(2**63) - 1])
    # Python itself writes no integer of more than 4,300 digits.
    | st.sampled_from([20, 400, 4999, 5000]).map(lambda digits: 10**digits)
)
VALUES = st.recursive(
    NUMBERS | TEXT | st.none() | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)
TRIED = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
ROWS = """select (select count(*) from weft.task) + (select count(*) from weft.task_done)
  + (select count(*) from weft.task_params) + (select count(*) from weft.idempotency_key)
  + (select count(*) from weft.key_slot) + (select count(*) from weft.outbox)"""


class Echo:
    """A worker whose one handler notes what it was given, and returns what it was told to."""

    def __init__(self, client: weft.Client, registry: Registry, conn: asyncpg.Connection[asyncpg.Record]) -> None:
        self.client = client
        self.conn = conn
        self.given: list[Any] = []
        self.returned: list[Any] = []

        @registry.task(name="echo")
        async def echo(value: Any, back: bool = False) -> Any:
            self.given.append(value)
            return self.returned.pop() if back else value


@pytest.fixture
async def echo(
    make_client: MakeClient, registry: Registry, conn: asyncpg.Connection[asyncpg.Record]
) -> AsyncIterator[Echo]:
    client = await make_client()
    made = Echo(client, registry, conn)
    async with weft.Worker(client=client, registry=registry):
        yield made


def same(one: Any, other: Any) -> bool:
    """Whether two values are alike to the bit: not 1 for 1.0, and not 0.0 for -0.0."""
    return repr(one) == repr(other)


def can_be_kept(value: Any) -> bool:
    """Whether JSON in PostgreSQL holds a value without changing it: the rule of the documentation, said once more."""
    if isinstance(value, str):
        return "\0" not in value and not any("\ud800" <= sign <= "\udfff" for sign in value)
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, int):
        return -(2**63) <= value < 2**64
    if isinstance(value, list):
        return all(map(can_be_kept, value))
    return value is None or all(can_be_kept(key) and can_be_kept(entry) for key, entry in value.items())


@TRIED
@given(value=VALUES)
@example(value=math.nan)
@example(value=1e400)
@example(value=-0.0)
@example(value=[2**53 + 1, 2**63, 2**64 - 1])
@example(value="\0")
@example(value="\ud83d")
@example(value={"\udc00": 1})
@example(value="a\u202eb\u2066\U0001f600\u200d\u0301")
async def test_a_value_comes_back_as_it_went_or_is_refused_and_leaves_nothing(echo: Echo, value: Any) -> None:
    before = await echo.conn.fetchval(ROWS)
    if not can_be_kept(value):
        with pytest.raises(InvalidInput, match=r"params\.value") as caught:
            await echo.client.enqueue("echo", {"value": value}, idempotency_key="refused")
        assert caught.value.field.startswith("params.value")
        with pytest.raises(InvalidInput, match=r"^tasks\[0\]\.params\.value"):
            await echo.client.enqueue_many([weft.NewTask("echo", {"value": value})])
        with pytest.raises(InvalidInput, match=r"^payload\.params\.value"):
            async with echo.conn.transaction():
                await echo.client.add_effect(
                    "enqueue_task", {"handler": "echo", "params": {"value": value}}, connection=echo.conn
                )
        assert await echo.conn.fetchval(ROWS) == before
        return
    one = await echo.client.enqueue("echo", {"value": value})
    (many,) = await echo.client.enqueue_many([weft.NewTask("echo", {"value": value})])
    async with echo.conn.transaction():
        joined = await echo.client.enqueue("echo", {"value": value}, connection=echo.conn)
    for handle in (one, many, joined):
        output = await echo.client.wait(handle.id, timeout=30)
        assert same(output, value)
        assert same(echo.given[-1], value)
        task = await echo.client.get_task(handle.id)
        assert same(task.output, value)
        assert same(task.params, {"value": value})
        row = await echo.conn.fetchrow("select params, output from weft.tasks where id = $1", handle.id)
        assert row is not None
        assert same(json.loads(row["output"]), value)
        assert same(json.loads(row["params"]), {"value": value})


@TRIED
@given(value=VALUES.filter(lambda value: not can_be_kept(value)))
async def test_an_output_that_cannot_be_kept_fails_the_task_and_is_named(echo: Echo, value: Any) -> None:
    echo.returned.append(value)
    handle = await echo.client.enqueue("echo", {"value": None, "back": True})
    with pytest.raises(weft.TaskFailed):
        await echo.client.wait(handle.id, timeout=30)
    task = await echo.client.get_task(handle.id)
    assert (task.state, task.reason, task.output) == ("failed", "non_retryable", None)
    assert task.error is not None
    assert (task.error["type"], task.error["message"].startswith("output")) == ("InvalidInput", True)


async def enqueued(client: weft.Client, said: dict[str, Any]) -> weft.TaskHandle | weft.WeftError:
    """Enqueue what is due in an hour; return why not, when it is refused."""
    try:
        return await client.enqueue(params={"value": 1}, delay=3600, **said)
    except (InvalidInput, weft.UnknownQueue) as problem:
        return problem


@TRIED
@given(text=TEXT, place=st.sampled_from(["handler", "queue", "idempotency_key", "concurrency_key"]))
@example(text="\0", place="queue")
@example(text="\n", place="queue")
@example(text="\ud800", place="queue")
@example(text="\0", place="handler")
@example(text="\ud800", place="idempotency_key")
@example(text="a\u202e\U0001f600", place="concurrency_key")
@example(text="e\u0301", place="idempotency_key")
async def test_a_name_comes_back_as_it_went_or_is_refused_and_leaves_nothing(echo: Echo, text: str, place: str) -> None:
    before = await echo.conn.fetchval(ROWS)
    said = {"handler": "echo", place: text}
    handle = await enqueued(echo.client, said)
    if not isinstance(handle, weft.TaskHandle):
        assert str(handle).startswith(f"{place}: ")
        assert "\n" not in str(handle)
        assert str(handle).encode(), "it can be printed"
        assert await echo.conn.fetchval(ROWS) == before
        assert place == "queue" or not (can_be_kept(text) and 0 < len(text) <= 200 and text.isprintable()), "why?"
        return
    assert can_be_kept(text)
    task = await echo.client.get_task(handle.id)
    kept = {"handler": task.handler, "queue": task.queue, "concurrency_key": task.concurrency_key}
    if place in kept:
        assert kept[place] == text
        assert await echo.conn.fetchval(f"select {place} from weft.tasks where id = $1", handle.id) == text
    else:
        assert await enqueued(echo.client, said) == weft.TaskHandle(handle.id, False)
        assert await echo.conn.fetchval("select key from weft.idempotency_key where task_id = $1", handle.id) == text
