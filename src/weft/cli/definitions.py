"""Finds the definitions and changes that arguments name: in files or in the history."""

from __future__ import annotations

import re
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from weft.sdk.authoring.workflow import Workflow

# A workflow of a module, as in `flows:nightly`.
_IN_MODULE = re.compile(r"([A-Za-z_][\w.]*):([A-Za-z_]\w*)")


def find_workflow(which: str) -> Workflow[..., Any] | None:
    """Return the Python workflow that an argument such as ``flows:nightly`` names; None for what names no such."""
    refuse_source(which)
    found = _IN_MODULE.fullmatch(which)
    if found is None or Path(which).exists():
        return None
    from weft.cli.worker_process import import_apps
    from weft.core.errors import InvalidInput
    from weft.core.suggestions import did_you_mean
    from weft.sdk.authoring.workflow import Workflow

    module, name = found.groups()
    import_apps([module])
    there = {key: value for key, value in vars(sys.modules[module]).items() if isinstance(value, Workflow)}
    if name not in there:
        hint = did_you_mean(name, there) or (f" There are {', '.join(sorted(there))}." if there else "")
        raise InvalidInput("workflow", f"there is no @weft.workflow {name!r} in {module}.{hint}")
    return there[name]


def refuse_source(which: str) -> None:
    """Refuse a Python workflow that is named by its file: it is a part of a module, of which there is one."""
    from weft.core.errors import InvalidInput

    file, _, name = which.partition(".py:")
    if which.endswith(".py") or name:
        module = file.removesuffix(".py").replace("/", ".").strip(".")
        raise InvalidInput("workflow", f"name the module, not its file: {module}:{name or 'NAME'} instead of {which}")


def find_document(which: str) -> dict[str, Any]:
    """Return the document that an argument names, a file, a Python workflow or a tag; it must be readable."""
    from weft.core.error_lines import hint_in
    from weft.core.errors import InvalidInput, NotFound

    path = Path(which)
    refuse_source(which)
    if is_input(path) or path.is_file():
        return read_file(path)
    if (workflow := find_workflow(which)) is not None:
        return workflow.document
    if path.suffix in (".yaml", ".yml", ".json"):
        raise InvalidInput("file", f"there is no file {which}")
    from weft.cli.calls import call

    try:
        return dict(call(lambda client: client.workflows.show(which)).data)
    except NotFound as problem:
        what, hint = f"there is no file {which}, nor a tag or version of that name", hint_in(str(problem))
        raise InvalidInput("file", what if hint is None else f"{what}. {hint}") from None


def is_input(path: Path) -> bool:
    """Whether an argument stands for the standard input."""
    return str(path) == "-"


def read_input() -> bytes:
    """Return the standard input, as much of it as tells that it is too much."""
    from weft.flow.document import MAX_BYTES

    return sys.stdin.buffer.read(MAX_BYTES + 1)


def read_file(path: Path) -> dict[str, Any]:
    """Return the document in a file; it need not be sound, but must be readable. ``-`` is the standard input."""
    from weft.core.errors import InvalidDefinition, InvalidInput
    from weft.flow.document import Unreadable, read_document
    from weft.flow.problems import placed

    try:
        document = read_document(read_input() if is_input(path) else path.read_bytes(), str(path))
    except Unreadable as problem:
        raise InvalidDefinition([replace(problem.problem, file=str(path))]) from None
    except OSError as problem:
        raise InvalidInput("file", f"cannot read {path}: {problem.strerror or problem}") from None
    if document.problems:
        raise InvalidDefinition(placed(document.problems, document))
    if not isinstance(document.data, dict):
        raise InvalidInput("file", f"{path} is no definition: it has no mapping with nodes")
    return document.data


def read_ops(path: Path) -> list[Any]:
    """Return the JSON Patch in a file; ``-`` is the standard input."""
    from weft.core.errors import InvalidInput
    from weft.flow.patches import MAX_FILE_BYTES

    try:
        # No more than tells that it is too much.
        with nullcontext(sys.stdin.buffer) if str(path) == "-" else path.open("rb") as file:
            text = file.read(MAX_FILE_BYTES + 1)
        if len(text) > MAX_FILE_BYTES:
            problem = f"{path} has more than {MAX_FILE_BYTES:,} bytes, and no patch may: push a new version instead"
            raise InvalidInput("file", problem)
        found = _exact_json(text)
    except OSError as problem:
        raise InvalidInput("file", f"cannot read {path}: {problem.strerror or problem}") from None
    except ValueError as problem:
        raise InvalidInput("file", f"{path} is no JSON: {problem}") from None
    if not isinstance(found, list):
        raise InvalidInput("file", f"{path} is no JSON Patch: it must be a list of operations")
    return found


def _exact_json(text: str | bytes) -> Any:
    """Return the value of JSON; raises `ValueError`. orjson tells best what is none, and rounds large integers."""
    import json

    import orjson

    orjson.loads(text)
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deep") from None


def read_assignments(assignments: list[str]) -> dict[str, Any]:
    """Return fields and their values; what is no JSON is text."""
    from weft.core.errors import InvalidInput

    found: dict[str, Any] = {}
    for assignment in assignments:
        # At the first sign that stands in no quoted name.
        parts = re.fullmatch(r'((?:[^="]|(?<=\[)"(?:[^"\\]|\\.)*")+)=(.*)', assignment, re.DOTALL)
        if parts is None:
            raise InvalidInput("set", f"{assignment!r} is no assignment: write nodes.x.params.y=3")
        field, text = parts.groups()
        try:
            found[field] = _exact_json(text)
        except ValueError:
            found[field] = text
    return found
