"""All that is wrong with a definition is found at once, each problem with its code and its place."""

from __future__ import annotations

import itertools
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from flow.definitions import EVERYTHING, SPEC_5, SPEC_5_MENDED, TILE_RASTER
from weft.core.errors import InvalidDefinition, InvalidInput
from weft.flow.document import Document
from weft.flow.inputs import check_inputs
from weft.flow.problems import Severity
from weft.flow.reading import read_definition
from weft.flow.validation import check_document, check_text

Found = tuple[str, int | None, int | None]
# Seven lines, so that what a test adds to the nodes begins in line 8.
HEAD = """\
workflow_id: w
inputs:
  size: {type: integer, default: 1}
nodes:
  START: {type: start, next: a}
  a: {handler: h, next: END}
  END: {type: end}
"""


def _found(text: str, **options: Any) -> list[Found]:
    return [(each.code, each.line, each.column) for each in check_text(text, **options).problems]


def _messages(text: str, **options: Any) -> list[str]:
    return [each.message for each in check_text(text, **options).problems]


def _with(*lines: str) -> str:
    """A sound definition with more lines, of nodes or of what follows them."""
    return HEAD + "".join(f"{line}\n" for line in lines)


def _behind(node: str) -> str:
    """A sound definition whose second node is this one, in line 6, in column 3."""
    return HEAD.replace("a: {handler: h, next: END}", node)


def _branches(branches: str, about: str = "condition_field: 1, ") -> str:
    """A sound definition whose second node is a conditional with these branches, which begin in column 60."""
    return _behind(f"a: {{type: conditional, {about:>21}branches: [{branches}]}}")


@pytest.mark.parametrize("text", [HEAD, SPEC_5_MENDED, TILE_RASTER, EVERYTHING], ids="head spec_5 design all".split())
def test_a_sound_definition_has_no_problem(text: str) -> None:
    checked = check_text(text)
    assert checked.problems == []
    assert checked.is_sound
    assert checked.definition is not None


def test_the_example_of_spec_5_names_a_node_that_it_does_not_have() -> None:
    checked = check_text(SPEC_5, "flow.yaml")
    assert checked.definition is None
    assert [str(problem) for problem in checked.problems] == [
        "flow.yaml:35:15: error: nodes.route_by_size.branches[0].next: there is no node 'process_fa'. "
        "Did you mean 'process_docker'? [unknown_node]"
    ]


