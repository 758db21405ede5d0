"""What may enter the queue as JSON, and what is refused by name."""

from __future__ import annotations

import enum
import json
import math
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import orjson
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.core.checks import check_text
from weft.core.errors import InvalidInput
from weft.core.json import MAX_DEPTH, blob_reference, decode, encode, exact, referenced_blob


class Colour(enum.Enum):
    RED = "red"


class Size(enum.IntEnum):
    BIG = 3


@dataclass
class Point:
    x: Any
    y: Any = None


def _nested(depth: int, around: Any = 1) -> Any:
    for n in range(depth):
        around = [around] if n % 2 else {"k": around}
    return around


texts = st.text(st.characters(exclude_characters="\x00", exclude_categories=("Cs",)))
numbers = st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
keys = texts.filter(lambda key: key != "$blob")
values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(keys, inner, max_size=5),
    max_leaves=30,
)


@given(values)
def test_what_is_json_comes_back_as_it_was(value: Any) -> None:
    assert decode(encode(value, "params")) == value


class Price(pydantic.BaseModel):
    amount: Decimal
    factor: float = 1.0


def test_models_and_common_types_are_written_as_pydantic_writes_them() -> None:
    value = {
        "price": [Price(amount=Decimal("1.10"))],
        "path": Path("/a/b"),
        "span": timedelta(hours=1),
        "d": Decimal(2),
    }
    assert decode(encode(value, "params")) == {
        "price": [{"amount": "1.10", "factor": 1.0}], "path": "/a/b", "span": "PT1H", "d": "2",
    }  # fmt: skip


class Place(NamedTuple):
    x: int
    y: Any


class Metres(float):
    pass


class Unit(enum.StrEnum):
    METRE = "m"


def test_classes_that_extend_those_of_json_are_written_like_them() -> None:
    value = {"at": Place(1, 2), "far": Metres(1.5), Unit.METRE: {Unit.METRE: None}}
    assert decode(encode(value, "params")) == {"at": [1, 2], "far": 1.5, "m": {"m": None}}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"a": Place(1, {2})}, "params.a[1]: is of type set"),
        ({"a": Metres("nan")}, "params.a: is nan"),
        ({Unit.METRE: math.inf}, "params.m: is inf"),
        ({"a": math.nan}, "params.a: is nan"),
        ({"a": [0, {"b": math.inf}]}, r"params.a[1].b: is inf"),
        ([-math.inf], "params[0]: is -inf"),
        (math.nan, "params: is nan"),
        ({"a": None, "b": math.nan}, "params.b: is nan"),
        ({"a": "x\x00y"}, "params.a: has a NUL"),
        ({"x\x00": 1}, "params: has a key that has a NUL"),
        ({"a": "\ud83d"}, "params.a: has a lone surrogate"),
        ({"\udc00": 1}, "params: has a key that has a lone surrogate"),
        ({"a": {1: 2}}, "params.a: has the key 1"),
        ({None: 2}, "params: has the key None"),
        ({(1, 2): 2}, "params: has the key (1, 2)"),
        ({b"a": 2}, "params: has the key b'a'"),
        ({"a": 2**64}, "params.a: is an integer beyond 64 bits"),
        ([-(2**63) - 1], "params[0]: is an integer beyond 64 bits"),
        ({"a": 10**400}, "params.a: is an integer beyond 64 bits"),
        ({"a": {1, 2}}, "params.a: is of type set"),
        ({"a": b"x"}, "params.a: is of type bytes"),
        ({"a": [Price(amount=Decimal(1), factor=math.nan)]}, "params.a[0].factor: is nan"),
        ({"a": Price}, "params.a: is of type ModelMetaclass"),
        ({"a": [1j]}, "params.a[0]: is of type complex"),
        ({"a": range(3)}, "params.a: is of type range"),
        ({"a": object}, "params.a: is of type type"),
        ({"$blob": "x"}, "params: the key '$blob' is reserved"),
        ({"$blob": "x", "more": 1}, "params: the key '$blob' is reserved"),
        ({"$render": {}, "nodes": []}, "params: the key '$render' is reserved"),
        ({"$cached": 1}, "params: the key '$cached' is reserved"),
        (_nested(MAX_DEPTH + 1), f"params: is nested deeper than {MAX_DEPTH} levels"),
        (_nested(300), f"params: is nested deeper than {MAX_DEPTH} levels"),
        (_nested(100_000), f"params: is nested deeper than {MAX_DEPTH} levels"),
    ],
)
def test_what_is_no_json_is_refused_with_its_place(value: Any, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        encode(value, "params")
    assert str(caught.value).startswith(message)


def test_a_value_that_contains_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(InvalidInput, match="params: is nested deeper"):
        encode({"a": loop}, "params")


def test_the_deepest_nesting_that_is_allowed_is_allowed() -> None:
    value = _nested(MAX_DEPTH)
    assert decode(encode(value, "params")) == value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (2**64 - 1, "18446744073709551615"),
        (-(2**63), "-9223372036854775808"),
        ("null", '"null"'),
        ({"null": "\\u0000"}, '{"null":"\\\\u0000"}'),
        ((1, 2), "[1,2]"),
        (datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), '"2026-01-02T03:04:05+00:00"'),
        (date(2026, 1, 2), '"2026-01-02"'),
        (UUID(int=1), '"00000000-0000-0000-0000-000000000001"'),
        (Colour.RED, '"red"'),
        (Size.BIG, "3"),
        (Point(1, "a"), '{"x":1,"y":"a"}'),
        ({"a": 1, "$blob": 2}, '{"a":1,"$blob":2}'),
        ({"a": {"$blob": 2}}, '{"a":{"$blob":2}}'),
        (["$blob"], '["$blob"]'),
    ],
)
def test_some_other_types_have_a_natural_form(value: Any, text: str) -> None:
    assert encode(value, "params") == text


