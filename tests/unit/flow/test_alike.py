"""Definitions of one hash are executed alike: nothing that a hash passes over decides what a job does."""

from __future__ import annotations

import copy
import random
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flow.definitions import EVERYTHING
from flow.test_identity import Data, _read, _shuffled, definitions
from weft.flow.document import read_document
from weft.flow.expressions import read_template
from weft.flow.identity import version_hash
from weft.jobs.plan import Plan, Step

policies = st.fixed_dictionaries(
    {},
    optional={
        "max_attempts": st.integers(1, 9) | st.none(),
        "backoff": st.sampled_from(["linear", "fixed", None]),
        "initial_delay_seconds": st.integers(1, 9),
        "max_delay_seconds": st.sampled_from(["1h", 3600, None]),
        "jitter": st.sampled_from([0, 0.5, 1]),
    },
)


def _plan(data: Data) -> dict[str, Any]:
    """What a job does, apart from the order in which its nodes are written."""
    plan = Plan.of(_read(data))
    names = [step.node for step in plan.steps]
    return {
        "steps": {step.node: _step(step) for step in plan.steps},
        "edges": sorted((names[source], names[target] or "", taken) for source, target, taken in plan.edges),
        "rest": (plan.finishes_independent, plan.timeout),
    }


def _step(step: Step) -> tuple[Any, ...]:
    spec = orjson.dumps(step.spec, option=orjson.OPT_SORT_KEYS)
    said = step.queue, step.priority, step.max_attempts, step.retry and orjson.loads(step.retry), step.allow_failure
    times = step.timeout, step.heartbeat_timeout, step.dispatch_timeout
    taken = sorted(step.needs), step.inputs, step.collects
    return step.handler, spec, said, times, taken, None if step.child is None else _step(step.child)


def _tasks(data: Data) -> list[Data]:
    return [
        task for node in data["nodes"].values() if "handler" in (task := node.get("task", node))
    ]  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(definitions(), st.data(), st.randoms(use_true_random=False))
def test_what_has_one_hash_is_one_plan(data: Data, draw: st.DataObject, chance: random.Random) -> None:
    """By itself or by the defaults, in any order, with words for people: whatever keeps the hash keeps the plan."""
    if draw.draw(st.booleans()):
        data["defaults"]["retry"] = draw.draw(policies)
    for task in _tasks(data):
        if draw.draw(st.booleans()):
            task["retry"] = draw.draw(policies)
    other = copy.deepcopy(data)
    general = other.pop("defaults")
    for task in _tasks(other):
        policy = {key: value for key, value in task.get("retry", {}).items() if value is not None}
        task |= {**general, **task, "retry": {**general.get("retry", {}), **policy}}
    for node in other["nodes"].values():
        node |= {"description": "as {{ nobody }} said", "labels": {"of": "{{ nodes.gone.output }}"}}
    other = _shuffled(other, chance)
    assert version_hash(_read(other)) == version_hash(_read(data))
    assert _plan(other) == _plan(data)


def test_of_several_nodes_a_fan_in_gathers_the_outputs_in_the_order_of_their_names() -> None:
    nodes: Data = {
        "START": {"type": "start", "next": ["b", "c", "a"]},
        "c": {"handler": "h", "next": "all"},
        "a": {"handler": "h", "next": "all"},
        "b": {"handler": "h", "next": "all"},
        "all": {"type": "fan_in", "next": "END"},
        "END": {"type": "end"},
    }
    plans = [
        Plan.of(_read({"workflow_id": "w", "nodes": order})) for order in (nodes, dict(reversed(nodes.items())))
    ]  # fmt: skip
    assert {step.collects for plan in plans for step in plan.steps if step.node == "all"} == {("a", "b", "c")}


@pytest.mark.parametrize(
    ("general", "own", "meant"),
    [
        ({"max_attempts": 5, "backoff": "fixed"}, {"max_attempts": 2}, {"max_attempts": 2, "backoff": "fixed"}),
        ({"max_attempts": 5}, {"backoff": "fixed"}, {"max_attempts": 5, "backoff": "fixed"}),
        ({"max_attempts": 5}, {}, {"max_attempts": 5}),
        ({"jitter": 1}, {"jitter": 0}, {"jitter": 0}),
        ({}, {}, None),
    ],
)
def test_what_a_task_leaves_out_of_its_policy_comes_from_the_defaults(general: Data, own: Data, meant: Data) -> None:
    data = read_document(EVERYTHING).data
    data["defaults"]["retry"], data["nodes"]["fetch"]["retry"] = general, own
    step = next(step for step in Plan.of(_read(data)).steps if step.node == "fetch")
    if meant is None:
        assert (step.max_attempts, step.retry) == (None, None)
    else:
        assert step.max_attempts == meant.pop("max_attempts", None)
        assert orjson.loads(step.retry or "") == meant


def test_words_for_people_and_texts_that_are_compared_are_no_expressions() -> None:
    data = read_document(EVERYTHING).data
    before = _plan(data)
    for name in ("ask", "file", "sub"):
        data["nodes"][name] |= {"name": "{{ nobody }}", "description": "{{", "labels": {"a": "{% nothing %}"}}
    assert _plan(data) == before
    data["nodes"]["route"]["branches"][0]["condition"] = "== '{{ nobody }}'"
    data["nodes"]["ask"]["form"]["reason"] = {"type": "string", "default": "{{ nobody }}"}
    assert Plan.of(_read(data))


def test_what_is_null_counts_as_left_out() -> None:
    data = read_document(EVERYTHING).data
    left_out = copy.deepcopy(data)
    for name, field in (("file", "match"), ("file", "timeout_seconds"), ("ask", "form"), ("sub", "timeout_seconds")):
        data["nodes"][name][field] = None
        left_out["nodes"][name].pop(field, None)
    assert version_hash(_read(data)) == version_hash(_read(left_out))
    assert _plan(data) == _plan(left_out)


@pytest.mark.parametrize(
    "text",
    ["{{ inputs.m }} is it", "{{ inputs.m | tojson }}", "{{ inputs.m | list }}", "{{ inputs.m | items }}",
     "{{ inputs.m | values }}", "{{ inputs.m | keys | first }}", "{{ inputs.m | join }}", "{{ inputs.m[:1] }}",
     "{{ [inputs.m] | map('last') | list }}", "{{ inputs.m ~ '' }}", "{{ inputs.m | string }}"],
)  # fmt: skip
def test_the_order_in_which_a_mapping_is_written_is_seen_by_no_expression(text: str) -> None:
    one, other = {"b": {"y": 1, "x": 2}, "a": 3}, {"a": 3, "b": {"x": 2, "y": 1}}
    found = [read_template(text).evaluate({"inputs": {"m": value}}) for value in (one, other)]
    assert found[0] == found[1]
