"""From a text or a file to a definition that can be used."""

from __future__ import annotations

from pathlib import Path

from weft.core.errors import InvalidDefinition, InvalidInput
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
    return sound(checked)


def check_file(path: Path, **options: object) -> Checked:
    """Return the definition in a file, and everything that is wrong with it."""
    try:
        text = path.read_bytes()
    except OSError as problem:
        raise InvalidInput("file", f"cannot read {path}: {problem.strerror or problem}") from None
    return check_text(text, str(path), **options)


def sound(checked: Checked) -> WorkflowDefinition:
    """Return the definition of what was checked; raises `InvalidDefinition` when it has errors."""
    if checked.definition is None:
        raise InvalidDefinition([problem for problem in checked.problems if problem.severity is Severity.ERROR])
    return checked.definition
