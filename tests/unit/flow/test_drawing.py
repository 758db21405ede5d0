"""Drawings show every node and every way, whatever people write into names and conditions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from operator import mul
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flow.definitions import EVERYTHING, SPEC_5_MENDED, TILE_RASTER
from weft.flow.document import read_document
from weft.flow.drawing import draw_mermaid, draw_svg, draw_tree, picture_of
from weft.flow.drawing.lettering import width_of

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = (
    '"]; click n0 "javascript:alert(1)" <script>alert(\'&\')</script> -->|x| #35; `a` {b}\n  end\n'
    "%% \x01\x1b[31m\u2028\ufffe"
)


def _tree(text: str) -> list[str]:
    return [str(line) for line in draw_tree(picture_of(read_document(text).data))]


def test_a_tree_shows_what_is_on_a_circle_too() -> None:
    lines = _tree("""\
workflow_id: round
nodes:
  START: {type: start, next: a}
  a: {handler: h, next: b}
  b: {handler: h, next: [a, END]}
  END: {type: end}
""")
    assert [sum(name in line for line in lines) >= 1 for name in ("START", " a ", " b ", "END")] == [True] * 4


def test_a_tree_shows_each_node_below_those_that_lead_to_it() -> None:
    assert _tree(SPEC_5_MENDED) == [
        "● START",
        "○ validate  raster_validate",
        "◇ route_by_size  nodes.validate.output.file_size_mb",
        "├─ < 100 → ○ process_fa  raster_cog",
        "│  ↴ END",
        "└─ otherwise → ○ process_docker  raster_cog_docker",
        "   ■ END",
    ]


def test_a_chain_does_not_wander_to_the_right() -> None:
    assert _tree(TILE_RASTER) == [
        "● START",
        "○ scheme  raster.generate_tiling_scheme",
        "⇉ tiles  raster.process_tile_batch for each, at most 8",
        "⇇ collect",
        "■ END",
    ]


def test_every_type_of_node_has_its_mark_its_caption_and_its_group() -> None:
    assert _tree(EVERYTHING) == [
        "● START",
        "├─ ⏸ ask  for approval",
        "│  ↴ END",
        "├─ ○ fetch  http.get  [extract]",
        "│  ○ clean  text.clean  [extract/raw]",
        "│  ↴ sum",
        "└─ ○ more  http.get  [extract]",
        "   ○ sum  math.sum",
        "   ⇉ parts  part for each, at most 4",
        "   ⇇ join",
        "   ◇ route  nodes.join.output.results | length",
        "   ├─ > 2 → ▣ sub  etl/other",
        "   │  ↴ END",
        "   ├─ {{ inputs.mode == 'slow' }} → ⏸ file  for file.arrived",
        "   │  ↴ END",
        "   └─ otherwise → ■ END",
    ]


def test_two_branches_to_one_node_are_one_way_with_both_conditions() -> None:
    branches = [{"condition": "> 1", "next": "e"}, {"default": True, "next": "e"}]
    data = {"nodes": {"c": {"type": "conditional", "branches": branches}, "e": {"type": "end"}}}
    assert [str(line) for line in draw_tree(picture_of(data))] == ["◇ c", "> 1 or otherwise → ■ e"]


def test_mermaid_has_a_box_for_each_node_an_arrow_for_each_way_and_a_frame_for_each_group() -> None:
    picture = picture_of(read_document(EVERYTHING).data)
    assert draw_mermaid(picture).splitlines() == [
        "flowchart TD",
        '  n0(["START"])',
        '  n1{{"ask<br/>for approval"}}',
        '  n5["sum<br/>math.sum"]',
        '  n6[["parts<br/>part for each, at most 4"]]',
        '  n7[["join"]]',
        '  n8{"route<br/>nodes.join.output.results #124; length"}',
        '  n9[/"sub<br/>etl/other"/]',
        '  n10{{"file<br/>for file.arrived"}}',
        '  n11(["END"])',
        '  subgraph g0["extract"]',
        '    n2["fetch<br/>http.get"]',
        '    n3["more<br/>http.get"]',
        '    subgraph g1["raw"]',
        '      n4["clean<br/>text.clean"]',
        "    end",
        "  end",
        "  n0 --> n1",
        "  n0 --> n2",
        "  n0 --> n3",
        "  n2 --> n4",
        "  n4 --> n5",
        "  n3 --> n5",
        "  n5 --> n6",
        "  n6 --> n7",
        "  n7 --> n8",
        '  n8 -->|"#62; 2"| n9',
        "  n8 -->|\"#123;#123; inputs.mode == 'slow' #125;#125;\"| n10",
        '  n8 -->|"otherwise"| n11',
        "  n9 --> n11",
        "  n10 --> n11",
        "  n1 --> n11",
    ]


def test_groups_of_similar_names_have_a_frame_each_and_each_has_one_frame() -> None:
    groups = ["a", "a-b", "a/b", "a_b", "a.b", "a/c", "a/b/c"]
    picture = picture_of(
        {"nodes": {f"n{place}": {"handler": "h", "group": group} for place, group in enumerate(groups)}}
    )
    frames = re.findall(r'subgraph (\w+)\["([^"]+)"\]', draw_mermaid(picture))
    assert sorted(name for _, name in frames) == ["a", "a-b", "a.b", "a_b", "b", "c", "c"]
    assert len({frame for frame, _ in frames}) == 7


def _hostile() -> dict[str, Any]:
    return {
        "nodes": {
            HOSTILE: {"type": "start", "next": "c"},
            "c": {
                "type": "conditional",
                "condition_field": HOSTILE,
                "branches": [{"condition": HOSTILE, "next": "t"}, {"default": True, "next": "e"}],
            },
            "t": {"handler": HOSTILE, "group": HOSTILE, "next": "e"},
            "e": {"type": HOSTILE},
        }
    }


def test_nothing_that_people_write_gets_out_of_its_label_in_mermaid() -> None:
    label = r'"[^"<>&#;{}|`]*"'
    line = rf" *(n\d+(\[|{{|\(\[){label}(\]|}}|\]\))|n\d+ -->(\|{label}\|)? n\d+|subgraph g\d+\[{label}\]|end)"
    for drawn in draw_mermaid(picture_of(_hostile())).split("\n")[1:-1]:
        assert drawn.isprintable()
        assert re.fullmatch(line, re.sub(r"#\d+;|<br/>", "", drawn)), drawn


class Drawn:
    """An SVG picture, read back: where its boxes, frames and ways are."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.picture = picture_of(data)
        self.text = draw_svg(self.picture)
        self.root = ElementTree.fromstring(self.text)
        parts = [(part.get("class", ""), part) for part in self.root.iter(f"{SVG}g")]
        self.boxes = {_title(part).partition(": ")[0]: _rect(part) for style, part in parts if style.startswith("box")}
        framed = [part for style, part in parts if style == "group" and part.find(f"{SVG}rect") is not None]
        self.frames = {_title(part).removeprefix("group "): _rect(part) for part in framed}
        self.ways = [part.get("d", "") for part in self.root.iter(f"{SVG}path") if part.get("marker-end")]
        self.texts = [text.text for text in self.root.iter(f"{SVG}text")]


