"""From a text or a file to a live DAG that can be used."""

from __future__ import annotations

from pathlib import Path

from weft.flow.live.model import DagDefinition
from weft.flow.live.validation import CheckedDag, check_dag_text
from weft.flow.reading import bytes_of


def read_dag(source: str | bytes | Path) -> DagDefinition:
    """Return the live DAG in a file or in a text of YAML or JSON.

    Raises `InvalidDefinition`, whose ``problems`` are everything that is wrong with it, by line. Example::

        definition = weft.read_dag(Path("market.yaml"))
        print(definition.dag, len(definition.jobs))
    """
    checked = check_dag_file(source) if isinstance(source, Path) else check_dag_text(source)
    return checked.sound.model_copy(deep=True)


def check_dag_file(path: Path) -> CheckedDag:
    """Return the live DAG in a file, and everything that is wrong with it."""
    return check_dag_text(bytes_of(path), str(path))
