"""Draws a job: its nodes with how it goes with them, and by which ways it went."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.cli.output import as_record, print_json, print_line, styled

if TYPE_CHECKING:
    from weft.jobs.graph import JobGraph

_STYLES = {
    "completed": "green", "running": "cyan", "failed": "red", "dead": "red", "skipped": "dim", "cancelled": "dim",
}  # fmt: skip


def print_graph(graph: JobGraph, *, svg: bool, mermaid: bool, as_json: bool) -> None:
    """Print a job as text, or as a picture to be written to a file."""
    from weft.flow.drawing import draw_mermaid, draw_svg, draw_tree

    if as_json:
        print_json(as_record(graph))
        return
    picture = graph.picture()
    if svg or mermaid:
        print((draw_svg if svg else draw_mermaid)(picture), end="")
        return
    went = {(edge.source, edge.target): edge.state for edge in graph.edges}
    before: dict[str, list[str]] = picture.previous
    for line in draw_tree(picture):
        name = line.box.name
        is_left_out = bool(before[name]) and all(went[source, name] == "skipped" for source in before[name])
        way = styled(line.lead, "dim") + styled(f"{line.label} → " if line.label else "", "yellow")
        if line.is_elsewhere:
            print_line(way + styled(f"↴ {name}", "dim"))
            continue
        style = _STYLES.get(line.box.state or "", "dim" if is_left_out else "")
        box = styled(f"{line.box.mark} {name}", f"bold {style}".strip())
        print_line(way + box + styled(line.caption, style or "dim") + styled(line.group, "cyan"))
    if graph.is_cut:
        print_line(styled(f"and more: only {len(graph.nodes):,} nodes are drawn", "dim"))
