"""Snowflake ids."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moments import first_id_at, time_of
from weft.core.ids import EPOCH, MACHINES, IdMaker

LEASE = timedelta(minutes=9)
NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
moments = st.datetimes(datetime(2024, 1, 1), datetime(2090, 1, 1), timezones=st.just(UTC))


class Clock:
    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


def _maker(machine: int = 1, clock: Clock | None = None) -> IdMaker:
    return IdMaker(machine, NOW, LEASE, clock or Clock())


@given(moments)
def test_the_first_id_of_a_moment_tells_the_moment(moment: datetime) -> None:
    told = time_of(first_id_at(moment))
    assert told <= moment < told + timedelta(milliseconds=1)
    assert first_id_at(told) == first_id_at(moment)


@given(moments, moments)
def test_ids_are_ordered_as_their_moments_are(one: datetime, other: datetime) -> None:
    earlier, later = sorted((one, other))
    assert first_id_at(earlier) <= first_id_at(later)
    if later - earlier >= timedelta(milliseconds=1):
        assert first_id_at(earlier) < first_id_at(later)


def test_before_the_epoch_everything_is_id_zero() -> None:
    assert first_id_at(EPOCH - timedelta(days=400)) == first_id_at(EPOCH) == 0


def test_ids_fit_into_63_bits_for_the_time_that_41_bits_last() -> None:
    assert first_id_at(datetime(2093, 1, 1, tzinfo=UTC)) < 2**63


@given(st.lists(st.tuples(st.integers(0, 9000), st.floats(0, 0.01)), max_size=12), st.integers(1, MACHINES - 1))
def test_ids_of_a_maker_grow_and_are_unique(batches: list[tuple[int, float]], machine: int) -> None:
    clock = Clock()
    maker = _maker(machine, clock)
    made: list[int] = []
    for count, pause in batches:
        clock.seconds += pause
        taken = maker.take(count)
        assert len(taken) == count
        made += taken
    assert all(earlier < later for earlier, later in itertools.pairwise(made))
    assert {id >> 12 & (MACHINES - 1) for id in made} <= {machine}


@pytest.mark.parametrize("count", [4095, 4096, 4097, 10_000, 50_000])
def test_a_burst_within_a_millisecond_runs_ahead_of_the_clock_and_no_further_than_needed(count: int) -> None:
    maker = _maker()
    made = maker.take(count)
    assert len(set(made)) == count
    assert made == sorted(made)
    ahead = time_of(made[-1]) - NOW
    assert ahead <= timedelta(milliseconds=-(-count // 4096))


def test_after_a_burst_ids_go_on_above_it_though_the_clock_lags() -> None:
    clock = Clock()
    maker = _maker(clock=clock)
    burst = maker.take(20_000)
    clock.seconds += 0.001
    assert maker.take(1)[0] > burst[-1]
    clock.seconds += 10
    (later,) = maker.take(1)
    assert abs(time_of(later) - NOW - timedelta(seconds=10.001)) <= timedelta(milliseconds=1)


def test_makers_of_different_machines_never_make_the_same_id() -> None:
    clock = Clock()
    made = [id for machine in (1, 2, 3, 1022, 1023) for id in _maker(machine, clock).take(9000)]
    assert len(set(made)) == len(made)


def test_a_clock_that_stands_still_or_goes_back_repeats_no_id() -> None:
    clock = Clock()
    maker = _maker(clock=clock)
    made = maker.take(10)
    clock.seconds -= 5
    made += maker.take(10)
    assert made == sorted(set(made))


def test_ids_are_of_the_databases_time_not_of_the_hosts() -> None:
    (id,) = IdMaker(1, datetime(2031, 5, 5, tzinfo=UTC), LEASE, Clock()).take(1)
    assert time_of(id) == datetime(2031, 5, 5, tzinfo=UTC)


def test_a_maker_lapses_with_its_lease() -> None:
    clock = Clock()
    maker = _maker(clock=clock)
    assert not maker.has_lapsed
    clock.seconds += LEASE.total_seconds() - 1
    assert not maker.has_lapsed
    clock.seconds += 1
    assert maker.has_lapsed
