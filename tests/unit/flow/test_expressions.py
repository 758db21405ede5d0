"""Expressions are Jinja over JSON: types are kept, what is wrong is told, and nothing grows without bound."""

from __future__ import annotations

import re
from typing import Any

import pytest

from weft.flow.budget import MAX_SIZE, MAX_STEPS, Budget, ExpressionError
from weft.flow.conditions import COMPARED, is_whole, read_condition
from weft.flow.expressions import MAX_FIELDS, MAX_TEXT, NAMES, has_expression, read_expression, read_template
from weft.flow.filters import FILTERS, TESTS
from weft.flow.templates import read_value

ROWS = [{"n": 3, "t": "c", "in": {"x": 1}}, {"n": 1, "t": "a", "in": {"x": 2}}, {"n": 2, "t": "b", "in": {"x": 1}}]
VALUES: dict[str, Any] = {
    "inputs": {
        "n": 7, "x": 2.5, "t": "Hello World", "l": [3, 1, 2], "o": {"a": 1, "b": [True]}, "yes": True, "no": False,
        "none": None, "empty": [], "rows": ROWS, "path": "a/b/c.tif", "json": '{"a": [1, 2.5, null]}', "zero": 0,
    },
    "nodes": {"fetch": {"output": {"rows": [1, 2]}}, "a-b": {"output": 5}},
    "item": {"id": 9},
    "index": 4,
    "job": {"id": "12"},
}  # fmt: skip


def _evaluated(text: str) -> Any:
    return read_template(text).evaluate(VALUES)


def _is(text: str, value: Any) -> None:
    found = _evaluated("{{ " + text + " }}")
    assert found == value
    assert type(found) is type(value)


def _refused(text: str, words: str = "") -> None:
    with pytest.raises(ExpressionError) as caught:
        _evaluated(text if "{{" in text else "{{ " + text + " }}")
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{{ inputs.n }}", 7),
        ("{{inputs.n}}", 7),
        ("{{- inputs.n -}}", 7),
        ("{{ inputs.x }}", 2.5),
        ("{{ inputs.yes }}", True),
        ("{{ inputs.none }}", None),
        ("{{ inputs.l }}", [3, 1, 2]),
        ("{{ inputs.o }}", {"a": 1, "b": [True]}),
        ("{{ nodes.fetch.output.rows }}", [1, 2]),
        ("{{ nodes['fetch'].output['rows'][1] }}", 2),
        ("{{ nodes['a-b'].output }}", 5),
        ("{{ item.id }}", 9),
        ("{{ index }}", 4),
        ("{{ job.id }}", "12"),
        ("{{ [inputs.n, {'k': inputs.l}] }}", [7, {"k": [3, 1, 2]}]),
        ("{{ (1, 2) }}", [1, 2]),
        ("{{ {1: 2, true: 3} }}", {"1": 2, "true": 3}),
        ("{{ none }}", None),
        ("{{ 'text' }}", "text"),
    ],
)
def test_a_text_that_is_one_expression_keeps_the_type_of_its_value(text: str, value: Any) -> None:
    found = _evaluated(text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("n={{ inputs.n }}", "n=7"),
        (" {{ inputs.n }}", " 7"),
        ("{{ inputs.n }} ", "7 "),
        ("{{ inputs.n }}{{ index }}", "74"),
        ("{{ inputs.t }}!", "Hello World!"),
        ("{{ inputs.yes }}.", "true."),
        ("{{ inputs.none }}.", "null."),
        ("{{ inputs.l }}.", "[3,1,2]."),
        ("{{ inputs.o }}.", '{"a":1,"b":[true]}.'),
        ("{# a remark #}{{ inputs.n }}.", "7."),
        ("a {# a remark #}b", "a b"),
        ("line\n{{ index }}\n", "line\n4\n"),
        ("<b>{{ '<&>' }}</b>", "<b><&></b>"),
        ("plain", "plain"),
    ],
)
def test_anything_else_becomes_text_with_values_as_json(text: str, value: str) -> None:
    assert _evaluated(text) == value


