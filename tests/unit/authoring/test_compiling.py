"""What a Python workflow compiles to: the definition that its author could have written as YAML."""

from __future__ import annotations

import importlib.util
import random
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import pydantic
import pytest

import weft
from weft.flow.reading import read_definition
from weft.flow.validation import check_text
from weft.flow.values import written
from weft.worker.registry import Registry

registry = Registry()


@registry.task(name="rows.fetch")
async def fetch(url: str) -> list[int]:
    return [len(url)]


@registry.task(name="rows.double", queue="heavy")
def double(x: int, factor: int = 2) -> int:
    return x * factor


@registry.task(name="rows.total")
def total(xs: list[int]) -> int:
    return sum(xs)


@registry.task(name="rows.say")
def say(text: Any, ctx: weft.Context) -> Any:
    return text


def same(workflow: weft.Workflow[..., Any], text: str) -> None:
    """Require that a workflow means what a text of YAML means."""
    checked = check_text(textwrap.dedent(text))
    assert checked.is_sound, checked.problems
    assert workflow.version_hash == checked.version_hash, workflow.to_yaml()


def test_calls_are_nodes_and_what_they_take_leads_to_them() -> None:
    @weft.workflow
    def pipeline(url: str) -> int:
        """Sums up."""
        return total(double.map(fetch(url)))

    same(
        pipeline,
        """
        workflow_id: pipeline
        inputs: {url: {type: string, required: true}}
        nodes:
          START: {type: start, next: fetch}
          fetch: {handler: rows.fetch, params: {url: "{{ inputs.url }}"}, next: double}
          double:
            type: fan_out
            items: "{{ nodes.fetch.output }}"
            task: {handler: rows.double, queue: heavy, params: {x: "{{ item }}"}}
            next: double_results
          double_results: {type: fan_in, next: total}
          total: {handler: rows.total, params: {xs: "{{ nodes.double_results.output.results }}"}, next: END}
          END: {type: end, output: "{{ nodes.total.output }}"}
        """,
    )
    assert pipeline.definition.description == "Sums up."


def test_the_yaml_of_a_workflow_reads_back_as_the_same_version() -> None:
    @weft.workflow(labels={"team": "a"}, timeout=90, on_failure="finish_independent", defaults={"retry": 2})
    def pipeline(url: str = "x: {y}", n: int | None = None) -> Any:
        rows = fetch.using(retry=weft.Retry(max_attempts=5, backoff="fixed"), timeout=30, priority=3)(url)
        with weft.group("tell") as tell:
            say({"deep": [rows[0], {"n": n}]})
        tell >> say.named("last")(f"{{{url}}} of {rows}")
        return weft.when(weft.filtered(rows, "length") >= 3, lambda: double(rows[-1]), 0)

    assert check_text(pipeline.to_yaml()).version_hash == pipeline.version_hash
    assert read_definition(pipeline.to_yaml()).nodes == pipeline.definition.nodes


def test_branches_begin_what_is_in_them_and_nothing_from_outside_does() -> None:
    @weft.workflow
    def choose(url: str) -> Any:
        rows = fetch(url)
        size = total(rows)
        with weft.when(size > 100) as is_large:
            large = say(rows)
            say.named("note")(large)
        with is_large.otherwise:
            small = say.named("small")(rows)
        return say.named("after")(is_large.value(large, small))

    same(
        choose,
        """
        workflow_id: choose
        inputs: {url: {type: string, required: true}}
        nodes:
          START: {type: start, next: fetch}
          fetch: {handler: rows.fetch, params: {url: "{{ inputs.url }}"}, next: [total, when]}
          total: {handler: rows.total, params: {xs: "{{ nodes.fetch.output }}"}, next: [when, after]}
          when:
            type: conditional
            condition_field: "{{ nodes.total.output }}"
            branches:
              - {condition: "> 100", next: [say, after]}
              - {default: true, next: [small, after]}
          say: {handler: rows.say, params: {text: "{{ nodes.fetch.output }}"}, next: [note, after]}
          note: {handler: rows.say, params: {text: "{{ nodes.say.output }}"}, next: END}
          small: {handler: rows.say, params: {text: "{{ nodes.fetch.output }}"}, next: after}
          after:
            handler: rows.say
            params: {text: "{{ nodes.say.output if (nodes.total.output > 100) else nodes.small.output }}"}
            next: END
          END: {type: end, output: "{{ nodes.after.output }}"}
        """,
    )


