"""The text of a definition becomes plain data, as YAML 1.2 means it, within limits, and each part knows its line."""

from __future__ import annotations

import gc
import json
import re
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.flow.document import (
    MAX_BYTES,
    MAX_DEPTH,
    MAX_REPEATED,
    MAX_VALUES,
    Document,
    Unreadable,
    read_document,
)
from weft.flow.problems import Path
from weft.flow.validation import check_text
from weft.flow.writing import write_yaml


def _value(text: str) -> Any:
    document = read_document(f"a: {text}\n")
    assert document.problems == []
    return document.data["a"]


def _refusal(text: str | bytes) -> tuple[str, int | None, int | None, str]:
    with pytest.raises(Unreadable) as caught:
        read_document(text)
    problem = caught.value.problem
    return problem.code, problem.line, problem.column, problem.message


def _notes(text: str) -> list[tuple[str, int | None, int | None]]:
    return [(problem.code, problem.line, problem.column) for problem in read_document(text).problems]


@pytest.mark.parametrize(
    "word",
    "no No NO yes on off y n On OFF 1:30 12:30:45 2026-01-02 2026-01-02T03:04:05Z 1_000 0b101 0o8 0xg 1.2.3 + . .e5 e5 "
    "1e +0x1 nulll True! tRUE ~a = 08h -0o7 .infinity nan inf NaN".split(),
)
def test_what_yaml_1_2_does_not_know_stays_text(word: str) -> None:
    assert _value(word) == word


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("0", 0),
        ("-0", 0),
        ("+7", 7),
        ("-12", -12),
        ("017", 17),
        ("0o17", 15),
        ("0xfF", 255),
        ("9223372036854775807", 2**63 - 1),
        ("18446744073709551615", 2**64 - 1),
        ("0xffffffffffffffff", 2**64 - 1),
        ("-9223372036854775808", -(2**63)),
        ("1.0", 1.0),
        ("-.5", -0.5),
        ("+1.", 1.0),
        ("1e3", 1000.0),
        ("12.5E-1", 1.25),
        ("true", True),
        ("False", False),
        ("TRUE", True),
        ("null", None),
        ("Null", None),
        ("~", None),
        ("", None),
    ],
)
def test_numbers_and_words_have_the_types_of_yaml_1_2(word: str, value: Any) -> None:
    found = _value(word)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize("text", ['"no"', "'12'", '"true"', "'null'", '""', "!!str 12", "|-\n  12", ">-\n  true"])
def test_what_is_quoted_or_in_a_block_is_text(text: str) -> None:
    assert type(_value(text)) is str


def test_json_is_read_as_it_is() -> None:
    value = {"a": [1, 1.5, -2e-3, True, False, None, 'é\n\t"\\', {"b": {}}, []], "": "x", "é": "/"}
    assert read_document(json.dumps(value)).data == value
    value["é"] = "\U0001f600"
    assert read_document(json.dumps(value, ensure_ascii=False, indent=2)).data == value


@pytest.mark.parametrize(
    "data",
    [
        {"a": "x\x85y\u2028z"},
        {"\x85": 1},
        {"k" * 2_000: {"b" * 1_500: [1, 1.5, None, True, "\U0001f600", '"\\']}},
        [],
        {},
    ],
    ids=["breaks", "break in a key", "long keys", "list", "mapping"],
)
def test_json_is_read_by_its_own_rules(data: Any) -> None:
    for text in (orjson.dumps(data).decode(), json.dumps(data, indent=1), json.dumps(data).replace(":", "\t:\r\n")):
        document = read_document(text)
        assert (document.data, document.problems) == (data, [])


def test_places_in_json_are_those_of_its_lines() -> None:
    text = '{"a": "x\x85\u2028",\r\n "' + "k" * 2_000 + '": {"b": [1,\n  99999999999999999999]},\n "c": 1, "c": 2}'
    document = read_document(text)
    assert [(problem.code, problem.line, problem.column) for problem in document.problems] == [
        ("bad_value", 3, 3), ("duplicate_key", 4, 10),
    ]  # fmt: skip
    assert document.locate(("k" * 2_000, "b", 0)) == (2, 2013)
    assert document.locate(("k" * 2_000,), key=True) == (2, 2)
    assert document.locate(("c",)) == (4, 7)