def test_only_what_has_an_expression_or_a_remark_is_looked_at() -> None:
    assert all(has_expression(text) for text in ("{{ a }}", "{% a %}", "{# a #}"))
    assert not any(has_expression(text) for text in ("{ a }", "a }}", ""))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("inputs.n + 1", 8),
        ("inputs.n + 0.5", 7.5),
        ("'a' + 'b'", "ab"),
        ("[1] + [2]", [1, 2]),
        ("inputs.n - 10", -3),
        ("inputs.n * 2", 14),
        ("'ab' * 3", "ababab"),
        ("2 * 'ab'", "abab"),
        ("[1] * 2", [1, 1]),
        ("'a' * -1", ""),
        ("7 / 2", 3.5),
        ("8 / 2", 4.0),
        ("7 // 2", 3),
        ("-7 // 2", -4),
        ("7 % 4", 3),
        ("2 ** 10", 1024),
        ("2 ** -1", 0.5),
        ("-inputs.n", -7),
        ("+inputs.n", 7),
        ("1 ~ 'a' ~ true ~ [1]", "1atrue[1]"),
        ("1 < 2 < 3", True),
        ("1 < 3 < 2", False),
        ("'a' < 'b'", True),
        ("[1, 2] < [1, 3]", True),
        ("2 >= 2.0", True),
        ("2 <= 1", False),
        ("2 > 1", True),
        ("1 == 1.0", True),
        ("1 == true", False),
        ("0 == false", False),
        ("'1' == 1", False),
        ("none == none", True),
        ("[1, {'a': 2}] == [1, {'a': 2}]", True),
        ("1 != 2", True),
        ("1 in inputs.l", True),
        ("true in [1]", False),
        ("'a' in inputs.o", True),
        ("1 in inputs.o", False),
        ("'World' in inputs.t", True),
        ("9 not in inputs.l", True),
        ("true and 'x'", "x"),
        ("0 and nodes.nobody", 0),
        ("'' or 'x'", "x"),
        ("1 or nodes.nobody", 1),
        ("not inputs.empty", True),
        ("1 if inputs.yes else 2", 1),
        ("1 if inputs.no else 2", 2),
        ("1 if inputs.no", ""),
        ("inputs.l[0]", 3),
        ("inputs.l[-1]", 2),
        ("inputs.t[0]", "H"),
        ("inputs.l[1:]", [1, 2]),
        ("inputs.l[::-1]", [2, 1, 3]),
        ("inputs.t[:5]", "Hello"),
        ("inputs.t[1:8:2]", "el o"),
        ("inputs.o[inputs.path[0]]", 1),
        ("inputs.rows[1].in.x", 2),
        ("range(3)", [0, 1, 2]),
        ("range(1, 4)", [1, 2, 3]),
        ("range(4, 0, -2)", [4, 2]),
        ("range(5, 0)", []),
    ],
)
def test_operators_mean_what_they_mean_in_jinja(text: str, value: Any) -> None:
    _is(text, value)


@pytest.mark.parametrize(
    "text",
    [
        "1 + 'a'", "'a' + 1", "[1] + 1", "{} + {}", "none + 1", "true + 1", "'a' - 'b'", "'a' * 'b'", "'a' * 1.5",
        "[1] * true", "'a' / 2", "1 / 0", "1 // 0", "1 % 0", "0 ** -1", "2 ** 1025", "(-8) ** 0.5",
        "10 ** 300 * 10 ** 300",
        "2 ** 63", "9223372036854775807 + 1", "-(-9223372036854775807 - 1)", "1e308 * 10", "9223372036854775808",
        "1e999", "-'a'", "+none", "1 < 'a'", "none < 1", "true < false", "{} < {}", "[1] < ['a']", "1 in 5",
        "1 in none",
        "1 in 'text'", "inputs.l[::0]", "inputs.l['a':]", "5[1:]", "range()", "range('a')", "range(1, 2, 0)",
        "range(1.5)",
        "range(1, 2, 3, 4)", "range(true)", "range(start=1)", "range(*inputs.l)", "inputs.l[1:2, 3]", "inputs.l[[1:2]]",
    ],
)  # fmt: skip
def test_operators_refuse_what_they_are_not_for(text: str) -> None:
    _refused(text)


