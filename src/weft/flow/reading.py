"""From a text or a file to a definition that can be used."""

from __future__ import annotations

from pathlib import Path

from weft.core.errors import InvalidDefinition, InvalidInput
from weft.flow.document import Document, Unreadable, read_document
from weft.flow.model import WorkflowDefinition
from weft.flow.problems import Severity
from weft.flow.validation import Checked, check_text


def read_definition(source: str | bytes | Path) -> WorkflowDefinition:
    """Return the definition in a file or in a text of YAML or JSON.

    Raises `InvalidDefinition`, whose ``problems`` are everything that is wrong with it, by line. Example::

        definition = weft.read_definition(Path("flow.yaml"))
        print(definition.workflow_id, len(definition.nodes))
    """
    checked = check_file(source) if isinstance(source, Path) else check_text(source)
    # A copy: what was read of a node is remembered, and a caller may change what it gets.
    return sound(checked).model_copy(deep=True)


def check_file(path: Path, **options: object) -> Checked:
    """Return the definition in a file, and everything that is wrong with it."""
    return check_text(bytes_of(path), str(path), **options)


def read_file(path: Path) -> Document:
    """Return the document in a file, which need not be a definition; raises `InvalidDefinition` where it is none."""
    return read_text(bytes_of(path), str(path))


def read_text(text: str | bytes, file: str | None = None) -> Document:
    """Return the document in a text of YAML or JSON; raises `InvalidDefinition` where it is none."""
    try:
        return read_document(text, file)
    except Unreadable:
        checked = check_text(text, file)  # with the place
        raise InvalidDefinition(checked.problems) from None


def bytes_of(path: Path) -> bytes:
    """Return what a file holds; raises `InvalidInput`."""
    try:
        return path.read_bytes()
    except OSError as problem:
        raise InvalidInput("file", f"cannot read {path}: {problem.strerror or problem}") from None


def sound(checked: Checked) -> WorkflowDefinition:
    """Return the definition of what was checked; raises `InvalidDefinition` when it has errors."""
    if checked.definition is None:
        raise InvalidDefinition([problem for problem in checked.problems if problem.severity is Severity.ERROR])
    return checked.definition