def test_groups_nest_and_are_waited_for_as_one() -> None:
    @weft.workflow
    def grouped() -> None:
        with weft.group("extract") as extract:
            first = say("a")
            with weft.group("raw"):
                say.named("b")("b")
        last = say.named("last")("c")
        extract >> last
        first << say.named("before")("d")

    nodes = {name: node.model_dump(exclude_unset=True) for name, node in grouped.definition.nodes.items()}
    assert nodes["say"]["group"] == "extract"
    assert nodes["b"]["group"] == "extract/raw"
    assert grouped.definition.groups["extract"].next == ["last"]
    assert nodes["START"]["next"] == ["b", "before"]
    assert "next" not in nodes["b"]
    assert nodes["before"]["next"] == ["say"]


def test_a_call_may_say_what_it_comes_after() -> None:
    @weft.workflow
    def ordered() -> None:
        with weft.group("first") as first:
            a = say("a")
        b = say.using(node="b", after=[a, first])("b")
        say.using(node="c", after=b).map([1])

    found = ordered.definition
    assert found.nodes["say"].next == ["b"]  # type: ignore[union-attr]
    assert found.groups["first"].next == ["b"]
    assert found.nodes["b"].next == ["c"]  # type: ignore[union-attr]


def test_a_group_may_come_after_nodes_and_groups() -> None:
    @weft.workflow
    def grouped() -> None:
        first = say("a")
        with weft.group("one") as one:
            say.named("b")("b")
        with weft.group("two") as two:
            say.named("c")("c")
        [first, say.named("d")("d")] >> one >> two

    found = grouped.definition
    assert found.nodes["say"].next == ["one"]  # type: ignore[union-attr]
    assert found.groups["one"].next == ["two"]
    assert found.nodes["START"].next == ["say", "d"]  # type: ignore[union-attr]


def test_arguments_are_typed_inputs() -> None:
    @weft.workflow
    def typed(
        a: str,
        b: int = 3,
        c: float | None = None,
        d: Literal["x", "y"] = "x",
        e: Annotated[int, pydantic.Field(ge=16, le=512, description="in pixels")] = 256,
        f: list[int] = [],  # noqa: B006
        g: Any = None,
        h: dict[str, int] | None = None,
        i: bool = False,
    ) -> None: ...

    assert {name: each.model_dump(exclude_unset=True) for name, each in typed.definition.inputs.items()} == {
        "a": {"type": "string", "required": True},
        "b": {"type": "integer", "default": 3},
        "c": {"type": "number"},
        "d": {"type": "string", "enum": ["x", "y"], "default": "x"},
        "e": {"type": "integer", "minimum": 16, "maximum": 512, "description": "in pixels", "default": 256},
        "f": {"type": "array", "default": []},
        "g": {},
        "h": {"type": "object"},
        "i": {"type": "boolean", "default": False},
    }


def test_other_workflows_are_nodes_and_waits_are_too() -> None:
    @weft.workflow
    def inner(n: int) -> int:
        return double(n)

    @weft.workflow
    def outer(n: int) -> int:
        arrived = weft.wait_for_event("file.arrived", match={"n": n}, timeout=60, on_timeout="skip")
        asked = weft.wait_for_approval("ask", form={"why": {"type": "string"}})
        found = inner.using(node="part", allow_failure=True)(arrived.n)
        asked >> found
        return found

    same(
        outer,
        """
        workflow_id: outer
        inputs: {n: {type: integer, required: true}}
        nodes:
          START: {type: start, next: [event, ask]}
          event:
            {type: wait, for: event, event: file.arrived, match: {n: "{{ inputs.n }}"}, timeout_seconds: 60,
             on_timeout: skip, next: part}
          ask: {type: wait, for: approval, form: {why: {type: string}}, next: part}
          part:
            {type: workflow, workflow: inner, inputs: {n: "{{ nodes.event.output.n }}"}, allow_failure: true, next: END}
          END: {type: end, output: "{{ nodes.part.output }}"}
        """,
    )
    assert dict(outer.uses) == {"inner": inner}


def test_starmap_gives_each_item_s_entries_as_arguments() -> None:
    @weft.workflow
    def spread(pairs: list[list[int]]) -> Any:
        return [double.starmap(pairs), double.starmap([(1, 2), (3, 4)]), say.map([1, spread_item(pairs)])]

    nodes = spread.document["nodes"]
    assert nodes["double"]["task"]["params"] == {"x": "{{ item[0] }}"}
    assert nodes["double_2"]["task"]["params"] == {"x": "{{ item[0] }}", "factor": "{{ item[1] }}"}
    assert nodes["say"]["items"] == [1, "{{ inputs.pairs[0] }}"]


def spread_item(pairs: Any) -> Any:
    return pairs[0]


