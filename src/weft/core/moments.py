"""Moments as people write them: a date and a time, a time of yesterday, or how long ago."""

from __future__ import annotations

import re
from datetime import datetime, time, timedelta

from weft.core.settings import parse_duration

_DAY = re.compile(r"(today|yesterday)(?:[ T](\d\d?:\d\d(?::\d\d)?))?")


def moment_in(text: str) -> datetime:
    """Return the moment that a text names; raises `ValueError`. Without a time zone it is in the machine's own.

    Example::

        moment_in("2026-11-15T10:00:00+01:00"), moment_in("yesterday 10:00"), moment_in("2h ago")
    """
    now = datetime.now().astimezone()
    if (day := _DAY.fullmatch(text)) is not None:
        then = now - timedelta(days=day[1] == "yesterday")
        if day[2] is None:
            return then
        # Of that day as the clocks went then, also when they were changed since.
        return datetime.combine(then.date(), time.fromisoformat(day[2].zfill(5))).astimezone()
    if text.endswith(" ago"):
        return now - parse_duration(text.removesuffix(" ago"))
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo is not None else moment.astimezone()
