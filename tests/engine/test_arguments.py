"""Params become arguments and results become outputs, by the handler's annotations."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal
from uuid import UUID

import asyncpg
import orjson
import process_handlers  # noqa: F401  its handlers run here
import pydantic
import pytest
from engine_scene import until

import weft
from weft.worker.registry import Registry


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Item(pydantic.BaseModel):
    name: str
    price: Decimal
    tags: list[str] = []


class Order(pydantic.BaseModel):
    id: UUID
    made_on: date
    items: list[Item]


@dataclass
class Point:
    x: int
    y: int


class Pair(pydantic.BaseModel):
    x: int
    y: int


async def _outcome(client: weft.Client, registry: Registry, params: dict[str, Any] | None) -> weft.Task:
    (handler,) = registry.names()
    handle = await client.enqueue(handler, params, retry=weft.Retry(3, initial_delay=3600))
    await weft.Worker(client=client, registry=registry).run_until_idle()
    return await client.get_task(handle.id)


async def test_models_dates_and_other_types_come_back_as_they_went(client: weft.Client, registry: Registry) -> None:
    seen: list[Any] = []

    @registry.task(name="typed")
    async def typed(
        order: Order, when: datetime, span: timedelta, colour: Colour, point: Point, kind: Literal["a", "b"],
        many: dict[str, tuple[int, float]], some: int | None = None, fine: Annotated[int, pydantic.Field(ge=1)] = 5,
    ) -> Order:  # fmt: skip
        seen.extend([order, when, span, colour, point, kind, many, some, fine])
        return order

    order = Order(id=UUID(int=7), made_on=date(2026, 2, 28), items=[Item(name="ä", price=Decimal("1.10"))])
    when = datetime(2026, 1, 1, 12, tzinfo=UTC)
    params = {
        "order": order, "when": when, "span": timedelta(hours=1), "colour": Colour.RED,
        "point": Point(1, 2), "kind": "b", "many": {"k": [1, 2.5]},
    }  # fmt: skip
    task = await _outcome(client, registry, params)
    assert task.state == "completed", task.error
    assert seen == [order, when, timedelta(hours=1), Colour.RED, Point(1, 2), "b", {"k": (1, 2.5)}, None, 5]
    assert task.output == {
        "id": "00000000-0000-0000-0000-000000000007",
        "made_on": "2026-02-28",
        "items": [{"name": "ä", "price": "1.10", "tags": []}],
    }


async def test_params_that_do_not_fit_fail_the_task_at_once_and_name_the_field(
    client: weft.Client, registry: Registry
) -> None:
    @registry.task(name="typed")
    async def typed(n: int, item: Item | None = None) -> None:
        raise AssertionError("must not be called")

    @registry.task(name="plain")
    async def plain(a, b=2):  # type: ignore[no-untyped-def]
        raise AssertionError("must not be called")

    cases: list[tuple[str, dict[str, Any], str]] = [
        ("typed", {}, "params.n"),
        ("typed", {"n": "many"}, "params.n"),
        ("typed", {"n": None}, "params.n"),
        ("typed", {"n": 1.5}, "params.n"),
        ("typed", {"n": 1, "other": 2}, "params.other"),
        ("typed", {"n": 1, "item": {"name": "x"}}, "params.item.price"),
        ("typed", {"n": 1, "item": {"name": "x", "price": "a lot"}}, "params.item.price"),
        ("plain", {}, "params.a"),
        ("plain", {"a": 1, "c": 2}, "params.c"),
    ]
    handles = [await client.enqueue(handler, params) for handler, params, _ in cases]
    await weft.Worker(client=client, registry=registry).run_until_idle()
    for handle, (_, _, field) in zip(handles, cases, strict=True):
        task = await client.get_task(handle.id)
        assert (task.state, task.reason, len(task.attempts)) == ("failed", "non_retryable", 1), field
        assert task.error is not None
        assert task.error["message"].startswith(f"{field}: ")


async def test_a_handler_without_annotations_gets_what_was_sent(client: weft.Client, registry: Registry) -> None:
    @registry.task(name="plain")
    async def plain(a, b=2):  # type: ignore[no-untyped-def]
        return [a, b]

    assert (await _outcome(client, registry, {"a": [1]})).output == [[1], 2]


async def test_a_handler_may_take_whatever_comes(client: weft.Client, registry: Registry) -> None:
    @registry.task(name="open")
    async def open_ended(n: int, *, flag: bool = False, **rest: Any) -> dict[str, Any]:
        return {"n": n, "flag": flag, **rest}

    task = await _outcome(client, registry, {"n": 1, "more": [None], "again": "x"})
    assert task.output == {"n": 1, "flag": False, "more": [None], "again": "x"}


async def test_the_names_of_arguments_are_the_authors_own(client: weft.Client, registry: Registry) -> None:
    """Names that mean something to the library which validates them, or begin with an underscore."""

    @registry.task(name="names")
    async def names(json: int, copy: int, schema: int, model_config: int, model_fields: int, _own: int) -> list[int]:
        return [json, copy, schema, model_config, model_fields, _own]

    chosen = ["json", "copy", "schema", "model_config", "model_fields", "_own"]
    task = await _outcome(client, registry, {name: n for n, name in enumerate(chosen)})
    assert task.output == list(range(6)), task.error


async def test_defaults_are_made_anew_for_each_task(client: weft.Client, registry: Registry) -> None:
    @registry.task(name="collect")
    async def collect(n: int, found: list[int] = []) -> list[int]:  # noqa: B006
        found.append(n)
        return list(found)

    handles = [await client.enqueue("collect", {"n": n}) for n in range(3)]
    await weft.Worker(client=client, registry=registry).run_until_idle()
    assert [await client.wait(handle.id) for handle in handles] == [[0], [1], [2]]


async def test_a_result_that_is_no_json_fails_the_task_and_says_where(client: weft.Client, registry: Registry) -> None:
    cases: list[tuple[Any, str]] = [
        (float("nan"), "output: is nan"),
        ({"a": [float("-inf")]}, "output.a[0]: is -inf"),
        ({"a": {"b": "\x00"}}, "output.a.b: has a NUL"),
        ({1: 2}, "output: has the key 1"),
        (object(), "output: is of type object"),
        ({"a": {1, 2}}, "output.a: is of type set"),
        (2**64, "output: is an integer beyond 64 bits"),
        ("\ud800", "output: has a lone surrogate"),
        ({"$blob": "x"}, "output: the key '$blob' is reserved"),
    ]

    @registry.task(name="give")
    async def give(n: int) -> Any:
        return cases[n][0]

    handles = [await client.enqueue("give", {"n": n}) for n in range(len(cases))]
    await weft.Worker(client=client, registry=registry).run_until_idle()
    for handle, (_, problem) in zip(handles, cases, strict=True):
        task = await client.get_task(handle.id)
        assert (task.state, task.output) == ("failed", None), problem
        assert task.error is not None
        assert task.error["message"].startswith(problem)


@pytest.mark.parametrize("executor", ["async", "thread", "process"])
async def test_a_result_that_does_not_fit_the_annotation_fails_the_attempt_and_is_tried_again(
    client: weft.Client, executor: str
) -> None:
    handle = await client.enqueue(f"process:count in {executor}", {"results": ["not a number", None, 7]})
    async with weft.Worker(client=client):
        assert await client.wait(handle.id, timeout=30) == 7
    task = await client.get_task(handle.id)
    assert [(attempt.outcome, attempt.reason) for attempt in task.attempts] == [("failed", "error")] * 2
    for attempt, problem in zip(task.attempts, ("unable to parse string as an integer", "valid integer"), strict=True):
        assert attempt.error is not None
        assert attempt.error["type"] == "WrongOutput"
        assert attempt.error["message"].startswith("output: Input should be a valid integer")
        assert attempt.error["message"].endswith(problem)


async def test_the_place_in_a_result_that_does_not_fit_is_named(client: weft.Client, registry: Registry) -> None:
    @registry.task(name="order")
    async def order() -> Order:
        return {"id": UUID(int=1), "made_on": "2026-02-28", "items": [{"name": "x"}]}  # type: ignore[return-value]

    task = await _outcome(client, registry, None)
    assert (task.state, task.reason, task.failures) == ("scheduled", "error", 1)
    assert (task.attempts[0].error or {})["message"] == "output.items.0.price: Field required"


async def test_a_result_is_turned_into_what_the_annotation_says_as_params_are(
    client: weft.Client, registry: Registry
) -> None:
    @registry.task(name="number")
    async def number() -> int:
        return "7"  # type: ignore[return-value]

    @registry.task(name="items")
    def items() -> list[Item]:
        return ({"name": "x", "price": "1.10"},)  # type: ignore[return-value]

    @registry.task(name="maybe")
    async def maybe() -> Item | None:
        return None

    @registry.task(name="real")
    async def real() -> float:
        return 1

    handles = [await client.enqueue(name) for name in ("number", "items", "maybe", "real")]
    await weft.Worker(client=client, registry=registry).run_until_idle()
    outputs = [await client.wait(handle.id, timeout=60) for handle in handles]
    assert outputs == [7, [{"name": "x", "price": "1.10", "tags": []}], None, 1.0]


async def test_a_result_is_not_checked_where_no_annotation_says_what_it_is(
    client: weft.Client, registry: Registry
) -> None:
    class Unheard:
        """A type that nothing is known of."""

    async def bare(same):  # type: ignore[no-untyped-def]
        return same

    async def nothing(same: Any) -> None:
        return same  # type: ignore[no-any-return]

    async def anything(same: Any) -> Any:
        return same

    async def unresolved(same: Any) -> Nowhere:  # type: ignore[name-defined]  # noqa: F821
        return same

    async def unheard(same: Any) -> Any:
        return same

    unheard.__annotations__["return"] = Unheard
    handles = []
    for function in (bare, nothing, anything, unresolved, unheard):
        registry.task(name=function.__name__)(function)
        handles += [await client.enqueue(function.__name__, {"same": value}) for value in ("x", None)]
    await weft.Worker(client=client, registry=registry).run_until_idle()
    assert [await client.wait(handle.id, timeout=60) for handle in handles] == ["x", None] * 5


async def test_a_result_comes_back_as_it_was(client: weft.Client, registry: Registry) -> None:
    values = [None, 0, "", [], {}, False, -1.5, "ä\n\u2028", [[[]]], {"": {"a": None}}, 2**64 - 1, -(2**63)]

    @registry.task(name="async")
    async def give(same: Any = None) -> Any:
        return same

    @registry.task(name="thread")
    def give_in_thread(same: Any) -> Any:
        return same

    handles = [await client.enqueue(name, {"same": value}) for value in values for name in ("async", "thread")]
    await weft.Worker(client=client, registry=registry).run_until_idle()
    assert [await client.wait(handle.id) for handle in handles] == [value for value in values for _ in range(2)]


async def test_annotations_that_cannot_be_read_fail_the_task_and_name_the_handler(
    client: weft.Client, registry: Registry
) -> None:
    @registry.task(name="odd")
    async def odd(x: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    task = await _outcome(client, registry, {"x": 1})
    assert task.state == "failed"
    assert task.error is not None
    assert "odd" in task.error["message"]
    assert "Nowhere" in task.error["message"]


@pytest.mark.parametrize("kind", ["positional only", "var positional"])
def test_arguments_come_by_name(registry: Registry, kind: str) -> None:
    async def positional(a: int, /) -> None: ...
    async def variable(*a: int) -> None: ...

    with pytest.raises(weft.InvalidInput, match="a: a handler's arguments come by name"):
        registry.task(name="x")(positional if kind == "positional only" else variable)


@pytest.mark.parametrize("params", [Point(1, 2), Pair(x=1, y=2), {"x": 1, "y": 2}], ids=["dataclass", "model", "dict"])
async def test_params_may_be_an_object_that_has_the_arguments(
    client: weft.Client, registry: Registry, params: Any
) -> None:
    @registry.task(name="h")
    async def handle(x: int, y: int) -> int:
        return x + y

    assert (await _outcome(client, registry, params)).output == 3


async def test_the_context_may_be_optional(client: weft.Client, registry: Registry) -> None:
    @registry.task(name="h")
    async def handle(n: int, ctx: weft.Context | None = None) -> tuple[int, int | None]:
        return n, ctx and ctx.attempt

    assert (await _outcome(client, registry, {"n": 7})).output == [7, 1]
    assert await handle(7) == (7, None)


async def test_a_handler_sees_its_task_through_its_context(client: weft.Client, registry: Registry) -> None:
    seen: list[weft.Context] = []

    @registry.task(name="look")
    async def look(n: int, me: weft.Context) -> int:
        seen.append(me)
        return n

    handle = await client.enqueue("look", {"n": 4})
    async with weft.Worker(client=client, registry=registry) as worker:
        assert await client.wait(handle.id, timeout=60) == 4
        (ctx,) = seen
        assert (ctx.task_id, ctx.attempt, ctx.handler, ctx.worker_id) == (handle.id, 1, "look", worker.process.id)
        assert not ctx.is_cancelled
    refused = await client.enqueue("look", {"n": 4, "me": 1})
    await weft.Worker(client=client, registry=registry).run_until_idle()
    assert (await until(lambda: client.get_task(refused.id), lambda task: task.state.is_final)).state == "failed"


Tree = dict[str, "Tree"] | list["Tree"] | int


async def test_a_type_that_speaks_of_itself_is_refused_as_an_argument_and_unchecked_as_a_result(
    client: weft.Client, registry: Registry
) -> None:
    @registry.task(name="climb")
    async def climb(value: Tree) -> None: ...

    @registry.task(name="grow")
    async def grow() -> Tree:
        return {"a": [1, {"b": 2}]}

    refused, grown = await client.enqueue("climb", {"value": 1}), await client.enqueue("grow")
    async with weft.Worker(client=client, registry=registry):
        assert await client.wait(grown.id, timeout=60) == {"a": [1, {"b": 2}]}
        with pytest.raises(weft.TaskFailed, match="its annotations cannot be validated"):
            await client.wait(refused.id, timeout=60)
    assert (await client.get_task(refused.id)).attempt == 1


async def test_params_that_look_like_those_of_a_job_are_given_as_they_are(
    client: weft.Client, registry: Registry, conn: asyncpg.Connection[asyncpg.Record]
) -> None:
    """Nobody can enqueue such; should they stand there all the same, no expression of theirs is evaluated."""
    given: list[Any] = []

    @registry.task(name="take")
    async def take(**params: Any) -> None:
        given.append(params)

    params = {"$render": {"x": "{{ 6 * 7 }}"}, "inputs": {}, "nodes": [], "job": {}}
    task = await client.enqueue("take")
    await conn.execute("update weft.task set params = $2::json where id = $1", task.id, orjson.dumps(params).decode())
    await weft.Worker(client=client, registry=registry).run_until_idle()
    assert given == [params]
