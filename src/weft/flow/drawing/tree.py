"""A definition as lines of text: what follows a node stands below it, indented; what joins is drawn once.

The members of a group may stand far from each other in such a drawing: each names its group.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from weft.flow.drawing.picture import Box, Picture

# What is deeper stays where it is: so wide is no terminal, and each line would be longer than the one before.
_WIDEST = 180


@dataclass(frozen=True)
class Line:
    """A line of a drawing: what leads to it, the label of the way, and the box, or the one that is drawn elsewhere."""

    lead: str
    label: str
    box: Box
    is_elsewhere: bool = False

    def __str__(self) -> str:
        label = f"{self.label} → " if self.label else ""
        if self.is_elsewhere:
            return f"{self.lead}{label}↴ {self.box.name}"
        return f"{self.lead}{label}{self.box.mark} {self.box.name}{self.caption}{self.group}"

    @property
    def caption(self) -> str:
        """What stands behind the name."""
        return f"  {self.box.caption}" if self.box.caption else ""

    @property
    def group(self) -> str:
        """What stands behind that: the group that the node is in."""
        return f"  [{self.box.group}]" if self.box.group else ""


def draw_tree(picture: Picture) -> Iterator[Line]:
    """Yield the lines of a drawing. A node that several lead to is drawn under the last of them; before, an arrow."""
    heads = [name for name, before in picture.previous.items() if not before] or list(picture.boxes)[:1]
    waits = {name: len(before) for name, before in picture.previous.items()}
    drawn: set[str] = set()
    # Last what is on a circle, or behind one: nothing that is drawn comes before it.
    for start in (*heads, *picture.boxes):
        if start in drawn:
            continue
        waits[start] = 1
        # For each line that is still to come: the node, what leads to it, the lead of what follows it, and its label.
        open_ = [(start, "", "", "")]
        while open_:
            name, lead, below, label = open_.pop()
            waits[name] -= 1
            if name in drawn or waits[name] > 0:
                yield Line(lead, label, picture.boxes[name], is_elsewhere=True)
                continue
            drawn.add(name)
            yield Line(lead, label, picture.boxes[name])
            targets = picture.next[name]
            # A single way on needs no indentation, so that a long chain does not wander off to the right.
            for place, target in reversed(list(enumerate(targets))):
                is_last = place == len(targets) - 1
                if len(targets) == 1 or len(below) > _WIDEST:
                    corner, under = "", ""
                else:
                    corner, under = ("└─ ", "   ") if is_last else ("├─ ", "│  ")
                open_.append((target, below + corner, below + under, picture.labels.get((name, target), "")))