SMALLEST: list[tuple[str, str, int | None, int | None]] = [
    # The text itself.
    ("syntax", "workflow_id: [w\n", 2, 1),
    ("syntax", HEAD.replace("w\n", "!!str/x w\n", 1), 1, 14),
    ("too_deep", "a: " + "[" * 101 + "]" * 101, 1, 103),
    ("too_large", "#" * (16 * 1024 * 1024 + 1), None, None),
    ("duplicate_key", _with("  a: {handler: h, next: END}"), 8, 3),
    ("bad_value", HEAD.replace("default: 1", "default: .nan").replace("integer", "any"), 3, 30),
    # Structure.
    ("bad_value", "just text\n", 1, 1),
    ("missing", HEAD.replace("workflow_id: w\n", "version: 1\n"), 1, 1),
    ("missing", "workflow_id: w\n", 1, 1),
    ("missing", _behind("a: {next: END}"), 6, 6),
    ("missing", _behind("a: {type: fan_out, items: [1], next: END}"), 6, 6),
    ("missing", _behind("a: {type: fan_out, items: [1], task: {params: {}}, next: END}"), 6, 40),
    ("missing", _behind("a: {type: wait, for: event, next: END}"), 6, 6),
    ("missing", _behind("a: {type: wait, next: END}"), 6, 6),
    ("missing", _behind("a: {type: workflow, next: END}"), 6, 6),
    ("unknown_field", HEAD.replace("inputs:", "foo: 1\ninputs:"), 2, 1),
    ("unknown_field", _behind("a: {handler: h, next: END, tiemout_seconds: 5}"), 6, 30),
    ("unknown_field", _behind("a: {handler: h, next: END, retry: {max: 5}}"), 6, 38),
    ("unknown_field", _behind("a: {type: fan_in, next: END, queue: q}"), 6, 32),
    ("unknown_field", _behind("a: {type: wait, for: approval, event: e, next: END}"), 6, 34),
    ("unknown_field", _behind("a: {type: wait, for: approval, match: {}, next: END}"), 6, 34),
    ("unknown_field", _behind("a: {type: wait, for: event, event: e, form: {}, next: END}"), 6, 41),
    ("unknown_type", _behind("a: {type: taks, handler: h, next: END}"), 6, 13),
    ("unknown_type", _behind("a: {type: [task], handler: h, next: END}"), 6, 13),
    ("bad_value", HEAD.replace("workflow_id: w", "workflow_id: 5"), 1, 14),
    ("bad_value", HEAD.replace("workflow_id: w", "workflow_id: w\nversion: 1.5"), 2, 10),
    ("bad_value", HEAD.replace("workflow_id: w", "workflow_id: w\non_failure: fail"), 2, 13),
    ("bad_value", HEAD.replace("workflow_id: w", "workflow_id: w\ndefaults: []"), 2, 11),
    ("bad_value", HEAD.replace("workflow_id: w", "workflow_id: w\ngroups: 5"), 2, 9),
    ("bad_value", HEAD.replace("workflow_id: w", "workflow_id: w\nlabels: {a: 1}"), 2, 13),
    ("bad_value", _behind("a: {handler: h, next: END, priority: high}"), 6, 40),
    ("bad_value", _behind("a: {handler: h, next: END, priority: 40000}"), 6, 40),
    ("bad_value", _behind("a: {handler: h, next: END, retry: {max_attempts: 0}}"), 6, 52),
    ("bad_value", _behind("a: {handler: h, next: END, retry: {backoff: exponentail}}"), 6, 47),
    ("bad_value", _behind("a: {handler: h, next: END, params: [1]}"), 6, 38),
    ("bad_value", _behind('a: {handler: "", next: END}'), 6, 16),
    ("bad_value", _behind("a: {type: fan_out, items: 5, task: {handler: h}, next: END}"), 6, 29),
    ("bad_value", _behind("a: {type: fan_out, items: [], task: {handler: h}, max_parallel: 0, next: END}"), 6, 67),
    ("bad_value", _behind("a: {type: wait, for: ever, next: END}"), 6, 24),
    ("bad_value", HEAD + "  b: 5\n", 8, 6),
    ("bad_value", HEAD.replace("integer", "int"), 3, 16),
    ("bad_value", HEAD.replace("integer, default: 1", 'string, pattern: "("'), 3, 33),
    ("bad_value", HEAD.replace("default: 1", "default: 1, min_length: 1"), 3, 49),
    ("bad_name", HEAD.replace("workflow_id: w", "workflow_id: a b"), 1, 14),
    ("bad_name", HEAD.replace("size:", "1size:"), 3, 3),
    ("bad_name", HEAD.replace("size:", '"size\\n":'), 3, 3),
    ("bad_name", HEAD.replace(" a", ' "a b"').replace("next: a", 'next: "a b"'), 6, 3),
    ("bad_name", HEAD.replace("h, next: END", 'h, group: "x y", next: END'), 6, 26),
    ("bad_next", _behind("a: {handler: h, next: [END, 5]}"), 6, 25),
    ("bad_duration", _behind("a: {handler: h, next: END, timeout_seconds: soon}"), 6, 47),
    ("bad_duration", _behind("a: {handler: h, next: END, timeout_seconds: 0}"), 6, 47),
    ("bad_duration", _behind("a: {handler: h, next: END, cache: often}"), 6, 37),
    ("too_large", HEAD + "".join(f"  n{n}: x\n" for n in range(20_001)), 5, 3),
    # Meaning.
    ("no_start", "workflow_id: w\nnodes:\n  END: {type: end}\n", 2, 1),
    ("two_starts", _with("  S: {type: start, next: a}"), 8, 3),
    ("unknown_node", _behind("a: {handler: h, next: [END, edn]}"), 6, 31),
    ("unknown_node", _behind("a: {handler: h, next: END, params: {x: '{{ nodes.b.output }}'}}"), 6, 42),
    ("unreachable", _with("  b: {handler: h, next: END}"), 8, 3),
    ("cycle", _behind("a: {handler: h, next: [a, END]}"), 6, 3),
    ("cycle", _behind("a: {handler: h, next: [b, END]}") + "  b: {handler: h, next: a}\n", 6, 3),
    ("fan_in_alone", _with("  b: {type: fan_in, next: END}"), 8, 3),
    ("leads_nowhere", _behind("a: {handler: h, next: [b, END]}") + "  b: {handler: h}\n", 8, 3),
    ("empty_group", _with("groups:", "  g: {}"), 9, 3),
    ("bad_name", _behind("a: {handler: h, group: a, next: END}"), 6, 3),
    ("no_default", _branches("{condition: '> 1', next: END}"), 6, 57),
    ("no_default", _branches("{default: true, next: END}, {condition: '> 1', next: END}"), 6, 58),
    ("bad_condition", _branches("{next: END}, {default: true, next: END}"), 6, 58),
    ("bad_condition", _branches("{condition: '> 1', default: true, next: END}"), 6, 58),
    ("bad_condition", _branches("{condition: '> 1', next: END}, {default: true, next: END}", ""), 6, 70),
    ("bad_condition", _branches("{condition: large, next: END}, {default: true, next: END}"), 6, 70),
    ("bad_condition", _branches("{condition: '{{ 1 }} or {{ 2 }}', next: END}, {default: true, next: END}"), 6, 70),
    ("bad_default", HEAD.replace("default: 1", "default: one"), 3, 34),
    ("bad_default", HEAD.replace("default: 1", "default: 1, minimum: 2"), 3, 34),
    ("bad_default", HEAD.replace("default: 1", "default: 1, required: true"), 3, 9),
    ("unknown_input", _behind("a: {handler: h, params: {x: '{{ inputs.sise }}'}, next: END}"), 6, 31),
    ("not_upstream", _behind("a: {handler: h, params: {x: '{{ nodes.END.output }}'}, next: END}"), 6, 31),
    ("not_upstream", _behind("a: {handler: h, params: {x: '{{ nodes.a.output }}'}, next: END}"), 6, 31),
    ("bad_expression", _behind("a: {handler: h, params: {x: '{{ inputs. }}'}, next: END}"), 6, 31),
    ("bad_expression", _behind("a: {handler: h, params: {x: '{% if 1 %}{% endif %}'}, next: END}"), 6, 31),
    ("bad_expression", _behind("a: {handler: h, params: {x: [1, '{{ nodes.START }}']}, next: END}"), 6, 35),
    ("bad_expression", _behind("a: {handler: h, params: {x: '{{ nodes[inputs.size].output }}'}, next: END}"), 6, 31),
    ("bad_expression", _behind("a: {handler: h, params: {x: '{{ item }}'}, next: END}"), 6, 31),
    ("bad_expression", _behind("a: {handler: '{{ inputs.size }}', next: END}"), 6, 16),
    ("bad_expression", _behind("a: {handler: h, concurrency_key: '{{ nodes.START.output }}', next: END}"), 6, 36),
    (
        "two_limits",
        _behind("a: {type: fan_out, items: [1], max_parallel: 1, task: {handler: h, concurrency_key: k}, next: END}"),
        6,
        48,
    ),
    ("bad_expression", _behind("a: {handler: h, queue: '{{ inputs.size }}', next: END}"), 6, 26),
]


