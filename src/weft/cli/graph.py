"""``weft graph``: draws a workflow definition."""

from __future__ import annotations

from typing import Annotated

import typer

from weft.cli.apps import JsonFlag, new_app
from weft.cli.completion import complete_tag

app = new_app()

Which = Annotated[
    str,
    typer.Argument(
        metavar="FILE|TAG|VERSION",
        help="A YAML or JSON file, - for the input, a tag, a version or a job.",
        autocompletion=complete_tag,
    ),
]
Svg = Annotated[bool, typer.Option("--svg", help="As an SVG picture.")]
Mermaid = Annotated[bool, typer.Option("--mermaid", help="As a Mermaid flowchart.")]


@app.command()
def graph(which: Which, svg: Svg = False, mermaid: Mermaid = False, as_json: JsonFlag = False) -> None:
    """Draw a workflow definition: as text, or as a picture to be written to a file."""
    from weft.cli.definitions import find_document
    from weft.cli.output import print_json, print_line, styled
    from weft.core.errors import InvalidInput
    from weft.flow.drawing import draw_mermaid, draw_svg, draw_tree, picture_of

    if svg + mermaid + as_json > 1:
        raise InvalidInput("--svg", "give one of --svg, --mermaid and --json")
    picture = picture_of(find_document(which))
    if as_json:
        print_json(picture.to_json())
        return
    if svg or mermaid:
        print((draw_svg if svg else draw_mermaid)(picture), end="")
        return
    for line in draw_tree(picture):
        way = styled(line.lead, "dim") + styled(f"{line.label} → " if line.label else "", "yellow")
        if line.is_elsewhere:
            print_line(way + styled(f"↴ {line.box.name}", "dim"))
        else:
            box = styled(f"{line.box.mark} {line.box.name}", "bold") + styled(line.caption, "dim")
            print_line(way + box + styled(line.group, "cyan"))
