"""A definition as an SVG picture: boxes in layers from top to bottom, arrows between them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape as escape_html

from weft.flow.drawing.picture import Picture

_WIDTH, _HEIGHT, _GAP, _LAYER_GAP, _MARGIN = 180, 46, 24, 48, 24
_SWEEPS = 8
_FILLS = {"start": "#d9ead3", "end": "#d9ead3", "conditional": "#fff2cc", "fan_out": "#dae8fc", "fan_in": "#dae8fc",
          "wait": "#f8cecc", "workflow": "#e1d5e7"}  # fmt: skip


@dataclass(frozen=True)
class _Place:
    x: float
    y: float


def draw_svg(picture: Picture) -> str:
    """Return the text of an SVG file."""
    layers = _layers(picture)
    places = _places(layers)
    width = max((place.x for place in places.values()), default=0) + _WIDTH + _MARGIN
    height = len(layers) * (_HEIGHT + _LAYER_GAP) - _LAYER_GAP + 2 * _MARGIN
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
            f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="sans-serif" font-size="12">',
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
            '<path d="M0,0 L8,4 L0,8 z" fill="#555"/></marker></defs>',
            *_arrows(picture, places),
            *_boxes(picture, places),
            "</svg>\n",
        ]
    )


def _layers(picture: Picture) -> list[list[str]]:
    """Put each node below all that lead to it, and sort each layer by where its neighbours stand."""
    depth: dict[str, int] = {}
    for name in picture.boxes:
        depth[name] = max((depth[before] + 1 for before in picture.previous[name] if before in depth), default=0)
    layers: list[list[str]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    for name, level in depth.items():
        layers[level].append(name)
    places = {name: place for layer in layers for place, name in enumerate(layer)}
    for sweep in range(_SWEEPS):
        is_down = sweep % 2 == 0
        near = picture.previous if is_down else picture.next
        for layer in layers if is_down else reversed(layers):
            layer.sort(key=lambda name: _mean([places[each] for each in near[name]], places[name]))
            places |= {name: place for place, name in enumerate(layer)}
    return layers


def _mean(values: list[int], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def _places(layers: list[list[str]]) -> dict[str, _Place]:
    widest = max((len(layer) for layer in layers), default=0)
    found = {}
    for level, layer in enumerate(layers):
        left = _MARGIN + (widest - len(layer)) * (_WIDTH + _GAP) / 2
        for place, name in enumerate(layer):
            found[name] = _Place(left + place * (_WIDTH + _GAP), _MARGIN + level * (_HEIGHT + _LAYER_GAP))
    return found


def _boxes(picture: Picture, places: dict[str, _Place]) -> Iterator[str]:
    for name, box in picture.boxes.items():
        place, middle = places[name], places[name].x + _WIDTH / 2
        radius = _HEIGHT / 2 if box.kind in ("start", "end") else 6
        yield (
            f"<g><title>{_escape(f'{name}: {box.kind} {box.caption}'.strip())}</title>"
            f'<rect x="{place.x:.0f}" y="{place.y:.0f}" width="{_WIDTH}" height="{_HEIGHT}" rx="{radius:.0f}" '
            f'fill="{_FILLS.get(box.kind, "#ffffff")}" stroke="#555"/>'
            f'<text x="{middle:.0f}" y="{place.y + (20 if box.caption else 28):.0f}" text-anchor="middle" '
            f'font-weight="bold">{_escape(_short(name))}</text>'
            + (
                f'<text x="{middle:.0f}" y="{place.y + 36:.0f}" text-anchor="middle" fill="#555" font-size="10">'
                f"{_escape(_short(box.caption, 32))}</text>"
                if box.caption
                else ""
            )
            + "</g>"
        )


def _arrows(picture: Picture, places: dict[str, _Place]) -> Iterator[str]:
    for source, targets in picture.next.items():
        for target in targets:
            x1, y1 = places[source].x + _WIDTH / 2, places[source].y + _HEIGHT
            x2, y2 = places[target].x + _WIDTH / 2, places[target].y
            bend = max(20.0, (y2 - y1) / 2)
            yield (
                f'<path d="M{x1:.0f},{y1:.0f} C{x1:.0f},{y1 + bend:.0f} {x2:.0f},{y2 - bend:.0f} {x2:.0f},{y2:.0f}" '
                'fill="none" stroke="#555" marker-end="url(#tip)"/>'
            )
            if label := picture.labels.get((source, target)):
                yield (
                    f'<text x="{(x1 + x2) / 2:.0f}" y="{(y1 + y2) / 2:.0f}" text-anchor="middle" font-size="10" '
                    f'fill="#555">{_escape(_short(label, 40))}</text>'
                )


def _escape(text: str) -> str:
    """Return a text as it stands in XML, which has no place for signs that cannot be seen."""
    return escape_html("".join(char if char.isprintable() else " " for char in text))


def _short(text: str, length: int = 24) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"