@pytest.mark.parametrize(
    ("code", "text", "line", "column"), SMALLEST, ids=[f"{n}-{case[0]}" for n, case in enumerate(SMALLEST)]
)
def test_the_smallest_document_with_a_problem_has_that_problem_alone(
    code: str, text: str, line: int | None, column: int | None
) -> None:
    assert _found(text) == [(code, line, column)]


def test_a_workflow_without_an_end_leads_nowhere_as_well() -> None:
    text = "workflow_id: w\nnodes:\n  S: {type: start, next: a}\n  a: {handler: h}\n"
    assert _found(text) == [("no_end", 2, 1), ("leads_nowhere", 4, 3)]


def test_a_workflow_without_nodes_has_neither_start_nor_end() -> None:
    assert _found("workflow_id: w\nnodes: {}\n") == [("no_end", 2, 1), ("no_start", 2, 1)]


def test_everything_that_is_wrong_is_told_at_once_in_the_order_of_the_file() -> None:
    text = dedent("""\
        workflow_id: bad id
        versoin: 1
        inputs:
          size: {type: integer, default: big}
          size: {type: integer}
        defaults: {timeout_seconds: never}
        nodes:
          a: {type: start, next: [b, nobody]}
          b: {handler: h, params: {x: "{{ inputs.sise }}", y: "{{ nodes.c.output }}", z: "{{ 1 + }}"}, next: c}
          c: {type: conditional, branches: [{condition: "> 1", next: b}]}
          d: {type: fan_in}
          e: {type: taks}
          f: {type: end, output: "{{ item }}"}
          g: {type: start, next: f}
        """)
    checked = check_text(text)
    assert [(each.line, each.code) for each in checked.problems] == [
        (1, "bad_name"),
        (2, "unknown_field"),
        (5, "duplicate_key"),
        (6, "bad_duration"),
        (8, "unknown_node"),
        (9, "cycle"),
        (9, "unknown_input"),
        (9, "bad_expression"),
        (10, "no_default"),
        (10, "bad_condition"),
        (11, "fan_in_alone"),
        (11, "leads_nowhere"),
        (12, "leads_nowhere"),
        (12, "unreachable"),
        (12, "missing"),
        (12, "unknown_type"),
        (13, "bad_expression"),
        (14, "two_starts"),
    ]
    assert checked.definition is None


def test_a_circle_is_shown_as_a_path_from_its_first_node() -> None:
    text = _behind("a: {handler: h, next: b}") + "  b: {handler: h, next: [c, END]}\n  c: {handler: h, next: a}\n"
    assert _messages(text) == ["nodes wait for each other: a -> b -> c -> a"]


def test_circles_that_share_a_node_are_told_each() -> None:
    text = _behind("a: {handler: h, next: [b, c, END]}") + "  b: {handler: h, next: a}\n  c: {handler: h, next: a}\n"
    assert _messages(text) == ["nodes wait for each other: a -> b -> a", "nodes wait for each other: a -> c -> a"]


