"""A definition as an SVG picture: boxes in layers from top to bottom, frames around groups, arrows between them."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape as escape_html

from weft.flow.drawing.layout import HEIGHT, Layer, Layout, Rect, Sizes, lay_out
from weft.flow.drawing.lettering import cut, width_of
from weft.flow.drawing.picture import Box, Picture, Way

_MARGIN, _PADDING, _BACK = 24.0, 14.0, 40.0
_NARROWEST, _WIDEST, _WIDEST_LABEL = 96.0, 260.0, 220.0
_NAME, _SMALL = 12.0, 10.0
_KINDS = ("start", "end", "task", "conditional", "fan_out", "fan_in", "wait", "workflow")
_STYLE = """\
text { font-family: system-ui, -apple-system, "Segoe UI", "Noto Sans", sans-serif; fill: #1f2328; }
.name { font-size: 12px; font-weight: bold; }
.caption, .label, .group text { font-size: 10px; fill: #57606a; }
.page { fill: #ffffff; }
.box rect { fill: #ffffff; stroke: #57606a; }
.start rect, .end rect { fill: #dcf0d6; }
.conditional rect { fill: #fff2cc; }
.fan_out rect, .fan_in rect { fill: #dbe9fb; }
.wait rect { fill: #fbdcd9; }
.workflow rect { fill: #e8ddf0; }
.running rect { stroke: #0969da; stroke-width: 2px; }
.completed rect { stroke: #1a7f37; stroke-width: 2px; }
.failed rect, .dead rect { stroke: #cf222e; stroke-width: 2px; }
.skipped rect, .cancelled rect { stroke-dasharray: 3 3; }
.group rect { fill: #57606a; fill-opacity: 0.07; stroke: #8c959f; stroke-dasharray: 4 3; }
.way { fill: none; stroke: #57606a; stroke-width: 1.2; }
.back { stroke-dasharray: 5 3; }
.tip { fill: #57606a; }
.label, .group text { paint-order: stroke; stroke: #ffffff; stroke-width: 6px; stroke-linejoin: round; }
.group text { stroke: #f4f5f6; }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3; }
.caption, .label, .group text { fill: #adbac7; }
.page { fill: #0d1117; }
.box rect { fill: #161b22; stroke: #8b949e; }
.start rect, .end rect { fill: #1c3a22; }
.conditional rect { fill: #3f3413; }
.fan_out rect, .fan_in rect { fill: #16304f; }
.wait rect { fill: #4a211f; }
.workflow rect { fill: #35264a; }
.group rect { fill: #8b949e; stroke: #6e7681; }
.way { stroke: #8b949e; }
.tip { fill: #8b949e; }
.label { stroke: #0d1117; }
.group text { stroke: #161b22; }
}
"""


def draw_svg(picture: Picture) -> str:
    """Return the text of an SVG file, which is light or dark as the reader's page is."""
    layout = layout_of(picture)
    leads_back = any(way not in layout.ways for way in picture.ways)
    width, height = layout.width + 2 * _MARGIN + _BACK * leads_back, layout.height + 2 * _MARGIN
    told = _escape(f"{picture.title}: {len(picture.boxes)} nodes")
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{told}" width="{width:.0f}" '
            f'height="{height:.0f}" viewBox="{-_MARGIN:.0f} {-_MARGIN:.0f} {width:.0f} {height:.0f}">',
            f"<title>{told}</title>",
            f"<style>{_STYLE}</style>",
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" '
            'markerUnits="userSpaceOnUse" orient="auto"><path class="tip" d="M0,0.5 L8,4 L0,7.5 z"/></marker></defs>',
            f'<rect class="page" x="{-_MARGIN:.0f}" y="{-_MARGIN:.0f}" width="{width:.0f}" height="{height:.0f}"/>',
            *_frames(layout),
            *_arrows(picture, layout),
            *_titles(layout),
            *_boxes(picture, layout),
            *_labels(picture, layout),
            "</svg>\n",
        ]
    )


def layout_of(picture: Picture) -> Layout:
    """Return where everything of a picture stands when it is drawn."""
    return lay_out(picture, _sizes(picture))


def path_of(layout: Layout, way: Way) -> str:
    """Return the line of a way, as SVG says it."""
    if way in layout.ways:
        return _line(layout.ways[way])
    return _back(layout.boxes[way[0]], layout.boxes[way[1]])


def _sizes(picture: Picture) -> Sizes:
    boxes = {name: _box_width(box) for name, box in picture.boxes.items()}
    labels = {way: min(width_of(label, _SMALL) + 6, _WIDEST_LABEL) for way, label in picture.labels.items()}
    groups = {box.way_in[:length] for box in picture.boxes.values() for length in range(1, len(box.way_in) + 1)}
    return Sizes(boxes, labels, {group: min(width_of(group[-1], _SMALL), _WIDEST) for group in groups})


def _box_width(box: Box) -> float:
    text = max(width_of(box.name, _NAME, is_bold=True), width_of(box.caption, _SMALL))
    return min(max(text + 2 * _PADDING, _NARROWEST), _WIDEST)


def _frames(layout: Layout) -> Iterator[str]:
    for group, rect in sorted(layout.frames.items()):
        yield (
            f'<g class="group"><title>{_escape("group " + "/".join(group))}</title>'
            f'<rect {_corner(rect)} height="{rect.height:.1f}" rx="8"/></g>'
        )


def _titles(layout: Layout) -> Iterator[str]:
    """Write the titles of groups over the arrows that lead into them."""
    for group, rect in sorted(layout.frames.items()):
        title = _escape(cut(group[-1], rect.width - 20, _SMALL))
        yield f'<g class="group"><text x="{rect.x + 10:.1f}" y="{rect.y + 16:.1f}">{title}</text></g>'


def _boxes(picture: Picture, layout: Layout) -> Iterator[str]:
    for name, box in picture.boxes.items():
        rect, room = layout.boxes[name], layout.boxes[name].width - _PADDING
        kind = box.kind if box.kind in _KINDS else "task"
        radius = HEIGHT / 2 if kind in ("start", "end") else 6
        lines = [("name", 20 if box.caption else 28, cut(name, room, _NAME, is_bold=True))]
        if box.caption:
            lines.append(("caption", 36, cut(box.caption, room, _SMALL)))
        texts = (
            f'<text class="{style}" x="{rect.middle:.1f}" y="{rect.y + down:.1f}" text-anchor="middle">'
            f"{_escape(text)}</text>"
            for style, down, text in lines
        )
        yield (
            f'<g class="box {kind}{_state(box)}"><title>{_escape(f"{name}: {box.kind} {box.caption}".strip())}</title>'
            f'<rect {_corner(rect)} height="{rect.height:.1f}" rx="{radius:.0f}"/>{"".join(texts)}</g>'
        )


def _state(box: Box) -> str:
    return "" if box.state is None else f" {box.state}"


def _arrows(picture: Picture, layout: Layout) -> Iterator[str]:
    for way in picture.ways:
        kind = "way" if way in layout.ways else "way back"
        yield f'<path class="{kind}" d="{path_of(layout, way)}" marker-end="url(#tip)"/>'


def _line(stops: list[tuple[float, Layer]]) -> str:
    """Return the line of a way: straight past boxes and into frames, and in curves only where there are none."""
    x, layer = stops[0]
    line = f"M{x:.1f},{layer.top + HEIGHT:.1f}"
    for next_x, following in stops[1:]:
        bend = (following.entry - layer.exit) / 2
        line += (
            f" V{layer.exit:.1f} C{x:.1f},{layer.exit + bend:.1f} {next_x:.1f},{following.entry - bend:.1f} "
            f"{next_x:.1f},{following.entry:.1f}"
        )
        x, layer = next_x, following
    return f"{line} V{layer.top:.1f}"


def _back(source: Rect, target: Rect) -> str:
    """Return the line of a way that leads back, as only definitions with circles have: round the right of boxes."""
    x1, y1 = source.x + source.width, source.y + HEIGHT / 2
    x2, y2 = target.x + target.width, target.y + HEIGHT / 2 - (10 if source is target else 0)
    out = max(x1, x2) + _BACK
    return f"M{x1:.1f},{y1:.1f} C{out:.1f},{y1:.1f} {out:.1f},{y2:.1f} {x2:.1f},{y2:.1f}"


def _labels(picture: Picture, layout: Layout) -> Iterator[str]:
    """Write each label where its way has come together with those to the same place, several below each other."""
    taken: dict[tuple[float, float], int] = {}
    for way, label in picture.labels.items():
        if way not in layout.ways:
            continue
        x, layer = layout.ways[way][1]
        count = taken[x, layer.entry] = taken.get((x, layer.entry), -1) + 1
        yield (
            f'<text class="label" x="{x:.1f}" y="{layer.entry + 8 - 12 * count:.1f}" text-anchor="middle">'
            f"{_escape(cut(label, _WIDEST_LABEL, _SMALL))}</text>"
        )


def _corner(rect: Rect) -> str:
    return f'x="{rect.x:.1f}" y="{rect.y:.1f}" width="{rect.width:.1f}"'


def _escape(text: str) -> str:
    """Return a text as it stands in XML, which has no place for signs that cannot be seen."""
    return escape_html("".join(char if char.isprintable() else " " for char in text))
