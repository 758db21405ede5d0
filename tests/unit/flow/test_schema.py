"""The JSON Schema that editors use and the loader accept and refuse the same, field by field."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jsonschema
import orjson
import pytest

from flow.definitions import EVERYTHING, SPEC_5_MENDED, TILE_RASTER
from weft.flow.document import Document, read_document
from weft.flow.model import NODE_TYPES
from weft.flow.published import json_schema
from weft.flow.validation import check_document

Path = tuple[str | int, ...]
SCHEMA = json_schema()
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
# What the loader finds in fields; the rest is about how nodes hang together, and about expressions.
OF_FIELDS = "missing unknown_field unknown_type bad_value bad_name bad_duration bad_next bad_default no_default".split()
# One of each part, each of a few fields.
SMALL = """\
workflow_id: w
inputs: {input: {}}
groups: {group: {}}
nodes:
  start: {type: start, next: end}
  task: {handler: h}
  fan_out: {type: fan_out, items: [], task: {handler: h}}
  fan_in: {type: fan_in}
  conditional: {type: conditional, condition_field: 1, branches: [{condition: "> 2", next: end}, {default: true, next: end}]}
  wait: {type: wait, for: approval}
  workflow: {type: workflow, workflow: w}
  end: {type: end}
"""  # noqa: E501
PARTS: dict[str, Path] = {
    **{model.__name__: ("nodes", kind) for kind, model in NODE_TYPES.items()},
    "Input": ("inputs", "input"),
    "Group": ("groups", "group"),
    "Defaults": ("defaults",),
    "RetryPolicy": ("defaults", "retry"),
    "TaskSpec": ("nodes", "fan_out", "task"),
    "Branch": ("nodes", "conditional", "branches", 0),
}
TEXTS = [
    "99999d",
    "20000d",
    "480001h",
    "28800000m",
    "",
    "x",
    "a b",
    "a/b",
    "0s",
    "0.0m 0s",
    " 1h 30m",
    "1234567890s",
    "y" * 201,
    "fail",
    "event",
    "integer",
]
NUMBERS = [0, 1, -1, 0.5, 40_000, 2**40]
HOLDERS: list[Any] = [[], [""], ["x", 1], [None], {}, {"a": 1}, {"a": "b"}, {"a": {}}, {"a b": {}}, {"max_attempts": 0}]


def _read(text: str) -> dict[str, Any]:
    data: dict[str, Any] = read_document(text).data
    return data


SMALL_JSON = orjson.dumps(_read(SMALL))


def _verdicts(data: dict[str, Any]) -> tuple[bool, list[str]]:
    """Whether a document fits the schema, and what the loader finds wrong with its fields."""
    errors = [each for each in check_document(Document(data)).problems if each.severity == "error"]
    found = [each.message for each in errors if each.code in OF_FIELDS or "either a condition or" in each.message]
    return VALIDATOR.is_valid(data), found


def _with(path: Path, value: Any) -> dict[str, Any]:
    """The small document with another value at a place, and of its nodes only those that are needed."""
    data: dict[str, Any] = orjson.loads(SMALL_JSON)
    data["nodes"] = {name: node for name, node in data["nodes"].items() if name in ("start", *path)}
    holder: Any = data
    for step in path[:-1]:
        holder = holder.setdefault(step, {}) if isinstance(holder, dict) else holder[step]
    holder[path[-1]] = value
    return data


def _places() -> Iterator[Path]:
    parts: list[tuple[Path, dict[str, Any]]] = [((), SCHEMA)]
    parts += [(place, SCHEMA["$defs"][name]) for name, place in PARTS.items()]
    # A field that several parts have alike is tried in one of them.
    fields = {
        (field, str(said)): (*place, field) for place, part in parts for field, said in part["properties"].items()
    }
    yield from fields.values()
    yield from [("foo",), ("x-foo",), ("nodes", "task", "foo"), ("inputs", "new"), ("groups", "new"), ("nodes", "new")]


def test_any_value_in_any_field_is_accepted_by_both_or_refused_by_both() -> None:
    assert PARTS.keys() == SCHEMA["$defs"].keys()
    differ = []
    for place in _places():
        for value in [None, True, False, *TEXTS, *NUMBERS, *HOLDERS]:
            fits, found = _verdicts(_with(place, value))
            if fits is bool(found):
                differ.append((place, value, fits, found))
    assert differ == []


@pytest.mark.parametrize("text", [SPEC_5_MENDED, TILE_RASTER, EVERYTHING], ids="spec_5 design all".split())
def test_sound_definitions_fit_the_schema(text: str) -> None:
    VALIDATOR.validate(_read(text))


@pytest.mark.parametrize(
    ("place", "value", "is_good"),
    [
        (("inputs", "n"), {"type": "string", "default": 1}, False),
        (("inputs", "n"), {"type": "string", "default": None}, True),
        (("inputs", "n"), {"type": "any", "default": 1}, True),
        (("inputs", "n"), {"default": [1]}, True),
        (("inputs", "n"), {"type": "boolean", "default": 0}, False),
        (("inputs", "n"), {"type": "integer", "default": 1.5}, False),
        (("inputs", "n"), {"type": "string", "minimum": 1}, False),
        (("inputs", "n"), {"type": "string", "minimum": None}, True),
        (("inputs", "n"), {"type": "boolean", "pattern": "x"}, False),
        (("inputs", "a.b"), {}, False),
        (("inputs", "ä"), {}, False),
        (("groups", "a b"), {}, False),
        (("groups", "a/b.c"), {}, True),
        (("nodes", "1st"), {"handler": "h", "next": "end"}, False),
        (("nodes", "a-1"), {"handler": "h", "next": "end"}, True),
        (("nodes", "a" * 201), {"handler": "h", "next": "end"}, False),
        (("nodes", "wait", "event"), "e", False),
        (("nodes", "wait", "form"), {}, True),
        (("nodes", "wait"), {"type": "wait", "for": "event", "event": "e", "form": {}}, False),
        (("nodes", "wait"), {"type": "wait", "for": "event", "next": "end"}, False),
        (("nodes", "wait"), {"type": "wait", "for": "approval", "next": "end"}, True),
        (("nodes", "conditional", "branches"), [{"condition": "> 2", "next": "end"}], False),
        (("nodes", "conditional", "branches"), [{"default": True, "next": "end"}], True),
        (("nodes", "conditional", "branches", 0), {"next": "end"}, False),
        (("nodes", "conditional", "branches", 0), {"condition": "> 2", "default": True, "next": "end"}, False),
        (("nodes", "conditional", "branches", 0), {"condition": "> 2", "default": None, "next": "end"}, True),
        (("nodes", "task", "timeout_seconds"), 20_000 * 86_400, True),
        (("nodes", "task", "timeout_seconds"), 20_000 * 86_400 + 1, False),
        (("nodes", "task", "timeout_seconds"), "٣s", False),
        (("nodes", "task", "timeout_seconds"), "20001d", False),
        (("nodes", "task", "timeout_seconds"), "2857w", True),
        (("nodes", "task", "timeout_seconds"), "2858w", False),
        (("$schema",), "https://example.com/weft.json", True),
        (("$schema",), 5, False),
    ],
)
def test_both_say_what_is_right(place: Path, value: Any, is_good: bool) -> None:
    fits, found = _verdicts(_with(place, value))
    assert (fits, not found) == (is_good, is_good), found


def test_every_field_and_every_part_is_described_in_a_sentence() -> None:
    for part in [SCHEMA, *SCHEMA["$defs"].values()]:
        for what in [part, *part["properties"].values()]:
            assert what["description"][0].isupper(), what
            assert "." in what["description"], what


@pytest.mark.parametrize(
    ("place", "value", "told"),
    [
        (("nodes", "task", "priority"), 1.0, "without a point"),
        (("nodes", "task", "timeout_seconds"), "20000d 1d", "at most 20,000 days"),
        (("inputs", "n"), {"pattern": "(?=x)"}, "Rust's regex"),
        (("inputs", "n"), {"type": "integer", "maximum": 1, "default": 5}, "within its own bounds"),
    ],
)
def test_what_a_schema_cannot_say_it_says_of_itself(place: Path, value: Any, told: str) -> None:
    fits, found = _verdicts(_with(place, value))
    assert (fits, bool(found)) == (True, True)
    assert told in SCHEMA["description"]


def test_a_pattern_is_told_to_be_a_regular_expression() -> None:
    assert SCHEMA["$defs"]["Input"]["properties"]["pattern"]["anyOf"][0]["format"] == "regex"


NOT_OURS = ("should", "pydantic", "valid ", "Input", "greater", "less than", "instance", "None", "True", "refused here")


def test_no_word_of_the_validator_reaches_whoever_wrote_a_field() -> None:
    foreign = []
    for place in _places():
        for value in [None, True, *TEXTS, *NUMBERS, *HOLDERS, 1e300, "y" * 20_000, [5], [{"default": False}]]:
            data = _with(place, value)
            for problem in check_document(Document(data)).problems:
                if problem.code in OF_FIELDS and any(word in problem.message for word in NOT_OURS):
                    foreign.append(str(problem))
                if problem.code not in ("missing", "bad_expression"):
                    _at(data, problem.path)
    assert foreign == []


def _at(data: Any, path: Path) -> Any:
    """What stands at a place of the document: there is no other."""
    for step in path:
        data = data[step]
    return data