FILTER_CASES: list[tuple[str, Any]] = [
    ("-5 | abs", 5),
    ("-2.5 | abs", 2.5),
    ("inputs.path | basename", "c.tif"),
    ("'a/b/' | basename", "b"),
    ("inputs.path | dirname", "a/b"),
    ("[1, 2, 3] | batch(2)", [[1, 2], [3]]),
    ("'hELLO' | capitalize", "Hello"),
    ("inputs.l | count", 3),
    ("inputs.nobody | d(5)", 5),
    ("inputs.nobody | d", ""),
    ("inputs.nobody | default('x')", "x"),
    ("inputs.nobody.deeper[3].still | default('x')", "x"),
    ("inputs.n | default('x')", 7),
    ("inputs.none | default('x')", None),
    ("inputs.none | default('x', true)", "x"),
    ("inputs.zero | default(4, boolean=true)", 4),
    ("inputs.l | first", 3),
    ("'abc' | first", "a"),
    ("inputs.empty | first | default(0)", 0),
    ("[[1], 2, [3, [4]]] | flatten", [1, 2, 3, [4]]),
    ("'2.5' | float", 2.5),
    ("1 | float", 1.0),
    ("'x' | float(0.5)", 0.5),
    ("inputs.json | fromjson", {"a": [1, 2.5, None]}),
    ("inputs.rows | groupby('in.x')", [[1, [ROWS[0], ROWS[2]]], [2, [ROWS[1]]]]),
    ("'42' | int", 42),
    ("' 42 ' | int", 42),
    ("2.9 | int", 2),
    ("true | int", 1),
    ("'x' | int(5)", 5),
    ("none | int(default=5)", 5),
    ("inputs.o | items", [["a", 1], ["b", [True]]]),
    ("inputs.l | join", "312"),
    ("inputs.l | join(', ')", "3, 1, 2"),
    ("inputs.rows | join('-', attribute='t')", "c-a-b"),
    ("inputs.o | keys", ["a", "b"]),
    ("inputs.l | last", 2),
    ("inputs.t | length", 11),
    ("inputs.o | length", 2),
    ("'ab' | list", ["a", "b"]),
    ("inputs.o | list", ["a", "b"]),
    ("inputs.t | lower", "hello world"),
    ("inputs.rows | map(attribute='n')", [3, 1, 2]),
    ("inputs.rows | map(attribute='in.x') | sum", 4),
    ("inputs.rows | map(attribute='q', default=0)", [0, 0, 0]),
    ("[[1, 2], [3, 4]] | map(attribute=1)", [2, 4]),
    ("[[1, 2], [3, 4]] | map(attribute='1')", [2, 4]),
    ("['a', 'b'] | map('upper')", ["A", "B"]),
    ("[1, 2] | map('string') | map('replace', '1', 'x')", ["x", "2"]),
    ("[[3, 1], [2]] | map('sort') | map('first')", [1, 2]),
    ("inputs.l | max", 3),
    ("inputs.l | min", 1),
    ("inputs.rows | max(attribute='n')", ROWS[0]),
    ("inputs.rows | min(attribute='n')", ROWS[1]),
    ("[0, 1, 2] | reject", [0]),
    ("[1, 2, 3] | reject('even')", [1, 3]),
    ("inputs.rows | rejectattr('n', 'gt', 1)", [ROWS[1]]),
    ("'aXbX' | replace('X', '-')", "a-b-"),
    ("'aXbX' | replace('X', '-', 1)", "a-bX"),
    ("[1, 2] | reverse", [2, 1]),
    ("'ab' | reverse", "ba"),
    ("2.567 | round(1)", 2.6),
    ("2.5 | round", 2.0),
    ("1234 | round(-2)", 1200.0),
    ("[0, 1, '', 'a', none] | select", [1, "a"]),
    ("[1, 2, 3] | select('odd')", [1, 3]),
    ("[1, 2, 3] | select('in', [1, 3])", [1, 3]),
    ("inputs.rows | selectattr('n')", ROWS),
    ("inputs.rows | selectattr('in.x', 'eq', 1)", [ROWS[0], ROWS[2]]),
    ("inputs.rows | selectattr('q', 'defined')", []),
    ("inputs.l | sort", [1, 2, 3]),
    ("inputs.l | sort(reverse=true)", [3, 2, 1]),
    ("inputs.rows | sort(attribute='t') | map(attribute='n')", [1, 2, 3]),
    ("'a,b' | split(',')", ["a", "b"]),
    ("' a  b ' | split", ["a", "b"]),
    ("'a,b,c' | split(',', 1)", ["a", "b,c"]),
    ("inputs.l | string", "[3,1,2]"),
    ("5 | string", "5"),
    ("[1, 2.5] | sum", 3.5),
    ("[] | sum", 0),
    ("[1] | sum(start=10)", 11),
    ("inputs.rows | sum('n')", 6),
    ("'hello world' | title", "Hello World"),
    ("inputs.o | tojson", '{"a":1,"b":[true]}'),
    ("'é' | tojson", '"é"'),
    ("' a ' | trim", "a"),
    ("'abcdefgh' | truncate(5)", "ab..."),
    ("'abcdefgh' | truncate(5, '')", "abcde"),
    ("'abc' | truncate(5)", "abc"),
    ("[1, 1.0, true, 1, 'a', 'a'] | unique", [1, 1.0, True, "a"]),
    ("inputs.rows | unique('in.x') | map(attribute='n')", [3, 1]),
    ("'a' | upper", "A"),
    ("'a b/ü' | urlencode", "a%20b%2F%C3%BC"),
    ("inputs.o | values", [1, [True]]),
]


