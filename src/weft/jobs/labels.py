"""The labels of jobs: words by which people find them again."""

from __future__ import annotations

import re
from collections.abc import Mapping

from weft.core.checks import check_text
from weft.core.errors import InvalidInput

MAX_LABELS = 50
_NAME = re.compile(r"[A-Za-z0-9_.\-/]{1,100}")


def check_labels(labels: object) -> dict[str, str]:
    """Return labels that a job can have; raises `InvalidInput` that names the one that it cannot."""
    if labels is None:
        return {}
    if not isinstance(labels, Mapping):
        raise InvalidInput("labels", f"must be a mapping of names to texts, not {type(labels).__name__}")
    if len(labels) > MAX_LABELS:
        raise InvalidInput("labels", f"there are {len(labels)} of them, and may be {MAX_LABELS}")
    found: dict[str, str] = {}
    for name, value in labels.items():
        if not isinstance(name, str) or _NAME.fullmatch(name) is None:
            raise InvalidInput("labels", f"{name!r} is no name: letters, digits, _, -, . and /, at most 100")
        found[name] = check_text(value, f"labels.{name}", 200)
    return found