@pytest.mark.parametrize("value", [Colour.RED, Size.BIG, Point(1), datetime(2026, 1, 1, tzinfo=UTC), UUID(int=1)])
def test_a_value_is_accepted_or_refused_whatever_stands_beside_it(value: Any) -> None:
    assert decode(encode({"a": value, "b": None}, "params"))["a"] == decode(encode({"a": value}, "params"))["a"]


@pytest.mark.parametrize(
    "value",
    [Point(math.nan), Point("a\x00"), Point({"deep": [math.inf]}), Point(Point(math.nan))],
    ids=["nan", "nul", "deep", "nested"],
)
def test_what_is_refused_is_refused_inside_a_dataclass_too(value: Point) -> None:
    with pytest.raises(InvalidInput, match=r"params.a.x"):
        encode({"a": value}, "params")


def test_nothing_is_changed_on_the_way() -> None:
    class Loud(str):
        __slots__ = ()

    assert decode(encode({"a": Loud("x"), "b": True, "c": 1.0, "d": -0.0}, "params")) == {
        "a": "x",
        "b": True,
        "c": 1.0,
        "d": 0,
    }


def test_a_reference_to_a_blob_is_known_by_its_beginning() -> None:
    digest = "ab" * 32
    reference = blob_reference(digest, 12)
    assert referenced_blob(reference) == digest
    assert decode(reference) == {"$blob": digest, "size": 12}
    for text in ("{}", '{"a":1}', '"{\\"$blob\\":1}"', '{"a":{"$blob":"x"}}', "null", "[]"):
        assert referenced_blob(text) is None


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("", "must not be empty"),
        ("x" * 11, "has 11 characters, and may have 10"),
        (5, "must be text, not int"),
        (None, "must be text, not NoneType"),
        (b"x", "must be text, not bytes"),
        ("a\x00", "has a NUL character"),
        ("\ud800", "has a lone surrogate"),
    ],
)
def test_a_name_that_cannot_be_stored_is_refused(value: Any, problem: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        check_text(value, "handler", 10)
    assert str(caught.value).startswith(f"handler: {problem}")
    assert caught.value.field == "handler"


@given(st.text(min_size=1, max_size=10))
def test_any_other_text_is_a_name(value: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError:
        return
    if "\x00" not in value:
        assert check_text(value, "name", 10) == value


@given(st.lists(st.decimals(allow_nan=False, allow_infinity=False) | st.integers() | st.booleans() | st.text()))
def test_numbers_of_rows_are_written_as_they_are(values: list[Any]) -> None:
    written = orjson.dumps(exact([{"row": values}])).decode()
    assert json.loads(written, parse_float=Decimal) == [{"row": values}]
