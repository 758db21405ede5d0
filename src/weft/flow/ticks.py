"""When a schedule ticks: the moments of a cron expression in a time zone, or of an interval, and which are made up for.

Nothing here asks a clock: every moment is handed in.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import cache
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim, CronSimError

from weft.core.checks import check_span, check_text
from weft.core.errors import InvalidInput
from weft.core.suggestions import did_you_mean

_ALIASES = {
    "@hourly": "0 * * * *", "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *", "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *",
}  # fmt: skip
_FIELDS = "minute hour day-of-month month day-of-week, such as `30 2 * * *`, or one of " + ", ".join(sorted(_ALIASES))
SHORTEST = timedelta(seconds=1)
# Clocks were never put further than this.
_AROUND = timedelta(hours=25)
# A tick that is later than this was missed.
GRACE = timedelta(minutes=1)
_MOST_COUNTED = 1000


class CatchUp(StrEnum):
    """What becomes of ticks that were missed, while nobody was there or the schedule was paused."""

    NONE = "none"
    LATEST = "latest"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class Timing:
    """When something ticks: by ``cron`` in the time zone, or at ``anchor`` and ``every`` so much after it."""

    cron: str | None
    every: timedelta | None
    timezone: str
    anchor: datetime

    def after(self, moment: datetime) -> datetime:
        """Return the first tick after a moment."""
        if self.every is not None:
            return self.anchor + ((moment - self.anchor) // self.every + 1) * self.every
        return self._nearest(moment, is_after=True)

    def before(self, moment: datetime) -> datetime:
        """Return the last tick before a moment."""
        if self.every is not None:
            return self.anchor + -((self.anchor - moment) // self.every + 1) * self.every
        return self._nearest(moment, is_after=False)

    def between(self, first: datetime, last: datetime) -> Iterator[datetime]:
        """Yield the ticks from one moment to another, both of them too."""
        moment = self.after(first - timedelta(microseconds=1))
        while moment <= last:
            yield moment
            moment = self.after(moment)

    def count(self, first: datetime, last: datetime) -> int:
        """Return how many ticks there are from one to another, both of them too; of cron up to a thousand."""
        if self.every is not None:
            return (last - first) // self.every + 1
        return sum(1 for _ in itertools.islice(self.between(first, last), _MOST_COUNTED))

    def _nearest(self, moment: datetime, *, is_after: bool) -> datetime:
        """Return the tick next to a moment: by the times on the wall there, and when each of them is.

        Where clocks are put back these are not in the same order, so those around are looked at too.
        """
        assert self.cron is not None
        zone = ZoneInfo(self.timezone)
        wall, shift = moment.astimezone(zone).replace(tzinfo=None), _shift_around(moment, zone)
        put_back = max(timedelta(), -shift)
        if is_after:
            wall -= put_back
        else:
            # What is looked for has whole seconds, and that of the moment itself is before it.
            wall += put_back + (timedelta(seconds=1) if wall.microsecond else timedelta())
            wall = wall.replace(microsecond=0)
        best: datetime | None = None
        for time in CronSim(self.cron, wall, reverse=not is_after):
            moments = self._moments(time, zone)
            if best is not None and moments and (min(moments) > best if is_after else max(moments) < best):
                return best
            for each in moments:
                if each > moment if is_after else each < moment:
                    best = each if best is None else min(best, each) if is_after else max(best, each)
            if best is not None and not shift and not _shift_around(best, zone):
                return best
        raise StopIteration

    def _moments(self, time: datetime, zone: ZoneInfo) -> list[datetime]:
        """Return when it is that time on the wall: twice, once or never where clocks are changed.

        What has an hour and a minute of its own ticks once a day: at the first of two, and when clocks are put forward
        past it, then. What goes on through the hours ticks whenever it is that time.
        """
        first, second = (time.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
        if first == second:
            return [first]
        goes_on = any(field.startswith("*") for field in (self.cron or "").split()[:2])
        if first < second:
            return [first, second] if goes_on else [first]
        return [] if goes_on else [_change_between(second, first, zone)]


def _shift_around(moment: datetime, zone: ZoneInfo) -> timedelta:
    """Return by how much clocks are put forward around a moment: below nothing when back, nothing when neither."""
    before, after = ((moment + span).astimezone(zone).utcoffset() for span in (-_AROUND, _AROUND))
    assert before is not None
    assert after is not None
    return after - before


def _change_between(low: datetime, high: datetime, zone: ZoneInfo) -> datetime:
    """Return the second at which clocks are changed."""
    offset = low.astimezone(zone).utcoffset()
    while high - low > timedelta(seconds=1):
        middle = (low + (high - low) / 2).replace(microsecond=0)
        low, high = (middle, high) if middle.astimezone(zone).utcoffset() == offset else (low, middle)
    return high


@dataclass(frozen=True, slots=True)
class Due:
    """The tick for which something begins now, if one does, how many are left out, and when the next one is."""

    tick: datetime | None
    missed: int
    next_at: datetime


def due_now(timing: Timing, next_at: datetime, now: datetime, catch_up: CatchUp) -> Due:
    """Return what is due of a schedule whose next tick is at ``next_at``, which is over."""
    if catch_up is CatchUp.ALL:
        return Due(next_at, 0, timing.after(next_at))
    after = timing.after(now)
    latest = timing.before(after)
    missed = timing.count(next_at, latest) - 1
    if catch_up is CatchUp.NONE and now - latest > GRACE:
        return Due(None, missed + 1, after)
    return Due(latest, missed, after)


def check_timing(cron: object, every: object, timezone: object, anchor: datetime) -> Timing:
    """Return when something ticks; raises `InvalidInput` for what is no such thing."""
    if (cron is None) == (every is None):
        raise InvalidInput("cron", "give cron or every, one of the two")
    zone = check_timezone(timezone)
    if every is not None:
        span = check_span(every, "every")
        if span < SHORTEST:
            raise InvalidInput("every", f"must be at least {SHORTEST.total_seconds():g} s")
        return Timing(None, span, zone, anchor)
    return Timing(_check_cron(cron, zone, anchor), None, zone, anchor)


def check_timezone(value: object) -> str:
    """Return the name of a time zone."""
    name = check_text(value, "timezone", 100)
    # Not every name that can be opened is that of a zone: what is looked up is a path.
    if name not in (known := _zones()):
        raise InvalidInput(
            "timezone", f"there is no zone {name!r}.{did_you_mean(name, known)} Take one such as Europe/Berlin, or UTC."
        )
    return name


@cache
def _zones() -> frozenset[str]:
    # They are read from the disk, one by one. Not those that another machine may have otherwise, or that are none.
    return frozenset(available_timezones() - {"localtime", "Factory"})


def _check_cron(value: object, zone: str, anchor: datetime) -> str:
    text = " ".join(check_text(value, "cron", 200).split())
    expression = _ALIASES.get(text.lower(), text)
    if (count := len(expression.split())) != 5:
        raise InvalidInput("cron", f"has {count} field{'s' * (count != 1)}, and must have five: {_FIELDS}")
    try:
        Timing(expression, None, zone, anchor).after(anchor)
    except CronSimError as problem:
        raise InvalidInput("cron", f"{str(problem).lower()} in {text!r}: the fields are {_FIELDS}") from None
    except StopIteration:
        raise InvalidInput("cron", f"{text!r} never ticks") from None
    return expression