@pytest.mark.parametrize(("text", "value"), FILTER_CASES)
def test_filters_do_what_they_do_in_jinja(text: str, value: Any) -> None:
    _is(text, value)


def test_every_filter_is_tried() -> None:
    used = {part.strip().split("(")[0].split(" ")[0] for text, _ in FILTER_CASES for part in text.split(" | ")[1:]}
    assert used == set(FILTERS)


@pytest.mark.parametrize(
    "text",
    [
        "'a' | abs", "5 | basename", "5 | batch(2)", "[1] | batch(0)", "[1] | batch('a')", "5 | capitalize",
        "5 | count",
        "none | dirname", "5 | first", "[] | first", "[] | last", "5 | flatten", "'x' | float", "'nan' | float",
        "'inf' | float", "[] | float", "'1e999' | float", "'{' | fromjson", "5 | fromjson", "'NaN' | fromjson",
        "[{}] | groupby('x')", "'x' | int", "[] | int", "'9223372036854775808' | int", "[1] | items", "5 | join",
        "[1] | join(5)", "5 | keys", "5 | length", "none | list", "5 | lower", "[{}] | map(attribute='x')",
        "[1] | map('nobody')", "[1] | map('upper')", "[1] | map(5)", "[1, 'a'] | max", "[] | min",
        "[1] | reject('nobody')",
        "[1] | select('nobody')", "[{}] | selectattr('a')", "[{}] | selectattr('a', 'eq', 1)", "5 | replace('a', 'b')",
        "'a' | replace('a')", "'a' | replace(1, 2)", "'a' | replace('a', 'b', 'c')", "5 | reverse", "'a' | round",
        "1 | round(30)", "1 | round('a')", "[1, 'a'] | sort", "[none, 1] | sort", "[{}, {}] | sort", "'a' | split('')",
        "'a' | split(1)", "'a' | split(',', 'x')", "['a'] | sum", "5 | sum", "5 | title", "inputs.nobody | tojson",
        "5 | trim", "'abc' | truncate(1)", "'abc' | truncate('a')", "5 | unique", "5 | upper", "5 | urlencode",
        "[1] | values", "1 | nobody", "'a' | upper(1)", "'a' | upper(x=1)", "[1] | map('upper', x=1)",
        "[1] | sort(nobody=1)",
        "'a' | center(10)", "'a' | attr('x')", "'a' | format(1)", "'a' | xmlattr", "'a' | pprint", "'a' | safe",
    ],
)  # fmt: skip
def test_filters_refuse_what_they_are_not_for(text: str) -> None:
    _refused(text)


TEST_CASES: list[tuple[str, bool]] = [
    ("true is boolean", True), ("1 is boolean", False), ("[1] is containing 1", True), ("'ab' is contains 'a'", True),
    ("inputs.n is defined", True), ("inputs.nobody is defined", False), ("inputs.nobody.deeper is not defined", True),
    ("9 is divisibleby 3", True), ("9 is divisibleby(2)", False), ("'ab' is endingwith 'b'", True), ("1 is eq 1", True),
    ("1 is equalto true", False), ("2 is even", True), ("3 is even", False), ("false is false", True),
    ("0 is false", False), ("1.0 is float", True), ("1 is float", False), ("2 is ge 2", True), ("2 is gt 1", True),
    ("2 is greaterthan 2", False), ("1 is in [1]", True), ("'a' is in 'abc'", True), ("1 is integer", True),
    ("1.0 is integer", False), ("true is integer", False), ("1 is le 1", True), ("1 is lt 2", True),
    ("2 is lessthan 1", False),
    ("{} is mapping", True), ("[] is mapping", False), ("1 is ne 2", True), ("none is none", True),
    ("0 is none", False),
    ("1.5 is number", True), ("true is number", False), ("3 is odd", True), ("[] is sequence", True),
    ("'a' is sequence", True),
    ("{} is sequence", False), ("'ab' is startingwith 'a'", True), ("'a' is string", True), ("1 is string", False),
    ("true is true", True), ("1 is true", False), ("inputs.nobody is undefined", True), ("1 is not odd", False),
]  # fmt: skip


@pytest.mark.parametrize(("text", "value"), TEST_CASES)
def test_tests_say_what_they_say_in_jinja(text: str, value: bool) -> None:
    _is(text, value)


def test_every_test_is_tried() -> None:
    used = {text.replace("is not", "is").split(" is ")[1].split(" ")[0].split("(")[0] for text, _ in TEST_CASES}
    assert used == {name for name in TESTS if name.isalpha()}


