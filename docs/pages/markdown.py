"""Small pieces of Markdown that several pages need."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from datetime import timedelta


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table; bars inside cells are escaped."""
    lines = [_line(head), _line(["---"] * len(head)), *map(_line, rows)]
    return "\n".join(lines) + "\n"


def _line(cells: Sequence[object]) -> str:
    texts = (str(cell).replace("\n", " ").replace("|", "\\|") for cell in cells)
    return "| " + " | ".join(texts) + " |"


def code(text: object) -> str:
    """Return ``text`` as inline code."""
    return f"`{text}`"


def sentence(text: str) -> str:
    """Return ``text`` with a capital and a full stop."""
    text = text.strip()
    return f"{text[0].upper()}{text[1:]}" + ("" if text.endswith((".", "?", ":")) else ".")


def duration(value: timedelta) -> str:
    """Return a span of time in the largest unit that divides it."""
    seconds = value.total_seconds()
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:g}{unit}"
    return f"{seconds:g}s"


def size(value: int) -> str:
    """Return a number of bytes in the largest unit that divides it."""
    for unit, factor in (("GiB", 1024**3), ("MiB", 1024**2), ("KiB", 1024)):
        if value >= factor and value % factor == 0:
            return f"{value // factor}{unit}"
    return str(value)


def from_docstring(text: str) -> str:
    """Turn a docstring into Markdown: its inline code, and its examples into blocks."""
    lines = textwrap.dedent(text).strip().splitlines()
    first, rest = lines[0], textwrap.dedent("\n".join(lines[1:]))
    body = f"{first}\n{rest}".strip("\n")
    body = re.sub(r"``([^`]+)``", r"`\1`", body)
    parts: list[str] = []
    block: list[str] | None = None
    for line in body.splitlines():
        if block is not None and (line.startswith("    ") or not line):
            block.append(line[4:])
            continue
        if block is not None:
            parts += [_block(block)]
            block = None
        if line.endswith("::"):
            parts += [line[:-1], ""]
            block = []
        else:
            parts.append(line)
    if block is not None:
        parts.append(_block(block))
    return "\n".join(parts).strip() + "\n"


def _block(lines: list[str]) -> str:
    text = "\n".join(lines).strip("\n")
    return f"<!-- not run: from a docstring -->\n```python\n{text}\n```\n"
