"""When a cron expression ticks, minute by minute: slow, and so plain that it can be seen to be right."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

MINUTE = timedelta(minutes=1)
ZONES = (
    "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "America/St_Johns",
    "Africa/Casablanca", "Pacific/Auckland", "America/Santiago", "Africa/Cairo", "Europe/London", "UTC",
    "Pacific/Chatham",
)  # fmt: skip


def changes_of(zone: str, year: int) -> list[datetime]:
    """Return the hours of a year after which clocks show something else there; two days in it where they never do."""
    place, first = ZoneInfo(zone), datetime(year, 1, 1, tzinfo=UTC)
    hours = [first + timedelta(hours=n) for n in range(366 * 24)]
    offsets = [hour.astimezone(place).utcoffset() for hour in hours]
    pairs = zip(hours, itertools.pairwise(offsets), strict=False)
    found = [hour for hour, (one, other) in pairs if one != other]
    return found or [datetime(year, 3, 29, tzinfo=UTC), datetime(year, 10, 25, tzinfo=UTC)]


def ticks_of(cron: str, zone: str, first: datetime, last: datetime) -> list[datetime]:
    """Return the ticks after one moment and up to another.

    What has an hour and a minute of its own ticks once for each time on the wall: at the first moment at which clocks
    show it, or are put past it. Anything else ticks at each minute that clocks show as it says.
    """
    minute, hour, *_ = fields = cron.split()
    goes_on = minute.startswith("*") or hour.startswith("*")
    found, seen = [], set[datetime]()
    # A day more: what was seen before the first moment counts too.
    before: datetime | None = None
    for moment, shown in _walk(zone, first - timedelta(days=1), last):
        times = [shown]
        if before is not None and shown > before + MINUTE:
            skipped = int((shown - before) / MINUTE)
            times = [shown] if goes_on else [before + n * MINUTE for n in range(1, skipped + 1)]
        due = [time for time in times if _matches(fields, time) and (goes_on or time not in seen)]
        seen |= set(due)
        before = shown
        if due and moment > first:
            found.append(moment)
    return found


def _walk(zone: str, first: datetime, last: datetime) -> Iterator[tuple[datetime, datetime]]:
    place, moment = ZoneInfo(zone), first.replace(second=0, microsecond=0)
    while moment <= last:
        yield moment, moment.astimezone(place).replace(tzinfo=None)
        moment += MINUTE


def _matches(fields: list[str], time: datetime) -> bool:
    minute, hour, day, month, weekday = fields
    if not (_fits(minute, time.minute, 0) and _fits(hour, time.hour, 0) and _fits(month, time.month, 1)):
        return False
    days, weekdays = _fits(day, time.day, 1), _fits(weekday, time.isoweekday() % 7, 0)
    return days and weekdays if day == "*" or weekday == "*" else days or weekdays


def _fits(field: str, value: int, lowest: int) -> bool:
    for part in field.split(","):
        span, _, step = part.partition("/")
        if span == "*":
            fits = True
        else:
            low, _, high = span.partition("-")
            fits = int(low) <= value <= int(high or low)
            lowest = int(low)
        if fits and (value - lowest) % int(step or 1) == 0:
            return True
    return False
