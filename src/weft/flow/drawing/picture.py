"""What a drawing shows of a definition: boxes with a caption, and arrows with a label."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from weft.flow.graph import Graph, links_of

_MARKS = {"start": "●", "end": "■", "conditional": "◇", "fan_out": "⇉", "fan_in": "⇇", "wait": "⏸", "workflow": "▣"}


Group = tuple[str, ...]
Way = tuple[str, str]


@dataclass(frozen=True)
class Box:
    """A node: its name, its type, and what it does in a few words."""

    name: str
    kind: str
    caption: str
    group: str | None = None
    # Of a job: how it goes with the node.
    state: str | None = None

    @property
    def mark(self) -> str:
        """Return the sign of its type."""
        return _MARKS.get(self.kind, "○")

    @property
    def way_in(self) -> Group:
        """Return the groups that it is in, the outermost first."""
        return tuple(self.group.split("/")) if self.group else ()


@dataclass(frozen=True)
class Picture:
    """The boxes of a definition in an order in which each comes after those that lead to it, and the arrows."""

    boxes: dict[str, Box]
    next: dict[str, list[str]]
    previous: dict[str, list[str]]
    labels: dict[Way, str] = field(default_factory=dict)
    title: str = "Workflow"

    @property
    def ways(self) -> list[Way]:
        """The arrows: from which box to which."""
        return [(source, target) for source, targets in self.next.items() for target in targets]

    def to_json(self) -> dict[str, Any]:
        """Return the picture for programs."""
        boxes = self.boxes.values()
        return {
            "nodes": [{"name": b.name, "type": b.kind, "caption": b.caption, "group": b.group} for b in boxes],
            "edges": [
                {"from": source, "to": target, "label": self.labels.get((source, target))}
                for source, target in self.ways
            ],
        }


def picture_of(data: Mapping[str, Any]) -> Picture:
    """Return what to draw of a document; one with circles is drawn too, as far as it goes."""
    graph = Graph.of(data)
    nodes: dict[str, Any] = {name: data["nodes"][name] for name in graph.names}
    placed = set(graph.order)
    order = [*graph.order, *(name for name in graph.names if name not in placed)]
    labels: dict[Way, list[str]] = {}
    for link in links_of(data):
        if link.branch is not None:
            branch = nodes[link.source]["branches"][link.branch]
            for target in [link.target] if link.target in nodes else graph.groups.get(link.target, ()):
                labels.setdefault((link.source, target), []).append(str(branch.get("condition") or "otherwise"))
    boxes = {
        name: Box(name, str(nodes[name].get("type", "task")), _caption(nodes[name]), _group(nodes[name]))
        for name in order
    }
    named = {ends: " or ".join(found) for ends, found in labels.items()}
    return Picture(boxes, graph.next, graph.previous, named, f"Workflow {data.get('workflow_id', '')}".strip())


def _group(node: Mapping[str, Any]) -> str | None:
    group = node.get("group")
    return group if isinstance(group, str) else None


def _caption(node: Mapping[str, Any]) -> str:
    match node.get("type", "task"):
        case "task":
            return str(node.get("handler", ""))
        case "fan_out":
            task = node.get("task")
            most = f", at most {node['max_parallel']}" if "max_parallel" in node else ""
            return f"{task.get('handler', '') if isinstance(task, dict) else ''} for each{most}"
        case "conditional":
            return str(node.get("condition_field", "")).strip("{} ")
        case "wait":
            return f"for {node.get('event') or node.get('for', '')}"
        case "workflow":
            return str(node.get("workflow", ""))
    return ""