@pytest.mark.parametrize("indent", [None, 2])
def test_places_in_json_are_those_that_yaml_gives(indent: int | None) -> None:
    data = {"a": [1, {"b": "c\n"}, [], "x"], "d": {"e": {}, "f": -1.5e3}, "g": None}
    text = json.dumps(data, indent=indent)
    as_json, as_yaml = read_document(text), read_document(text + " # no JSON")
    for path in [(), ("a",), ("a", 1), ("a", 1, "b"), ("a", 3), ("d", "e"), ("d", "f"), ("g",)]:
        for key in (False, True):
            assert as_json.locate(path, key=key) == as_yaml.locate(path, key=key)


def test_keys_are_text_whatever_they_look_like() -> None:
    assert read_document("1: a\ntrue: b\nnull: c\n1.5: d\n").data == {
        "1": "a",
        "true": "b",
        "null": "c",
        "1.5": "d",
    }


@pytest.mark.parametrize("key", ["[a]", "{a: b}", "? [a, b]\n", "? {a: 1}\n"])
def test_a_key_that_is_no_text_is_refused(key: str) -> None:
    code, line, _, message = _refusal(f"{key}: x\n")
    assert (code, line) == ("syntax", 1)
    assert "a key must be text" in message


def test_an_alias_as_a_key_is_refused() -> None:
    assert _refusal("a: &x y\n*x : z\n")[:3] == ("syntax", 2, 1)


def test_a_key_that_stands_twice_is_told_with_its_second_place() -> None:
    assert _notes("a: 1\nb:\n  c: 1\n  d: 2\n  c: 3\na: 2\n") == [("duplicate_key", 5, 3), ("duplicate_key", 6, 1)]
    assert _notes('{a: 1, "a": 2}') == [("duplicate_key", 1, 8)]


def test_an_alias_repeats_what_its_anchor_stands_for() -> None:
    document = read_document("a: &x {k: [1, 2]}\nb: *x\nc: [*x, *x]\nd: &y 5\ne: *y\n")
    assert document.problems == []
    assert document.data == {"a": (x := {"k": [1, 2]}), "b": x, "c": [x, x], "d": 5, "e": 5}


def test_an_anchor_that_is_set_again_stands_for_the_later_value_from_there_on() -> None:
    assert read_document("[&x 1, *x, &x 2, *x]").data == [1, 1, 2, 2]


def test_merge_keys_give_what_the_mapping_does_not_say_itself() -> None:
    document = read_document("x: &x {a: 1, b: 1}\ny: &y {b: 2, c: 2}\nz:\n  c: 3\n  <<: [*x, *y]\n  d: 4\n")
    assert document.problems == []
    assert document.data["z"] == {"a": 1, "b": 1, "c": 3, "d": 4}


def test_several_merge_keys_are_taken_one_after_the_other() -> None:
    assert read_document("z: {<<: {a: 1}, <<: {a: 2, b: 2}}").data == {"z": {"a": 1, "b": 2}}


def test_a_merge_key_in_quotes_is_a_key() -> None:
    assert read_document('"<<": 1').data == {"<<": 1}


@pytest.mark.parametrize("merged", ["5", "[1]", "text", "[{}, 1]"])
def test_only_mappings_can_be_merged(merged: str) -> None:
    assert [code for code, _, _ in _notes(f"z: {{<<: {merged}}}")] == ["syntax"]


def test_ten_lines_of_aliases_do_not_become_a_billion_values() -> None:
    lines = ["a0: &a0 [ha, ha, ha, ha, ha, ha, ha, ha, ha, ha]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    code, line, _, message = _refusal("\n".join(lines))
    assert (code, line) == ("too_large", 5)
    assert f"{MAX_REPEATED:,}" in message


def test_merge_keys_do_not_grow_past_the_limit_either() -> None:
    lines = ["a0: &a0 {" + ", ".join(f"k{n}: 1" for n in range(100)) + "}"]
    lines += [f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 20)}]}}" for n in range(1, 6)]
    assert _refusal("\n".join(lines))[0] == "too_large"


