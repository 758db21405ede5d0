"""A definition as a Mermaid flowchart, which many sites and editors draw."""

from __future__ import annotations

from collections.abc import Iterator

from weft.flow.drawing.picture import Box, Picture

_SHAPES = {
    "start": ("([", "])"),
    "end": ("([", "])"),
    "conditional": ("{", "}"),
    "fan_out": ("[[", "]]"),
    "fan_in": ("[[", "]]"),
    "wait": ("{{", "}}"),
    "workflow": ("[/", "/]"),
}
# How nodes of a job are framed.
_STROKES = {
    "running": "stroke:#0969da,stroke-width:2px",
    "completed": "stroke:#1a7f37,stroke-width:2px",
    "failed": "stroke:#cf222e,stroke-width:2px",
    "dead": "stroke:#cf222e,stroke-width:2px",
    "skipped": "stroke-dasharray:3 3",
    "cancelled": "stroke-dasharray:3 3",
}


def draw_mermaid(picture: Picture) -> str:
    """Return the text of a flowchart."""
    return "\n".join(["flowchart TD", *_boxes(picture), *_arrows(picture), *_states(picture)]) + "\n"


def _boxes(picture: Picture) -> Iterator[str]:
    ids = _ids(picture)
    open_: list[str] = []
    count = 0
    for box in sorted(picture.boxes.values(), key=lambda box: box.way_in):
        parts = list(box.way_in)
        while open_ != parts[: len(open_)]:
            open_.pop()
            yield "  " * (len(open_) + 1) + "end"
        for part in parts[len(open_) :]:
            yield "  " * (len(open_) + 1) + f'subgraph g{count}["{_text(part)}"]'
            open_.append(part)
            count += 1
        left, right = _SHAPES.get(box.kind, ("[", "]"))
        yield "  " * (len(open_) + 1) + f'{ids[box.name]}{left}"{_label(box)}"{right}'
    for depth in range(len(open_), 0, -1):
        yield "  " * depth + "end"


def _arrows(picture: Picture) -> Iterator[str]:
    ids = _ids(picture)
    for source, target in picture.ways:
        label = picture.labels.get((source, target))
        way = f'|"{_text(label)}"|' if label else ""
        yield f"  {ids[source]} -->{way} {ids[target]}"


def _states(picture: Picture) -> Iterator[str]:
    """Colour the nodes of a job by how it goes with them."""
    ids, found = _ids(picture), dict[str, list[str]]()
    for name, box in picture.boxes.items():
        if box.state in _STROKES:
            found.setdefault(box.state, []).append(ids[name])
    for state, names in sorted(found.items()):
        yield f"  classDef {state} {_STROKES[state]}"
        yield f"  class {','.join(names)} {state}"


def _ids(picture: Picture) -> dict[str, str]:
    return {name: f"n{place}" for place, name in enumerate(picture.boxes)}


def _label(box: Box) -> str:
    return _text(box.name) + (f"<br/>{_text(box.caption)}" if box.caption else "")


def _text(text: str) -> str:
    """Mermaid knows HTML's entities, by number with a # in front."""
    return "".join(f"#{ord(char)};" if char in '"<>&#;{}|`' else char if char.isprintable() else " " for char in text)