def _title(part: ElementTree.Element) -> str:
    title = part.find(f"{SVG}title")
    assert title is not None
    return title.text or ""


Rect = tuple[float, float, float, float]


def _rect(part: ElementTree.Element) -> Rect:
    """Left, top, right and bottom."""
    rect = part.find(f"{SVG}rect")
    assert rect is not None
    x, y, width, height = (float(rect.get(name, "")) for name in ("x", "y", "width", "height"))
    return x, y, x + width, y + height


def _overlap(one: Rect, other: Rect) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _holds(outer: Rect, inner: Rect) -> bool:
    return outer[0] <= inner[0] and outer[1] <= inner[1] and inner[2] <= outer[2] and inner[3] <= outer[3]


@st.composite
def grouped(draw: st.DrawFn) -> dict[str, Any]:
    """Nodes in a row that each lead to some of those behind them, in groups and groups of groups."""
    count = draw(st.integers(1, 12))
    nodes: dict[str, Any] = {}
    for place in range(count):
        after = draw(st.lists(st.integers(place + 1, count), max_size=3, unique=True))
        nodes[f"n{place}"] = {"handler": "h" * draw(st.integers(1, 60)), "next": [f"n{each}" for each in after]}
        if group := draw(st.sampled_from([None, "a", "a/b", "a/b/c", "d"])):
            nodes[f"n{place}"]["group"] = group
    return {"nodes": nodes}


def _check_drawing(drawn: Drawn) -> None:
    """Nothing stands on anything else, and no way leads through a box."""
    picture = drawn.picture
    assert drawn.boxes.keys() == picture.boxes.keys()
    for name, box in drawn.boxes.items():
        for other, another in drawn.boxes.items():
            assert name == other or not _overlap(box, another)
        for group, frame in drawn.frames.items():
            is_inside = f"{picture.boxes[name].group}/".startswith(f"{group}/")
            assert _holds(frame, box) if is_inside else not _overlap(frame, box), (name, group)
    for group, frame in drawn.frames.items():
        for other, another in drawn.frames.items():
            if f"{other}/".startswith(f"{group}/"):
                assert _holds(frame, another)
            elif not group.startswith(f"{other}/"):
                assert not _overlap(frame, another)
    for source, target in picture.ways:
        assert drawn.boxes[source][3] < drawn.boxes[target][1]
    assert len(drawn.ways) == len(picture.ways)
    for (source, target), way in zip(picture.ways, drawn.ways, strict=True):
        passed = {name for name, box in drawn.boxes.items() if any(_is_in(point, box) for point in _points(way))}
        assert passed <= {source, target}, (source, target, passed)