def test_a_node_of_a_type_that_there_is_not_is_told_of_its_other_fields_too() -> None:
    fields = 'timeout_seconds: never, tiemout: 5, params: {x: "{{ inputs.no }}", y: "{{ 1 + }}"}, next: nobody'
    found = [
        (each.code, ".".join(map(str, each.path[2:])))
        for each in check_text(_with(f"  b: {{type: taks, {fields}}}")).problems
    ]
    of_fields = {("bad_duration", "timeout_seconds"), ("unknown_field", "tiemout"), ("unknown_node", "next")}
    of_a_task = {("missing", "handler"), ("unknown_input", "params.x"), ("bad_expression", "params.y")}
    assert set(found) == {("unknown_type", "type"), ("unreachable", ""), *of_fields, *of_a_task}
    # Nobody can tell what was meant: only what is wrong in any type is told.
    found = [
        (each.code, ".".join(map(str, each.path[2:])))
        for each in check_text(_with(f"  b: {{type: xyz, {fields}}}")).problems
    ]
    assert set(found) == {("unknown_type", "type"), ("unreachable", ""), *of_fields}


def test_each_circle_that_stands_apart_is_told() -> None:
    first = _behind("a: {handler: h, next: b}") + "  b: {handler: h, next: [a, c, END]}\n"
    text = first + "  c: {handler: h, next: d}\n  d: {handler: h, next: [c, e]}\n  e: {handler: h, next: e}\n"
    assert [(each.code, each.line, each.message) for each in check_text(text).problems] == [
        ("cycle", 6, "nodes wait for each other: a -> b -> a"),
        ("cycle", 9, "nodes wait for each other: c -> d -> c"),
        ("cycle", 11, "nodes wait for each other: e -> e"),
    ]


def test_a_long_circle_is_shown_in_short() -> None:
    nodes = "".join(f"  n{n}: {{handler: h, next: [n{(n + 1) % 300}, END]}}\n" for n in range(300))
    (message,) = _messages(f"workflow_id: w\nnodes:\n  S: {{type: start, next: n0}}\n  END: {{type: end}}\n{nodes}")
    assert message.startswith("nodes wait for each other: n0 -> n1 -> n2")
    assert message.endswith("-> … -> n0")
    assert len(message) < 150


@pytest.mark.parametrize(
    ("node", "message"),
    [
        ("{handler: h, next: EDN}", "there is no node 'EDN'. Did you mean 'END'?"),
        ("{type: taks, handler: h, next: END}", "there is no type of node 'taks'. Did you mean 'task'?"),
        ("{handlr: h, next: END}", "there is no field 'handlr'. Did you mean 'handler'?"),
        ("{handler: h, params: {a: '{{ inputs.siz }}'}}", "there is no input 'siz'. Did you mean 'size'?"),
        ("{handler: h, params: {a: '{{ input.size }}'}}", "there is no name 'input' here. Did you mean 'inputs'?"),
        ("{handler: h, params: {a: '{{ 1 | lenght }}'}}", "there is no filter 'lenght'. Did you mean 'length'?"),
        ("{handler: h, params: {a: '{{ 1 is evn }}'}}", "there is no test 'evn'. Did you mean 'even'?"),
        ("{type: wait, for: aproval}", "must be 'approval' or 'event', not 'aproval'. Did you mean 'approval'?"),
    ],
)
def test_a_misspelt_name_is_told_with_the_one_that_was_meant(node: str, message: str) -> None:
    assert message in _messages(_behind(f"a: {node}"))


def test_a_thousand_misspelt_names_are_all_told_but_not_all_compared() -> None:
    targets = ", ".join(f"nobody{n}" for n in range(1000))
    messages = _messages(
        _behind(f"nobody: {{handler: h, next: [{targets}, END]}}").replace("next: a}", "next: nobody}")
    )
    assert len(messages) == 1000
    assert messages[0] == "there is no node 'nobody0'. Did you mean 'nobody'?"
    assert messages[-1] == "there is no node 'nobody999'."


# Groups.


def _grouped(nodes: str, groups: str = "") -> str:
    text = "workflow_id: w\nnodes:\n  S: {type: start, next: g}\n  END: {type: end}\n" + nodes
    return text + (f"groups: {groups}\n" if groups else "")


TWO = """\
  a: {handler: h, group: g, next: b}
  b: {handler: h, group: g}
"""


def test_a_group_is_reached_by_its_name_and_left_by_its_own_next() -> None:
    assert _found(_grouped(TWO, "{g: {next: END}}")) == []


def test_the_last_of_a_group_that_leads_nowhere_are_warned_about() -> None:
    assert _found(_grouped(TWO.replace("next: b", "next: [b, END]"))) == [("leads_nowhere", 6, 3)]


def test_what_comes_after_a_group_sees_the_outputs_of_all_its_members() -> None:
    after = '  c: {handler: h, params: {a: "{{ nodes.a.output }}", b: "{{ nodes.b.output }}"}, next: END}\n'
    assert _found(_grouped(TWO + after, "{g: {next: c}}")) == []


def test_members_of_a_group_do_not_see_what_comes_after_it() -> None:
    after = "  c: {handler: h, next: END}\n"
    text = _grouped(TWO.replace("next: b", "params: {c: '{{ nodes.c.output }}'}, next: b") + after, "{g: {next: c}}")
    assert [code for code, _, _ in _found(text)] == ["not_upstream"]


