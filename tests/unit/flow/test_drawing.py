"""Drawings show every node and every way, whatever people write into names and conditions."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

import pytest

from flow.definitions import EVERYTHING, SPEC_5_MENDED, TILE_RASTER
from weft.flow.document import read_document
from weft.flow.drawing import draw_mermaid, draw_svg, draw_tree, picture_of

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = (
    '"]; click n0 "javascript:alert(1)" <script>alert(\'&\')</script> -->|x| #35; `a` {b}\n  end\n'
    "%% \x01\x1b[31m\u2028\ufffe"
)


def _tree(text: str) -> list[str]:
    return [str(line) for line in draw_tree(picture_of(read_document(text).data))]


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


def test_every_type_of_node_has_its_mark_and_its_caption() -> None:
    assert _tree(EVERYTHING) == [
        "● START",
        "├─ ⏸ ask  for approval",
        "│  ↴ END",
        "├─ ○ fetch  http.get",
        "│  ○ clean  text.clean",
        "│  ↴ sum",
        "└─ ○ more  http.get",
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
                "type": "conditional", "condition_field": HOSTILE,
                "branches": [{"condition": HOSTILE, "next": "t"}, {"default": True, "next": "e"}],
            },
            "t": {"handler": HOSTILE, "group": HOSTILE, "next": "e"},
            "e": {"type": HOSTILE},
        }
    }  # fmt: skip


def test_nothing_that_people_write_gets_out_of_its_label_in_mermaid() -> None:
    label = r'"[^"<>&#;{}|`]*"'
    line = rf" *(n\d+(\[|{{|\(\[){label}(\]|}}|\]\))|n\d+ -->(\|{label}\|)? n\d+|subgraph g\d+\[{label}\]|end)"
    for drawn in draw_mermaid(picture_of(_hostile())).split("\n")[1:-1]:
        assert drawn.isprintable()
        assert re.fullmatch(line, re.sub(r"#\d+;|<br/>", "", drawn)), drawn


def test_svg_is_xml_with_a_box_for_each_node_and_an_arrow_for_each_way() -> None:
    for text in (SPEC_5_MENDED, TILE_RASTER, EVERYTHING):
        picture = picture_of(read_document(text).data)
        root = ElementTree.fromstring(draw_svg(picture))
        assert root.tag == f"{SVG}svg"
        titles = [title.text or "" for title in root.iter(f"{SVG}title")]
        assert [title.split(":")[0] for title in titles] == list(picture.boxes)
        assert len(list(root.iter(f"{SVG}rect"))) == len(picture.boxes)
        arrows = [path for path in root.iter(f"{SVG}path") if path.get("marker-end")]
        assert len(arrows) == sum(len(targets) for targets in picture.next.values())


def test_svg_shows_conditions_beside_their_arrows() -> None:
    root = ElementTree.fromstring(draw_svg(picture_of(read_document(SPEC_5_MENDED).data)))
    assert {"< 100", "otherwise", "validate", "raster_validate"} <= {text.text for text in root.iter(f"{SVG}text")}


def test_boxes_of_svg_do_not_lie_on_each_other_and_each_is_below_those_that_lead_to_it() -> None:
    picture = picture_of(read_document(EVERYTHING).data)
    rects = list(ElementTree.fromstring(draw_svg(picture)).iter(f"{SVG}rect"))
    places = {
        name: (float(rect.get("x", 0)), float(rect.get("y", 0)))
        for name, rect in zip(picture.boxes, rects, strict=True)
    }
    assert len(set(places.values())) == len(places)
    for source, targets in picture.next.items():
        assert all(places[source][1] < places[target][1] for target in targets)


def test_nothing_that_people_write_gets_out_of_its_text_in_svg() -> None:
    root = ElementTree.fromstring(draw_svg(picture_of(_hostile())))
    assert {element.tag for element in root.iter()} == {
        f"{SVG}{tag}" for tag in "svg defs marker path g title rect text".split()
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
    root = ElementTree.fromstring(draw_svg(picture))
    assert len(list(root.iter(f"{SVG}rect"))) == len(picture.boxes)


def test_thousands_of_nodes_in_a_row_are_drawn() -> None:
    count = 3000
    picture = picture_of({"nodes": {f"n{n}": {"handler": "h", "next": [f"n{n + 1}"]} for n in range(count)}})
    assert sum(1 for _ in draw_tree(picture)) == count
    assert draw_mermaid(picture).count("-->") == count - 1
    assert draw_svg(picture).count("<rect") == count
