"""Patches are RFC 6902's: applied whole or not at all, and what cannot be applied is named."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.core.errors import InvalidInput
from weft.flow.patches import (
    MAX_BYTES,
    MAX_COPIED,
    MAX_OPS,
    apply_beside,
    apply_ops,
    check_ops,
    op_for,
    ops_between,
    ops_setting,
    path_of,
    pointer_of,
    same,
    touched_nodes,
)
from weft.flow.problems import dotted, path_in

keys = st.sampled_from(["a", "b", "/", "~", "~1", "", "0", "-", "é"]) | st.text("ab/~01", max_size=3)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([0.0, 1.0, -1.5]) | st.text("ab~/", max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=12,
)


@st.composite
def operations_on(draw: st.DrawFn, value: Any) -> list[dict[str, Any]]:
    """Operations that can be applied: each changes, adds, moves or copies what is there when its turn comes."""
    ops: list[dict[str, Any]] = []
    for _ in range(draw(st.integers(1, 5))):
        now = apply_ops(copy.deepcopy(value), ops) if ops else value
        places = list(_places(now, ()))
        kind = draw(st.sampled_from(["add", "replace", "remove", "move", "copy", "test"]))
        path = draw(st.sampled_from(places))
        op: dict[str, Any] = {"op": kind, "path": pointer_of(path)}
        if kind == "add":
            path = (*path, "-" if isinstance(_at(now, path), list) else draw(keys))
            op["path"] = pointer_of(path)
        if kind in ("add", "replace"):
            op["value"] = draw(values)
        if kind == "test":
            op["value"] = _at(now, path)
        if kind in ("move", "copy"):
            op["from"] = pointer_of(draw(st.sampled_from(places)))
        try:
            apply_ops(copy.deepcopy(now), [op])
        except InvalidInput:
            continue
        ops.append(op)
    return ops


def _places(value: Any, path: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    yield path
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, entry in entries:
        yield from _places(entry, (*path, key))


def _at(value: Any, path: tuple[Any, ...]) -> Any:
    for part in path:
        value = value[part]
    return value


@settings(max_examples=200, deadline=None)
@given(values, values)
def test_the_operations_between_two_documents_make_one_of_the_other(old: Any, new: Any) -> None:
    ops = ops_between(old, new)
    assert same(apply_ops(copy.deepcopy(old), ops), new)
    assert (ops == []) is same(old, new)
    if ops:
        assert check_ops(ops) == ops


@settings(max_examples=200, deadline=None)
@given(values, st.data())
def test_a_document_that_is_patched_beside_stays_as_it_was(value: Any, data: st.DataObject) -> None:
    whole, before = value, copy.deepcopy(value)
    for _ in range(data.draw(st.integers(1, 4))):
        ops = data.draw(operations_on(whole))
        expected = apply_ops(copy.deepcopy(whole), ops)
        patched = apply_beside(whole, ops)
        assert same(patched, expected)
        assert same(value, before)
        whole = patched


@pytest.mark.parametrize("extra", [None, 5, "/gone", {}])
def test_what_an_operation_has_no_use_for_is_not_read(extra: Any) -> None:
    ops = check_ops([{"op": "replace", "path": "/nodes/a/x", "value": 2, "from": extra}])
    assert touched_nodes(ops) == {"a"}
    assert apply_beside({"nodes": {"a": {"x": 1}}}, ops) == {"nodes": {"a": {"x": 2}}}


def test_what_a_patch_beside_does_not_touch_is_one_with_the_document() -> None:
    document = {"nodes": {"a": {"x": [1, {"y": 2}]}, "b": {}}, "inputs": {}}
    ops = check_ops(
        [
            {"op": "move", "from": "/nodes/a", "path": "/nodes/c"},
            {"op": "replace", "path": "/nodes/c/x/1/y", "value": 3},
        ]
    )
    patched: Any = apply_beside(document, ops)
    assert patched["nodes"] == {"b": {}, "c": {"x": [1, {"y": 3}]}}
    assert document["nodes"]["a"] == {"x": [1, {"y": 2}]}  # type: ignore[index]
    assert patched["inputs"] is document["inputs"]
    assert patched["nodes"]["b"] is document["nodes"]["b"]  # type: ignore[index]


@given(values)
def test_nothing_lies_between_a_document_and_itself(value: Any) -> None:
    assert ops_between(value, copy.deepcopy(value)) == []


@given(st.lists(keys, max_size=4).map(tuple))
def test_a_pointer_leads_back_to_its_path(path: tuple[str, ...]) -> None:
    assert path_of(pointer_of(path)) == path


def test_what_differs_is_told_field_by_field_and_lists_as_a_whole() -> None:
    old = {"a": {"x": 1, "y": [1, 2]}, "b": 1, "gone": 0}
    new = {"a": {"x": 1, "y": [1, 3]}, "b": 1.0, "new~/": None}
    assert ops_between(old, new) == [
        {"op": "remove", "path": "/gone"},
        {"op": "replace", "path": "/a/y", "value": [1, 3]},
        {"op": "replace", "path": "/b", "value": 1.0},
        {"op": "add", "path": "/new~0~1", "value": None},
    ]


def test_one_is_neither_one_point_nought_nor_true() -> None:
    assert not any(
        same(one, other) for one, other in ((1, 1.0), (1, True), (0, False), (0, None), ("1", 1), ([1], [True]))
    )
    assert same({"a": 1, "b": 2}, {"b": 2, "a": 1})


@pytest.mark.parametrize(
    ("data", "ops", "result"),
    [
        ({"a": 1}, [{"op": "add", "path": "/b", "value": 2}], {"a": 1, "b": 2}),
        ({"a": 1}, [{"op": "add", "path": "/a", "value": 2}], {"a": 2}),
        ({"a": [1, 3]}, [{"op": "add", "path": "/a/1", "value": 2}], {"a": [1, 2, 3]}),
        ({"a": [1]}, [{"op": "add", "path": "/a/1", "value": 2}], {"a": [1, 2]}),
        ({"a": [1]}, [{"op": "add", "path": "/a/-", "value": [2]}], {"a": [1, [2]]}),
        ({"a": 1}, [{"op": "add", "path": "", "value": {"b": 2}}], {"b": 2}),
        ({"a": 1, "b": 2}, [{"op": "remove", "path": "/a"}], {"b": 2}),
        ({"a": [1, 2, 3]}, [{"op": "remove", "path": "/a/1"}], {"a": [1, 3]}),
        ({"a": None}, [{"op": "replace", "path": "/a", "value": 1}], {"a": 1}),
        ({"a": [1, 2]}, [{"op": "replace", "path": "/a/0", "value": 5}], {"a": [5, 2]}),
        ({"a": 1}, [{"op": "replace", "path": "", "value": [1]}], [1]),
        ({"a": {"b": 1}}, [{"op": "move", "from": "/a/b", "path": "/c"}], {"a": {}, "c": 1}),
        ({"a": [1, 2, 3]}, [{"op": "move", "from": "/a/0", "path": "/a/2"}], {"a": [2, 3, 1]}),
        ({"a": 1}, [{"op": "move", "from": "/a", "path": "/a"}], {"a": 1}),
        (
            {"a": [1]},
            [{"op": "copy", "from": "/a", "path": "/b"}, {"op": "add", "path": "/b/-", "value": 2}],
            {"a": [1], "b": [1, 2]},
        ),
        ({"a": 1}, [{"op": "test", "path": "/a", "value": 1}, {"op": "remove", "path": "/a"}], {}),
        ({"a": 1}, [{"op": "test", "path": "/a", "value": 1.0}], {"a": 1}),
        ({"a": {"b": [1, {}]}}, [{"op": "test", "path": "/a", "value": {"b": [1, {}]}}], {"a": {"b": [1, {}]}}),
        ({"a": None}, [{"op": "test", "path": "/a", "value": None}], {"a": None}),
        (
            {"a/b": 1, "c~d": 2},
            [{"op": "remove", "path": "/a~1b"}, {"op": "replace", "path": "/c~0d", "value": 3}],
            {"c~d": 3},
        ),
        (
            {"~1": 1, "/": 2},
            [{"op": "test", "path": "/~01", "value": 1}, {"op": "test", "path": "/~1", "value": 2}],
            {"~1": 1, "/": 2},
        ),
        ({"": 1}, [{"op": "replace", "path": "/", "value": 2}], {"": 2}),
        ({"0": {"-": 1}}, [{"op": "remove", "path": "/0/-"}], {"0": {}}),
        (
            {"a": 1},
            [{"op": "add", "path": "/b", "value": 1, "because": "extra members are passed over"}],
            {"a": 1, "b": 1},
        ),
    ],
)
def test_operations_do_what_rfc_6902_says(data: Any, ops: list[dict[str, Any]], result: Any) -> None:
    assert check_ops(ops) == ops
    assert same(apply_ops(data, ops), result)


@pytest.mark.parametrize(
    ("op", "words"),
    [
        ({"op": "remove", "path": "/nobody"}, "cannot remove /nobody: there is no /nobody"),
        ({"op": "replace", "path": "/nobody", "value": 1}, "cannot replace /nobody"),
        ({"op": "add", "path": "/nobody/x", "value": 1}, "cannot add /nobody/x"),
        ({"op": "add", "path": "/list/4", "value": 1}, "cannot add /list/4"),
        ({"op": "add", "path": "/list/-1", "value": 1}, "cannot add /list/-1"),
        ({"op": "add", "path": "/list/01", "value": 1}, "cannot add /list/01"),
        ({"op": "add", "path": "/list/x", "value": 1}, "cannot add /list/x"),
        ({"op": "add", "path": "/list/1e0", "value": 1}, "cannot add /list/1e0"),
        ({"op": "remove", "path": "/list/-"}, "cannot remove /list/-"),
        ({"op": "remove", "path": "/list/3"}, "cannot remove /list/3"),
        ({"op": "replace", "path": "/list/-", "value": 1}, "cannot replace /list/-"),
        ({"op": "remove", "path": ""}, "cannot remove"),
        ({"op": "add", "path": "/text/0", "value": "x"}, "cannot add /text/0"),
        ({"op": "add", "path": "/number/x", "value": "x"}, "cannot add /number/x"),
        ({"op": "add", "path": "/none/x", "value": "x"}, "cannot add /none/x"),
        ({"op": "add", "path": "/~2", "value": 1}, "cannot add /~2"),
        ({"op": "move", "from": "/nobody", "path": "/x"}, "cannot move /nobody"),
        ({"op": "move", "from": "/map", "path": "/map/in"}, "cannot move /map"),
        ({"op": "copy", "from": "/list/9", "path": "/x"}, "cannot copy /list/9"),
        ({"op": "test", "path": "/number", "value": 6}, "the test of /number fails: it is 5"),
        ({"op": "test", "path": "/number", "value": "5"}, "the test of /number fails: it is 5"),
        ({"op": "test", "path": "/yes", "value": 1}, "the test of /yes fails: it is True"),
        ({"op": "test", "path": "/list", "value": [1, 2]}, "the test of /list fails: it is [1, 2, 3]"),
        ({"op": "test", "path": "/nobody", "value": None}, "the test of /nobody fails: it is not there"),
        ({"op": "test", "path": "/list/9", "value": None}, "the test of /list/9 fails"),
    ],
)
def test_an_operation_that_cannot_be_applied_is_named_with_its_place(op: dict[str, Any], words: str) -> None:
    data = {"list": [1, 2, 3], "text": "abc", "number": 5, "none": None, "yes": True, "map": {"in": {}}}
    fine = {"op": "add", "path": "/fine", "value": 1}
    with pytest.raises(InvalidInput) as caught:
        apply_ops(data, check_ops([fine, op, fine]))
    assert caught.value.field == "ops[1]"
    assert words in caught.value.problem


@pytest.mark.parametrize(
    ("ops", "field"),
    [
        ([], "ops"),
        ({}, "ops"),
        (None, "ops"),
        ("[]", "ops"),
        ([5], "ops[0]"),
        ([{}], "ops[0].op"),
        ([{"op": "ad", "path": "/a", "value": 1}], "ops[0].op"),
        ([{"op": None, "path": "/a"}], "ops[0].op"),
        ([{"op": ["add"], "path": "/a"}], "ops[0].op"),
        ([{"op": "add", "path": "/a", "value": 1}, {"op": "remove"}], "ops[1].path"),
        ([{"op": "remove", "path": "a"}], "ops[0].path"),
        ([{"op": "remove", "path": 5}], "ops[0].path"),
        ([{"op": "remove", "path": ["a"]}], "ops[0].path"),
        ([{"op": "move", "path": "/a"}], "ops[0].from"),
        ([{"op": "copy", "path": "/a", "from": "b"}], "ops[0].from"),
        ([{"op": "add", "path": "/a"}], "ops[0].value"),
        ([{"op": "replace", "path": "/a"}], "ops[0].value"),
        ([{"op": "test", "path": "/a"}], "ops[0].value"),
        ([{"op": "remove", "path": "/a"}] * (MAX_OPS + 1), "ops"),
        ([{"op": "add", "path": "/a", "value": "x" * MAX_BYTES}], "ops"),
        ([{"op": "add", "path": "/a", "value": 2**70}], "ops[0].value"),
        ([{"op": "add", "path": "/a", "value": {1, 2}}], "ops[0].value"),
    ],
)
def test_what_is_no_patch_is_refused_before_anything_is_changed(ops: Any, field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        check_ops(ops)
    assert caught.value.field == field


def test_a_misspelt_operation_is_told_with_the_one_that_was_meant() -> None:
    with pytest.raises(InvalidInput, match="Did you mean 'replace'"):
        check_ops([{"op": "repalce", "path": "/a", "value": 1}])


def test_a_patch_that_copies_a_document_into_itself_again_and_again_is_refused() -> None:
    ops = [{"op": "copy", "from": "/a", "path": "/a/-"} for _ in range(60)]
    with pytest.raises(InvalidInput, match=f"more than {MAX_COPIED:,} bytes"):
        apply_ops({"a": ["x"]}, check_ops(ops))


def test_a_patch_that_nests_ever_deeper_is_refused() -> None:
    nested: Any = {}
    for _ in range(100):
        nested = {"a": nested}
    ops = [{"op": "add", "path": "/a" * (100 * n + 1), "value": nested} for n in range(6)]
    with pytest.raises(InvalidInput, match="nested too deep"):
        apply_ops({}, check_ops(ops))


def test_the_operations_themselves_are_kept_as_they_are() -> None:
    ops = [{"op": "add", "path": "/a", "value": {"b": []}}, {"op": "add", "path": "/a/b/-", "value": 1}]
    before = copy.deepcopy(ops)
    assert apply_ops({}, ops) == {"a": {"b": [1]}}
    assert ops == before


DATA = {"nodes": {"a": {"params": {"size": 1, "list": [1, {"x": 2}]}, "next": "b"}}, "name": "n"}


@pytest.mark.parametrize(
    ("assignment", "op"),
    [
        ("name", {"op": "replace", "path": "/name", "value": 9}),
        ("version", {"op": "add", "path": "/version", "value": 9}),
        ("nodes.a.params.size", {"op": "replace", "path": "/nodes/a/params/size", "value": 9}),
        ("nodes.a.params.new", {"op": "add", "path": "/nodes/a/params/new", "value": 9}),
        ("nodes.a.params.a/b~c", {"op": "add", "path": "/nodes/a/params/a~1b~0c", "value": 9}),
        ("nodes.a.params.list.0", {"op": "replace", "path": "/nodes/a/params/list/0", "value": 9}),
        ("nodes.a.params.list.1.x", {"op": "replace", "path": "/nodes/a/params/list/1/x", "value": 9}),
        ("nodes.a.params.list[0]", {"op": "replace", "path": "/nodes/a/params/list/0", "value": 9}),
        ("nodes.a.params.list[1].x", {"op": "replace", "path": "/nodes/a/params/list/1/x", "value": 9}),
        ("nodes.a.params.list[-]", {"op": "add", "path": "/nodes/a/params/list/-", "value": 9}),
        ('nodes.a.params["a.b[0]"]', {"op": "add", "path": "/nodes/a/params/a.b[0]", "value": 9}),
        ("nodes.a.params.list.-", {"op": "add", "path": "/nodes/a/params/list/-", "value": 9}),
        ("nodes.new", {"op": "add", "path": "/nodes/new", "value": 9}),
    ],
)
def test_a_field_named_as_people_do_becomes_an_operation_that_can_be_applied(
    assignment: str, op: dict[str, Any]
) -> None:
    assert op_for(DATA, assignment, 9) == op
    apply_ops(copy.deepcopy(DATA), check_ops([op]))


def test_fields_are_set_one_after_the_other_and_the_document_stays() -> None:
    before = copy.deepcopy(DATA)
    wanted = {"nodes.a.retry": {}, "nodes.a.retry.jitter": 1, "nodes.a.params": {}, "nodes.a.params.list": [1]}
    made = apply_ops(copy.deepcopy(DATA), ops_setting(DATA, wanted))
    assert (made["nodes"]["a"]["retry"], made["nodes"]["a"]["params"]) == ({"jitter": 1}, {"list": [1]})
    assert before == DATA


@pytest.mark.parametrize(
    ("assignment", "words"),
    [
        ("nodse.a.next", "there is no 'nodse' in the definition. Did you mean 'nodes'?"),
        ("nodes.b.next", "there is no 'nodes.b' in the definition."),
        ("nodes.a.parms.size", "there is no 'nodes.a.parms' in the definition. Did you mean 'params'?"),
        (
            "nodes.a.params.list.7.x",
            "'nodes.a.params.list' has 2 items and no index 7; nodes.a.params.list.- adds one",
        ),
        ("nodes.a.params.list.2", "'nodes.a.params.list' has 2 items and no index 2; nodes.a.params.list.- adds one"),
        (
            "nodes.a.params.list.x",
            "'nodes.a.params.list' has 2 items and no index 'x', which is no number from 0; "
            "nodes.a.params.list.- adds one",
        ),
        ("nodes.a.params[0]", "'nodes.a.params' is a mapping, and [0] the index of a list"),
        ("nodes..a", "'nodes..a' is no field: write nodes.x.params.y, or nodes.x.params.list[0]"),
        ("nodes.a[x]", "'nodes.a[x]' is no field: write nodes.x.params.y, or nodes.x.params.list[0]"),
        (".nodes", "'.nodes' is no field: write nodes.x.params.y, or nodes.x.params.list[0]"),
        ("name.first", "'name' is a value, and has no fields"),
        ("name.first.second", "there is no 'name.first' in the definition."),
        ("nodes.a.retry.jitter", "there is no 'nodes.a.retry' in the definition. Set it first: nodes.a.retry={}."),
    ],
)
def test_a_field_of_what_is_not_there_cannot_be_set(assignment: str, words: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        op_for(DATA, assignment, 9)
    assert (caught.value.field, caught.value.problem) == ("set", words)


@given(st.lists(st.text() | st.integers(0, 99), min_size=1).filter(lambda parts: isinstance(parts[0], str)))
def test_a_path_as_people_write_it_is_read_as_what_it_was(parts: list[str | int]) -> None:
    assert path_in(dotted(tuple(parts))) == tuple(parts)