@pytest.mark.parametrize("sign", ["==", "!=", "<", "<=", ">", ">="])
def test_comparisons_can_be_named_by_their_sign_in_select(sign: str) -> None:
    expected = [
        n for n in (1, 2, 3) if {"==": n == 2, "!=": n != 2, "<": n < 2, "<=": n <= 2, ">": n > 2, ">=": n >= 2}[sign]
    ]
    _is(f"[1, 2, 3] | select('{sign}', 2)", expected)


@pytest.mark.parametrize(
    "text",
    [
        "1 is divisibleby 0", "'a' is divisibleby 2", "1 is containing 1", "5 is endingwith 'a'",
        "'a' is startingwith 5",
        "'a' is even", "none is odd", "1 is gt 'a'", "none is lt 1", "1 is in 5", "inputs.nobody is string",
        "inputs.nobody is none", "inputs.nobody is eq 1", "1 is nobody", "1 is even(2)", "1 is callable",
        "1 is sameas 1",
        "'a' is filter", "'a' is escaped",
    ],
)  # fmt: skip
def test_tests_refuse_what_they_are_not_for(text: str) -> None:
    _refused(text)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("{{ inputs.nobody }}", "inputs.nobody"),
        ("{{ inputs.nobody.deeper }}", "inputs.nobody.deeper"),
        ("{{ inputs.l[9] }}", "inputs.l[9]"),
        ("{{ inputs.n.deeper }}", "inputs.n.deeper"),
        ("{{ inputs['no body'] }}", "inputs.no body"),
        ("{{ inputs[inputs.t] }}", "inputs[…]"),
        ("{{ nodes.late.output }}", "nodes.late.output"),
        ("a {{ inputs.nobody }}", "inputs.nobody"),
        ("{{ inputs.nobody + 1 }}", "inputs.nobody"),
        ("{{ inputs.nobody == 1 }}", "inputs.nobody"),
        ("{{ not inputs.nobody }}", "inputs.nobody"),
        ("{{ inputs.nobody and 1 }}", "inputs.nobody"),
        ("{{ [inputs.nobody] }}", "inputs.nobody"),
        ("{{ {'a': inputs.nobody} }}", "inputs.nobody"),
        ("{{ 1 if inputs.nobody else 2 }}", "inputs.nobody"),
        ("{{ inputs.nobody | length }}", "inputs.nobody"),
        ("{{ 'a' | replace('a', inputs.nobody) }}", "inputs.nobody"),
    ],
)
def test_a_value_that_is_not_there_is_told_by_its_name_wherever_it_is_used(text: str, name: str) -> None:
    _refused(text, f"{name} is not there; give another value with `| default(...)`")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{{ nodes.a.output.n | default(nodes.b.output.n) }}", 1),
        ("{{ nodes.b.output.n | default(nodes.a.output.n) }}", 1),
        ("{{ nodes.b.output.n | default(nodes.c.output.n) | default(nodes.a.output.n) }}", 1),
        ("{{ nodes.b.output.n | d(other=nodes.c.output.n) | d(2) }}", 2),
        ("{{ nodes.b.output.n | default(nodes.c.output.n) is defined }}", False),
    ],
)
def test_of_several_ways_the_one_that_was_taken_gives_the_value(text: str, value: Any) -> None:
    """What stands behind the value that is there need not be there: its branch was not taken."""
    values = {"nodes": {"a": {"output": {"n": 1}}, "b": {"output": None}, "c": {"output": None}}}
    assert read_template(text).evaluate(values) == value
    with pytest.raises(ExpressionError, match=r"nodes\.c\.output\.n is not there"):
        read_template("{{ nodes.b.output.n | default(nodes.c.output.n) }}").evaluate(values)