@pytest.mark.parametrize("text", ["a: &a [*a]", "a: &a {b: *a}", "&a [[*a]]", "&a {<<: *a}"])
def test_nothing_can_contain_itself(text: str) -> None:
    code, line, _, message = _refusal(text)
    assert (code, line) == ("syntax", 1)
    assert "*a stands for nothing" in message


def test_an_alias_without_an_anchor_is_refused_at_its_place() -> None:
    assert _refusal("a: 1\nb: [2, *nobody]\n")[:3] == ("syntax", 2, 8)


@pytest.mark.parametrize(("left", "right"), [("[", "]"), ("{a: ", "}")])
def test_the_deepest_nesting_that_is_allowed_is_allowed_and_one_more_is_not(left: str, right: str) -> None:
    assert read_document(left * MAX_DEPTH + "1" + right * MAX_DEPTH).problems == []
    too_deep = left * (MAX_DEPTH + 1) + "1" + right * (MAX_DEPTH + 1)
    assert _refusal(too_deep)[:3] == ("too_deep", 1, MAX_DEPTH * len(left) + 1)


def test_aliases_do_not_nest_deeper_than_brackets_may() -> None:
    half = MAX_DEPTH // 2
    text = "[&a {a}{z}, &b {a}*a{z}, {a}*b{z}]".replace("{a}", "[" * half).replace("{z}", "]" * half)
    code, line, _, _ = _refusal(text)
    assert (code, line) == ("too_deep", 1)
    fewer = text.replace("[" * half, "[" * 30).replace("]" * half, "]" * 30)
    assert read_document(fewer).problems == []


def test_very_deep_brackets_are_refused_without_a_crash() -> None:
    assert _refusal("[" * 100_000)[0] in ("too_deep", "syntax")


def test_a_text_beyond_the_largest_size_is_not_read() -> None:
    for text in (b"#" * (MAX_BYTES + 1), "#" * (MAX_BYTES + 1)):
        code, line, _, message = _refusal(text)
        assert (code, line) == ("too_large", None)
        assert f"{MAX_BYTES:,}" in message


def test_a_document_has_at_most_so_many_values() -> None:
    code, _, _, message = _refusal("[" + "1," * (MAX_VALUES + 1) + "]")
    assert code == "too_large"
    assert f"{MAX_VALUES:,}" in message


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("a: !!python/object/apply:os.system [ls]", 4),
        ("a: !!python/name:os.system ''", 4),
        ("a: !!int '5'", 4),
        ("a: !!binary aGk=", 4),
        ("a: !!set {a, b}", 4),
        ("a: !own {b: 1}", 4),
        ("!!python/object:a.B key: 1", 1),
        ("!<tag:example.com,2000:x> {a: 1}", 1),
    ],
)
def test_tags_are_refused_and_never_acted_on(text: str, column: int) -> None:
    problems = read_document(text).problems
    assert [(each.code, each.line, each.column) for each in problems] == [("syntax", 1, column)]
    assert "are not used here" in problems[0].message


def test_tags_that_say_nothing_new_are_let_be() -> None:
    assert read_document("!!map {a: !!seq [!!str b], !!str c: 1}").data == {"a": ["b"], "c": 1}


def test_a_second_document_is_refused_where_it_begins() -> None:
    code, line, column, message = _refusal("---\na: 1\n---\nb: 2\n")
    assert (code, line, column) == ("syntax", 3, 1)
    assert "a file of its own" in message


def test_the_signs_of_one_document_are_let_be() -> None:
    assert read_document("%YAML 1.2\n---\na: 1\n...\n# the end\n").data == {"a": 1}


