"""Versions in headers: where a tag stands as an ETag, and what a caller expects it to be by If-Match."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from weft.core.errors import InvalidInput
from weft.history.model import Materialized, Pushed, Tag

_MATCH = re.compile(r'"(\d{1,18})"')


def etag_of(found: Any) -> dict[str, str]:
    """Return the header that tells where a tag stands, for answers about one."""
    if isinstance(found, Tag):
        return {"etag": f'"{found.version}"'}
    if isinstance(found, (Materialized, Pushed)) and found.tag_version:
        return {"etag": f'"{found.tag_version}"'}
    return {}


def expected(if_match: str) -> int:
    """Return the move that a caller expects a tag to be at."""
    if (found := _MATCH.fullmatch(if_match)) is None:
        raise InvalidInput("if-match", f'{if_match[:80]!r} is not the ETag of a tag, such as "12"')
    return int(found[1])


def is_known(if_none_match: str | None, headers: Mapping[str, str]) -> bool:
    """Whether the caller has what it asks for."""
    return if_none_match is not None and "etag" in headers and headers["etag"] in if_none_match.split(", ")
