"""What is said of the cache, by an author or with the params, and by what an output is known there."""

from __future__ import annotations

import hashlib
from datetime import timedelta
from typing import NamedTuple

import orjson

from weft.core.checks import check_span
from weft.core.json import CACHED_MARK
from weft.jobs.cached_params import without_cache
from weft.queue.cache import Keys

REFRESH = "refresh"


class Caching(NamedTuple):
    """How long an output serves, None for as long as history is kept; and whether an earlier one is taken."""

    lasts: timedelta | None = None
    takes: bool = True


def caching_of(said: object, field: str = "cache") -> Caching | None:
    """Return what an author says of the cache: a span or its seconds, True, ``refresh``, or False for not at all."""
    if said is False:
        return None
    if said == REFRESH:
        return Caching(takes=False)
    return Caching() if said is True else Caching(check_span(said, field))


def caching_said(params: str, own: Caching | None) -> tuple[str, Caching | None]:
    """Return the params alone, and what is said with them of the cache, else what the handler says itself."""
    if not params.startswith(CACHED_MARK):
        return params, own
    params, lasts, takes = without_cache(params)
    if lasts == REFRESH:
        return params, Caching(None if own is None else own.lasts, takes=False)
    found = own if lasts is None else caching_of(lasts)
    return params, None if found is None else found._replace(takes=takes and found.takes)


def keys_of(handler: str, code: str, params: str) -> Keys:
    """Return what an output is known by: the order of keys in the params makes no difference."""
    ordered = orjson.dumps(orjson.loads(params), option=orjson.OPT_SORT_KEYS)
    return Keys(*(hashlib.sha256(b"\0".join((handler.encode(), of, ordered))).digest() for of in (code.encode(), b"")))
