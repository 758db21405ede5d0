"""Puts files under ``examples/docs`` into the pages that show them.

A page names the file in a comment right above the block, a part of it after ``#``::

    <!-- example: retries.py#policies -->

A part stands between the lines ``docs: begin NAME`` and ``docs: end NAME`` of the file, each in a comment.
"""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent.parent / "examples" / "docs"
LANGUAGES = {".py": "python", ".sql": "sql", ".sh": "sh", ".toml": "toml", ".service": "ini", ".yaml": "yaml"}
MARK = re.compile(r"<!-- example: (?P<name>[\w./-]+?)(?:#(?P<part>\w+))? -->\n```\w*\n(?P<text>.*?)```\n", re.DOTALL)
_REGION_LINE = re.compile(r"^\s*(?:#|--) docs: (begin|end) \w+\n", re.MULTILINE)


def text_of(name: str, part: str | None = None) -> str:
    """Return the file, or one part of it, as a page shows it."""
    text = (FOLDER / name).read_text(encoding="utf-8")
    if part is not None:
        found = re.search(
            rf"^\s*(?:#|--) docs: begin {part}\n(.*?)^\s*(?:#|--) docs: end {part}\n", text, re.DOTALL | re.MULTILINE
        )
        if found is None:
            raise ValueError(f"examples/docs/{name} has no part {part!r}")
        text = found[1]
    return textwrap.dedent(_REGION_LINE.sub("", text)).strip("\n") + "\n"


def refreshed(page: str, path: Path) -> str:
    """Return the text of a page with every example as it stands in its file."""

    def replace(match: re.Match[str]) -> str:
        name, part = match["name"], match["part"]
        try:
            text = text_of(name, part)
        except (OSError, ValueError) as problem:
            raise SystemExit(f"{path}: {problem}") from None
        mark = f"<!-- example: {name}{'#' + part if part else ''} -->"
        return f"{mark}\n```{LANGUAGES[Path(name).suffix]}\n{text}```\n"

    return MARK.sub(replace, page)
