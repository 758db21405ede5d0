"""Static SQL, read from ``.sql`` files in which each statement has a name."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources

_NAME = re.compile(r"^-- name: *(\w+) *$", re.MULTILINE)


class Statements:
    """The statements of one file, each an attribute.

    Example::

        SQL = Statements("weft.queue", "sql/task.sql")
        await conn.fetch(SQL.show_task, task_id)
    """

    def __init__(self, package: str, path: str) -> None:
        self.path = f"{package}/{path}"
        self.texts = _read(package, path)

    def __getattr__(self, name: str) -> str:
        try:
            return self.texts[name]
        except KeyError:
            raise AttributeError(f"{self.path} has no statement {name!r}") from None


@cache
def _read(package: str, path: str) -> dict[str, str]:
    text = resources.files(package).joinpath(path).read_text(encoding="utf-8")
    parts = _NAME.split(text)
    if parts[0].strip():
        raise ValueError(f"{package}/{path} has text before its first `-- name:` line")
    names, bodies = parts[1::2], parts[2::2]
    if len(set(names)) != len(names):
        raise ValueError(f"{package}/{path} has two statements of one name")
    return {name: body.strip().removesuffix(";") for name, body in zip(names, bodies, strict=True)}
