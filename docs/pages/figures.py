"""The figures of one run of the bench, as the page on speed quotes them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

QUOTED = Path(__file__).resolve().parents[2] / "bench" / "figures.json"
_PLACE = re.compile(r"(<!-- figures: begin -->\n).*?(<!-- figures: end -->)", re.DOTALL)


def refreshed(text: str) -> str:
    """Return a page with the figures that are quoted now, if it has a place for them."""
    if not _PLACE.search(text):
        return text
    quoted = json.loads(QUOTED.read_text(encoding="utf-8"))
    return _PLACE.sub(lambda place: place[1] + _figures(quoted) + place[2], text)


def _figures(run: dict[str, Any]) -> str:
    machine = run["machine"]
    lines = [
        f"Measured on {run['at'][:10]} by `{run['command']}` on {machine['cores']} shared cores with",
        f"Python {machine['python']} and the embedded PostgreSQL {machine['postgresql']}. Ten million additions in a",
        f"Python loop took {machine['ten_million_additions']:.2f} s there.",
        "",
        "| workload | measured | beside, in the same run | goal | met |",
        "| --- | --- | --- | --- | --- |",
    ]
    verdicts = {True: "yes", False: "no", None: ""}
    for figure in run["figures"]:
        cells = (
            figure["workload"], _cell(figure["value"], figure["unit"]), figure["beside"], figure["goal"],
            verdicts[figure["meets"]],
        )  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    if peers := run.get("peers"):
        lines += ["", "Other queues, on the same server in the same run:", ""]
        lines += ["| system | enqueued one call | worked | pick-up, p50 / p99 |", "| --- | --- | --- | --- |"]
        lines += [
            f"| {peer['peer']} {peer['version']} | {peer['enqueue_per_s']:,.0f}/s | {peer['tasks_per_s']:,.0f}/s "
            f"| {peer['pickup_p50_ms']:.1f} / {peer['pickup_p99_ms']:.1f} ms |"
            for peer in peers
        ]
    if shapes := run.get("shapes"):
        lines += ["", "Workflow systems, in the same run:", "", *shapes_table(shapes)]
    return "\n".join(lines) + "\n"


def shapes_table(systems: list[dict[str, Any]]) -> list[str]:
    """Return a table with a line for each system; where a size is not that of the head, the cell says so."""
    chain, fan, fib = 100, 1_000, 40
    lines = [
        f"| system | keeps its state | chain of {chain}, a hop | 1 → {fan:,} → 1 | {fib} x fib(10), overhead in all |",
        "| --- | --- | --- | --- | --- |",
    ]
    for system in systems:
        sizes = system["sizes"]
        cells = (
            f"{system['peer']} {system['version']}",
            system["keeps"],
            _cell(system["hop_ms"], "ms", "" if sizes["chain"] == chain else f", of {sizes['chain']:,}"),
            _cell(system["fan_s"], "s", "" if sizes["fan"] == fan else f", {sizes['fan']:,} wide"),
            _cell(system["fib_overhead_s"], "s", "" if sizes["fib"] == fib else f", {sizes['fib']:,} of them"),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _cell(value: float | None, unit: str, size: str = "") -> str:
    if value is None:
        return "–"
    digits = 0 if value >= 100 else 3 if abs(value) < 0.1 else 2
    return f"{value:,.{digits}f} {unit}{size}"
