"""Handlers of a workflow that fails until somebody opens a gate."""

from __future__ import annotations

from pathlib import Path

import weft


@weft.task(name="gate.prepare")
def prepare(notes: str, size: int) -> int:
    """Note that it was called, and return a size."""
    with Path(notes).open("a", encoding="utf-8") as file:
        file.write("prepared\n")
    return size


@weft.task(name="gate.pass", retry=0)
def enter(gate: str, size: int) -> int:
    """Return the size, when the gate is there, and it fits."""
    if not Path(gate).exists():
        raise ValueError("the gate is closed")
    if size > 5:
        raise ValueError(f"{size} does not fit")
    return size
