"""A connection that knows the array types of PostgreSQL from those before it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import asyncpg

if TYPE_CHECKING:
    _Plain = asyncpg.Connection[asyncpg.Record]
else:
    _Plain = asyncpg.Connection

# Below it are the types that PostgreSQL comes with: the same in every database.
_FIRST_OF_A_DATABASE = 16384
_KNOWN: dict[frozenset[int], list[asyncpg.Record]] = {}


class _Unsent(NamedTuple):
    """Stands for the statement that would have asked: what is prepared without a name is still prepared."""

    name: str = "unsent"


class KnowingConnection(_Plain):
    """A connection that asks for a type of PostgreSQL only when no other of this process has.

    asyncpg asks in each session anew what an array such as ``bigint[]`` is made of, and to answer takes the server
    longer than most of what we ask for. Where an asyncpg does not call this, each session asks as before.
    """

    async def _introspect_types(self, typeoids: Iterable[int], timeout: float | None) -> tuple[Any, Any]:
        asked = frozenset(typeoids)
        if max(asked) >= _FIRST_OF_A_DATABASE:
            return await super()._introspect_types(typeoids, timeout)  # type: ignore[misc,no-any-return]
        if asked in _KNOWN:
            return _KNOWN[asked], _Unsent()
        found, statement = await super()._introspect_types(typeoids, timeout)  # type: ignore[misc]
        _KNOWN[asked] = found
        return found, statement