def test_groups_nest_and_an_outer_one_stands_for_all_that_are_in_it() -> None:
    nested = "  a: {handler: h, group: g/x}\n  b: {handler: h, group: g/y}\n"
    after = '  c: {handler: h, params: {a: "{{ nodes.a.output }}", b: "{{ nodes.b.output }}"}, next: END}\n'
    assert _found(_grouped(nested + after, "{g: {next: c}}")) == []


def test_an_inner_group_leads_on_to_another() -> None:
    nested = "  a: {handler: h, group: g/x}\n  b: {handler: h, group: g/y, params: {a: '{{ nodes.a.output }}'}}\n"
    assert _found(_grouped(nested, "{g/x: {next: g/y}, g: {next: END}}")) == []


def test_a_node_that_leads_to_its_own_group_waits_for_itself() -> None:
    assert ("cycle", 5, 3) in _found(_grouped("  a: {handler: h, group: g, next: [g, END]}\n"))


def test_two_groups_that_lead_to_each_other_are_a_circle() -> None:
    both = "  a: {handler: h, group: g}\n  b: {handler: h, group: k}\n"
    assert "cycle" in [code for code, _, _ in _found(_grouped(both, "{g: {next: k}, k: {next: [g, END]}}"))]


def test_groups_that_lead_to_more_ways_than_there_may_be_are_told() -> None:
    nodes: dict[str, Any] = {"S": {"type": "start", "next": "A"}, "E": {"type": "end"}}
    for place in range(1_001):
        nodes |= {f"a{place}": {"handler": "h", "group": "A"}, f"b{place}": {"handler": "h", "group": "B", "next": "E"}}
    data = {"workflow_id": "w", "groups": {"A": {"next": "B"}}, "nodes": nodes}
    assert [(each.code, each.path) for each in check_document(Document(data)).problems] == [
        ("too_large", ("groups", "A", "next"))
    ]
    nodes["all"] = {"type": "fan_in", "next": "B"}
    assert check_document(Document({**data, "groups": {"A": {"next": "all"}}})).problems == []


def test_a_group_that_nobody_is_in_cannot_be_led_to() -> None:
    assert _found(_with("groups:", "  g: {}").replace("next: END", "next: [g, END]")) == [
        ("unknown_node", 6, 26),
        ("empty_group", 9, 3),
    ]


# References.


def test_outputs_are_seen_over_any_number_of_nodes_and_over_conditionals() -> None:
    text = dedent("""\
        workflow_id: w
        nodes:
          S: {type: start, next: a}
          a: {handler: h, next: c}
          c: {type: conditional, condition_field: "{{ nodes.a.output }}",
              branches: [{condition: "> 1", next: yes1}, {default: true, next: [no1, no2]}]}
          yes1: {handler: h, params: {x: "{{ nodes.a.output.x }}"}, next: z}
          no1: {handler: h, next: z}
          no2: {handler: h, next: z}
          z: {handler: h, params: {x: "{{ nodes.no2.output or nodes['yes1'].output or nodes.a['output'] }}"}, next: E}
          E: {type: end, output: "{{ nodes.S.output }}"}
        """)
    assert _found(text) == []


def test_branches_of_a_conditional_do_not_see_each_other() -> None:
    text = dedent("""\
        workflow_id: w
        nodes:
          S: {type: start, next: c}
          c: {type: conditional, condition_field: 1, branches: [{condition: "> 1", next: a}, {default: true, next: b}]}
          a: {handler: h, next: E}
          b: {handler: h, params: {x: "{{ nodes.a.output }}"}, next: E}
          E: {type: end}
        """)
    assert _found(text) == [("not_upstream", 6, 31)]


@pytest.mark.parametrize(
    ("condition", "codes"),
    [
        ("> inputs.size", []),
        ("== nodes.S.output", []),
        ("> inputs.sise", ["unknown_input"]),
        ("== nodes.E.output", ["not_upstream"]),
        ("{{ nodes.nobody.output > 1 }}", ["unknown_node"]),
        ("== item", ["bad_condition"]),
    ],
)
def test_conditions_see_what_other_expressions_see(condition: str, codes: list[str]) -> None:
    text = (
        "workflow_id: w\ninputs: {size: {}}\nnodes:\n  S: {type: start, next: c}\n  E: {type: end}\n"
        "  c: {type: conditional, condition_field: 1, branches: "
        f'[{{condition: "{condition}", next: E}}, {{default: true, next: E}}]}}\n'
    )
    assert [code for code, _, _ in _found(text)] == codes


@pytest.mark.parametrize(
    ("node", "is_sound"),
    [
        (
            "{type: fan_out, items: [1], task: {handler: h, params: {x: '{{ item }}', n: '{{ index }}'}}, next: END}",
            True,
        ),
        ("{type: fan_out, items: [1], task: {handler: h, concurrency_key: '{{ item }}'}, next: END}", True),
        ("{type: fan_out, items: '{{ item }}', task: {handler: h}, next: END}", False),
        ("{handler: h, params: {x: '{{ index }}'}, next: END}", False),
        ("{type: workflow, workflow: w, inputs: {x: '{{ item }}'}, next: END}", False),
        ("{type: wait, for: event, event: e, match: {x: '{{ item }}'}, next: END}", False),
    ],
)
def test_item_and_index_are_for_the_task_of_a_fan_out(node: str, is_sound: bool) -> None:
    assert [code for code, _, _ in _found(_behind(f"a: {node}"))] == ([] if is_sound else ["bad_expression"])


