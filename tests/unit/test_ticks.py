"""When schedules tick: against an oracle that walks from minute to minute, over all changes of clocks."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from cronsim import CronSim

from tick_oracle import ZONES, changes_of, ticks_of
from weft.core.errors import InvalidInput
from weft.flow.ticks import CatchUp, Timing, check_timing, due_now
from weft.live import ticks as ticks_module

CRONS = (
    "30 2 * * *", "*/17 * * * *", "0 2 * * *", "15 1,2,3 * * *", "*/30 2 * * *", "0 */2 * * *", "30 1 * * 0",
    "59 23 * * *", "0 0-3 * * 1-5", "5 0 1,15 * 6",
)  # fmt: skip
NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)


# Where clocks were put past a whole day, and where they were put back by hours.
FAR = (("Pacific/Apia", 2011), ("Antarctica/Casey", 2010), ("Antarctica/Troll", 2026))


@pytest.mark.parametrize(("zone", "year"), [*((zone, 2026) for zone in ZONES), *FAR])
def test_ticks_are_those_of_the_oracle_over_every_change_of_clocks(zone: str, year: int) -> None:
    tried = 0
    for change in changes_of(zone, year)[:4]:
        first, last = change - timedelta(hours=26), change + timedelta(hours=26)
        for cron in CRONS:
            timing = Timing(cron, None, zone, first)
            expected = ticks_of(cron, zone, first, last)
            found = list(itertools.takewhile(last.__ge__, _after(timing, first)))
            assert found == expected, cron
            assert [timing.before(later) for later in found[1:]] == found[:-1], cron
            tried += len(found)
    assert tried > 150


def test_ticks_cost_no_more_where_clocks_were_put_past_a_day(monkeypatch: pytest.MonkeyPatch) -> None:
    walked = 0

    class Counted(CronSim):
        def __next__(self) -> datetime:
            nonlocal walked
            walked += 1
            return super().__next__()

    monkeypatch.setattr(ticks_module, "CronSim", Counted)
    first = datetime(2011, 12, 28, tzinfo=UTC)
    found = list(Timing("* * * * *", None, "Pacific/Apia", first).between(first, first + timedelta(days=4)))
    assert len(found) == 4 * 24 * 60 + 1
    assert walked < 3 * len(found)


def _after(timing: Timing, moment: datetime) -> Iterator[datetime]:
    while True:
        moment = timing.after(moment)
        yield moment


def test_what_has_its_own_hour_ticks_once_a_day_also_when_that_hour_is_twice_or_never() -> None:
    timing = Timing("30 2 * * *", None, "Europe/Berlin", NEW_YEAR)
    ticks = list(timing.between(NEW_YEAR, NEW_YEAR + timedelta(days=364)))
    assert len({tick.date() for tick in ticks}) == len(ticks) == 364
    assert datetime(2026, 3, 29, 1, 0, tzinfo=UTC) in ticks
    assert datetime(2026, 10, 25, 0, 30, tzinfo=UTC) in ticks
    assert timing.count(ticks[0], ticks[-1]) == 364


def test_an_interval_ticks_from_its_anchor_on_and_before_it() -> None:
    timing = Timing(None, timedelta(seconds=90), "UTC", NEW_YEAR)
    assert timing.after(NEW_YEAR) == NEW_YEAR + timedelta(seconds=90)
    assert timing.before(NEW_YEAR) == NEW_YEAR - timedelta(seconds=90)
    near = NEW_YEAR + timedelta(seconds=91)
    assert (timing.before(near), timing.after(near)) == (
        NEW_YEAR + timedelta(seconds=90),
        NEW_YEAR + timedelta(seconds=180),
    )
    assert timing.count(NEW_YEAR, NEW_YEAR + timedelta(seconds=180)) == 3


@pytest.mark.parametrize(
    ("catch_up", "late", "tick", "missed"),
    [
        (CatchUp.ALL, 200, 0, 0), (CatchUp.LATEST, 200, 3, 3), (CatchUp.LATEST, 5, 0, 0), (CatchUp.NONE, 200, 3, 3),
        (CatchUp.NONE, 59, 0, 0),
    ],
)  # fmt: skip
def test_what_is_due_is_as_was_said(catch_up: CatchUp, late: int, tick: int, missed: int) -> None:
    timing = Timing(None, timedelta(seconds=60), "UTC", NEW_YEAR)
    due = due_now(timing, NEW_YEAR, NEW_YEAR + timedelta(seconds=late), catch_up)
    assert (due.tick, due.missed) == (NEW_YEAR + timedelta(seconds=60 * tick), missed)
    assert due.next_at == NEW_YEAR + timedelta(seconds=60 * (tick + 1))


def test_a_tick_that_is_late_by_more_than_a_minute_is_missed_unless_something_is_made_up_for() -> None:
    timing = Timing(None, timedelta(hours=1), "UTC", NEW_YEAR)
    for late, is_due in ((60, True), (61, False)):
        due = due_now(timing, NEW_YEAR, NEW_YEAR + timedelta(seconds=late), CatchUp.NONE)
        assert (due.tick == NEW_YEAR, due.missed) == (is_due, int(not is_due))


@pytest.mark.parametrize(
    ("cron", "every", "zone", "told"),
    [
        ("61 * * * *", None, "UTC", "cron: bad minute in '61 * * * *'"), ("* * * *", None, "UTC", "cron: has 4 fields"),
        ("* * * * * *", None, "UTC", "cron: has 6 fields"),
        ("0 0 31 2 *", None, "UTC", "cron: "), (None, None, "UTC", "cron: give cron or every"),
        ("@daily", 60, "UTC", "cron: give cron or every"), ("@often", None, "UTC", "cron: "),
        ("@daily", None, "Europe/Berlim", "timezone: there is no zone 'Europe/Berlim'. Did you mean 'Europe/Berlin'"),
        ("@daily", None, "../etc/passwd", "timezone: "), (None, 0.5, "UTC", "every: must be at least 1 s"),
        ("@daily", None, "", "timezone: must not be empty"),
        ("@daily", None, "localtime", "timezone: there is no zone 'localtime'"),
        (7, None, "UTC", "cron: must be text"), (None, "1h", "UTC", "every: must be a number of seconds"),
    ],
)  # fmt: skip
def test_what_never_ticks_or_cannot_be_read_is_refused(cron: object, every: object, zone: str, told: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        check_timing(cron, every, zone, NEW_YEAR)
    assert str(refused.value).startswith(told)


def test_words_stand_for_expressions_and_blanks_do_not_count() -> None:
    assert check_timing("@Daily", None, "UTC", NEW_YEAR).cron == "0 0 * * *"
    assert check_timing("  0   3 * * *", None, "UTC", NEW_YEAR).cron == "0 3 * * *"
