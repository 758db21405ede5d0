"""``weft diff``: shows what differs between two workflow definitions, node by node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from weft.cli.apps import JsonFlag, new_app
from weft.cli.completion import complete_tag

if TYPE_CHECKING:
    from weft.flow.diff import Change, Diff

app = new_app()

Old = Annotated[
    str,
    typer.Argument(
        metavar="OLD", help="A file, - for the input, a tag, a version or a job.", autocompletion=complete_tag
    ),
]
New = Annotated[str, typer.Argument(metavar="NEW", help="Another.", autocompletion=complete_tag)]
AsPatch = Annotated[bool, typer.Option("--patch", help="Print the JSON Patch that makes NEW of OLD.")]
_SHOWN = 200


@app.command()
def diff(old: Old, new: New, as_patch: AsPatch = False, as_json: JsonFlag = False) -> None:
    """Show what differs: nodes that came and went, fields that changed. Ends with 1 when something does."""
    from weft.cli.definitions import find_document
    from weft.cli.output import print_json, print_line
    from weft.flow.diff import diff as compare

    found = compare(find_document(old), find_document(new))
    if as_patch:
        print_json(found.ops)
    elif as_json:
        print_json(found.to_json())
    elif not found:
        print_line("no difference")
    else:
        print_diff(found)
    raise typer.Exit(1 if found else 0)


def print_diff(found: Diff) -> None:
    """Print a difference for people, in colours where there is a terminal."""
    from weft.cli.output import print_line, styled

    for change in found.outside:
        _print_change(change, "")
    for name, node in found.removed.items():
        print_line(styled(f"- {name}  {_value(node)}", "red"))
    for name, node in found.added.items():
        print_line(styled(f"+ {name}  {_value(node)}", "green"))
    for name, changes in found.changed.items():
        print_line(styled(f"~ {name}", "bold yellow"))
        for change in changes:
            _print_change(change, "    ")


def _print_change(change: Change, indent: str) -> None:
    from weft.cli.output import print_line, styled
    from weft.flow.diff import ABSENT
    from weft.flow.problems import dotted

    line = styled(f"{indent}{dotted(change.path)}: ", "")
    if change.old is not ABSENT:
        line += styled(_value(change.old), "red")
    if change.old is not ABSENT and change.new is not ABSENT:
        line += styled(" → ", "dim")
    if change.new is not ABSENT:
        line += styled(_value(change.new), "green")
    print_line(line + styled(" (gone)" if change.new is ABSENT else " (new)" if change.old is ABSENT else "", "dim"))


def _value(value: Any) -> str:
    import orjson

    text = orjson.dumps(value).decode()
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
