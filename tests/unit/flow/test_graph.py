"""The graph of a definition: order, circles and what comes before what, also over groups."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flow.definitions import EVERYTHING
from weft.flow.document import read_document
from weft.flow.graph import Graph, groups_of, links_of

NAMES = "abcdefg"


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    """Nodes that lead to any others, so that there are circles, ways to nobody and nodes apart."""
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, unique=True))
    targets = st.lists(st.sampled_from([*NAMES, "nobody"]), max_size=3)
    return {"nodes": {name: {"next": draw(targets)} for name in names}}


def _leads(data: dict[str, Any]) -> set[tuple[str, str]]:
    """All pairs of which one leads to the other over any number of nodes: by trying until nothing new comes."""
    pairs = {(name, to) for name, node in data["nodes"].items() for to in node["next"] if to in data["nodes"]}
    while more := {(a, d) for a, b in pairs for c, d in pairs if b == c} - pairs:
        pairs |= more
    return pairs


@settings(max_examples=150, deadline=None)
@given(documents())
def test_one_node_comes_before_another_when_a_way_leads_there(data: dict[str, Any]) -> None:
    graph, leads = Graph.of(data), _leads(data)
    for earlier in data["nodes"]:
        for later in data["nodes"]:
            assert graph.comes_before(earlier, later) is ((earlier, later) in leads and earlier != later)
        assert graph.reached(earlier) == {b for a, b in leads if a == earlier} | {earlier}


@settings(max_examples=150, deadline=None)
@given(documents())
def test_the_order_has_each_node_after_all_that_lead_to_it_and_none_that_waits_for_a_circle(
    data: dict[str, Any],
) -> None:
    graph, leads = Graph.of(data), _leads(data)
    order = graph.order
    assert len(set(order)) == len(order)
    for source, target in leads:
        if target in order:
            assert order.index(source) < order.index(target)
    on_circles = {a for a, b in leads if a == b}
    behind = {b for a, b in leads if a in on_circles}
    assert set(order) == data["nodes"].keys() - on_circles - behind


@settings(max_examples=150, deadline=None)
@given(documents())
def test_every_way_between_nodes_that_wait_for_each_other_is_on_a_circle_that_is_found(data: dict[str, Any]) -> None:
    circles, leads = Graph.of(data).circles(), _leads(data)
    places = list(data["nodes"])
    for circle in circles:
        assert circle[0] == circle[-1]
        assert all(target in data["nodes"][source]["next"] for source, target in pairwise(circle))
        assert circle[0] == min(circle, key=places.index)
        assert len(set(circle)) == len(circle) - 1
    assert len({tuple(circle) for circle in circles}) == len(circles)
    # Every way between two nodes that wait for each other is on one of them, and no other.
    ways = {(a, b) for a in places for b in data["nodes"][a]["next"] if (b, a) in leads}
    assert {way for circle in circles for way in pairwise(circle)} == ways
    assert [circle[0] for circle in circles] == sorted((circle[0] for circle in circles), key=places.index)


def test_circles_of_one_knot_are_all_found_whether_they_share_nodes_or_not() -> None:
    nexts = {"a": ["b"], "b": ["a", "c"], "c": ["d"], "d": ["c", "a"]}
    assert Graph.of({"nodes": {name: {"next": to} for name, to in nexts.items()}}).circles() == [
        ["a", "b", "a"],
        ["a", "b", "c", "d", "a"],
        ["c", "d", "c"],
    ]


def test_of_very_many_circles_some_are_found_and_one_of_each_knot() -> None:
    names = [f"n{n}" for n in range(60)]
    dense = {name: {"next": names} for name in names} | {f"m{n}": {"next": [f"m{n ^ 1}"]} for n in range(200)}
    circles = Graph.of({"nodes": dense}).circles()
    assert len(circles) < 200
    assert sum(circle[0].startswith("m") for circle in circles) == 100


def test_every_next_is_a_link_with_its_place() -> None:
    links = [(link.source, link.target, link.path, link.branch) for link in links_of(read_document(EVERYTHING).data)]
    assert ("START", "ask", ("nodes", "START", "next", 1), None) in links
    assert ("route", "file", ("nodes", "route", "branches", 1, "next"), 1) in links
    assert ("extract", "sum", ("groups", "extract", "next"), None) in links
    assert len(links) == 13


@pytest.mark.parametrize(
    "broken", [None, 5, [], {"a": 5}, {"a": {"next": 5, "branches": 5}}, {"a": {"branches": [5, {"next": {}}]}}]
)
def test_a_document_that_is_broken_has_a_graph_as_far_as_it_goes(broken: Any) -> None:
    assert list(links_of({"nodes": broken, "groups": broken})) == []
    assert Graph.of({"nodes": broken, "groups": broken}).circles() == []


def test_a_group_has_the_nodes_of_the_groups_in_it() -> None:
    data = {
        "groups": {"empty": {}},
        "nodes": {"a": {"group": "x"}, "b": {"group": "x/y/z"}, "c": {"group": "x/y"}, "d": {"group": ""}, "e": {}},
    }
    assert groups_of(data) == {"empty": [], "x": ["a", "b", "c"], "x/y": ["b", "c"], "x/y/z": ["b"]}


def test_a_way_to_a_group_leads_to_its_first_and_its_own_next_comes_from_its_last() -> None:
    data = {
        "groups": {"g": {"next": "z"}},
        "nodes": {
            "s": {"next": "g"},
            "a": {"group": "g", "next": "b"},
            "b": {"group": "g"},
            "c": {"group": "g"},
            "z": {},
        },
    }
    graph = Graph.of(data)
    assert graph.next == {"s": ["a", "c"], "a": ["b"], "b": ["z"], "c": ["z"], "z": []}
    assert graph.previous["z"] == ["b", "c"]
    assert graph.comes_before("a", "z")


def test_groups_lead_to_groups() -> None:
    data = {
        "groups": {"g": {"next": "k"}},
        "nodes": {"a": {"group": "g"}, "b": {"group": "g"}, "c": {"group": "k"}, "d": {"group": "k", "next": "c"}},
    }
    assert Graph.of(data).next == {"a": ["d"], "b": ["d"], "c": [], "d": ["c"]}


def test_a_way_that_is_written_twice_is_one_way() -> None:
    graph = Graph.of({"nodes": {"a": {"next": ["b", "b"]}, "b": {}}})
    assert (graph.next["a"], graph.previous["b"]) == (["b"], ["a"])


def test_a_name_that_is_a_node_and_a_group_means_the_node() -> None:
    graph = Graph.of({"nodes": {"s": {"next": "a"}, "a": {}, "b": {"group": "a"}}})
    assert graph.next["s"] == ["a"]


def test_ten_thousand_nodes_in_a_row_have_an_order_and_know_what_comes_before() -> None:
    count = 10_000
    graph = Graph.of({"nodes": {f"n{n}": {"next": [f"n{n + 1}"]} for n in range(count)}})
    assert graph.order == [f"n{n}" for n in range(count)]
    assert graph.comes_before("n0", f"n{count - 1}")
    assert not graph.comes_before(f"n{count - 1}", "n0")
    assert graph.circles() == []
