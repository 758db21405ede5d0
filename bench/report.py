"""Figures, their goals, and the table that shows both."""

from __future__ import annotations

import json
import os
import platform
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from weft.db.embedded_programs import MAJOR


@dataclass
class Figure:
    """One measured value: what it is, what it stands beside, and whether it meets its goal."""

    workload: str
    value: float
    unit: str
    goal: str
    meets: bool | None
    beside: str = ""
    runs: list[float] = field(default_factory=list)


def shown(figure: Figure) -> list[str]:
    """Return a line of the table."""
    digits = 0 if figure.value >= 100 else 3 if abs(figure.value) < 0.1 else 2
    spread = f" [{min(figure.runs):,.{digits}f}..{max(figure.runs):,.{digits}f}]" if len(figure.runs) > 1 else ""
    verdict = {True: "yes", False: "NO", None: ""}[figure.meets]
    return [figure.workload, f"{figure.value:,.{digits}f} {figure.unit}{spread}", figure.goal, verdict, figure.beside]


def print_table(figures: list[Figure]) -> None:
    """Print all figures, columns aligned."""
    rows = [["workload", "measured", "goal", "met", "beside"], *(shown(figure) for figure in figures)]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)) + "  " + row[4])


def ten_million_additions() -> float:
    """Return how long this machine takes for a plain loop: shared ones differ from hour to hour."""
    began, total = time.perf_counter(), 0
    for number in range(10_000_000):
        total += number
    return time.perf_counter() - began


def write_json(figures: list[Figure], path: Path, extra: dict[str, object]) -> None:
    """Write the figures with the machine they were measured on."""
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": {
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "system": platform.system(),
            "postgresql": MAJOR,
            "ten_million_additions": ten_million_additions(),
        },
        "load": os.getloadavg(),
        "figures": [asdict(figure) for figure in figures],
        **extra,
    }
    path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