@pytest.mark.parametrize("text", ["", "\n\n", "# nothing but this\n", "\ufeff"])
def test_an_empty_text_is_no_document(text: str) -> None:
    assert _refusal(text)[3] == "the document is empty"


def test_bytes_that_are_not_utf_8_are_refused_with_the_first_of_them() -> None:
    code, _, _, message = _refusal(b"a: caf\xe9\n")
    assert code == "syntax"
    assert "not UTF-8" in message
    assert "byte 6" in message
    assert _refusal("a: b\n".encode("utf-16"))[0] == "syntax"


def test_a_byte_order_mark_is_passed_over() -> None:
    for text in (b"\xef\xbb\xbfa: 1\n", "\ufeffa: 1\n"):
        document = read_document(text)
        assert document.data == {"a": 1}
        assert document.locate(("a",)) == (1, 4)


@pytest.mark.parametrize(
    ("text", "words"),
    [("a: \x00", "NUL"), ("a: \ud800", "lone surrogate"), ("a: \x07", "not allow"), ("a: \x1b[31m", "not allow")],
)
def test_characters_that_have_no_business_in_a_text_are_refused(text: str, words: str) -> None:
    code, _, _, message = _refusal(text)
    assert code == "syntax"
    assert words in message


@pytest.mark.parametrize(
    "word",
    ".inf -.inf +.Inf .INF .nan .NaN .NAN 1e999 -1e999 18446744073709551616 -9223372036854775809 0x10000000000000000 "
    f"{'9' * 5000} 0x{'f' * 5000}".split(),
)
def test_what_json_cannot_hold_is_told_with_its_place(word: str) -> None:
    assert _notes(f"a:\n  - {word}\n") == [("bad_value", 2, 5)]


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        ("a: [1, 2\nb: 3\n", 2, 2),
        ("a: 'open\n", 2, 1),
        ("a:\n\t- b\n", 2, 1),
        ("a: b: c\n", 1, 5),
        ("a: @x\n", 1, 4),
        ("a: *\n", 1, 5),
        ('a: "\\q"\n', 1, 5),
        ("}", 1, 1),
    ],
)
def test_a_mistake_in_the_syntax_is_told_with_its_place(text: str, line: int, column: int) -> None:
    assert _refusal(text)[:3] == ("syntax", line, column)


PLACES = """\
a: 1
b:
  c: &shared
    d: [x, {e: y}]
  'f g':   "h"
g: *shared
h:
  <<: *shared
  i: 2
"""


@pytest.mark.parametrize(
    ("path", "value", "key"),
    [
        ((), (1, 1), (1, 1)),
        (("a",), (1, 4), (1, 1)),
        (("b",), (3, 3), (2, 1)),
        (("b", "c"), (3, 6), (3, 3)),
        (("b", "c", "d"), (4, 8), (4, 5)),
        (("b", "c", "d", 0), (4, 9), (4, 9)),
        (("b", "c", "d", 1), (4, 12), (4, 12)),
        (("b", "c", "d", 1, "e"), (4, 16), (4, 13)),
        (("b", "f g"), (5, 12), (5, 3)),
        (("g",), (6, 4), (6, 1)),
        (("h", "i"), (9, 6), (9, 3)),
    ],
)
def test_each_value_and_each_key_knows_its_place(path: Path, value: tuple[int, int], key: tuple[int, int]) -> None:
    document = read_document(PLACES)
    assert document.locate(path) == value
    assert document.locate(path, key=True) == key


@pytest.mark.parametrize(
    ("path", "place"),
    [
        (("b", "c", "d", 7), (4, 8)),
        (("b", "nobody", "at", "all"), (3, 3)),
        (("nobody",), (1, 1)),
        (("g", "d", 0), (6, 4)),
        (("h", "d"), (8, 3)),
        (("a", "deeper"), (1, 4)),
    ],
)
def test_what_is_not_there_is_located_where_it_would_be(path: Path, place: tuple[int, int]) -> None:
    document = read_document(PLACES)
    assert document.locate(path) == place
    assert document.locate(path, key=True) == place


