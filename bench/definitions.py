"""Reading and checking of large definitions."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator

import yaml

from bench.report import Figure
from weft.flow.validation import check_text


def large_definition(nodes: int) -> str:
    """Return the YAML of a chain of tasks, each of which takes over what the one before has given."""
    return "\n".join(_lines(nodes)) + "\n"


def _lines(nodes: int) -> Iterator[str]:
    yield "workflow_id: large\ninputs:\n  size: {type: integer, default: 3}\nnodes:"
    yield "  START: {type: start, next: n0}"
    for number in range(nodes):
        yield f"  n{number}:\n    type: task\n    handler: raster.process\n    queue: container-tasks\n    params:"
        yield '      size: "{{ inputs.size }}"'
        if number:
            yield f'      before: "{{{{ nodes.n{number - 1}.output.rows }}}}"'
        yield "    retry: {max_attempts: 5, backoff: exponential}"
        yield f"    next: {f'n{number + 1}' if number + 1 < nodes else 'END'}"
    yield "  END: {type: end}"


def measure_definitions(nodes: int, repeat: int) -> list[Figure]:
    """A definition of many nodes, read and checked, beside libyaml's events of the same text alone."""
    text = large_definition(nodes)
    seconds, raws = [], []
    for _ in range(repeat):
        began = time.perf_counter()
        assert check_text(text).problems == []
        seconds.append(time.perf_counter() - began)
        began = time.perf_counter()
        for _ in yaml.parse(text, Loader=yaml.CSafeLoader):
            pass
        raws.append(time.perf_counter() - began)
    found = statistics.median(seconds)
    return [
        Figure(f"read and check a definition of {nodes:,} nodes", found, "s", "< 1 s", found < 1,
               f"the parser's events alone {statistics.median(raws):.2f} s", seconds),
    ]  # fmt: skip