def test_names_that_have_no_value_are_not_there() -> None:
    with pytest.raises(ExpressionError, match="item is not there"):
        read_template("{{ item }}").evaluate({})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{{ 1 + }}", "`}}` stands where a value belongs"),
        ("{{ (1 }}", "`}` stands where `)` belongs"),
        ("{{ 1) }}", "`)` closes nothing that was opened"),
        ("{{ inputs", "the text ends inside of an expression: `}}` is missing"),
        ("{{ }}", "there is nothing in `{{ }}`"),
        ("{{ 'a }}", "a text that begins with ' has no end"),
        ("{{ inputs.a && 1 }}", "`&` has no meaning here. Write `and`"),
        ("{{ inputs.a || 1 }}", "Write `or`"),
        ("{{ inputs.a = 1 }}", "`=` stands where `}}` belongs. Write `==` to compare"),
        ("{{ inputs[] }}", "in `[ ]` stands one name in quotes, or one number"),
        ("{{ inputs. }}", "after `.` stands the name of a field, or a number"),
        ("{{ '\\x1' }}", "a text has a `\\` that stands for no character"),
        ("{{ 1 | default(a=1, 2) }}", "arguments with a name come after those without"),
        ("{{ 1 is defined is defined }}", "`is` stands once"),
        ("{# a", "a comment `{#` has no `#}`"),
        ("{{ nobody }}", "there is no name 'nobody' here. There are inputs, nodes, item, index, job."),
        ("{{ imputs.a }}", "Did you mean 'inputs'?"),
        ("{{ inputs.n() }}", "calls are not for expressions here"),
        ("{{ inputs.t.upper() }}", "calls are not for expressions here"),
        ("{{ dict(a=1) }}", "calls are not for expressions here"),
        ("{% if 1 %}a{% endif %}", "statements"),
        ("{% set a = 1 %}{{ a }}", "statements"),
        ("{{ 1 | upper(*inputs.l) }}", "`*` and `**`"),
        ("{{ 1 | upper(**inputs.o) }}", "`*` and `**`"),
        ("{{ 'a\\x00b' }}", "has a NUL"),
        ("{{ '\\ud800' }}", "lone surrogate"),
        ("{{ inputs['\\ud800'] }}", "lone surrogate"),
        ("{{ " + "9" * 5000 + " }}", "beyond 64 bits"),
        ("{{ '" + "a" * MAX_TEXT + "' }}", f"may have {MAX_TEXT:,}"),
        ("{{ inputs" + ".a" * (MAX_FIELDS + 1) + " }}", f"more than {MAX_FIELDS} fields"),
        ("{{ inputs" + ".a" * MAX_TEXT + " }}", f"may have {MAX_TEXT:,}"),
        ("{{ " + "(" * 500 + "1" + ")" * 500 + " }}", "nested too deep"),
        ("{{ 1" + "+1" * 2000 + " }}", "nested too deep"),
    ],
)
def test_what_cannot_be_read_is_told_when_it_is_read(text: str, words: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        read_template(text)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("text", "references"),
    [
        ("{{ inputs.a }}", ["inputs.a"]),
        ("{{ nodes.a.output.b.c }}", ["nodes.a.output.b.c"]),
        ("{{ nodes['a-b'].output[0] }}", ["nodes.a-b.output.0"]),
        ("{{ nodes[inputs.which].output }}", ["nodes.None.output", "inputs.which"]),
        ("{{ inputs.a if inputs.b else job.id }}", ["inputs.a", "inputs.b", "job.id"]),
        ("{{ inputs.a | default(inputs.b) | join(inputs.c) }}", ["inputs.a", "inputs.b", "inputs.c"]),
        ("{{ inputs.a is in inputs.b }}", ["inputs.a", "inputs.b"]),
        ("{{ [inputs.a, {'k': inputs.b}, range(inputs.c)] }}", ["inputs.a", "inputs.b", "inputs.c"]),
        ("{{ inputs.a[inputs.b:inputs.c] }}", ["inputs.a", "inputs.b", "inputs.c"]),
        ("{{ -inputs.a < inputs.b ~ inputs.c }}", ["inputs.a", "inputs.b", "inputs.c"]),
        ("a {{ item }} b {{ index }}", ["item", "index"]),
        ("{{ inputs }}", ["inputs"]),
        ("{{ 'inputs.a' }}", []),
        ("no expression", []),
    ],
)
def test_all_that_an_expression_refers_to_is_known_before_it_is_evaluated(text: str, references: list[str]) -> None:
    assert sorted(str(each) for each in read_template(text).references) == sorted(references)


def test_an_expression_without_braces_knows_its_references_too() -> None:
    assert [str(each) for each in read_expression("inputs.a > nodes.b.output").references] == [
        "inputs.a",
        "nodes.b.output",
    ]


def test_only_the_names_that_are_given_can_be_used() -> None:
    assert NAMES == ("inputs", "nodes", "item", "index", "job")
    with pytest.raises(ExpressionError, match="there is no name 'item' here"):
        read_template("{{ item }}", ("inputs",))
    assert read_template("{{ inputs.a }}", ("inputs",)).evaluate({"inputs": {"a": 1}}) == 1


# Conditions.


