"""Drawings of a definition's graph: as text, as SVG and as Mermaid."""

from weft.flow.drawing.mermaid import draw_mermaid
from weft.flow.drawing.picture import Picture, picture_of
from weft.flow.drawing.svg import draw_svg
from weft.flow.drawing.tree import draw_tree

__all__ = ["Picture", "draw_mermaid", "draw_svg", "draw_tree", "picture_of"]
