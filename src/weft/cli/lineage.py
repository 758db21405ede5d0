"""``weft lineage``: draws what a dataset is made of, and what is made of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from weft.cli.apps import JsonFlag, new_app
from weft.cli.calls import call
from weft.cli.completion import complete_dataset

if TYPE_CHECKING:
    from weft.catalog.lineage import Lineage, LineagePlace
    from weft.flow.drawing import Picture
    from weft.flow.drawing.picture import Box

app = new_app()
_UNSEEN = "not visible"


@app.command()
def lineage(
    which: Annotated[
        str,
        typer.Argument(
            metavar="DATASET[.COLUMN]",
            help="A dataset, a column, such as `orders.price`, or a state, such as `orders@3.12`.",
            autocompletion=complete_dataset,
        ),
    ],
    up: Annotated[bool, typer.Option("--up", help="Only what it is made of.")] = False,
    down: Annotated[bool, typer.Option("--down", help="Only what is made of it.")] = False,
    depth: Annotated[int, typer.Option(min=1, max=100, help="How many steps it goes.")] = 5,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="At most so many places.")] = 200,
    svg: Annotated[bool, typer.Option("--svg", help="As an SVG picture.")] = False,
    mermaid: Annotated[bool, typer.Option("--mermaid", help="As a Mermaid flowchart.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Draw what a dataset is made of, and what is made of it; or the same of a column, or of one state.

    What you may not see is drawn without a name. Of columns it is known what those who write say of them, and what the
    SQL of live DAGs tells.
    """
    from weft.cli.output import as_record, print_json, print_line, remark, styled
    from weft.core.errors import InvalidInput
    from weft.flow.drawing import draw_mermaid, draw_svg, draw_tree

    if svg + mermaid + as_json > 1:
        raise InvalidInput("--svg", "give one of --svg, --mermaid and --json")
    direction = "both" if up == down else "up" if up else "down"
    found = call(lambda client: client.datasets.lineage(which, direction=direction, depth=depth, limit=limit))
    if as_json:
        print_json(as_record(found))
        return
    picture = picture_of(found)
    if svg or mermaid:
        print((draw_svg if svg else draw_mermaid)(picture), end="")
        return
    for line in draw_tree(picture):
        name, lead = line.box.name, styled(line.lead, "dim")
        if line.is_elsewhere:
            print_line(lead + styled(f"↴ {name}", "dim"))
            continue
        style = "bold cyan" if name == found.root else "dim" if name.startswith(_UNSEEN) else "bold"
        print_line(lead + styled(f"{line.box.mark} {name}", style) + styled(line.caption, "dim"))
    if found.is_cut:
        remark(f"and more: {len(found.places):,} are drawn; see --depth and --limit")


def picture_of(found: Lineage) -> Picture:
    """Return what to draw: each place below those that it is made of."""
    from weft.flow.drawing import Picture
    from weft.flow.drawing.picture import Box

    boxes = {place.name: Box(place.name, "dataset", _caption(place)) for place in found.places}
    following: dict[str, list[str]] = {name: [] for name in boxes}
    for edge in found.edges:
        following[edge.source].append(edge.target)
    for place in found.places:
        if place.made_of_unseen:
            following[_unseen(boxes)] = [place.name]
        if place.used_by_unseen:
            hidden = _unseen(boxes)
            following[hidden] = []
            following[place.name].append(hidden)
    previous: dict[str, list[str]] = {name: [] for name in boxes}
    for source, targets in following.items():
        for target in targets:
            previous[target].append(source)
    return Picture(boxes, following, previous, title=f"Lineage of {found.root}")


def _unseen(boxes: dict[str, Box]) -> str:
    """Add a box without a name, and return what tells it from others in the drawing."""
    from weft.flow.drawing.picture import Box

    count = sum(name.startswith(_UNSEEN) for name in boxes) + 1
    name = _UNSEEN if count == 1 else f"{_UNSEEN} ({count})"
    boxes[name] = Box(name, "dataset", "")
    return name


def _caption(place: LineagePlace) -> str:
    by = "" if place.producer is None else f"by {place.producer}"
    return by if place.job_id is None else f"{by}, job {place.job_id}"