@pytest.mark.parametrize(
    ("condition", "value", "holds"),
    [
        ("< 100", 99, True),
        ("< 100", 100, False),
        ("<= 100", 100, True),
        ("> 1.5", 2, True),
        (">= 3", 2, False),
        ("== 'tif'", "tif", True),
        ("!= 'tif'", "png", True),
        ("in ['a', 'b']", "b", True),
        ("not in ['a', 'b']", "b", False),
        ("is none", None, True),
        ("is not even", 3, True),
        ("is in [1]", 1, True),
        (" < inputs.n", 3, True),
        ("== value", 5, True),
        ("> 1 and value < 5", 3, True),
        ("{{ inputs.n > 5 }}", None, True),
        ("  {{ inputs.yes }}  ", None, True),
        ("{{- inputs.no -}}", None, False),
    ],
)
def test_a_condition_compares_the_field_or_is_an_expression_of_its_own(condition: str, value: Any, holds: bool) -> None:
    assert read_condition(condition).evaluate({**VALUES, "value": value}) is holds


@pytest.mark.parametrize(
    "condition",
    ["", "100", "small", "= 1", "<", "< 1 }} {{ 2", "inputs.n > 5", "island == 1", "{{ 1 }} or {{ 2 }}", "{{ 1 }} text",
     "{{ 1", "== item", "{{ item }}", "{{ value }}", "< 1 %}", "== nobody"],
)  # fmt: skip
def test_what_is_no_condition_is_refused_when_it_is_read(condition: str) -> None:
    with pytest.raises(ExpressionError):
        read_condition(condition)


def test_a_whole_condition_needs_no_field() -> None:
    assert is_whole(" {{ inputs.n }}")
    assert not is_whole("< 5")
    assert "value" in COMPARED


# Whole values.


def test_expressions_are_evaluated_at_any_depth_of_a_value() -> None:
    template = read_value(
        {"a": "{{ inputs.n }}", "b": ["x", {"c": "n={{ index }}", "d": 5}], "e": {"f": None}}, ("params",)
    )
    assert template.render(VALUES) == {"a": 7, "b": ["x", {"c": "n=4", "d": 5}], "e": {"f": None}}
    assert [(path, str(reference)) for path, reference in template.references] == [
        (("params", "a"), "inputs.n"),
        (("params", "b", 1, "c"), "index"),
    ]


def test_a_value_without_expressions_is_itself() -> None:
    value = {"a": [1, "text", {"b": None}]}
    template = read_value(value)
    assert template.render({}) is value
    assert template.references == ()


def test_keys_are_not_evaluated() -> None:
    assert read_value({"{{ inputs.n }}": 1}).render(VALUES) == {"{{ inputs.n }}": 1}


def test_what_is_broken_is_told_with_its_place_and_the_rest_is_read() -> None:
    told: list[tuple[Any, str]] = []
    template = read_value(
        {"a": "{{ 1 + }}", "b": ["{{ nobody }}", "{{ inputs.n }}"]}, ("p",), NAMES, lambda *each: told.append(each)
    )
    assert [path for path, _ in told] == [("p", "a"), ("p", "b", 0)]
    assert [path for path, _ in template.references] == [("p", "b", 1)]
    with pytest.raises(ExpressionError):
        read_value({"a": "{{ 1 + }}"})


# What an expression may cost.


def test_values_are_counted_before_they_are_touched() -> None:
    expression = read_template("{{ range(100) | list | length }}")
    assert expression.evaluate({}, Budget(steps=200)) == 100
    with pytest.raises(ExpressionError, match="goes through more than"):
        expression.evaluate({}, Budget(steps=199))


def test_characters_are_counted_before_they_are_made() -> None:
    expression = read_template("{{ 'ab' * 50 }}")
    assert expression.evaluate({}, Budget(size=100)) == "ab" * 50
    with pytest.raises(ExpressionError, match="makes a text of more than"):
        expression.evaluate({}, Budget(size=99))


def test_one_budget_can_serve_several_expressions() -> None:
    template = read_value(["{{ 'a' * 60 }}", "{{ 'b' * 60 }}"])
    with pytest.raises(ExpressionError, match="makes a text"):
        template.render({}, Budget(size=100))


@pytest.mark.parametrize(
    "text",
    [
        f"{{{{ range({MAX_STEPS + 1}) }}}}",
        f"{{{{ 'a' * {MAX_SIZE + 1} }}}}",
        "{{ [[[[1] * 300] * 300] * 300] * 300 }}",
        "{{ ([[[[1] * 300] * 300] * 300] * 300) ~ '' }}",
        "{{ ([[[[1] * 300] * 300] * 300] * 300) == ([[[[1] * 300] * 300] * 300] * 300) }}",
        "{{ (['a' * 8000000] * 3) | map('reverse') }}",
    ],
)
def test_what_would_grow_past_every_bound_is_refused(text: str) -> None:
    _refused(text, "more than")


