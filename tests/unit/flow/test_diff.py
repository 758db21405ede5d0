"""What differs between two definitions is told by node and by field."""

from __future__ import annotations

import copy
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flow.definitions import EVERYTHING, SPEC_5, SPEC_5_MENDED
from weft.flow.diff import ABSENT, Change, diff
from weft.flow.document import read_document
from weft.flow.merging import merge
from weft.flow.patches import apply_ops, same

values = st.none() | st.booleans() | st.integers(0, 2) | st.just(1.0) | st.lists(st.integers(0, 1), max_size=2)
nodes = st.dictionaries(
    st.sampled_from("abcd"), st.dictionaries(st.sampled_from("xyz"), values, max_size=3), max_size=4
)
documents = st.fixed_dictionaries(
    {}, optional={"nodes": nodes, "name": values, "inputs": st.dictionaries(st.just("i"), values)}
)


def test_documents_that_are_the_same_have_no_difference() -> None:
    data = read_document(EVERYTHING).data
    found = diff(data, copy.deepcopy(data))
    assert not found
    assert found.to_json() == {"nodes": {"added": {}, "removed": {}, "changed": {}}, "outside": [], "patch": []}


def test_nodes_that_came_and_went_are_told_with_what_they_are() -> None:
    old, new = read_document(SPEC_5).data, read_document(SPEC_5_MENDED).data
    found = diff(old, new)
    assert list(found.added) == ["process_fa"]
    assert found.added["process_fa"]["handler"] == "raster_cog"
    assert (found.removed, found.changed, found.outside) == ({}, {}, [])
    assert diff(new, old).removed == found.added


def test_fields_that_changed_are_told_by_their_path_with_both_sides() -> None:
    old = {"name": "x", "nodes": {"a": {"params": {"n": 1, "l": [1]}, "queue": "q"}}, "labels": {"k": "v"}}
    new = {"version": 2, "nodes": {"a": {"params": {"n": 1.0, "l": [1, 2]}, "next": "b"}}, "labels": {"k": "w"}}
    found = diff(old, new)
    assert found.changed == {
        "a": [
            Change(("params", "n"), 1, 1.0),
            Change(("params", "l"), [1], [1, 2]),
            Change(("queue",), "q", ABSENT),
            Change(("next",), ABSENT, "b"),
        ]
    }
    assert found.outside == [
        Change(("name",), "x", ABSENT),
        Change(("labels", "k"), "v", "w"),
        Change(("version",), ABSENT, 2),
    ]


def test_a_side_that_has_no_value_has_no_key_for_programs() -> None:
    assert Change(("a", 0, "b"), ABSENT, None).to_json() == {"path": "a[0].b", "new": None}
    assert Change(("a",), 1, ABSENT).to_json() == {"path": "a", "old": 1}
    assert repr(ABSENT) == "absent"


def test_a_document_whose_nodes_are_no_mapping_is_compared_too() -> None:
    found = diff({"nodes": [1]}, {"nodes": {"a": {}}})
    assert list(found.added) == ["a"]
    assert found.ops == [{"op": "replace", "path": "/nodes", "value": {"a": {}}}]
    assert diff({"nodes": None}, {})


@settings(max_examples=100, deadline=None)
@given(documents, documents)
def test_the_patch_of_a_difference_makes_the_new_of_the_old_and_each_node_stands_in_one_place(
    old: Any, new: Any
) -> None:
    found = diff(old, new)
    assert same(apply_ops(copy.deepcopy(old), found.ops) if found.ops else old, new)
    before, after = old.get("nodes", {}), new.get("nodes", {})
    assert set(found.added) == after.keys() - before.keys()
    assert set(found.removed) == before.keys() - after.keys()
    assert set(found.changed) == {name for name in before.keys() & after.keys() if not same(before[name], after[name])}
    assert orjson.loads(orjson.dumps(found.to_json()))["patch"] == found.ops


@pytest.mark.parametrize(
    ("base", "ours", "theirs", "conflict"),
    [
        ({"x": "text"}, {"x": {"a": 1}}, {"x": {"b": 2}}, ("x",)),
        ({"x": None}, {"x": {"a": 1}}, {"x": {"b": 2}}, ("x",)),
        ({"x": [1]}, {"x": {"a": 1}}, {"x": {"b": 2}}, ("x",)),
        ({}, {"nodes": {"n": {"handler": "h"}}}, {"nodes": {"n": {"handler": "h", "queue": "q"}}}, ("nodes", "n")),
        ({"inputs": {}}, {"inputs": {"n": {}}}, {"inputs": {"n": {"default": 1}}}, ("inputs", "n")),
        ({"groups": {}}, {"groups": {"n": {}}}, {"groups": {"n": {"next": "b"}}}, ("groups", "n")),
        ({"nodes": {"n": {}}}, {"nodes": {"n": {"params": {"a": 1}}}}, {"nodes": {"n": {"params": {"b": 2}}}}, None),
        ({"nodes": {}}, {"nodes": {"n": {"handler": "h"}}}, {"nodes": {"n": {"handler": "h"}}}, None),
    ],
)
def test_nothing_is_made_of_halves_of_two_things(base: Any, ours: Any, theirs: Any, conflict: Any) -> None:
    _, conflicts = merge(base, ours, theirs)
    assert [each.path for each in conflicts] == ([] if conflict is None else [conflict])
    if conflict is None:
        return
    assert merge(base, ours, theirs, "ours") == (ours, [])
    assert merge(base, ours, theirs, "theirs") == (theirs, [])