def test_a_node_with_a_dash_is_named_in_brackets() -> None:
    node = "a-b: {handler: h, next: END}\n  c: {handler: h, params: {x: \"{{ nodes['a-b'].output }}\"}, next: END}"
    text = (
        _behind(node)
        .replace("next: a}", "next: a-b}")
        .replace("a-b: {handler: h, next: END}", "a-b: {handler: h, next: c}")
    )
    assert _found(text) == []


# Handlers, defaults, spans of time.


def test_a_handler_that_is_not_known_is_warned_about_and_refused_when_strict() -> None:
    text = _with("  b: {type: fan_out, items: [1], task: {handler: raster.tiel}, next: END}").replace(
        "next: a}", "next: [a, b]}"
    )
    checked = check_text(text, handlers=["h", "raster.tile"])
    (problem,) = checked.problems
    assert (problem.code, problem.severity, problem.line) == ("unknown_handler", Severity.WARNING, 8)
    assert problem.message == "there is no handler 'raster.tiel'. Did you mean 'raster.tile'?"
    assert checked.is_sound
    strict = check_text(text, handlers=["h", "raster.tile"], strict=True)
    assert [each.severity for each in strict.problems] == [Severity.ERROR]
    assert not strict.is_sound


def test_handlers_that_are_known_are_no_problem_and_those_of_nobody_are_not_asked_about() -> None:
    assert _found(HEAD, handlers=["h"], strict=True) == []
    assert _found(HEAD, handlers=None, strict=True) == []
    assert _found(HEAD, handlers=[], strict=True) == [("unknown_handler", 6, 16)]


@pytest.mark.parametrize("name", ["@fan_out", "@", "a\nb", "\x1b[2J", "a\x85"])
@pytest.mark.parametrize("field", ["handler", "queue"])
def test_no_task_names_what_is_the_engine_s_own_or_changes_a_terminal(field: str, name: str) -> None:
    task = {"handler": "h", field: name}
    nodes = {"S": {"type": "start", "next": "a"}, "E": {"type": "end"}}
    for node in (task, {"type": "fan_out", "items": [1], "task": task}):
        checked = check_document(Document({"workflow_id": "w", "nodes": {**nodes, "a": {**node, "next": "E"}}}))
        assert [problem.code for problem in checked.problems] == ["bad_name"]
        assert "does not begin with @" in checked.problems[0].message
    if field == "queue":
        general = {
            "workflow_id": "w",
            "defaults": {"queue": name},
            "nodes": {**nodes, "a": {"handler": "h", "next": "E"}},
        }
        assert [problem.code for problem in check_document(Document(general)).problems] == ["bad_name"]


@pytest.mark.parametrize("key", ["$blob", "$gathered", "$render"])
def test_no_params_look_like_what_is_kept_in_the_place_of_params(key: str) -> None:
    """In any order of the keys: else two definitions of one hash would be executed differently."""
    for params in ({key: "a" * 64, "size": 1}, {"size": 1, key: "a" * 64}):
        task = {"handler": "h", "params": params}
        for node in (task, {"type": "fan_out", "items": [1], "task": task}):
            nodes = {"S": {"type": "start", "next": "a"}, "a": {**node, "next": "E"}, "E": {"type": "end"}}
            checked = check_document(Document({"workflow_id": "w", "nodes": nodes}))
            assert [(problem.code, problem.path[-1]) for problem in checked.problems] == [("bad_value", key)]


def test_what_is_wrong_with_one_node_is_found_in_a_document_that_is_like_a_sound_one() -> None:
    node: dict[str, Any] = {
        "type": "fan_out",
        "items": [1],
        "task": {"handler": "h", "concurrency_key": "k"},
        "next": "E",
    }
    data = {"workflow_id": "w", "nodes": {"S": {"type": "start", "next": "a"}, "a": node, "E": {"type": "end"}}}
    like = check_document(Document(data)).shape
    node["max_parallel"] = 2
    for changed in (None, {"a"}):
        checked = check_document(Document(data), like=like, changed=changed)
        assert [problem.code for problem in checked.problems] == ["two_limits"]


@pytest.mark.parametrize("span", ["367d", 366 * 86_400 + 1])
@pytest.mark.parametrize("field", ["initial_delay_seconds", "max_delay_seconds"])
def test_no_delay_is_longer_than_a_task_can_wait(field: str, span: object) -> None:
    """Such a policy could not be read by whoever executes the task, and the default would take its place."""
    text = HEAD + f"defaults: {{retry: {{{field}: {span}}}}}\n"
    assert [code for code, _, _ in _found(text)] == ["bad_duration"]
    assert _found(text.replace(str(span), "366d")) == []