def test_what_is_compared_is_counted_by_what_it_takes() -> None:
    """Each look at a list of lists goes through both: a sort of many would take seconds."""
    rows = [[place % 7] * 50 for place in range(300)]
    values = {"inputs": {"rows": rows, "many": rows * 10}}
    assert read_template("{{ inputs.rows | sort | first }}").evaluate(values) == [0] * 50
    assert read_template("{{ inputs.many == inputs.many }}").evaluate(values) is True
    with pytest.raises(ExpressionError, match="goes through more than"):
        read_template("{{ inputs.rows | sort | first }}").evaluate(values, Budget(steps=50_000))
    with pytest.raises(ExpressionError, match="goes through more than"):
        read_template("{{ inputs.many | sort | first }}").evaluate(values)


def test_a_value_that_was_there_before_may_have_any_size() -> None:
    large = [["x"] * 1000] * 10_000
    assert read_template("{{ inputs.large }}").evaluate({"inputs": {"large": large}}) is large
    assert read_template("{{ inputs['large'] }}").evaluate({"inputs": {"large": large}}) is large


def test_a_value_that_is_nested_too_deep_is_refused() -> None:
    deep = "[" * 250 + "]" * 250
    for text in (
        "{{ inputs.deep | fromjson }}",
        "x{{ inputs.deep | fromjson }}",
        "{{ inputs.deep | fromjson | tojson }}",
    ):
        with pytest.raises(ExpressionError, match="nested deeper"):
            read_template(text).evaluate({"inputs": {"deep": deep}})


def test_evaluating_changes_no_value() -> None:
    before = repr(VALUES)
    for text, _ in FILTER_CASES:
        _evaluated("{{ " + text + " }}")
    assert repr(VALUES) == before


BAD = """
{{|{{ }}|{{ a b }}|{{ inputs. }}|{{ inputs.a|{{ inputs.a }|{{ (inputs.a }}|{{ inputs.a) }}|{{ [1, 2 }}|{{ {1: } }}
{{ 'abc }}|{{ inputs.a ¦ }}|{{ ¦ upper }}|{{ inputs.a ¦ nofilter }}|{{ inputs.a is }}|{{ inputs.a is no }}|{{ 1 + }}
{{ * 2 }}|{{ inputs.a $ 2 }}|{{ inputs.a ? 1 : 2 }}|{{ inputs.a && 1 }}|{{ inputs.a ¦¦ 2 }}|{{ !inputs.a }}
{{ inputs.a = 2 }}|{{ inputs.a === 2 }}|{% if x %}|{% if x %}a{% endif %}|{% foo %}|{# open|{{ inputs['a }}
{{ inputs[ }}|{{ inputs[] }}|{{ inputs.a[1:2:3:4] }}|{{ f(1) }}|{{ inputs.a(1) }}|{{ inputs.a ¦ default( }}
{{ inputs.a ¦ default(1, }}|{{ inputs.a ¦ default(*x) }}|{{ 1..2 }}|{{ 1e }}|{{ 0x }}|{{ 'a\\x1' }}|{{ '\\N{foo}' }}
{{ lambda: 1 }}|{{ x for x in y }}
{{ not }}|{{ if }}|{{ inputs.a if }}|{{ inputs.a if true else }}|{{ inputs.a is not }}|{{ 1 is odd is odd }}|{{ @a }}
{{ `a` }}|{{ ü% }}|{{ inputs.1a }}|{{ inputs.a; }}|{{ {'a' 1} }}|{{ {'a': 1, , } }}|{{ inputs.a not }}
{{ 1 ¦ default(a=1, 2) }}|{{ loop }}|{{ 'a' ~ }}|{{ inputs.a }} {{|{%|{% set a = 1 %}|{{ super() }}|{{ -}}|{% for %}
{% block a-b %}{% endblock %}|{{ inputs.a[1 }}|{%- endif %}|{{ **a }}|{{ (1, ) = 1}}|{{ true false }}|{{ a‚b }}
"""
NOT_OURS = re.compile(
    "jinja|template|print statement|statement block|token|unexpected|encountered|identifier|tag", re.I
)


@pytest.mark.parametrize(
    "text", [each.replace("¦", "|") for line in BAD.split("\n") if line for each in line.split("|")]
)
def test_no_word_of_the_parser_reaches_whoever_wrote_an_expression(text: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        read_template(text)
    assert NOT_OURS.search(str(caught.value)) is None, caught.value


@pytest.mark.parametrize("condition", ["< ", "== 'a", "< 1)", "in [1", "is", "{{ 1 + }}", "== 1 2", "< @"])
def test_what_is_wrong_with_a_condition_is_told_as_it_stands_there(condition: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        read_condition(condition)
    assert "}}" not in str(caught.value)
    assert NOT_OURS.search(str(caught.value)) is None, caught.value