def _is_in(point: tuple[float, float], box: Rect) -> bool:
    return box[0] < point[0] < box[2] and box[1] < point[1] < box[3]


def _points(way: str) -> Iterator[tuple[float, float]]:
    """Points along a line of straight pieces downwards and curves, close to each other."""
    x = y = 0.0
    for sign, rest in re.findall(r"([MVC])([^MVC]*)", way):
        numbers = [float(number) for number in re.findall(r"-?[\d.]+", rest)]
        if sign == "M":
            x, y = numbers
        elif sign == "V":
            yield from ((x, y + (numbers[0] - y) * step / 20) for step in range(21))
            y = numbers[0]
        else:
            x1, y1, x2, y2, x3, y3 = numbers
            for step in range(21):
                t = step / 20
                shares = (1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t * t * (1 - t), t**3
                yield sum(map(mul, shares, (x, x1, x2, x3))), sum(map(mul, shares, (y, y1, y2, y3)))
            x, y = x3, y3


@settings(max_examples=100, deadline=None)
@given(grouped())
def test_in_svg_nothing_stands_on_anything_else_and_no_way_leads_through_a_box(data: dict[str, Any]) -> None:
    _check_drawing(Drawn(data))


def test_svg_has_a_box_for_each_node_a_frame_for_each_group_and_an_arrow_for_each_way() -> None:
    for text in (SPEC_5_MENDED, TILE_RASTER, EVERYTHING):
        _check_drawing(drawn := Drawn(read_document(text).data))
    assert drawn.frames.keys() == {"extract", "extract/raw"}
    assert {"extract", "raw", "fetch", "http.get"} <= set(drawn.texts)


def test_svg_says_what_it_is_and_follows_the_page_into_the_dark() -> None:
    drawn = Drawn(read_document(TILE_RASTER).data)
    assert drawn.root.get("role") == "img"
    assert drawn.root.get("aria-label") == _title(drawn.root) == "Workflow tile_raster: 5 nodes"
    assert "@media (prefers-color-scheme: dark)" in drawn.text


def test_svg_shows_conditions_beside_their_arrows() -> None:
    drawn = Drawn(read_document(SPEC_5_MENDED).data)
    assert {"< 100", "otherwise", "validate", "raster_validate"} <= set(drawn.texts)


def test_long_texts_are_cut_to_their_boxes_and_told_whole() -> None:
    name, caption = "n" * 90, "数据" * 60
    drawn = Drawn({"nodes": {name: {"handler": caption}, "数据抓取与清洗": {"handler": "x"}}})
    shown = [text for text in drawn.texts if text and text.endswith("…")]
    for text, whole, size in zip(shown, (name, caption), (12, 10), strict=True):
        left, _, right, _ = drawn.boxes[name]
        assert whole.startswith(text[:-1])
        assert width_of(text, size, is_bold=size == 12) <= right - left
    assert f"{name}: task {caption}" in drawn.text
    left, _, right, _ = drawn.boxes["数据抓取与清洗"]
    assert right - left > 7 * 12


def test_nothing_that_people_write_gets_out_of_its_text_in_svg() -> None:
    root = ElementTree.fromstring(draw_svg(picture_of(_hostile())))
    assert {element.tag for element in root.iter()} == {
        f"{SVG}{tag}" for tag in "svg title style defs marker path g rect text".split()
    }
    assert "<script>" in "".join(root.itertext())


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"nodes": None},
        {"nodes": []},
        {"nodes": ["a"]},
        {"nodes": "x"},
        {"nodes": {}},
        {"nodes": {"a": None, "b": {}}},
        {"nodes": {"a": {"next": "a"}}},
        {"nodes": {"a": {"next": "b"}, "b": {"next": "a"}}},
        {"nodes": {"a": {"next": "nobody"}, "b": {"type": 5, "group": ["x"], "handler": {}}}},
        {"nodes": {"a": {"type": "fan_out", "task": 5}, "b": {"type": "conditional", "branches": [{"next": "a"}]}}},
        {"nodes": {"s": {"next": "a"}, "a": {"next": "b"}, "b": {"next": ["a", "c"]}, "c": {}}},
    ],
)
def test_a_document_that_is_not_sound_is_drawn_as_far_as_it_goes(data: dict[str, Any]) -> None:
    picture = picture_of(data)
    list(draw_tree(picture))
    assert draw_mermaid(picture).startswith("flowchart TD\n")
    assert Drawn(data).boxes.keys() == {"".join(name) for name in picture.boxes}


def test_thousands_of_nodes_in_a_row_are_drawn() -> None:
    count = 3000
    picture = picture_of({"nodes": {f"n{n}": {"handler": "h", "next": [f"n{n + 1}"]} for n in range(count)}})
    assert sum(1 for _ in draw_tree(picture)) == count
    assert draw_mermaid(picture).count("-->") == count - 1
    assert draw_svg(picture).count('<g class="box') == count