def test_defaults_are_checked_like_the_fields_of_a_task() -> None:
    text = HEAD + "defaults: {queue: q, timeout_seconds: 1x, handler: h, retry: {jitter: 2}}\n"
    assert sorted(code for code, _, _ in _found(text)) == ["bad_duration", "bad_value", "unknown_field"]


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("90", 90),
        ("1.5", 1.5),
        ("90s", 90),
        ("15m", 900),
        ("1h30m", 5400),
        ("1h 30m", 5400),
        ("2d", 172_800),
        ("1w", 604_800),
        ("250ms", 0.25),
        ("1.5h", 5400),
        ("90.0", 90),
    ],
)
def test_spans_of_time_are_seconds_however_they_are_written(written: str, seconds: float) -> None:
    definition = read_definition(HEAD + f"timeout_seconds: {written}\n")
    assert definition.timeout_seconds == seconds


@pytest.mark.parametrize("written", "-1 0 0s true [] {} 1y h 1h30 h1 1:30 20001d 1e300 '' ~1 '-5m'".split())
def test_what_is_no_span_of_time_is_refused(written: str) -> None:
    assert _found(HEAD + f"timeout_seconds: {written}\n") == [("bad_duration", 8, 18)]


def test_names_of_the_author_s_own_at_the_top_are_passed_over() -> None:
    text = "x-retry: &retry {max_attempts: 3}\n" + _behind("a: {handler: h, next: END, retry: *retry}")
    assert _found(text) == []
    assert _found("y-retry: 1\n" + HEAD) == [("unknown_field", 1, 1)]


def test_a_problem_in_what_an_alias_repeats_stands_where_the_alias_does() -> None:
    text = "x-retry: &retry {max: 3}\n" + _behind("a: {handler: h, next: END, retry: *retry}")
    assert _found(text) == [("unknown_field", 7, 37)]


def test_plain_data_is_checked_as_well_and_has_no_lines() -> None:
    data = {"workflow_id": "w", "nodes": {"S": {"type": "start", "next": "E"}, "E": {"type": "end"}}}
    assert check_document(Document(data)).is_sound
    (problem,) = check_document(Document({**data, "extra": 1})).problems
    assert (problem.code, problem.path, problem.line) == ("unknown_field", ("extra",), None)


ODD = [None, 5, "x", [], [1], {"a": 1}, True, [{}], [[1]], {"{{": {"{{": "{{"}}, "\n"]


def _is_told(data: Any) -> None:
    checked = check_document(Document(data), handlers=["h"])
    assert checked.is_sound is not any(each.severity is Severity.ERROR for each in checked.problems)


@pytest.mark.parametrize("field", "nodes inputs groups defaults labels timeout_seconds workflow_id version".split())
def test_no_value_in_any_place_is_more_than_a_problem(field: str) -> None:
    sound = {"workflow_id": "w", "nodes": {"S": {"type": "start", "next": "E"}, "E": {"type": "end"}}}
    for value in ODD:
        _is_told({**sound, field: value})
        _is_told({**sound, field: {"x": value}})


@pytest.mark.parametrize(
    "field",
    "type next branches task items params retry group condition_field for match form inputs output handler".split(),
)
def test_no_value_in_any_field_of_a_node_is_more_than_a_problem(field: str) -> None:
    for kind in "task start end conditional fan_out fan_in wait workflow".split():
        for value in ODD:
            node = {"type": kind, field: value}
            _is_told({"workflow_id": "w", "nodes": {"S": {"type": "start", "next": ["E", "n"]}, "n": node}})


EVERY_NODE: dict[str, Any] = {
    "S": {"type": "start", "next": "t"},
    "t": {"handler": "h", "params": {"a": "{{ inputs.i }}"}, "group": "g", "next": "f"},
    "f": {"type": "fan_out", "items": [1], "task": {"handler": "h", "concurrency_key": "k"}, "next": "c"},
    "c": {"type": "fan_in", "next": "d"},
    "d": {"type": "conditional", "condition_field": 1, "branches": [{"default": True, "next": "w"}]},
    "w": {"type": "wait", "for": "event", "event": "e", "next": "s"},
    "s": {"type": "workflow", "workflow": "x", "inputs": {"a": "{{ nodes.t.output }}"}, "next": "E"},
    "E": {"type": "end"},
}
EVERY_FIELD = (
    "type next branches task items params retry group condition_field for event match form inputs output handler queue "
    "max_parallel concurrency_key workflow timeout_seconds on_timeout priority"
).split()
EVERY_VALUE = [
    *ODD, "t", ["E", "t"], "g", 3, "k", "{{ nodes.s.output }}", "{{ inputs.no }}", {"a": "{{ nodes.E.output }}"},
    {"handler": "h"}, [{"condition": "{{ nodes.s.output }}", "next": "E"}, {"default": True, "next": "w"}], "event",
]  # fmt: skip


