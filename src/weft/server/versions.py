"""Versions in headers: where a tag stands as an ETag, and what a caller expects it to be by If-Match."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from weft.core.errors import InvalidInput, NotFound, TagConflict
from weft.history.model import Materialized, Pushed, Tag
from weft.sdk.workflows import document_of

if TYPE_CHECKING:
    from weft.sdk.client import Client

# RFC 9110, 8.8.3: a text in quotes, without quotes in it; W/ before it says that it is not exact.
_TAG = r'(?:W/)?"[\x21\x23-\x7e\x80-\xff]*"'
_TAGS = re.compile(rf"(?:[ \t]*,)*[ \t]*{_TAG}[ \t]*(?:,[ \t]*(?:{_TAG}[ \t]*)?)*")
# One that is protected shows it: what is told of it is another then, though it has not moved.
_PROTECTED = "p"
_NUMBER = re.compile(rf'"([1-9]\d{{0,17}}|0){_PROTECTED}?"')
_ANY = "*"


def etag_of(found: Any) -> str | None:
    """Return the ETag that tells where a tag stands, for answers about one."""
    if isinstance(found, Tag):
        return f'"{found.version}{_PROTECTED if found.is_protected else ""}"'
    if isinstance(found, (Materialized, Pushed)) and found.tag_version:
        return f'"{found.tag_version}"'
    return None


async def expectation(client: Client, if_match: str, asked: Mapping[str, Any]) -> dict[str, int]:
    """Return what the call is to expect of its tag by If-Match; raises `TagConflict` when it is not so already.

    One that is not exact is never what the caller means. Any of several, and any at all, is looked up.
    """
    exact = [each for each in _tags_in("if-match", if_match) if not each.startswith("W/")]
    numbers = [int(number[1]) for each in exact if (number := _NUMBER.fullmatch(each)) is not None]
    if len(exact) == len(numbers) == 1:
        return {"expect": numbers[0]}
    name = _tag_of(asked)
    try:
        now = await client.workflows.tag(name)
    except NotFound:
        raise TagConflict(name, "moved", {"version": 0}) from None
    if _ANY in exact:
        return {}
    if now.version not in numbers:
        told = {"version": now.version, "moved_by": now.moved_by, "moved_at": now.moved_at, "target": now.target_id}
        raise TagConflict(now.name, "moved", told | {"hash": now.target_hash})
    return {"expect": now.version}


def is_known(if_none_match: str | None, etag: str | None) -> bool:
    """Whether the caller has what it asks for: there exactness does not matter."""
    if if_none_match is None or etag is None:
        return False
    told = _tags_in("if-none-match", if_none_match)
    return told == [_ANY] or etag in {each.removeprefix("W/") for each in told}


def _tags_in(field: str, header: str) -> list[str]:
    """Return the ETags of a header, or the star that stands for any."""
    if header.strip() == _ANY:
        return [_ANY]
    if _TAGS.fullmatch(header) is None:
        raise InvalidInput(field, f'{header[:80]!r} is neither * nor ETags such as "12", with commas between them')
    return re.findall(_TAG, header)


def _tag_of(asked: Mapping[str, Any]) -> str:
    """Return the tag that a call would change."""
    name = asked.get("tag") or asked.get("into")
    return str(name if name is not None else document_of(asked["definition"]).data.get("workflow_id"))
