"""What no definition can say is told with the author's own line, and what to write instead."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import weft
from weft.worker.registry import Registry

registry = Registry()


@registry.task(name="say")
def say(text: Any, times: int = 1) -> Any:
    return text


@registry.task(name="load")
async def load(path: str, ctx: weft.Context) -> list[int]:
    return []


nameless = registry.task(name="nameless")(lambda x: x)


async def no_task(x: Any) -> None: ...


@weft.workflow
def another(n: int) -> Any:
    return say(n)


REFUSED: list[Callable[..., Any]] = []


def refused(function: Callable[..., Any]) -> Callable[..., Any]:
    REFUSED.append(function)
    return function


@refused
def branches(a: Any) -> Any:
    if a > 3:  # here
        return say(a)
    return None


@refused
def loops(a: Any) -> Any:
    for each in a:  # here
        say(each)


@refused
def joins(a: Any) -> Any:
    return say((a > 1) and (a < 3))  # here


@refused
def searches(a: Any) -> Any:
    return say(1 in a)  # here


@refused
def measures(a: Any) -> Any:
    return say(len(a))  # here


@refused
def converts(a: Any) -> Any:
    return say(int(a))  # here


@refused
def formats(a: Any) -> Any:
    return say(f"{a:.2f}")  # here


@refused
def changes_a_text(a: Any) -> Any:
    return say(f"{a}"[:2])  # here


@refused
def calls_a_method(a: Any) -> Any:
    return say(a.lower())  # here


@refused
def changes_a_value(a: Any) -> Any:
    a["x"] = 1  # here


@refused
def gives_a_lambda(a: Any) -> Any:
    return say(lambda x: x)  # here


@refused
def gives_a_function(a: Any) -> Any:
    return say(loops)  # here


@refused
def gives_no_json(a: Any) -> Any:
    return say(object())  # here


@refused
def gives_infinity(a: Any) -> Any:
    return say(a > float("inf"))  # here


@refused
def has_an_unknown_argument(a: Any) -> Any:
    return say(a, speed=3)  # type: ignore[call-arg]  # here


@refused
def has_too_many_arguments(a: Any) -> Any:
    return say(a, 1, 2)  # type: ignore[call-arg]  # here


@refused
def gives_the_context(a: Any) -> Any:
    return load(a, a)  # here


@refused
def lacks_an_argument(a: Any) -> Any:
    return another()  # type: ignore[call-arg]  # here


@refused
def uses_a_name_twice(a: Any) -> Any:
    say.named("x")(a)
    return say.named("x")(a)  # here


@refused
def uses_a_reserved_name(a: Any) -> Any:
    return say.named("END")(a)  # here


@refused
def maps_a_number(a: Any) -> Any:
    return say.map(3)  # here


@refused
def maps_a_workflow(a: Any) -> Any:
    return another.map(a)  # here


@refused
def maps_with_nothing_left(a: Any) -> Any:
    return say.map(a, text=1, times=2)  # here


@refused
def spreads_unevenly(a: Any) -> Any:
    return say.starmap([[1], [1, 2]])  # here


@refused
def calls_before_deciding(a: Any) -> Any:
    return weft.when(a > 3, say(a))  # here


@refused
def decides_what_is_known(a: Any) -> Any:
    return weft.when(True, lambda: say(a))  # here


@refused
def takes_from_the_other_branch(a: Any) -> Any:
    with weft.when(a > 3) as large:
        x = say(a)
    with large.otherwise:
        say(x)  # here


@refused
def calls_what_is_no_task(a: Any) -> Any:
    return say(no_task(a))  # here


@refused
def calls_a_nameless_task(a: Any) -> Any:
    return nameless(a)  # here


@refused
def orders_a_constant(a: Any) -> Any:
    return say(a) >> 3  # here


@refused
def says_a_wrong_option(a: Any) -> Any:
    return say.using(timeout=-1)(a)  # here


@refused
def says_max_parallel_of_a_call(a: Any) -> Any:
    return say.using(max_parallel=3)(a)  # here


@refused
def limits_a_workflow_s_retries(a: Any) -> Any:
    return another.using(retry=3)(a)  # here


@refused
def keys_by_an_output(a: Any) -> Any:
    return say.using(concurrency_key=say(a))(a)  # here


@refused
def runs_a_workflow_now(a: Any) -> Any:
    return weft.run(another, n=3)  # here


@refused
def waits_for_nothing(a: Any) -> Any:
    weft.wait_for_approval("ask", timeout=-1)  # here


@refused
def has_a_key_that_is_not_known(a: Any) -> Any:
    return say({f"{a}": 1})  # here


@refused
def enters_a_branch_elsewhere(a: Any) -> Any:
    with weft.when(a > 3) as large, large.otherwise:  # here
        say(a)


def _line_of(function: Callable[..., Any]) -> int:
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    start = function.__code__.co_firstlineno
    return next(number for number in range(start, start + 9) if lines[number - 1].endswith("# here"))


@pytest.mark.parametrize("function", REFUSED)
def test_it_is_refused_where_it_stands(function: Callable[..., Any]) -> None:
    with pytest.raises(weft.InvalidDefinition) as told:
        _ = weft.workflow(function).definition
    (problem,) = told.value.problems
    assert (problem.file, problem.line, problem.code) == (__file__, _line_of(function), "cannot_compile"), problem  # type: ignore[attr-defined]


def test_a_lambda_is_no_workflow() -> None:
    with pytest.raises(weft.InvalidDefinition, match="a lambda has no name"):
        weft.workflow(lambda a: say(a))


def test_what_is_no_function_is_no_workflow() -> None:
    with pytest.raises(weft.InvalidInput, match=r"write @weft.workflow\(workflow_id='etl'\)"):
        weft.workflow("etl")  # type: ignore[call-overload]


def test_a_closure_over_what_may_change_is_refused() -> None:
    seen: list[int] = []

    @weft.workflow
    def remembers(a: int) -> Any:
        return say([a, seen])

    with pytest.raises(
        weft.InvalidDefinition, match="takes 'seen' from the function around it, a list that may change"
    ):
        _ = remembers.definition


def test_what_differs_from_one_time_to_the_next_is_refused() -> None:
    @weft.workflow
    def rolls(a: int) -> Any:
        return say(random.random())

    with pytest.raises(weft.InvalidDefinition, match="another one each time"):
        _ = rolls.definition


def test_inputs_are_named_one_by_one() -> None:
    @weft.workflow
    def open_ended(**rest: int) -> None: ...

    with pytest.raises(weft.InvalidDefinition, match="named one by one"):
        _ = open_ended.definition


def test_a_default_that_is_no_json_is_refused() -> None:
    @weft.workflow
    def odd(a: Any = object()) -> None: ...  # noqa: B008

    with pytest.raises(weft.InvalidDefinition, match="the default of a"):
        _ = odd.definition


def test_an_async_workflow_awaits_nothing_but_its_calls() -> None:
    @weft.workflow
    async def sleeps(a: int) -> None:
        await asyncio.sleep(0)

    with pytest.raises(weft.InvalidDefinition, match="may await only tasks and workflows"):
        _ = sleeps.definition


def test_outside_of_a_workflow_its_words_say_where_they_belong() -> None:
    with pytest.raises(weft.InvalidInput, match="is a workflow: execute it by"):
        another(3)
    with pytest.raises(weft.InvalidInput, match=r"map: is for the function of a @weft\.workflow"):
        say.map([1])
    with pytest.raises(weft.InvalidInput, match=r"is for the function of a @weft\.workflow"):
        say.named("x")(1)
    with pytest.raises(weft.InvalidDefinition, match=r"weft\.group is for the function"), weft.group("x"):
        pass
    assert say("as a function", 2) == "as a function"


def test_defaults_that_do_not_exist_are_told() -> None:
    with pytest.raises(weft.InvalidInput, match="Did you mean 'timeout'"):

        @weft.workflow(defaults={"timeuot": 3})
        def wrong() -> None: ...


def test_all_that_the_checks_of_definitions_find_is_told_at_the_calls() -> None:
    @weft.workflow(workflow_id="not a name")
    def wrong(a: int) -> Any:
        say.named("a b")(a)
        return say.using(priority=10**6)(a)

    problems = wrong.checked.problems
    assert [(each.code, each.line) for each in problems] == [
        ("bad_name", _first_line(wrong)),
        ("bad_name", _first_line(wrong) + 2),
        ("bad_value", _first_line(wrong) + 3),
    ]
    with pytest.raises(weft.InvalidDefinition):
        wrong.to_yaml()


def _first_line(workflow: weft.Workflow[..., Any]) -> int:
    return workflow.function.__code__.co_firstlineno