def test_an_async_workflow_awaits_its_calls() -> None:
    @weft.workflow
    async def waits(url: str) -> int:
        return total(await fetch(url))

    @weft.workflow(workflow_id="waits")
    def does_not(url: str) -> int:
        return total(fetch(url))  # type: ignore[arg-type]

    assert waits.version_hash == does_not.version_hash


def _evaluated(workflow: weft.Workflow[..., Any], **inputs: Any) -> Any:
    from weft.flow.templates import read_value

    return read_value(workflow.document["nodes"]["END"]["output"]).render({"inputs": inputs, "nodes": {}, "job": {}})


OPERATIONS: list[Callable[[Any, Any], Any]] = [
    lambda a, b: a + b * 2 - 3,
    lambda a, b: (a + b) * (a - b),
    lambda a, b: -a // 2 + b % 3,
    lambda a, b: (10 - a) / 4,
    lambda a, b: a**2 - (2**b),
    lambda a, b: [a, {"b": b, "c": [a == b, a != b, a < b, a <= 4, a > b, b >= 4]}],
    lambda a, b: {"t": f"{a} and {b}", "n": f"{{{a}}} %}} '\\ {{# \n", "one": f"{a}"},
    lambda a, b: "a {{ text }} {% as %} it is",
    lambda a, b: {"{{ key }}": "it's \\n"},
    lambda a, b: [a, b, a][1:],
    lambda a, b: "x" + f"{a}",
    lambda a, b: (a == 5, [f"{b}-{a}"]),
]


@pytest.mark.parametrize("operation", OPERATIONS)
def test_what_is_computed_of_values_is_what_python_computes(operation: Callable[[Any, Any], Any]) -> None:
    def compute(a: int, b: int) -> Any:
        return operation(a, b)

    expected = operation(5, 4)
    found = _evaluated(weft.workflow(compute), a=5, b=4)
    assert found == (list(expected) if isinstance(expected, tuple) else expected)


def test_truth_is_combined_by_signs() -> None:
    @weft.workflow
    def combine(a: int, b: int) -> Any:
        return [(a > 1) & (b > 1), (a > 1) | (b > 1), ~(a > 1), (a > 1) & ~(b > 1) | (b == 9)]

    assert _evaluated(combine, a=2, b=1) == [False, True, False, True]


def test_fields_and_entries_of_values_go_as_deep_as_they_are() -> None:
    @weft.workflow
    def deep(a: dict[str, Any], key: str) -> Any:
        return [a["b"][0], a["b c"], a[key], a["b"][1:], weft.filtered(a["b"], "join", "-")]

    value = {"b": [1, 2, 3], "b c": 4, "k": 5}
    assert _evaluated(deep, a=value, key="k") == [1, 4, 5, [2, 3], "1-2-3"]


def test_texts_with_values_have_the_values_as_expressions_write_them() -> None:
    @weft.workflow
    def text(a: Any) -> Any:
        return f"{a}!"

    assert _evaluated(text, a=[1, None]) == written([1, None], _budget()) + "!"


def _budget() -> Any:
    from weft.flow.budget import Budget

    return Budget()


SOURCE = """
import weft

@weft.task(name="a")
def a(x: int) -> int: ...

@weft.task(name="b")
def b(x: int) -> int: ...

@weft.task(name="c")
def c(x: int, y: int) -> int: ...

@weft.workflow
def flow(n: int, m: int = 2) -> int:
{body}
    return c(y=second, x=first)
"""


def _hash_of(text: str, folder: Path) -> str:
    path = folder / f"flow_{random.randrange(10**9)}.py"
    path.write_text(text, encoding="utf-8")
    program = f"import sys; sys.path.insert(0, {str(folder)!r}); import {path.stem} as m; print(m.flow.version_hash)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.strip()


def test_the_same_source_is_the_same_version_in_every_process_and_order_makes_no_difference(tmp_path: Path) -> None:
    first, second = "    first = a(n)\n", "    second = b(m)\n"
    one = _hash_of(SOURCE.format(body=first + second), tmp_path)
    blocks = SOURCE.format(body=second + first).split("\n\n")
    tasks = blocks[1:4]
    other = _hash_of("\n\n".join([blocks[0], *reversed(tasks), *blocks[4:]]), tmp_path)
    assert one == other
    changed = _hash_of(SOURCE.format(body=first + second.replace("b(m)", "b(m + 1)")), tmp_path)
    assert changed != one


def test_a_workflow_of_a_thousand_calls_compiles() -> None:
    @weft.workflow
    def long(n: int) -> int:
        for _ in range(1000):
            n = double(n)
        return n

    assert len(long.definition.nodes) == 1002
    assert importlib.util.find_spec("weft.sdk.authoring") is not None
