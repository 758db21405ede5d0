"""By what the outputs of workers without a database are known in the cache."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import orjson

if TYPE_CHECKING:
    from weft.catalog.model import Principal


def key_for(who: Principal, key: str) -> bytes:
    """Return the key of an output that a worker tells of; one whose token is of some queues shares with its like alone.

    The worker itself says what the key is: by any other it would read, and forge, the outputs of queues that it may not
    work for.
    """
    told = bytes.fromhex(key)
    if who.queues is None:
        return told
    return hashlib.sha256(told + orjson.dumps(sorted(set(who.queues)))).digest()
