"""Params with what is said of the cache before them, as they are kept."""

from __future__ import annotations

import orjson

from weft.core.json import CACHED_MARK

_PARAMS = ',"params":'


def with_cache(params: str, lasts: bool | float | str | None, *, takes: bool) -> str:
    """Return params, whatever stands for them, with what is said of the cache: how long an output ``lasts`` in it.

    None leaves that to the handler; unless it ``takes`` one, the task runs in any case, and so it does with
    ``refresh``, for which the handler says how long.
    """
    return f"{CACHED_MARK}{orjson.dumps([lasts, takes]).decode()}{_PARAMS}{params}}}"


def without_cache(text: str) -> tuple[str, bool | float | str | None, bool]:
    """Return the params alone, how long an output lasts in the cache, and whether one may be taken from there."""
    said, _, params = text.removeprefix(CACHED_MARK).partition(_PARAMS)
    lasts, takes = orjson.loads(said)
    return params[:-1], lasts, takes