def test_a_key_that_stands_twice_is_located_where_it_stands_first() -> None:
    assert read_document("a: 1\na: 2\n").locate(("a",)) == (1, 4)


def test_the_collector_is_as_it_was_after_a_document_was_checked() -> None:
    for switch, was_enabled in ((gc.disable, False), (gc.enable, True)):
        switch()
        for text in ("a: 1", "a: [", "nodes: {}"):
            check_text(text)
            assert gc.isenabled() is was_enabled


def test_data_without_a_text_has_no_places() -> None:
    assert Document({"a": 1}).locate(("a",)) is None


ODD = """12e03 0o14 1E5 1e-5 +.5e3 yes no 1:30 ~ null 2026-11-16 .nan 0x1F True << = ' " """.split()
TEXTS = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=8) | st.sampled_from(
    [*ODD, "", " ", "a: b", "# x", "- x", "9" * 30, "\u0085", "a\nb\n", "{{ inputs.x }}", "\U0001f600", "\t"]
)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=10,
)


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(TEXTS, VALUES, max_size=4))
def test_what_is_written_as_yaml_reads_back_as_what_it_was(data: dict[str, Any]) -> None:
    read = read_document(write_yaml(data) if data else "{}")
    assert read.problems == []
    assert orjson.dumps(read.data) == orjson.dumps(data)


def test_json_as_python_writes_it_is_read_whatever_it_holds() -> None:
    data = {"a": "\U0001f600 \\ud83d\\ude00", "b\U0001f600": "\\\U0001f600"}
    assert read_document(json.dumps(data)).data == data


@pytest.mark.parametrize("text", ['{"a": "x\\u0000y"}', '{"x\\u0000": 1}', 'a: "x\\0y"'])
def test_a_nul_is_told_where_it_stands(text: str) -> None:
    (problem,) = read_document(text).problems
    assert "NUL" in problem.message
    assert problem.line == 1


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity"])
def test_numbers_that_json_does_not_have_are_refused_in_what_is_written_as_json(word: str) -> None:
    document = read_document(f'{{\n  "a": [1, {word}]\n}}')
    (problem,) = document.problems
    assert (problem.code, problem.line, problem.column) == ("bad_value", 2, 12)
    assert problem.message.startswith(f"{word} is no number that JSON has")
    assert read_document(f'{{"a": "{word}"}}').problems == []
    assert read_document(f"a: {word}\n").data == {"a": word}


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a: b: c\n", 1, "a `:` stands where no mapping can begin"),
        ("a:\n\t- b\n", 2, "indent by blanks"),
        ("a: @b\n", 1, "no text begins with this character"),
        ('a: "b\n', 2, "a text in quotes has no end"),
        ('a: "\\q"\n', 1, "a `\\` in double quotes"),
        ("a: [1, 2\nb: 3\n", 2, "a `,` or the `]` of the list is missing"),
        ("a: {b: 1\nc: 3", 2, "a `,` or the `}` of the mapping is missing"),
        ("a: {x: [}\n", 1, "a value is missing here"),
        ('{"a": 1,, "b": 2}', 1, "a value is missing here"),
        ("- a\nb: c\n", 2, "none of its items: look at the indentation"),
        ("a: 1\n b: 2\n", 2, "a `:` stands where"),
        ("a:\n  b: 1\n c: 2\n", 3, "a key of the mapping belongs here"),
        ("a\nb: 1\n", 2, ""),
        ("a: &\n", 1, "the name of an anchor"),
        ("%FOO\n", 1, ""),
        ("a: !<x\n", 1, "tags such as"),
        ("a: | b\n", 1, "the text begins on the next line"),
    ],
)
def test_no_word_of_the_parser_reaches_whoever_wrote_yaml(text: str, line: int, words: str) -> None:
    with pytest.raises(Unreadable) as caught:
        read_document(text)
    problem = caught.value.problem
    assert words in problem.message
    assert not re.search("token|scalar|stream|expected|scanning|parsing|context|indicator", problem.message)
    assert (problem.code, problem.line) == ("syntax", line), problem
