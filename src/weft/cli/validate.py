"""``weft validate``: checks workflow definitions, and says all that is wrong with them, like a compiler."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from weft.cli.apps import JsonFlag, new_app
from weft.cli.definitions import find_workflow, is_input, read_input

if TYPE_CHECKING:
    from rich.text import Text

    from weft.flow.problems import Problem
    from weft.flow.validation import Checked

app = new_app()
_SHOWN = 140

Files = Annotated[
    list[Path],
    typer.Argument(
        metavar="FILE|MODULE:NAME...", help="YAML or JSON files, folders of them, - for the input, or Python workflows."
    ),
]
Apps = Annotated[
    list[str] | None,
    typer.Option("--app", metavar="MODULE", help="A module whose handlers are known; may be repeated."),
]
Strict = Annotated[bool, typer.Option("--strict", help="Take warnings for errors; goes with --app.")]


@app.command()
def validate(files: Files, apps: Apps = None, strict: Strict = False, as_json: JsonFlag = False) -> None:
    """Check workflow definitions and live DAGs. Ends with 0 when all can be used, with 2 when one cannot."""
    from weft.cli.output import print_json

    handlers = _handlers(apps) if apps else None
    checked = [_check(path, handlers, strict) for path in _found(files)]
    if strict and handlers is None:
        checked = [_with_unchecked(each) for each in checked]
    problems = [problem for each in checked for problem in each.problems]
    errors = sum(_is_fatal(problem, strict) for problem in problems)
    if as_json:
        print_json({"files": len(checked), "errors": errors, "problems": [problem.to_json() for problem in problems]})
    else:
        _print(checked, errors, len(problems) - errors)
    raise typer.Exit(2 if errors else 0)


def _check(path: Path, handlers: list[str] | None, strict: bool) -> Checked:
    from weft.core.errors import InvalidInput
    from weft.flow.document import Document
    from weft.flow.problems import Problem
    from weft.flow.reading import bytes_of
    from weft.flow.validation import Checked

    if is_input(path):
        return _either(read_input(), "-", handlers, strict)
    if (workflow := find_workflow(str(path))) is not None:
        return _with_source(workflow.checked)
    try:
        return _either(bytes_of(path), str(path), handlers, strict)
    except InvalidInput as problem:  # told with the others
        return Checked(
            None, Document(None, "", str(path)), [Problem("unreadable", (), problem.problem, file=str(path))]
        )


def _either(text: bytes, file: str, handlers: list[str] | None, strict: bool) -> Checked:
    """Return what became of a text, which may be a live DAG as well as a workflow."""
    from weft.flow.live.validation import check_dag
    from weft.flow.structure import is_dag
    from weft.flow.validation import Checked, check_text

    checked = check_text(text, file, handlers=handlers, strict=strict)
    if not is_dag(checked.document.data):
        return checked
    found = check_dag(checked.document)
    return Checked(None, found.document, found.problems)


def _with_source(checked: Checked) -> Checked:
    """Show a Python workflow's problems in its own source; its handlers are there, or it could not name them."""
    from weft.flow.document import Document

    files = {problem.file for problem in checked.problems if problem.file is not None}
    if len(files) != 1:
        return replace(checked, nodes={})
    source = Path(files.pop())
    text = source.read_text(encoding="utf-8") if source.is_file() else ""
    return replace(checked, document=Document(None, text, str(source)), nodes={})


def _with_unchecked(checked: Checked) -> Checked:
    """Say of a file with handlers that nobody has looked whether they are there: that is no strict check."""
    from weft.flow.problems import Problem

    names = dict.fromkeys(name for facts in checked.nodes.values() for _, name in facts.handlers)
    if not names:
        return checked
    some = ", ".join(list(names)[:3]) + (", …" if len(names) > 3 else "")
    what = f"no handler was checked ({some}): name the modules that have them, each by --app MODULE"
    problem = Problem("unchecked_handlers", (), what, file=checked.document.file)
    return replace(checked, problems=[*checked.problems, problem])


def _is_fatal(problem: Problem, strict: bool) -> bool:
    return strict or problem.severity == "error"


def _found(files: list[Path]) -> list[Path]:
    """Return the files that were named, and those of the folders."""
    from weft.core.errors import InvalidInput

    found: list[Path] = []
    for path in files:
        inside = (
            sorted(each for each in path.rglob("*") if each.suffix in (".yaml", ".yml", ".json"))
            if path.is_dir()
            else [path]
        )
        if not inside:
            raise InvalidInput("file", f"there is no .yaml, .yml or .json file in {path}")
        found += inside
    return found


def _handlers(apps: list[str]) -> list[str]:
    from weft.cli.worker_process import import_apps
    from weft.worker.registry import REGISTRY

    import_apps(apps)
    return REGISTRY.names()


def _print(checked: list[Checked], errors: int, warnings: int) -> None:
    from weft.cli.output import plural, print_line

    for each in checked:
        for problem in each.problems:
            print_line(_headline(problem))
            _print_excerpt(each.document.text, problem)
    files = plural(len(checked), "file")
    found = [plural(count, noun) for count, noun in ((errors, "error"), (warnings, "warning")) if count]
    print_line(f"{', '.join(found)} in {files}" if found else f"{files} without a problem")


def _headline(problem: Problem) -> Text:
    from weft.cli.output import styled

    place, _, rest = str(problem).partition(f": {problem.severity}: ")
    severity = styled(f"{problem.severity}: ", "bold red" if problem.severity == "error" else "bold yellow")
    return styled(f"{place}: ", "bold") + severity + styled(rest, "")


def _print_excerpt(text: str, problem: Problem) -> None:
    """Show the line that a problem is on, and where on it."""
    from weft.cli.output import print_line, styled

    lines = text.splitlines()
    if problem.line is None or problem.column is None or problem.line > len(lines):
        return
    number, line = str(problem.line), lines[problem.line - 1]
    # Of a long line the part that it is about.
    begins = 0 if problem.column <= _SHOWN else problem.column - _SHOWN // 2
    mark = " " * (problem.column - 1 - begins) + "^"
    print_line(styled(f"  {number} | ", "dim") + styled(line[begins : begins + _SHOWN], ""))
    print_line(styled(f"  {' ' * len(number)} | ", "dim") + styled(mark, "bold"))