@pytest.mark.parametrize("name", EVERY_NODE)
def test_what_is_wrong_with_a_changed_node_is_found_whether_the_others_are_known_or_not(name: str) -> None:
    data = {"workflow_id": "w", "inputs": {"i": {}}, "nodes": EVERY_NODE}
    known = check_document(Document(data)).shape
    for field, value in itertools.product(EVERY_FIELD, EVERY_VALUE):
        changed = Document({**data, "nodes": {**EVERY_NODE, name: {**EVERY_NODE[name], field: value}}})
        alone, beside = check_document(changed), check_document(changed, like=known, changed={name})
        errors = [each for each in alone.problems if each.severity is Severity.ERROR]
        assert [each for each in beside.problems if each.severity is Severity.ERROR] == errors, (field, value)


# Reading a definition that must be sound.


def test_a_definition_is_read_from_a_text_from_bytes_and_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "flow.yaml").write_text(TILE_RASTER)
    read = [read_definition(source) for source in (TILE_RASTER, TILE_RASTER.encode(), tmp_path / "flow.yaml")]
    assert read[0] == read[1] == read[2]
    assert read[0].workflow_id == "tile_raster"
    assert list(read[0].nodes) == ["START", "scheme", "tiles", "collect", "END"]


def test_a_definition_with_errors_is_refused_with_all_of_them_and_without_the_warnings(tmp_path: Path) -> None:
    path = tmp_path / "flow.yaml"
    path.write_text(_behind("a: {handler: h, next: [b, c, d]}") + "  d: {handler: h}\n  e: {handler: h, next: END}\n")
    with pytest.raises(InvalidDefinition) as caught:
        read_definition(path)
    assert [problem.code for problem in caught.value.problems] == [
        "unknown_node",
        "unknown_node",
        "unreachable",
        "unreachable",
    ]
    assert str(caught.value).startswith(f"{path}:6:26: error: nodes.a.next[0]: there is no node 'b'.")
    assert str(caught.value).endswith("(and 3 more; see `weft validate`)")


def test_a_file_that_is_not_there_is_told_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"cannot read .*nowhere\.yaml"):
        read_definition(tmp_path / "nowhere.yaml")


# Inputs of a job.

DECLARED = read_definition(
    HEAD.replace(
        "  size: {type: integer, default: 1}\n",
        "  n: {type: integer, minimum: 1, maximum: 9}\n  x: {type: number}\n"
        "  s: {type: string, required: true, pattern: ^a+$}\n"
        "  b: {type: boolean}\n  l: {type: array, min_length: 1, max_length: 2}\n  o: {type: object}\n"
        "  e: {enum: [1, a]}\n  d: {type: string, default: dd}\n",
    )
).inputs


def test_inputs_that_fit_are_taken_and_those_left_out_have_their_defaults() -> None:
    values, problems = check_inputs(DECLARED, {"s": "aa", "n": 3, "x": 1, "l": [1], "o": {}, "e": "a", "b": False})
    assert problems == []
    assert values == {"n": 3, "x": 1, "s": "aa", "b": False, "l": [1], "o": {}, "e": "a", "d": "dd"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n", 0),
        ("n", 10),
        ("n", 1.0),
        ("n", True),
        ("n", "1"),
        ("x", "1"),
        ("x", True),
        ("s", "b"),
        ("s", 1),
        ("s", None),
        ("b", 1),
        ("b", "true"),
        ("l", []),
        ("l", [1, 2, 3]),
        ("l", "a"),
        ("o", []),
        ("e", 2),
        ("e", True),
        ("e", 1.5),
        ("d", 5),
    ],
)
def test_inputs_that_do_not_fit_are_told_by_their_name(name: str, value: Any) -> None:
    _, problems = check_inputs(DECLARED, {"s": "a", name: value})
    assert [(each.code, each.path) for each in problems] == [("bad_value", (name,))]


def test_inputs_that_are_missing_or_unknown_are_all_told() -> None:
    _, problems = check_inputs(DECLARED, {"dd": 1, "zzz": 2})
    assert [(each.code, each.path) for each in problems] == [
        ("unknown_input", ("dd",)),
        ("unknown_input", ("zzz",)),
        ("missing", ("s",)),
    ]


def test_a_pattern_that_takes_for_ever_elsewhere_takes_no_time_here() -> None:
    declared = read_definition(HEAD.replace("integer, default: 1", "string, pattern: ^(a+)+$")).inputs
    _, problems = check_inputs(declared, {"size": "a" * 100_000 + "b"})
    assert [each.code for each in problems] == ["bad_value"]


@pytest.mark.parametrize(
    ("declared", "told"),
    [
        ("{type: integer, minimum: 3, maximum: 1}", "`minimum` is above `maximum`"),
        ("{type: string, min_length: 3, max_length: 1}", "`min_length` is above `max_length`"),
        ("{type: integer, enum: [1, x]}", "must be of type integer, not text"),
    ],
)
def test_an_input_that_no_value_fits_is_told(declared: str, told: str) -> None:
    text = (
        f"workflow_id: w\ninputs: {{a: {declared}}}\nnodes: {{START: {{type: start, next: END}}, END: {{type: end}}}}\n"
    )
    (problem,) = check_text(text).problems
    assert told in problem.message
